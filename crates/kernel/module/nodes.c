// SPDX-License-Identifier: MIT OR Apache-2.0
// Queue nodes: a stack for each processor, used with interrupts off, so in a task as well as in an interrupt. A processor without a node
// takes one of another processor, if the allocator has no memory.

#include <linux/init.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/time64.h>

#include "shim.h"

#define NODE_BYTES 64
#define NODES_PER_CPU 64

// The lock is its processor's own, but for a processor that has no node left, and no memory for one.
struct stack {
	raw_spinlock_t lock;
	unsigned int height;
	void *nodes[2 * NODES_PER_CPU];
};

static DEFINE_PER_CPU(struct stack, stacks) = { .lock = __RAW_SPIN_LOCK_UNLOCKED(stacks.lock) };

#ifdef MODULE
static void *unused_node(int cpu)
{
	return NULL;
}

// For a test: no further node is allocated, and how often a processor had none.
static bool no_memory;
module_param(no_memory, bool, 0644);
MODULE_PARM_DESC(no_memory, "the allocator gives no further queue nodes");
static ulong without_node;
module_param(without_node, ulong, 0444);
MODULE_PARM_DESC(without_node, "for reading: how often a processor had no queue node, and the allocator gave none");
#else
// The first nodes of each processor need no memory of the allocator, which has locks itself.
struct first {
	unsigned int taken;
	char nodes[NODES_PER_CPU][NODE_BYTES] __aligned(NODE_BYTES);
};

static DEFINE_PER_CPU_ALIGNED(struct first, firsts);

// The caller has locked the processor's stack.
static void *unused_node(int cpu)
{
	struct first *first = per_cpu_ptr(&firsts, cpu);

	return first->taken < NODES_PER_CPU ? first->nodes[first->taken++] : NULL;
}

#define no_memory false
static unsigned long without_node;
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
	return node;
}

static void *new_node(void)
{
	void *node = cache && !no_memory ? kmem_cache_zalloc(cache, GFP_ATOMIC | __GFP_NOWARN) : NULL;

	if (!node)
		WRITE_ONCE(without_node, READ_ONCE(without_node) + 1);
	return node;
}

static void *node_of(int cpu)
{
	struct stack *stack = per_cpu_ptr(&stacks, cpu);
	void *node;

	raw_spin_lock(&stack->lock);
	node = stack->height ? stack->nodes[--stack->height] : unused_node(cpu);
	raw_spin_unlock(&stack->lock);
	return node;
}

static void *node_of_any(void)
{
	void *node = NULL;
	int cpu;

	for_each_possible_cpu(cpu) {
		node = node_of(cpu);
		if (node)
			break;
	}
	return node;
}

void *lw_k_take_node(void)
{
	unsigned long flags;
	void *node;

	for (;;) {
		local_irq_save(flags);
		node = node_of(smp_processor_id()) ?: spare_node() ?: new_node() ?: node_of_any();
		local_irq_restore(flags);
		if (node)
			return node;
		// All nodes are in use: one comes back when a thread leaves a queue, on whatever processor.
		lw_k_doze(NSEC_PER_MSEC);
	}
}

void lw_k_return_node(void *node)
{
	struct stack *stack;
	unsigned long flags;
	bool full;

	local_irq_save(flags);
	stack = this_cpu_ptr(&stacks);
	raw_spin_lock(&stack->lock);
	full = stack->height == ARRAY_SIZE(stack->nodes);
	if (!full)
		stack->nodes[stack->height++] = node;
	raw_spin_unlock(&stack->lock);
	if (full) {
		struct spare *spare = node;

		raw_spin_lock(&spare_lock);
		spare->next = spares;
		spares = spare;
		raw_spin_unlock(&spare_lock);
	}
	local_irq_restore(flags);
}

#ifdef MODULE
void lw_nodes_exit(void)
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

int lw_nodes_init(void)
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
				lw_nodes_exit();
				return -ENOMEM;
			}
			stack->nodes[stack->height++] = node;
		}
	}
	return 0;
}
#else
static int __init lw_nodes_begin(void)
{
	cache = kmem_cache_create("latchwork_node", NODE_BYTES, NODE_BYTES, SLAB_PANIC, NULL);
	return 0;
}
core_initcall(lw_nodes_begin);
#endif
