#include <latchwork.h>

int main(void) {
    static lw_mutex_t mutex;
    lw_mutex_lock(&mutex);
    lw_mutex_unlock_fair(&mutex);
    lw_rcu_read_lock();
    lw_rcu_read_unlock();
    lw_rcu_synchronize();
    return 0;
}
