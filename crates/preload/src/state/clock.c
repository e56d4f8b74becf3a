/* The linker puts this function in the place of each `clock_gettime` that this library calls (`--wrap`, in build.rs). */

#include <time.h>

/* In clock.rs. */
int latchwork_clock(clockid_t, struct timespec *);

int __wrap_clock_gettime(clockid_t, struct timespec *);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    return latchwork_clock(clock, time);
}
