// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that try to break one lock, in the manner of the kernel's locktorture. Loading the module runs the torture. The
// parameter `verdict` then says ok or fails, and one line in the log has the numbers.
//
//	insmod latchwork_torture.ko lock=shfl seconds=5 writers=8 timed=1
//	cat /sys/module/latchwork_torture/parameters/verdict
//
// What counts as an error: two holders that exclude each other inside at the same time; two words that a writer changes
// together and another holder sees apart; a held lock that says that it is free; a thread that gets nowhere for `stall` seconds;
// an acquisition in an interrupt that times out although no holder can be suspended. The torture ends at the first error.
//
// The machine may be an emulated one, which gets little time or stands still for a while. So a second is 50 ticks here: in a
// tick the watching thread sleeps for 20 ms or more, and then has seen every processor at work.

#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <uapi/linux/sched/types.h>

#include "latchwork.h"

static char *lock = "shfl";
module_param(lock, charp, 0444);
MODULE_PARM_DESC(lock, "the lock's name, as in the log of latchwork.ko");
static int seconds = 5;
module_param(seconds, int, 0444);
MODULE_PARM_DESC(seconds, "how long the torture takes");
static int writers = -1;
module_param(writers, int, 0444);
MODULE_PARM_DESC(writers, "threads that write; two for each processor unless told, or one if the lock has readers");
static int readers = -1;
module_param(readers, int, 0444);
MODULE_PARM_DESC(readers, "threads that read; two for each processor unless told");
static bool stutter = true;
module_param(stutter, bool, 0444);
MODULE_PARM_DESC(stutter, "all threads pause together now and then, and start together");
static bool timed;
module_param(timed, bool, 0444);
MODULE_PARM_DESC(timed, "some acquisitions give up after 0.1 to 2 ms, and some do not wait at all");
static bool killed;
module_param(killed, bool, 0444);
MODULE_PARM_DESC(killed, "acquisitions are killable or interruptible, and threads get signals");
static bool realtime;
module_param(realtime, bool, 0444);
MODULE_PARM_DESC(realtime, "every third thread has a real-time priority, and changes it");
static bool long_holds;
module_param(long_holds, bool, 0444);
MODULE_PARM_DESC(long_holds, "some holds take milliseconds; if the lock sleeps, their holder sleeps too");
static char *irq = "no";
module_param(irq, charp, 0444);
MODULE_PARM_DESC(irq, "safe: a timer of each processor takes the lock in its interrupt; unsafe: and the threads let it");

static bool handed;
module_param(handed, bool, 0444);
MODULE_PARM_DESC(handed, "readers release without their token, and let another thread release for them");
static unsigned long least;
module_param(least, ulong, 0444);
MODULE_PARM_DESC(least, "acquisitions that there must be before the torture ends, even if it takes longer (at most a minute)");

static int stall = 10;
module_param(stall, int, 0444);
MODULE_PARM_DESC(stall, "a thread that gets nowhere for so many seconds has lost a wakeup");
static char *verdict = "none";
module_param(verdict, charp, 0444);
MODULE_PARM_DESC(verdict, "for reading: ok or fails");

// How long an interrupt waits for the lock, and how often. No holder is suspended for as long, unless the interrupt suspends it.
// A machine that stands still for a while uses up one attempt at most.
#define PATIENCE (200 * NSEC_PER_MSEC)
#define ATTEMPTS (strcmp(irq, "unsafe") ? 300 : 5)
#define TICKS_PER_SECOND 50
#define MOST_THREADS 256

static const struct lw_row *row;
static void *the_lock;
static struct {
	// Written by the holder alone.
	unsigned long first;
	char apart[256]; // so that the two are not written at once
	unsigned long second;
	// The holders inside.
	atomic_t inside; // readers; a writer counts WRITER
} shared;
#define WRITER 0x10000

static atomic_long_t errors, stalls, in_interrupts;
static bool pausing;

struct worker {
	struct task_struct *task;
	unsigned int number;
	bool writes;
	unsigned long acquired, gave_up, downgraded;
	unsigned long last, idle; // of watch(): the last progress, and ticks since
	unsigned long at_end; // its progress when the time was up
};
static struct worker workers[MOST_THREADS];
static unsigned int threads;

static bool from_interrupts(void)
{
	return strcmp(irq, "no") != 0;
}

static void error(const char *what)
{
	if (atomic_long_inc_return(&errors) <= 5)
		pr_err("latchwork-torture: lock=%s error: %s\n", lock, what);
}

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

static void write_section(bool may_sleep)
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

static void read_section(bool may_sleep)
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
static struct task_struct *porter_task;
static unsigned long carried;

static int porter(void *unused)
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
	if (!handed) {
		row->unlock_read(the_lock, token);
	} else if (get_random_u32() % 4 == 0 && atomic_read(&handed_over) < MOST_HANDED) {
		atomic_inc(&shared.inside);
		atomic_inc(&handed_over);
	} else {
		row->unlock_any_read(the_lock);
	}
}

// What the kernel's semaphores promise, step by step, in one thread and the porter.
static void check_semantics(void)
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

static bool acquire_unless_signalled(lw_acquire function, bool killable, unsigned long *token)
{
	if (function(the_lock, killable ? LW_KILLABLE : LW_INTERRUPTIBLE, 0, token))
		return true;
	if (killable ? !fatal_signal_pending(current) : !signal_pending(current))
		error("a waiter gives up without a signal");
	return false;
}

static bool acquire(lw_acquire function, unsigned long *token)
{
	u32 dice = get_random_u32();

	if (timed && dice % 4 == 1)
		return function(the_lock, LW_TRY, 0, token);
	if (timed && dice % 4 == 2)
		return function(the_lock, LW_TIMED, ktime_get_mono_fast_ns() + 100000 + dice / 4 % 1900000, token);
	if (killed && dice % 2)
		return acquire_unless_signalled(function, dice % 4 == 1, token);
	return function(the_lock, LW_ENDLESS, 0, token);
}

// Between these two a lock that only spins has its processor for itself.
static unsigned long enter(void)
{
	unsigned long flags = 0;

	if (!strcmp(irq, "safe"))
		local_irq_save(flags);
	else if (!(row->flags & LW_SLEEPS))
		preempt_disable();
	return flags;
}

static void leave(unsigned long flags)
{
	if (!strcmp(irq, "safe"))
		local_irq_restore(flags);
	else if (!(row->flags & LW_SLEEPS))
		preempt_enable();
}

static void one_round(struct worker *worker)
{
	bool may_sleep = row->flags & LW_SLEEPS && !from_interrupts();
	unsigned long flags = enter(), token;

	if (!acquire(worker->writes ? row->write : row->read, &token)) {
		leave(flags);
		worker->gave_up++;
		return;
	}
	if (!worker->writes) {
		read_section(may_sleep);
		release_read(token);
	} else {
		write_section(may_sleep);
		if (row->downgrade && worker->acquired % 16 == 0) {
			token = row->downgrade(the_lock, token);
			read_section(may_sleep);
			release_read(token);
			worker->downgraded++;
		} else {
			row->unlock_write(the_lock, token);
		}
	}
	leave(flags);
	worker->acquired++;
}

static void change_priority(struct worker *worker)
{
	if (get_random_u32() % 2)
		sched_set_fifo_low(current);
	else
		sched_set_normal(current, 0);
}

static int work(void *data)
{
	struct worker *worker = data;
	bool changes = realtime && worker->number % 3 == 0;
	unsigned long round = 0;

	if (killed) {
		allow_signal(SIGKILL);
		allow_signal(SIGUSR1);
	}
	while (!kthread_should_stop()) {
		if (READ_ONCE(pausing)) {
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

// ---- Timers: their interrupts take the lock.

static DEFINE_PER_CPU(struct hrtimer, timers);
static bool timers_run;

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	u64 start = ktime_get_mono_fast_ns();
	unsigned long token;
	bool writes = !row->read || get_random_u32() % 4 == 0, acquired = false;
	int i;

	for (i = 0; i < ATTEMPTS && !acquired; i++)
		acquired = (writes ? row->write : row->read)(the_lock, LW_TIMED, ktime_get_mono_fast_ns() + PATIENCE,
							     &token);
	if (acquired) {
		if (writes) {
			write_section(false);
			row->unlock_write(the_lock, token);
		} else {
			read_section(false);
			row->unlock_read(the_lock, token);
		}
		atomic_long_inc(&in_interrupts);
	} else {
		error("an interrupt waits for the thread below it");
		return HRTIMER_NORESTART;
	}
	// On a processor that gets little time, an interrupt takes long. The threads must have most of the time all the same.
	hrtimer_forward_now(timer, ns_to_ktime(2 * NSEC_PER_MSEC + 8 * (ktime_get_mono_fast_ns() - start)));
	return READ_ONCE(timers_run) ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

static void start_timer(void *unused)
{
	struct hrtimer *timer = this_cpu_ptr(&timers);

	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = on_timer;
	hrtimer_start(timer, ns_to_ktime(NSEC_PER_MSEC), HRTIMER_MODE_REL_PINNED_HARD);
}

static void stop_timers(void)
{
	int cpu;

	WRITE_ONCE(timers_run, false);
	for_each_online_cpu(cpu)
		hrtimer_cancel(per_cpu_ptr(&timers, cpu));
}

// ---- The torture.

static int start_workers(void)
{
	unsigned int i;

	for (i = 0; i < threads; i++) {
		struct worker *worker = &workers[i];

		worker->number = i;
		worker->writes = i < writers;
		worker->task = kthread_run(work, worker, "lw_torture/%u", i);
		if (IS_ERR(worker->task)) {
			int error = PTR_ERR(worker->task);

			threads = i;
			return error;
		}
	}
	return 0;
}

static unsigned long progress(struct worker *worker)
{
	return READ_ONCE(worker->acquired) + READ_ONCE(worker->gave_up);
}

static void nothing(void *unused)
{
}

// Watches until the time is up and enough is done, or until an error, or a thread is stuck.
static void watch(void)
{
	unsigned long end = seconds * TICKS_PER_SECOND, most = max(end, 60UL * TICKS_PER_SECOND);
	unsigned long tick;

	for (tick = 1;; tick++) {
		unsigned long waited = 0, acquired = 0;
		bool late = tick > end, all_go_on = true;
		unsigned int i;

		msleep(20);
		on_each_cpu(nothing, NULL, 1);
		WRITE_ONCE(pausing, stutter && !late && tick % 50 >= 45);
		for (i = 0; i < threads; i++) {
			struct worker *worker = &workers[i];

			worker->idle++;
			if (progress(worker) != worker->last) {
				worker->last = progress(worker);
				worker->idle = 0;
			}
			if (tick <= end)
				worker->at_end = progress(worker);
			all_go_on &= progress(worker) != worker->at_end;
			waited = max(waited, worker->idle);
			acquired += READ_ONCE(worker->acquired);
			if (killed && get_random_u32() % 4 == 0)
				send_sig(get_random_u32() % 2 ? SIGKILL : SIGUSR1, worker->task, 1);
		}
		if (waited > stall * TICKS_PER_SECOND) {
			atomic_long_inc(&stalls);
			pr_err("latchwork-torture: lock=%s error: a thread got nowhere for %d s\n", lock, stall);
			return;
		}
		if (atomic_long_read(&errors))
			return;
		if (late && acquired < least && tick < most)
			continue;
		// The end waits until each thread has got on once more, so that a lost wakeup shows.
		if (late && all_go_on)
			return;
	}
}

static int __init torture_init(void)
{
	unsigned long acquired = 0, gave_up = 0, downgraded = 0, fewest = ULONG_MAX;
	int i, online = num_online_cpus(), status;

	row = lw_find(lock);
	if (!row) {
		pr_err("latchwork-torture: no lock is named %s; latchwork.ko has logged those that are there\n", lock);
		return -EINVAL;
	}
	if (strcmp(irq, "no") && strcmp(irq, "safe") && strcmp(irq, "unsafe")) {
		pr_err("latchwork-torture: irq is no, safe or unsafe\n");
		return -EINVAL;
	}
	if (from_interrupts() && row->flags & LW_SLEEPS) {
		pr_err("latchwork-torture: %s sleeps, so an interrupt cannot take it\n", lock);
		return -EINVAL;
	}
	if (handed && !row->unlock_any_read) {
		pr_err("latchwork-torture: the readers of %s cannot release without a token\n", lock);
		return -EINVAL;
	}
	if (!row->read)
		readers = 0;
	if (readers < 0)
		readers = 2 * online;
	if (writers < 0)
		writers = row->read ? max(1, online / 2) : 2 * online;
	threads = writers + readers;
	if (threads == 0 || threads > MOST_THREADS || seconds < 1) {
		pr_err("latchwork-torture: 1 to %d threads, and at least one second\n", MOST_THREADS);
		return -EINVAL;
	}
	the_lock = lw_new(row, GFP_KERNEL);
	if (!the_lock)
		return -ENOMEM;

	if (handed) {
		porter_task = kthread_run(porter, NULL, "lw_torture/porter");
		if (IS_ERR(porter_task)) {
			kfree(the_lock);
			return PTR_ERR(porter_task);
		}
		if (!(row->flags & LW_BROKEN))
			check_semantics();
	}
	status = start_workers();
	if (!status) {
		if (from_interrupts()) {
			timers_run = true;
			on_each_cpu(start_timer, NULL, 1);
		}
		watch();
	}
	if (atomic_long_read(&errors) || atomic_long_read(&stalls))
		lw_rescue(true); // threads may wait for a wakeup that does not come
	WRITE_ONCE(pausing, false);
	if (from_interrupts())
		stop_timers();
	for (i = 0; i < threads; i++)
		kthread_stop(workers[i].task);
	if (handed)
		kthread_stop(porter_task);
	lw_rescue(false);

	for (i = 0; i < threads; i++) {
		acquired += workers[i].acquired;
		gave_up += workers[i].gave_up;
		downgraded += workers[i].downgraded;
		fewest = min(fewest, workers[i].acquired);
	}
	if (atomic_read(&shared.inside))
		error("a holder was left inside");
	if (acquired == 0)
		error("nothing was acquired");
	pr_info("latchwork-torture: result lock=%s writers=%d readers=%d acquired=%lu fewest=%lu gave_up=%lu downgraded=%lu carried=%lu interrupts=%ld errors=%ld stalls=%ld\n",
		lock, writers, readers, acquired, fewest, gave_up, downgraded, carried, atomic_long_read(&in_interrupts),
		atomic_long_read(&errors), atomic_long_read(&stalls));
	kfree(the_lock);
	if (status)
		return status;
	verdict = atomic_long_read(&errors) || atomic_long_read(&stalls) ? "fails" : "ok";
	return 0;
}

static void __exit torture_exit(void)
{
}

module_init(torture_init);
module_exit(torture_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Threads that try to break one of latchwork's locks");
