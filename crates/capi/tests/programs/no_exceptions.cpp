// Every C++ header in a program that is compiled without exceptions and without run-time type information, and with all warnings.
// What would throw ends the process: run with an argument, that is what this does.
#include "check.h"
#include "latchwork.hpp"
#include "latchwork/hazard_pointer"
#include "latchwork/rcu"
#include "latchwork/rcu_map"

#include <cstdio>

struct node : lw::rcu_obj_base<node>, lw::hazard_pointer_obj_base<node> {
    int value = 1;
};

static void upgrades() {
    lw::basic_shared_mutex<lw::pf_q> mutex;
    mutex.lock();
    mutex.unlock_and_lock_upgrade();
    CHECK(!mutex.try_lock_upgrade());
    mutex.unlock_upgrade();
    lw::upgrade_lock reading(mutex);
    {
        lw::upgrade_to_unique_lock writing(reading);
        CHECK(!mutex.try_lock());
    }
    const lw::basic_shared_mutex<lw::pf_q>::reader plain(std::move(reading));
    CHECK(plain.owns_lock());
}

int main(int count, char **) {
    upgrades();
    lw::recursive_mutex recursive;
    recursive.lock();
    CHECK(recursive.try_lock_for(std::chrono::milliseconds(1)));
    recursive.unlock();
    recursive.unlock();
    lw::mutex mutex;
    lw::condition_variable condition;
    lw::condition_variable_any any;
    {
        std::unique_lock lock(mutex);
        CHECK(condition.wait_for(lock, std::chrono::milliseconds(1)) == lw::cv_status::timeout);
        CHECK(any.wait_for(lock, std::chrono::milliseconds(1)) == lw::cv_status::timeout);
    }
    {
        lw::rcu_owned_domain domain;
        auto *retired = new node;
        static_cast<lw::rcu_obj_base<node> *>(retired)->retire({}, domain);
        lw::rcu_retire(new int(1));
        lw::rcu_barrier();
    }
    const lw::hazard_pointer hazard = lw::make_hazard_pointer();
    CHECK(!hazard.empty());
    std::puts("ok");
    if (count > 1) {
        lw::upgrade_lock<lw::shared_mutex> none;
        none.lock();
    }
}
