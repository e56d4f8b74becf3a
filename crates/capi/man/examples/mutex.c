#include <latchwork.h>
#include <stdio.h>

static lw_mutex_t lock; /* zero bytes are an unlocked mutex */
static long counter LW_GUARDED_BY(&lock);

int main(void) {
    struct timespec soon = {0, 0};
    clock_gettime(LW_CLOCK_MONOTONIC, &soon);
    soon.tv_sec += 1;
    if (lw_mutex_clocklock(&lock, LW_CLOCK_MONOTONIC, &soon) == 0) {
        counter++;
        lw_mutex_unlock(&lock);
    }
    lw_mutex_lock(&lock);
    printf("%ld\n", counter);
    lw_mutex_unlock(&lock);
    return 0;
}
