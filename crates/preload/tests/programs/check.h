/* What every test program needs. A program checks itself: it exits with 0 and prints "ok", or says
   on stderr what was wrong. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);       \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

#define EQ(got, want)                                                                       \
    do {                                                                                    \
        long got_ = (long)(got), want_ = (long)(want);                                      \
        if (got_ != want_) {                                                                \
            fprintf(stderr, "%s:%d: %s is %ld, should be %ld\n", __FILE__, __LINE__, #got,  \
                    got_, want_);                                                           \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

#define OK(call) EQ(call, 0)

/* Whether a family is served by us, for what glibc cannot do. BRAVO over glibc's own lock (bravo-glibc, bravo-2d-glibc)
   cannot do it either. */
static inline int ours(const char *variable)
{
    const char *name = getenv(variable);
    const char *last = name ? strrchr(name, '-') : NULL;
    return name && *name && strcmp(last ? last + 1 : name, "glibc") != 0;
}
#define OUR_MUTEX ours("LATCHWORK_MUTEX")
#define OUR_RWLOCK ours("LATCHWORK_RWLOCK")

/* Now plus some milliseconds. */
static inline struct timespec in_ms(clockid_t clock, long ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += (ms % 1000) * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* Whether this time is over. */
static inline int has_passed(clockid_t clock, struct timespec t)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec > t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec);
}

static inline void sleep_ms(long ms)
{
    struct timespec t = { ms / 1000, (ms % 1000) * 1000000 };
    nanosleep(&t, NULL);
}

static inline pthread_t start(void *(*f)(void *), void *argument)
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, f, argument));
    return thread;
}

static inline void *join(pthread_t thread)
{
    void *result = NULL;
    OK(pthread_join(thread, &result));
    return result;
}

/* Pages of memory that this process has. */
static inline long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident;
}

/* Waits for a child, which must exit with 0. */
static inline void reap(pid_t child)
{
    int status = -1;
    CHECK(child > 0);
    EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    EQ(WEXITSTATUS(status), 0);
}

#endif
