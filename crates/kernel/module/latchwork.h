/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * latchwork's locks in the kernel.
 *
 * Every lock is found by its name, and used through its row:
 *
 *	const struct lw_row *row = lw_find("bravo-rwsem");
 *	void *lock = lw_new(row, GFP_KERNEL);
 *	unsigned long token;
 *
 *	lw_read(row, lock, LW_ENDLESS, 0, &token);
 *	lw_unlock_read(row, lock, token);
 *
 * An acquisition gives a token, which its release takes. lockdep and the tracepoints of contention see these functions, so the task that
 * acquires releases. The row's own functions (row->read) are the lock alone, as raw as arch_spin_lock(): there, any task may release.
 *
 * A lock without LW_SLEEPS only spins. Its caller turns preemption off, and interrupts too if the lock is taken in an
 * interrupt. A lock with LW_SLEEPS may be taken where the caller may sleep; elsewhere it spins.
 */
#ifndef LATCHWORK_H
#define LATCHWORK_H

#include <linux/bottom_half.h>
#include <linux/irqflags.h>
#include <linux/lockdep.h>
#include <linux/types.h>

/* Flags of a row. */
#define LW_SHARED 1 /* it has readers */
#define LW_SLEEPS 2 /* its waiters sleep */
#define LW_BROKEN 4 /* broken on purpose */
#define LW_PREFERS_READERS 8 /* readers that overlap keep writers out for as long as they overlap */

/* How an acquisition waits. It gives false, and nothing is acquired, when it gives up. */
#ifdef CONFIG_LATCHWORK /* a kernel whose own locks are latchwork's: its header has the others */
#include <linux/latchwork.h>
#define LW_TIMED ((enum lw_patience)2)
#else
enum lw_patience {
	LW_ENDLESS = 0,
	LW_TRY = 1,
	LW_TIMED = 2, /* until `nanos` of ktime_get_mono_fast_ns() */
	LW_INTERRUPTIBLE = 3, /* until a signal */
	LW_KILLABLE = 4, /* until a deadly signal */
};
#endif

typedef bool (*lw_row_acquire)(const void *lock, enum lw_patience patience, u64 nanos, unsigned long *token);
typedef void (*lw_row_release)(const void *lock, unsigned long token);

/* The fields are those of `Row` in src/table.rs. */
struct lw_row {
	const char *name; /* not terminated: name_bytes long */
	u32 name_bytes;
	u32 flags;
	u32 bytes;
	u32 align;
	void (*init)(void *lock); /* may be null: zero bytes are an unlocked lock */
	lw_row_acquire write;
	lw_row_release unlock_write;
	lw_row_acquire read; /* null without LW_SHARED */
	lw_row_release unlock_read;
	unsigned long (*downgrade)(const void *lock, unsigned long token); /* may be null */
	bool (*is_locked)(const void *lock);
	/*
	 * up_read(): ends any one read acquisition of the lock, also another task's. May be null. All releases of a lock's
	 * read acquisitions are calls of this, or none is.
	 */
	void (*unlock_any_read)(const void *lock);
};

/* Only for a lock that lw_new() has made. */
bool lw_write(const struct lw_row *row, const void *lock, enum lw_patience patience, u64 nanos, unsigned long *token);
void lw_unlock_write(const struct lw_row *row, const void *lock, unsigned long token);
bool lw_read(const struct lw_row *row, const void *lock, enum lw_patience patience, u64 nanos, unsigned long *token);
void lw_unlock_read(const struct lw_row *row, const void *lock, unsigned long token);
/* If the row can. */
unsigned long lw_downgrade(const struct lw_row *row, const void *lock, unsigned long token);

typedef bool (*lw_acquire)(const struct lw_row *row, const void *lock, enum lw_patience patience, u64 nanos, unsigned long *token);
typedef void (*lw_release)(const struct lw_row *row, const void *lock, unsigned long token);

/*
 * The forms for a lock that only spins and that a softirq or an interrupt takes as well, as spin_lock_bh(), spin_lock_irq() and
 * spin_lock_irqsave(), of the functions above:
 *
 *	token = lw_acquire_bh(lw_read, row, lock);
 *	lw_release_bh(lw_unlock_read, row, lock, token);
 */
static inline unsigned long lw_acquire_bh(lw_acquire function, const struct lw_row *row, const void *lock)
{
	unsigned long token;

	local_bh_disable();
	function(row, lock, LW_ENDLESS, 0, &token);
	return token;
}

static inline void lw_release_bh(lw_release function, const struct lw_row *row, const void *lock, unsigned long token)
{
	function(row, lock, token);
	local_bh_enable();
}

static inline unsigned long lw_acquire_irq(lw_acquire function, const struct lw_row *row, const void *lock)
{
	unsigned long token;

	local_irq_disable();
	function(row, lock, LW_ENDLESS, 0, &token);
	return token;
}

static inline void lw_release_irq(lw_release function, const struct lw_row *row, const void *lock, unsigned long token)
{
	function(row, lock, token);
	local_irq_enable();
}

static inline unsigned long lw_acquire_irqsave(lw_acquire function, const struct lw_row *row, const void *lock, unsigned long *flags)
{
	unsigned long token;

	local_irq_save(*flags);
	function(row, lock, LW_ENDLESS, 0, &token);
	return token;
}

static inline void lw_release_irqrestore(lw_release function, const struct lw_row *row, const void *lock, unsigned long token, unsigned long flags)
{
	function(row, lock, token);
	local_irq_restore(flags);
}

/* The lock of that name, or null. */
const struct lw_row *lw_find(const char *name);
/* The lock of that number, from 0, or null. */
const struct lw_row *lw_row_at(unsigned int index);
/* A new lock, unlocked, or null; kfree() it when no task uses it. For lockdep, the locks of one place in the source are one class. */
#define lw_new(row, flags)						\
({									\
	static struct lock_class_key __key;				\
									\
	__lw_new(row, flags, "lock of " #row, &__key);			\
})
void *__lw_new(const struct lw_row *row, gfp_t flags, const char *name, struct lock_class_key *key);

/*
 * Wakes every sleeping waiter, and lets none sleep longer than a millisecond from then on, if `on`. For a test that has
 * found a lost wakeup, and wants its threads back.
 */
void lw_rescue(bool on);

/*
 * Suspends each thread that may sleep when it is about to wake a sleeper, if `on`; how many that are; and lets the first
 * `count` of them go on. For a test of what another thread does meanwhile.
 */
void lw_stop_wakers(bool on);
unsigned int lw_stopped_wakers(void);
void lw_let_wakers_go_on(unsigned int count);

#endif
