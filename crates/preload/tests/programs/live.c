/* A program that is recorded while it runs: live.rs switches the recording on and off.

   "torture": threads use locks of all families, and the main thread forks, until standard input ends. Counters show whether
   the locks exclude.

   "steps": each byte of standard input is a step, and the answer to it is "ok". */

#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t units;
static pthread_mutex_t work_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static int work_left;
/* Which no other thread holds when the main thread forks. */
static pthread_mutex_t of_main = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;

/* Each is changed under one lock, and by adding 1 to both halves. */
static struct pair { volatile long first, second; } by_mutex, by_recursive, by_rwlock, by_spin;

static void add(struct pair *pair)
{
    CHECK(pair->first == pair->second);
    pair->first++;
    pair->second++;
}

static void *use(void *seed)
{
    unsigned random = (unsigned)(size_t)seed;
    while (!stop) {
        random = random * 1103515245 + 12345;
        switch (random >> 16 & 7) {
        case 0:
        case 1:
            OK(pthread_mutex_lock(&mutex));
            add(&by_mutex);
            OK(pthread_mutex_unlock(&mutex));
            break;
        case 2:
            OK(pthread_mutex_lock(&recursive));
            OK(pthread_mutex_lock(&recursive));
            add(&by_recursive);
            OK(pthread_mutex_unlock(&recursive));
            OK(pthread_mutex_unlock(&recursive));
            break;
        case 3:
            OK(pthread_rwlock_rdlock(&rwlock));
            CHECK(by_rwlock.first == by_rwlock.second);
            OK(pthread_rwlock_unlock(&rwlock));
            break;
        case 4:
            if (random >> 20 & 15)
                break;
            OK(pthread_rwlock_wrlock(&rwlock));
            add(&by_rwlock);
            OK(pthread_rwlock_unlock(&rwlock));
            break;
        case 5:
            OK(pthread_spin_lock(&spin));
            add(&by_spin);
            OK(pthread_spin_unlock(&spin));
            break;
        case 6:
            OK(sem_wait(&units));
            OK(sem_post(&units));
            break;
        default: {
            pthread_mutex_t local;
            OK(pthread_mutex_init(&local, 0));
            OK(pthread_mutex_lock(&local));
            OK(pthread_mutex_unlock(&local));
            OK(pthread_mutex_destroy(&local));
            OK(pthread_mutex_lock(&work_mutex));
            work_left++;
            OK(pthread_cond_signal(&work));
            OK(pthread_mutex_unlock(&work_mutex));
        }
        }
    }
    return 0;
}

static void *wait_for_work(void *unused)
{
    OK(pthread_mutex_lock(&work_mutex));
    while (!stop) {
        while (!work_left && !stop)
            OK(pthread_cond_wait(&work, &work_mutex));
        work_left = 0;
    }
    OK(pthread_mutex_unlock(&work_mutex));
    return unused;
}

/* Whether standard input has ended, or holds a byte. */
static int told(int wait)
{
    struct pollfd input = { .fd = 0, .events = POLLIN };
    return poll(&input, 1, wait) > 0;
}

static void torture(void)
{
    enum { USERS = 4, WAITERS = 2 };
    pthread_t threads[USERS + WAITERS];
    OK(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    OK(sem_init(&units, 0, 2));
    for (int i = 0; i < USERS + WAITERS; i++)
        OK(pthread_create(&threads[i], 0, i < USERS ? use : wait_for_work, (void *)(size_t)i));
    for (int round = 0; !told(1); round++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int i = 0; i < 100; i++) {
                OK(pthread_mutex_lock(&of_main));
                OK(pthread_mutex_unlock(&of_main));
            }
            if (round % 2)
                execl("/bin/true", "true", (char *)0);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    OK(pthread_mutex_lock(&work_mutex));
    OK(pthread_cond_broadcast(&work));
    OK(pthread_mutex_unlock(&work_mutex));
    for (int i = 0; i < USERS + WAITERS; i++)
        OK(pthread_join(threads[i], 0));
    CHECK(by_mutex.first == by_mutex.second && by_spin.first == by_spin.second);
}

/* The thread that is about to wait for the mutex. */
static pid_t about_to_wait;
static void *wait_once(void *unused)
{
    __atomic_store_n(&about_to_wait, gettid(), __ATOMIC_RELEASE);
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    return unused;
}

static long cpu_time(clockid_t clock)
{
    struct timespec time;
    OK(clock_gettime(clock, &time));
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Starts such a thread. When this returns, it waits: it sleeps, or it has run for some milliseconds, if it spins. */
static pthread_t start_waiting(void)
{
    pthread_t waiter;
    clockid_t clock;
    pid_t number;
    about_to_wait = 0;
    OK(pthread_create(&waiter, 0, wait_once, 0));
    OK(pthread_getcpuclockid(waiter, &clock));
    while ((number = __atomic_load_n(&about_to_wait, __ATOMIC_ACQUIRE)) == 0)
        usleep(100);
    for (long begin = cpu_time(clock); cpu_time(clock) - begin < 5000000; usleep(100)) {
        char path[64], text[256] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
        int file = open(path, O_RDONLY);
        CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
        OK(close(file));
        const char *name = strrchr(text, ')');
        if (name && name[2] == 'S')
            break;
    }
    return waiter;
}

/* Reads, and stays there. */
static int idle;
static void *read_once(void *unused)
{
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    __atomic_store_n(&idle, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
    return unused;
}

static void *write_once(void *unused)
{
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    return unused;
}

/* What liblatchwork finds in the preload library for its own locks, and two of these. */
extern int latchwork_observe_acquire(void *, int, int (*)(void *), int (*)(void *), void *) __attribute__((weak));
extern int latchwork_observe_release(void *, int, int (*)(void *), void *) __attribute__((weak));
static char own[2];
static int always(void *unused)
{
    (void)unused;
    return 0;
}

static void steps(void)
{
    pthread_t waiter;
    char step;
    struct timespec far;
    OK(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    OK(clock_gettime(CLOCK_MONOTONIC, &far));
    far.tv_sec += 1000;
    while (read(0, &step, 1) == 1) {
        struct timespec pause = { .tv_nsec = 20000000 };
        switch (step) {
        case 'l': OK(pthread_mutex_lock(&mutex)); break;
        case 'u': OK(pthread_mutex_unlock(&mutex)); break;
        case 'r': OK(pthread_mutex_lock(&recursive)); break;
        case 'R': OK(pthread_mutex_unlock(&recursive)); break;
        case 'w': waiter = start_waiting(); break;
        case 'j': OK(pthread_join(waiter, 0)); break;
        case 'a': OK(pthread_rwlock_rdlock(&rwlock)); break;
        case 'A': OK(pthread_rwlock_unlock(&rwlock)); break;
        case 'i':
            OK(pthread_create(&waiter, 0, read_once, 0));
            while (!__atomic_load_n(&idle, __ATOMIC_ACQUIRE))
                usleep(100);
            break;
        case 'p': OK(pthread_spin_lock(&spin)); break;
        case 'P': OK(pthread_spin_unlock(&spin)); break;
        case 'c': OK(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &far)); break;
        case 't': OK(pthread_mutex_trylock(&mutex)); break;
        case 'b': OK(pthread_rwlock_wrlock(&rwlock)); break;
        case 'f': OK(latchwork_observe_acquire(&own[0], 0, always, always, 0)); break;
        case 'F': OK(latchwork_observe_release(&own[0], 0, always, 0)); break;
        case 'g': OK(latchwork_observe_acquire(&own[1], 0, always, always, 0)); break;
        case 'G': OK(latchwork_observe_release(&own[1], 0, always, 0)); break;
        case 'x': OK(pthread_create(&waiter, 0, write_once, 0)); break;
        case 's': while (nanosleep(&pause, &pause)) {} break;
        default: CHECK(0);
        }
        CHECK(write(1, "ok\n", 3) == 3);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(write(1, "ok\n", 3) == 3);
    if (strcmp(argv[1], "torture") == 0)
        torture();
    else
        steps();
    return 0;
}
