/* Callbacks, and threads that are online. */
#include "check.h"
#include <latchwork.h>

static long calls;
static void (*what)(void); /* what the callback does */

static void callback(lw_rcu_head *head) {
    (void)head;
    calls++;
    what();
}

static int is_online(void) { return (__atomic_load_n(&lw_thread.record->online, __ATOMIC_RELAXED) & 0x7fff) == 1; }

/* Callbacks that run while their thread is online. */
static lw_rcu_head head;

static void barrier_of_rcu_online(void) {
    lw_rcu_call(NULL, &head, callback);
    lw_qsbr_online();
    lw_rcu_barrier(NULL);
}
static void barrier_of_epochs_online(void) {
    lw_epoch_call(NULL, &head, callback);
    lw_qsbr_online();
    lw_epoch_barrier(NULL);
}
static void end_of_rcu_online(void) {
    lw_rcu_domain *domain = lw_rcu_domain_create();
    lw_rcu_call(domain, &head, callback);
    lw_qsbr_online();
    lw_rcu_domain_destroy(domain);
}
static void end_of_epochs_online(void) {
    lw_epoch_domain *domain = lw_epoch_domain_create();
    lw_epoch_call(domain, &head, callback);
    lw_qsbr_online();
    lw_epoch_domain_destroy(domain);
}
/* A thread that is online stays so while it waits for other flavours. */
static void check_online(void) { CHECK(is_online()); }

static void stays_online(void) {
    what = check_online, calls = 0;
    barrier_of_rcu_online();
    uint64_t stamp = lw_thread.record->online;
    end_of_rcu_online();
    barrier_of_epochs_online();
    end_of_epochs_online();
    CHECK(calls == 4 && is_online() && lw_thread.record->online == stamp);
    lw_qsbr_offline();
}

int main(void) {
    stays_online();
    puts("ok");
    return 0;
}
