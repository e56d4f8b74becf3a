/* latchwork: locks, condition variables, semaphores and safe memory reclamation, for C99 and C++.
 *
 * Link with -llatchwork (`pkg-config --cflags --libs latchwork`, or CMake's latchwork::latchwork).
 *
 *   lw_mutex_t      16 bytes  latchwork/mutex.h    mutex: ShflLock
 *   lw_rwlock_t     32 bytes  latchwork/rwlock.h   reader-writer lock: BRAVO over a reader-writer ShflLock
 *   lw_cond_t        8 bytes  latchwork/cond.h     condition variable, for any mutex
 *   lw_sem_t         8 bytes  latchwork/sem.h      counting semaphore
 *   lw_seqlock_t    24 bytes  latchwork/seqlock.h  sequence lock
 *   lw_mcs_t, ...             latchwork/locks.h    every lock of `latchwork list`, by type or by name
 *   lw_rcu_*                  latchwork/rcu.h      RCU, quiescent-state-based RCU, epochs
 *   lw_rcu_list_*             latchwork/rcu_list.h lists that are read without locks
 *   lw_rcu_map_*              latchwork/rcu_map.h  hash map that is read without locks
 *   lw_hazard_*               latchwork/hazard.h   hazard pointers
 *
 * Rules that hold everywhere:
 *
 * - Zero bytes are an object that is ready for use, so a static one needs no initialiser: but for lw_any_mutex_t and
 *   lw_any_rwlock_t, which lw_any_mutex_init and lw_any_rwlock_init make. An object must not be moved or copied while it is
 *   in use.
 * - Functions that return int return 0, or an error number as the pthread functions do: EBUSY, ETIMEDOUT, EINVAL, ...
 *   Those whose name asks a question (lw_mutex_is_locked, lw_cond_has_waiters, lw_rcu_poll, ...) return 1 for yes and 0 for
 *   no, and lw_rcu_map_each returns what its callback returned. They never set errno.
 * - Times are absolute, on CLOCK_REALTIME or CLOCK_MONOTONIC. An acquisition that is possible at once succeeds although the
 *   time has passed. A call that would wait returns EINVAL if the clock is another one, or if tv_nsec is not between 0 and
 *   999,999,999. An acquisition that is possible at once may succeed then, too.
 * - Objects are for the threads of one process. In the child of a fork, an object is as it was at the fork: the child may
 *   use those that no other thread held or waited for.
 * - No function is a cancellation point. A signal handler may call lw_sem_post, lw_sem_trywait and lw_seqlock_try_read.
 *
 * docs/c.md is the manual. */
#ifndef LATCHWORK_H
#define LATCHWORK_H

#include "latchwork/base.h"
#include "latchwork/cond.h"
#include "latchwork/hazard.h"
#include "latchwork/locks.h"
#include "latchwork/mutex.h"
#include "latchwork/rcu.h"
#include "latchwork/rcu_list.h"
#include "latchwork/rcu_map.h"
#include "latchwork/rwlock.h"
#include "latchwork/sem.h"
#include "latchwork/seqlock.h"

#endif
