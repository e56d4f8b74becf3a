/* A program with four hot locks of different natures, for `latchwork tune`: a job of four stages, each of which has a fixed amount
   of work and threads of its own. What counts is how long the job takes.

     ids      a mutex with sections of a few nanoseconds: two threads take numbers
     table    a reader-writer lock, 99.9% reads: two threads look up entries
     totals   a mutex with sections of about 300 ns: 8 threads add up. 8 others have as much to compute, without the lock: more threads
              are ready to run than there are processors, and a processor on which a waiter spins is one that they lack
     journal  a mutex that a writer thread holds while it writes a page, asleep. It begins the next page as soon as it has written
              one. Six threads serve requests meanwhile: each computes, adds a line to the journal, and waits for its client

     cc -O2 -g -pthread natures.c -o natures && ./natures [SCALE [STAGE]]     SCALE: 1 for 0.1 s or so a stage */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENTRIES = 64, CROWD = 16, SERVERS = 6 };
/* Turns of an empty loop: of a section of `totals`, and of what a thread computes after it. */
enum { SECTION = 1000, BETWEEN = 1000 };
/* Microseconds: to write a page, and until the client sends its next request. Turns of an empty loop: to serve it. */
enum { PAGE = 400, CLIENT = 100, REQUEST = 60000 };

static pthread_mutex_t ids = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t totals = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t journal = PTHREAD_MUTEX_INITIALIZER;

static volatile int served;
static long next_id, entries[ENTRIES], total, lines, pages;

static void work(int turns)
{
    for (int turn = 0; turn < turns; turn++)
        __asm__ volatile("");
}

static void sleep_for(int microseconds)
{
    struct timespec time = {0, microseconds * 1000L};
    nanosleep(&time, NULL);
}

static void *take_ids(void *count)
{
    for (long left = (long)count; left > 0; left--) {
        pthread_mutex_lock(&ids);
        next_id++;
        pthread_mutex_unlock(&ids);
        work(30);
    }
    return NULL;
}

static void *look_up(void *count)
{
    unsigned random = 1;
    long sum = 0;
    for (long left = (long)count; left > 0; left--) {
        random = random * 1664525 + 1013904223;
        if (random >> 16 < 65) {
            pthread_rwlock_wrlock(&table);
            entries[random % ENTRIES]++;
        } else {
            pthread_rwlock_rdlock(&table);
            sum += entries[random % ENTRIES];
        }
        pthread_rwlock_unlock(&table);
    }
    return (void *)sum;
}

static void *add_up(void *count)
{
    for (long left = (long)count; left > 0; left--) {
        pthread_mutex_lock(&totals);
        total++;
        work(SECTION);
        pthread_mutex_unlock(&totals);
        work(BETWEEN);
    }
    return NULL;
}

/* As much work as a thread of `add_up` has, without the lock. */
static void *compute(void *count)
{
    for (long left = (long)count; left > 0; left--)
        work(SECTION + BETWEEN);
    return NULL;
}

static void *serve(void *count)
{
    for (long left = (long)count; left > 0; left--) {
        work(REQUEST);
        pthread_mutex_lock(&journal);
        lines++;
        pthread_mutex_unlock(&journal);
        sleep_for(CLIENT);
    }
    return NULL;
}

static void *write_pages(void *nothing)
{
    while (!served) {
        pthread_mutex_lock(&journal);
        sleep_for(PAGE);
        pages++;
        pthread_mutex_unlock(&journal);
    }
    return nothing;
}

static const struct {
    const char *name;
    void *(*body)(void *);
    void *(*other)(void *); /* What every second thread does; null if all do the same. */
    int threads;
    long count;
} stages[] = {
    {"ids", take_ids, NULL, 2, 2000000},
    {"table", look_up, NULL, 2, 2000000},
    {"totals", add_up, compute, CROWD, 8000},
    {"journal", serve, NULL, SERVERS, 400},
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    double scale = argc > 1 ? atof(argv[1]) : 1, begin = now();
    for (int stage = 0; stage < 4; stage++) {
        served = 0;
        if (argc > 2 && strcmp(argv[2], stages[stage].name) != 0)
            continue;
        double start = now();
        pthread_t writer, started[CROWD];
        int writes = stages[stage].body == serve;
        if (writes && pthread_create(&writer, NULL, write_pages, NULL) != 0)
            return 1;
        for (int thread = 0; thread < stages[stage].threads; thread++) {
            void *(*body)(void *) = thread % 2 && stages[stage].other ? stages[stage].other : stages[stage].body;
            if (pthread_create(&started[thread], NULL, body, (void *)(long)(scale * stages[stage].count)) != 0)
                return 1;
        }
        for (int thread = 0; thread < stages[stage].threads; thread++)
            pthread_join(started[thread], NULL);
        served = 1;
        if (writes)
            pthread_join(writer, NULL);
        printf("%s: %.3f s\n", stages[stage].name, now() - start);
    }
    printf("pages: %ld\ntotal: %.3f s\n", pages, now() - begin);
    return 0;
}
