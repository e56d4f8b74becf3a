/* lw::condition_variable and lw::condition_variable_any. */
#ifndef LATCHWORK_CONDITION_VARIABLE_HPP
#define LATCHWORK_CONDITION_VARIABLE_HPP

#include "cond.h"
#include "failure.hpp"
#include "mutex.hpp"

#include <condition_variable> // std::cv_status
#include <cstdlib>
#include <memory>
#include <mutex>
#include <pthread.h>
#if __cplusplus >= 202002L && __has_include(<stop_token>)
#include <stop_token>
#endif
#include <utility>

namespace lw {

using std::cv_status;
using std::unique_lock;

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
    /* A wait that a stop request ends. Under `order_`, the waiter counts itself in and then looks for a request. A request
     * notifies under `order_`. So if the waiter does not see the request, the request sees the waiter. Before the waiter counts
     * itself out, it says so under `order_`. From then on a request leaves the condition variable alone: a thread that has
     * notified all waiters may have destroyed it. */
    class stoppable {
      public:
        stoppable(condition_variable_any &condition, const std::stop_token &token)
            : condition_(condition), token_(token), callback_(token, notify{*this}) {}

        template <class Lock> int block(Lock &lock, int clock, const timespec *time) {
            order_.lock();
            const uint32_t ticket = lw_cond_prepare(&condition_.raw_);
            const bool stopped = token_.stop_requested();
            is_counted_ = !stopped;
            order_.unlock();
            if (stopped) {
                return lw_cond_finish(&condition_.raw_, ticket, 0);
            }
            return condition_.block(lock, clock, time, ticket, [this] {
                order_.lock();
                is_counted_ = false;
                order_.unlock();
            });
        }

      private:
        struct notify {
            stoppable &self;
            void operator()() noexcept {
                self.order_.lock();
                if (self.is_counted_) {
                    self.condition_.notify_all();
                }
                self.order_.unlock();
            }
        };

        condition_variable_any &condition_;
        const std::stop_token &token_;
        mutex order_{};
        bool is_counted_ = false; /* the waiter, by the condition variable */
        /* Last: it may call at once, and its destructor waits for a call in another thread. */
        std::stop_callback<notify> callback_;
    };
#endif

    /* What a wait until `time` ends with. */
    template <class Clock, class Duration, class Block>
    static cv_status timed(const std::chrono::time_point<Clock, Duration> &time, Block block) {
        const detail::time_point at = detail::to_c(time);
        const bool late = block(at.clock, &at.time) == ETIMEDOUT;
        return late && detail::has_passed(time) ? cv_status::timeout : cv_status::no_timeout;
    }

    template <class Lock> int block(Lock &lock, int clock, const timespec *time) {
        return block(lock, clock, time, lw_cond_prepare(&raw_), [] {});
    }

    /* Calls `before_leaving` before it counts the caller out. */
    template <class Lock, class Call>
    int block(Lock &lock, int clock, const timespec *time, uint32_t ticket, Call before_leaving) LW_NO_ANALYSIS {
        /* Counts the caller out also if `unlock` throws, and then does not lock. If `lock` throws, it ends in std::terminate,
         * as the standard has it: no caller goes on without the lock. */
        struct Relock {
            condition_variable_any &self;
            Lock &lock;
            uint32_t ticket;
            bool unlocked;
            int &result;
            Call &before_leaving;
            ~Relock() LW_NO_ANALYSIS {
                before_leaving();
                result = lw_cond_finish(&self.raw_, ticket, result);
                if (unlocked) {
                    lock.lock();
                }
            }
        };
        int result = 0;
        {
            Relock relock{*this, lock, ticket, false, result, before_leaving};
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

    void wait(unique_lock<mutex> &lock) noexcept LW_NO_ANALYSIS { lw_cond_wait(&raw_, lock.mutex()->native_handle()); }
    template <class Predicate> void wait(unique_lock<mutex> &lock, Predicate predicate) {
        while (!predicate()) {
            wait(lock);
        }
    }
    template <class Clock, class Duration>
    cv_status wait_until(unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &time) LW_NO_ANALYSIS {
        const detail::time_point at = detail::to_c(time);
        const bool late = lw_cond_clockwait(&raw_, lock.mutex()->native_handle(), at.clock, &at.time) == ETIMEDOUT;
        return late && detail::has_passed(time) ? cv_status::timeout : cv_status::no_timeout;
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

namespace detail {
/* A mutex that a thread leaves, and waiters that it notifies, when it exits. */
struct exit_notice {
    condition_variable &condition;
    unique_lock<mutex> lock;
    exit_notice *next;

    /* A destructor of a key runs after those of the thread's variables. No key has destructors in a thread that calls exit, or
     * returns from main: for that one, exit runs its notices, after its variables are destroyed. */
    static pthread_key_t key() {
        static const pthread_key_t made = [] {
            pthread_key_t key;
            if (pthread_key_create(&key, run) != 0 || std::atexit(run_now) != 0) {
                fail(std::errc::resource_unavailable_try_again);
            }
            return key;
        }();
        return made;
    }
    static void run_now() noexcept {
        void *const first = pthread_getspecific(key());
        pthread_setspecific(key(), nullptr);
        run(first);
    }
    static void run(void *first) noexcept {
        std::unique_ptr<exit_notice> notice(static_cast<exit_notice *>(first));
        while (notice) {
            notice->lock.unlock();
            notice->condition.notify_all();
            notice.reset(notice->next);
        }
    }
};
} // namespace detail

/* When the calling thread exits, and its variables are destroyed: unlocks the mutex and wakes all waiters. Throws system_error or
 * bad_alloc. */
inline void notify_all_at_thread_exit(condition_variable &condition, unique_lock<mutex> lock) {
    using detail::exit_notice;
    const pthread_key_t key = exit_notice::key();
    auto *const before = static_cast<exit_notice *>(pthread_getspecific(key));
    std::unique_ptr<exit_notice> notice(new exit_notice{condition, std::move(lock), before});
    if (pthread_setspecific(key, notice.get()) != 0) {
        detail::fail(std::errc::not_enough_memory);
    }
    notice.release();
}

} // namespace lw

#endif
