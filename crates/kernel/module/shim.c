// SPDX-License-Identifier: MIT OR Apache-2.0
// What the locks ask of the kernel. src/shim.rs declares these functions; src/machine.rs says what each is for.

#include <linux/debug_locks.h>
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/numa.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/topology.h>

#ifdef MODULE
#include "latchwork.h"
#include "shim.h"
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
	if (need_resched() && lw_k_may_sleep())
		schedule();
	else
		cpu_relax();
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

// ---- Sleeping and waking: lists of sleepers by the address of the word, as the futex table.

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

// Sleeps while the word holds `expected`. False if the time or a signal ended the sleep.
bool lw_k_wait(const u32 *word, u32 expected, u64 until, u32 signals)
{
	struct bucket *bucket = bucket_of(word);
	struct sleeper me = { .task = current, .word = word };
	unsigned int state = signals == 1 ? TASK_INTERRUPTIBLE : signals ? TASK_KILLABLE : TASK_UNINTERRUPTIBLE;
	bool in_time = true;
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

	// A sleeper that was not woken takes itself out. It may have been moved to another list meanwhile.
	while ((word = smp_load_acquire(&me.word))) {
		bucket = bucket_of(word);
		lock_bucket(bucket, &flags);
		if (me.word == word) {
			list_del(&me.entry);
			me.word = NULL;
		}
		raw_spin_unlock_irqrestore(&bucket->lock, flags);
	}
	return in_time;
}

// Wakes up to `count` sleepers on the word, the longest first. Uses the address alone.
size_t lw_k_wake(const u32 *word, u32 count)
{
	struct bucket *bucket = bucket_of(word);
	struct task_struct *woken[16];
	size_t all = 0;

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

// Moves the longest sleeper of one word to another, if the first still holds `expected`.
void lw_k_requeue(const u32 *from, u32 expected, const u32 *to)
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
		// A sleeper on the word keeps the lock that it is in from being freed.
		if (READ_ONCE(*from) == expected) {
			WRITE_ONCE(sleeper->word, to);
			list_move_tail(&sleeper->entry, &bucket_of(to)->sleepers);
		}
		break;
	}
	if (first != second)
		raw_spin_unlock(&second->lock);
	raw_spin_unlock_irqrestore(&first->lock, flags);
}

#ifdef MODULE
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
	lw_k_requeue(word, READ_ONCE(*word), &nobodys);
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

// ---- Queue nodes: a stack for each processor, used with interrupts off, so in a task as well as in an interrupt.

#define NODE_BYTES 64
#define NODES_PER_CPU 64

struct stack {
	unsigned int height;
	void *nodes[2 * NODES_PER_CPU];
};

static DEFINE_PER_CPU(struct stack, stacks);

#ifdef MODULE
static void *unused_node(void)
{
	return NULL;
}
#else
// The first nodes of each processor need no memory of the allocator, which has locks itself.
struct first {
	unsigned int taken;
	char nodes[NODES_PER_CPU][NODE_BYTES] __aligned(NODE_BYTES);
};

static DEFINE_PER_CPU_ALIGNED(struct first, firsts);

static void *unused_node(void)
{
	struct first *first = this_cpu_ptr(&firsts);

	return first->taken < NODES_PER_CPU ? first->nodes[first->taken++] : NULL;
}
#endif

// The nodes that no stack has room for.
struct spare {
	struct spare *next;
};
static DEFINE_RAW_SPINLOCK(spare_lock);
static struct spare *spares;
static struct kmem_cache *cache;

static void *spare_node(void)
{
	struct spare *node;

	raw_spin_lock(&spare_lock);
	node = spares;
	if (node)
		spares = node->next;
	raw_spin_unlock(&spare_lock);
	return node || !cache ? node : kmem_cache_zalloc(cache, GFP_ATOMIC);
}

void *lw_k_take_node(void)
{
	struct stack *stack;
	unsigned long flags;
	void *node;

	local_irq_save(flags);
	stack = this_cpu_ptr(&stacks);
	for (;;) {
		node = stack->height ? stack->nodes[--stack->height] : unused_node() ?: spare_node();
		if (node)
			break;
		cpu_relax(); // no memory: a node comes back when a thread leaves a queue
	}
	local_irq_restore(flags);
	return node;
}

void lw_k_return_node(void *node)
{
	struct stack *stack;
	unsigned long flags;

	local_irq_save(flags);
	stack = this_cpu_ptr(&stacks);
	if (stack->height < ARRAY_SIZE(stack->nodes)) {
		stack->nodes[stack->height++] = node;
	} else {
		struct spare *spare = node;

		raw_spin_lock(&spare_lock);
		spare->next = spares;
		spares = spare;
		raw_spin_unlock(&spare_lock);
	}
	local_irq_restore(flags);
}

#ifdef MODULE
static void free_nodes(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct stack *stack = per_cpu_ptr(&stacks, cpu);

		while (stack->height)
			kmem_cache_free(cache, stack->nodes[--stack->height]);
	}
	while (spares) {
		struct spare *spare = spares;

		spares = spare->next;
		kmem_cache_free(cache, spare);
	}
	kmem_cache_destroy(cache);
}

// ---- The kernel's own reader-writer semaphore.

// src/rwsem.rs keeps room for so many bytes.
#define SEMAPHORE_BYTES 256
static_assert(sizeof(struct rw_semaphore) <= SEMAPHORE_BYTES);

void lw_k_rwsem_init(struct rw_semaphore *sem)
{
	init_rwsem(sem);
}

// Another task may release a read acquisition, so lockdep must not count it among those of the acquiring task.
static bool anonymous(struct rw_semaphore *sem, bool acquired)
{
	if (acquired)
		rwsem_release(&sem->dep_map, _RET_IP_);
	return acquired;
}

void lw_k_down_read(struct rw_semaphore *sem)
{
	down_read_non_owner(sem);
}

bool lw_k_down_read_trylock(struct rw_semaphore *sem)
{
	return anonymous(sem, down_read_trylock(sem));
}

bool lw_k_down_read_signals(struct rw_semaphore *sem, u32 signals)
{
	int error = signals == 1 ? down_read_interruptible(sem) : down_read_killable(sem);

	return anonymous(sem, !error);
}

void lw_k_up_read(struct rw_semaphore *sem)
{
	up_read_non_owner(sem);
}

void lw_k_down_write(struct rw_semaphore *sem)
{
	down_write(sem);
}

bool lw_k_down_write_trylock(struct rw_semaphore *sem)
{
	return down_write_trylock(sem);
}

bool lw_k_down_write_killable(struct rw_semaphore *sem)
{
	return down_write_killable(sem) == 0;
}

void lw_k_up_write(struct rw_semaphore *sem)
{
	up_write(sem);
}

void lw_k_downgrade_write(struct rw_semaphore *sem)
{
	downgrade_write(sem);
	anonymous(sem, true);
}

bool lw_k_rwsem_is_locked(struct rw_semaphore *sem)
{
	return rwsem_is_locked(sem);
}
#endif // MODULE: in a built-in library these are in kernel/locking/rwsem.c

// ---- What is wrong.

#ifndef MODULE
// up_read() of a semaphore that nobody reads.
void lw_k_nothing_to_release(void)
{
	DEBUG_LOCKS_WARN_ON(1);
}

#ifdef CONFIG_LATCHWORK_TWIN
// /sys/module/latchwork/parameters/broken: 1, semaphores are broken from now on; 2, mutexes are.
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

#ifdef MODULE
int lw_shim_init(void)
{
	int i, cpu;

	cache = kmem_cache_create("latchwork_node", NODE_BYTES, NODE_BYTES, 0, NULL);
	if (!cache)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct stack *stack = per_cpu_ptr(&stacks, cpu);

		for (i = 0; i < NODES_PER_CPU; i++) {
			void *node = kmem_cache_zalloc(cache, GFP_KERNEL);

			if (!node) {
				free_nodes();
				return -ENOMEM;
			}
			stack->nodes[stack->height++] = node;
		}
	}
	calibrate();
	return 0;
}

void lw_shim_exit(void)
{
	free_nodes();
}
#else
static int __init lw_begin(void)
{
	cache = kmem_cache_create("latchwork_node", NODE_BYTES, NODE_BYTES, SLAB_PANIC, NULL);
	calibrate();
	return 0;
}
core_initcall(lw_begin);
#endif
