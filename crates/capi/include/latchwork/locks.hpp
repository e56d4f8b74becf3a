/* Every lock of `latchwork list`: lw::basic_mutex<lw::mcs>, lw::basic_shared_mutex<lw::pf_q>. A function that the lock does not
 * have (a fair unlock, a downgrade, upgradable reads) does not take part in overload resolution.
 *
 *     lw::basic_shared_mutex<lw::pf_q> mutex;
 *     {
 *         lw::basic_shared_mutex<lw::pf_q>::reader reading(mutex);
 *         use(data);
 *     }
 *     lw::upgrade_lock reading(mutex);                      // see upgrade.hpp */
#ifndef LATCHWORK_LOCKS_HPP
#define LATCHWORK_LOCKS_HPP

#include "chrono.hpp"
#include "failure.hpp"
#include "locks.h"
#include "upgrade.hpp"

#include <mutex>

namespace lw {

namespace detail {
/* What a lock has, in the order of the registry's words: a lock with upgradable reads has downgrades, too. */
enum class kind { plain, fair, downgradable, upgradable };
} // namespace detail

#define LW_MUTEX_TYPE_(name, bytes, align, kind_)                                                                            \
    struct name {                                                                                                          \
        using type = lw_##name##_t;                                                                                        \
        static constexpr detail::kind kind = detail::kind::kind_;                                                          \
        static const lw_mutex_ops &ops() noexcept { return lw_##name##_ops; }                                              \
        LW_MUTEX_FUNCTIONS_(static, call, type, &lw_##name##_ops, lock->raw)                                                       \
    };
#define LW_RWLOCK_TYPE_(name, bytes, align, kind_)                                                                           \
    struct name {                                                                                                          \
        using type = lw_##name##_t;                                                                                        \
        static constexpr detail::kind kind = detail::kind::kind_;                                                          \
        static const lw_rwlock_ops &ops() noexcept { return lw_##name##_ops; }                                             \
        LW_RWLOCK_FUNCTIONS_(static, call, type, &lw_##name##_ops, lock->raw)                                                      \
    };
#include "registered.h"
#undef LW_MUTEX_TYPE_
#undef LW_RWLOCK_TYPE_

/* What a lock has. */
template <class Algorithm> inline constexpr bool has_fair_unlock = Algorithm::kind == detail::kind::fair;
template <class Algorithm> inline constexpr bool has_downgrade = Algorithm::kind >= detail::kind::downgradable;
template <class Algorithm> inline constexpr bool has_upgrade = Algorithm::kind == detail::kind::upgradable;

template <class Algorithm> class LW_CAPABILITY("mutex") basic_mutex {
  public:
    constexpr basic_mutex() noexcept = default;
    basic_mutex(const basic_mutex &) = delete;
    basic_mutex &operator=(const basic_mutex &) = delete;

    void lock() noexcept LW_ACQUIRE() LW_NO_ANALYSIS { Algorithm::call_lock(&raw_); }
    bool try_lock() noexcept LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS { return Algorithm::call_trylock(&raw_) == 0; }
    void unlock() noexcept LW_RELEASE() LW_NO_ANALYSIS { Algorithm::call_unlock(&raw_); }
    /* Leaves the mutex to the first waiter in the queue. */
    template <class A = Algorithm, std::enable_if_t<has_fair_unlock<A>, int> = 0>
    void unlock_fair() noexcept LW_RELEASE() LW_NO_ANALYSIS {
        A::call_unlock_fair(&raw_);
    }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return try_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return Algorithm::call_clocklock(&raw_, clock, at);
        });
    }

  private:
    typename Algorithm::type raw_ = {};
};

/* Readers keep the token of their acquisition in a guard, `reader`: std::shared_lock cannot. The token of a writer, or of the
 * upgradable reader, is in the mutex: there is one such thread at a time. */
template <class Algorithm> class LW_CAPABILITY("shared_mutex") basic_shared_mutex {
    template <class A> using if_upgradable = std::enable_if_t<has_upgrade<A>, int>;

  public:
    constexpr basic_shared_mutex() noexcept = default;
    ~basic_shared_mutex() { Algorithm::ops().destroy(raw_.raw); }
    basic_shared_mutex(const basic_shared_mutex &) = delete;
    basic_shared_mutex &operator=(const basic_shared_mutex &) = delete;

    void lock() noexcept LW_ACQUIRE() LW_NO_ANALYSIS { Algorithm::call_wrlock(&raw_); }
    bool try_lock() noexcept LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS { return Algorithm::call_trywrlock(&raw_) == 0; }
    void unlock() noexcept LW_RELEASE() LW_NO_ANALYSIS { Algorithm::call_wrunlock(&raw_); }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return try_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_TRY_ACQUIRE(true) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return Algorithm::call_clockwrlock(&raw_, clock, at);
        });
    }

    /* Upgradable reads, with the names of Boost.Thread. */
    template <class A = Algorithm, if_upgradable<A> = 0>
    void lock_upgrade() noexcept LW_ACQUIRE_SHARED() LW_NO_ANALYSIS {
        lw_token token = 0;
        A::call_uplock(&raw_, &token);
        raw_.token = token;
    }
    template <class A = Algorithm, if_upgradable<A> = 0>
    bool try_lock_upgrade() noexcept LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS {
        lw_token token = 0;
        return A::call_tryuplock(&raw_, &token) == 0 && (raw_.token = token, true);
    }
    template <class Rep, class Period, class A = Algorithm, if_upgradable<A> = 0>
    bool try_lock_upgrade_for(const std::chrono::duration<Rep, Period> &duration)
        LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS {
        return try_lock_upgrade_until(detail::after(duration));
    }
    template <class Clock, class Duration, class A = Algorithm, if_upgradable<A> = 0>
    bool try_lock_upgrade_until(const std::chrono::time_point<Clock, Duration> &time)
        LW_TRY_ACQUIRE_SHARED(true) LW_NO_ANALYSIS {
        lw_token token = 0;
        return detail::until(time, [&](int clock, const timespec *at) {
            return A::call_clockuplock(&raw_, clock, at, &token);
        }) && (raw_.token = token, true);
    }
    template <class A = Algorithm, if_upgradable<A> = 0>
    void unlock_upgrade() noexcept LW_RELEASE_SHARED() LW_NO_ANALYSIS {
        A::call_upunlock(&raw_, raw_.token);
    }
    /* The upgradable reader becomes a writer, and waits until the other readers have left. */
    template <class A = Algorithm, if_upgradable<A> = 0> void unlock_upgrade_and_lock() noexcept LW_NO_ANALYSIS {
        A::call_upgrade(&raw_, raw_.token);
    }
    /* The same at once, or in time. If that fails, the upgradable read goes on. */
    template <class A = Algorithm, if_upgradable<A> = 0> bool try_unlock_upgrade_and_lock() noexcept LW_NO_ANALYSIS {
        return upgraded([this](lw_token *token) { return A::call_tryupgrade(&raw_, token); });
    }
    template <class Rep, class Period, class A = Algorithm, if_upgradable<A> = 0>
    bool try_unlock_upgrade_and_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_NO_ANALYSIS {
        return try_unlock_upgrade_and_lock_until(detail::after(duration));
    }
    template <class Clock, class Duration, class A = Algorithm, if_upgradable<A> = 0>
    bool try_unlock_upgrade_and_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_NO_ANALYSIS {
        return detail::until(time, [this](int clock, const timespec *at) {
            return upgraded([&](lw_token *token) { return A::call_clockupgrade(&raw_, clock, at, token); }) ? 0 : ETIMEDOUT;
        });
    }
    /* The writer becomes the upgradable reader, with no writer in between. */
    template <class A = Algorithm, if_upgradable<A> = 0> void unlock_and_lock_upgrade() noexcept LW_NO_ANALYSIS {
        lw_token token = 0;
        A::call_downgrade_to_upgradable(&raw_, &token);
        raw_.token = token;
    }

    /* A read acquisition, until the end of the block. */
    class reader {
      public:
        explicit reader(basic_shared_mutex &mutex) noexcept LW_NO_ANALYSIS : mutex_(mutex), owns_(true) {
            Algorithm::call_rdlock(&mutex.raw_, &token_);
        }
        /* Without waiting, or in time: see owns_lock. */
        reader(basic_shared_mutex &mutex, std::try_to_lock_t) noexcept LW_NO_ANALYSIS
            : mutex_(mutex), owns_(Algorithm::call_tryrdlock(&mutex.raw_, &token_) == 0) {}
        template <class Clock, class Duration>
        reader(basic_shared_mutex &mutex, const std::chrono::time_point<Clock, Duration> &time) LW_NO_ANALYSIS
            : mutex_(mutex), owns_(detail::until(time, [&](int clock, const timespec *at) {
                  return Algorithm::call_clockrdlock(&mutex.raw_, clock, at, &token_);
              })) {}
        template <class Rep, class Period>
        reader(basic_shared_mutex &mutex, const std::chrono::duration<Rep, Period> &duration)
            : reader(mutex, detail::after(duration)) {}
        /* Turns a write acquisition into a read, with no writer in between. operation_not_permitted if there is none. */
        template <class A = Algorithm, std::enable_if_t<has_downgrade<A>, int> = 0>
        explicit reader(std::unique_lock<basic_shared_mutex> &&writing) LW_NO_ANALYSIS : mutex_(held(writing)), owns_(true) {
            A::call_downgrade(&mutex_.raw_, &token_);
            writing.release();
        }
        /* Turns an upgradable read into a plain one. */
        template <class A = Algorithm, if_upgradable<A> = 0>
        explicit reader(upgrade_lock<basic_shared_mutex> &&reading) LW_NO_ANALYSIS
            : mutex_(held(reading)), token_(mutex_.raw_.token), owns_(true) {
            A::call_downgrade_upgradable(&mutex_.raw_, &token_);
            reading.release();
        }
        ~reader() LW_NO_ANALYSIS {
            if (owns_) {
                Algorithm::call_rdunlock(&mutex_.raw_, token_);
            }
        }
        reader(const reader &) = delete;
        reader &operator=(const reader &) = delete;

        bool owns_lock() const noexcept { return owns_; }
        explicit operator bool() const noexcept { return owns_; }

      private:
        template <class Lock> static basic_shared_mutex &held(const Lock &lock) {
            if (!lock.owns_lock()) {
                detail::fail(std::errc::operation_not_permitted);
            }
            return *lock.mutex();
        }

        basic_shared_mutex &mutex_;
        lw_token token_ = 0;
        const bool owns_;
    };

  private:
    /* Whether an attempt to upgrade succeeds. If not, it leaves the token with which the upgradable read goes on. */
    template <class Attempt> bool upgraded(Attempt attempt) noexcept {
        lw_token token = raw_.token;
        if (attempt(&token) == 0) {
            return true;
        }
        raw_.token = token;
        return false;
    }

    typename Algorithm::type raw_ = {};
};

} // namespace lw

#endif
