// A program that is written against the standard library's locks: a bounded queue, a cache with readers and writers, a
// thread pool, a barrier, a resource pool, transfers between accounts, a logger, timed attempts, stop requests. Every lock is named through
// the alias `locks`; with -DWITH_STD that is namespace std (C++20), else namespace lw. Nothing else differs.
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 finds that the constructor of std::stop_source uses what is not initialised.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "check.h"
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#ifdef WITH_STD
#include <semaphore>
namespace locks = std;
#else
#include <latchwork.hpp>
namespace locks = lw;
#endif

using namespace std::chrono_literals;

// A queue of bounded length with two conditions.
template <class T> class bounded_queue {
  public:
    explicit bounded_queue(std::size_t capacity) : capacity_(capacity) {}

    void push(T value) {
        locks::unique_lock<locks::mutex> lock(mutex_);
        not_full_.wait(lock, [this] { return items_.size() < capacity_; });
        items_.push_back(std::move(value));
        lock.unlock();
        not_empty_.notify_one();
    }

    std::optional<T> pop() {
        locks::unique_lock<locks::mutex> lock(mutex_);
        while (items_.empty() && !closed_) {
            not_empty_.wait(lock);
        }
        if (items_.empty()) {
            return std::nullopt;
        }
        T value = std::move(items_.front());
        items_.pop_front();
        lock.unlock();
        not_full_.notify_one();
        return value;
    }

    template <class Rep, class Period> bool try_push_for(T value, std::chrono::duration<Rep, Period> timeout) {
        locks::unique_lock<locks::mutex> lock(mutex_);
        if (!not_full_.wait_for(lock, timeout, [this] { return items_.size() < capacity_; })) {
            return false;
        }
        items_.push_back(std::move(value));
        not_empty_.notify_one();
        return true;
    }

    void close() {
        const locks::lock_guard<locks::mutex> lock(mutex_);
        closed_ = true;
        not_empty_.notify_all();
    }

    std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return items_.size();
    }

  private:
    const std::size_t capacity_;
    mutable locks::mutex mutex_;
    locks::condition_variable not_full_, not_empty_;
    std::deque<T> items_;
    bool closed_ = false;
};

static void queues() {
    bounded_queue<int> queue(4);
    std::atomic<long> sum{0};
    std::vector<std::thread> consumers, producers;
    for (int i = 0; i < 3; i++) {
        consumers.emplace_back([&] {
            while (const auto item = queue.pop()) {
                sum += *item;
            }
        });
        producers.emplace_back([&queue, i] {
            for (int k = 0; k < 500; k++) {
                queue.push(i * 500 + k);
            }
        });
    }
    for (auto &producer : producers) {
        producer.join();
    }
    queue.close();
    for (auto &consumer : consumers) {
        consumer.join();
    }
    CHECK(sum == 1500L * 1499 / 2);
    CHECK(queue.size() == 0);
    bounded_queue<int> full(1);
    full.push(1);
    CHECK(!full.try_push_for(2, 5ms));
    CHECK(full.pop() == 1 && full.try_push_for(2, 5ms));
}

// A cache that many read and few fill.
class cache {
  public:
    std::shared_ptr<const std::string> find(int key) const {
        const locks::shared_lock<locks::shared_mutex> lock(mutex_);
        const auto found = values_.find(key);
        return found == values_.end() ? nullptr : found->second;
    }

    std::shared_ptr<const std::string> get(int key) {
        if (auto found = find(key)) {
            return found;
        }
        const locks::unique_lock<locks::shared_mutex> lock(mutex_);
        auto &slot = values_[key];
        if (!slot) {
            slot = std::make_shared<const std::string>(std::to_string(key));
            filled_++;
        }
        return slot;
    }

    bool try_clear() {
        locks::unique_lock<locks::shared_mutex> lock(mutex_, locks::try_to_lock);
        if (!lock) {
            return false;
        }
        values_.clear();
        return true;
    }

    int filled() const {
        const locks::shared_lock lock(mutex_);
        return filled_;
    }

    mutable locks::shared_mutex mutex_;

  private:
    std::map<int, std::shared_ptr<const std::string>> values_;
    int filled_ = 0;
};

static void caches() {
    cache cache;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&cache, i] {
            std::minstd_rand random(i);
            for (int k = 0; k < 2000; k++) {
                const int key = static_cast<int>(random() % 64);
                CHECK(*cache.get(key) == std::to_string(key));
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(cache.filled() == 64);
    {
        const locks::shared_lock reading(cache.mutex_);
        std::thread([&cache] { CHECK(!cache.try_clear() && cache.find(1)); }).join();
    }
    CHECK(cache.try_clear() && !cache.find(1));
}

// A pool of threads that run functions.
class pool {
  public:
    explicit pool(int size) {
        for (int i = 0; i < size; i++) {
            threads_.emplace_back([this] { work(); });
        }
    }

    ~pool() {
        {
            const locks::scoped_lock lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        for (auto &thread : threads_) {
            thread.join();
        }
    }

    void post(std::function<void()> job) {
        {
            const locks::scoped_lock lock(mutex_);
            jobs_.push_back(std::move(job));
        }
        changed_.notify_one();
    }

    void drain() {
        std::unique_lock lock(mutex_);
        idle_.wait(lock, [this] { return jobs_.empty() && running_ == 0; });
    }

  private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
            if (jobs_.empty()) {
                return;
            }
            auto job = std::move(jobs_.front());
            jobs_.pop_front();
            running_++;
            lock.unlock();
            job();
            lock.lock();
            if (--running_ == 0 && jobs_.empty()) {
                idle_.notify_all();
            }
        }
    }

    locks::mutex mutex_;
    locks::condition_variable_any changed_, idle_;
    std::deque<std::function<void()>> jobs_;
    std::vector<std::thread> threads_;
    int running_ = 0;
    bool stopping_ = false;
};

static void pools() {
    std::atomic<int> done{0};
    {
        pool pool(3);
        for (int i = 0; i < 500; i++) {
            pool.post([&done] { done++; });
        }
        pool.drain();
        CHECK(done == 500);
        pool.post([&done] { done++; });
    }
    CHECK(done == 501);
}

// Accounts, transfers between which lock two of them.
struct account {
    locks::mutex mutex;
    long balance = 100;
};

static void transfer(account &from, account &to, long amount) {
    locks::scoped_lock both(from.mutex, to.mutex);
    from.balance -= amount;
    to.balance += amount;
}

static void accounts() {
    std::array<account, 5> all;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&all, i] {
            std::minstd_rand random(i);
            for (int k = 0; k < 2000; k++) {
                const auto from = random() % all.size(), to = random() % all.size();
                if (from != to) {
                    transfer(all[from], all[to], static_cast<long>(random() % 10));
                }
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(std::accumulate(all.begin(), all.end(), 0L, [](long sum, account &a) { return sum + a.balance; }) == 500);
    locks::unique_lock first(all[0].mutex, locks::defer_lock), second(all[1].mutex, locks::defer_lock);
    locks::lock(first, second);
    CHECK(first.owns_lock() && second.owns_lock());
    first.unlock();
    CHECK(locks::try_lock(all[0].mutex, all[2].mutex) == -1);
    all[2].mutex.unlock();
    all[0].mutex.unlock();
    CHECK(locks::try_lock(all[0].mutex, all[2].mutex) == -1);
    const locks::lock_guard adopted(all[0].mutex, locks::adopt_lock);
    all[2].mutex.unlock();
}

// A logger whose functions call each other with the lock held.
class logger {
  public:
    void line(const std::string &text) {
        const std::lock_guard lock(mutex_);
        lines_.push_back(text);
    }
    void lines(const std::vector<std::string> &all) {
        const std::lock_guard lock(mutex_);
        for (const auto &one : all) {
            line(one);
        }
    }
    std::size_t count() {
        const std::lock_guard lock(mutex_);
        return lines_.size();
    }
    locks::recursive_mutex mutex_;

  private:
    std::vector<std::string> lines_;
};

static void loggers() {
    logger logger;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&logger] {
            for (int k = 0; k < 200; k++) {
                logger.lines({"a", "b"});
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(logger.count() == 1200);
    CHECK(logger.mutex_.try_lock() && logger.mutex_.try_lock());
    std::thread([&logger] { CHECK(!logger.mutex_.try_lock()); }).join();
    logger.mutex_.unlock();
    std::thread([&logger] { CHECK(!logger.mutex_.try_lock()); }).join();
    logger.mutex_.unlock();
    std::thread([&logger] {
        CHECK(logger.mutex_.try_lock());
        logger.mutex_.unlock();
    }).join();
}

// At most so many threads at a time.
static void resources() {
    locks::counting_semaphore<8> rooms(2);
    std::atomic<int> inside{0}, most{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int k = 0; k < 300; k++) {
                rooms.acquire();
                const int now = ++inside;
                CHECK(now <= 2);
                if (now > most) {
                    most = now;
                }
                --inside;
                rooms.release();
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(most >= 1 && rooms.try_acquire() && rooms.try_acquire() && !rooms.try_acquire());
    CHECK(!rooms.try_acquire_for(2ms));
    CHECK(!rooms.try_acquire_until(std::chrono::system_clock::now() + 2ms));
    rooms.release(2);
    CHECK(rooms.try_acquire_for(1s) && locks::counting_semaphore<8>::max() >= 8);
    locks::binary_semaphore ready(0), answered(0);
    int message = 0;
    std::thread other([&] {
        ready.acquire();
        message++;
        answered.release();
    });
    message = 41;
    ready.release();
    answered.acquire();
    CHECK(message == 42);
    other.join();
}

static void timed() {
    locks::timed_mutex mutex;
    locks::shared_timed_mutex shared;
    locks::recursive_timed_mutex recursive;
    CHECK(mutex.try_lock_for(1s) && recursive.try_lock_for(1s) && recursive.try_lock_until(std::chrono::steady_clock::now()));
    shared.lock_shared();
    std::thread([&] {
        const auto start = std::chrono::steady_clock::now();
        CHECK(!mutex.try_lock_for(5ms) && !mutex.try_lock_until(start + 10ms));
        CHECK(std::chrono::steady_clock::now() >= start + 10ms);
        CHECK(!mutex.try_lock_until(std::chrono::system_clock::now() + 2ms));
        CHECK(!recursive.try_lock_for(2ms));
        CHECK(!shared.try_lock_for(2ms) && shared.try_lock_shared_for(1s));
        shared.unlock_shared();
    }).join();
    shared.unlock_shared();
    CHECK(shared.try_lock_until(std::chrono::steady_clock::now() - 1s));
    std::thread([&] { CHECK(!shared.try_lock_shared_until(std::chrono::steady_clock::now() + 2ms)); }).join();
    shared.unlock();
    recursive.unlock();
    recursive.unlock();
    mutex.unlock();
    locks::mutex plain;
    locks::condition_variable condition;
    std::unique_lock lock(plain);
    CHECK(condition.wait_for(lock, -1s) == locks::cv_status::timeout);
    CHECK(!condition.wait_until(lock, std::chrono::system_clock::now() + 2ms, [] { return false; }));
    CHECK(condition.wait_for(lock, 0s, [] { return true; }));
}

// Waits that a stop request ends. No result depends on which thread is faster.
#ifdef __cpp_lib_jthread
static void stops() {
    locks::condition_variable_any condition;
    locks::mutex mutex;
    std::unique_lock lock(mutex);
    const auto no = [] { return false; };
    const auto yes = [] { return true; };

    // A stop that was requested before.
    std::stop_source before;
    before.request_stop();
    CHECK(!condition.wait(lock, before.get_token(), no) && condition.wait(lock, before.get_token(), yes));
    CHECK(!condition.wait_for(lock, before.get_token(), 24h, no) && lock.owns_lock());
    CHECK(!condition.wait_until(lock, before.get_token(), std::chrono::system_clock::now() + 24h, no));
    CHECK(!mutex.try_lock());

    // One that the thread requests itself, after it has looked, and before it waits.
    for (int kind = 0; kind < 3; kind++) {
        std::stop_source source;
        int looks = 0;
        const auto stop = [&] { return looks++ == 0 && !source.request_stop(); };
        if (kind == 0) {
            CHECK(!condition.wait(lock, source.get_token(), stop));
        } else if (kind == 1) {
            CHECK(!condition.wait_for(lock, source.get_token(), 24h, stop));
        } else {
            CHECK(!condition.wait_until(lock, source.get_token(), std::chrono::steady_clock::now() + 24h, stop));
        }
        CHECK(lock.owns_lock());
#ifndef WITH_STD
        CHECK(looks == 2); // as the standard says; libstdc++ 12 does not look again in each case
#endif
    }

    // No stop: the time ends the wait, or a notification.
    std::stop_source never;
    CHECK(!condition.wait_for(lock, never.get_token(), 1ms, no) && !condition.wait_for(lock, std::stop_token(), -1s, no));
    CHECK(condition.wait_until(lock, never.get_token(), std::chrono::steady_clock::time_point::min(), yes));
    int turn = 0;
    std::thread other([&] {
        for (int i = 1; i < 200; i += 2) {
            std::unique_lock own(mutex);
            CHECK(condition.wait(own, never.get_token(), [&] { return turn == i; }));
            turn++;
            condition.notify_all();
        }
    });
    for (int i = 0; i < 200; i += 2) {
        CHECK(condition.wait_for(lock, never.get_token(), 24h, [&] { return turn == i; }));
        turn++;
        condition.notify_all();
    }
    lock.unlock();
    other.join();
    CHECK(turn == 200);

    // A stop from another thread, while several wait or are about to.
    for (int i = 0; i < 100; i++) {
        std::stop_source source;
        std::atomic<int> ended{0};
        std::vector<std::thread> waiters;
        for (int k = 0; k < 3; k++) {
            waiters.emplace_back([&] {
                std::unique_lock own(mutex);
                CHECK(!condition.wait(own, source.get_token(), no) && own.owns_lock());
                ended++;
            });
        }
        source.request_stop();
        for (auto &waiter : waiters) {
            waiter.join();
        }
        CHECK(ended == 3);
    }
}
#else
static void stops() {}
#endif

// Threads that tell of their end when their variables are gone.
static locks::mutex exit_mutex;
static locks::condition_variable exited;
static int leaving = 0, gone = 0;

struct last_word {
    bool used = false;
    ~last_word() { gone++; }
};
static thread_local last_word word;

static void leave() {
    locks::unique_lock<locks::mutex> lock(exit_mutex);
    word.used = true;
    leaving++;
    locks::notify_all_at_thread_exit(exited, std::move(lock));
    CHECK(!exit_mutex.try_lock());
}

static void exits() {
    for (int i = 0; i < 3; i++) {
        std::thread(leave).detach();
    }
    locks::unique_lock<locks::mutex> lock(exit_mutex);
    exited.wait(lock, [] { return leaving == 3; });
    CHECK(gone == 3);
}

static locks::mutex global;
static locks::once_flag flag;

int main() {
    int calls = 0;
    for (int i = 0; i < 3; i++) {
        locks::call_once(flag, [&calls] { calls++; });
    }
    CHECK(calls == 1);
    const std::lock_guard guard(global);
    queues();
    caches();
    pools();
    accounts();
    loggers();
    resources();
    timed();
    stops();
    exits();
    std::puts("ok");
}
