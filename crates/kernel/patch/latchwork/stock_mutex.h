/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * kernel/locking/mutex.c and mutex-debug.c include this before their first definition. The kernel's own mutex gets other names.
 * It remains for the wound/wait mutexes, which are built from its parts.
 */
#ifdef CONFIG_LATCHWORK_MUTEX
#define mutex stock_mutex
#define __mutex_init __stock_mutex_init
#define mutex_is_locked stock_mutex_is_locked
#define mutex_destroy stock_mutex_destroy
#define __devm_mutex_init __stock_devm_mutex_init
#ifdef CONFIG_DEBUG_LOCK_ALLOC
#define mutex_lock_nested stock_mutex_lock_nested
#define _mutex_lock_nest_lock _stock_mutex_lock_nest_lock
#define mutex_lock_interruptible_nested stock_mutex_lock_interruptible_nested
#define mutex_lock_killable_nested stock_mutex_lock_killable_nested
#define mutex_lock_io_nested stock_mutex_lock_io_nested
#else
#define mutex_lock stock_mutex_lock
#define mutex_lock_interruptible stock_mutex_lock_interruptible
#define mutex_lock_killable stock_mutex_lock_killable
#define mutex_lock_io stock_mutex_lock_io
#endif
#define mutex_trylock stock_mutex_trylock
#define mutex_unlock stock_mutex_unlock
#define atomic_dec_and_mutex_lock stock_atomic_dec_and_mutex_lock

extern int stock_mutex_trylock(struct stock_mutex *lock);
extern void stock_mutex_unlock(struct stock_mutex *lock);
#endif
