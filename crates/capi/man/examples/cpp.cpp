#include <latchwork.hpp>
#include <latchwork/hazard_pointer>
#include <cstdio>
#include <map>

struct route : lw::hazard_pointer_obj_base<route> {
    int next_hop = 1;
};

static lw::shared_mutex mutex;
static std::map<int, int> table;

/* Looks a key up, and adds it if it is not there. Other readers go on meanwhile. */
static int find(int key) {
    lw::upgrade_lock reading(mutex);
    auto found = table.find(key);
    if (found == table.end()) {
        lw::upgrade_to_unique_lock writing(reading);
        found = table.emplace(key, 10 * key).first;
    }
    return found->second;
}

int main() {
    lw::hazard_pointer_domain domain;
    std::atomic<route *> shared{new route};
    lw::hazard_pointer pointer = lw::make_hazard_pointer();
    const int hop = pointer.protect(shared)->next_hop;
    pointer.reset_protection();
    domain.retire(shared.exchange(nullptr));
    std::printf("%d %d\n", find(3) + find(3), hop);
}
