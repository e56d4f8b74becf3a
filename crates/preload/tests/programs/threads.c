/* Creation of threads, joins and barriers: what the library passes on, and watches while a trace is recorded. */
#include "check.h"
#include <sched.h>
#include <sys/mman.h>
#include <threads.h>

static pthread_barrier_t two;
static pthread_t main_thread;
static int cleaned, passed;

static void *itself(void *argument)
{
    return argument;
}

/* Ends when the argument's number is not 0 any more. */
static void *later(void *argument)
{
    while (__atomic_load_n((int *)argument, __ATOMIC_RELAXED) == 0)
        sleep_ms(1);
    return argument;
}

static void *exits(void *argument)
{
    pthread_exit(argument);
}

static void clean(void *unused)
{
    (void)unused;
    cleaned++;
}

/* A thread sees its own stack and function as it does without the library. */
static void *looks(void *argument)
{
    pthread_attr_t attr;
    size_t size;
    void *stack;
    OK(pthread_getattr_np(pthread_self(), &attr));
    OK(pthread_attr_getstack(&attr, &stack, &size));
    CHECK((char *)&size > (char *)stack && (char *)&size < (char *)stack + size);
    OK(pthread_attr_destroy(&attr));
    return argument;
}

static void created_and_joined(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    void *result;
    int here;
    CHECK(join(start(itself, &here)) == &here);
    CHECK(join(start(exits, &here)) == &here);
    CHECK(join(start(looks, &here)) == &here);
    /* One that ended before it is joined. */
    thread = start(itself, &here);
    while (pthread_tryjoin_np(thread, &result) == EBUSY)
        sleep_ms(1);
    CHECK(result == &here);
    here = 0;
    thread = start(later, &here);
    EQ(pthread_tryjoin_np(thread, &result), EBUSY);
    struct timespec soon = in_ms(CLOCK_REALTIME, 1), late = in_ms(CLOCK_MONOTONIC, 100000);
    EQ(pthread_timedjoin_np(thread, &result, &soon), ETIMEDOUT);
    __atomic_store_n(&here, 1, __ATOMIC_RELAXED);
    OK(pthread_clockjoin_np(thread, &result, CLOCK_MONOTONIC, &late));
    CHECK(result == &here);
    EQ(pthread_join(pthread_self(), NULL), EDEADLK);
    /* A stack that is too small is an error, as often as it is asked for. */
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
    OK(pthread_create(&thread, &attr, itself, NULL));
    cpu_set_t none;
    CPU_ZERO(&none);
    OK(pthread_attr_setaffinity_np(&attr, sizeof none, &none));
    for (int i = 0; i < 100; i++)
        EQ(pthread_create(&thread, &attr, itself, NULL), EINVAL);
    OK(pthread_attr_destroy(&attr));
    CHECK(join(start(itself, &here)) == &here);
}

static int eleven(void *argument)
{
    return argument ? 11 : -11;
}

static void c11(void)
{
    thrd_t thread;
    int result, here;
    EQ(thrd_create(&thread, eleven, &here), thrd_success);
    EQ(thrd_join(thread, &result), thrd_success);
    EQ(result, 11);
    EQ(thrd_create(&thread, eleven, NULL), thrd_success);
    EQ(thrd_join(thread, &result), thrd_success);
    EQ(result, -11);
}

static void *joins(void *thread)
{
    pthread_cleanup_push(clean, NULL);
    pthread_join(*(pthread_t *)thread, NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *meets(void *unused)
{
    pthread_cleanup_push(clean, NULL);
    int result = pthread_barrier_wait(&two);
    CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
    passed++;
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return unused;
}

static void *starts_late(void *unused)
{
    join(main_thread);
    return unused;
}

/* A join is a cancellation point, and the thread that was waited for can be joined all the same. A wait at a barrier is none. */
static void cancelled(void)
{
    int ends = 0;
    pthread_t slow = start(later, &ends), joiner = start(joins, &slow);
    sleep_ms(5);
    OK(pthread_cancel(joiner));
    CHECK(join(joiner) == PTHREAD_CANCELED);
    EQ(cleaned, 1);
    __atomic_store_n(&ends, 1, __ATOMIC_RELAXED);
    CHECK(join(slow) == &ends);
    OK(pthread_barrier_init(&two, NULL, 2));
    pthread_t waiter = start(meets, NULL);
    sleep_ms(5);
    OK(pthread_cancel(waiter));
    sleep_ms(5);
    EQ(passed, 0);
    int result = pthread_barrier_wait(&two);
    CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
    CHECK(join(waiter) == PTHREAD_CANCELED);
    EQ(passed, 1);
    EQ(cleaned, 2);
    OK(pthread_barrier_destroy(&two));
}

enum { ROUNDS = 200, MOST = 4 };
static pthread_barrier_t barrier;
static int chosen[ROUNDS], arrived[ROUNDS];

static void *rounds(void *parties)
{
    for (int i = 0; i < ROUNDS; i++) {
        __atomic_fetch_add(&arrived[i], 1, __ATOMIC_RELAXED);
        int result = pthread_barrier_wait(&barrier);
        EQ(__atomic_load_n(&arrived[i], __ATOMIC_RELAXED), (long)parties);
        if (result == PTHREAD_BARRIER_SERIAL_THREAD)
            __atomic_fetch_add(&chosen[i], 1, __ATOMIC_RELAXED);
        else
            EQ(result, 0);
    }
    return NULL;
}

static void barriers(void)
{
    EQ(pthread_barrier_init(&barrier, NULL, 0), EINVAL);
    /* The same memory, for another number of threads each time. */
    for (long parties = 1; parties <= MOST; parties++) {
        pthread_t threads[MOST];
        memset(chosen, 0, sizeof chosen);
        memset(arrived, 0, sizeof arrived);
        OK(pthread_barrier_init(&barrier, NULL, parties));
        for (long i = 0; i < parties; i++)
            threads[i] = start(rounds, (void *)parties);
        for (long i = 0; i < parties; i++)
            join(threads[i]);
        for (int i = 0; i < ROUNDS; i++)
            EQ(chosen[i], 1);
        OK(pthread_barrier_destroy(&barrier));
    }
}

static void between_processes(void)
{
    pthread_barrier_t *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    CHECK(shared != MAP_FAILED);
    OK(pthread_barrierattr_init(&attr));
    OK(pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    OK(pthread_barrier_init(shared, &attr, 2));
    pid_t child = fork();
    int here, chosen = 0;
    for (int i = 0; i < 50; i++)
        chosen += pthread_barrier_wait(shared) == PTHREAD_BARRIER_SERIAL_THREAD;
    CHECK(chosen <= 50);
    CHECK(join(start(itself, &here)) == &here);
    if (child == 0)
        _exit(0);
    reap(child);
}

int main(void)
{
    created_and_joined();
    c11();
    cancelled();
    barriers();
    between_processes();
    /* The main thread ends first. Another one joins it, and ends the process. */
    main_thread = pthread_self();
    start(starts_late, NULL);
    printf("ok\n");
    fflush(stdout);
    pthread_exit(NULL);
}
