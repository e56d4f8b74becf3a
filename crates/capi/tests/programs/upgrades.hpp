// Upgradable reads in C++: lw::upgrade_lock over lw::shared_mutex and over each registered lock that has them. For types.cpp.
#pragma once
#include "check.h"
#include "latchwork.hpp"

#include <system_error>
#include <thread>
#include <type_traits>

namespace upgrades {

using namespace std::chrono_literals;

// What a lock does not have takes no part in overload resolution.
template <class Mutex, class = void> struct has_fair : std::false_type {};
template <class Mutex> struct has_fair<Mutex, std::void_t<decltype(std::declval<Mutex &>().unlock_fair())>> : std::true_type {};
template <class Algorithm> using shared = lw::basic_shared_mutex<Algorithm>;
template <class Algorithm> using reader = typename shared<Algorithm>::reader;
static_assert(lw::is_upgradable<lw::shared_mutex> && lw::is_upgradable<shared<lw::pf_q>>);
static_assert(!lw::is_upgradable<lw::mutex> && !lw::is_upgradable<lw::basic_mutex<lw::mcs>> && !lw::is_upgradable<int>);
static_assert(!lw::is_upgradable<shared<lw::percpu>> && !lw::is_upgradable<shared<lw::mcs_rw>>);
static_assert(has_fair<lw::basic_mutex<lw::mcs>>::value && !has_fair<lw::basic_mutex<lw::tas>>::value);
static_assert(std::is_constructible_v<reader<lw::percpu>, std::unique_lock<shared<lw::percpu>>>);
static_assert(!std::is_constructible_v<reader<lw::mcs_rw>, std::unique_lock<shared<lw::mcs_rw>>>);
static_assert(std::is_constructible_v<reader<lw::pf_q>, lw::upgrade_lock<shared<lw::pf_q>>>);
static_assert(std::is_nothrow_move_constructible_v<lw::upgrade_lock<lw::shared_mutex>>);
static_assert(!std::is_copy_constructible_v<lw::upgrade_lock<lw::shared_mutex>>);
static_assert(!std::is_move_constructible_v<lw::upgrade_to_unique_lock<lw::shared_mutex>>);

// The words that the headers have for each lock are what the library's tables have.
inline void kinds() {
#define LW_MUTEX_TYPE_(name, bytes, align, kind)                                                                             \
    CHECK(lw::has_fair_unlock<lw::name> == (lw::name::ops().unlock_fair != nullptr));
#define LW_RWLOCK_TYPE_(name, bytes, align, kind)                                                                            \
    CHECK(lw::has_downgrade<lw::name> == (lw::name::ops().downgrade != nullptr));                                            \
    CHECK(lw::has_upgrade<lw::name> == (lw::name::ops().upgrade != nullptr));
#include "latchwork/registered.h"
#undef LW_MUTEX_TYPE_
#undef LW_RWLOCK_TYPE_
}

template <class F> void elsewhere(F body) { std::thread(body).join(); }

// Whether `body` throws this error.
template <class F> bool fails(std::errc error, F body) {
    try {
        body();
    } catch (const std::system_error &thrown) {
        return thrown.code() == error;
    }
    return false;
}

// A read of another thread, for as long as the object lives. `Guard` is a guard for reading.
template <class Guard, class Mutex> class reader_elsewhere {
  public:
    explicit reader_elsewhere(Mutex &mutex)
        : thread_([this, &mutex] {
              const Guard guard(mutex);
              inside_ = true;
              while (inside_) {
                  std::this_thread::yield();
              }
          }) {
        while (!inside_) {
            std::this_thread::yield();
        }
    }
    ~reader_elsewhere() {
        inside_ = false;
        thread_.join();
    }

  private:
    std::atomic<bool> inside_{false};
    std::thread thread_;
};

template <class Mutex, class Reader> void steps() {
    using lock_type = lw::upgrade_lock<Mutex>;
    Mutex mutex;
    const auto is_upgradable = [&mutex] {
        const Reader beside(mutex);
        CHECK(!mutex.try_lock() && !lock_type(mutex, std::try_to_lock) && !lock_type(mutex, 1ms));
        CHECK(!mutex.try_lock_for(1ms) && !lock_type(mutex, std::chrono::system_clock::now()));
    };
    const auto is_written = [&mutex] { CHECK(!mutex.try_lock() && !lock_type(mutex, std::try_to_lock)); };
    const auto is_free = [&mutex] { CHECK(std::unique_lock<Mutex>(mutex, std::try_to_lock).owns_lock()); };
    {
        lw::upgrade_lock reading(mutex);
        CHECK(reading && reading.owns_lock() && reading.mutex() == &mutex);
        elsewhere(is_upgradable);
        {
            const lw::upgrade_to_unique_lock writing(reading);
            CHECK(writing && writing.mutex() == &mutex);
            elsewhere(is_written);
        }
        elsewhere(is_upgradable);
        {
            const reader_elsewhere<Reader, Mutex> other(mutex);
            CHECK(!lw::upgrade_to_unique_lock(reading, std::try_to_lock));
            CHECK(!lw::upgrade_to_unique_lock(reading, 1ms));
            CHECK(!lw::upgrade_to_unique_lock(reading, std::chrono::steady_clock::now() - 1s));
            CHECK(reading);
        }
        elsewhere(is_upgradable);
        CHECK(lw::upgrade_to_unique_lock(reading, 24h));
        CHECK(lw::upgrade_to_unique_lock(reading, std::try_to_lock));
        // Into a write acquisition and back.
        std::unique_lock<Mutex> writing = lw::to_unique_lock(std::move(reading));
        CHECK(writing && !reading && !reading.mutex());
        elsewhere(is_written);
        lock_type again(std::move(writing));
        CHECK(again && !writing && !writing.mutex());
        elsewhere(is_upgradable);
        reading = std::move(again);
        CHECK(reading && !again);
        reading.unlock();
        elsewhere(is_free);
        CHECK(fails(std::errc::operation_not_permitted, [&] { reading.unlock(); }));
        CHECK(reading.try_lock() && fails(std::errc::resource_deadlock_would_occur, [&] { reading.lock(); }));
        swap(reading, again);
        CHECK(!reading && again && again.release() == &mutex && !again);
        const lock_type adopted(mutex, std::adopt_lock);
    }
    elsewhere(is_free);
    lock_type none, deferred(mutex, std::defer_lock);
    CHECK(fails(std::errc::operation_not_permitted, [&] { none.lock(); }));
    CHECK(!lw::upgrade_to_unique_lock(deferred) && deferred.try_lock_for(24h) && (deferred.unlock(), true));
    CHECK(deferred.try_lock_until(std::chrono::system_clock::now() + 24h) && (deferred.unlock(), true));
    CHECK(!lw::to_unique_lock(lock_type()) && lw::to_unique_lock(std::move(deferred)).mutex() == &mutex);
    elsewhere(is_free);
}

// Readers, an upgradable reader that sometimes writes, and a writer.
template <class Mutex, class Reader> void together() {
    Mutex mutex;
    long pair[2] = {}, by_upgradable_readers = 0;
    std::thread threads[4];
    for (int number = 0; number < 4; number++) {
        threads[number] = std::thread([&, number] {
            for (int i = 0; i < 120; i++) {
                if (i % 4 == number) {
                    lw::upgrade_lock reading(mutex);
                    const long before = pair[0];
                    CHECK(pair[1] == before);
                    by_upgradable_readers++;
                    if (i % 8 < 4) {
                        const lw::upgrade_to_unique_lock writing(reading);
                        CHECK(pair[0] == before); // no writer in between
                        pair[0]++, pair[1]++;
                    }
                } else if (i % 4 == 3 - number) {
                    const std::lock_guard writing(mutex);
                    pair[0]++, pair[1]++;
                } else {
                    const Reader reading(mutex);
                    CHECK(pair[0] == pair[1]);
                }
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(by_upgradable_readers == 120 && pair[0] == 60 + 120);
}

// The same with the default lock, and what only that has: std's shared_lock.
inline void default_lock() {
    steps<lw::shared_mutex, std::shared_lock<lw::shared_mutex>>();
    together<lw::shared_mutex, std::shared_lock<lw::shared_mutex>>();
    lw::shared_mutex mutex;
    lw::upgrade_lock reading(mutex);
    std::shared_lock plain = lw::to_shared_lock(std::move(reading));
    CHECK(plain && !reading);
    elsewhere([&] { CHECK(mutex.try_lock_upgrade() && (mutex.unlock_upgrade(), !mutex.try_lock())); });
    plain.unlock();
    CHECK(!lw::to_shared_lock(std::move(reading)).mutex() && mutex.try_lock());
    mutex.unlock();
}

template <class Algorithm> void registered() {
    using mutex_type = shared<Algorithm>;
    steps<mutex_type, reader<Algorithm>>();
    together<mutex_type, reader<Algorithm>>();
    mutex_type mutex;
    {
        const reader<Algorithm> plain(lw::upgrade_lock<mutex_type>{mutex});
        CHECK(plain);
        elsewhere([&] { CHECK(mutex.try_lock_upgrade() && (mutex.unlock_upgrade(), !mutex.try_lock())); });
    }
    {
        const reader<Algorithm> plain(std::unique_lock<mutex_type>{mutex});
        elsewhere([&] { CHECK(reader<Algorithm>(mutex, std::try_to_lock) && !mutex.try_lock()); });
    }
    CHECK(mutex.try_lock());
    elsewhere([&] { CHECK(!reader<Algorithm>(mutex, std::try_to_lock) && !reader<Algorithm>(mutex, 1ms).owns_lock()); });
    mutex.unlock();
    CHECK(fails(std::errc::operation_not_permitted, [&] {
        reader<Algorithm> none(std::unique_lock<mutex_type>(mutex, std::defer_lock));
    }));
    CHECK(mutex.try_lock_until(std::chrono::steady_clock::now() + 24h));
    mutex.unlock();
}

inline void all() {
    kinds();
    default_lock();
    registered<lw::pf_q>();
    registered<lw::shfl_rw>();
    registered<lw::bravo_2d_shfl_rw>();
}

} // namespace upgrades
