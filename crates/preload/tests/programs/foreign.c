/* The objects that the library leaves to glibc: process-shared, robust, priority-inheriting and -protected ones. */
#include "check.h"
#include <sys/mman.h>

struct shared {
    pthread_mutex_t mutex;
    pthread_mutex_t robust;
    pthread_cond_t cond;
    pthread_rwlock_t rwlock;
    int counter, written, turn;
};

static void *die_holding(void *m)
{
    OK(pthread_mutex_lock(m));
    return NULL;
}

static void *cannot_recover(void *m)
{
    EQ(pthread_mutex_lock(m), ENOTRECOVERABLE);
    return NULL;
}

static void robust(pthread_mutex_t *m)
{
    join(start(die_holding, m));
    EQ(pthread_mutex_lock(m), EOWNERDEAD);
    OK(pthread_mutex_consistent(m));
    OK(pthread_mutex_unlock(m));
    join(start(die_holding, m));
    EQ(pthread_mutex_trylock(m), EOWNERDEAD);
    OK(pthread_mutex_unlock(m)); /* not made consistent */
    EQ(pthread_mutex_lock(m), ENOTRECOVERABLE);
    EQ(pthread_mutex_unlock(m), EPERM);
    join(start(cannot_recover, m));
    OK(pthread_mutex_destroy(m));
}

/* Ours, used together with objects of glibc's. */
static pthread_cond_t private_cond = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t private_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t *wake_which;
static int woken;
static void *wake(void *m)
{
    OK(pthread_mutex_lock(m));
    woken = 1;
    OK(pthread_cond_signal(wake_which));
    OK(pthread_mutex_unlock(m));
    return NULL;
}

/* A condition variable and a mutex of which one is glibc's and the other is not. */
static void mixed(pthread_cond_t *c, pthread_mutex_t *m)
{
    struct timespec t = in_ms(CLOCK_REALTIME, 30), bad = { 0, 1000000000 };
    int error;
    OK(pthread_mutex_lock(m));
    while ((error = pthread_cond_timedwait(c, m, &t)) == 0)
        ;
    EQ(error, ETIMEDOUT);
    EQ(pthread_cond_timedwait(c, m, &bad), EINVAL);
    woken = 0;
    wake_which = c;
    pthread_t thread = start(wake, m);
    while (!woken)
        OK(pthread_cond_wait(c, m));
    OK(pthread_mutex_unlock(m));
    join(thread);
}

static void unlock(void *m) { pthread_mutex_unlock(m); }
static void *wait_for_ever(void *c)
{
    OK(pthread_mutex_lock(&private_mutex));
    pthread_cleanup_push(unlock, &private_mutex);
    for (;;)
        OK(pthread_cond_wait(c, &private_mutex));
    pthread_cleanup_pop(0);
    return NULL;
}

/* A waiter on a condition variable of ours whose mutex's owner died. */
static void *hold_and_die(void *m)
{
    OK(pthread_mutex_lock(m));
    OK(pthread_cond_signal(&private_cond));
    return NULL;
}

/* The same, whose time has passed while the owner held it. */
static void *hold_until_and_die(void *m)
{
    OK(pthread_mutex_lock(m));
    sleep_ms(100);
    return NULL;
}
static void dies_after_the_time(pthread_mutex_t *m)
{
    int error = 0;
    /* On a busy machine the time may pass before the other thread has the mutex. Then once more. */
    for (int ms = 50; ms < 30000 && error != EOWNERDEAD; ms *= 2) {
        OK(pthread_mutex_lock(m));
        struct timespec t = in_ms(CLOCK_REALTIME, ms);
        pthread_t dying = start(hold_until_and_die, m);
        error = pthread_cond_timedwait(&private_cond, m, &t);
        if (error == EOWNERDEAD)
            OK(pthread_mutex_consistent(m));
        else
            EQ(error, ETIMEDOUT);
        OK(pthread_mutex_unlock(m));
        join(dying);
        if (error == ETIMEDOUT) {
            EQ(pthread_mutex_lock(m), EOWNERDEAD);
            OK(pthread_mutex_consistent(m));
            OK(pthread_mutex_unlock(m));
        }
    }
    EQ(error, EOWNERDEAD);
}

/* Its times are on the clock that the call says. */
static void clocks(pthread_mutex_t *m)
{
    struct timespec t = in_ms(CLOCK_MONOTONIC, 20);
    OK(pthread_mutex_lock(m));
    EQ(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, t));
    OK(pthread_mutex_unlock(m));
}

int main(void)
{
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;
    pthread_rwlockattr_t ra;
    pthread_mutex_t m;
    CHECK(s != MAP_FAILED);

    OK(pthread_mutexattr_init(&ma));
    OK(pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutex_init(&s->mutex, &ma));
    OK(pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutex_init(&s->robust, &ma));
    OK(pthread_condattr_init(&ca));
    OK(pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
    OK(pthread_cond_init(&s->cond, &ca));
    OK(pthread_rwlockattr_init(&ra));
    OK(pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED));
    OK(pthread_rwlock_init(&s->rwlock, &ra));

    /* Two processes exclude and wake each other. */
    pid_t pid = fork();
    for (int i = 0; i < 1000; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        while (s->turn != (pid == 0))
            OK(pthread_cond_wait(&s->cond, &s->mutex));
        s->turn = !s->turn;
        s->counter++;
        OK(pthread_cond_signal(&s->cond));
        OK(pthread_mutex_unlock(&s->mutex));
    }
    for (int i = 0; i < 1000; i++) {
        OK(pthread_rwlock_wrlock(&s->rwlock));
        s->written++;
        OK(pthread_rwlock_unlock(&s->rwlock));
        OK(pthread_rwlock_rdlock(&s->rwlock));
        OK(pthread_rwlock_unlock(&s->rwlock));
    }
    if (pid == 0)
        _exit(0);
    reap(pid);
    EQ(s->counter, 2000);
    EQ(s->written, 2000);

    /* A process dies and the other notices. */
    pid = fork();
    if (pid == 0) {
        OK(pthread_mutex_lock(&s->robust));
        _exit(0);
    }
    reap(pid);
    EQ(pthread_mutex_lock(&s->robust), EOWNERDEAD);
    OK(pthread_mutex_consistent(&s->robust));
    OK(pthread_mutex_unlock(&s->robust));

    OK(pthread_mutexattr_init(&ma));
    OK(pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutex_init(&m, &ma));
    robust(&m);

    OK(pthread_mutex_init(&m, &ma));
    OK(pthread_mutex_lock(&m));
    pthread_t dying = start(hold_and_die, &m);
    EQ(pthread_cond_wait(&private_cond, &m), EOWNERDEAD);
    join(dying);
    OK(pthread_mutex_consistent(&m));
    OK(pthread_mutex_unlock(&m));
    dies_after_the_time(&m);

    OK(pthread_mutexattr_init(&ma));
    OK(pthread_mutexattr_setprotocol(&ma, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutex_init(&m, &ma));
    OK(pthread_mutex_lock(&m));
    EQ(pthread_mutex_trylock(&m), EBUSY);
    struct timespec t = in_ms(CLOCK_REALTIME, 10);
    EQ(pthread_mutex_timedlock(&m, &t), ETIMEDOUT);
    OK(pthread_mutex_unlock(&m));
    mixed(&private_cond, &m);
    OK(pthread_mutex_destroy(&m));

    OK(pthread_mutexattr_setprotocol(&ma, PTHREAD_PRIO_PROTECT));
    OK(pthread_mutex_init(&m, &ma));
    int ceiling = -1;
    OK(pthread_mutex_getprioceiling(&m, &ceiling));
    CHECK(ceiling > 0);
    OK(pthread_mutex_destroy(&m));

    mixed(&s->cond, &private_mutex);
    mixed(&s->cond, &s->mutex);
    mixed(&private_cond, &s->mutex);
    clocks(&s->mutex);
    pthread_t thread = start(wait_for_ever, &s->cond);
    sleep_ms(15);
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED);
    OK(pthread_mutex_trylock(&private_mutex));
    OK(pthread_mutex_unlock(&private_mutex));

    /* The same bytes, made again as an ordinary mutex. */
    OK(pthread_mutex_init(&m, NULL));
    OK(pthread_mutex_lock(&m));
    EQ(pthread_mutex_trylock(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_destroy(&m));
    OK(pthread_cond_destroy(&s->cond));
    OK(pthread_rwlock_destroy(&s->rwlock));
    OK(pthread_mutex_destroy(&s->mutex));
    printf("ok\n");
    return 0;
}
