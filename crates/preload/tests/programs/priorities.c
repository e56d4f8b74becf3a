/* Threads of three real-time priorities on one processor: none waits awake for a thread that it keeps from running.
   They nap in and between sections, so that they preempt each other anywhere in a lock call.

   glibc's own rwlock (2.36) does not keep this: a writer spins in pthread_rwlock_wrlock until a reader has made its next
   step in pthread_rwlock_rdlock. So the rwlock is left out where glibc's serves the program, alone or below BRAVO. */
#include "check.h"
#include <sched.h>

#define THREADS 3
#define RUN_MS 25
/* If the threads have not ended so long after they should, they wait for ever. */
#define PATIENCE_MS 20000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long counter, written;
static volatile int stop;
static volatile int ended[THREADS];
static volatile long rounds[THREADS];
static long counted[THREADS], wrote[THREADS];

/* Whether no part of glibc's rwlock is used. */
static int without_glibc_s_rwlock(void)
{
    const char *name = getenv("LATCHWORK_RWLOCK");
    return name && !strstr(name, "glibc");
}

static void urgent(int priority)
{
    struct sched_param param = { .sched_priority = priority };
    OK(pthread_setschedparam(pthread_self(), SCHED_FIFO, &param));
}

static void pin_to_last_processor(void)
{
    cpu_set_t set;
    OK(sched_getaffinity(0, sizeof set, &set));
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &set))
        last--;
    CPU_ZERO(&set);
    CPU_SET(last, &set);
    OK(sched_setaffinity(0, sizeof set, &set));
}

/* One time in `n`. */
static void nap(unsigned *seed, int n)
{
    if (rand_r(seed) % n == 0) {
        struct timespec t = { 0, rand_r(seed) % 50000 };
        nanosleep(&t, NULL);
    }
}

static void *urgent_thread(void *argument)
{
    int place = (int)(long)argument;
    unsigned seed = 1 + place;
    int kinds = without_glibc_s_rwlock() ? 8 : 4;
    pin_to_last_processor();
    urgent(1 + place);
    /* Such a thread waits in slices. It is never cancelled. */
    if (place == THREADS - 1)
        OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    while (!stop) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        int kind = rand_r(&seed) % kinds;
        if (kind < 4) {
            int result = kind == 0 ? pthread_mutex_timedlock(&mutex, &soon) : pthread_mutex_lock(&mutex);
            if (result == 0) {
                counter++;
                counted[place]++;
                nap(&seed, 4);
                if (kind == 1) {
                    OK(pthread_cond_signal(&cond));
                    result = pthread_cond_timedwait(&cond, &mutex, &soon);
                    CHECK(result == 0 || result == ETIMEDOUT);
                }
                OK(pthread_mutex_unlock(&mutex));
            } else {
                EQ(result, ETIMEDOUT);
            }
        } else if (kind < 6) {
            int result = kind == 4 ? pthread_rwlock_timedrdlock(&rwlock, &soon) : pthread_rwlock_rdlock(&rwlock);
            if (result == 0) {
                nap(&seed, 4);
                OK(pthread_rwlock_unlock(&rwlock));
            } else {
                EQ(result, ETIMEDOUT);
            }
        } else {
            int result = kind == 6 ? pthread_rwlock_timedwrlock(&rwlock, &soon) : pthread_rwlock_wrlock(&rwlock);
            if (result == 0) {
                written++;
                wrote[place]++;
                nap(&seed, 4);
                OK(pthread_rwlock_unlock(&rwlock));
            } else {
                EQ(result, ETIMEDOUT);
            }
        }
        rounds[place]++;
        /* The lowest fills the time in which the others sleep. */
        nap(&seed, place == 0 ? 8 : 2);
    }
    ended[place] = 1;
    return NULL;
}

/* A waiting writer with a real-time policy keeps no reader out while a reader is inside. */
static void *write_once(void *unused)
{
    urgent(1);
    rounds[0] = 1;
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    return unused;
}
static void *read_beside(void *unused)
{
    for (int i = 0; i < 40; i++) {
        OK(pthread_rwlock_tryrdlock(&rwlock));
        OK(pthread_rwlock_unlock(&rwlock));
        sleep_ms(1);
    }
    return unused;
}
static void an_urgent_writer(void)
{
    OK(pthread_rwlock_rdlock(&rwlock));
    pthread_t writer = start(write_once, NULL);
    while (rounds[0] == 0)
        sleep_ms(1);
    join(start(read_beside, NULL));
    OK(pthread_rwlock_unlock(&rwlock));
    join(writer);
    rounds[0] = 0;
}

int main(void)
{
    pthread_t threads[THREADS];
    urgent(10);
    an_urgent_writer();
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(urgent_thread, (void *)(long)i);
    sleep_ms(RUN_MS);
    stop = 1;
    for (long waited = 0; !(ended[0] && ended[1] && ended[2]); waited++) {
        if (waited == PATIENCE_MS) {
            fprintf(stderr, "a livelock, after %ld, %ld and %ld rounds; by rising priority, ended: %d, %d, %d\n",
                    rounds[0], rounds[1], rounds[2], ended[0], ended[1], ended[2]);
            _exit(1);
        }
        sleep_ms(1);
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    EQ(counter, counted[0] + counted[1] + counted[2]);
    EQ(written, wrote[0] + wrote[1] + wrote[2]);
    printf("ok\n");
    return 0;
}
