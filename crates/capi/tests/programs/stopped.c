/* A program that stops in a known state, for gdb: main holds `table_lock`, two threads wait for it; one thread is in an old
 * section of RCU and one in a younger one of epochs; one reads `routes`. */
#include "check.h"
#include <latchwork.h>
#include <sched.h>

static lw_mutex_t table_lock;
static lw_rwlock_t routes;
static lw_sem_t ready, leave;

static const struct lw_thread_debug *waiters[2];

static void *waits(void *number) {
    __atomic_store_n(&waiters[(long)number], &lw_thread_debug, __ATOMIC_RELEASE);
    lw_mutex_lock(&table_lock);
    lw_mutex_unlock(&table_lock);
    return NULL;
}

static void *reads_rcu(void *unused) {
    (void)unused;
    lw_rcu_read_lock();
    lw_rcu_read_lock();
    lw_sem_post(&ready);
    lw_sem_wait(&leave);
    lw_rcu_read_unlock();
    lw_rcu_read_unlock();
    return NULL;
}

static void *reads_epochs(void *unused) {
    (void)unused;
    lw_epoch_enter();
    lw_rwlock_rdlock(&routes);
    lw_sem_post(&ready);
    lw_sem_wait(&leave);
    lw_rwlock_rdunlock(&routes);
    lw_epoch_leave();
    return NULL;
}

__attribute__((noinline)) static void stopped(void) { __asm__ volatile("" ::: "memory"); }

int main(void) {
    pthread_t threads[4];
    lw_mutex_name(&table_lock, "the table");
    lw_mutex_lock(&table_lock);
    CHECK(pthread_create(&threads[0], NULL, reads_rcu, NULL) == 0);
    lw_sem_wait(&ready);
    (void)lw_rcu_start_poll(); /* time goes by for the reader */
    CHECK(!lw_rcu_poll(lw_rcu_start_poll()));
    CHECK(pthread_create(&threads[1], NULL, reads_epochs, NULL) == 0);
    lw_sem_wait(&ready);
    for (long i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[2 + i], NULL, waits, (void *)i) == 0);
    }
    for (int i = 0; i < 2; i++) {
        const struct lw_thread_debug *waiter;
        while (!(waiter = __atomic_load_n(&waiters[i], __ATOMIC_ACQUIRE)) ||
               __atomic_load_n(&waiter->waits_for, __ATOMIC_ACQUIRE) != &table_lock) {
            sched_yield();
        }
    }
    stopped();
    lw_mutex_unlock(&table_lock);
    lw_sem_post(&leave);
    lw_sem_post(&leave);
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    return 0;
}
