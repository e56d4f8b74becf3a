/* lw::upgrade_lock, as Boost.Thread has it: a guard for an upgradable read of a shared mutex. An upgradable reader reads beside
 * plain readers, keeps writers and other upgradable readers out, and can become a writer with no writer in between.
 *
 *     lw::upgrade_lock reading(mutex);                      // lw::shared_mutex, lw::basic_shared_mutex<lw::pf_q>, ...
 *     if (must_change(data)) {
 *         lw::upgrade_to_unique_lock writing(reading);      // waits until the other readers have left
 *         change(data);
 *     }                                                     // reads again
 *
 * Two functions end the upgradable read for good: lw::to_unique_lock(std::move(reading)) returns a std::unique_lock, and
 * lw::to_shared_lock(std::move(reading)) a std::shared_lock. An upgrade_lock made of a std::unique_lock turns a write acquisition
 * into an upgradable read.
 *
 * A mutex without upgradable reads (lw::mutex, lw::basic_shared_mutex<lw::percpu>) does not compile with these.
 * lw::is_upgradable<Mutex> says whether a mutex has them. */
#ifndef LATCHWORK_UPGRADE_HPP
#define LATCHWORK_UPGRADE_HPP

#include "chrono.hpp"
#include "failure.hpp"

#include <mutex>
#include <shared_mutex>
#include <utility>

namespace lw {

namespace detail {
template <class Mutex, class = void> struct has_upgrade : std::false_type {};
template <class Mutex>
struct has_upgrade<Mutex, std::void_t<decltype(std::declval<Mutex &>().lock_upgrade()),
                                      decltype(std::declval<Mutex &>().unlock_upgrade_and_lock())>> : std::true_type {};
} // namespace detail

/* Whether a mutex has upgradable reads. */
template <class Mutex> inline constexpr bool is_upgradable = detail::has_upgrade<Mutex>::value;

/* An upgradable read, which ends with the object. Its functions are those of std::unique_lock, and throw what they throw. Clang's
 * thread-safety analysis does not follow a guard that may own nothing, so it leaves these functions out, as those of std. */
template <class Mutex> class upgrade_lock {
    static_assert(is_upgradable<Mutex>, "the mutex has no upgradable reads");

  public:
    using mutex_type = Mutex;

    upgrade_lock() noexcept = default;
    explicit upgrade_lock(Mutex &mutex) LW_NO_ANALYSIS : mutex_(&mutex) { lock(); }
    upgrade_lock(Mutex &mutex, std::defer_lock_t) noexcept : mutex_(&mutex) {}
    upgrade_lock(Mutex &mutex, std::try_to_lock_t) LW_NO_ANALYSIS : mutex_(&mutex), owns_(mutex.try_lock_upgrade()) {}
    /* The calling thread has an upgradable read already. */
    upgrade_lock(Mutex &mutex, std::adopt_lock_t) noexcept : mutex_(&mutex), owns_(true) {}
    template <class Clock, class Duration>
    upgrade_lock(Mutex &mutex, const std::chrono::time_point<Clock, Duration> &time) LW_NO_ANALYSIS
        : mutex_(&mutex), owns_(mutex.try_lock_upgrade_until(time)) {}
    template <class Rep, class Period>
    upgrade_lock(Mutex &mutex, const std::chrono::duration<Rep, Period> &duration) LW_NO_ANALYSIS
        : mutex_(&mutex), owns_(mutex.try_lock_upgrade_for(duration)) {}
    /* Turns a write acquisition into an upgradable read. */
    explicit upgrade_lock(std::unique_lock<Mutex> &&writing) : mutex_(writing.mutex()), owns_(writing.owns_lock()) {
        if (owns_) {
            mutex_->unlock_and_lock_upgrade();
        }
        writing.release();
    }
    upgrade_lock(const upgrade_lock &) = delete;
    upgrade_lock &operator=(const upgrade_lock &) = delete;
    upgrade_lock(upgrade_lock &&other) noexcept
        : mutex_(std::exchange(other.mutex_, nullptr)), owns_(std::exchange(other.owns_, false)) {}
    upgrade_lock &operator=(upgrade_lock &&other) noexcept {
        upgrade_lock(std::move(other)).swap(*this);
        return *this;
    }
    ~upgrade_lock() LW_NO_ANALYSIS {
        if (owns_) {
            mutex_->unlock_upgrade();
        }
    }

    void lock() LW_NO_ANALYSIS {
        may_lock();
        mutex_->lock_upgrade();
        owns_ = true;
    }
    bool try_lock() LW_NO_ANALYSIS {
        may_lock();
        return owns_ = mutex_->try_lock_upgrade();
    }
    template <class Rep, class Period> bool try_lock_for(const std::chrono::duration<Rep, Period> &duration) LW_NO_ANALYSIS {
        may_lock();
        return owns_ = mutex_->try_lock_upgrade_for(duration);
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) LW_NO_ANALYSIS {
        may_lock();
        return owns_ = mutex_->try_lock_upgrade_until(time);
    }
    void unlock() LW_NO_ANALYSIS {
        if (!owns_) {
            detail::fail(std::errc::operation_not_permitted);
        }
        mutex_->unlock_upgrade();
        owns_ = false;
    }

    void swap(upgrade_lock &other) noexcept {
        std::swap(mutex_, other.mutex_);
        std::swap(owns_, other.owns_);
    }
    /* Forgets the mutex without a release. */
    Mutex *release() noexcept {
        owns_ = false;
        return std::exchange(mutex_, nullptr);
    }
    Mutex *mutex() const noexcept { return mutex_; }
    bool owns_lock() const noexcept { return owns_; }
    explicit operator bool() const noexcept { return owns_; }

  private:
    void may_lock() const {
        if (!mutex_) {
            detail::fail(std::errc::operation_not_permitted);
        }
        if (owns_) {
            detail::fail(std::errc::resource_deadlock_would_occur);
        }
    }

    Mutex *mutex_ = nullptr;
    bool owns_ = false;
};

template <class Mutex> void swap(upgrade_lock<Mutex> &a, upgrade_lock<Mutex> &b) noexcept { a.swap(b); }

/* The holder of an upgradable read is a writer as long as this object exists. If `reading` has none, this has none either. */
template <class Mutex> class upgrade_to_unique_lock {
  public:
    explicit upgrade_to_unique_lock(upgrade_lock<Mutex> &reading) : reading_(reading), owns_(reading.owns_lock()) {
        if (owns_) {
            reading_.mutex()->unlock_upgrade_and_lock();
        }
    }
    /* Stays a reader if the others do not leave at once, or in time: see owns_lock. */
    upgrade_to_unique_lock(upgrade_lock<Mutex> &reading, std::try_to_lock_t)
        : reading_(reading), owns_(reading.owns_lock() && reading.mutex()->try_unlock_upgrade_and_lock()) {}
    template <class Clock, class Duration>
    upgrade_to_unique_lock(upgrade_lock<Mutex> &reading, const std::chrono::time_point<Clock, Duration> &time)
        : reading_(reading), owns_(reading.owns_lock() && reading.mutex()->try_unlock_upgrade_and_lock_until(time)) {}
    template <class Rep, class Period>
    upgrade_to_unique_lock(upgrade_lock<Mutex> &reading, const std::chrono::duration<Rep, Period> &duration)
        : reading_(reading), owns_(reading.owns_lock() && reading.mutex()->try_unlock_upgrade_and_lock_for(duration)) {}
    ~upgrade_to_unique_lock() {
        if (owns_) {
            reading_.mutex()->unlock_and_lock_upgrade();
        }
    }
    upgrade_to_unique_lock(const upgrade_to_unique_lock &) = delete;
    upgrade_to_unique_lock &operator=(const upgrade_to_unique_lock &) = delete;

    Mutex *mutex() const noexcept { return reading_.mutex(); }
    bool owns_lock() const noexcept { return owns_; }
    explicit operator bool() const noexcept { return owns_; }

  private:
    upgrade_lock<Mutex> &reading_;
    const bool owns_;
};

/* Ends the upgradable read of `reading`, and returns a write acquisition, with no other writer in between. */
template <class Mutex> std::unique_lock<Mutex> to_unique_lock(upgrade_lock<Mutex> &&reading) {
    if (!reading.owns_lock()) {
        Mutex *const mutex = reading.release();
        return mutex ? std::unique_lock<Mutex>(*mutex, std::defer_lock) : std::unique_lock<Mutex>();
    }
    reading.mutex()->unlock_upgrade_and_lock();
    return std::unique_lock<Mutex>(*reading.release(), std::adopt_lock);
}

/* Ends the upgradable read of `reading`, and returns a plain one, with no writer in between. */
template <class Mutex>
auto to_shared_lock(upgrade_lock<Mutex> &&reading)
    -> decltype(reading.mutex()->unlock_upgrade_and_lock_shared(), std::shared_lock<Mutex>()) {
    if (!reading.owns_lock()) {
        Mutex *const mutex = reading.release();
        return mutex ? std::shared_lock<Mutex>(*mutex, std::defer_lock) : std::shared_lock<Mutex>();
    }
    reading.mutex()->unlock_upgrade_and_lock_shared();
    return std::shared_lock<Mutex>(*reading.release(), std::adopt_lock);
}

} // namespace lw

#endif
