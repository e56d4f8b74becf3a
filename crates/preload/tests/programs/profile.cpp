// As profile.c, for the C++ library's locks: a lock in a template wrapper, std::mutex, std::shared_mutex and
// std::condition_variable. Each thread measures its own waits and holds.
#define SITES(X) X(culprit) X(victim) X(reader) X(writer) X(worker)
#include "truth.h"
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

// A value that is used only with its lock.
template <typename Value, typename Lock = std::mutex> class Guarded {
    Lock lock;
    Value value{};

public:
    template <typename Change> auto with(Change change)
    {
        std::lock_guard<Lock> guard(lock);
        return change(value);
    }
};

static const int rounds = 8;
static std::atomic<int> held_in_round;

static void wait_for_holder(int round)
{
    while (held_in_round.load(std::memory_order_acquire) <= round)
        usleep(100);
}

// On the heap: its name comes from the place of its first use.
static std::unique_ptr<Guarded<std::string>> guarded;

SITE(culprit)()
{
    uint64_t start = now(), got = 0, end = 0;
    guarded->with([&](std::string &text) {
        got = now();
        held_in_round.fetch_add(1, std::memory_order_release);
        text += '.';
        sleep_ms(20);
        end = now();
    });
    note(guarded.get(), start, got, SITE_culprit, 0);
    note(guarded.get(), got, end, SITE_culprit, 1);
}

SITE(victim)()
{
    uint64_t start = now(), got = 0, end = 0;
    guarded->with([&](std::string &text) {
        got = now();
        text += 'v';
        end = now();
    });
    note(guarded.get(), start, got, SITE_victim, 0);
    note(guarded.get(), got, end, SITE_victim, 1);
}

static std::shared_mutex shared;

template <typename Guard> static void hold_shared(int site)
{
    uint64_t start = now();
    Guard guard(shared);
    uint64_t got = now();
    held_in_round.fetch_add(1, std::memory_order_release);
    sleep_ms(20);
    uint64_t end = now();
    guard.unlock();
    note(&shared, start, got, site, 0);
    note(&shared, got, end, site, 1);
}

SITE(reader)() { hold_shared<std::shared_lock<std::shared_mutex>>(SITE_reader); }
SITE(writer)() { hold_shared<std::unique_lock<std::shared_mutex>>(SITE_writer); }

// One after the other: each waits until all others have come so far. Its own waiting is no lock's.
struct Together {
    std::atomic<int> arrived{0};
    void meet(int threads)
    {
        int target = (arrived.fetch_add(1) / threads + 1) * threads;
        while (arrived.load() < target)
            usleep(100);
    }
};

template <typename Body> static void parallel(int count, Body body)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++)
        threads.emplace_back(body, i);
    for (auto &thread : threads)
        thread.join();
}

static void blame()
{
    guarded = std::make_unique<Guarded<std::string>>();
    static Together together;
    parallel(4, [](int number) {
        for (int i = 0; i < rounds; i++) {
            together.meet(4);
            if (number == 0) {
                culprit();
            } else {
                wait_for_holder(i);
                victim();
            }
        }
    });
    printf("count %d acquisitions\n", 4 * rounds);
}

static void reading()
{
    static Together together;
    parallel(2, [](int number) {
        for (int i = 0; i < rounds; i++) {
            together.meet(2);
            if (i % 2 == (number == 0))
                wait_for_holder(2 * i);
            if (number)
                reader();
            else
                writer();
        }
    });
    printf("count %d acquisitions\ncount %d reads\n", 2 * rounds, rounds);
}

// Workers wait for jobs that do not come.
static std::mutex mutex;
static std::condition_variable ready;
static bool over;
static std::atomic<uint64_t> idle;

SITE(worker)()
{
    std::unique_lock<std::mutex> lock(mutex);
    uint64_t start = now();
    ready.wait(lock, [] { return over; });
    idle += now() - start;
}

static void pool()
{
    parallel(5, [](int number) {
        if (number) {
            worker();
            return;
        }
        sleep_ms(200);
        {
            std::lock_guard<std::mutex> guard(mutex);
            over = true;
        }
        ready.notify_all();
    });
    printf("time %lu idle\n", idle.load());
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "blame"))
        blame();
    else if (!strcmp(mode, "rwlock"))
        reading();
    else if (!strcmp(mode, "pool"))
        pool();
    else
        return 2;
    report();
    puts("ok");
}
