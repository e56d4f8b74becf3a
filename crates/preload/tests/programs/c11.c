/* The C11 functions: mtx_* and cnd_*. */
#include "check.h"
#include <threads.h>

static mtx_t mutex;
static cnd_t cond;
static int turn, done;

static int try_it(void *m)
{
    int result = mtx_trylock(m);
    if (result == thrd_success)
        mtx_unlock(m);
    return result;
}
static int from_another(mtx_t *m)
{
    thrd_t thread;
    int result;
    EQ(thrd_create(&thread, try_it, m), thrd_success);
    EQ(thrd_join(thread, &result), thrd_success);
    return result;
}

static int player(void *argument)
{
    int me = *(int *)argument;
    for (int i = 0; i < 500; i++) {
        EQ(mtx_lock(&mutex), thrd_success);
        while (turn != me)
            EQ(cnd_wait(&cond, &mutex), thrd_success);
        turn = (turn + 1) % 3;
        done++;
        EQ(cnd_broadcast(&cond), thrd_success);
        EQ(mtx_unlock(&mutex), thrd_success);
    }
    return 7;
}

int main(void)
{
    mtx_t m;
    thrd_t threads[3];
    int numbers[3] = { 0, 1, 2 }, result;
    struct timespec t;

    EQ(mtx_init(&m, mtx_plain), thrd_success);
    EQ(mtx_lock(&m), thrd_success);
    EQ(from_another(&m), thrd_busy);
    EQ(mtx_unlock(&m), thrd_success);
    EQ(from_another(&m), thrd_success);
    mtx_destroy(&m);

    EQ(mtx_init(&m, mtx_recursive | mtx_timed), thrd_success);
    EQ(mtx_lock(&m), thrd_success);
    EQ(mtx_trylock(&m), thrd_success);
    t = in_ms(CLOCK_REALTIME, 1000);
    EQ(mtx_timedlock(&m, &t), thrd_success);
    for (int i = 0; i < 3; i++) {
        EQ(from_another(&m), thrd_busy);
        EQ(mtx_unlock(&m), thrd_success);
    }
    EQ(from_another(&m), thrd_success);
    EQ(mtx_unlock(&m), thrd_error);
    mtx_destroy(&m);

    /* glibc takes any number, and a mutex of such a kind is not recursive. */
    int no_kinds[] = { 4, 5, 100, -1 };
    for (int i = 0; i < 4; i++) {
        EQ(mtx_init(&m, no_kinds[i]), thrd_success);
        EQ(mtx_lock(&m), thrd_success);
        EQ(mtx_trylock(&m), thrd_busy);
        EQ(mtx_unlock(&m), thrd_success);
        mtx_destroy(&m);
    }

    EQ(mtx_init(&m, mtx_timed), thrd_success);
    EQ(mtx_lock(&m), thrd_success);
    t = in_ms(CLOCK_REALTIME, 10);
    EQ(mtx_timedlock(&m, &t), thrd_timedout);
    EQ(mtx_unlock(&m), thrd_success);

    EQ(mtx_init(&mutex, mtx_plain), thrd_success);
    EQ(cnd_init(&cond), thrd_success);
    EQ(cnd_signal(&cond), thrd_success);
    EQ(mtx_lock(&mutex), thrd_success);
    t = in_ms(CLOCK_REALTIME, 10);
    EQ(cnd_timedwait(&cond, &mutex, &t), thrd_timedout);
    EQ(mtx_unlock(&mutex), thrd_success);
    for (int i = 0; i < 3; i++)
        EQ(thrd_create(&threads[i], player, &numbers[i]), thrd_success);
    for (int i = 0; i < 3; i++) {
        EQ(thrd_join(threads[i], &result), thrd_success);
        EQ(result, 7);
    }
    EQ(done, 1500);
    cnd_destroy(&cond);
    mtx_destroy(&mutex);
    printf("ok\n");
    return 0;
}
