/* Locks of several classes, each of which may have another algorithm: static ones, ones that are initialised by a call, and
   ones that are first used as zero bytes from the heap. Condition variables wait with each of them. A child of a fork and
   its parent go on to use them all. The threads check that the locks exclude. */
#include "check.h"

enum { THREADS = 4, ROUNDS = 3000, EACH = 3 };

pthread_mutex_t static_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t static_table[EACH] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
pthread_mutex_t static_recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_rwlock_t static_rwlock = PTHREAD_RWLOCK_INITIALIZER;

/* Kept out of line: the address of the call is what tells these classes apart. The assembly keeps the calls from being the
   last instruction, which the compiler would make a jump. */
__attribute__((noinline)) void make_queue(pthread_mutex_t *mutex)
{
    CHECK(pthread_mutex_init(mutex, NULL) == 0);
    __asm__ volatile("");
}

__attribute__((noinline)) void make_checking(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
    pthread_mutexattr_destroy(&attributes);
}

__attribute__((noinline)) void use_first(pthread_mutex_t *mutex)
{
    CHECK(pthread_mutex_lock(mutex) == 0);
    CHECK(pthread_mutex_unlock(mutex) == 0);
    __asm__ volatile("");
}

/* A wrapper: a rule may name it and its caller. */
__attribute__((noinline)) void wrapped_init(pthread_rwlock_t *rwlock)
{
    CHECK(pthread_rwlock_init(rwlock, NULL) == 0);
    __asm__ volatile("");
}

__attribute__((noinline)) void make_cache(pthread_rwlock_t *rwlock)
{
    wrapped_init(rwlock);
    __asm__ volatile("");
}

__attribute__((noinline)) void make_index(pthread_rwlock_t *rwlock)
{
    wrapped_init(rwlock);
    __asm__ volatile("");
}

struct heap {
    pthread_mutex_t queue[EACH], zero[EACH], checking;
    pthread_rwlock_t cache, index, zero_rwlock;
};

static struct heap *heap;
static pthread_mutex_t *mutexes[16];
static pthread_rwlock_t *rwlocks[4];
static int mutex_count, rwlock_count;
static long inside_mutex[16], inside_rwlock[4], sum_mutex[16], sum_rwlock[4];

static void *work(void *argument)
{
    unsigned random = (unsigned)(size_t)argument * 2654435761u;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1664525 + 1013904223;
        int index = (random >> 16) % mutex_count;
        pthread_mutex_t *mutex = mutexes[index];
        struct timespec soon;
        switch (round % 3) {
        case 0:
            CHECK(pthread_mutex_lock(mutex) == 0);
            break;
        case 1:
            while (pthread_mutex_trylock(mutex) != 0)
                sched_yield();
            break;
        default:
            clock_gettime(CLOCK_REALTIME, &soon);
            soon.tv_sec += 100;
            CHECK(pthread_mutex_timedlock(mutex, &soon) == 0);
        }
        CHECK(inside_mutex[index]++ == 0);
        sum_mutex[index]++;
        CHECK(--inside_mutex[index] == 0);
        CHECK(pthread_mutex_unlock(mutex) == 0);

        index = (random >> 8) % rwlock_count;
        pthread_rwlock_t *rwlock = rwlocks[index];
        if (round % 8 == 0) {
            CHECK(pthread_rwlock_wrlock(rwlock) == 0);
            CHECK(inside_rwlock[index]++ == 0);
            sum_rwlock[index]++;
            CHECK(--inside_rwlock[index] == 0);
        } else {
            clock_gettime(CLOCK_REALTIME, &soon);
            soon.tv_sec += 100;
            CHECK((round % 3 ? pthread_rwlock_rdlock(rwlock) : pthread_rwlock_timedrdlock(rwlock, &soon)) == 0);
            CHECK(inside_rwlock[index] == 0);
        }
        CHECK(pthread_rwlock_unlock(rwlock) == 0);
    }
    return NULL;
}

static void run(void)
{
    pthread_t threads[THREADS];
    memset(sum_mutex, 0, sizeof sum_mutex);
    memset(sum_rwlock, 0, sizeof sum_rwlock);
    for (size_t index = 0; index < THREADS; index++)
        CHECK(pthread_create(&threads[index], NULL, work, (void *)(index + 1)) == 0);
    for (int index = 0; index < THREADS; index++)
        CHECK(pthread_join(threads[index], NULL) == 0);
    long mutex = 0, rwlock = 0;
    for (int index = 0; index < 16; index++)
        mutex += sum_mutex[index];
    for (int index = 0; index < 4; index++)
        rwlock += sum_rwlock[index];
    CHECK(mutex == THREADS * ROUNDS);
    CHECK(rwlock == THREADS * (ROUNDS / 8));
}

/* A ball that two threads throw to each other under one mutex, with one condition variable for all mutexes. */
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int ball;
static pthread_mutex_t *court;

static void *play(void *argument)
{
    int me = argument != NULL;
    for (int round = 0; round < 200; round++) {
        CHECK(pthread_mutex_lock(court) == 0);
        while (ball != me)
            CHECK(pthread_cond_wait(&turned, court) == 0);
        ball = !me;
        CHECK(pthread_cond_broadcast(&turned) == 0);
        CHECK(pthread_mutex_unlock(court) == 0);
    }
    return NULL;
}

static void conditions(void)
{
    for (int index = 0; index < mutex_count; index++) {
        pthread_t other;
        court = mutexes[index];
        ball = 0;
        CHECK(pthread_create(&other, NULL, play, &ball) == 0);
        play(NULL);
        CHECK(pthread_join(other, NULL) == 0);
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        CHECK(pthread_mutex_lock(court) == 0);
        CHECK(pthread_cond_timedwait(&turned, court, &now) == ETIMEDOUT);
        CHECK(pthread_mutex_unlock(court) == 0);
    }
}

int main(void)
{
    heap = calloc(1, sizeof *heap);
    CHECK(heap != NULL);
    for (int index = 0; index < EACH; index++) {
        make_queue(&heap->queue[index]);
        use_first(&heap->zero[index]);
        mutexes[mutex_count++] = &heap->queue[index];
        mutexes[mutex_count++] = &heap->zero[index];
        mutexes[mutex_count++] = &static_table[index];
    }
    make_checking(&heap->checking);
    mutexes[mutex_count++] = &heap->checking;
    mutexes[mutex_count++] = &static_mutex;
    mutexes[mutex_count++] = &static_recursive;
    make_cache(&heap->cache);
    make_index(&heap->index);
    rwlocks[rwlock_count++] = &heap->cache;
    rwlocks[rwlock_count++] = &heap->index;
    rwlocks[rwlock_count++] = &heap->zero_rwlock;
    rwlocks[rwlock_count++] = &static_rwlock;

    CHECK(pthread_mutex_lock(&heap->checking) == 0);
    CHECK(pthread_mutex_lock(&heap->checking) == EDEADLK);
    CHECK(pthread_mutex_unlock(&heap->checking) == 0);
    CHECK(pthread_mutex_unlock(&heap->checking) == EPERM);
    CHECK(pthread_mutex_lock(&static_recursive) == 0 && pthread_mutex_lock(&static_recursive) == 0);
    CHECK(pthread_mutex_unlock(&static_recursive) == 0 && pthread_mutex_unlock(&static_recursive) == 0);

    run();
    conditions();
    pid_t child = fork();
    CHECK(child >= 0);
    run();
    conditions();
    if (child == 0)
        _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int index = 0; index < mutex_count; index++)
        CHECK(pthread_mutex_destroy(mutexes[index]) == 0);
    for (int index = 0; index < rwlock_count; index++)
        CHECK(pthread_rwlock_destroy(rwlocks[index]) == 0);
    puts("ok");
    return 0;
}
