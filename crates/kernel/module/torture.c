// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that try to break one lock, in the manner of the kernel's locktorture. Loading the module runs the torture. The
// parameter `verdict` then says ok or fails, and one line in the log has the numbers.
//
//	insmod latchwork_torture.ko lock=shfl seconds=5 writers=8 timed=1
//	cat /sys/module/latchwork_torture/parameters/verdict
//
// What counts as an error: two holders that exclude each other inside at the same time; two words that a writer changes
// together and another holder sees apart; a held lock that says that it is free; a thread that gets nowhere for `stall` seconds;
// an acquisition in an interrupt that times out, because the interrupt has suspended the holder; with irq=safe, no acquisition in an
// interrupt at all. The torture ends at the first error. Before it, the steps of steps.c check what an acquisition that may give up
// promises.
//
// A lock that prefers readers (LW_PREFERS_READERS) keeps a writer out for as long as readers overlap, which may be for ever. It
// promises that the writer gets in once they do not. So when a writer of such a lock has waited for a second, the readers stay
// out until every writer has got on. A writer that gets nowhere all the same is an error.
//
// The machine may be an emulated one, which gets little time or stands still for a while. So a second is 50 ticks here: in a
// tick the watching thread sleeps for 20 ms or more, and then has seen every processor at work.

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>

#include "torture.h"

char *lock = "shfl";
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
bool timed;
module_param(timed, bool, 0444);
MODULE_PARM_DESC(timed, "some acquisitions give up after 0.1 to 2 ms, and some do not wait at all");
bool killed;
module_param(killed, bool, 0444);
MODULE_PARM_DESC(killed, "acquisitions are killable or interruptible, and threads get signals");
bool realtime;
module_param(realtime, bool, 0444);
MODULE_PARM_DESC(realtime, "every third thread has a real-time priority, and changes it");
bool long_holds;
module_param(long_holds, bool, 0444);
MODULE_PARM_DESC(long_holds, "some holds take milliseconds; if the lock sleeps, their holder sleeps too");
static char *irq = "no";
module_param(irq, charp, 0444);
MODULE_PARM_DESC(irq, "safe: a timer of each processor takes the lock in its interrupt; unsafe: and the threads let it");
bool soft;
module_param(soft, bool, 0444);
MODULE_PARM_DESC(soft, "the timers' interrupts are softirqs, and the threads turn those off alone");
static bool forbear = true;
module_param(forbear, bool, 0444);
MODULE_PARM_DESC(forbear, "readers stay out when a writer has waited for a second, if the lock prefers readers");
bool handed;
module_param(handed, bool, 0444);
MODULE_PARM_DESC(handed, "readers release without their token, and let another thread release for them");
static unsigned long least;
module_param(least, ulong, 0444);
MODULE_PARM_DESC(least, "acquisitions that there must be before the torture ends, even if it takes longer (at most a minute)");

int stall = 10;
module_param(stall, int, 0444);
MODULE_PARM_DESC(stall, "a thread must not get nowhere for so many seconds");
static char *verdict = "none";
module_param(verdict, charp, 0444);
MODULE_PARM_DESC(verdict, "for reading: ok or fails");

static bool steps = true;
module_param(steps, bool, 0444);
MODULE_PARM_DESC(steps, "before the torture, the scripted steps of what is asked for: timed, killed, handed");

static char *order = "no";
module_param(order, charp, 0444);
MODULE_PARM_DESC(order, "no torture, but two locks for lockdep: taken in the same order, or inverted");

#define MOST_THREADS 256

const struct lw_row *row;
void *the_lock;
static atomic_long_t errors, stalls;
bool pausing, readers_out;

static struct worker workers[MOST_THREADS];
static unsigned int threads;
static struct task_struct *porter_task;
// How often the readers stayed out for a writer.
static unsigned long forbearances;

bool from_interrupts(void)
{
	return strcmp(irq, "no") != 0;
}

bool interrupts_are_off(void)
{
	return !strcmp(irq, "safe");
}

void error(const char *what)
{
	if (atomic_long_inc_return(&errors) <= 5)
		pr_err("latchwork-torture: lock=%s error: %s\n", lock, what);
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

void wait_a_tick(void)
{
	msleep(20);
	on_each_cpu(nothing, NULL, 1);
}

// Lets the readers stay out while a writer waits too long for them.
static void forbear_readers(unsigned long writer_waited)
{
	bool out = forbear && row->flags & LW_PREFERS_READERS && writer_waited > TICKS_PER_SECOND;

	if (out && !READ_ONCE(readers_out))
		forbearances++;
	WRITE_ONCE(readers_out, out);
}

// What the lock's words and the threads are, for a reader of the log who looks for the thread that others wait for.
static void describe(void)
{
	unsigned int i;

	pr_err("latchwork-torture: lock=%s words=%*phN inside=%#x readers_out=%d\n", lock, min_t(int, row->bytes, 64), the_lock,
	       atomic_read(&shared.inside), readers_out);
	for (i = 0; i < threads; i++) {
		struct worker *worker = &workers[i];

		pr_err("latchwork-torture: thread %u %s state=%c acquired=%lu gave_up=%lu idle=%lu\n", i,
		       worker->writes ? "writer" : "reader", task_state_to_char(worker->task), worker->acquired,
		       worker->gave_up, worker->idle);
	}
}

// With irq=safe the check is about interrupts that take the lock.
static bool no_interrupt_has_acquired(void)
{
	return interrupts_are_off() && !atomic_long_read(&in_interrupts);
}

// Watches until the time is up and enough is done, or until an error, or a thread is stuck.
static void watch(void)
{
	unsigned long end = seconds * TICKS_PER_SECOND, most = max(end, 60UL * TICKS_PER_SECOND);
	unsigned long tick;

	for (tick = 1;; tick++) {
		unsigned long waited = 0, writer_waited = 0, acquired = 0;
		bool late = tick > end, all_go_on = true;
		unsigned int i;

		wait_a_tick();
		WRITE_ONCE(pausing, stutter && !late && tick % 50 >= 45);
		for (i = 0; i < threads; i++) {
			struct worker *worker = &workers[i];

			if (worker->writes || !readers_out)
				worker->idle++;
			if (progress(worker) != worker->last) {
				worker->last = progress(worker);
				worker->idle = 0;
			}
			if (tick <= end)
				worker->at_end = progress(worker);
			all_go_on &= progress(worker) != worker->at_end;
			waited = max(waited, worker->idle);
			if (worker->writes)
				writer_waited = max(writer_waited, worker->idle);
			acquired += READ_ONCE(worker->acquired);
			if (killed && get_random_u32() % 4 == 0)
				send_sig(get_random_u32() % 2 ? SIGKILL : SIGUSR1, worker->task, 1);
		}
		if (waited > stall * TICKS_PER_SECOND) {
			atomic_long_inc(&stalls);
			pr_err("latchwork-torture: lock=%s error: a thread got nowhere for %d s\n", lock, stall);
			describe();
			return;
		}
		if (atomic_long_read(&errors))
			return;
		forbear_readers(writer_waited);
		if (late && tick < most && (acquired < least || no_interrupt_has_acquired()))
			continue;
		// The end waits until each thread has got on once more, so that a lost wakeup shows.
		if (late && all_go_on)
			return;
	}
}

static int __init torture_init(void)
{
	unsigned long acquired = 0, gave_up = 0, downgraded = 0, fewest = ULONG_MAX, sleeps = 0;
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
	if (interrupts_are_off() && (timed || killed || handed)) {
		pr_err("latchwork-torture: with irq=safe, acquisitions have no limit and their holders release\n");
		return -EINVAL;
	}
	if (handed && !row->unlock_any_read) {
		pr_err("latchwork-torture: the readers of %s cannot release without a token\n", lock);
		return -EINVAL;
	}
	if (strcmp(order, "no")) {
		if (!IS_ENABLED(CONFIG_PROVE_LOCKING)) {
			pr_err("latchwork-torture: order needs a kernel with PROVE_LOCKING\n");
			return -EOPNOTSUPP;
		}
		check_order(!strcmp(order, "inverted"));
		verdict = atomic_long_read(&errors) ? "fails" : "ok";
		return 0;
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
		if (steps)
			check_semantics();
	}
	if (steps)
		check_giving_up();
	status = start_workers();
	if (!status) {
		if (from_interrupts())
			start_timers();
		watch();
	}
	if (atomic_long_read(&errors) || atomic_long_read(&stalls))
		lw_rescue(true); // threads may wait for a wakeup that does not come
	WRITE_ONCE(pausing, false);
	WRITE_ONCE(readers_out, true); // a writer must be able to end
	if (from_interrupts())
		stop_timers();
	for (i = 0; i < threads; i++) {
		sleeps += workers[i].task->nvcsw;
		kthread_stop(workers[i].task);
	}
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
	if (no_interrupt_has_acquired())
		error("no interrupt has acquired the lock");
	pr_info("latchwork-torture: result lock=%s writers=%d readers=%d acquired=%lu fewest=%lu gave_up=%lu sleeps=%lu downgraded=%lu carried=%lu forbearances=%lu interrupts=%ld errors=%ld stalls=%ld at=%p\n",
		lock, writers, readers, acquired, fewest, gave_up, sleeps, downgraded, carried, forbearances,
		atomic_long_read(&in_interrupts),
		atomic_long_read(&errors), atomic_long_read(&stalls), the_lock);
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
