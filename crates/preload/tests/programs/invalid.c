/* Calls with a clock or a time that is none, for objects that no thread holds. Each fails as glibc's does, and leaves the object alone. */
#include "check.h"
#include <semaphore.h>

static int value(sem_t *s)
{
    int value;
    OK(sem_getvalue(s, &value));
    return value;
}

static void *end_holding(void *m)
{
    OK(pthread_mutex_lock(m));
    return NULL;
}

/* A robust mutex that inherits priorities, whose holder has ended: there the time comes first. */
static void owner_has_ended(const struct timespec *bad)
{
    pthread_mutex_t m;
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutex_init(&m, &attr));
    join(start(end_holding, &m));
    EQ(pthread_mutex_timedlock(&m, bad), EINVAL);
    EQ(pthread_mutex_clocklock(&m, CLOCK_REALTIME, bad), EINVAL);
    /* The kernel refuses this one. */
    struct timespec ancient = { -1, 0 };
    EQ(pthread_mutex_timedlock(&m, &ancient), EINVAL);
    EQ(pthread_mutex_lock(&m), EOWNERDEAD);
    OK(pthread_mutex_consistent(&m));
    OK(pthread_mutex_unlock(&m));
}

int main(void)
{
    struct timespec good = in_ms(CLOCK_REALTIME, 1000), bad = { 1, 2000000000 };
    sem_t s;
    OK(sem_init(&s, 0, 5));
    for (int call = 0; call < 3; call++) {
        errno = 0;
        EQ(call == 0   ? sem_timedwait(&s, &bad)
           : call == 1 ? sem_clockwait(&s, CLOCK_MONOTONIC, &bad)
                       : sem_clockwait(&s, CLOCK_BOOTTIME, &good),
           -1);
        EQ(errno, EINVAL);
        EQ(value(&s), 5);
    }
    OK(sem_timedwait(&s, &good));
    OK(sem_clockwait(&s, CLOCK_MONOTONIC, &good));
    EQ(value(&s), 3);

    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    EQ(pthread_mutex_clocklock(&m, CLOCK_BOOTTIME, &good), EINVAL);
    OK(pthread_mutex_trylock(&m));
    EQ(pthread_mutex_clocklock(&m, CLOCK_BOOTTIME, &good), EINVAL);
    EQ(pthread_mutex_timedlock(&m, &bad), EINVAL);
    OK(pthread_mutex_unlock(&m));
    /* glibc looks at the time only when it has to wait. */
    OK(pthread_mutex_timedlock(&m, &bad));
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &bad));
    OK(pthread_mutex_unlock(&m));

    owner_has_ended(&bad);

    pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    EQ(pthread_rwlock_clockrdlock(&l, CLOCK_BOOTTIME, &good), EINVAL);
    EQ(pthread_rwlock_clockwrlock(&l, CLOCK_BOOTTIME, &good), EINVAL);
    EQ(pthread_rwlock_timedrdlock(&l, &bad), EINVAL);
    EQ(pthread_rwlock_timedwrlock(&l, &bad), EINVAL);
    OK(pthread_rwlock_trywrlock(&l));
    OK(pthread_rwlock_unlock(&l));

    pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    OK(pthread_mutex_lock(&m));
    EQ(pthread_cond_clockwait(&c, &m, CLOCK_BOOTTIME, &good), EINVAL);
    EQ(pthread_cond_timedwait(&c, &m, &bad), EINVAL);
    EQ(pthread_mutex_trylock(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    puts("ok");
    return 0;
}
