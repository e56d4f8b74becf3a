// SPDX-License-Identifier: MIT OR Apache-2.0
// What the locks ask of the kernel. src/shim.rs declares the functions of this file, of sleep.c, nodes.c, numbered.c and semaphore.c;
// src/machine.rs says what each is for.

#include <linux/debug_locks.h>
#include <linux/hrtimer.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/numa.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/timekeeping.h>
#include <linux/topology.h>

#include "shim.h"

#ifdef MODULE
#ifndef CONFIG_PREEMPT_COUNT
/* There, preemptible() is always 0. So no waiter would sleep, and one on the holder's processor would spin for ever. */
#error "latchwork.ko needs a kernel with CONFIG_PREEMPT_COUNT: it asks whether it may sleep"
#endif
#ifdef CONFIG_PREEMPT_RT
/* There, nodes.c would ask the allocator for memory with interrupts off, and local_bh_disable() does not turn preemption off. */
#error "latchwork.ko has not been made for CONFIG_PREEMPT_RT"
#endif
#endif

// ---- Waiting without sleep.

void lw_k_relax(void)
{
	cpu_relax();
}

bool lw_k_may_sleep(void)
{
	return preemptible() && !in_atomic() && !rcu_preempt_depth();
}

void lw_k_yield(void)
{
	if (need_resched() && lw_k_may_sleep()) {
		/* The caller may be about to wait for an event: it must not do so here. As mutex_optimistic_spin does. */
		__set_current_state(TASK_RUNNING);
		schedule();
	} else {
		cpu_relax();
	}
}

void lw_k_doze(u64 nanos)
{
	ktime_t time = ns_to_ktime(min_t(u64, nanos, NSEC_PER_SEC));

	if (!lw_k_may_sleep()) {
		cpu_relax();
		return;
	}
	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule_hrtimeout(&time, HRTIMER_MODE_REL);
}

// ---- Time, threads, processors, nodes.

u64 lw_k_now(void)
{
	return ktime_get_mono_fast_ns();
}

// 0, 1 if a signal is pending, 2 if it is deadly.
u32 lw_k_signals(void)
{
	if (!in_task() || !signal_pending(current))
		return 0;
	return fatal_signal_pending(current) ? 2 : 1;
}

size_t lw_k_thread(void)
{
	return (size_t)current;
}

u32 lw_k_cpu(void)
{
	return raw_smp_processor_id();
}

u32 lw_k_cpus(void)
{
	return nr_cpu_ids;
}

u32 lw_k_node(void)
{
	return numa_node_id();
}

u32 lw_k_nodes(void)
{
	return nr_node_ids;
}

u32 lw_k_hops(u32 from, u32 to)
{
	int distance = node_distance(from, to);

	return from == to || distance <= LOCAL_DISTANCE ? from != to : distance / LOCAL_DISTANCE;
}

static u32 picoseconds_per_hint = 1000;

u32 lw_k_hints(u32 nanos)
{
	return max_t(u64, 1, (u64)nanos * 1000 / picoseconds_per_hint);
}

static void calibrate(void)
{
	u64 start = ktime_get_ns();
	int i;

	for (i = 0; i < 10000; i++)
		cpu_relax();
	picoseconds_per_hint = clamp_t(u64, (ktime_get_ns() - start) / 10, 100, 1000000);
}

// ---- What is wrong.

#ifndef MODULE
// up_read() of a semaphore that nobody reads.
void lw_k_nothing_to_release(void)
{
	DEBUG_LOCKS_WARN_ON(1);
}

#ifdef CONFIG_LATCHWORK_TWIN
// /sys/module/latchwork/parameters/broken: 1, semaphores are broken from now on; 2, mutexes; 3, spin locks.
#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "latchwork."
static unsigned int broken;
module_param(broken, uint, 0644);

u32 lw_k_broken(void)
{
	return READ_ONCE(broken);
}
#endif
#endif

void lw_k_die(u32 line)
{
	panic("latchwork: a panic in the locks, line %u", line);
}

// ---- The beginning and the end.

#ifdef MODULE
int lw_shim_init(void)
{
	int error = lw_nodes_init();

	if (!error)
		calibrate();
	return error;
}

void lw_shim_exit(void)
{
	lw_nodes_exit();
}
#else
static int __init lw_begin(void)
{
	calibrate();
	return 0;
}
core_initcall(lw_begin);
#endif
