/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What torture.c, threads.c and interrupts.c of latchwork_torture.ko share. */
#ifndef LATCHWORK_TORTURE_H
#define LATCHWORK_TORTURE_H

#include <linux/atomic.h>
#include <linux/sched.h>

#include "latchwork.h"

/* ---- torture.c: the parameters, the lock, and what went wrong. */

extern char *lock;
extern bool timed, killed, realtime, long_holds, handed;
extern const struct lw_row *row;
extern void *the_lock;
/* All threads pause; the readers do. */
extern bool pausing, readers_out;

/* Whether interrupts take the lock; whether the threads turn them off meanwhile; whether they are softirqs. */
bool from_interrupts(void);
bool interrupts_are_off(void);
extern bool soft;

void error(const char *what);

/* How long a thread must not get nowhere: seconds of so many ticks, in each of which every processor is at work. */
extern int stall;
#define TICKS_PER_SECOND 50
void wait_a_tick(void);

/* ---- threads.c: the threads that use the lock. */

struct worker {
	struct task_struct *task;
	unsigned int number;
	bool writes;
	unsigned long acquired, gave_up, downgraded;
	unsigned long last, idle; /* of watch(): the last progress, and ticks since */
	unsigned long at_end; /* its progress when the time was up */
};

/* What the lock protects. */
extern struct shared {
	/* Written by the holder alone. */
	unsigned long first;
	char apart[256]; /* so that the two are not written at once */
	unsigned long second;
	/* The holders inside: a reader counts 1, and a writer WRITER. */
	atomic_t inside;
} shared;
#define WRITER 0x10000

void write_section(bool may_sleep);
void read_section(bool may_sleep);
/* A thread's acquisition and release of a lock, which lw_new() has made. */
bool take(const void *lock, bool writes, enum lw_patience patience, u64 nanos, unsigned long *token);
void give_back(const void *lock, bool writes, unsigned long token);
/* The function of a thread, which gets its struct worker. */
int work(void *data);
/* The function of the thread that releases for others, and how many it has released. */
int porter(void *unused);
extern unsigned long carried;
/* What the kernel's semaphores promise, step by step, in one thread and the porter. */
void check_semantics(void);

/* ---- steps.c: what an acquisition promises that may give up, step by step. */

void check_giving_up(void);

/* ---- order.c: two locks, for lockdep. */

void check_order(bool inverted);

/* ---- interrupts.c: timers whose interrupts use the lock. */

void start_timers(void);
void stop_timers(void);
extern atomic_long_t in_interrupts;

#endif
