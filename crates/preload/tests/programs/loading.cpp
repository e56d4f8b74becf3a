// With LIBRARY: a library whose constructor waits for a thread of the program. Else the program: one thread loads the library, and
// the other one throws the process's first exception meanwhile. With a second argument it takes locks in both orders instead.
#include <atomic>
#include <cstdio>
#include <dlfcn.h>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unistd.h>

extern "C" {
extern std::atomic<int> loading, caught;
}

#ifdef LIBRARY
__attribute__((constructor)) static void wait_for_the_other()
{
    loading = 1;
    for (int ms = 0; ms < 60000 && !caught; ms++)
        usleep(1000);
}
#else
std::atomic<int> loading, caught;
static std::mutex a, b;

static void both(std::mutex &first, std::mutex &second)
{
    std::lock_guard<std::mutex> one(first);
    std::lock_guard<std::mutex> two(second);
}

int main(int count, char **arguments)
{
    std::thread other([count] {
        while (!loading)
            usleep(100);
        if (count > 2) {
            both(a, b);
            both(b, a);
            caught = 1;
            return;
        }
        try {
            throw std::runtime_error("the first");
        } catch (std::exception &) {
        }
        caught = 1;
    });
    void *library = dlopen(arguments[1], RTLD_NOW);
    bool in_time = caught;
    other.join();
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    puts(in_time && library ? "ok" : "no exception while a library is loaded");
    return !(in_time && library);
}
#endif
