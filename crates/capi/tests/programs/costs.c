/* The inline paths, for counting instructions: `costs ROUNDS` executes each operation so many times, in a function of its
 * own. The process has had a second thread, so that no path for a single thread is taken; with -DSINGLE it has not. */
#include "check.h"
#include "operation.h"
#include <latchwork.h>
#include <semaphore.h>

static lw_mutex_t mutex;
static lw_rwlock_t rwlock, written;
static lw_sem_t sem = LW_SEM_INIT(1);
static lw_cond_t cond;
static lw_mcs_t mcs;
static lw_seqlock_t seqlock;
static uint64_t words[2];
static pthread_mutex_t pthread_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t pthread_rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t pthread_cond = PTHREAD_COND_INITIALIZER;
static sem_t posix_sem;
static int object, *shared = &object;
static lw_hazard *hazard;

static void *nothing(void *unused) { return unused; }

OPERATION(empty, )
OPERATION(mutex_pair, lw_mutex_lock(&mutex); lw_mutex_unlock(&mutex))
OPERATION(mutex_try_pair, if (lw_mutex_trylock(&mutex) == 0) lw_mutex_unlock(&mutex))
OPERATION(read_pair, lw_rwlock_rdlock(&rwlock); lw_rwlock_rdunlock(&rwlock))
OPERATION(write_pair, lw_rwlock_wrlock(&written); lw_rwlock_wrunlock(&written))
OPERATION(sem_pair, lw_sem_wait(&sem); lw_sem_post(&sem))
OPERATION(cond_signal, lw_cond_signal(&cond))
OPERATION(mcs_pair, lw_mcs_lock(&mcs); lw_mcs_unlock(&mcs))
OPERATION(seqlock_read, uint64_t copy[2]; lw_seqlock_read(&seqlock, copy, words, 2))
OPERATION(rcu_section, lw_rcu_read_lock(); (void)lw_rcu_dereference(&shared); lw_rcu_read_unlock())
OPERATION(epoch_section, lw_epoch_enter(); (void)lw_rcu_dereference(&shared); lw_epoch_leave())
OPERATION(qsbr_quiescent, (void)lw_rcu_dereference(&shared); lw_qsbr_quiescent())
OPERATION(hazard_protect, lw_hazard_protect(hazard, &shared, 0); lw_hazard_clear(hazard))
OPERATION(pthread_mutex_pair, pthread_mutex_lock(&pthread_mutex); pthread_mutex_unlock(&pthread_mutex))
OPERATION(pthread_read_pair, pthread_rwlock_rdlock(&pthread_rwlock); pthread_rwlock_unlock(&pthread_rwlock))
OPERATION(pthread_write_pair, pthread_rwlock_wrlock(&pthread_rwlock); pthread_rwlock_unlock(&pthread_rwlock))
OPERATION(pthread_cond_signal_, pthread_cond_signal(&pthread_cond))
OPERATION(posix_sem_pair, sem_wait(&posix_sem); sem_post(&posix_sem))
static void (*const OPERATIONS[])(long) = {
    empty,          mutex_pair,    mutex_try_pair,     read_pair,         write_pair,         sem_pair,
    cond_signal,    mcs_pair,      seqlock_read,       rcu_section,       epoch_section,      qsbr_quiescent,
    hazard_protect, pthread_mutex_pair, pthread_read_pair, pthread_write_pair, pthread_cond_signal_, posix_sem_pair,
};

int main(int count, char **arguments) {
    pthread_t thread;
    CHECK(count == 2);
#ifndef SINGLE
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
#else
    (void)thread, (void)nothing;
#endif
    lw_init();
    hazard = lw_hazard_make();
    lw_qsbr_online();
    sem_init(&posix_sem, 0, 1);
    for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
        OPERATIONS[i](atol(arguments[1]));
    }
    return 0;
}
