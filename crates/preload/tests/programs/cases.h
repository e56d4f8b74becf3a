/* A program made of cases, each of which prints what the pthread functions did. The same binary runs with glibc's
   locks and with latchwork's, and tests/programs/semantics.rs compares what it prints.

   Each case runs in a process of its own. If one hangs, a watchdog ends it, and that is one line of the output. */
#ifndef CASES_H
#define CASES_H

#include "check.h"
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>

struct test {
    const char *name;
    void (*run)(void);
};

static const char *this_case;

/* Prints a line of the case, in one piece: threads may print at the same time. */
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    flockfile(stdout);
    printf("%s: ", this_case);
    vprintf(format, list);
    putchar('\n');
    fflush(stdout);
    funlockfile(stdout);
    va_end(list);
}

/* Prints what a call returned. */
#define SAY(call)                                                                           \
    do {                                                                                    \
        int got_ = (call);                                                                  \
        say("%s = %s", #call, got_ ? strerrorname_np(got_) : "0");                          \
    } while (0)

/* Whether a thread of this process sleeps, or has ended. */
static inline int sleeps(pid_t thread)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            state = 'X';
        fclose(f);
    }
    return strchr("SZX", state) != NULL;
}

/* Nanoseconds of processor time that a thread has had, or -1 if it has ended. */
static inline long ran(pthread_t thread)
{
    clockid_t clock;
    struct timespec time;
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &time))
        return -1;
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* A thread that has run for so long since it came to a lock waits for it, and spins. */
enum { SPINS_NS = 5000000 };

/* Far longer than any case takes, on a machine that is busy. */
enum { WATCHDOG_SECONDS = 120 };

/* Runs the case that is named, or all of them. */
static inline int run_cases(const struct test *tests, int count, int arguments, char **argument)
{
    for (int i = 0; i < count; i++) {
        if (arguments > 1) {
            if (strcmp(argument[1], tests[i].name) != 0)
                continue;
            this_case = tests[i].name;
            alarm(WATCHDOG_SECONDS);
            tests[i].run();
            return 0;
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            execl("/proc/self/exe", argument[0], tests[i].name, (char *)NULL);
            _exit(127);
        }
        int status;
        EQ(waitpid(child, &status, 0), child);
        this_case = tests[i].name;
        if (WIFSIGNALED(status))
            say(WTERMSIG(status) == SIGALRM ? "hangs" : "killed by signal %d", WTERMSIG(status));
        else if (WEXITSTATUS(status))
            say("exits with %d", WEXITSTATUS(status));
    }
    return 0;
}

#define RUN_CASES(tests, arguments, argument) \
    run_cases(tests, sizeof tests / sizeof *tests, arguments, argument)

/* Runs a statement, which uses no local variables, in a thread of its own, and joins it. The next thread gets the same
   control block and stack from glibc. */
#define IN_A_THREAD(statement)                                                              \
    do {                                                                                    \
        void *body_(void *argument_)                                                        \
        {                                                                                   \
            (void)argument_;                                                                \
            statement;                                                                      \
            return NULL;                                                                    \
        }                                                                                   \
        join(start(body_, NULL));                                                           \
    } while (0)

#endif
