/* A thread makes one mistake after the other while the process forks. Each child makes a mistake of its own. `latchwork check` reports
   all of them, and costs a child no wait for a thread that it does not have. */
#include "check.h"

enum { CHILDREN = 12, MISTAKES = 24 };
static pthread_mutex_t locks[MISTAKES][2], a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static int made;

static void both(pthread_mutex_t *first, pthread_mutex_t *second)
{
    OK(pthread_mutex_lock(first));
    OK(pthread_mutex_lock(second));
    OK(pthread_mutex_unlock(second));
    OK(pthread_mutex_unlock(first));
}

static void *invert(void *argument)
{
    for (int i = 0; i < MISTAKES; i++) {
        both(&locks[i][0], &locks[i][1]);
        both(&locks[i][1], &locks[i][0]);
        __atomic_store_n(&made, i + 1, __ATOMIC_RELAXED);
    }
    return argument;
}

__attribute__((noinline)) static void invert_in_child(void)
{
    both(&a, &b);
    both(&b, &a);
}

int main(void)
{
    for (int i = 0; i < MISTAKES; i++)
        for (int j = 0; j < 2; j++)
            OK(pthread_mutex_init(&locks[i][j], NULL));
    pthread_t thread = start(invert, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        while (__atomic_load_n(&made, __ATOMIC_RELAXED) < i * MISTAKES / CHILDREN)
            usleep(100);
        usleep(i * 50);
        pid_t child = fork();
        if (child == 0) {
            invert_in_child();
            _exit(0);
        }
        reap(child);
    }
    join(thread);
    puts("ok");
    return 0;
}
