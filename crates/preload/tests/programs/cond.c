/* Condition variables: every way to wait, with every kind of mutex; cancellation. */
#include "check.h"
#include <signal.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

/* Ping-pong: each side waits for the other, many times. */
static int turn;
static void *pong(void *n)
{
    for (long i = 0; i < (long)n; i++) {
        OK(pthread_mutex_lock(&mutex));
        while (turn != 1)
            OK(pthread_cond_wait(&cond, &mutex));
        turn = 0;
        OK(pthread_cond_signal(&cond));
        OK(pthread_mutex_unlock(&mutex));
    }
    return NULL;
}

static void ping(long n)
{
    pthread_t thread = start(pong, (void *)n);
    for (long i = 0; i < n; i++) {
        OK(pthread_mutex_lock(&mutex));
        turn = 1;
        OK(pthread_cond_signal(&cond));
        while (turn != 0)
            OK(pthread_cond_wait(&cond, &mutex));
        OK(pthread_mutex_unlock(&mutex));
    }
    join(thread);
}

static void timed(void)
{
    pthread_cond_t c;
    pthread_condattr_t attr;
    struct timespec t, bad = { 1, 1000000000 }, past = { -1, 0 };

    OK(pthread_mutex_lock(&mutex));
    t = in_ms(CLOCK_REALTIME, 20);
    EQ(pthread_cond_timedwait(&cond, &mutex, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, t));
    EQ(pthread_mutex_trylock(&mutex), EBUSY); /* held again */
    t = in_ms(CLOCK_MONOTONIC, 20);
    EQ(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, t));
    t = in_ms(CLOCK_REALTIME, 20);
    EQ(pthread_cond_clockwait(&cond, &mutex, CLOCK_REALTIME, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, t));
    EQ(pthread_cond_clockwait(&cond, &mutex, CLOCK_PROCESS_CPUTIME_ID, &t), EINVAL);
    EQ(pthread_cond_timedwait(&cond, &mutex, &bad), EINVAL);
    EQ(pthread_cond_timedwait(&cond, &mutex, &past), ETIMEDOUT);

    OK(pthread_condattr_init(&attr));
    OK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    OK(pthread_cond_init(&c, &attr));
    t = in_ms(CLOCK_MONOTONIC, 20);
    EQ(pthread_cond_timedwait(&c, &mutex, &t), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, t));
    OK(pthread_cond_destroy(&c));
    OK(pthread_mutex_unlock(&mutex));
}

/* Broadcast reaches everybody; the condition variable is destroyed and freed at once after it. */
struct shared {
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    int waiting, go, left;
};
static void *wait_for_go(void *argument)
{
    struct shared *s = argument;
    OK(pthread_mutex_lock(s->mutex));
    s->waiting++;
    while (!s->go)
        OK(pthread_cond_wait(s->cond, s->mutex));
    s->left++;
    OK(pthread_mutex_unlock(s->mutex));
    return NULL;
}

static void broadcast(pthread_mutex_t *m)
{
    for (int round = 0; round < 10; round++) {
        pthread_t threads[8];
        struct shared s = { m, malloc(sizeof(pthread_cond_t)), 0, 0, 0 };
        OK(pthread_cond_init(s.cond, NULL));
        for (int i = 0; i < 8; i++)
            threads[i] = start(wait_for_go, &s);
        for (;;) {
            OK(pthread_mutex_lock(m));
            if (s.waiting == 8)
                break;
            OK(pthread_mutex_unlock(m));
            sleep_ms(1);
        }
        s.go = 1;
        OK(pthread_cond_broadcast(s.cond));
        OK(pthread_mutex_unlock(m));
        OK(pthread_cond_destroy(s.cond));
        memset(s.cond, 0xff, sizeof *s.cond);
        free(s.cond);
        for (int i = 0; i < 8; i++)
            join(threads[i]);
        EQ(s.left, 8);
    }
}

/* Producers and consumers: every signal is worth one item. */
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static int items;
static void *produce(void *n)
{
    for (long i = 0; i < (long)n; i++) {
        OK(pthread_mutex_lock(&mutex));
        while (items == 2)
            OK(pthread_cond_wait(&emptied, &mutex));
        items++;
        OK(pthread_mutex_unlock(&mutex));
        OK(pthread_cond_signal(&filled));
    }
    return NULL;
}
static void *consume(void *n)
{
    for (long i = 0; i < (long)n; i++) {
        OK(pthread_mutex_lock(&mutex));
        while (items == 0)
            OK(pthread_cond_wait(&filled, &mutex));
        items--;
        OK(pthread_cond_signal(&emptied));
        OK(pthread_mutex_unlock(&mutex));
    }
    return NULL;
}
static void pipeline(void)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        threads[i] = start(i % 2 ? produce : consume, (void *)500);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    EQ(items, 0);
}

/* A cancelled waiter runs its handlers with the mutex held. */
static int handler_ran, entered;
static void handler(void *m)
{
    handler_ran++;
    EQ(pthread_mutex_trylock(m), EBUSY);
    OK(pthread_mutex_unlock(m));
}
static void *wait_for_ever(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(handler, &mutex);
    entered++;
    for (;;) {
        struct timespec t = in_ms(CLOCK_REALTIME, 60000);
        if (argument)
            OK(pthread_cond_timedwait(&cond, &mutex, &t));
        else
            OK(pthread_cond_wait(&cond, &mutex));
    }
    pthread_cleanup_pop(0);
    return NULL;
}
static void cancelled(void *how)
{
    pthread_t thread;
    entered = handler_ran = 0;
    thread = start(wait_for_ever, how);
    for (;;) {
        OK(pthread_mutex_lock(&mutex));
        if (entered)
            break;
        OK(pthread_mutex_unlock(&mutex));
        sleep_ms(1);
    }
    OK(pthread_cancel(thread));
    sleep_ms(5);
    EQ(handler_ran, 0); /* it needs the mutex, which is ours */
    OK(pthread_mutex_unlock(&mutex));
    CHECK(join(thread) == PTHREAD_CANCELED);
    EQ(handler_ran, 1);
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
}

/* A request that is pending when the wait begins; and one that is disabled. */
static void *pending(void *argument)
{
    (void)argument;
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(handler, &mutex);
    pthread_cancel(pthread_self());
    pthread_cond_wait(&cond, &mutex);
    CHECK(!"reached");
    pthread_cleanup_pop(0);
    return NULL;
}
static void *disabled(void *argument)
{
    struct timespec t = in_ms(CLOCK_REALTIME, 20);
    int old;
    (void)argument;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    pthread_cancel(pthread_self());
    OK(pthread_mutex_lock(&mutex));
    EQ(pthread_cond_timedwait(&cond, &mutex, &t), ETIMEDOUT);
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old));
    EQ(old, PTHREAD_CANCEL_DEFERRED);
    return NULL;
}

/* No signal is lost when waiters are cancelled: of two waiters one is cancelled while one signal is
   under way; the other one must get it, or the cancelled one must have consumed it. */
static pthread_cond_t race = PTHREAD_COND_INITIALIZER;
static int tokens, taken, asleep;
static void unlock(void *m) { pthread_mutex_unlock(m); }
static void *take_token(void *argument)
{
    (void)argument;
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(unlock, &mutex);
    asleep++;
    while (tokens == 0)
        OK(pthread_cond_wait(&race, &mutex));
    tokens--;
    taken++;
    pthread_cleanup_pop(1);
    return NULL;
}
static void cancel_race(void)
{
    for (int i = 0; i < 200; i++) {
        pthread_t a, b;
        int done;
        tokens = taken = asleep = 0;
        a = start(take_token, NULL);
        b = start(take_token, NULL);
        for (;;) {
            OK(pthread_mutex_lock(&mutex));
            if (asleep == 2)
                break;
            OK(pthread_mutex_unlock(&mutex));
            sched_yield();
        }
        tokens = 1;
        if (i % 2)
            OK(pthread_cond_signal(&race));
        OK(pthread_mutex_unlock(&mutex));
        if (i % 2 == 0)
            OK(pthread_cond_signal(&race));
        OK(pthread_cancel(i % 4 < 2 ? a : b));
        join(i % 4 < 2 ? a : b);
        /* Its result does not say whether it took the token: glibc 2.36 calls a thread cancelled
           that has returned when the request arrives. */
        OK(pthread_mutex_lock(&mutex));
        done = taken;
        OK(pthread_mutex_unlock(&mutex));
        if (done)
            OK(pthread_cancel(i % 4 < 2 ? b : a));
        join(i % 4 < 2 ? b : a); /* hangs if the signal died with the first */
        EQ(taken, 1);
    }
}

/* A mutex with which a thread waits is in use, whoever serves it. */
static int ready;

static void *wait_with(void *m)
{
    OK(pthread_mutex_lock(m));
    ready = 1;
    while (ready != 2)
        OK(pthread_cond_wait(&cond, m));
    OK(pthread_mutex_unlock(m));
    return NULL;
}

static void destroyed_while_waited(pthread_mutex_t *m)
{
    for (int i = 0; i < 2; i++) {
        ready = 0;
        pthread_t thread = start(wait_with, m);
        for (int waits = 0; !waits;) {
            OK(pthread_mutex_lock(m));
            waits = ready;
            OK(pthread_mutex_unlock(m));
        }
        EQ(pthread_mutex_destroy(m), EBUSY);
        OK(pthread_mutex_lock(m));
        ready = 2;
        OK(pthread_cond_signal(&cond));
        OK(pthread_mutex_unlock(m));
        join(thread);
    }
    OK(pthread_mutex_destroy(m));
}

/* A signal for one waiter is no answer to the deadlines of the others. */
static struct timespec end;
static int waiting, late;
static void *until_the_end(void *unused)
{
    OK(pthread_mutex_lock(&mutex));
    waiting++;
    int result = pthread_cond_timedwait(&cond, &mutex, &end);
    CHECK(result == 0 || result == ETIMEDOUT);
    late += result == ETIMEDOUT;
    OK(pthread_mutex_unlock(&mutex));
    return unused;
}
static void the_others_time_out(void)
{
    pthread_t threads[3];
    /* On a busy machine the signal may come before a waiter sleeps, which then does not, or after all deadlines. Then once more. */
    for (int ms = 500; ms <= 10000 && late != 2; ms += 500) {
        waiting = late = 0;
        end = in_ms(CLOCK_REALTIME, ms);
        for (int i = 0; i < 3; i++)
            threads[i] = start(until_the_end, NULL);
        for (int all = 0; !all;) {
            sleep_ms(5);
            OK(pthread_mutex_lock(&mutex));
            all = waiting == 3;
            OK(pthread_mutex_unlock(&mutex));
        }
        sleep_ms(5); /* now they sleep */
        OK(pthread_cond_signal(&cond));
        for (int i = 0; i < 3; i++)
            join(threads[i]);
    }
    EQ(late, 2);
}

/* The memory may be used for something else after `pthread_cond_destroy`, which waits for a waiter that is on its way out. The waiter
   is kept there by a signal handler, for long enough that `destroy` would return meanwhile. */
static pthread_cond_t destroyed_early;
static volatile int in_handler, destroys, destroyed, was_destroyed;
static void keep(int signal)
{
    (void)signal;
    in_handler = 1;
    while (!destroys)
        sleep_ms(1);
    sleep_ms(50);
    was_destroyed = destroyed;
}
static void *wait_once(void *unused)
{
    OK(pthread_mutex_lock(&mutex));
    waiting = 1;
    OK(pthread_cond_wait(&destroyed_early, &mutex));
    OK(pthread_mutex_unlock(&mutex));
    return unused;
}
static void destroyed_with_a_waiter_on_its_way(void)
{
    struct sigaction action = { .sa_handler = keep, .sa_flags = SA_RESTART };
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(pthread_cond_init(&destroyed_early, NULL));
    waiting = 0;
    pthread_t thread = start(wait_once, NULL);
    for (int there = 0; !there;) {
        OK(pthread_mutex_lock(&mutex));
        there = waiting;
        OK(pthread_mutex_unlock(&mutex));
    }
    OK(pthread_kill(thread, SIGUSR1));
    while (!in_handler)
        sleep_ms(1);
    OK(pthread_cond_broadcast(&destroyed_early));
    destroys = 1;
    OK(pthread_cond_destroy(&destroyed_early));
    destroyed = 1;
    join(thread);
    EQ(was_destroyed, 0);
}

int main(void)
{
    pthread_mutex_t m;
    pthread_mutexattr_t attr;
    pthread_cond_t c;
    OK(pthread_cond_signal(&cond)); /* nobody there */
    OK(pthread_cond_broadcast(&cond));
    timed();
    the_others_time_out();
    ping(2000);
    pipeline();
    broadcast(&mutex);
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
    OK(pthread_mutex_init(&m, &attr));
    broadcast(&m);
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    OK(pthread_mutex_init(&m, &attr));
    broadcast(&m);
    EQ(pthread_cond_wait(&cond, &m), EPERM); /* not ours to release */
    OK(pthread_cond_init(&c, NULL));
    EQ(pthread_cond_wait(&c, &m), EPERM);
    OK(pthread_cond_signal(&c)); /* nobody there */
    OK(pthread_cond_destroy(&c));
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_NORMAL));
    OK(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutex_init(&m, &attr));
    broadcast(&m); /* a mutex that is glibc's */
    cancelled(NULL);
    cancelled(&m);
    destroyed_while_waited(&m);
    OK(pthread_mutex_init(&m, NULL));
    destroyed_while_waited(&m);
    OK(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_NONE));
    OK(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutex_init(&m, &attr));
    destroyed_while_waited(&m);
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    OK(pthread_mutex_init(&m, &attr));
    EQ(pthread_cond_wait(&cond, &m), EPERM);
    destroyed_while_waited(&m);
    entered = handler_ran = 0;
    CHECK(join(start(pending, NULL)) == PTHREAD_CANCELED);
    EQ(handler_ran, 1);
    CHECK(join(start(disabled, NULL)) == NULL);
    cancel_race();
    destroyed_with_a_waiter_on_its_way();
    printf("ok\n");
    return 0;
}
