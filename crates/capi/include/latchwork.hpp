/* latchwork for C++17 and later: the locks of latchwork.h with the names and the interfaces of the standard library.
 *
 *     namespace locks = lw;                     // was: namespace locks = std;
 *     locks::mutex mutex;
 *     std::lock_guard lock(mutex);              // std's guards work with these locks
 *
 * | here                                     | in place of                                      |
 * | lw::mutex, lw::timed_mutex               | std::mutex, std::timed_mutex: one type           |
 * | lw::recursive_mutex, recursive_timed_mutex | std's                                          |
 * | lw::shared_mutex, lw::shared_timed_mutex | std's: one type                                  |
 * | lw::condition_variable, _any             | std's, without native_handle; with stop_token in C++20 |
 * | lw::counting_semaphore, binary_semaphore | C++20's                                          |
 * | lw::lock_guard, unique_lock, ...         | std's own, by a using-declaration                |
 * | lw::basic_mutex<lw::mcs>, ...            | every lock of `latchwork list`                   |
 * | lw::seqlock<T>                           |                                                  |
 * | lw::rcu_ptr<T>                           | a value that is read all the time and replaced as a whole |
 *
 * C++26's <rcu> and <hazard_pointer> are latchwork/rcu and latchwork/hazard_pointer. docs/cpp.md is the manual. */
#ifndef LATCHWORK_HPP
#define LATCHWORK_HPP

#include "latchwork.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable> // std::cv_status
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <shared_mutex>
#if __cplusplus >= 202002L && __has_include(<stop_token>)
#include <stop_token>
#endif
#include <system_error>
#include <type_traits>
#include <utility>

#if __cplusplus < 201703L
#error "latchwork.hpp needs C++17"
#endif

#if __cplusplus >= 202002L
#define LW_CONSTINIT constinit
#else
#define LW_CONSTINIT
#endif

namespace lw {

using std::adopt_lock;
using std::adopt_lock_t;
using std::cv_status;
using std::defer_lock;
using std::defer_lock_t;
using std::lock;
using std::lock_guard;
using std::scoped_lock;
using std::shared_lock;
using std::try_lock;
using std::try_to_lock;
using std::try_to_lock_t;
using std::unique_lock;
using std::once_flag;
using std::call_once;

namespace detail {

/* A time of std::chrono as one of C. */
struct time_point {
    int clock;
    timespec time;
};

inline timespec to_timespec(std::chrono::nanoseconds since_epoch) noexcept {
    using namespace std::chrono;
    if (since_epoch.count() < 0) {
        return {0, 0};
    }
    const auto whole = duration_cast<seconds>(since_epoch);
    return {static_cast<time_t>(whole.count()), static_cast<long>((since_epoch - whole).count())};
}

/* `duration` in nanoseconds, rounded up, at most what fits. */
template <class Rep, class Period>
std::chrono::nanoseconds to_nanos(const std::chrono::duration<Rep, Period> &duration) {
    using namespace std::chrono;
    using wide = std::chrono::duration<long double, std::nano>;
    if (duration_cast<wide>(duration) >= wide(nanoseconds::max() / 2)) {
        return nanoseconds::max() / 2;
    }
    return ceil<nanoseconds>(duration);
}

template <class Duration>
time_point to_c(const std::chrono::time_point<std::chrono::steady_clock, Duration> &time) {
    return {CLOCK_MONOTONIC, to_timespec(to_nanos(time.time_since_epoch()))};
}

template <class Duration>
time_point to_c(const std::chrono::time_point<std::chrono::system_clock, Duration> &time) {
    return {CLOCK_REALTIME, to_timespec(to_nanos(time.time_since_epoch()))};
}

/* For clocks of the program's own: the monotonic time that is as far away. */
template <class Clock, class Duration>
time_point to_c(const std::chrono::time_point<Clock, Duration> &time) {
    return to_c(std::chrono::steady_clock::now() + to_nanos(time - Clock::now()));
}

template <class Rep, class Period>
std::chrono::steady_clock::time_point after(const std::chrono::duration<Rep, Period> &duration) {
    const auto now = std::chrono::steady_clock::now();
    return now + std::min(to_nanos(duration), std::chrono::steady_clock::time_point::max() - now);
}

template <class Clock>
constexpr bool is_native_clock =
    std::is_same_v<Clock, std::chrono::steady_clock> || std::is_same_v<Clock, std::chrono::system_clock>;

/* Calls `attempt` with a time of C until it succeeds, or the time has passed on the program's clock. */
template <class Clock, class Duration, class Attempt>
bool until(const std::chrono::time_point<Clock, Duration> &time, Attempt attempt) {
    for (;;) {
        const time_point at = to_c(time);
        if (attempt(at.clock, &at.time) == 0) {
            return true;
        }
        if (is_native_clock<Clock> || Clock::now() >= time) {
            return false;
        }
    }
}

} // namespace detail

/* ShflLock, blocking: lw_mutex_t. Also what std::timed_mutex is. */
class LW_CAPABILITY("mutex") mutex {
  public:
    using native_handle_type = lw_mutex_t *;

    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() noexcept LW_ACQUIRE() LW_NO_ANALYSIS { lw_mutex_lock(&raw_); }
    bool try_lock() noexcept LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS { return lw_mutex_trylock(&raw_) == 0; }
    void unlock() noexcept LW_RELEASE() LW_NO_ANALYSIS { lw_mutex_unlock(&raw_); }
    /* Leaves the mutex to the first waiter in the queue. */
    void unlock_fair() noexcept LW_RELEASE() LW_NO_ANALYSIS { lw_mutex_unlock_fair(&raw_); }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return try_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return lw_mutex_clocklock(&raw_, clock, at);
        });
    }

    native_handle_type native_handle() noexcept { return &raw_; }

  private:
    lw_mutex_t raw_ = LW_MUTEX_INIT;
};

using timed_mutex = mutex;

/* A mutex that its holder can lock again, up to 2^32 - 1 times. */
class LW_CAPABILITY("mutex") recursive_mutex {
  public:
    constexpr recursive_mutex() noexcept = default;
    recursive_mutex(const recursive_mutex &) = delete;
    recursive_mutex &operator=(const recursive_mutex &) = delete;

    /* system_error (resource_unavailable_try_again) if the thread has locked it too often. */
    void lock() LW_ACQUIRE() LW_NO_ANALYSIS {
        if (!again()) {
            lw_mutex_lock(&raw_);
            first();
        }
    }
    bool try_lock() noexcept LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        if (is_mine()) {
            return more();
        }
        return lw_mutex_trylock(&raw_) == 0 && (first(), true);
    }
    void unlock() noexcept LW_RELEASE() LW_NO_ANALYSIS {
        if (--depth_ == 0) {
            owner_.store(nullptr, std::memory_order_relaxed);
            lw_mutex_unlock(&raw_);
        }
    }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return try_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        if (is_mine()) {
            return more();
        }
        return detail::until(time, [this](int clock, const timespec *at) {
            return lw_mutex_clocklock(&raw_, clock, at);
        }) && (first(), true);
    }

  private:
    /* A thread's words have an address that no other live thread's have. */
    static const void *me() noexcept { return &lw_thread; }
    bool is_mine() const noexcept { return owner_.load(std::memory_order_relaxed) == me(); }
    bool more() noexcept { return depth_ != std::numeric_limits<uint32_t>::max() && ++depth_ != 0; }
    bool again() {
        if (!is_mine()) {
            return false;
        }
        if (!more()) {
            throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        }
        return true;
    }
    void first() noexcept {
        owner_.store(me(), std::memory_order_relaxed);
        depth_ = 1;
    }

    lw_mutex_t raw_ = LW_MUTEX_INIT;
    std::atomic<const void *> owner_{nullptr};
    uint32_t depth_ = 0;
};

using recursive_timed_mutex = recursive_mutex;

/* BRAVO over a reader-writer ShflLock: lw_rwlock_t. Also what std::shared_timed_mutex is. The thread that locked shared
 * unlocks. */
class LW_CAPABILITY("shared_mutex") shared_mutex {
  public:
    using native_handle_type = lw_rwlock_t *;

    constexpr shared_mutex() noexcept = default;
    ~shared_mutex() { lw_rwlock_destroy(&raw_); }
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() noexcept LW_ACQUIRE() LW_NO_ANALYSIS { lw_rwlock_wrlock(&raw_); }
    bool try_lock() noexcept LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS { return lw_rwlock_trywrlock(&raw_) == 0; }
    void unlock() noexcept LW_RELEASE() LW_NO_ANALYSIS { lw_rwlock_wrunlock(&raw_); }
    void unlock_fair() noexcept LW_RELEASE() LW_NO_ANALYSIS { lw_rwlock_wrunlock_fair(&raw_); }
    void lock_shared() noexcept LW_ACQUIRE_SHARED() LW_NO_ANALYSIS { lw_rwlock_rdlock(&raw_); }
    bool try_lock_shared() noexcept LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS { return lw_rwlock_tryrdlock(&raw_) == 0; }
    void unlock_shared() noexcept LW_RELEASE_SHARED() LW_NO_ANALYSIS { lw_rwlock_rdunlock(&raw_); }
    /* Becomes a reader, with no writer in between. */
    void unlock_and_lock_shared() noexcept LW_NO_ANALYSIS { lw_rwlock_downgrade(&raw_); }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return try_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return lw_rwlock_clockwrlock(&raw_, clock, at);
        });
    }
    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &duration)
        LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS {
        return try_lock_shared_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
        LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return lw_rwlock_clockrdlock(&raw_, clock, at);
        });
    }

    native_handle_type native_handle() noexcept { return &raw_; }

  private:
    lw_rwlock_t raw_ = LW_RWLOCK_INIT;
};

using shared_timed_mutex = shared_mutex;

/* Waits with any lock: std::condition_variable_any. */
class condition_variable_any {
  public:
    constexpr condition_variable_any() noexcept = default;
    ~condition_variable_any() { lw_cond_destroy(&raw_); }
    condition_variable_any(const condition_variable_any &) = delete;
    condition_variable_any &operator=(const condition_variable_any &) = delete;

    void notify_one() noexcept { lw_cond_signal(&raw_); }
    void notify_all() noexcept { lw_cond_broadcast(&raw_); }

    template <class Lock> void wait(Lock &lock) { block(lock, CLOCK_MONOTONIC, nullptr); }
    template <class Lock, class Predicate> void wait(Lock &lock, Predicate predicate) {
        while (!predicate()) {
            wait(lock);
        }
    }
    template <class Lock, class Clock, class Duration>
    cv_status wait_until(Lock &lock, const std::chrono::time_point<Clock, Duration> &time) {
        return timed(time, [&](int clock, const timespec *at) { return block(lock, clock, at); });
    }
    template <class Lock, class Clock, class Duration, class Predicate>
    bool wait_until(Lock &lock, const std::chrono::time_point<Clock, Duration> &time, Predicate predicate) {
        while (!predicate()) {
            if (wait_until(lock, time) == cv_status::timeout) {
                return predicate();
            }
        }
        return true;
    }
    template <class Lock, class Rep, class Period>
    cv_status wait_for(Lock &lock, const std::chrono::duration<Rep, Period> &duration) {
        return wait_until(lock, detail::after(duration));
    }
    template <class Lock, class Rep, class Period, class Predicate>
    bool wait_for(Lock &lock, const std::chrono::duration<Rep, Period> &duration, Predicate predicate) {
        return wait_until(lock, detail::after(duration), std::move(predicate));
    }

#ifdef __cpp_lib_jthread
    /* These end also when a stop is requested. They return what the predicate says at the end. */
    template <class Lock, class Predicate> bool wait(Lock &lock, std::stop_token token, Predicate predicate) {
        stoppable stop(*this, token);
        while (!token.stop_requested()) {
            if (predicate()) {
                return true;
            }
            stop.block(lock, CLOCK_MONOTONIC, nullptr);
        }
        return predicate();
    }
    template <class Lock, class Clock, class Duration, class Predicate>
    bool wait_until(Lock &lock, std::stop_token token, const std::chrono::time_point<Clock, Duration> &time,
                    Predicate predicate) {
        stoppable stop(*this, token);
        while (!token.stop_requested()) {
            if (predicate()) {
                return true;
            }
            const cv_status status =
                timed(time, [&](int clock, const timespec *at) { return stop.block(lock, clock, at); });
            if (status == cv_status::timeout) {
                break;
            }
        }
        return predicate();
    }
    template <class Lock, class Rep, class Period, class Predicate>
    bool wait_for(Lock &lock, std::stop_token token, const std::chrono::duration<Rep, Period> &duration,
                  Predicate predicate) {
        return wait_until(lock, std::move(token), detail::after(duration), std::move(predicate));
    }
#endif

  private:
#ifdef __cpp_lib_jthread
    /* A wait that a stop request ends. The waiter counts itself in and then looks for a request, under `order_`. A request
     * takes `order_` and then notifies. So if the waiter does not see the request, the request sees the waiter. */
    class stoppable {
      public:
        stoppable(condition_variable_any &condition, const std::stop_token &token)
            : condition_(condition), token_(token), callback_(token, notify{*this}) {}

        template <class Lock> int block(Lock &lock, int clock, const timespec *time) {
            order_.lock();
            const uint32_t ticket = lw_cond_prepare(&condition_.raw_);
            const bool stopped = token_.stop_requested();
            order_.unlock();
            if (stopped) {
                return lw_cond_finish(&condition_.raw_, ticket, 0);
            }
            return condition_.block(lock, clock, time, ticket);
        }

      private:
        struct notify {
            stoppable &self;
            void operator()() noexcept {
                self.order_.lock();
                self.order_.unlock();
                self.condition_.notify_all();
            }
        };

        condition_variable_any &condition_;
        const std::stop_token &token_;
        mutex order_;
        /* Last: it may call at once, and its destructor waits for a call in another thread. */
        std::stop_callback<notify> callback_;
    };
#endif

    /* What a wait until `time` ends with. */
    template <class Clock, class Duration, class Block>
    static cv_status timed(const std::chrono::time_point<Clock, Duration> &time, Block block) {
        const detail::time_point at = detail::to_c(time);
        const bool late = block(at.clock, &at.time) == ETIMEDOUT;
        if (detail::is_native_clock<Clock>) {
            return late ? cv_status::timeout : cv_status::no_timeout;
        }
        return late && Clock::now() >= time ? cv_status::timeout : cv_status::no_timeout;
    }

    template <class Lock> int block(Lock &lock, int clock, const timespec *time) {
        return block(lock, clock, time, lw_cond_prepare(&raw_));
    }

    template <class Lock> int block(Lock &lock, int clock, const timespec *time, uint32_t ticket) {
        /* Locks again also if `unlock` throws: the caller is counted out in any case. */
        struct Relock {
            condition_variable_any &self;
            Lock &lock;
            uint32_t ticket;
            bool unlocked;
            int &result;
            ~Relock() noexcept(false) {
                result = lw_cond_finish(&self.raw_, ticket, result);
                if (unlocked) {
                    lock.lock();
                }
            }
        };
        int result = 0;
        {
            Relock relock{*this, lock, ticket, false, result};
            lock.unlock();
            relock.unlocked = true;
            result = lw_cond_block(&raw_, relock.ticket, clock, time);
        }
        return result;
    }

    lw_cond_t raw_ = LW_COND_INIT;
};

/* Waits with unique_lock<lw::mutex>: std::condition_variable. */
class condition_variable {
  public:
    using native_handle_type = lw_cond_t *;

    constexpr condition_variable() noexcept = default;
    ~condition_variable() { lw_cond_destroy(&raw_); }
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept { lw_cond_signal(&raw_); }
    void notify_all() noexcept { lw_cond_broadcast(&raw_); }

    void wait(unique_lock<mutex> &lock) noexcept { lw_cond_wait(&raw_, lock.mutex()->native_handle()); }
    template <class Predicate> void wait(unique_lock<mutex> &lock, Predicate predicate) {
        while (!predicate()) {
            wait(lock);
        }
    }
    template <class Clock, class Duration>
    cv_status wait_until(unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &time) {
        const detail::time_point at = detail::to_c(time);
        const bool late = lw_cond_clockwait(&raw_, lock.mutex()->native_handle(), at.clock, &at.time) == ETIMEDOUT;
        if (detail::is_native_clock<Clock>) {
            return late ? cv_status::timeout : cv_status::no_timeout;
        }
        return late && Clock::now() >= time ? cv_status::timeout : cv_status::no_timeout;
    }
    template <class Clock, class Duration, class Predicate>
    bool wait_until(unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &time, Predicate predicate) {
        while (!predicate()) {
            if (wait_until(lock, time) == cv_status::timeout) {
                return predicate();
            }
        }
        return true;
    }
    template <class Rep, class Period>
    cv_status wait_for(unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &duration) {
        return wait_until(lock, detail::after(duration));
    }
    template <class Rep, class Period, class Predicate>
    bool wait_for(unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &duration, Predicate predicate) {
        return wait_until(lock, detail::after(duration), std::move(predicate));
    }

    native_handle_type native_handle() noexcept { return &raw_; }

  private:
    lw_cond_t raw_ = LW_COND_INIT;
};

/* C++20's, from C++17 on. */
template <std::ptrdiff_t LeastMax = LW_SEM_VALUE_MAX> class counting_semaphore {
    static_assert(LeastMax >= 0 && LeastMax <= static_cast<std::ptrdiff_t>(LW_SEM_VALUE_MAX));

  public:
    static constexpr std::ptrdiff_t max() noexcept { return LW_SEM_VALUE_MAX; }

    constexpr explicit counting_semaphore(std::ptrdiff_t units) noexcept : raw_{2 * static_cast<uint32_t>(units), 0} {}
    counting_semaphore(const counting_semaphore &) = delete;
    counting_semaphore &operator=(const counting_semaphore &) = delete;

    /* There must be room for so many. */
    void release(std::ptrdiff_t units = 1) noexcept {
        if (units == 1) {
            lw_sem_post(&raw_);
        } else if (units > 0) {
            lw_sem_post_many(&raw_, static_cast<uint32_t>(units));
        }
    }
    void acquire() noexcept { lw_sem_wait(&raw_); }
    bool try_acquire() noexcept { return lw_sem_trywait(&raw_) == 0; }
    template <class Rep, class Period> bool try_acquire_for(const std::chrono::duration<Rep, Period> &duration) {
        return try_acquire_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_acquire_until(const std::chrono::time_point<Clock, Duration> &time) {
        return detail::until(time, [this](int clock, const timespec *at) {
            return lw_sem_clockwait(&raw_, clock, at);
        });
    }

  private:
    lw_sem_t raw_;
};

using binary_semaphore = counting_semaphore<1>;

/* A few words that readers copy without a lock. T is trivially copyable. */
template <class T> class seqlock {
    static_assert(std::is_trivially_copyable_v<T>, "readers copy the bytes of T");
    static constexpr size_t words = (sizeof(T) + 7) / 8;

  public:
    seqlock() noexcept : seqlock(T()) {}
    explicit seqlock(const T &value) noexcept { std::memcpy(words_, &value, sizeof(T)); }
    seqlock(const seqlock &) = delete;
    seqlock &operator=(const seqlock &) = delete;

    /* A copy, of one moment. */
    T load() const noexcept {
        uint64_t copy[words];
        lw_seqlock_read(&raw_, copy, words_, words);
        return from(copy);
    }
    /* A copy unless a writer stores meanwhile: whether there is one. It never waits. */
    bool try_load(T &value) const noexcept {
        uint64_t copy[words];
        if (lw_seqlock_try_read(&raw_, copy, words_, words) != 0) {
            return false;
        }
        std::memcpy(static_cast<void *>(&value), copy, sizeof(T));
        return true;
    }
    void store(const T &value) noexcept {
        update([&value](T &now) { now = value; });
    }
    /* Calls `change` with a reference to a copy, and stores that. If `change` throws, nothing has changed. */
    template <class F> void update(F change) {
        struct Writing {
            lw_seqlock_t &lock;
            explicit Writing(lw_seqlock_t &l) noexcept LW_NO_ANALYSIS : lock(l) { lw_seqlock_write_lock(&lock); }
            ~Writing() LW_NO_ANALYSIS { lw_seqlock_write_unlock(&lock); }
        } writing(raw_);
        uint64_t copy[words] = {};
        for (size_t i = 0; i < words; i++) {
            copy[i] = __atomic_load_n(&words_[i], __ATOMIC_RELAXED);
        }
        T value = from(copy);
        change(value);
        std::memcpy(copy, &value, sizeof(T));
        lw_seqlock_store(&raw_, words_, copy, words);
    }

  private:
    static T from(const uint64_t *copy) noexcept {
        typename std::aligned_storage<sizeof(T), alignof(T)>::type place;
        std::memcpy(&place, copy, sizeof(T));
        return *reinterpret_cast<T *>(&place);
    }

    mutable lw_seqlock_t raw_ = LW_SEQLOCK_INIT;
    uint64_t words_[words] = {};
};

/* Every lock of `latchwork list`: lw::basic_mutex<lw::mcs>, lw::basic_shared_mutex<lw::pf_q>. */
#define LW_MUTEX_TYPE_(name, bytes, align)                                                                                   \
    struct name {                                                                                                          \
        using type = lw_##name##_t;                                                                                        \
        static const lw_mutex_ops &ops() noexcept { return lw_##name##_ops; }                                              \
    };
#define LW_RWLOCK_TYPE_(name, bytes, align)                                                                                  \
    struct name {                                                                                                          \
        using type = lw_##name##_t;                                                                                        \
        static const lw_rwlock_ops &ops() noexcept { return lw_##name##_ops; }                                             \
    };
#include "latchwork/registered.h"
#undef LW_MUTEX_TYPE_
#undef LW_RWLOCK_TYPE_

template <class Algorithm> class LW_CAPABILITY("mutex") basic_mutex {
  public:
    constexpr basic_mutex() noexcept = default;
    basic_mutex(const basic_mutex &) = delete;
    basic_mutex &operator=(const basic_mutex &) = delete;

    void lock() noexcept LW_ACQUIRE() LW_NO_ANALYSIS { taken(Algorithm::ops().lock(raw_.raw)); }
    bool try_lock() noexcept LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        lw_token token = 0;
        return Algorithm::ops().trylock(raw_.raw, &token) == 0 && (taken(token), true);
    }
    void unlock() noexcept LW_RELEASE() LW_NO_ANALYSIS {
        const lw_token token = raw_.token;
        LW_TSAN_RELEASE(raw_.raw);
        Algorithm::ops().unlock(raw_.raw, token);
    }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return try_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        lw_token token = 0;
        return detail::until(time, [&](int clock, const timespec *at) {
            return Algorithm::ops().clocklock(raw_.raw, clock, at, &token);
        }) && (taken(token), true);
    }

  private:
    void taken(lw_token token) noexcept {
        LW_TSAN_ACQUIRE(raw_.raw);
        raw_.token = token;
    }
    typename Algorithm::type raw_ = {};
};

/* Readers keep the token of their acquisition in a guard: std::shared_lock cannot. */
template <class Algorithm> class LW_CAPABILITY("shared_mutex") basic_shared_mutex {
  public:
    constexpr basic_shared_mutex() noexcept = default;
    ~basic_shared_mutex() { Algorithm::ops().destroy(raw_.raw); }
    basic_shared_mutex(const basic_shared_mutex &) = delete;
    basic_shared_mutex &operator=(const basic_shared_mutex &) = delete;

    void lock() noexcept LW_ACQUIRE() LW_NO_ANALYSIS { taken(Algorithm::ops().wrlock(raw_.raw)); }
    bool try_lock() noexcept LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        lw_token token = 0;
        return Algorithm::ops().trywrlock(raw_.raw, &token) == 0 && (taken(token), true);
    }
    void unlock() noexcept LW_RELEASE() LW_NO_ANALYSIS {
        const lw_token token = raw_.token;
        LW_TSAN_RELEASE(&raw_.token);
        Algorithm::ops().wrunlock(raw_.raw, token);
    }

    /* A read acquisition, until the end of the block. */
    class reader {
      public:
        explicit reader(basic_shared_mutex &lock) noexcept LW_NO_ANALYSIS
            : lock_(lock), token_(Algorithm::ops().rdlock(lock.raw_.raw)) {
            LW_TSAN_ACQUIRE(&lock.raw_.token);
        }
        ~reader() LW_NO_ANALYSIS {
            LW_TSAN_RELEASE(lock_.raw_.raw);
            Algorithm::ops().rdunlock(lock_.raw_.raw, token_);
        }
        reader(const reader &) = delete;
        reader &operator=(const reader &) = delete;

      private:
        basic_shared_mutex &lock_;
        lw_token token_;
    };

  private:
    void taken(lw_token token) noexcept {
        LW_TSAN_ACQUIRE(&raw_.token);
        LW_TSAN_ACQUIRE(raw_.raw);
        raw_.token = token;
    }
    typename Algorithm::type raw_ = {};
};

/* A section of RCU, until the end of the block. */
class rcu_section {
  public:
    rcu_section() noexcept { lw_rcu_read_lock(); }
    ~rcu_section() { lw_rcu_read_unlock(); }
    rcu_section(const rcu_section &) = delete;
    rcu_section &operator=(const rcu_section &) = delete;
};

/* A value that is read all the time and replaced as a whole. */
template <class T> class rcu_ptr {
    struct Node {
        lw_rcu_head head = {};
        T value;
        template <class... Args> explicit Node(Args &&...args) : value(std::forward<Args>(args)...) {}
    };

    static void reclaim(lw_rcu_head *head) noexcept { delete reinterpret_cast<Node *>(head); }
    static void retire(Node *node) noexcept {
        if (node) {
            lw_rcu_call(nullptr, &node->head, reinterpret_cast<lw_rcu_callback *>(&reclaim));
        }
    }

  public:
    /* The value, in a section. It stays as it is until this is destroyed. */
    class reference {
      public:
        ~reference() { lw_rcu_read_unlock(); }
        reference(const reference &) = delete;
        reference &operator=(const reference &) = delete;
        const T &operator*() const noexcept { return node_->value; }
        const T *operator->() const noexcept { return &node_->value; }
        const T *get() const noexcept { return node_ ? &node_->value : nullptr; }
        explicit operator bool() const noexcept { return node_ != nullptr; }

      private:
        friend class rcu_ptr;
        explicit reference(Node *const *from) noexcept {
            lw_rcu_read_lock();
            node_ = lw_rcu_dereference(from);
        }
        const Node *node_;
    };

    constexpr rcu_ptr() noexcept = default;
    template <class... Args>
    explicit rcu_ptr(std::in_place_t, Args &&...args) : node_(new Node(std::forward<Args>(args)...)) {}
    explicit rcu_ptr(T value) : rcu_ptr(std::in_place, std::move(value)) {}
    ~rcu_ptr() { retire(node_); }
    rcu_ptr(const rcu_ptr &) = delete;
    rcu_ptr &operator=(const rcu_ptr &) = delete;

    reference read() const noexcept { return reference(&node_); }

    /* Replaces the value. The old one is destroyed when no reader has it any more. */
    void store(T value) { retire(lw_rcu_exchange(&node_, new Node(std::move(value)))); }
    void reset() noexcept { retire(lw_rcu_exchange(&node_, static_cast<Node *>(nullptr))); }

    /* Replaces the value by `change(value)`, and tries again if another thread has replaced it meanwhile. There must be
     * one. */
    template <class F> void update(F change) {
        rcu_section section;
        Node *old = lw_rcu_dereference(&node_);
        for (;;) {
            std::unique_ptr<Node> next(new Node(change(static_cast<const T &>(old->value))));
            if (__atomic_compare_exchange_n(&node_, &old, next.get(), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
                next.release();
                retire(old);
                return;
            }
        }
    }

  private:
    Node *node_ = nullptr;
};

} // namespace lw

#endif
