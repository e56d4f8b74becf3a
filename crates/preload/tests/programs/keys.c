/* The program gets all thread-specific keys: as many, and with the same numbers, as without the library. */
#include "check.h"
#include <limits.h>
#include <threads.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static int counter;

static void *work(void *argument)
{
    for (int i = 0; i < 200; i++) {
        OK(pthread_rwlock_rdlock(&l));
        OK(pthread_mutex_lock(&m));
        counter++;
        OK(pthread_mutex_unlock(&m));
        OK(pthread_rwlock_unlock(&l));
    }
    return argument;
}

static void crowd(void)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        threads[i] = start(work, NULL);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
}

int main(int count, char **arguments)
{
    (void)arguments;
    static pthread_key_t keys[PTHREAD_KEYS_MAX];
    static char taken[PTHREAD_KEYS_MAX];
    pthread_key_t more;
    if (count > 1)
        crowd(); /* the library has had use for a key by now */
    OK(pthread_key_create(&keys[0], NULL));
    EQ(keys[0], 0);
    for (int i = 1; i < PTHREAD_KEYS_MAX; i++)
        if (i % 2)
            OK(pthread_key_create(&keys[i], NULL));
        else
            EQ(tss_create(&keys[i], NULL), thrd_success);
    for (int i = 0; i < PTHREAD_KEYS_MAX; i++) {
        CHECK(keys[i] < PTHREAD_KEYS_MAX && !taken[keys[i]]);
        taken[keys[i]] = 1;
        CHECK(!pthread_getspecific(keys[i]));
        OK(pthread_setspecific(keys[i], &keys[i]));
    }
    EQ(pthread_key_create(&more, NULL), EAGAIN);
    EQ(tss_create(&more, NULL), thrd_error);
    crowd();
    for (int i = 0; i < PTHREAD_KEYS_MAX; i++)
        CHECK(pthread_getspecific(keys[i]) == &keys[i]);

    /* Without a key the library does not notice that a thread exits: it must not keep memory for it all the same. */
    for (int i = 0; i < 100; i++)
        join(start(work, NULL));
    long before = resident_pages();
    for (int i = 0; i < 2000; i++)
        join(start(work, NULL));
    CHECK(resident_pages() - before < 512);

    for (int i = 0; i < PTHREAD_KEYS_MAX; i++)
        OK(pthread_key_delete(keys[i]));
    OK(pthread_key_create(&more, NULL));
    crowd();
    puts("ok");
    return 0;
}
