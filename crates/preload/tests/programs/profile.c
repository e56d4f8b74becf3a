// Programs that know the truth about their own locks: each measures its waits and holds, and prints them. The test compares the
// recording with what is printed (truth.h).
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define SITES(X) X(culprit) X(victim) X(reader) X(writer) X(first) X(second) X(third) X(fourth) X(handling) X(locking) X(unlocking) X(front) X(middle) X(rear) X(inside) X(trunk) X(left) X(right) X(often) X(rarely) X(scanning) X(looking) X(updating) X(branch) X(within) X(woken) X(telling) X(keeping)
#include "truth.h"

static void parallel(int threads, void *(*body)(void *))
{
    pthread_t thread[128];
    for (long i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, body, (void *)i);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
}

// Threads of which one holds the lock for long. The others only wait.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
// The recorder measures the first 8 holds of each thread, and later ones by chance.
static int use_spin, rounds = 8;
// The mutex is recursive, and the culprit locks it again while it holds it.
static int nested;
static uint64_t waiting_cpu;

// Each round begins when all threads are ready, and the others ask for the lock when one has it.
static pthread_barrier_t ready;
static int held_in_round;
static volatile int sink;

static void begin_round(void)
{
    pthread_barrier_wait(&ready);
}

static void wait_for_holder(int round)
{
    while (__atomic_load_n(&held_in_round, __ATOMIC_ACQUIRE) <= round)
        usleep(100);
}

static void has_lock(void)
{
    __atomic_fetch_add(&held_in_round, 1, __ATOMIC_RELEASE);
}

// Returns when the lock was acquired.
static uint64_t lock(int site)
{
    uint64_t cpu = clock_now(CLOCK_THREAD_CPUTIME_ID);
    uint64_t start = now();
    if (use_spin)
        pthread_spin_lock(&spin);
    else
        pthread_mutex_lock(&mutex);
    uint64_t got = now();
    note(&mutex, start, got, site, 0);
    // The recorder counts the CPU time of calls that wait, and the lock's holder does not.
    if (site == SITE_victim)
        __atomic_fetch_add(&waiting_cpu, clock_now(CLOCK_THREAD_CPUTIME_ID) - cpu, __ATOMIC_RELAXED);
    return got;
}

static void unlock(void)
{
    if (use_spin)
        pthread_spin_unlock(&spin);
    else
        pthread_mutex_unlock(&mutex);
}

enum { NESTED = 20, BEFORE = 100 };

SITE(within)(void)
{
    for (int i = 0; i < NESTED; i++) {
        pthread_mutex_lock(&mutex);
        sleep_ms(1);
        pthread_mutex_unlock(&mutex);
    }
}

// So many uses that nothing but the number of the next ones is to be recorded.
static void use_often(void)
{
    for (int i = 0; i < BEFORE; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_lock(&mutex);
        if (pthread_mutex_trylock(&mutex) != 0)
            abort();
        for (int j = 0; j < 3; j++)
            pthread_mutex_unlock(&mutex);
    }
}

SITE(culprit)(void)
{
    uint64_t start = lock(SITE_culprit);
    has_lock();
    if (nested)
        within();
    else
        sleep_ms(20);
    uint64_t end = now();
    unlock();
    note(&mutex, start, end, SITE_culprit, 1);
}

SITE(victim)(void)
{
    uint64_t start = lock(SITE_victim);
    uint64_t end = now();
    unlock();
    note(&mutex, start, end, SITE_victim, 1);
}

static void *blame_thread(void *number)
{
    if (nested && !number)
        use_often();
    for (int i = 0; i < rounds; i++) {
        begin_round();
        if (!number) {
            culprit();
            continue;
        }
        wait_for_holder(i);
        victim();
    }
    return NULL;
}

static void blame(int threads)
{
    pthread_barrier_init(&ready, NULL, (unsigned)threads);
    parallel(threads, blame_thread);
    printf("count %d acquisitions\ntime %lu cpu\n", threads * rounds + nested * (3 * BEFORE + NESTED * rounds),
           waiting_cpu);
    report();
}

// The first holder acquires in one function and releases in another, while nobody waits yet.
SITE(locking)(void)
{
    pthread_mutex_lock(&mutex);
    sink = 1;
}

SITE(unlocking)(void)
{
    pthread_mutex_unlock(&mutex);
    sink = 2;
}

static void *apart_thread(void *number)
{
    if (number) {
        wait_for_holder(0);
        victim();
        return NULL;
    }
    locking();
    uint64_t start = now();
    has_lock();
    sleep_ms(20);
    uint64_t end = now();
    unlocking();
    note(&mutex, start, end, SITE_locking, 1);
    return NULL;
}

// The front waits for a lock whose holder, the middle, waits for a lock that the rear holds.
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static int chain_round, chain_step;

static void chain_lock(pthread_mutex_t *one, int site, uint64_t *got)
{
    uint64_t start = now();
    pthread_mutex_lock(one);
    *got = now();
    note(one, start, *got, site, 0);
}

static void chain_unlock(pthread_mutex_t *one, int site, uint64_t got)
{
    uint64_t end = now();
    pthread_mutex_unlock(one);
    note(one, got, end, site, 1);
}

static void wait_for_step(int step)
{
    while (__atomic_load_n(&chain_step, __ATOMIC_ACQUIRE) < 2 * chain_round + step)
        usleep(100);
}

SITE(front)(int round)
{
    uint64_t got;
    wait_for_step(2);
    chain_lock(&outer, SITE_front, &got);
    chain_unlock(&outer, SITE_front, got);
    sink = round;
}

SITE(middle)(int round)
{
    uint64_t got, got_inner;
    wait_for_step(1);
    chain_lock(&outer, SITE_middle, &got);
    __atomic_fetch_add(&chain_step, 1, __ATOMIC_RELEASE);
    chain_lock(&inner, SITE_middle, &got_inner);
    chain_unlock(&inner, SITE_middle, got_inner);
    chain_unlock(&outer, SITE_middle, got);
    sink = round;
}

SITE(rear)(int round)
{
    uint64_t got;
    chain_lock(&inner, SITE_rear, &got);
    __atomic_fetch_add(&chain_step, 1, __ATOMIC_RELEASE);
    sleep_ms(20);
    chain_unlock(&inner, SITE_rear, got);
    sink = round;
}

static void *chain_thread(void *number)
{
    static void (*const bodies[])(int) = {front, middle, rear};
    for (int i = 0; i < rounds; i++) {
        begin_round();
        bodies[(long)number](i);
        // Nobody reads the round while it changes.
        begin_round();
        if (!number)
            chain_round++;
    }
    return NULL;
}

// A long way to the lock: four functions, of which one has a frame of variable size, and in between a signal handler.
SITE(fourth)(int n)
{
    victim();
    sink = n;
}

SITE(handling)(int signal)
{
    fourth(signal);
    sink = signal;
}

SITE(third)(int n)
{
    volatile char *some = __builtin_alloca((size_t)n * 16);
    some[0] = 1;
    raise(SIGUSR2);
    sink = some[0];
}

SITE(second)(int n)
{
    third(n + 1);
    sink = n;
}

SITE(first)(int n)
{
    second(n + 1);
    sink = n;
}

static void *deep_thread(void *number)
{
    if (number) {
        wait_for_holder(0);
        first(1);
    } else {
        culprit();
    }
    return NULL;
}

// Stacks that begin alike: each function makes two mutexes at one place, and between them the others make some.
static pthread_mutex_t *births;

SITE(left)(int n)
{
    pthread_mutex_init(&births[n], NULL);
    sink = n;
}

SITE(right)(int n)
{
    volatile char some[256];
    some[n] = 1;
    pthread_mutex_init(&births[n], NULL);
    sink = some[n];
}

SITE(trunk)(int n)
{
    left(n);
    right(n + 1);
    sink = n;
}

static void make_in_turn(void)
{
    // The compiler must not unroll the loop: each place in it is one.
    volatile int times = 2;
    births = calloc(8, sizeof *births);
    for (int i = 0; i < times; i++) {
        trunk(4 * i);
        pthread_mutex_init(&births[4 * i + 2], NULL);
    }
    printf("count 2 instances\n");
    report();
}

// A reader and a writer, each of which comes first in half of the rounds.
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

SITE(reader)(void)
{
    uint64_t start = now();
    pthread_rwlock_rdlock(&rwlock);
    uint64_t got = now();
    has_lock();
    sleep_ms(20);
    uint64_t end = now();
    pthread_rwlock_unlock(&rwlock);
    note(&rwlock, start, got, SITE_reader, 0);
    note(&rwlock, got, end, SITE_reader, 1);
}

SITE(writer)(void)
{
    uint64_t start = now();
    pthread_rwlock_wrlock(&rwlock);
    uint64_t got = now();
    has_lock();
    sleep_ms(20);
    uint64_t end = now();
    pthread_rwlock_unlock(&rwlock);
    note(&rwlock, start, got, SITE_writer, 0);
    note(&rwlock, got, end, SITE_writer, 1);
}

static void *rwlock_thread(void *number)
{
    for (int i = 0; i < rounds; i++) {
        begin_round();
        if (i % 2 == !number)
            wait_for_holder(2 * i);
        if (number)
            reader();
        else
            writer();
    }
    return NULL;
}

// Readers that are inside together: each comes when those before it are inside.
SITE(inside)(int number)
{
    wait_for_holder(number - 1);
    pthread_rwlock_rdlock(&rwlock);
    uint64_t start = now();
    has_lock();
    wait_for_holder(5);
    sleep_ms(20);
    uint64_t end = now();
    pthread_rwlock_unlock(&rwlock);
    note(&rwlock, start, end, SITE_inside, 1);
}

static void *inside_thread(void *number)
{
    inside((int)(long)number);
    return NULL;
}

// Readers of which each comes when the one before it has left.
static void *single_thread(void *number)
{
    wait_for_holder((int)(long)number - 1);
    // The last times there is nothing to record but their number.
    for (int i = 0; i < 20; i++) {
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
    }
    has_lock();
    // What a thread has counted stays where it is until the thread has ended.
    wait_for_holder(5);
    return NULL;
}

// A writer waits for long, while a reader comes and goes (glibc prefers readers).
static void *starved_thread(void *unused)
{
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    return unused;
}

static void starved(void)
{
    pthread_t writer;
    pthread_rwlock_rdlock(&rwlock);
    pthread_create(&writer, NULL, starved_thread, NULL);
    sleep_ms(20);
    for (int i = 0; i < 100000; i++) {
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
    }
    pthread_rwlock_unlock(&rwlock);
    pthread_join(writer, NULL);
}

// Of two threads, each holds a mutex for a moment again and again, and now and then for a millisecond. A third one waits.
static uint64_t rare_until;

SITE(often)(void)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 100; i++)
        sink = i;
    pthread_mutex_unlock(&mutex);
}

SITE(rarely)(void)
{
    pthread_mutex_lock(&mutex);
    uint64_t start = now();
    sleep_ms(1);
    uint64_t end = now();
    pthread_mutex_unlock(&mutex);
    note(&mutex, start, end, SITE_rarely, 1);
}

static void *rare_thread(void *number)
{
    unsigned random = 1 + (unsigned)(long)number;
    while (now() < rare_until) {
        if (number == NULL) {
            victim();
            usleep(300);
            continue;
        }
        random = random * 1103515245u + 12345u;
        if ((random >> 16) % 200)
            often();
        else
            rarely();
        for (int i = 0; i < 100; i++)
            sink = i;
    }
    return NULL;
}

// One reader holds a rwlock for 50 ms at a time, another one for a moment again and again. A writer waits for the first one.
static int scans_over;

SITE(scanning)(void)
{
    pthread_rwlock_rdlock(&rwlock);
    uint64_t start = now();
    sleep_ms(50);
    uint64_t end = now();
    pthread_rwlock_unlock(&rwlock);
    note(&rwlock, start, end, SITE_scanning, 1);
}

SITE(looking)(void)
{
    pthread_rwlock_rdlock(&rwlock);
    sink = 1;
    pthread_rwlock_unlock(&rwlock);
}

SITE(updating)(void)
{
    uint64_t start = now();
    pthread_rwlock_wrlock(&rwlock);
    uint64_t got = now();
    pthread_rwlock_unlock(&rwlock);
    note(&rwlock, start, got, SITE_updating, 0);
}

static void *scan_thread(void *number)
{
    if (number == NULL) {
        for (int i = 0; i < 12; i++) {
            sleep_ms(10);
            updating();
        }
        __atomic_store_n(&scans_over, 1, __ATOMIC_RELAXED);
    }
    while (!__atomic_load_n(&scans_over, __ATOMIC_RELAXED)) {
        if ((long)number == 1)
            scanning();
        else
            looking();
        usleep((long)number == 1 ? 5000 : 50);
    }
    return NULL;
}

// Many call paths take the lock a few times, and then one holds it again and again.
SITE(branch)(int depth)
{
    if (depth)
        branch(depth - 1);
    else {
        uint64_t start = lock(SITE_branch);
        usleep(500);
        uint64_t end = now();
        unlock();
        note(&mutex, start, end, SITE_branch, 1);
    }
    sink = depth;
}

static void *paths_thread(void *unused)
{
    for (int i = 0; i < 20; i++)
        branch(i % 10);
    for (int i = 0; i < 8; i++)
        culprit();
    return unused;
}

// Threads that take a lock as fast as they can: most of their waits are short, and only a part of them is looked at closely.
static long taken;
static int busy_rounds;

// Nobody reads. A few of the sections let the others run, which wait then.
static void *writing_thread(void *unused)
{
    for (uint64_t end = now() + 200000000; now() < end;) {
        pthread_rwlock_wrlock(&rwlock);
        if (++taken % 16 == 0)
            sched_yield();
        pthread_rwlock_unlock(&rwlock);
    }
    return unused;
}

static void *busy_thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < busy_rounds; i++) {
        pthread_mutex_lock(&mutex);
        taken++;
        pthread_mutex_unlock(&mutex);
        if (i % 4 == 0) {
            pthread_rwlock_rdlock(&rwlock);
            pthread_rwlock_unlock(&rwlock);
        } else if (i % 64 == 1) {
            pthread_rwlock_wrlock(&rwlock);
            taken++;
            pthread_rwlock_unlock(&rwlock);
        }
    }
    return NULL;
}

// A lock that goes from one thread to the other after so many acquisitions. Nobody waits for it.
static int turn, batch, change_cpu;

static void *turns_thread(void *number)
{
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    int wanted = change_cpu ? (int)(long)number : 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && wanted-- == 0)
            CPU_SET(cpu, &one);
    // With one processor, the second thread stays where it is.
    if (CPU_COUNT(&one))
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    for (int i = 0; i < 20000 / batch; i++) {
        // Asleep: a thread that yields would wait for the other programs of a busy machine, at each turn.
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != (int)(long)number)
            syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !number, NULL);
        for (int j = 0; j < batch; j++) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
        }
        __atomic_store_n(&turn, !number, __ATOMIC_RELEASE);
        syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1);
    }
    return NULL;
}

static void turns(const char *how_many, const char *where)
{
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    batch = atoi(how_many);
    change_cpu = !strcmp(where, "apart") && CPU_COUNT(&allowed) > 1;
    parallel(2, turns_thread);
    printf("count 40000 acquisitions\ncount %d apart\n", change_cpu);
}

// Ten thousand threads, all alive at one time.
static int arrived, leave_now;

static void *one_of_many(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    arrived++;
    while (!leave_now)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void many_threads(void)
{
    enum { WANTED = 10000 };
    static pthread_t threads[WANTED];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 10);
    int made = 0;
    while (made < WANTED && pthread_create(&threads[made], &attr, one_of_many, NULL) == 0)
        made++;
    for (int all = 0; !all; usleep(1000)) {
        pthread_mutex_lock(&mutex);
        all = leave_now = arrived == made;
        pthread_mutex_unlock(&mutex);
    }
    pthread_cond_broadcast(&cond);
    for (int i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    printf("count %d threads\n", made);
}

// Workers that have nothing to do.
static int jobs, over;
static uint64_t idle;

static void *pool_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    while (!over) {
        uint64_t start = now();
        pthread_cond_wait(&cond, &mutex);
        idle += now() - start;
        if (jobs)
            jobs--;
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void *boss_thread(void *number)
{
    if (number)
        return pool_thread(number);
    for (int i = 0; i < 20; i++) {
        sleep_ms(10);
        pthread_mutex_lock(&mutex);
        jobs++;
        over = i == 19;
        pthread_mutex_unlock(&mutex);
        if (over)
            pthread_cond_broadcast(&cond);
        else
            pthread_cond_signal(&cond);
    }
    return NULL;
}

// Threads that all wait for one event, and then hold the mutex one after another.
static int events;

static void *herd_thread(void *number)
{
    if (number == NULL) {
        for (int i = 0; i < 10; i++) {
            sleep_ms(50);
            pthread_mutex_lock(&mutex);
            events++;
            pthread_cond_broadcast(&cond);
            pthread_mutex_unlock(&mutex);
        }
        return NULL;
    }
    pthread_mutex_lock(&mutex);
    for (int seen = 0; seen < 10; seen = events) {
        while (events == seen) {
            uint64_t start = now();
            pthread_cond_wait(&cond, &mutex);
            idle += now() - start;
        }
        sleep_ms(5);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

// A thread waits for a condition, takes the mutex again and holds it for a millisecond. Another one waits for the mutex: in every
// second round it comes when the mutex has been taken again, in the others while the thread that signals holds it.
static int woken_rounds = 60, signalled, at_condition;

SITE(woken)(void)
{
    pthread_mutex_lock(&mutex);
    at_condition = 1;
    while (!signalled)
        pthread_cond_wait(&cond, &mutex);
    uint64_t start = now();
    signalled = 0;
    has_lock();
    sleep_ms(1);
    uint64_t end = now();
    pthread_mutex_unlock(&mutex);
    note(&mutex, start, end, SITE_woken, 1);
}

SITE(telling)(int early)
{
    for (int waits = 0; !waits; usleep(50)) {
        pthread_mutex_lock(&mutex);
        waits = at_condition;
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    uint64_t start = now();
    at_condition = 0;
    signalled = 1;
    if (early)
        has_lock();
    sleep_ms(1);
    pthread_cond_signal(&cond);
    uint64_t end = now();
    pthread_mutex_unlock(&mutex);
    note(&mutex, start, end, SITE_telling, 1);
    sink = early;
}

static void *woken_thread(void *number)
{
    for (int i = 0; i < woken_rounds; i++) {
        begin_round();
        if (!number)
            woken();
        else if ((long)number == 1)
            telling(i % 2);
        else {
            wait_for_holder(i + i / 2);
            victim();
        }
    }
    return NULL;
}

// A thread waits for a condition. Another one takes the mutex and keeps it for long, while a third one signals the first. (If the holder
// signalled it, it would wake at the unlock.)
static uint64_t kept;
static pthread_barrier_t keeps;

static void *signalling_thread(void *unused)
{
    for (int i = 0; i < rounds; i++) {
        pthread_barrier_wait(&keeps);
        pthread_cond_signal(&cond);
    }
    return unused;
}

SITE(keeping)(void)
{
    for (int waits = 0; !waits; usleep(50)) {
        pthread_mutex_lock(&mutex);
        waits = at_condition;
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    at_condition = 0;
    signalled = 1;
    pthread_barrier_wait(&keeps);
    uint64_t start = now();
    sleep_ms(20);
    kept += now() - start;
    pthread_mutex_unlock(&mutex);
    sink = 1;
}

static void *keeping_thread(void *number)
{
    for (int i = 0; i < rounds; i++) {
        begin_round();
        if (number)
            keeping();
        else
            woken();
    }
    return NULL;
}

// A thread takes a mutex. A second thread waits for it, and a third one releases it, and then takes it for itself.
static void *passing_thread(void *number)
{
    for (int i = 0; i < 4; i++) {
        if (!number)
            pthread_mutex_lock(&mutex);
        begin_round();
        if ((long)number == 1) {
            sleep_ms(10);
            pthread_mutex_unlock(&mutex);
        }
        if (number) {
            pthread_mutex_lock(&mutex);
            sleep_ms(1);
            pthread_mutex_unlock(&mutex);
        }
        begin_round();
    }
    return NULL;
}

// Another thread releases a mutex so often that the thread that takes it measures no more of its holds. Later that thread takes it for a
// moment, and releases it itself.
static void *returning_thread(void *number)
{
    for (int i = 0; i < rounds; i++) {
        if (!number)
            pthread_mutex_lock(&mutex);
        begin_round();
        if (number)
            pthread_mutex_unlock(&mutex);
        begin_round();
    }
    if (!number) {
        sleep_ms(50);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

// Threads that work for long before they take their first lock.
static uint64_t lived;

static void *newcomer_thread(void *unused)
{
    uint64_t start = now();
    sleep_ms(700);
    pthread_mutex_lock(&mutex);
    lived += now() - start;
    pthread_mutex_unlock(&mutex);
    return unused;
}

// A producer and a consumer.
static sem_t semaphore;
static int interruptions;

static void *sem_thread(void *number)
{
    for (int i = 0; i < 20; i++) {
        if (!number) {
            sleep_ms(10);
            sem_post(&semaphore);
            continue;
        }
        uint64_t start = now();
        while (sem_wait(&semaphore))
            interruptions++;
        idle += now() - start;
    }
    return NULL;
}

// A semaphore that serves as a lock.
static void *unit_thread(void *unused)
{
    for (int i = 0; i < 20; i++) {
        uint64_t start = now();
        sem_wait(&semaphore);
        __atomic_fetch_add(&idle, now() - start, __ATOMIC_RELAXED);
        sleep_ms(2);
        sem_post(&semaphore);
        sleep_ms(1);
    }
    return unused;
}

static void count_nothing(int signal) { (void)signal; }

// Each millisecond, a signal interrupts one of the threads that wait.
static void interrupt(void)
{
    struct sigaction action = {.sa_handler = count_nothing};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

// A call that gives up, twice: the holder acquired the lock before it, and among waiting threads.
static void *late_thread(void *number)
{
    if (!number) {
        culprit();
        culprit();
        return NULL;
    }
    wait_for_holder(0);
    for (int i = 0; i < 2; i++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 10000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        uint64_t start = now();
        int error = pthread_mutex_timedlock(&mutex, &until);
        idle += now() - start;
        if (error == 0)
            pthread_mutex_unlock(&mutex);
        else if (error == ETIMEDOUT)
            jobs++;
        else
            abort();
    }
    return NULL;
}

// Waits for a condition and for a unit that end at their deadlines.
static void expired(void)
{
    struct timespec past = {0, 0};
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 3; i++)
        if (pthread_cond_timedwait(&cond, &mutex, &past) != ETIMEDOUT)
            abort();
    pthread_mutex_unlock(&mutex);
    sem_init(&semaphore, 0, 0);
    for (int i = 0; i < 5; i++)
        if (sem_timedwait(&semaphore, &past) == 0 || errno != ETIMEDOUT)
            abort();
    puts("count 3 conditions\ncount 5 units");
}

// Uncontended calls of every sort.
static pthread_mutex_t own[4];
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;

static void *count_thread(void *number)
{
    pthread_mutex_t *mine = &own[(long)number];
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(mine);
        pthread_mutex_unlock(mine);
        if (pthread_mutex_trylock(&held) != EBUSY)
            abort();
        if (pthread_rwlock_tryrdlock(&shared) != 0)
            abort();
        pthread_rwlock_unlock(&shared);
    }
    return NULL;
}

static void counts(void)
{
    for (int i = 0; i < 4; i++)
        pthread_mutex_init(&own[i], NULL);
    pthread_mutex_lock(&held);
    parallel(4, count_thread);
    pthread_mutex_unlock(&held);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_t recursive;
    pthread_mutex_init(&recursive, &attr);
    uint64_t start = 0, longest = 0;
    for (int i = 0; i < 3; i++) {
        pthread_mutex_lock(&recursive);
        if (i == 0)
            start = now();
    }
    for (int i = 0; i < 3; i++) {
        sleep_ms(5);
        if (i == 2)
            longest = now() - start;
        pthread_mutex_unlock(&recursive);
    }
    pthread_mutex_destroy(&recursive);
    printf("count %d acquisitions\ncount %d reads\ncount %d nested\ncount %d failed\ntime %lu longest\n",
           40000 + 1 + 3 + 40000, 40000, 2, 40000, longest);
    fflush(stdout);
}

// Locks that live shortly.
static void instances(void)
{
    enum { MANY = 1000000, TOGETHER = 1000 };
    pthread_mutex_t **some = malloc(TOGETHER * sizeof *some);
    for (int i = 0; i < MANY / TOGETHER; i++) {
        for (int j = 0; j < TOGETHER; j++) {
            some[j] = malloc(sizeof **some);
            pthread_mutex_init(some[j], NULL);
            pthread_mutex_lock(some[j]);
            pthread_mutex_unlock(some[j]);
        }
        for (int j = 0; j < TOGETHER; j++) {
            pthread_mutex_destroy(some[j]);
            free(some[j]);
        }
    }
    free(some);
    printf("count %d acquisitions\ncount %d instances\n", MANY, MANY);
    fflush(stdout);
}

// One hot lock among a thousand of one class.
static pthread_mutex_t *crowd;

// Three threads share lock 617, and each has a third of the others for itself.
static void *crowd_thread(void *number)
{
    begin_round();
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_t *one = &crowd[i % 10 == 0 ? 617 : i];
        if (one != &crowd[617] && i % 3 != (long)number)
            continue;
        pthread_mutex_lock(one);
        if (i % 10 == 0)
            usleep(200);
        pthread_mutex_unlock(one);
    }
    return NULL;
}

// Code of a just-in-time compiler: no description, and any value in the register for frame pointers.
static void *jit_thread(void *unused)
{
    (void)unused;
    // push rbp; mov rbp, rsi; call rdx; pop rbp; ret
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd2, 0x5d, 0xc3};
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    int (*call)(void *, uintptr_t, int (*)(pthread_mutex_t *));
    memcpy(&call, &page, sizeof call);
    static const uintptr_t pointers[] = {0, 1, 0x1000, UINTPTR_MAX - 7, 0x7fffffffe000, UINTPTR_MAX / 2};
    for (int i = 0; i < 600; i++) {
        uintptr_t pointer = pointers[i % 6];
        if (i % 7 == 0) // into the stack, far above
            pointer = (uintptr_t)&pointer + 8 * (uintptr_t)(i * 100);
        call(&mutex, pointer, pthread_mutex_lock);
        if (i % 50 == 0)
            usleep(500);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static ucontext_t back, coroutine;

static void on_own_stack(void)
{
    jit_thread(NULL);
}

static void run_coroutine(char *stack, size_t bytes, void (*body)(void))
{
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = bytes;
    coroutine.uc_link = &back;
    makecontext(&coroutine, body, 0);
    swapcontext(&back, &coroutine);
}

static __attribute__((noinline)) void make_mutex(void)
{
    pthread_mutex_t made;
    pthread_mutex_init(&made, NULL);
    pthread_mutex_lock(&made);
    pthread_mutex_unlock(&made);
    pthread_mutex_destroy(&made);
}

static void make_far_below(void)
{
    volatile char room[1000];
    room[0] = 1;
    make_mutex();
    sink = room[0];
}

static void make_near_the_top(void)
{
    make_mutex();
    sink = 1;
}

// Waits at this place in the stack, however large the stack is above it.
static char *place;

static void wait_at_place(void)
{
    volatile char *here = (volatile char *)&here;
    volatile char *room = __builtin_alloca((size_t)(here - place));
    room[0] = 1;
    struct timespec past = {0, 0};
    pthread_mutex_lock(&mutex);
    pthread_cond_timedwait(&cond, &mutex, &past);
    pthread_mutex_unlock(&mutex);
    sink = room[0];
}

// A coroutine's stack takes the place of another one's, and ends where that one went on.
static void successive_stacks(void)
{
    enum { UPPER = 64 << 10, LOWER = 64 << 10 };
    void (*bodies[][2])(void) = {{make_far_below, make_near_the_top}, {wait_at_place, wait_at_place}};
    for (int i = 0; i < 2; i++) {
        char *stack = mmap(NULL, LOWER + UPPER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        place = stack + LOWER - 1024;
        run_coroutine(stack, LOWER + (i ? UPPER : 0), bodies[i][0]);
        munmap(stack + LOWER, UPPER);
        run_coroutine(stack, LOWER, bodies[i][1]);
        munmap(stack, LOWER);
    }
}

static void *coroutine_thread(void *number)
{
    if (!number) {
        successive_stacks();
        // A stack whose first and last pages end at pages that cannot be read.
        char *stack = mmap(NULL, 4096 * 18, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(stack + 4096, 4096 * 16, PROT_READ | PROT_WRITE);
        run_coroutine(stack + 4096, 4096 * 16, on_own_stack);
        return NULL;
    }
    return jit_thread(NULL);
}

// Threads lock and unlock, and signal handlers come in between and do the same.
static pthread_mutex_t in_handler = PTHREAD_MUTEX_INITIALIZER;

static void handler(int signal)
{
    (void)signal;
    if (pthread_mutex_trylock(&in_handler) == 0)
        pthread_mutex_unlock(&in_handler);
}

static void *signal_thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_lock(&mutex);
        if (i % 8 == 0)
            pthread_kill(pthread_self(), SIGUSR1);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *short_thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < 40; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "blame")) {
        blame(8);
    } else if (!strcmp(mode, "nested")) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&mutex, &attr);
        nested = 1;
        blame(3);
    } else if (!strcmp(mode, "hundred")) {
        blame(100);
    } else if (!strcmp(mode, "apart")) {
        parallel(2, apart_thread);
        report();
    } else if (!strcmp(mode, "chain")) {
        pthread_barrier_init(&ready, NULL, 3);
        parallel(3, chain_thread);
        report();
    } else if (!strcmp(mode, "inside")) {
        parallel(6, inside_thread);
        printf("count 6 readers\n");
        report();
    } else if (!strcmp(mode, "single")) {
        parallel(6, single_thread);
    } else if (!strcmp(mode, "rare")) {
        rare_until = now() + 600000000;
        parallel(3, rare_thread);
        report();
    } else if (!strcmp(mode, "scan")) {
        parallel(3, scan_thread);
        report();
    } else if (!strcmp(mode, "paths")) {
        parallel(2, paths_thread);
        report();
    } else if (!strcmp(mode, "writers")) {
        parallel(4, writing_thread);
    } else if (!strcmp(mode, "busy")) {
        busy_rounds = atoi(argv[2]);
        parallel(6, busy_thread);
        printf("count %d acquisitions\n", 6 * busy_rounds);
        printf("count %d reads\ncount %d writes\n", 6 * ((busy_rounds + 3) / 4), 6 * ((busy_rounds + 62) / 64));
    } else if (!strcmp(mode, "turns")) {
        turns(argv[2], argv[3]);
    } else if (!strcmp(mode, "many")) {
        many_threads();
    } else if (!strcmp(mode, "spin")) {
        pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
        use_spin = 1;
        blame(3);
    } else if (!strcmp(mode, "births")) {
        make_in_turn();
    } else if (!strcmp(mode, "deep")) {
        signal(SIGUSR2, handling);
        parallel(2, deep_thread);
        report();
    } else if (!strcmp(mode, "rwlock")) {
        pthread_barrier_init(&ready, NULL, 2);
        parallel(2, rwlock_thread);
        printf("count %d acquisitions\ncount %d reads\n", 2 * rounds, rounds);
        report();
    } else if (!strcmp(mode, "starved")) {
        starved();
    } else if (!strcmp(mode, "pool")) {
        parallel(5, boss_thread);
        printf("time %lu idle\ncount 20 notifications\n", idle);
    } else if (!strcmp(mode, "herd")) {
        parallel(6, herd_thread);
        printf("time %lu idle\n", idle);
    } else if (!strcmp(mode, "woken")) {
        pthread_barrier_init(&ready, NULL, 3);
        parallel(3, woken_thread);
        report();
    } else if (!strcmp(mode, "kept")) {
        pthread_t signalling;
        pthread_barrier_init(&ready, NULL, 2);
        pthread_barrier_init(&keeps, NULL, 2);
        pthread_create(&signalling, NULL, signalling_thread, NULL);
        parallel(2, keeping_thread);
        pthread_join(signalling, NULL);
        report();
        printf("time %lu kept\n", kept);
    } else if (!strcmp(mode, "passed")) {
        pthread_barrier_init(&ready, NULL, 3);
        parallel(3, passing_thread);
    } else if (!strcmp(mode, "returned")) {
        pthread_barrier_init(&ready, NULL, 2);
        parallel(2, returning_thread);
    } else if (!strcmp(mode, "newcomers")) {
        parallel(3, newcomer_thread);
        printf("time %lu lived\n", lived);
    } else if (!strcmp(mode, "sem") || !strcmp(mode, "interrupted")) {
        sem_init(&semaphore, 0, 0);
        if (*mode == 'i') {
            interrupt();
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGALRM);
            pthread_sigmask(SIG_BLOCK, &set, NULL); // this thread and the first one
            pthread_t threads[2];
            pthread_create(&threads[0], NULL, sem_thread, NULL);
            pthread_sigmask(SIG_UNBLOCK, &set, NULL);
            pthread_create(&threads[1], NULL, sem_thread, &semaphore);
            pthread_sigmask(SIG_BLOCK, &set, NULL);
            pthread_join(threads[0], NULL);
            pthread_join(threads[1], NULL);
            printf("count %d interruptions\n", interruptions);
        } else
            parallel(2, sem_thread);
        printf("time %lu idle\ncount 20 acquisitions\ncount 20 posts\n", idle);
    } else if (!strcmp(mode, "unit")) {
        sem_init(&semaphore, 0, 1);
        parallel(2, unit_thread);
        printf("time %lu idle\n", idle);
    } else if (!strcmp(mode, "refused")) {
        // Waits with a mutex that the thread does not hold.
        static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
        for (int i = 0; i < 100; i++)
            if (pthread_cond_wait(&cond, &checking) != EPERM)
                return 1;
        pthread_mutex_lock(&checking);
        pthread_mutex_unlock(&checking);
    } else if (!strcmp(mode, "late")) {
        parallel(2, late_thread);
        printf("time %lu wait\ncount %d timeouts\n", idle, jobs);
    } else if (!strcmp(mode, "expired")) {
        expired();
    } else if (!strcmp(mode, "counts")) {
        counts();
    } else if (!strcmp(mode, "instances")) {
        instances();
    } else if (!strcmp(mode, "crowd")) {
        pthread_barrier_init(&ready, NULL, 3);
        crowd = calloc(1000, sizeof *crowd);
        for (int i = 0; i < 1000; i++)
            pthread_mutex_init(&crowd[i], NULL);
        parallel(3, crowd_thread);
        // Each thread takes lock 617 for 100 multiples of ten and for its own number; the 899 others are taken once each.
        printf("count 1202 acquisitions\ncount 1000 instances\n");
    } else if (!strcmp(mode, "jit")) {
        parallel(3, jit_thread);
        printf("count 1800 acquisitions\n");
    } else if (!strcmp(mode, "coroutine")) {
        successive_stacks();
        parallel(2, coroutine_thread);
        printf("count 1212 acquisitions\n");
    } else if (!strcmp(mode, "signals")) {
        struct sigaction action = {.sa_handler = handler};
        sigaction(SIGUSR1, &action, NULL);
        parallel(3, signal_thread);
    } else if (!strcmp(mode, "threads")) {
        for (int i = 0; i < 100; i++)
            parallel(20, short_thread);
        printf("count 80000 acquisitions\n");
    } else if (!strcmp(mode, "kill")) {
        blame(4);
        raise(SIGKILL);
    } else if (!strcmp(mode, "family")) {
        // The parent forks a child, which becomes another program: three recordings, one for each.
        pthread_mutex_lock(&mutex);
        pid_t child = fork();
        if (child == 0) {
            pthread_mutex_unlock(&mutex);
            short_thread(NULL);
            execl("/proc/self/exe", argv[0], "crowd", NULL);
            abort();
        }
        pthread_mutex_unlock(&mutex);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            abort();
    } else if (!strcmp(mode, "unnoticed")) {
        // Children that no fork handler runs in, of which the second one ends in order: a recording for each.
        for (int i = 0; i < 2; i++) {
            pthread_mutex_lock(&mutex);
            fflush(stdout);
            pid_t child = i ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();
            pthread_mutex_unlock(&mutex);
            if (child == 0) {
                short_thread(NULL);
                if (i)
                    exit(0);
                _exit(0);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status != 0)
                abort();
            usleep(1000);
        }
    } else {
        return 2;
    }
    puts("ok");
    return 0;
}
