/* A signal handler forks, and uses locks that were never used before, while two threads do nothing but use such locks and end them.
   All of that happens in a forked child, which brings each object up to date at its first use. Every other child of the handler goes on
   with what the handler has interrupted. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

enum { LOCKS = 1024, FORKS = 60 };
static pthread_mutex_t locks[2][LOCKS], of_handler[2 * FORKS + 64];
static int next, forks, goes_on;

static void use(pthread_mutex_t *mutex)
{
    OK(pthread_mutex_lock(mutex));
    OK(pthread_mutex_unlock(mutex));
}

static void use_another(void)
{
    int number = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    if (number < (int)(sizeof of_handler / sizeof *of_handler))
        use(&of_handler[number]);
}

/* Once: between two signals there is time for the program, whatever a fork costs. */
static void later(void)
{
    struct itimerval once = {{0, 0}, {0, 300 + 100 * (forks % 7)}};
    OK(setitimer(ITIMER_REAL, &once, NULL));
}

static void handler(int signal)
{
    (void)signal;
    int before = errno;
    use_another();
    pid_t child = fork();
    if (child == 0) {
        use_another();
        if (forks % 2 == 0)
            _exit(0);
        goes_on = 1;
        errno = before;
        return;
    }
    reap(child);
    if (__atomic_add_fetch(&forks, 1, __ATOMIC_RELAXED) < FORKS)
        later();
    errno = before;
}

static void *body(void *own)
{
    while (__atomic_load_n(&forks, __ATOMIC_RELAXED) < FORKS) {
        memset(own, 0, sizeof locks[0]);
        for (pthread_mutex_t *mutex = own; mutex < (pthread_mutex_t *)own + LOCKS; mutex++) {
            use(mutex);
            OK(pthread_mutex_destroy(mutex));
        }
        if (goes_on)
            _exit(0);
    }
    return NULL;
}

int main(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        OK(sigaction(SIGALRM, &action, NULL));
        pthread_t thread = start(body, locks[0]);
        later();
        body(locks[1]);
        join(thread);
        _exit(0);
    }
    reap(child);
    puts("ok");
    return 0;
}
