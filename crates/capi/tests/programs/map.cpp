// lw::rcu_map from C++.
#include "check.h"
#include <latchwork.hpp>
#include <latchwork/rcu_map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

int main() {
    lw::rcu_map<std::string, std::shared_ptr<int>> map;
    auto seven = std::make_shared<int>(7);
    CHECK(map.empty() && !map.contains("seven") && !map.get("seven"));
    CHECK(map.insert("seven", seven) && !map.insert("seven", nullptr) && map.size() == 1);
    CHECK(map.get("seven").value() == seven);
    bool seen = false;
    CHECK(map.visit("seven", [&](const std::string &key, const std::shared_ptr<int> &value) { seen = key == "seven" && *value == 7; }));
    CHECK(seen && !map.visit("eight", [](const std::string &, const std::shared_ptr<int> &) {}));
    map.insert_or_assign("seven", std::make_shared<int>(8));
    CHECK(*map.get("seven").value() == 8);
    int sum = 0;
    map.for_each([&](const std::string &, const std::shared_ptr<int> &value) { sum += *value; });
    CHECK(sum == 8 && map.erase("seven") && !map.erase("seven") && map.empty());
    lw_rcu_map_barrier();
    CHECK(seven.use_count() == 1); // the map's copies are destroyed

    {
        lw::rcu_map<int, long> counts;
        std::vector<std::thread> threads;
        for (int number = 0; number < THREADS; number++) {
            threads.emplace_back([&counts, number] {
                for (int i = 0; i < 2000; i++) {
                    const int key = (i * 13 + number) % 97;
                    if (i % 5 == 0) {
                        counts.insert_or_assign(key, key * 1000L + number);
                    } else if (i % 31 == 0) {
                        counts.erase(key);
                    } else {
                        counts.visit(key, [key](const int &found, const long &value) { CHECK(found == key && value / 1000 == key); });
                    }
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        CHECK(counts.size() <= 97);
    }
    // What threads have removed that are gone is in no memory that LeakSanitizer looks at.
    lw_rcu_map_barrier();
}
