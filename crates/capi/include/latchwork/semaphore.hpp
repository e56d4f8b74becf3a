/* lw::counting_semaphore and lw::binary_semaphore. */
#ifndef LATCHWORK_SEMAPHORE_HPP
#define LATCHWORK_SEMAPHORE_HPP

#include "chrono.hpp"
#include "sem.h"

#include <cstddef>

namespace lw {

/* C++20's, from C++17 on. */
template <std::ptrdiff_t LeastMax = LW_SEM_VALUE_MAX> class counting_semaphore {
    static_assert(LeastMax >= 0 && LeastMax <= static_cast<std::ptrdiff_t>(LW_SEM_VALUE_MAX));

  public:
    static constexpr std::ptrdiff_t (max)() noexcept { return LW_SEM_VALUE_MAX; }

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

} // namespace lw

#endif
