/* Asynchronous cancellation of a thread inside a lock call: the thread dies, and the other threads get the lock. */
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static volatile int ready;

static void *block_mutex(void *timed)
{
    int old;
    struct timespec t = in_ms(CLOCK_MONOTONIC, 300000);
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    if (timed)
        pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &t);
    else
        pthread_mutex_lock(&mutex);
    CHECK(!"got the mutex");
    return NULL;
}

static void *block_rwlock(void *write)
{
    int old;
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    if (write)
        pthread_rwlock_wrlock(&rwlock);
    else
        pthread_rwlock_rdlock(&rwlock);
    CHECK(!"got the rwlock");
    return NULL;
}

static void *wait_patiently(void *done)
{
    OK(pthread_mutex_lock(&mutex));
    ++*(int *)done;
    OK(pthread_mutex_unlock(&mutex));
    return NULL;
}

/* Waits in vain until a time has passed, gets the lock after another wait, and has its type of cancellation back. */
static void *survive(void *argument)
{
    int old;
    struct timespec t = in_ms(CLOCK_MONOTONIC, 25);
    (void)argument;
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    EQ(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old));
    EQ(old, PTHREAD_CANCEL_ASYNCHRONOUS);
    return NULL;
}

static void until_ready(int n)
{
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < n)
        sleep_ms(1);
    sleep_ms(20);
}

int main(void)
{
    pthread_t victims[4], others[4];
    int done = 0;

    OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 4; i++) {
        victims[i] = start(block_mutex, i % 2 ? &done : NULL);
        others[i] = start(wait_patiently, &done);
    }
    until_ready(4);
    for (int i = 0; i < 4; i++) {
        OK(pthread_cancel(victims[i]));
        CHECK(join(victims[i]) == PTHREAD_CANCELED); /* while the mutex is held */
    }
    OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 4; i++)
        join(others[i]);
    EQ(done, 4);

    ready = 0;
    OK(pthread_mutex_lock(&mutex));
    others[0] = start(survive, NULL);
    until_ready(1);
    OK(pthread_mutex_unlock(&mutex));
    CHECK(join(others[0]) == NULL);

    if (!OUR_RWLOCK) { /* glibc's is stuck for ever once a waiting writer was cancelled */
        printf("ok\n");
        return 0;
    }
    ready = 0;
    OK(pthread_rwlock_wrlock(&rwlock));
    for (int i = 0; i < 4; i++)
        victims[i] = start(block_rwlock, i % 2 ? &done : NULL);
    until_ready(4);
    for (int i = 0; i < 4; i++) {
        OK(pthread_cancel(victims[i]));
        CHECK(join(victims[i]) == PTHREAD_CANCELED);
    }
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    printf("ok\n");
    return 0;
}
