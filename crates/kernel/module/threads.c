// SPDX-License-Identifier: MIT OR Apache-2.0
// The threads of the torture: how they acquire the lock, what they do inside, and how they release it.

#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/timekeeping.h>
#include <uapi/linux/sched/types.h>

#include "torture.h"

struct shared shared;

// ---- What a holder does.

static void hold(bool may_sleep)
{
	u32 dice = get_random_u32();

	if (long_holds && dice % 512 == 0) {
		if (may_sleep)
			schedule_timeout_uninterruptible(1 + dice / 512 % 3);
		else
			mdelay(1 + dice / 512 % 2);
	} else if (dice % 64 == 1) {
		udelay(dice / 64 % 20);
	} else if (may_sleep && dice % 64 == 2) {
		schedule();
	}
}

static void check_is_locked(void)
{
	if (get_random_u32() % 64 == 0 && !row->is_locked(the_lock))
		error("a held lock says that it is free");
}

void write_section(bool may_sleep)
{
	if (atomic_add_return(WRITER, &shared.inside) != WRITER)
		error("a writer is not alone");
	if (shared.first != shared.second)
		error("a writer sees another's half");
	WRITE_ONCE(shared.first, shared.first + 1);
	hold(may_sleep);
	check_is_locked();
	WRITE_ONCE(shared.second, shared.second + 1);
	atomic_sub(WRITER, &shared.inside);
}

void read_section(bool may_sleep)
{
	unsigned long first, second;

	if (atomic_inc_return(&shared.inside) >= WRITER)
		error("a reader is inside with a writer");
	first = READ_ONCE(shared.first);
	hold(may_sleep);
	check_is_locked();
	second = READ_ONCE(shared.second);
	if (first != second)
		error("a reader sees a writer's half");
	atomic_dec(&shared.inside);
}

// ---- Releases by another thread.

// Readers inside who have left their release to the porter.
static atomic_t handed_over;
#define MOST_HANDED 4
unsigned long carried;

int porter(void *unused)
{
	while (!kthread_should_stop() || atomic_read(&handed_over)) {
		if (atomic_dec_if_positive(&handed_over) < 0) {
			usleep_range(50, 100);
			continue;
		}
		check_is_locked();
		atomic_dec(&shared.inside);
		row->unlock_any_read(the_lock);
		carried++;
	}
	return 0;
}

// The calling reader holds the lock, and `shared.inside` does not count it any more.
static void release_read(unsigned long token)
{
	if (handed && get_random_u32() % 4 == 0 && atomic_read(&handed_over) < MOST_HANDED) {
		atomic_inc(&shared.inside);
		atomic_inc(&handed_over);
	} else {
		give_back(the_lock, false, token);
	}
}

void check_semantics(void)
{
	unsigned long token, i;

	for (i = 0; i < 64; i++) { // enough reads for a bias
		row->read(the_lock, LW_ENDLESS, 0, &token);
		row->unlock_any_read(the_lock);
	}
	if (row->is_locked(the_lock))
		error("a free lock says that it is held");
	row->read(the_lock, LW_ENDLESS, 0, &token);
	if (!row->is_locked(the_lock))
		error("a read lock says that it is free");
	if (row->write(the_lock, LW_TRY, 0, &token))
		error("a writer beside a reader");
	atomic_inc(&shared.inside);
	atomic_inc(&handed_over); // the porter ends the read
	if (!row->write(the_lock, LW_ENDLESS, 0, &token))
		error("no writer after a reader");
	if (!row->is_locked(the_lock))
		error("a written lock says that it is free");
	token = row->downgrade(the_lock, token);
	if (row->write(the_lock, LW_TRY, 0, &token))
		error("a writer beside a downgraded one");
	if (row->read(the_lock, LW_TRY, 0, &token))
		row->unlock_any_read(the_lock);
	else
		error("no reader beside a downgraded writer");
	row->unlock_any_read(the_lock);
	if (row->is_locked(the_lock))
		error("a free lock says that it is held");
}

// ---- Acquisitions.

bool take(const void *lock, bool writes, enum lw_patience patience, u64 nanos, unsigned long *token)
{
	// lockdep must not count a hold among the acquiring thread's if another thread may end it.
	if (handed)
		return (writes ? row->write : row->read)(lock, patience, nanos, token);
	return (writes ? lw_write : lw_read)(row, lock, patience, nanos, token);
}

void give_back(const void *lock, bool writes, unsigned long token)
{
	if (!handed)
		(writes ? lw_unlock_write : lw_unlock_read)(row, lock, token);
	else if (writes)
		row->unlock_write(lock, token);
	else
		row->unlock_any_read(lock);
}

static bool acquire_unless_signalled(bool writes, bool killable, unsigned long *token)
{
	if (take(the_lock, writes, killable ? LW_KILLABLE : LW_INTERRUPTIBLE, 0, token))
		return true;
	if (killable ? !fatal_signal_pending(current) : !signal_pending(current))
		error("a waiter gives up without a signal");
	return false;
}

static bool acquire(bool writes, unsigned long *token)
{
	u32 dice = get_random_u32();

	if (timed && dice % 4 == 1)
		return take(the_lock, writes, LW_TRY, 0, token);
	if (timed && dice % 4 == 2)
		return take(the_lock, writes, LW_TIMED, ktime_get_mono_fast_ns() + 100000 + dice / 4 % 1900000, token);
	if (killed && dice % 2)
		return acquire_unless_signalled(writes, dice % 4 == 1, token);
	return take(the_lock, writes, LW_ENDLESS, 0, token);
}

// Acquires with what must be off, turned off: a lock that only spins has its processor for itself, and what takes the lock in an
// interrupt does not interrupt its holder.
static bool enter(struct worker *worker, unsigned long *token, unsigned long *flags)
{
	lw_acquire function = worker->writes ? lw_write : lw_read;

	if (interrupts_are_off()) {
		if (soft)
			*token = lw_acquire_bh(function, row, the_lock);
		else if (worker->number % 2)
			*token = lw_acquire_irq(function, row, the_lock);
		else
			*token = lw_acquire_irqsave(function, row, the_lock, flags);
		return true;
	}
	if (!(row->flags & LW_SLEEPS))
		preempt_disable();
	if (acquire(worker->writes, token))
		return true;
	if (!(row->flags & LW_SLEEPS))
		preempt_enable();
	return false;
}

static void leave(struct worker *worker, bool writes, unsigned long token, unsigned long flags)
{
	lw_release function = writes ? lw_unlock_write : lw_unlock_read;

	if (interrupts_are_off()) {
		if (soft)
			lw_release_bh(function, row, the_lock, token);
		else if (worker->number % 2)
			lw_release_irq(function, row, the_lock, token);
		else
			lw_release_irqrestore(function, row, the_lock, token, flags);
		return;
	}
	if (writes)
		give_back(the_lock, true, token);
	else
		release_read(token);
	if (!(row->flags & LW_SLEEPS))
		preempt_enable();
}

static void one_round(struct worker *worker)
{
	bool may_sleep = row->flags & LW_SLEEPS && !from_interrupts();
	unsigned long flags = 0, token;

	if (!enter(worker, &token, &flags)) {
		worker->gave_up++;
		return;
	}
	if (!worker->writes) {
		read_section(may_sleep);
		leave(worker, false, token, flags);
	} else {
		write_section(may_sleep);
		if (row->downgrade && worker->acquired % 16 == 0) {
			token = handed ? row->downgrade(the_lock, token) : lw_downgrade(row, the_lock, token);
			read_section(may_sleep);
			leave(worker, false, token, flags);
			worker->downgraded++;
		} else {
			leave(worker, true, token, flags);
		}
	}
	worker->acquired++;
}

static void change_priority(struct worker *worker)
{
	if (get_random_u32() % 2)
		sched_set_fifo_low(current);
	else
		sched_set_normal(current, 0);
}

int work(void *data)
{
	struct worker *worker = data;
	bool changes = realtime && worker->number % 3 == 0;
	unsigned long round = 0;

	if (killed) {
		allow_signal(SIGKILL);
		allow_signal(SIGUSR1);
	}
	while (!kthread_should_stop()) {
		if (READ_ONCE(pausing) || (!worker->writes && READ_ONCE(readers_out))) {
			schedule_timeout_uninterruptible(1);
			continue;
		}
		one_round(worker);
		if (killed && signal_pending(current))
			flush_signals(current);
		round++;
		if (changes && round % 256 == 0)
			change_priority(worker);
		// A thread of a real-time priority leaves some time for the others.
		if (round % 64 == 0 || (changes && round % 16 == 0)) {
			if (changes)
				schedule_timeout_uninterruptible(1);
			else
				cond_resched();
		}
		if (get_random_u32() % 1024 == 0)
			schedule_timeout_uninterruptible(1);
	}
	return 0;
}
