// SPDX-License-Identifier: MIT OR Apache-2.0
// A timer of each processor takes the lock in its interrupt, or in a softirq.

#include <linux/hrtimer.h>
#include <linux/random.h>
#include <linux/smp.h>

#include "torture.h"

// If the threads let an interrupt suspend a holder, how long it waits for the lock, and how often. No holder is suspended for as long,
// unless the interrupt suspends it. A machine that stands still for a while uses up one attempt at most.
#define PATIENCE (200 * NSEC_PER_MSEC)
#define ATTEMPTS 5

static DEFINE_PER_CPU(struct hrtimer, timers);
atomic_long_t in_interrupts;
static bool timers_run;

// As the kernel's own code does in an interrupt: it waits, or sometimes only attempts.
static bool acquire_safely(bool writes, bool *acquired, unsigned long *token)
{
	*acquired = take(the_lock, writes, get_random_u32() % 8 ? LW_ENDLESS : LW_TRY, 0, token);
	return true;
}

// False if the lock cannot be had, which no interrupt may meet.
static bool acquire_within_patience(bool writes, bool *acquired, unsigned long *token)
{
	int i;

	for (i = 0; i < ATTEMPTS && !*acquired; i++)
		*acquired = take(the_lock, writes, LW_TIMED, ktime_get_mono_fast_ns() + PATIENCE, token);
	return *acquired;
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	u64 start = ktime_get_mono_fast_ns();
	unsigned long token;
	bool writes = !row->read || get_random_u32() % 4 == 0, acquired = false;

	if (!(interrupts_are_off() ? acquire_safely : acquire_within_patience)(writes, &acquired, &token)) {
		error("an interrupt waits for the thread below it");
		return HRTIMER_NORESTART;
	}
	if (acquired) {
		(writes ? write_section : read_section)(false);
		give_back(the_lock, writes, token);
		atomic_long_inc(&in_interrupts);
	}
	// On a processor that gets little time, an interrupt takes long. The threads must have most of the time all the same.
	hrtimer_forward_now(timer, ns_to_ktime(2 * NSEC_PER_MSEC + 8 * (ktime_get_mono_fast_ns() - start)));
	return READ_ONCE(timers_run) ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

static void start_timer(void *unused)
{
	struct hrtimer *timer = this_cpu_ptr(&timers);

	enum hrtimer_mode mode = soft ? HRTIMER_MODE_REL_PINNED_SOFT : HRTIMER_MODE_REL_PINNED_HARD;

	hrtimer_init(timer, CLOCK_MONOTONIC, mode);
	timer->function = on_timer;
	hrtimer_start(timer, ns_to_ktime(NSEC_PER_MSEC), mode);
}

void start_timers(void)
{
	timers_run = true;
	on_each_cpu(start_timer, NULL, 1);
}

void stop_timers(void)
{
	int cpu;

	WRITE_ONCE(timers_run, false);
	/* The timer of a processor that has gone offline runs on another one. */
	for_each_possible_cpu(cpu)
		if (per_cpu(timers, cpu).function)
			hrtimer_cancel(per_cpu_ptr(&timers, cpu));
}
