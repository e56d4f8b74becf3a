/* Deadlocks, as the argument says: so many threads wait for each other's mutexes; `readers`: a thread waits to write until another one has
   read, which waits for the first one's mutex; `condition`: a thread waits for a condition with another mutex held, which the holder of the
   condition's mutex needs, after it has notified; `timed`: two threads wait for each other with a deadline, and one after the other gives up. */
#include "check.h"
#include <semaphore.h>
#include <time.h>

static pthread_mutex_t locks[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static sem_t holds, go;
static long threads;
static int readers, timed, condition;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int has_changed;

__attribute__((noinline)) static void take_first(long self)
{
    if (readers && self == 1)
        OK(pthread_rwlock_rdlock(&table));
    else
        OK(pthread_mutex_lock(&locks[self]));
}

__attribute__((noinline)) static void take_next(long self)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec = 0;
    time.tv_sec += 1;
    if (condition && self == 1)
        while (!has_changed)
            OK(pthread_cond_wait(&changed, &locks[0]));
    else if (timed)
        EQ(pthread_mutex_timedlock(&locks[(self + 1) % threads], &time), ETIMEDOUT);
    else if (readers && self == 0)
        OK(pthread_rwlock_wrlock(&table));
    else
        OK(pthread_mutex_lock(&locks[(self + 1) % threads]));
}

/* Waits for a condition with `locks[0]`, and has `locks[1]` meanwhile. */
static void *wait_for_condition(void *number)
{
    OK(pthread_mutex_lock(&locks[0]));
    take_first(1);
    sem_post(&holds);
    take_next(1);
    return number;
}

static void *change(void *number)
{
    take_first(0);
    has_changed = 1;
    OK(pthread_cond_signal(&changed));
    take_next(0);
    return number;
}

static void *body(void *number)
{
    long self = (long)number;
    take_first(self);
    sem_post(&holds);
    sem_wait(&go);
    take_next(self);
    sem_post(&holds);
    sem_wait(&go);
    OK(pthread_mutex_unlock(&locks[self]));
    return number;
}

int main(int count, char **arguments)
{
    pthread_t all[3];
    CHECK(count > 1);
    readers = !strcmp(arguments[1], "readers");
    timed = !strcmp(arguments[1], "timed");
    condition = !strcmp(arguments[1], "condition");
    threads = readers || timed || condition ? 2 : atoi(arguments[1]);
    sem_init(&holds, 0, 0);
    sem_init(&go, 0, 0);
    if (condition) {
        all[1] = start(wait_for_condition, NULL);
        sem_wait(&holds);
        join(start(change, NULL));
    }
    for (long i = 0; i < threads; i++)
        pthread_create(&all[i], 0, body, (void *)i);
    for (int step = 0; step < 2; step++) {
        for (long i = 0; i < threads; i++)
            sem_wait(&holds);
        for (long i = 0; i < threads; i++)
            sem_post(&go);
    }
    for (long i = 0; i < threads; i++)
        pthread_join(all[i], 0);
    return 0;
}
