// SPDX-License-Identifier: MIT OR Apache-2.0
// Scripted steps before the torture: what an acquisition promises that may give up. The torture's threads cannot see when one does not:
// the holder leaves soon, and then the waiter has the lock.

#include <linux/kthread.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "torture.h"

// One acquisition, by a thread of its own.
struct attempt {
	struct task_struct *task;
	const void *lock;
	bool writes;
	enum lw_patience patience;
	u64 until;
	bool stays; // it keeps the lock until this is false
	int outcome;
};
enum { BEGINS, WAITS, HOLDS, GAVE_UP, ACQUIRED };

static unsigned long acquire(const void *lock, bool writes)
{
	unsigned long token = 0;

	take(lock, writes, LW_ENDLESS, 0, &token);
	return token;
}

static int make_attempt(void *data)
{
	struct attempt *attempt = data;
	unsigned long token;
	bool acquired;

	allow_signal(SIGKILL);
	allow_signal(SIGUSR1);
	WRITE_ONCE(attempt->outcome, WAITS);
	acquired = take(attempt->lock, attempt->writes, attempt->patience, attempt->until, &token);
	if (acquired) {
		while (READ_ONCE(attempt->stays)) {
			WRITE_ONCE(attempt->outcome, HOLDS);
			schedule_timeout_uninterruptible(1);
		}
		give_back(attempt->lock, attempt->writes, token);
	}
	WRITE_ONCE(attempt->outcome, acquired ? ACQUIRED : GAVE_UP);
	while (!kthread_should_stop())
		schedule_timeout_uninterruptible(1);
	return 0;
}

// A thread that makes the attempt; with `cpu`, on that processor alone.
static bool begin(struct attempt *attempt, int cpu)
{
	attempt->outcome = BEGINS;
	attempt->task = kthread_create(make_attempt, attempt, "lw_torture/step");
	if (IS_ERR(attempt->task)) {
		error("no memory for a thread");
		return false;
	}
	if (cpu >= 0)
		kthread_bind(attempt->task, cpu);
	wake_up_process(attempt->task);
	return true;
}

static bool has_ended(struct attempt *attempt)
{
	return READ_ONCE(attempt->outcome) > HOLDS;
}

static bool sleeps(struct attempt *attempt)
{
	return READ_ONCE(attempt->outcome) == WAITS && READ_ONCE(attempt->task->__state) != TASK_RUNNING;
}

static bool holds(struct attempt *attempt)
{
	return READ_ONCE(attempt->outcome) == HOLDS;
}

static bool comes_true(bool (*state)(struct attempt *), struct attempt *attempt, unsigned long seconds)
{
	unsigned long ticks = seconds * TICKS_PER_SECOND;

	while (!state(attempt) && ticks--)
		wait_a_tick();
	return state(attempt);
}

// Ends the attempt's thread. It has the lock to itself by now, so it can only be stuck if it was not woken.
static void end(struct attempt *attempt, const char *stuck)
{
	if (!comes_true(has_ended, attempt, stall)) {
		error(stuck);
		lw_rescue(true);
	}
	kthread_stop(attempt->task);
	lw_rescue(false);
}

// A thread that may sleep attempts a lock that this one holds.
static void must_give_up(bool held_by_writer, bool writes, enum lw_patience patience)
{
	// The writers of the kernel's semaphore have no interruptible form.
	int signal = patience == LW_KILLABLE || row->unlock_any_read ? SIGKILL : SIGUSR1;
	struct attempt attempt = { .lock = the_lock, .writes = writes, .patience = patience };
	unsigned long token = acquire(the_lock, held_by_writer);

	attempt.until = ktime_get_mono_fast_ns() + 5 * NSEC_PER_MSEC;
	if (begin(&attempt, -1)) {
		if (patience == LW_INTERRUPTIBLE || patience == LW_KILLABLE) {
			comes_true(sleeps, &attempt, stall);
			send_sig(signal, attempt.task, 1);
		}
		if (!comes_true(has_ended, &attempt, stall))
			error(patience == LW_TRY ? "an attempt waits" :
			      patience == LW_TIMED ? "a waiter does not give up at its deadline" :
			      patience == LW_KILLABLE ? "a killed waiter does not give up" :
			      "an interrupted waiter does not give up");
		else if (attempt.outcome == ACQUIRED)
			error("an attempt has a lock that is held");
	}
	give_back(the_lock, held_by_writer, token);
	if (!IS_ERR(attempt.task))
		end(&attempt, "a waiter gets nowhere though the lock is free");
}

// The holder itself attempts a lock that only spins: so the attempt meets a held lock on a machine of one processor, too.
static void must_not_acquire(bool held_by_writer, bool writes)
{
	unsigned long token, unused;

	preempt_disable();
	token = acquire(the_lock, held_by_writer);
	if (take(the_lock, writes, LW_TRY, 0, &unused))
		error("an attempt has a lock that is held");
	// The row's own function: a wait of the holder for its lock is what lockdep reports.
	if ((writes ? row->write : row->read)(the_lock, LW_TIMED, ktime_get_mono_fast_ns() + NSEC_PER_MSEC, &unused))
		error("an attempt has a lock that is held");
	give_back(the_lock, held_by_writer, token);
	preempt_enable();
}

static void try_all(void (*step)(bool held_by_writer, bool writes, enum lw_patience patience), enum lw_patience patience)
{
	int i;

	step(true, true, patience);
	if (!row->read)
		return;
	step(true, false, patience);
	for (i = 0; i < 64; i++) // enough reads for a bias
		give_back(the_lock, false, acquire(the_lock, false));
	step(false, true, patience);
}

static void spinning_step(bool held_by_writer, bool writes, enum lw_patience unused)
{
	must_not_acquire(held_by_writer, writes);
}

// Keeps the caller on its processor, until leave_processor().
static int stay_on_processor(struct cpumask *before)
{
	int cpu = get_cpu();

	put_cpu();
	cpumask_copy(before, current->cpus_ptr);
	set_cpus_allowed_ptr(current, cpumask_of(cpu));
	return cpu;
}

static void leave_processor(struct cpumask *before)
{
	set_cpus_allowed_ptr(current, before);
}

// The first waiter's deadline has passed, and that waiter has not run since, when the holder leaves and wakes it. The wakeup is used
// up. If the waiter gives up all the same, it must wake the next one.
static void late_waiter(int cpu)
{
	u64 patience = NSEC_PER_SEC / 10;
	bool met = false;

	// An emulated machine may stand still for longer than the waiter's patience.
	for (; !met && patience < 30 * NSEC_PER_SEC; patience *= 4) {
		struct attempt first = { .lock = the_lock, .writes = true, .patience = LW_TIMED };
		struct attempt second = { .lock = the_lock, .writes = true };
		unsigned long token = acquire(the_lock, true);

		first.until = ktime_get_mono_fast_ns() + patience;
		if (begin(&first, cpu) && comes_true(sleeps, &first, 1) && begin(&second, -1))
			comes_true(sleeps, &second, 1);
		preempt_disable();
		met = ktime_get_mono_fast_ns() < first.until;
		while (met && ktime_get_mono_fast_ns() < first.until + 20 * NSEC_PER_MSEC)
			cpu_relax(); // the timer's interrupt comes
		give_back(the_lock, true, token);
		preempt_enable();
		if (!IS_ERR_OR_NULL(first.task))
			end(&first, "a waiter gets nowhere though the lock is free");
		if (!IS_ERR_OR_NULL(second.task))
			end(&second, "a wakeup is lost with a waiter whose deadline has passed");
	}
}

static bool has_stopped(unsigned int count)
{
	int ticks = TICKS_PER_SECOND;

	while (lw_stopped_wakers() < count && ticks--)
		wait_a_tick();
	return lw_stopped_wakers() >= count;
}

static void release_unstopped(const void *lock, unsigned long token)
{
	preempt_disable();
	give_back(lock, true, token);
	preempt_enable();
}

// A thread takes a lock, and is suspended before it wakes the next waiter, or moves it to where its own release will. The next waiter is
// killed meanwhile. Its queue node may serve another lock's waiter now: the late thread must not take that waiter with it, whose lock's
// holder would not find the waiter there.
static void late_waker(int cpu)
{
	void *other = lw_new(row, GFP_KERNEL);
	struct attempt late = { .lock = the_lock, .writes = true, .stays = true };
	struct attempt next = { .lock = the_lock, .writes = true, .patience = LW_KILLABLE };
	struct attempt holder = { .lock = other, .writes = true }, stranger = { .lock = other, .writes = true };
	unsigned long token, others_token;

	if (!other)
		return error("no memory for a lock");
	token = acquire(the_lock, true);
	others_token = acquire(other, true);
	if (begin(&late, cpu) && comes_true(sleeps, &late, 1) && begin(&next, cpu) && comes_true(sleeps, &next, 1) &&
	    begin(&holder, cpu))
		comes_true(sleeps, &holder, 1);
	lw_stop_wakers(true);
	release_unstopped(the_lock, token);
	has_stopped(1);
	if (!IS_ERR_OR_NULL(next.task)) {
		send_sig(SIGKILL, next.task, 1);
		comes_true(has_ended, &next, 1);
	}
	if (begin(&stranger, cpu))
		comes_true(sleeps, &stranger, 1);
	release_unstopped(other, others_token);
	if (has_stopped(2)) {
		lw_let_wakers_go_on(1);
		comes_true(holds, &late, 1);
	}
	lw_stop_wakers(false);
	if (!IS_ERR_OR_NULL(holder.task))
		end(&holder, "a waiter gets nowhere though the lock is free");
	if (!IS_ERR_OR_NULL(stranger.task))
		end(&stranger, "a waiter was moved to another lock");
	WRITE_ONCE(late.stays, false);
	if (!IS_ERR_OR_NULL(next.task))
		end(&next, "a waiter gets nowhere though the lock is free");
	if (!IS_ERR_OR_NULL(late.task))
		end(&late, "a waiter gets nowhere though the lock is free");
	kfree(other);
}

// Threads that must have one processor.
static void try_in_order(void (*step)(int cpu))
{
	cpumask_var_t before;

	if (!alloc_cpumask_var(&before, GFP_KERNEL))
		return error("no memory for a mask of processors");
	step(stay_on_processor(before));
	leave_processor(before);
	free_cpumask_var(before);
}

void check_giving_up(void)
{
	if (!(row->flags & LW_SLEEPS)) {
		if (timed)
			try_all(spinning_step, LW_TRY);
		return;
	}
	if (timed) {
		try_all(must_give_up, LW_TRY);
		try_all(must_give_up, LW_TIMED);
		try_in_order(late_waiter);
	}
	if (killed) {
		try_all(must_give_up, LW_INTERRUPTIBLE);
		try_all(must_give_up, LW_KILLABLE);
		try_in_order(late_waker);
	}
}
