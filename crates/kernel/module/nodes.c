// SPDX-License-Identifier: MIT OR Apache-2.0
// Queue nodes: a stack for each processor, used with interrupts off, so in a task as well as in an interrupt.

#include <linux/init.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#ifdef MODULE
#include "shim.h"
#endif

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
