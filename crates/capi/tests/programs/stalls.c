/* A reader that stays in its section: the program is told which thread it is, and a domain may have a limit. */
#include "check.h"
#include <latchwork.h>
#include <sys/syscall.h>
#include <unistd.h>

static int reader;  /* its number, while it is in its section */
static int is_over; /* lets it leave */

static void pause_for(long ms) {
    struct timespec time = {0, ms * 1000000};
    CHECK(nanosleep(&time, NULL) == 0);
}

static void *stay(void *unused) {
    lw_rcu_read_lock();
    __atomic_store_n(&reader, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        pause_for(1);
    }
    lw_rcu_read_unlock();
    return unused;
}

static void count(int thread, uint64_t nanos, void *calls) {
    CHECK(thread == __atomic_load_n(&reader, __ATOMIC_ACQUIRE) && nanos > 0);
    __atomic_fetch_add((long *)calls, 1, __ATOMIC_RELAXED);
}
static void never(int thread, uint64_t nanos, void *context) {
    (void)thread, (void)nanos, (void)context;
    CHECK(!"this function was replaced");
}

static long of(long *calls) { return __atomic_load_n(calls, __ATOMIC_RELAXED); }

struct object {
    lw_rcu_head head;
};
static void free_object(lw_rcu_head *head) { free(head); }
/* Retires so many objects, and returns how many milliseconds that took. */
static long retire(lw_rcu_domain *domain, int objects) {
    struct timespec begin = in_ms(CLOCK_MONOTONIC, 0), end;
    for (int i = 0; i < objects; i++) {
        struct object *object = malloc(sizeof *object);
        lw_rcu_call(domain, &object->head, free_object);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
}

static lw_rcu_map *map;
static int value;

int main(void) {
    long of_process = 0, of_domain = 0, of_maps = 0;
    int thread = 0;
    uint64_t nanos = 0, more = 0, between;
    struct timespec first, now;
    pthread_t stalled;
    lw_rcu_domain *domain = lw_rcu_domain_create();
    CHECK(!lw_rcu_stall(NULL, &thread, &nanos) && thread == 0 && nanos == 0);
    lw_rcu_on_stall(NULL, 0, never, NULL);
    lw_rcu_on_stall(NULL, 1000000, count, &of_process);
    CHECK(pthread_create(&stalled, NULL, stay, NULL) == 0);
    while (!__atomic_load_n(&reader, __ATOMIC_ACQUIRE)) {
        pause_for(1);
    }

    /* Grace periods of lw_rcu_poll. */
    uint64_t number = lw_rcu_start_poll();
    while (of(&of_process) < 2) {
        CHECK(!lw_rcu_poll(number));
        pause_for(1);
    }
    CHECK(lw_rcu_stall(NULL, &thread, &nanos) && thread == reader && nanos >= 1000000);
    pause_for(1);
    CHECK(lw_rcu_stall(NULL, &thread, &more) && more > nanos);
    clock_gettime(CLOCK_MONOTONIC, &first);
    CHECK(!lw_rcu_stall(domain, &thread, &nanos));

    /* Those of the default domain, and of the maps. */
    lw_rcu_on_stall(NULL, 1000000, NULL, NULL);
    lw_rcu_on_stall(lw_rcu_default_domain(), 1000000, count, &of_domain);
    for (long before = of(&of_process); of(&of_domain) == 0; pause_for(1)) {
        retire(NULL, 512);
        CHECK(!lw_rcu_poll(number) && of(&of_process) == before);
    }
    /* Of these two stalls, the program is told of the longer one. */
    clock_gettime(CLOCK_MONOTONIC, &now);
    between = (now.tv_sec - first.tv_sec) * 1000000000 + (now.tv_nsec - first.tv_nsec);
    CHECK(lw_rcu_stall(NULL, &thread, &nanos) && nanos >= more + between);
    lw_rcu_on_stall(NULL, 1000000, count, &of_maps);
    map = lw_rcu_map_create(NULL, NULL, NULL);
    while (of(&of_maps) == 0) {
        CHECK(lw_rcu_map_set(map, &value, &value) == 0);
    }

    /* A domain of the program's own has no limit, until one is set. Then a thread waits once. */
    of_domain = 0;
    lw_rcu_on_stall(domain, 0, count, &of_domain);
    retire(domain, 2000);
    CHECK(of(&of_domain) == 0);
    lw_rcu_set_limit(domain, 100, UINT64_MAX, 300000000);
    CHECK(retire(domain, 2000) >= 300 && of(&of_domain) == 1);
    while (retire(domain, 2000) >= 300) { /* not this wait, but a machine that stalls, may take as long */
    }
    CHECK(of(&of_domain) == 1);
    CHECK(lw_rcu_stall(domain, &thread, &nanos) && thread == reader);
    lw_rcu_set_limit(domain, 100, UINT64_MAX, 0);

    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(stalled, NULL) == 0);
    lw_rcu_on_stall(NULL, 0, NULL, NULL);
    lw_rcu_map_destroy(map);
    lw_rcu_domain_destroy(domain);
    lw_rcu_barrier(NULL);
    while (!lw_rcu_poll(number)) {
    }
    CHECK(!lw_rcu_stall(NULL, &thread, &nanos));
    puts("ok");
    return 0;
}
