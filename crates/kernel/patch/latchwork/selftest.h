/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * lib/locking-selftest.c calls the functions of mutexes with the base of a wound/wait mutex, which is the kernel's own mutex.
 */
extern int stock_mutex_trylock(struct stock_mutex *lock);
extern void stock_mutex_unlock(struct stock_mutex *lock);
extern void stock_mutex_lock_nested(struct stock_mutex *lock, unsigned int subclass);
extern void _stock_mutex_lock_nest_lock(struct stock_mutex *lock, struct lockdep_map *nest);
extern int stock_mutex_lock_interruptible_nested(struct stock_mutex *lock, unsigned int subclass);
extern int stock_mutex_lock_killable_nested(struct stock_mutex *lock, unsigned int subclass);

#define ww_mutex_base_lock(b)			stock_mutex_lock_nested(b, 0)
#define ww_mutex_base_trylock(b)		stock_mutex_trylock(b)
#define ww_mutex_base_lock_nest_lock(b, b2)	_stock_mutex_lock_nest_lock(b, &(b2)->dep_map)
#define ww_mutex_base_lock_interruptible(b)	stock_mutex_lock_interruptible_nested(b, 0)
#define ww_mutex_base_lock_killable(b)		stock_mutex_lock_killable_nested(b, 0)
#define ww_mutex_base_unlock(b)			stock_mutex_unlock(b)
