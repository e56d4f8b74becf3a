/* With LIBRARY: a library whose clock_gettime is not the kernel's clock, as those that shift a program's time have. CLOCK says
   how: "ahead" or "behind" by an hour, "jumps" from one to the other with each call, or "locks": the right time, under a mutex.
   Else a program with lock calls that wait. Its own times and deadlines are the kernel's, as glibc takes deadlines. */
#include "check.h"
#include <sched.h>
#include <sys/syscall.h>

#ifdef LIBRARY
int clock_gettime(clockid_t clock, struct timespec *time)
{
    static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
    static unsigned calls;
    const char *how = getenv("CLOCK");
    int result = syscall(SYS_clock_gettime, clock, time);
    unsigned call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (!how || result != 0)
        return result;
    if (!strcmp(how, "locks")) {
        pthread_mutex_lock(&counting);
        sched_yield(); /* other threads find the mutex held, and wait */
        pthread_mutex_unlock(&counting);
    } else {
        int ahead = !strcmp(how, "ahead") || (!strcmp(how, "jumps") && call % 2 == 0);
        time->tv_sec += ahead ? 3600 : -3600;
    }
    return result;
}
#else
#include <semaphore.h>
#include <sys/resource.h>

/* Far longer than anything here takes on a busy machine, and far shorter than the clock is wrong. */
#define LONG_MS 100000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long counter, written; /* under the mutex, and under the rwlock */

static struct timespec now(clockid_t clock)
{
    struct timespec time;
    OK(syscall(SYS_clock_gettime, clock, &time));
    return time;
}

static long ms_since(clockid_t clock, struct timespec begin)
{
    struct timespec end = now(clock);
    return (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
}

static void *contend(void *argument)
{
    for (int i = 0; i < 200; i++) {
        OK(pthread_mutex_lock(&mutex));
        counter++;
        if (i % 20 == 0)
            sleep_ms(1); /* the others go to sleep */
        OK(pthread_mutex_unlock(&mutex));
        if (i % 10 == 0) {
            OK(pthread_rwlock_wrlock(&rwlock));
            written++;
            OK(pthread_rwlock_unlock(&rwlock));
        }
        OK(pthread_rwlock_rdlock(&rwlock));
        OK(pthread_rwlock_unlock(&rwlock));
    }
    return argument;
}

/* A writer that waits for a reader neither sleeps too long nor keeps a processor busy. */
static void *write_behind_a_reader(void *argument)
{
    struct timespec begin = now(CLOCK_MONOTONIC), begin_cpu = now(CLOCK_THREAD_CPUTIME_ID);
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    CHECK(ms_since(CLOCK_MONOTONIC, begin) < LONG_MS);
    CHECK(ms_since(CLOCK_THREAD_CPUTIME_ID, begin_cpu) < 300);
    return argument;
}

/* A thread that may be cancelled at any time waits in slices. */
static void *wait_to_be_cancelled(void *argument)
{
    int type;
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type));
    pthread_mutex_lock(&mutex);
    CHECK(!"reached");
    return argument;
}

/* Each call fails after the time that it was given. */
static void *run_out_of_time(void *asynchronous)
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    sem_t semaphore;
    int type;
    OK(sem_init(&semaphore, 0, 0));
    OK(pthread_mutex_lock(&own));
    if (asynchronous)
        OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type));
    for (int call = 0; call < 8; call++) {
        clockid_t clock = call < 4 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        struct timespec begin = now(clock), end = begin;
        end.tv_nsec += 50000000;
        end.tv_sec += end.tv_nsec / 1000000000;
        end.tv_nsec %= 1000000000;
        switch (call) {
        case 0: EQ(pthread_mutex_timedlock(&mutex, &end), ETIMEDOUT); break;
        case 1: EQ(pthread_rwlock_timedwrlock(&rwlock, &end), ETIMEDOUT); break;
        case 2: EQ(pthread_cond_timedwait(&cond, &own, &end), ETIMEDOUT); break;
        case 3:
            EQ(sem_timedwait(&semaphore, &end), -1);
            EQ(errno, ETIMEDOUT);
            break;
        case 4: EQ(pthread_mutex_clocklock(&mutex, clock, &end), ETIMEDOUT); break;
        case 5: EQ(pthread_rwlock_clockwrlock(&rwlock, clock, &end), ETIMEDOUT); break;
        case 6: EQ(pthread_rwlock_clockrdlock(&rwlock, clock, &end), ETIMEDOUT); break;
        case 7: EQ(pthread_cond_clockwait(&cond, &own, clock, &end), ETIMEDOUT); break;
        }
        long took = ms_since(clock, begin);
        CHECK(took >= 50 && took < LONG_MS);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4], thread;
    for (int i = 0; i < 4; i++)
        threads[i] = start(contend, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    EQ(counter, 800);
    EQ(written, 80);

    OK(pthread_rwlock_rdlock(&rwlock));
    thread = start(write_behind_a_reader, NULL);
    sleep_ms(1000);
    OK(pthread_rwlock_unlock(&rwlock));
    join(thread);

    OK(pthread_mutex_lock(&mutex));
    thread = start(wait_to_be_cancelled, NULL);
    sleep_ms(50);
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED);

    OK(pthread_rwlock_wrlock(&rwlock));
    join(start(run_out_of_time, NULL));
    join(start(run_out_of_time, &mutex));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_mutex_unlock(&mutex));
    puts("ok");
    return 0;
}
#endif
