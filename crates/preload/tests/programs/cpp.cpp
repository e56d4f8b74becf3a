// The C++ library's locks, which use clockwait, clocklock and static initialisers.
#include "check.h"
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static std::mutex early; // used by a constructor before main
struct Early {
    Early() { std::lock_guard<std::mutex> guard(early); }
    ~Early() { std::lock_guard<std::mutex> guard(early); }
} object;

static void condition_variable()
{
    std::mutex mutex;
    std::condition_variable cond;
    std::condition_variable_any any;
    bool go = false;
    std::unique_lock<std::mutex> lock(mutex);
    auto before = std::chrono::steady_clock::now();
    CHECK(cond.wait_for(lock, 20ms) == std::cv_status::timeout);
    CHECK(std::chrono::steady_clock::now() - before >= 20ms);
    CHECK(cond.wait_until(lock, std::chrono::system_clock::now() + 10ms) == std::cv_status::timeout);
    CHECK(cond.wait_until(lock, std::chrono::steady_clock::now() + 10ms) == std::cv_status::timeout);
    CHECK(!cond.wait_for(lock, 10ms, [&] { return go; }));
    CHECK(any.wait_for(lock, 10ms) == std::cv_status::timeout);
    std::vector<std::thread> threads;
    int seen = 0;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            std::unique_lock<std::mutex> lock(mutex);
            CHECK(cond.wait_for(lock, 300s, [&] { return go; }));
            seen++;
        });
    lock.unlock();
    std::this_thread::sleep_for(5ms);
    lock.lock();
    go = true;
    cond.notify_all();
    lock.unlock();
    for (auto &thread : threads)
        thread.join();
    EQ(seen, 4);
}

template <class Mutex> static void timed(Mutex &mutex, bool recursive)
{
    CHECK(mutex.try_lock_for(10ms));
    EQ(mutex.try_lock(), recursive);
    std::thread([&] {
        CHECK(!mutex.try_lock());
        CHECK(!mutex.try_lock_for(10ms));
        CHECK(!mutex.try_lock_until(std::chrono::system_clock::now() + 10ms));
    }).join();
    if (recursive)
        mutex.unlock();
    mutex.unlock();
    std::thread([&] {
        CHECK(mutex.try_lock());
        mutex.unlock();
    }).join();
}

template <class Mutex> static void shared(Mutex &mutex)
{
    long a = 0, b = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 500; i++) {
                if ((i + t) % 5 == 0) {
                    std::unique_lock<Mutex> lock(mutex);
                    a++, b++;
                } else {
                    std::shared_lock<Mutex> lock(mutex);
                    CHECK(a == b);
                }
            }
        });
    for (auto &thread : threads)
        thread.join();
    EQ(a, 800);
    EQ(b, 800);
    std::shared_lock<Mutex> lock(mutex);
    std::thread([&] {
        CHECK(mutex.try_lock_shared());
        mutex.unlock_shared();
        CHECK(!mutex.try_lock());
    }).join();
}

int main()
{
    std::timed_mutex a;
    std::recursive_timed_mutex b;
    std::shared_mutex c;
    std::shared_timed_mutex d;
    condition_variable();
    timed(a, false);
    timed(b, true);
    shared(c);
    shared(d);
    std::unique_lock<std::shared_timed_mutex> lock(d);
    std::thread([&] {
        CHECK(!d.try_lock_shared_for(10ms));
        CHECK(!d.try_lock_for(10ms));
    }).join();
    int sum = 0;
    for (int i = 0; i < 50; i++)
        sum += std::async(std::launch::async, [i] { return i; }).get();
    EQ(sum, 1225);
    printf("ok\n");
}
