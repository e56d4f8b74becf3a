/* Reports of more than 4096 bytes, of which not each can be written. The program notices nothing of them. Its argument: its
   standard error does not block ("nonblock"), or a signal comes while it does ("signal"). */
#include "check.h"
#include <fcntl.h>
#include <signal.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;

/* Its name is in the report often. */
__attribute__((noinline)) static void
take_both_mutexes_in_one_order_or_the_other_with_a_stack_of_many_frames_each_of_which_has_a_long_name(int back, int depth)
{
    if (depth) {
        take_both_mutexes_in_one_order_or_the_other_with_a_stack_of_many_frames_each_of_which_has_a_long_name(
            back, depth - 1);
        __asm__ volatile(""); /* no loop in place of the calls */
        return;
    }
    errno = EXDEV;
    OK(pthread_mutex_lock(back ? &b : &a));
    OK(pthread_mutex_lock(back ? &a : &b));
    EQ(errno, EXDEV);
    OK(pthread_mutex_unlock(&a));
    OK(pthread_mutex_unlock(&b));
}

static void handler(int signal)
{
    (void)signal;
    CHECK(write(1, "!", 1) == 1);
}

int main(int count, char **arguments)
{
    sigset_t before, after, pending;
    CHECK(count == 2);
    if (!strcmp(arguments[1], "nonblock"))
        OK(fcntl(2, F_SETFL, fcntl(2, F_GETFL) | O_NONBLOCK));
    if (!strcmp(arguments[1], "signal")) {
        struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
        OK(sigaction(SIGUSR1, &action, NULL));
    }
    OK(pthread_sigmask(SIG_SETMASK, NULL, &before));
    for (int back = 0; back < 2; back++)
        take_both_mutexes_in_one_order_or_the_other_with_a_stack_of_many_frames_each_of_which_has_a_long_name(back, 12);
    OK(pthread_sigmask(SIG_SETMASK, NULL, &after));
    OK(sigpending(&pending));
    for (int signal = 1; signal < 32; signal++) {
        EQ(sigismember(&after, signal), sigismember(&before, signal));
        EQ(sigismember(&pending, signal), 0);
    }
    puts("ok");
    return 0;
}
