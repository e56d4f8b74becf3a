/* Times of std::chrono as times of C, for the classes with timed operations. */
#ifndef LATCHWORK_CHRONO_HPP
#define LATCHWORK_CHRONO_HPP

#include "base.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ratio>
#include <type_traits>

#if __cplusplus < 201703L
#error "the headers for C++ need C++17"
#endif

#if __cplusplus >= 202002L
#define LW_CONSTINIT constinit
#else
#define LW_CONSTINIT
#endif

namespace lw {

namespace detail {

/* A time of std::chrono as one of C. */
struct time_point {
    int clock;
    timespec time;
};

inline timespec to_timespec(std::chrono::nanoseconds since_epoch) noexcept {
    using namespace std::chrono;
    timespec time = {0, 0};
    if (since_epoch.count() > 0) {
        const auto whole = duration_cast<seconds>(since_epoch);
        time.tv_sec = whole.count();
        time.tv_nsec = (since_epoch - whole).count();
    }
    return time;
}

/* Nanoseconds in which every duration fits: one of coarse units may be 10^9 times as long as the longest of nanoseconds. */
using wide = std::chrono::duration<long double, std::nano>;

/* `duration` in nanoseconds, rounded up, or the nearest that fits. What is no number is long ago. */
template <class Rep, class Period>
std::chrono::nanoseconds to_nanos(const std::chrono::duration<Rep, Period> &duration) {
    using namespace std::chrono;
    constexpr nanoseconds most = (nanoseconds::max)() / 2;
    const long double count = duration_cast<wide>(duration).count();
    if (!(count > wide(-most).count())) {
        return -most;
    }
    if (count >= wide(most).count()) {
        return most;
    }
    /* An exact conversion multiplies by the numerator of this ratio before it divides. The product must fit, too. */
    constexpr auto divisor = static_cast<long double>(std::ratio_divide<Period, std::nano>::den);
    if (std::abs(count) < wide(most).count() / divisor) {
        return ceil<nanoseconds>(duration);
    }
    return nanoseconds(static_cast<nanoseconds::rep>(std::ceil(count)));
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
    const wide left = wide(time.time_since_epoch()) - wide(Clock::now().time_since_epoch());
    return to_c(std::chrono::steady_clock::now() + to_nanos(left));
}

template <class Rep, class Period>
std::chrono::steady_clock::time_point after(const std::chrono::duration<Rep, Period> &duration) {
    const auto now = std::chrono::steady_clock::now();
    return now + (std::min)(to_nanos(duration), (std::chrono::steady_clock::time_point::max)() - now);
}

template <class Clock>
constexpr bool is_native_clock =
    std::is_same_v<Clock, std::chrono::steady_clock> || std::is_same_v<Clock, std::chrono::system_clock>;

/* Whether a time has passed for which a call of C has waited. A clock of the program's own may run slower than C's. */
template <class Clock, class Duration>
bool has_passed(const std::chrono::time_point<Clock, Duration> &time) {
    return is_native_clock<Clock> || wide(Clock::now().time_since_epoch()) >= wide(time.time_since_epoch());
}

/* Calls `attempt` with a time of C until it succeeds, or the time has passed on the program's clock. */
template <class Clock, class Duration, class Attempt>
bool until(const std::chrono::time_point<Clock, Duration> &time, Attempt attempt) {
    for (;;) {
        const time_point at = to_c(time);
        if (attempt(at.clock, &at.time) == 0) {
            return true;
        }
        if (has_passed(time)) {
            return false;
        }
    }
}

} // namespace detail

} // namespace lw

#endif
