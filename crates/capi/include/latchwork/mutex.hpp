/* lw::mutex, which is lw::timed_mutex, too, and lw::recursive_mutex. */
#ifndef LATCHWORK_MUTEX_HPP
#define LATCHWORK_MUTEX_HPP

#include "chrono.hpp"
#include "failure.hpp"
#include "mutex.h"

#include <atomic>
#include <limits>

namespace lw {

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
    bool more() noexcept { return depth_ != (std::numeric_limits<uint32_t>::max)() && ++depth_ != 0; }
    bool again() {
        if (!is_mine()) {
            return false;
        }
        if (!more()) {
            detail::fail(std::errc::resource_unavailable_try_again);
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

} // namespace lw

#endif
