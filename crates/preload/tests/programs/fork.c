/* fork: the child can use every lock. glibc does less. Its rwlocks and condition variables are stuck in the child if they
   had waiters. Its recursive and error-checking mutexes do not recognise their owner, because the thread's id has changed.
   With glibc the program leaves these parts out. */
#include "check.h"

extern void latchwork_observe_name(void *, const char *);
#pragma weak latchwork_observe_name

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t at_fork = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t cond_mutex = PTHREAD_MUTEX_INITIALIZER;
static int stop, waiting;

static void prepare(void) { OK(pthread_mutex_lock(&at_fork)); }
static void release(void) { OK(pthread_mutex_unlock(&at_fork)); }

static void *use_mutex(void *m)
{
    OK(pthread_mutex_lock(m));
    OK(pthread_mutex_unlock(m));
    return NULL;
}
static void *use_at_fork(void *argument)
{
    (void)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        OK(pthread_mutex_lock(&at_fork));
        OK(pthread_mutex_unlock(&at_fork));
        sched_yield();
    }
    return NULL;
}
static void *write_lock(void *l)
{
    OK(pthread_rwlock_wrlock(l));
    OK(pthread_rwlock_unlock(l));
    return NULL;
}
static void *read_lock(void *l)
{
    OK(pthread_rwlock_rdlock(l));
    OK(pthread_rwlock_unlock(l));
    return NULL;
}
static void *try_write(void *l) { return (void *)(long)pthread_rwlock_trywrlock(l); }
static void *try_mutex(void *m) { return (void *)(long)pthread_mutex_trylock(m); }
static void *wait_cond(void *argument)
{
    (void)argument;
    OK(pthread_mutex_lock(&cond_mutex));
    waiting++;
    while (!stop)
        OK(pthread_cond_wait(&cond, &cond_mutex));
    OK(pthread_mutex_unlock(&cond_mutex));
    return NULL;
}
static void *signal_cond(void *argument)
{
    (void)argument;
    OK(pthread_mutex_lock(&cond_mutex));
    stop = 1;
    OK(pthread_cond_signal(&cond));
    OK(pthread_mutex_unlock(&cond_mutex));
    return NULL;
}

/* What the child does with locks that its thread holds, whose waiters it does not have. */
__attribute__((noreturn)) static void child(int depth)
{
    struct timespec t;
    /* Held: others cannot have them. */
    EQ((long)join(start(try_mutex, &mutex)), EBUSY);
    EQ((long)join(start(try_mutex, &recursive)), EBUSY);
    EQ((long)join(start(try_write, &rwlock)), EBUSY);
    if (OUR_MUTEX)
        EQ(pthread_mutex_lock(&errorcheck), EDEADLK);
    if (OUR_RWLOCK)
        EQ(pthread_rwlock_rdlock(&written), EDEADLK);
    /* at_fork was released by the handler. */
    OK(pthread_mutex_trylock(&at_fork));
    OK(pthread_mutex_unlock(&at_fork));
    /* Again, one generation further. */
    if (depth > 0) {
        pid_t pid = fork();
        if (pid == 0)
            child(depth - 1);
        reap(pid);
    }
    OK(pthread_mutex_unlock(&mutex));
    if (OUR_MUTEX) {
        OK(pthread_mutex_unlock(&recursive));
        OK(pthread_mutex_unlock(&recursive));
        EQ(pthread_mutex_unlock(&recursive), EPERM);
        OK(pthread_mutex_unlock(&errorcheck));
        EQ(pthread_mutex_unlock(&errorcheck), EPERM);
    }
    if (OUR_RWLOCK) {
        OK(pthread_rwlock_unlock(&rwlock));
        OK(pthread_rwlock_unlock(&rwlock));
        OK(pthread_rwlock_unlock(&written));
    }
    /* And now everybody can. */
    for (int i = 0; i < 3; i++) {
        pthread_t threads[3] = {
            start(use_mutex, &mutex),   start(use_mutex, &recursive), start(use_mutex, &errorcheck),
        };
        join(threads[0]);
        for (int j = 1; j < 3 && OUR_MUTEX; j++)
            join(threads[j]);
        for (int j = 0; j < 3 && OUR_RWLOCK; j++)
            threads[j] = start(j ? write_lock : read_lock, j < 2 ? &rwlock : &written);
        for (int j = 0; j < 3 && OUR_RWLOCK; j++)
            join(threads[j]);
    }
    /* The condition variable has no waiters, and works. */
    if (!OUR_MUTEX)
        _exit(0);
    stop = 0;
    OK(pthread_mutex_lock(&cond_mutex));
    t = in_ms(CLOCK_REALTIME, 10);
    EQ(pthread_cond_timedwait(&cond, &cond_mutex, &t), ETIMEDOUT);
    pthread_t thread = start(signal_cond, NULL);
    while (!stop)
        OK(pthread_cond_wait(&cond, &cond_mutex));
    OK(pthread_mutex_unlock(&cond_mutex));
    join(thread);
    OK(pthread_cond_destroy(&cond));
    _exit(0);
}

/* No lock call is a cancellation point, the first ones in a child included. */
static void *use_with_request_pending(void *nothing)
{
    OK(pthread_cancel(pthread_self()));
    OK(pthread_cond_signal(&cond));
    use_mutex(&mutex);
    write_lock(&rwlock);
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    return nothing;
}

/* Readers that the child does not have keep no writer of the child out, also of a lock that is often read there. */
static pthread_rwlock_t often = PTHREAD_RWLOCK_INITIALIZER;
static void read_often(void)
{
    for (int i = 0; i < 100; i++)
        read_lock(&often);
}
static void *read_and_stay(void *argument)
{
    read_often();
    OK(pthread_rwlock_rdlock(&often));
    __atomic_store_n(&waiting, 1, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        sleep_ms(1);
    OK(pthread_rwlock_unlock(&often));
    return argument;
}
static void readers_of_the_parent(void)
{
    stop = waiting = 0;
    pthread_t thread = start(read_and_stay, NULL);
    while (!__atomic_load_n(&waiting, __ATOMIC_RELAXED))
        sleep_ms(1);
    pid_t pid = fork();
    if (pid == 0) {
        struct timespec t = in_ms(CLOCK_REALTIME, 10000);
        for (int i = 0; i < 2; i++) {
            OK(pthread_rwlock_timedwrlock(&often, &t));
            OK(pthread_rwlock_unlock(&often));
            read_often();
        }
        _exit(0);
    }
    reap(pid);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join(thread);
}

static void *name_locks(void *argument)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        latchwork_observe_name(&mutex, "mutex");
        latchwork_observe_name(&rwlock, "rwlock");
    }
    return argument;
}

/* A child names a lock, although a thread that it does not have was doing so at the fork. */
static void names(void)
{
    stop = 0;
    pthread_t thread = start(name_locks, NULL);
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(240);
            latchwork_observe_name(&mutex, "the child's");
            _exit(0);
        }
        reap(pid);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join(thread);
}

int main(void)
{
    pthread_t threads[12];
    int n = 0;
    OK(pthread_atfork(prepare, release, release));
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_lock(&recursive));
    OK(pthread_mutex_lock(&recursive));
    OK(pthread_mutex_lock(&errorcheck));
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_wrlock(&written));
    for (int i = 0; i < 2; i++) {
        threads[n++] = start(use_mutex, &mutex);
        threads[n++] = start(use_mutex, &recursive);
        threads[n++] = start(use_mutex, &errorcheck);
        threads[n++] = start(write_lock, i ? &rwlock : &written);
        threads[n++] = start(wait_cond, NULL);
        threads[n++] = start(use_at_fork, NULL);
    }
    sleep_ms(50);
    /* A child would wait for ever for a mutex that a thread which it does not have holds. */
    for (int all = 0; !all;) {
        OK(pthread_mutex_lock(&cond_mutex));
        all = waiting == 2;
        OK(pthread_mutex_unlock(&cond_mutex));
        sleep_ms(1);
    }
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (pid == 0)
            child(i == 4 ? 2 : 0);
        reap(pid);
    }
    /* The parent's waiters are all still there. */
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_unlock(&recursive));
    OK(pthread_mutex_unlock(&recursive));
    OK(pthread_mutex_unlock(&errorcheck));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_unlock(&written));
    OK(pthread_mutex_lock(&cond_mutex));
    stop = 1;
    OK(pthread_cond_broadcast(&cond));
    OK(pthread_mutex_unlock(&cond_mutex));
    while (n > 0)
        join(threads[--n]);
    pid_t pid = fork();
    if (pid == 0) {
        EQ((long)join(start(use_with_request_pending, &mutex)), (long)&mutex);
        _exit(0);
    }
    reap(pid);
    if (OUR_RWLOCK)
        readers_of_the_parent();
    if (latchwork_observe_name)
        names();
    printf("ok\n");
    return 0;
}
