/* The functions of the profile's layer that acquire a lock. Each adds two arguments and jumps to the function of the same
   name in mod.rs: the return address, and the address at which a call instruction of x86-64 has put it. So the recorder
   knows where a lock was acquired that nobody waited for at that time, and pays no unwinding. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <threads.h>
#include <time.h>

/* The functions in Rust are of this library, too: they are called without its table of foreign functions. */
#pragma GCC visibility push(hidden)

#ifdef __x86_64__
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* In assembly: the compiler would set up a frame, to know where the return address lies. The arguments of the program stay
   in their registers, and the next two free ones get the two new arguments. */
#define FUNCTION(name, parameters, with_caller, first, second, ...) \
    int latchwork_profile_##name##_from with_caller; \
    int latchwork_profile_##name parameters; \
    __attribute__((naked)) int latchwork_profile_##name parameters \
    { \
        __asm__("mov (%rsp), %" first "\n\tmov %rsp, %" second "\n\tjmp latchwork_profile_" #name "_from\n\t.hidden latchwork_profile_" #name "_from"); \
    }
#else
#define CALLER (uintptr_t)__builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa() - sizeof(void *)

#define FUNCTION(name, parameters, with_caller, first, second, ...) \
    int latchwork_profile_##name##_from with_caller; \
    int latchwork_profile_##name parameters; \
    int latchwork_profile_##name parameters \
    { \
        return latchwork_profile_##name##_from(__VA_ARGS__, CALLER); \
    }
#endif

typedef const struct timespec *until;

#define PLAIN(name, type) FUNCTION(name, (type *lock), (type *, uintptr_t, uintptr_t), "rsi", "rdx", lock)
#define TIMED(name, type) \
    FUNCTION(name, (type *lock, until time), (type *, until, uintptr_t, uintptr_t), "rdx", "rcx", lock, time)
#define CLOCK(name, type) \
    FUNCTION(name, (type *lock, clockid_t clock, until time), (type *, clockid_t, until, uintptr_t, uintptr_t), \
             "rcx", "r8", lock, clock, time)

PLAIN(mutex_lock, pthread_mutex_t)
PLAIN(mutex_trylock, pthread_mutex_t)
TIMED(mutex_timedlock, pthread_mutex_t)
CLOCK(mutex_clocklock, pthread_mutex_t)
PLAIN(rwlock_rdlock, pthread_rwlock_t)
PLAIN(rwlock_wrlock, pthread_rwlock_t)
PLAIN(rwlock_tryrdlock, pthread_rwlock_t)
PLAIN(rwlock_trywrlock, pthread_rwlock_t)
TIMED(rwlock_timedrdlock, pthread_rwlock_t)
TIMED(rwlock_timedwrlock, pthread_rwlock_t)
CLOCK(rwlock_clockrdlock, pthread_rwlock_t)
CLOCK(rwlock_clockwrlock, pthread_rwlock_t)
PLAIN(spin_lock, volatile int)
PLAIN(spin_trylock, volatile int)
PLAIN(mtx_lock, mtx_t)
PLAIN(mtx_trylock, mtx_t)
TIMED(mtx_timedlock, mtx_t)
