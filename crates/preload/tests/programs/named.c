/* Locks with names, and locks that are not pthread's: what liblatchwork asks the preload library to watch and to call by a name. */
#include "check.h"

extern int latchwork_observe_acquire(void *, int, int (*)(void *), int (*)(void *), void *);
extern int latchwork_observe_release(void *, int, int (*)(void *), void *);
extern void latchwork_observe_name(void *, const char *);
extern void latchwork_observe_gone(void *);
#pragma weak latchwork_observe_acquire
#pragma weak latchwork_observe_release
#pragma weak latchwork_observe_name
#pragma weak latchwork_observe_gone

/* As `how` of lw_debug_acquire. */
enum { MUTEX = 0, READ = 1, WRITE = 2, AGAIN = 3, ATTEMPT = 4 };

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t routes = PTHREAD_RWLOCK_INITIALIZER;
/* Locks of latchwork.h are only addresses here. */
static char table[32], log_lock[16];

static int succeeds(void *calls)
{
    ++*(int *)calls;
    return 0;
}

static int fails(void *calls)
{
    ++*(int *)calls;
    return EBUSY;
}

static void lock(pthread_mutex_t *mutex, int times)
{
    for (int i = 0; i < times; i++) {
        OK(pthread_mutex_lock(mutex));
        OK(pthread_mutex_unlock(mutex));
    }
}

static void use(void *object, int how, int times)
{
    int calls = 0;
    for (int i = 0; i < times; i++) {
        OK(latchwork_observe_acquire(object, how, succeeds, succeeds, &calls));
        OK(latchwork_observe_release(object, how, succeeds, &calls));
    }
    EQ(calls, 2 * times);
}

int main(void)
{
    latchwork_observe_name(&accounts, "accounts");
    lock(&accounts, 30);
    latchwork_observe_name(&accounts, "ledger");
    lock(&accounts, 2);
    latchwork_observe_name(&accounts, NULL);
    lock(&accounts, 1);

    /* Made at the same place: what has a name is apart. */
    pthread_mutex_t *shards[3];
    for (int i = 0; i < 3; i++) {
        shards[i] = malloc(sizeof *shards[i]);
        OK(pthread_mutex_init(shards[i], NULL));
    }
    latchwork_observe_name(shards[0], "shard 1");
    latchwork_observe_name(shards[1], "a name of more than thirty-nine bytes is cut");
    for (int i = 0; i < 3; i++) {
        lock(shards[i], i + 4);
        OK(pthread_mutex_destroy(shards[i]));
    }

    latchwork_observe_name(&routes, "routes");
    OK(pthread_rwlock_rdlock(&routes));
    OK(pthread_rwlock_unlock(&routes));

    latchwork_observe_name(table, "table");
    use(table, READ, 20);
    use(table, WRITE, 10);
    use(table, READ | ATTEMPT, 1);
    /* A reader reads again. */
    int calls = 0;
    OK(latchwork_observe_acquire(table, READ, succeeds, succeeds, &calls));
    OK(latchwork_observe_acquire(table, AGAIN, succeeds, succeeds, &calls));
    OK(latchwork_observe_release(table, READ, succeeds, &calls));
    OK(latchwork_observe_release(table, READ, succeeds, &calls));
    EQ(calls, 4);

    latchwork_observe_name(log_lock, "log");
    use(log_lock, MUTEX, 20);
    use(log_lock, MUTEX | ATTEMPT, 1);
    /* Two attempts that fail, and three calls that wait. */
    calls = 0;
    for (int i = 0; i < 2; i++)
        EQ(latchwork_observe_acquire(log_lock, MUTEX | ATTEMPT, fails, fails, &calls), EBUSY);
    for (int i = 0; i < 3; i++) {
        OK(latchwork_observe_acquire(log_lock, MUTEX, fails, succeeds, &calls));
        OK(latchwork_observe_release(log_lock, MUTEX, succeeds, &calls));
    }
    EQ(calls, 2 + 9);
    latchwork_observe_gone(log_lock);
    use(log_lock, MUTEX, 7);
    puts("ok");
    return 0;
}
