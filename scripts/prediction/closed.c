/* Threads in a closed loop: each computes, takes a lock, computes with the lock held, and releases it.

   closed THREADS SECONDS HOLD THINK [READS [LOCKS]]: HOLD and THINK in turns of an empty loop, which take a third of a nanosecond
   or so; each is a random number from half to one and a half times as much. (The amount of work must not depend on a measurement of
   the processor's speed.) READS: of 100 acquisitions, so many are for reading; then it is a reader-writer lock.
   LOCKS: how many locks there are, of which each operation takes one at random. Prints operations a second. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 64 };

static struct { _Alignas(128) pthread_mutex_t mutex; pthread_rwlock_t rwlock; volatile long data; } locks[MOST];
static int reads = -1, lock_count = 1;
static double hold, think;
static volatile int over;
static struct { _Alignas(128) volatile long done; } threads_done[1024];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1dULL >> 32;
}

static uint64_t turns(uint64_t count, uint64_t state) {
    for (uint64_t i = 0; i < count; i++)
        __asm__ volatile("" : "+r"(state));
    return state;
}

static void compute(double wanted, uint64_t *random) {
    turns((uint64_t)(wanted * (0.5 + next(random) / 4294967296.0)), *random);
}

static void *worker(void *number) {
    uint64_t random = 88172645463325252ULL + (uintptr_t)number * 1000003;
    long done = 0;
    while (!over) {
        compute(think, &random);
        int lock = lock_count > 1 ? next(&random) % lock_count : 0;
        if (reads < 0) {
            pthread_mutex_lock(&locks[lock].mutex);
            compute(hold, &random);
            locks[lock].data++;
            pthread_mutex_unlock(&locks[lock].mutex);
        } else {
            int read = (int)(next(&random) % 100) < reads;
            if (read)
                pthread_rwlock_rdlock(&locks[lock].rwlock);
            else
                pthread_rwlock_wrlock(&locks[lock].rwlock);
            compute(hold, &random);
            if (!read)
                locks[lock].data++;
            pthread_rwlock_unlock(&locks[lock].rwlock);
        }
        threads_done[(uintptr_t)number].done = ++done;
    }
    return 0;
}

int main(int count, char **words) {
    if (count < 5)
        return fprintf(stderr, "closed THREADS SECONDS HOLD THINK [READS [LOCKS]]\n"), 2;
    int threads = atoi(words[1]);
    double seconds = atof(words[2]);
    hold = atof(words[3]);
    think = atof(words[4]);
    if (count > 5)
        reads = atoi(words[5]);
    if (count > 6)
        lock_count = atoi(words[6]);
    if (threads < 1 || threads > 1024 || lock_count < 1 || lock_count > MOST)
        return fprintf(stderr, "closed: 1 to 1024 threads, 1 to %d locks\n", MOST), 2;
    for (int i = 0; i < MOST; i++) {
        pthread_mutex_init(&locks[i].mutex, 0);
        pthread_rwlock_init(&locks[i].rwlock, 0);
    }
    pthread_t *made = calloc(threads, sizeof *made);
    double start = now();
    for (intptr_t i = 0; i < threads; i++)
        pthread_create(&made[i], 0, worker, (void *)i);
    struct timespec pause = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&pause, 0);
    over = 1;
    double took = now() - start;
    long done = 0;
    for (int i = 0; i < threads; i++)
        done += threads_done[i].done;
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], 0);
    printf("ops/s %.0f\n", done / took * 1e9);
    return 0;
}
