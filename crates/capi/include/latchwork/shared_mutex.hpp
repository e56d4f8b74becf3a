/* lw::shared_mutex, which is lw::shared_timed_mutex, too, with upgradable reads. */
#ifndef LATCHWORK_SHARED_MUTEX_HPP
#define LATCHWORK_SHARED_MUTEX_HPP

#include "chrono.hpp"
#include "rwlock.h"
#include "upgrade.hpp"

namespace lw {

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

    /* Upgradable reads, with the names of Boost.Thread: see upgrade.hpp. */
    void lock_upgrade() noexcept LW_ACQUIRE_SHARED() LW_NO_ANALYSIS { lw_rwlock_uplock(&raw_); }
    bool try_lock_upgrade() noexcept LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS { return lw_rwlock_tryuplock(&raw_) == 0; }
    template <class Rep, class Period>
    bool try_lock_upgrade_for(const std::chrono::duration<Rep, Period> &duration)
        LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS {
        return try_lock_upgrade_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_upgrade_until(const std::chrono::time_point<Clock, Duration> &time)
        LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return lw_rwlock_clockuplock(&raw_, clock, at);
        });
    }
    void unlock_upgrade() noexcept LW_RELEASE_SHARED() LW_NO_ANALYSIS { lw_rwlock_upunlock(&raw_); }
    /* The upgradable reader becomes a writer, and waits until the other readers have left. */
    void unlock_upgrade_and_lock() noexcept LW_NO_ANALYSIS { lw_rwlock_upgrade(&raw_); }
    /* The same at once, or in time. If that fails, the upgradable read goes on. */
    bool try_unlock_upgrade_and_lock() noexcept LW_NO_ANALYSIS { return lw_rwlock_tryupgrade(&raw_) == 0; }
    template <class Rep, class Period>
    bool try_unlock_upgrade_and_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_NO_ANALYSIS {
        return try_unlock_upgrade_and_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_unlock_upgrade_and_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return lw_rwlock_clockupgrade(&raw_, clock, at);
        });
    }
    /* The upgradable reader becomes a plain one; the writer becomes the upgradable reader. No writer comes in between. */
    void unlock_upgrade_and_lock_shared() noexcept LW_NO_ANALYSIS { lw_rwlock_downgrade_upgradable(&raw_); }
    void unlock_and_lock_upgrade() noexcept LW_NO_ANALYSIS { lw_rwlock_downgrade_to_upgradable(&raw_); }

    native_handle_type native_handle() noexcept { return &raw_; }

  private:
    lw_rwlock_t raw_ = LW_RWLOCK_INIT;
};

using shared_timed_mutex = shared_mutex;

} // namespace lw

#endif
