// What programs for the recorder's tests know about their own locks. A program defines SITES(X), a list of functions, and
// includes this.
//
//   count N NAME           a number that must be equal
//   time NS NAME           a duration that must be about equal
//   site NAME START END    the addresses of a function
//   pair NS WAITER HOLDER  how long WAITER waited while HOLDER held the lock
//   held NS NAME           how long NAME held locks
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t now(void) { return clock_now(CLOCK_MONOTONIC); }

static void sleep_ms(unsigned ms) { usleep(ms * 1000); }

// A span of time that a thread spent at a site, waiting or holding one of the locks.
struct span { uint64_t start, end; int site, holds; const void *lock; };
static struct span spans[1 << 14];
static int span_count;

static void note(const void *lock, uint64_t start, uint64_t end, int site, int holds)
{
    int index = __atomic_fetch_add(&span_count, 1, __ATOMIC_RELAXED);
    spans[index].start = start, spans[index].end = end, spans[index].lock = lock;
    spans[index].site = site, spans[index].holds = holds;
}

// Functions whose addresses are known: each lies in a section of its own.
enum site {
#define X(name) SITE_##name,
    SITES(X)
#undef X
    SITE_COUNT
};
static const char *const site_names[] = {
#define X(name) #name,
    SITES(X)
#undef X
};
#define IN_SITE(name) __attribute__((noinline, section("site_" #name)))
#define SITE(name) IN_SITE(name) static void name
#ifdef __cplusplus
extern "C" {
#endif
#define X(name) extern char __start_site_##name[], __stop_site_##name[];
SITES(X)
#undef X
#ifdef __cplusplus
}
#endif

static void report(void)
{
    static uint64_t part[SITE_COUNT][SITE_COUNT], of_site[SITE_COUNT];
    uint64_t waited = 0, held = 0;
    for (int i = 0; i < span_count; i++) {
        struct span *wait = &spans[i];
        uint64_t length = wait->end - wait->start;
        if (wait->holds) {
            held += length;
            of_site[wait->site] += length;
            continue;
        }
        waited += length;
        for (int j = 0; j < span_count; j++) {
            struct span *hold = &spans[j];
            uint64_t start = hold->start > wait->start ? hold->start : wait->start;
            uint64_t end = hold->end < wait->end ? hold->end : wait->end;
            if (hold->holds && hold->lock == wait->lock && start < end)
                part[wait->site][hold->site] += end - start;
        }
    }
    printf("time %lu wait\ntime %lu hold\n", waited, held);
#define X(name) printf("site %s %lu %lu\n", #name, (uintptr_t)__start_site_##name, (uintptr_t)__stop_site_##name);
    SITES(X)
#undef X
    for (int i = 0; i < SITE_COUNT; i++) {
        if (of_site[i])
            printf("held %lu %s\n", of_site[i], site_names[i]);
        for (int j = 0; j < SITE_COUNT; j++)
            if (part[i][j])
                printf("pair %lu %s %s\n", part[i][j], site_names[i], site_names[j]);
    }
    fflush(stdout);
}
