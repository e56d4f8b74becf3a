// What latchwork run --check must not do to a program: end threads that are being cancelled, take a new lock in the
// place of an old one for the old one, or follow return addresses that are none.
#include "check.h"
#include <dlfcn.h>
#include <initializer_list>
#include <mutex>
#include <new>
#include <shared_mutex>

static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;
static std::mutex global;
static bool survived;

// A cancel is pending when the report is made; the thread ends at its own cancellation point, not in the report.
static void *pending(void *)
{
    OK(pthread_cancel(pthread_self()));
    pthread_mutex_unlock(&never);
    survived = true;
    pthread_testcancel();
    return NULL;
}

// May be cancelled anywhere, also while the report walks the stack under the loader's lock.
static void *asynchronous(void *)
{
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    for (;;)
        pthread_mutex_unlock(&never);
    return NULL;
}

// Locals, one after another in the same place: the first is taken before the global lock, the second after it.
template <class Lock> static void locals()
{
    alignas(Lock) char place[sizeof(Lock)];
    for (int i = 0; i < 2; i++) {
        Lock *local = new (place) Lock;
        if (i == 0) {
            std::lock_guard<Lock> one(*local);
            std::lock_guard<std::mutex> two(global);
        } else {
            std::lock_guard<std::mutex> one(global);
            std::lock_guard<Lock> two(*local);
        }
        local->~Lock();
    }
}

// Many locals, one after another in the same place, and all taken after the global lock. The last one is taken before it too.
static void lives()
{
    alignas(std::mutex) char place[sizeof(std::mutex)];
    for (int i = 0; i < 200; i++) {
        std::mutex *local = new (place) std::mutex;
        {
            std::lock_guard<std::mutex> one(global);
            std::lock_guard<std::mutex> two(*local);
        }
        if (i == 199) {
            std::lock_guard<std::mutex> one(*local);
            std::lock_guard<std::mutex> two(global);
        }
        local->~mutex();
    }
}

// Objects that stay with glibc, read twice by one thread.
static void foreign()
{
    pthread_rwlock_t prefers_writers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP, shared;
    pthread_rwlockattr_t attribute;
    OK(pthread_rwlockattr_init(&attribute));
    OK(pthread_rwlockattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED));
    OK(pthread_rwlock_init(&shared, &attribute));
    for (pthread_rwlock_t *lock : {&prefers_writers, &shared}) {
        OK(pthread_rwlock_rdlock(lock));
        OK(pthread_rwlock_rdlock(lock));
        OK(pthread_rwlock_unlock(lock));
        OK(pthread_rwlock_unlock(lock));
    }
}

// Coroutines that share one stack keep what lies above their own frames elsewhere, as those of Python's greenlet do. There the
// stack then has another coroutine's data: here, in the place of this function's return address. An inversion is reported meanwhile.
static __attribute__((noinline)) void overwritten()
{
    void *volatile *place = (void *volatile *)__builtin_frame_address(0) + 1;
    void *kept = *place;
    std::mutex first, second;
    for (uintptr_t data : {uintptr_t(1), uintptr_t(8192), uintptr_t(place), UINTPTR_MAX, UINTPTR_MAX / 2}) {
        *place = (void *)data;
        first.lock();
        second.lock();
        second.unlock();
        first.unlock();
        second.lock();
        first.lock();
        first.unlock();
        second.unlock();
        *place = kept;
    }
}

int main(int, char **arguments)
{
    if (!strcmp(arguments[1], "foreign")) {
        foreign();
    } else if (!strcmp(arguments[1], "locals")) {
        locals<std::mutex>();
        locals<std::shared_mutex>();
    } else if (!strcmp(arguments[1], "lives")) {
        lives();
    } else if (!strcmp(arguments[1], "overwritten")) {
        overwritten();
    } else if (!strcmp(arguments[1], "pending")) {
        CHECK(join(start(pending, NULL)) == PTHREAD_CANCELED);
        CHECK(survived);
        pthread_mutex_unlock(&never);
    } else {
        for (int i = 0; i < 40; i++) {
            pthread_t thread = start(asynchronous, NULL);
            usleep(1000 + 97 * i);
            OK(pthread_cancel(thread));
            CHECK(join(thread) == PTHREAD_CANCELED);
        }
        global.lock();
        global.unlock();
        CHECK(dlopen(NULL, RTLD_NOW)); // the loader's lock is free
    }
    puts("ok");
    return 0;
}
