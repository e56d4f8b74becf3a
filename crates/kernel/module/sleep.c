// SPDX-License-Identifier: MIT OR Apache-2.0
// Sleeping and waking: lists of sleepers by the address of the word, as the futex table.

#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>

#ifdef MODULE
#include "latchwork.h"
#endif
#include "shim.h"

struct sleeper {
	struct list_head entry;
	struct task_struct *task;
	const u32 *word; // null when it is woken
};

#define BUCKET_BITS 8

struct bucket {
	raw_spinlock_t lock;
	struct list_head sleepers; // the longest sleeper first
} ____cacheline_aligned_in_smp;

// Ready before the first lock of the kernel is: a list that is all zero is empty.
static struct bucket buckets[1 << BUCKET_BITS] = {
	[0 ... (1 << BUCKET_BITS) - 1] = { .lock = __RAW_SPIN_LOCK_UNLOCKED(buckets.lock) },
};
static bool rescue; // see lw_rescue()

static struct bucket *bucket_of(const u32 *word)
{
	return &buckets[hash_ptr(word, BUCKET_BITS)];
}

static void begin_list(struct bucket *bucket)
{
	if (!bucket->sleepers.next)
		INIT_LIST_HEAD(&bucket->sleepers);
}

static void lock_bucket(struct bucket *bucket, unsigned long *flags)
{
	raw_spin_lock_irqsave(&bucket->lock, *flags);
	begin_list(bucket);
}

static bool signalled(u32 signals)
{
	if (signals == 1)
		return signal_pending(current);
	return signals && fatal_signal_pending(current);
}

// Takes a sleeper from its list, which the caller has locked. The sleeper's memory may be gone when this returns.
static struct task_struct *detach(struct sleeper *sleeper)
{
	struct task_struct *task = get_task_struct(sleeper->task);

	list_del(&sleeper->entry);
	smp_store_release(&sleeper->word, NULL); // pairs with the acquire in lw_k_wait
	return task;
}

// Sleeps while the word holds `expected`. False if the time or a signal ended the sleep, and no lw_k_wake has counted this sleeper: as
// futex(2), which reports a timeout only of a waiter that is still in the queue. The caller may leave without waking another waiter then.
bool lw_k_wait(const u32 *word, u32 expected, u64 until, u32 signals)
{
	struct bucket *bucket = bucket_of(word);
	struct sleeper me = { .task = current, .word = word };
	unsigned int state = signals == 1 ? TASK_INTERRUPTIBLE : signals ? TASK_KILLABLE : TASK_UNINTERRUPTIBLE;
	bool in_time = true, was_woken = true;
	unsigned long flags;

	// Under this lock the comparison and the sleep are one step for lw_k_wake. A thread that changes the word and then
	// finds nobody asleep has locked it before, so it changed the word before this look.
	lock_bucket(bucket, &flags);
	if (READ_ONCE(*word) != expected) {
		raw_spin_unlock_irqrestore(&bucket->lock, flags);
		return true;
	}
	list_add_tail(&me.entry, &bucket->sleepers);
	raw_spin_unlock_irqrestore(&bucket->lock, flags);

	for (;;) {
		set_current_state(state);
		if (!smp_load_acquire(&me.word)) // pairs with the release in detach
			break;
		if (signalled(signals)) {
			in_time = false;
			break;
		}
		if (until == U64_MAX && !READ_ONCE(rescue)) {
			schedule();
		} else {
			u64 now = ktime_get_mono_fast_ns();
			u64 end = READ_ONCE(rescue) ? min(until, now + NSEC_PER_MSEC) : until;
			ktime_t time = ns_to_ktime(end > now ? end - now : 0);

			if (end <= now || !schedule_hrtimeout(&time, HRTIMER_MODE_REL)) {
				in_time = end != until;
				break;
			}
		}
	}
	__set_current_state(TASK_RUNNING);

	// A sleeper that was not woken takes itself out. It may have been moved to another list meanwhile, or woken since it last looked.
	while ((word = smp_load_acquire(&me.word))) {
		bucket = bucket_of(word);
		lock_bucket(bucket, &flags);
		if (me.word == word) {
			list_del(&me.entry);
			me.word = NULL;
			was_woken = false;
		}
		raw_spin_unlock_irqrestore(&bucket->lock, flags);
	}
	return was_woken || in_time;
}

#ifdef MODULE
// For a test, which suspends threads that are about to wake a sleeper: how many it has stopped, and how many of those, from
// the first, may go on.
static bool stops_wakers;
static atomic_t stopped;
static unsigned int may_go_on;

static void stop_if_told(void)
{
	unsigned int number;

	if (!READ_ONCE(stops_wakers) || !lw_k_may_sleep())
		return;
	number = atomic_inc_return(&stopped);
	while (READ_ONCE(stops_wakers) && READ_ONCE(may_go_on) < number)
		lw_k_doze(NSEC_PER_MSEC);
}

void lw_stop_wakers(bool on)
{
	if (on) {
		atomic_set(&stopped, 0);
		WRITE_ONCE(may_go_on, 0);
	}
	WRITE_ONCE(stops_wakers, on);
}
EXPORT_SYMBOL_GPL(lw_stop_wakers);

unsigned int lw_stopped_wakers(void)
{
	return atomic_read(&stopped);
}
EXPORT_SYMBOL_GPL(lw_stopped_wakers);

void lw_let_wakers_go_on(unsigned int count)
{
	WRITE_ONCE(may_go_on, count);
}
EXPORT_SYMBOL_GPL(lw_let_wakers_go_on);
#else
static void stop_if_told(void)
{
}
#endif

// Wakes up to `count` sleepers on the word, the longest first. Uses the address alone.
size_t lw_k_wake(const u32 *word, u32 count)
{
	struct bucket *bucket = bucket_of(word);
	struct task_struct *woken[16];
	size_t all = 0;

	stop_if_told();
	smp_mb(); // the caller's change of the word comes before the look at the list: pairs with the lock in lw_k_wait
	while (count) {
		struct sleeper *sleeper, *next;
		unsigned long flags;
		int i, batch = 0;

		lock_bucket(bucket, &flags);
		list_for_each_entry_safe(sleeper, next, &bucket->sleepers, entry) {
			if (sleeper->word != word)
				continue;
			woken[batch++] = detach(sleeper);
			if (--count == 0 || batch == ARRAY_SIZE(woken))
				break;
		}
		raw_spin_unlock_irqrestore(&bucket->lock, flags);
		for (i = 0; i < batch; i++) {
			wake_up_process(woken[i]);
			put_task_struct(woken[i]);
		}
		all += batch;
		if (batch < ARRAY_SIZE(woken))
			break;
	}
	return all;
}

#ifdef MODULE
// Moves the longest sleeper of one word to another.
static void move(const u32 *from, const u32 *to)
{
	struct bucket *first = bucket_of(from), *second = bucket_of(to);
	struct sleeper *sleeper;
	unsigned long flags;

	if (first > second)
		swap(first, second);
	lock_bucket(first, &flags);
	if (first != second) {
		raw_spin_lock_nested(&second->lock, SINGLE_DEPTH_NESTING);
		begin_list(second);
	}
	list_for_each_entry(sleeper, &bucket_of(from)->sleepers, entry) {
		if (sleeper->word != from)
			continue;
		WRITE_ONCE(sleeper->word, to);
		list_move_tail(&sleeper->entry, &bucket_of(to)->sleepers);
		break;
	}
	if (first != second)
		raw_spin_unlock(&second->lock);
	raw_spin_unlock_irqrestore(&first->lock, flags);
}

// For the locks that are broken on purpose: every fourth call that finds a sleeper on the word moves the sleeper to a word that
// nobody wakes, and returns true. The lost sleeper is found by lw_rescue() alone.
bool lw_k_lose(const u32 *word)
{
	static atomic_t found;
	static const u32 nobodys;
	struct bucket *bucket = bucket_of(word);
	struct sleeper *sleeper;
	bool sleeps = false;
	unsigned long flags;

	smp_mb(); // as in lw_k_wake
	lock_bucket(bucket, &flags);
	list_for_each_entry(sleeper, &bucket->sleepers, entry)
		sleeps |= sleeper->word == word;
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	if (!sleeps || READ_ONCE(rescue) || atomic_inc_return(&found) % 4)
		return false;
	move(word, &nobodys);
	return true;
}

void lw_repair(void); // in src/broken.rs

void lw_rescue(bool on)
{
	int i;

	WRITE_ONCE(rescue, on);
	lw_repair();
	for (i = 0; on && i < ARRAY_SIZE(buckets); i++) {
		unsigned long flags;

		for (;;) {
			struct task_struct *task = NULL;

			lock_bucket(&buckets[i], &flags);
			if (!list_empty(&buckets[i].sleepers))
				task = detach(list_first_entry(&buckets[i].sleepers, struct sleeper, entry));
			raw_spin_unlock_irqrestore(&buckets[i].lock, flags);
			if (!task)
				break;
			wake_up_process(task);
			put_task_struct(task);
		}
	}
}
EXPORT_SYMBOL_GPL(lw_rescue);
#endif // MODULE
