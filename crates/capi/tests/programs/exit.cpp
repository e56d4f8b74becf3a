// notify_all_at_thread_exit in a thread that ends the process: it returns from main, or calls exit.
#ifdef WITH_STD
#include <condition_variable>
#include <mutex>
namespace locks = std;
#else
#include "latchwork.hpp"
namespace locks = lw;
#endif

#include <cstdio>
#include <cstdlib>
#include <thread>

static locks::mutex mutex;
static locks::condition_variable condition;
static bool ready = false;

// A static object whose destructor waits for a thread, as a pool's does. That thread waits for the end of main's.
struct pool {
    std::thread waiter{[] {
        locks::unique_lock<locks::mutex> lock(mutex);
        condition.wait(lock, [] { return ready; });
    }};
    ~pool() {
        waiter.join();
        std::puts("joined");
        std::fflush(stdout);
    }
};

static void leave() {
    locks::unique_lock<locks::mutex> lock(mutex);
    ready = true;
    locks::notify_all_at_thread_exit(condition, std::move(lock));
}

int main(int count, char **) {
    static pool waiting;
    if (count > 1) {
        std::thread([] {
            leave();
            std::exit(0);
        }).join();
    }
    leave();
}
