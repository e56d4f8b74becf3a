/* A program with four hot locks of different natures, for `latchwork tune`:
     tiny      sections of a few nanoseconds: a counter
     sleeping  a background thread sleeps while it holds the lock, as one that writes to a disk does; others look in all the
               time. What counts is how often the background thread gets its turn
     table     a reader-writer lock, 99.9% reads
     crowd     sections of a microsecond, and many more threads than processors
   Each lock has threads of its own, which run for a quarter of SECONDS, alone: so no lock takes processors away from another
   one. The program prints the geometric mean of the four rates: a lock that is bad for one of the four costs as much as a
   lock that is bad for another.

     cc -O2 -g -pthread natures.c -o natures && ./natures [SECONDS [CROWD]] */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TINY = 2, SLEEPING = 1, LOOKING = 2, READERS = 2, CROWD = 16, MOST = 256 };

static pthread_mutex_t tiny = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t crowd = PTHREAD_MUTEX_INITIALIZER;

static volatile int stop;
static long counter, entries[64];
static struct {
    _Alignas(128) long done;
} rates[4][MOST];

static void work(int turns)
{
    for (int turn = 0; turn < turns; turn++)
        __asm__ volatile("");
}

static void *use_tiny(void *mine)
{
    for (; !stop; ++*(long *)mine) {
        pthread_mutex_lock(&tiny);
        counter++;
        pthread_mutex_unlock(&tiny);
        work(30);
    }
    return NULL;
}

static void *use_sleeping(void *mine)
{
    struct timespec nap = {0, 50000};
    for (; !stop; ++*(long *)mine) {
        pthread_mutex_lock(&sleeping);
        nanosleep(&nap, NULL);
        pthread_mutex_unlock(&sleeping);
        work(1000);
    }
    return NULL;
}

static void *look_in(void *nothing)
{
    while (!stop) {
        pthread_mutex_lock(&sleeping);
        work(100);
        pthread_mutex_unlock(&sleeping);
        work(100);
    }
    return nothing;
}

static void *use_table(void *mine)
{
    unsigned random = (unsigned)(size_t)mine;
    long sum = 0;
    for (; !stop; ++*(long *)mine) {
        random = random * 1664525 + 1013904223;
        if (random >> 16 < 65) {
            pthread_rwlock_wrlock(&table);
            entries[random % 64]++;
        } else {
            pthread_rwlock_rdlock(&table);
            sum += entries[random % 64];
        }
        pthread_rwlock_unlock(&table);
    }
    return (void *)sum;
}

static void *use_crowd(void *mine)
{
    for (; !stop; ++*(long *)mine) {
        pthread_mutex_lock(&crowd);
        work(2000);
        pthread_mutex_unlock(&crowd);
        work(2000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int threads[4] = {TINY, SLEEPING, READERS, argc > 2 ? atoi(argv[2]) : CROWD};
    void *(*bodies[4])(void *) = {use_tiny, use_sleeping, use_table, use_crowd};
    const char *names[4] = {"tiny", "sleeping", "table", "crowd"};
    struct timespec rest = {(time_t)(seconds / 4), (long)((seconds / 4 - (time_t)(seconds / 4)) * 1e9)};
    for (int kind = 0; kind < 4; kind++) {
        pthread_t started[MOST + LOOKING];
        int count = 0;
        stop = 0;
        while (kind == 1 && count < LOOKING)
            if (pthread_create(&started[count++], NULL, look_in, NULL) != 0)
                return 1;
        for (int thread = 0; thread < threads[kind] && thread < MOST; thread++)
            if (pthread_create(&started[count++], NULL, bodies[kind], &rates[kind][thread].done) != 0)
                return 1;
        nanosleep(&rest, NULL);
        stop = 1;
        while (count > 0)
            pthread_join(started[--count], NULL);
    }
    double product = 1;
    for (int kind = 0; kind < 4; kind++) {
        double rate = 0;
        for (int thread = 0; thread < threads[kind] && thread < MOST; thread++)
            rate += rates[kind][thread].done / (seconds / 4);
        printf("%s: %.0f/s\n", names[kind], rate);
        product *= pow(rate + 1, 0.25);
    }
    printf("mean: %.0f/s\n", product);
    return 0;
}
