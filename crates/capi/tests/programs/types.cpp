// What latchwork.hpp has beyond the standard library's locks; properties of the types; corners.
#include "check.h"
#include "domains.hpp"
#include "latchwork.hpp"
#include "upgrades.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

// Static objects are made at compile time.
LW_CONSTINIT lw::mutex static_mutex;
LW_CONSTINIT lw::recursive_mutex static_recursive;
LW_CONSTINIT lw::shared_mutex static_shared;
LW_CONSTINIT lw::condition_variable static_condition;
LW_CONSTINIT lw::condition_variable_any static_any;
LW_CONSTINIT lw::counting_semaphore<> static_semaphore(3);
LW_CONSTINIT lw::basic_mutex<lw::mcs> static_mcs;
LW_CONSTINIT lw::basic_shared_mutex<lw::bravo_2d_shfl_rw> static_bravo;
LW_CONSTINIT lw::rcu_ptr<int> static_ptr;
struct padded {
    double x = 1;
    char c = 'c'; // and padding, which the compiler knows nothing of
};
LW_CONSTINIT lw::seqlock<padded> static_seqlock;
struct made_at_run_time {
    std::string::size_type length;
    made_at_run_time() : length(std::string("four").size()) {}
};
static lw::seqlock<made_at_run_time> dynamic_seqlock;

static_assert(sizeof(lw::mutex) == 16 && sizeof(lw::shared_mutex) == 32 && sizeof(lw::condition_variable) == 8);
static_assert(sizeof(lw::counting_semaphore<>) == 8 && sizeof(lw::seqlock<uint64_t>) == 32);
template <class T>
constexpr bool is_fixed = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                          !std::is_move_constructible_v<T> && !std::is_move_assignable_v<T>;
static_assert(is_fixed<lw::mutex> && is_fixed<lw::recursive_mutex> && is_fixed<lw::shared_mutex>);
static_assert(is_fixed<lw::condition_variable> && is_fixed<lw::condition_variable_any>);
static_assert(is_fixed<lw::counting_semaphore<>> && is_fixed<lw::basic_mutex<lw::shfl>> && is_fixed<lw::rcu_ptr<int>>);
static_assert(std::is_nothrow_default_constructible_v<lw::mutex> && std::is_trivially_destructible_v<lw::mutex>);
static_assert(noexcept(static_mutex.try_lock()) && noexcept(static_shared.try_lock_shared()));
static_assert(noexcept(static_condition.notify_all()) && noexcept(static_semaphore.try_acquire()));
static_assert(std::is_same_v<lw::mutex::native_handle_type, lw_mutex_t *>);

// A clock of the program's own, which runs at half speed.
struct slow_clock {
    using duration = std::chrono::milliseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<slow_clock>;
    static constexpr bool is_steady = true;
    static time_point now() noexcept {
        return time_point(std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch() / 2));
    }
};

// A clock of the program's own, as fine as its times are wide. Its epoch is in the future, as that of std::chrono::file_clock.
struct fine_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<fine_clock>;
    static constexpr bool is_steady = true;
    static inline std::atomic<int> looks{0};
    static time_point now() noexcept {
        looks++;
        return time_point(std::chrono::steady_clock::now().time_since_epoch() - std::chrono::hours(24 * 365 * 150));
    }
};

// A lock that throws when it is told to.
struct throwing_lock {
    lw::mutex mutex;
    int unlocks_left = 1000000;
    void lock() { mutex.lock(); }
    void unlock() {
        if (unlocks_left-- == 0) {
            throw 7;
        }
        mutex.unlock();
    }
};

#ifdef __cpp_lib_jthread
// A lock whose release requests a stop: the waiter is counted in by then, and does not sleep.
struct stopping_lock {
    lw::shared_mutex mutex;
    std::stop_source source;
    int releases = 0;
    void lock() { mutex.lock(); }
    void unlock() {
        releases++;
        mutex.unlock();
        source.request_stop();
    }
};
#endif

template <class F> void in_threads(F body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back(body, i);
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

template <class Algorithm> void registered() {
    lw::basic_mutex<Algorithm> mutex;
    long counter = 0;
    in_threads([&](int) {
        for (int i = 0; i < 100; i++) {
            const std::lock_guard guard(mutex);
            counter++;
        }
    });
    CHECK(counter == 400 && mutex.try_lock());
    std::thread([&] { CHECK(!mutex.try_lock() && !mutex.try_lock_for(2ms)); }).join();
    mutex.unlock();
    CHECK(mutex.try_lock_for(1s));
    mutex.unlock();
}

template <class Algorithm> void registered_shared() {
    lw::basic_shared_mutex<Algorithm> lock;
    long pair[2] = {};
    in_threads([&](int number) {
        for (int i = 0; i < 100; i++) {
            if (i % 4 == number) {
                const std::lock_guard guard(lock);
                pair[0]++, pair[1]++;
            } else {
                const typename lw::basic_shared_mutex<Algorithm>::reader reader(lock);
                CHECK(pair[0] == pair[1]);
            }
        }
    });
    CHECK(pair[0] == 100 && lock.try_lock());
    lock.unlock();
}

struct position {
    double x, y;
    int n;
};

static void seqlocks() {
    lw::seqlock<position> lock;
    in_threads([&](int number) {
        for (int i = 0; i < 500; i++) {
            if (number == 0) {
                lock.update([](position &p) { p.x++, p.y += 2, p.n += 3; });
            } else {
                const position p = lock.load();
                CHECK(p.y == 2 * p.x && p.n == 3 * static_cast<int>(p.x));
            }
        }
    });
    position p{};
    CHECK(lock.try_load(p) && p.x == 500);
    try {
        lock.update([](position &now) {
            now.x = 0;
            throw 1;
        });
        CHECK(false);
    } catch (int) {
    }
    CHECK(lock.load().x == 500);
    lock.store({1, 2, 3});
    CHECK(lock.load().n == 3 && lw::seqlock<char>('a').load() == 'a');
    CHECK(static_seqlock.load().x == 1 && static_seqlock.load().c == 'c' && dynamic_seqlock.load().length == 4);
    static_seqlock.store({2, 'd'});
    CHECK(static_seqlock.load().x == 2 && static_seqlock.load().c == 'd');
}

static std::atomic<int> alive{0};
struct counted {
    std::string text;
    explicit counted(std::string t) : text(std::move(t)) { alive++; }
    counted(const counted &other) : text(other.text) { alive++; }
    counted(counted &&other) noexcept : text(std::move(other.text)) { alive++; }
    ~counted() { alive--; }
};

static void pointers() {
    {
        lw::rcu_ptr<counted> shared(std::in_place, "0");
        in_threads([&](int number) {
            for (int i = 0; i < 500; i++) {
                if (i % 4 == number) {
                    shared.update([](const counted &old) { return counted(std::to_string(std::stoi(old.text) + 1)); });
                } else if (const auto now = shared.read()) {
                    CHECK(std::stoi(now->text) >= 0 && (*now).text == now.get()->text);
                }
            }
        });
        CHECK(shared.read()->text == "500");
        shared.store(counted("x"));
        CHECK(shared.read()->text == "x");
        shared.reset();
        CHECK(!shared.read());
    }
    lw_rcu_barrier(nullptr);
    CHECK(alive == 0 && !static_ptr.read());
}

#ifdef __cpp_lib_jthread
// A thread destroys a condition variable after it has notified the waiter, which waits for the mutex then, and requests a stop.
static void stopped_after_the_end() {
    lw::mutex mutex;
    bool waits = false, ready = false;
    std::stop_source source;
    alignas(lw::condition_variable_any) unsigned char place[sizeof(lw::condition_variable_any)];
    auto *any = new (place) lw::condition_variable_any;
    std::thread waiter([&] {
        std::unique_lock lock(mutex);
        waits = true;
        CHECK(any->wait(lock, source.get_token(), [&] { return ready; }));
    });
    for (;;) {
        const std::lock_guard guard(mutex);
        if (waits) {
            ready = true;
            any->notify_all();
            any->~condition_variable_any();
            std::memset(place, 0x77, sizeof place); // what other objects write there
            source.request_stop();
            break;
        }
    }
    waiter.join();
    for (const unsigned char byte : place) {
        CHECK(byte == 0x77);
    }
}
#endif

// Times of a program's clock that are further away than a duration of the clock is long.
static void far_times() {
    using far = std::chrono::time_point<fine_clock, std::chrono::milliseconds>;
    lw::mutex mutex;
    lw::condition_variable condition;
    lw::condition_variable_any any;
    lw::counting_semaphore<> semaphore(0);
    std::unique_lock lock(mutex);
    std::thread([&] {
        CHECK(!mutex.try_lock_until(fine_clock::time_point::min()) && !mutex.try_lock_until(far::min()));
        CHECK(!semaphore.try_acquire_until(far::min()));
    }).join();
    const auto never = [] { return false; };
    CHECK(!condition.wait_until(lock, fine_clock::time_point::min(), never) && !condition.wait_until(lock, far::min(), never));
    CHECK(!any.wait_until(lock, fine_clock::time_point::min(), never) && !any.wait_until(lock, far::min(), never));
    int step = 0;
    std::thread waker([&] {
        for (int i = 1; i <= 4; i++) {
            std::this_thread::sleep_for(3ms);
            const std::lock_guard guard(mutex);
            step = i;
            condition.notify_all();
            any.notify_all();
        }
        std::this_thread::sleep_for(3ms);
        semaphore.release();
        std::this_thread::sleep_for(3ms);
        semaphore.release();
    });
    fine_clock::looks = 0;
    CHECK(condition.wait_until(lock, far::max(), [&] { return step >= 1; }));
    CHECK(condition.wait_until(lock, fine_clock::time_point::max(), [&] { return step >= 2; }));
    CHECK(any.wait_until(lock, far::max(), [&] { return step >= 3; }));
    CHECK(any.wait_until(lock, fine_clock::time_point::max(), [&] { return step >= 4; }));
    CHECK(semaphore.try_acquire_until(far::max()) && semaphore.try_acquire_until(fine_clock::time_point::max()));
    waker.join();
    CHECK(fine_clock::looks < 100); // they slept
}

static void conditions() {
    lw::mutex mutex;
    lw::condition_variable condition;
    lw::condition_variable_any any;
    std::unique_lock lock(mutex);
    const auto slow = slow_clock::now() + 3ms;
    CHECK(!condition.wait_until(lock, slow, [] { return false; }) && slow_clock::now() >= slow);
    CHECK(!any.wait_until(lock, slow_clock::now() + 2ms, [] { return false; }));
    CHECK(any.wait_for(lock, 1ms) == lw::cv_status::timeout || lock.owns_lock());
    CHECK(!mutex.try_lock());
    CHECK(!any.wait_for(mutex, 1ms, [] { return false; }) && !mutex.try_lock()); // without a guard
    // A duration that does not fit into a time.
    bool done = false;
    std::thread waker([&] {
        const std::lock_guard guard(mutex);
        done = true;
        condition.notify_all();
    });
    CHECK(condition.wait_for(lock, std::chrono::hours::max(), [&] { return done; }));
    waker.join();
    lock.unlock();
    CHECK(mutex.try_lock_until(std::chrono::steady_clock::time_point::min()));
    // Durations that do not fit, into the past.
    std::thread([&] { CHECK(!mutex.try_lock_for(std::chrono::hours::min())); }).join();
    std::thread([&] { CHECK(!mutex.try_lock_for(-std::chrono::duration<double>(1e300))); }).join();
    std::thread([&] { CHECK(!mutex.try_lock_for(std::chrono::duration<double>(NAN))); }).join();
    // In nanoseconds it fits. On the way there, as an exact product, it does not: 262 days in samples of 44.1 kHz.
    const std::chrono::duration<long long, std::ratio<1, 44100>> samples(1'000'000'000'000);
    CHECK(lw::detail::to_nanos(samples).count() == 22'675'736'961'451'248);
    CHECK(lw::detail::to_nanos(-samples).count() == -22'675'736'961'451'247);
    std::thread([&] { CHECK(!mutex.try_lock_until(slow_clock::now() + 2ms)); }).join();
    mutex.unlock();
    far_times();
    throwing_lock throwing;
    throwing.lock();
    throwing.unlocks_left = 0;
    try {
        any.wait(throwing);
        CHECK(false);
    } catch (int) {
    }
    throwing.mutex.unlock();
    any.notify_all(); // without waiters: the one that threw is not counted any more
#ifdef __cpp_lib_jthread
    stopping_lock stopping;
    stopping.lock();
    CHECK(!any.wait(stopping, stopping.source.get_token(), [] { return false; }) && stopping.releases == 1);
    CHECK(!any.wait(stopping, stopping.source.get_token(), [] { return false; }) && stopping.releases == 1);
    stopped_after_the_end();
    stopping.source = std::stop_source();
    const auto far = slow_clock::now() + 24h;
    CHECK(!any.wait_until(stopping, stopping.source.get_token(), far, [] { return false; }) && stopping.releases == 2);
    stopping.unlock();
    throwing.lock();
    throwing.unlocks_left = 0;
    try {
        any.wait(throwing, std::stop_source().get_token(), [] { return false; });
        CHECK(false);
    } catch (int) {
    }
    throwing.mutex.unlock();
#endif
    lw::shared_mutex shared;
    shared.lock();
    shared.unlock_and_lock_shared();
    std::thread([&] { CHECK(shared.try_lock_shared() && (shared.unlock_shared(), !shared.try_lock())); }).join();
    shared.unlock_shared();
    shared.lock();
    shared.unlock_fair();
}

int main() {
    domains::all();
    upgrades::all();
    registered<lw::mcs>();
    registered<lw::cna>();
    registered<lw::shfl>();
    registered<lw::hmcs>();
    registered_shared<lw::pf_q>();
    registered_shared<lw::mcs_rw>();
    registered_shared<lw::bravo_2d_shfl_rw>();
    seqlocks();
    pointers();
    conditions();
    std::puts("ok");
}
