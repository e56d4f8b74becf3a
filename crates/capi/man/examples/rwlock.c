#include <latchwork.h>

static lw_rwlock_t lock;
static int table[16];

static int find(int key) {
    lw_rwlock_rdlock(&lock);
    int value = table[key];
    lw_rwlock_rdunlock(&lock);
    return value;
}

int main(void) {
    lw_rwlock_wrlock(&lock);
    table[3] = 7;
    lw_rwlock_downgrade(&lock); /* no writer comes in between */
    int same = table[3];
    lw_rwlock_rdunlock(&lock);
    return find(3) == same ? 0 : 1;
}
