// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel's own reader-writer semaphore, for BRAVO over it. In a kernel with LATCHWORK_RWSEM, kernel/locking/rwsem.c has these
// functions.

#include <linux/rwsem.h>

#include "shim.h"

// src/rwsem.rs keeps room for so many bytes.
#define SEMAPHORE_BYTES 256
static_assert(sizeof(struct rw_semaphore) <= SEMAPHORE_BYTES);

void lw_k_rwsem_init(struct rw_semaphore *sem)
{
	init_rwsem(sem);
	// The lock around it has a map (annotated.c). All semaphores that are initialized here would be one class.
	lockdep_set_novalidate_class(sem);
}

// Another task may release a read acquisition, so lockdep must not count it among those of the acquiring task.
static bool anonymous(struct rw_semaphore *sem, bool acquired)
{
	if (acquired)
		rwsem_release(&sem->dep_map, _RET_IP_);
	return acquired;
}

void lw_k_down_read(struct rw_semaphore *sem)
{
	down_read_non_owner(sem);
}

bool lw_k_down_read_trylock(struct rw_semaphore *sem)
{
	return anonymous(sem, down_read_trylock(sem));
}

bool lw_k_down_read_signals(struct rw_semaphore *sem, u32 signals)
{
	int error = signals == 1 ? down_read_interruptible(sem) : down_read_killable(sem);

	return anonymous(sem, !error);
}

void lw_k_up_read(struct rw_semaphore *sem)
{
	up_read_non_owner(sem);
}

void lw_k_down_write(struct rw_semaphore *sem)
{
	down_write(sem);
}

bool lw_k_down_write_trylock(struct rw_semaphore *sem)
{
	return down_write_trylock(sem);
}

bool lw_k_down_write_killable(struct rw_semaphore *sem)
{
	return down_write_killable(sem) == 0;
}

void lw_k_up_write(struct rw_semaphore *sem)
{
	up_write(sem);
}

void lw_k_downgrade_write(struct rw_semaphore *sem)
{
	downgrade_write(sem);
	anonymous(sem, true);
}

bool lw_k_rwsem_is_locked(struct rw_semaphore *sem)
{
	return rwsem_is_locked(sem);
}
