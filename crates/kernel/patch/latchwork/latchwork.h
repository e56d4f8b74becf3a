/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * latchwork's locks as the kernel's own. The functions are in crates/kernel/src/builtin.rs.
 */
#ifndef _LINUX_LATCHWORK_H
#define _LINUX_LATCHWORK_H

#include <linux/types.h>

/* BRAVO, in a struct rw_semaphore. All zero is an unlocked lock. */
struct lw_bravo {
	u32 readers; /* of the semaphore around it, not of the table */
	u32 unused;
	u32 bias;
	u32 memory;
} __aligned(8);

/* ShflLock, blocking, in a struct mutex. All zero is an unlocked lock. */
struct lw_shfl {
	u32 word;
	u32 turn;
	void *tail;
};

/* Reader-writer ShflLock, in place of a struct rw_semaphore. All zero is an unlocked lock. */
struct lw_shfl_rw {
	u32 word;
	u32 readers;
	void *tail;
	u32 turn;
} __aligned(8);

enum lw_patience {
	LW_ENDLESS = 0,
	LW_TRY = 1,
	LW_INTERRUPTIBLE = 3,
	LW_KILLABLE = 4,
};

bool lw_bravo_read(struct lw_bravo *lock, enum lw_patience patience);
void lw_bravo_unlock_read(struct lw_bravo *lock);
bool lw_bravo_write(struct lw_bravo *lock, enum lw_patience patience);
void lw_bravo_unlock_write(struct lw_bravo *lock);
void lw_bravo_downgrade(struct lw_bravo *lock);
bool lw_bravo_is_locked(struct lw_bravo *lock);
bool lw_bravo_is_contended(struct lw_bravo *lock);

bool lw_shfl_rw_read(struct lw_shfl_rw *lock, enum lw_patience patience);
void lw_shfl_rw_unlock_read(struct lw_shfl_rw *lock);
bool lw_shfl_rw_write(struct lw_shfl_rw *lock, enum lw_patience patience);
void lw_shfl_rw_unlock_write(struct lw_shfl_rw *lock);
void lw_shfl_rw_downgrade(struct lw_shfl_rw *lock);
bool lw_shfl_rw_is_locked(struct lw_shfl_rw *lock);
bool lw_shfl_rw_is_contended(struct lw_shfl_rw *lock);

bool lw_shfl_lock(struct lw_shfl *lock, enum lw_patience patience);
void lw_shfl_unlock(struct lw_shfl *lock);
bool lw_shfl_is_locked(struct lw_shfl *lock);

struct qspinlock;
void lw_shfl_spin_slow(struct qspinlock *lock);

#endif
