/* Calls with a clock or a time that is none, for objects that are free. Each fails as glibc's does, and leaves the object alone. */
#include "check.h"
#include <semaphore.h>

static int value(sem_t *s)
{
    int value;
    OK(sem_getvalue(s, &value));
    return value;
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
