/* While glibc serves, a lock looks the same after pthread_*_lock as after pthread_*_trylock, and after an unlock. */
#include "check.h"

#define SAME(locks) CHECK(!memcmp(&(locks)[0], &(locks)[1], sizeof((locks)[0])))

/* Acquires the first lock by one call, and the second one by another. */
#define BOTH(locks, one, other) \
    do {                        \
        OK(one(&(locks)[0]));   \
        OK(other(&(locks)[1])); \
        SAME(locks);            \
    } while (0)

static void mutexes(pthread_mutex_t *locks, int depth)
{
    for (int i = 0; i < depth; i++)
        BOTH(locks, pthread_mutex_lock, pthread_mutex_trylock);
    for (int i = 0; i < depth; i++)
        BOTH(locks, pthread_mutex_unlock, pthread_mutex_unlock);
}

static void readers(pthread_rwlock_t *locks)
{
    BOTH(locks, pthread_rwlock_rdlock, pthread_rwlock_tryrdlock);
    BOTH(locks, pthread_rwlock_rdlock, pthread_rwlock_tryrdlock);
    BOTH(locks, pthread_rwlock_unlock, pthread_rwlock_unlock);
    BOTH(locks, pthread_rwlock_unlock, pthread_rwlock_unlock);
}

static void writer(pthread_rwlock_t *locks)
{
    BOTH(locks, pthread_rwlock_wrlock, pthread_rwlock_trywrlock);
    BOTH(locks, pthread_rwlock_unlock, pthread_rwlock_unlock);
}

static void *compare(void *argument)
{
    pthread_mutex_t normal[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
    pthread_mutex_t recursive[2] = { PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP };
    pthread_rwlock_t rwlocks[2] = { PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER };
    for (int i = 0; i < 200; i++) {
        mutexes(normal, 1);
        mutexes(recursive, 3);
        readers(rwlocks);
        readers(rwlocks);
        writer(rwlocks);
        writer(rwlocks);
    }
    for (int i = 0; i < 2; i++) {
        OK(pthread_mutex_destroy(&normal[i]));
        OK(pthread_mutex_destroy(&recursive[i]));
        OK(pthread_rwlock_destroy(&rwlocks[i]));
    }
    return argument;
}

int main(void)
{
    compare(NULL);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, compare, NULL));
    OK(pthread_join(thread, NULL));
    // The thread of the child has another number.
    pid_t child = fork();
    if (child == 0) {
        compare(NULL);
        _exit(0);
    }
    int status;
    EQ(waitpid(child, &status, 0), child);
    OK(status);
    puts("ok");
    return 0;
}
