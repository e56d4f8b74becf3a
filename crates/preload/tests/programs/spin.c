/* Spin locks, in one process and between two. */
#include "check.h"
#include <sys/mman.h>

static pthread_spinlock_t spin;
static long counter;
static void *count(void *n)
{
    for (long i = 0; i < (long)n; i++) {
        if (i % 5 || pthread_spin_trylock(&spin) != 0)
            OK(pthread_spin_lock(&spin));
        counter++;
        OK(pthread_spin_unlock(&spin));
        if (i % 16 == 0)
            sched_yield();
    }
    return NULL;
}

/* A child has none of the threads that wait for what its thread holds. */
static int waiting;
static void *wait_for_it(void *nothing)
{
    __atomic_fetch_add(&waiting, 1, __ATOMIC_RELAXED);
    OK(pthread_spin_lock(&spin));
    OK(pthread_spin_unlock(&spin));
    return nothing;
}
static void fork_while_others_wait(void)
{
    pthread_t threads[3];
    OK(pthread_spin_lock(&spin));
    for (int i = 0; i < 3; i++)
        threads[i] = start(wait_for_it, NULL);
    while (__atomic_load_n(&waiting, __ATOMIC_RELAXED) < 3)
        sleep_ms(1);
    sleep_ms(20);
    pid_t pid = fork();
    OK(pthread_spin_unlock(&spin));
    if (pid == 0) {
        for (int i = 0; i < 2; i++) {
            OK(pthread_spin_lock(&spin));
            OK(pthread_spin_unlock(&spin));
        }
        OK(pthread_spin_trylock(&spin));
        EQ(pthread_spin_trylock(&spin), EBUSY);
        _exit(0);
    }
    reap(pid);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
}

struct shared {
    pthread_spinlock_t spin;
    long counter;
};

int main(void)
{
    pthread_t threads[8];
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s != MAP_FAILED);
    OK(pthread_spin_init(&s->spin, PTHREAD_PROCESS_SHARED));
    pid_t pid = fork(); /* both have one thread */
    for (int i = 0; i < 20000; i++) {
        OK(pthread_spin_lock(&s->spin));
        s->counter++;
        OK(pthread_spin_unlock(&s->spin));
    }
    if (pid == 0)
        _exit(0);
    reap(pid);
    EQ(s->counter, 40000);

    spin = -1;
    OK(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    OK(pthread_spin_lock(&spin));
    EQ(pthread_spin_trylock(&spin), EBUSY);
    OK(pthread_spin_unlock(&spin));
    OK(pthread_spin_trylock(&spin));
    OK(pthread_spin_unlock(&spin));
    for (int i = 0; i < 8; i++)
        threads[i] = start(count, (void *)1000);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    EQ(counter, 8000);
    for (int i = 0; i < 3; i++) {
        waiting = 0;
        fork_while_others_wait();
    }
    OK(pthread_spin_destroy(&spin));
    printf("ok\n");
    return 0;
}
