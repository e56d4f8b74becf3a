/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * kernel/locking/rwsem.c includes this in place of its own implementation, if the semaphore is a ShflLock. The functions that the
 * kernel calls come after it, with their lockdep annotations.
 */

#ifdef CONFIG_DEBUG_RWSEMS
#define CHECK_MAGIC(sem) DEBUG_LOCKS_WARN_ON((sem)->magic != (sem))
#else
#define CHECK_MAGIC(sem) ((void)(sem))
#endif

void __init_rwsem(struct rw_semaphore *sem, const char *name, struct lock_class_key *key)
{
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	debug_check_no_locks_freed((void *)sem, sizeof(*sem));
	lockdep_init_map_wait(&sem->dep_map, name, key, 0, LD_WAIT_SLEEP);
#endif
#ifdef CONFIG_DEBUG_RWSEMS
	sem->magic = sem;
#endif
	memset(&sem->shfl, 0, sizeof(sem->shfl));
}
EXPORT_SYMBOL(__init_rwsem);

/* For inline functions of linux/rwsem.h, which modules call. */
EXPORT_SYMBOL(lw_shfl_rw_is_locked);
EXPORT_SYMBOL(lw_shfl_rw_is_contended);

/*
 * An attempt may wake a thread: a reader that turns back because a writer was faster wakes a writer that took it for a reader inside. Code
 * that holds a run queue's lock attempts mmap_lock (the stack map of BPF), and must wake nobody. So an attempt fails with interrupts off,
 * as that code itself sees to on PREEMPT_RT.
 */
static __always_inline bool may_attempt(void)
{
	return !irqs_disabled() && !in_nmi();
}

static __always_inline bool read_within(struct rw_semaphore *sem, enum lw_patience patience)
{
	CHECK_MAGIC(sem);
	return lw_shfl_rw_read(&sem->shfl, patience);
}

static __always_inline bool write_within(struct rw_semaphore *sem, enum lw_patience patience)
{
	CHECK_MAGIC(sem);
	return lw_shfl_rw_write(&sem->shfl, patience);
}

#define __down_read(sem) ((void)read_within(sem, LW_ENDLESS))
#define __down_read_interruptible(sem) (read_within(sem, LW_INTERRUPTIBLE) ? 0 : -EINTR)
#define __down_read_killable(sem) (read_within(sem, LW_KILLABLE) ? 0 : -EINTR)
#define __down_read_trylock(sem) ((int)(may_attempt() && read_within(sem, LW_TRY)))
#define __up_read(sem) lw_shfl_rw_unlock_read(&(sem)->shfl)
#define __down_write(sem) ((void)write_within(sem, LW_ENDLESS))
#define __down_write_killable(sem) (write_within(sem, LW_KILLABLE) ? 0 : -EINTR)
#define __down_write_trylock(sem) ((int)(may_attempt() && write_within(sem, LW_TRY)))
#define __up_write(sem) lw_shfl_rw_unlock_write(&(sem)->shfl)
#define __downgrade_write(sem) lw_shfl_rw_downgrade(&(sem)->shfl)

/* There is no field `owner`: the lock does not say who holds it, as the real-time kernel's semaphore does not. */
#define __rwsem_set_reader_owned(sem, owner) ((void)(sem))
#define DEBUG_RWSEMS_WARN_ON(condition, sem) ((void)(sem))

static int __init attempt_with_interrupts_off(void)
{
	static DECLARE_RWSEM(sem);
	unsigned long flags;

	local_irq_save(flags);
	WARN(__down_read_trylock(&sem), "latchwork: an attempt to read with interrupts off");
	WARN(__down_write_trylock(&sem), "latchwork: an attempt to write with interrupts off");
	local_irq_restore(flags);
	if (!WARN_ON(!__down_read_trylock(&sem)))
		__up_read(&sem);
	return 0;
}
late_initcall(attempt_with_interrupts_off);
