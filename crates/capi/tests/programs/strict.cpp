// Every class of the headers for C++, with all of its functions, for compilers with strict warnings.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <ratio>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#if __cplusplus >= 202002L
#include <stop_token>
#endif
// As some programs have them. After the standard library's headers, which cannot bear them.
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) < (b) ? (b) : (a))

#include <latchwork.hpp>
#include <latchwork/hazard_pointer>
#include <latchwork/rcu>
#include <latchwork/rcu_map>

struct node : lw::rcu_obj_base<node> {
    int value = 1;
};
struct hazard_node : lw::hazard_pointer_obj_base<hazard_node> {
    int value = 1;
};

template class lw::basic_mutex<lw::mcs>;
template class lw::basic_shared_mutex<lw::pf_q>;
template class lw::counting_semaphore<4>;
template class lw::rcu_map<std::string, int>;
template class lw::rcu_ptr<std::string>;
template class lw::seqlock<double>;
template class lw::upgrade_lock<lw::shared_mutex>;
template class lw::upgrade_to_unique_lock<lw::shared_mutex>;

// Calls what waits for a time.
template <class Time> static void in_time(const Time &time) {
    lw::mutex mutex;
    lw::recursive_mutex recursive;
    lw::shared_mutex shared;
    lw::basic_shared_mutex<lw::pf_q> by_name;
    lw::counting_semaphore<> semaphore(0);
    lw::condition_variable condition;
    lw::condition_variable_any any;
    const auto never = [] { return false; };
    std::unique_lock<lw::mutex> lock(mutex, std::defer_lock);
    if constexpr (std::is_convertible_v<Time, std::chrono::duration<double>>) {
        (void)lock.try_lock_for(time);
        (void)(recursive.try_lock_for(time) && shared.try_lock_shared_for(time) && by_name.try_lock_upgrade_for(time));
        (void)(semaphore.try_acquire_for(time) || condition.wait_for(lock, time, never));
        (void)any.wait_for(lock, time, never);
    } else {
        (void)lock.try_lock_until(time);
        (void)(recursive.try_lock_until(time) && shared.try_lock_shared_until(time) && by_name.try_lock_upgrade_until(time));
        (void)(semaphore.try_acquire_until(time) || condition.wait_until(lock, time, never));
        (void)any.wait_until(lock, time, never);
    }
}

struct own_clock {
    using rep = float;
    using period = std::ratio<1, 60>;
    using duration = std::chrono::duration<rep, period>;
    using time_point = std::chrono::time_point<own_clock>;
    static constexpr bool is_steady = true;
    static time_point now() { return time_point(std::chrono::steady_clock::now().time_since_epoch()); }
};

int main() {
    in_time(std::chrono::milliseconds(1));
    in_time(std::chrono::duration<float>(0.001F));
    in_time(std::chrono::steady_clock::now());
    in_time(std::chrono::system_clock::now());
    in_time(own_clock::now());
    std::atomic<hazard_node *> found{new hazard_node};
    lw::hazard_pointer hazard = lw::make_hazard_pointer();
    const int value = hazard.protect(found)->value;
    hazard.reset_protection();
    found.exchange(nullptr)->retire();
    lw_hazard_collect();
    {
        const std::scoped_lock region(lw::rcu_default_domain());
        (new node)->retire();
    }
    lw::rcu_retire(new int(1));
    lw::rcu_barrier();
    lw::rcu_synchronize();
    lw::rcu_owned_domain owned;
    lw::hazard_pointer_domain own_hazards;
    lw::shared_mutex shared;
    lw::upgrade_lock<lw::shared_mutex> reading(shared);
    const auto writing = lw::to_unique_lock(std::move(reading));
    lw::mutex mutex;
    lw::condition_variable condition;
    lw::notify_all_at_thread_exit(condition, std::unique_lock<lw::mutex>(mutex));
    return value - 1;
}
