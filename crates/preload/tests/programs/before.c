/* Objects of every kind that glibc has served before latchwork's library was set up: functions in .preinit_array run before
   the C library knows the environment. When main begins, some objects are free again, some are held, and some have waiters. */
#include "check.h"
#include <semaphore.h>
#include <threads.h>

static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, was_read = PTHREAD_RWLOCK_INITIALIZER,
                        held_to_write = PTHREAD_RWLOCK_INITIALIZER, held_to_read = PTHREAD_RWLOCK_INITIALIZER,
                        waited_to_write = PTHREAD_RWLOCK_INITIALIZER, waited_to_read = PTHREAD_RWLOCK_INITIALIZER,
                        made_rwlock;
static pthread_mutex_t released = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER,
                       waited_for = PTHREAD_MUTEX_INITIALIZER, beside = PTHREAD_MUTEX_INITIALIZER,
                       late = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                       checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, made;
static pthread_cond_t timed_out = PTHREAD_COND_INITIALIZER, notified = PTHREAD_COND_INITIALIZER,
                      awaited = PTHREAD_COND_INITIALIZER, monotonic;
static pthread_spinlock_t spin;
static sem_t units;
static mtx_t standard;
static cnd_t standard_condition;

enum { WAITERS = 5 };
static pthread_t waiters[WAITERS];
static int woken, is_due;

static void *lock_mutex(void *argument)
{
    OK(pthread_mutex_lock(&waited_for));
    woken++;
    OK(pthread_mutex_unlock(&waited_for));
    return argument;
}
static void *lock_to_write(void *argument)
{
    OK(pthread_rwlock_wrlock(&waited_to_write));
    woken++;
    OK(pthread_rwlock_unlock(&waited_to_write));
    return argument;
}
static void *lock_to_read(void *argument)
{
    OK(pthread_rwlock_rdlock(&waited_to_read));
    woken++;
    OK(pthread_rwlock_unlock(&waited_to_read));
    return argument;
}
static void *wait_for_notification(void *argument)
{
    OK(pthread_mutex_lock(&beside));
    while (!is_due)
        OK(pthread_cond_wait(&awaited, &beside));
    woken++;
    OK(pthread_mutex_unlock(&beside));
    return argument;
}
static void *wait_for_unit(void *argument)
{
    OK(sem_wait(&units));
    woken++;
    return argument;
}
static void *(*const waits[WAITERS])(void *) = { lock_mutex, lock_to_write, lock_to_read, wait_for_notification,
                                                 wait_for_unit };

static void first(void)
{
    struct timespec past = { 1, 0 };
    pthread_condattr_t attr;

    OK(pthread_rwlock_wrlock(&written));
    OK(pthread_rwlock_unlock(&written));
    OK(pthread_rwlock_rdlock(&was_read));
    OK(pthread_rwlock_unlock(&was_read));
    OK(pthread_rwlock_wrlock(&held_to_write));
    OK(pthread_rwlock_tryrdlock(&held_to_read));
    OK(pthread_rwlock_rdlock(&waited_to_write));
    OK(pthread_rwlock_trywrlock(&waited_to_read));
    OK(pthread_rwlock_init(&made_rwlock, NULL));

    OK(pthread_mutex_lock(&released));
    OK(pthread_cond_signal(&notified));
    EQ(pthread_cond_timedwait(&timed_out, &released, &past), ETIMEDOUT);
    OK(pthread_mutex_unlock(&released));
    OK(pthread_mutex_lock(&held));
    OK(pthread_mutex_trylock(&waited_for));
    OK(pthread_mutex_lock(&recursive));
    OK(pthread_mutex_lock(&recursive));
    OK(pthread_mutex_lock(&checking));
    OK(pthread_mutex_init(&made, NULL));

    OK(pthread_condattr_init(&attr));
    OK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    OK(pthread_cond_init(&monotonic, &attr));
    OK(pthread_condattr_destroy(&attr));

    OK(pthread_spin_init(&spin, 0));
    OK(pthread_spin_lock(&spin));
    OK(sem_init(&units, 0, 0));

    EQ(mtx_init(&standard, mtx_plain), thrd_success);
    EQ(cnd_init(&standard_condition), thrd_success);
    EQ(mtx_lock(&standard), thrd_success);
    EQ(cnd_timedwait(&standard_condition, &standard, &past), thrd_timedout);

    for (int i = 0; i < WAITERS; i++)
        waiters[i] = start(waits[i], NULL);
    sleep_ms(20); /* until they wait, most probably */
}
__attribute__((section(".preinit_array"), used)) static void (*const first_of_all)(void) = first;

/* What another thread's attempts return. */
struct attempts {
    pthread_rwlock_t *rwlock;
    pthread_mutex_t *mutex;
    int read, write, lock;
};
static void *attempt(void *argument)
{
    struct attempts *a = argument;
    if (a->mutex) {
        if ((a->lock = pthread_mutex_trylock(a->mutex)) == 0)
            OK(pthread_mutex_unlock(a->mutex));
        return NULL;
    }
    if ((a->read = pthread_rwlock_tryrdlock(a->rwlock)) == 0)
        OK(pthread_rwlock_unlock(a->rwlock));
    if ((a->write = pthread_rwlock_trywrlock(a->rwlock)) == 0)
        OK(pthread_rwlock_unlock(a->rwlock));
    return NULL;
}
static void expect_rwlock(pthread_rwlock_t *l, int read, int write)
{
    struct attempts attempts = { .rwlock = l };
    join(start(attempt, &attempts));
    EQ(attempts.read, read);
    EQ(attempts.write, write);
}
static void expect_mutex(pthread_mutex_t *m, int error)
{
    struct attempts attempts = { .mutex = m };
    join(start(attempt, &attempts));
    EQ(attempts.lock, error);
}

static void use_rwlock(pthread_rwlock_t *l)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 20000);
    OK(pthread_rwlock_tryrdlock(l));
    OK(pthread_rwlock_timedrdlock(l, &soon));
    expect_rwlock(l, 0, EBUSY);
    OK(pthread_rwlock_unlock(l));
    OK(pthread_rwlock_unlock(l));
    OK(pthread_rwlock_wrlock(l));
    expect_rwlock(l, EBUSY, EBUSY);
    EQ(pthread_rwlock_rdlock(l), EDEADLK);
    OK(pthread_rwlock_unlock(l));
    OK(pthread_rwlock_timedwrlock(l, &soon));
    OK(pthread_rwlock_unlock(l));
    expect_rwlock(l, 0, 0);
}

static void use_mutex(pthread_mutex_t *m)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 20000);
    OK(pthread_mutex_timedlock(m, &soon));
    expect_mutex(m, EBUSY);
    OK(pthread_mutex_unlock(m));
    expect_mutex(m, 0);
}

struct meeting {
    pthread_cond_t *condition;
    pthread_mutex_t *mutex;
    int is_there, may_go;
};
static void *meet(void *argument)
{
    struct meeting *meeting = argument;
    OK(pthread_mutex_lock(meeting->mutex));
    meeting->is_there = 1;
    OK(pthread_cond_broadcast(meeting->condition));
    while (!meeting->may_go)
        OK(pthread_cond_wait(meeting->condition, meeting->mutex));
    OK(pthread_mutex_unlock(meeting->mutex));
    return NULL;
}
static void use_condition(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    struct meeting meeting = { condition, mutex, 0, 0 };
    OK(pthread_mutex_lock(mutex));
    pthread_t other = start(meet, &meeting);
    while (!meeting.is_there)
        OK(pthread_cond_wait(condition, mutex));
    meeting.may_go = 1;
    OK(pthread_cond_signal(condition));
    OK(pthread_mutex_unlock(mutex));
    join(other);
}

static void use_all(void)
{
    pthread_rwlock_t *rwlocks[] = { &written, &was_read, &held_to_write, &held_to_read,
                                    &waited_to_write, &waited_to_read, &made_rwlock };
    pthread_mutex_t *mutexes[] = { &released, &held, &waited_for, &beside, &late, &recursive,
                                   &checking, &made, (pthread_mutex_t *)&standard };
    pthread_cond_t *conditions[] = { &timed_out, &notified, &awaited, &monotonic,
                                     (pthread_cond_t *)&standard_condition };
    for (unsigned i = 0; i < sizeof rwlocks / sizeof *rwlocks; i++)
        use_rwlock(rwlocks[i]);
    for (unsigned i = 0; i < sizeof mutexes / sizeof *mutexes; i++)
        use_mutex(mutexes[i]);
    for (unsigned i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        use_condition(conditions[i], &released); /* with a mutex that is glibc's from the start, and with one that is not */
        use_condition(conditions[i], &late);
    }
    /* Its times are on the clock with which it was made. */
    struct timespec end = in_ms(CLOCK_MONOTONIC, 20);
    OK(pthread_mutex_lock(&late));
    int error;
    while ((error = pthread_cond_timedwait(&monotonic, &late, &end)) == 0)
        ;
    EQ(error, ETIMEDOUT);
    OK(pthread_mutex_unlock(&late));
    CHECK(has_passed(CLOCK_MONOTONIC, end));
    OK(pthread_spin_trylock(&spin));
    EQ(pthread_spin_trylock(&spin), EBUSY);
    OK(pthread_spin_unlock(&spin));
    OK(sem_post(&units));
    OK(sem_wait(&units));
    EQ(sem_trywait(&units), -1);
}

int main(void)
{
    alarm(240);
    expect_rwlock(&held_to_write, EBUSY, EBUSY);
    expect_rwlock(&held_to_read, 0, EBUSY);
    expect_mutex(&held, EBUSY);
    expect_mutex(&recursive, EBUSY);
    expect_mutex(&checking, EBUSY);
    EQ(pthread_mutex_lock(&checking), EDEADLK);
    OK(pthread_mutex_lock(&recursive));
    EQ(pthread_spin_trylock(&spin), EBUSY);
    EQ(mtx_trylock(&standard), thrd_busy);
    EQ(woken, 0);

    OK(pthread_rwlock_unlock(&held_to_write));
    OK(pthread_rwlock_unlock(&held_to_read));
    OK(pthread_mutex_unlock(&held));
    for (int i = 0; i < 3; i++)
        OK(pthread_mutex_unlock(&recursive));
    EQ(pthread_mutex_unlock(&recursive), EPERM);
    OK(pthread_mutex_unlock(&checking));
    OK(pthread_spin_unlock(&spin));
    EQ(mtx_unlock(&standard), thrd_success);

    /* One after another: `woken` is an ordinary variable. */
    OK(pthread_mutex_unlock(&waited_for));
    join(waiters[0]);
    OK(pthread_rwlock_unlock(&waited_to_write));
    join(waiters[1]);
    OK(pthread_rwlock_unlock(&waited_to_read));
    join(waiters[2]);
    OK(pthread_mutex_lock(&beside));
    is_due = 1;
    OK(pthread_cond_signal(&awaited));
    OK(pthread_mutex_unlock(&beside));
    join(waiters[3]);
    OK(sem_post(&units));
    join(waiters[4]);
    EQ(woken, WAITERS);

    use_all();
    pid_t child = fork();
    if (child == 0) {
        alarm(240);
        use_all();
        _exit(0);
    }
    reap(child);

    /* An object that is made anew is like any other. */
    OK(pthread_rwlock_destroy(&written));
    OK(pthread_rwlock_init(&written, NULL));
    OK(pthread_mutex_destroy(&released));
    OK(pthread_mutex_init(&released, NULL));
    OK(pthread_cond_destroy(&timed_out));
    OK(pthread_cond_init(&timed_out, NULL));
    use_all();
    puts("ok");
    return 0;
}
