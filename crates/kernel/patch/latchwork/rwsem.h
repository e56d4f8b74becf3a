/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * kernel/locking/rwsem.c includes this between its own implementation and the functions that the kernel calls. From here on
 * the names of the implementation stand for BRAVO, which has that implementation as its underlying lock. The lockdep
 * annotations and the checks of the context stay those of the kernel.
 */

/* The underlying lock, for src/rwsem.rs. */

#define SEMAPHORE(lock) container_of(lock, struct rw_semaphore, bravo)

void lw_k_rwsem_init(struct lw_bravo *lock)
{
}

void lw_k_down_read(struct lw_bravo *lock)
{
	__down_read(SEMAPHORE(lock));
}

bool lw_k_down_read_trylock(struct lw_bravo *lock)
{
	return __down_read_trylock(SEMAPHORE(lock));
}

bool lw_k_down_read_signals(struct lw_bravo *lock, u32 signals)
{
	return (signals == 1 ? __down_read_interruptible(SEMAPHORE(lock)) : __down_read_killable(SEMAPHORE(lock))) == 0;
}

void lw_k_up_read(struct lw_bravo *lock)
{
	__up_read(SEMAPHORE(lock));
}

void lw_k_down_write(struct lw_bravo *lock)
{
	__down_write(SEMAPHORE(lock));
}

bool lw_k_down_write_trylock(struct lw_bravo *lock)
{
	return __down_write_trylock(SEMAPHORE(lock));
}

bool lw_k_down_write_killable(struct lw_bravo *lock)
{
	return __down_write_killable(SEMAPHORE(lock)) == 0;
}

void lw_k_up_write(struct lw_bravo *lock)
{
	__up_write(SEMAPHORE(lock));
}

void lw_k_downgrade_write(struct lw_bravo *lock)
{
	__downgrade_write(SEMAPHORE(lock));
}

bool lw_k_rwsem_is_locked(struct lw_bravo *lock)
{
	return atomic_long_read(&SEMAPHORE(lock)->count) != 0;
}

#undef SEMAPHORE

/* For inline functions of linux/rwsem.h, which modules call. */
EXPORT_SYMBOL(lw_bravo_is_locked);
EXPORT_SYMBOL(lw_bravo_is_contended);

#ifndef CONFIG_LATCHWORK_RWSEM_OWN
/* What the functions below call. */

#define __down_read(sem) ((void)lw_bravo_read(&(sem)->bravo, LW_ENDLESS))
#define __down_read_interruptible(sem) (lw_bravo_read(&(sem)->bravo, LW_INTERRUPTIBLE) ? 0 : -EINTR)
#define __down_read_killable(sem) (lw_bravo_read(&(sem)->bravo, LW_KILLABLE) ? 0 : -EINTR)
#define __down_read_trylock(sem) ((int)lw_bravo_read(&(sem)->bravo, LW_TRY))
#define __up_read(sem) lw_bravo_unlock_read(&(sem)->bravo)
#define __down_write(sem) ((void)lw_bravo_write(&(sem)->bravo, LW_ENDLESS))
#define __down_write_killable(sem) (lw_bravo_write(&(sem)->bravo, LW_KILLABLE) ? 0 : -EINTR)
#define __down_write_trylock(sem) ((int)lw_bravo_write(&(sem)->bravo, LW_TRY))
#define __up_write(sem) lw_bravo_unlock_write(&(sem)->bravo)
#define __downgrade_write(sem) lw_bravo_downgrade(&(sem)->bravo)

/*
 * The field `owner` belongs to the underlying lock. A reader in the table must leave it alone: a writer may hold the underlying
 * lock already, and wait for that reader.
 */
#define __rwsem_set_reader_owned(sem, owner) ((void)(sem))
#undef DEBUG_RWSEMS_WARN_ON
#define DEBUG_RWSEMS_WARN_ON(condition, sem) ((void)(sem))
#endif
