#include <latchwork.h>

static lw_seqlock_t lock;
static uint64_t position[2];

int main(void) {
    uint64_t copy[2], moved[2] = {3, 4};
    lw_seqlock_write_lock(&lock);
    lw_seqlock_store(&lock, position, moved, 2);
    lw_seqlock_write_unlock(&lock);
    lw_seqlock_read(&lock, copy, position, 2);
    return copy[0] == 3 && copy[1] == 4 ? 0 : 1;
}
