/* RCU, hazard pointers and locks of liburcu and Concurrency Kit, for counting instructions beside costs.c: `peers ROUNDS`
 * executes each operation so many times, in a function of its own. With -D_LGPL_SOURCE, liburcu's readers are inline. What is
 * not installed is left out. Like costs.c, the process has had a second thread. */
#include "check.h"
#include "operation.h"
#include <pthread.h>
#if __has_include(<urcu/urcu-memb.h>)
#include <urcu/urcu-memb.h>
#include <urcu/urcu-qsbr.h>
#define WITH_URCU
#endif
#if __has_include(<ck_epoch.h>)
#include <ck_epoch.h>
#include <ck_hp.h>
#include <ck_pflock.h>
#include <ck_spinlock.h>
#define WITH_CK
#endif

static int object, *shared = &object;

static void *nothing(void *unused) { return unused; }

OPERATION(empty, )
#ifdef WITH_URCU
OPERATION(urcu_memb, urcu_memb_read_lock(); (void)rcu_dereference(shared); urcu_memb_read_unlock())
OPERATION(urcu_qsbr, (void)rcu_dereference(shared); urcu_qsbr_quiescent_state())
#endif
#ifdef WITH_CK
static ck_epoch_t epoch;
static ck_epoch_record_t record;
static ck_hp_t hp;
static ck_hp_record_t hp_record;
static void *hazards[1];
static ck_spinlock_t spinlock = CK_SPINLOCK_INITIALIZER;
static ck_pflock_t pflock = CK_PFLOCK_INITIALIZER;
OPERATION(ck_epoch, ck_epoch_begin(&record, NULL); (void)ck_pr_load_ptr(&shared); ck_epoch_end(&record, NULL))
OPERATION(ck_hazard, ck_hp_set_fence(&hp_record, 0, ck_pr_load_ptr(&shared)); (void)ck_pr_load_ptr(&shared);
          ck_hp_set(&hp_record, 0, NULL))
OPERATION(ck_spin_pair, ck_spinlock_lock(&spinlock); ck_spinlock_unlock(&spinlock))
OPERATION(ck_pflock_read, ck_pflock_read_lock(&pflock); ck_pflock_read_unlock(&pflock))
static void nothing_to_free(void *unused) { (void)unused; }
#endif

static void (*const OPERATIONS[])(long) = {
    empty,
#ifdef WITH_URCU
    urcu_memb, urcu_qsbr,
#endif
#ifdef WITH_CK
    ck_epoch, ck_hazard, ck_spin_pair, ck_pflock_read,
#endif
};

int main(int count, char **arguments) {
    pthread_t thread;
    CHECK(count == 2);
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
#ifdef WITH_URCU
    urcu_memb_register_thread();
    urcu_qsbr_register_thread();
#endif
#ifdef WITH_CK
    ck_epoch_init(&epoch);
    ck_epoch_register(&epoch, &record, NULL);
    ck_hp_init(&hp, 1, 1000, nothing_to_free);
    ck_hp_register(&hp, &hp_record, hazards);
#endif
    for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
        OPERATIONS[i](atol(arguments[1]));
    }
    return 0;
}
