// SPDX-License-Identifier: MIT OR Apache-2.0
// The nodes of src/spin.rs, which a lock of 4 bytes names by a number of 16 bits: the processor's, from 1, and two bits for one of its
// nodes. A waiter keeps its processor. What interrupts it uses the next node and gives that back before the waiter goes on.

#include <linux/percpu.h>
#include <linux/smp.h>

#include "shim.h"

#define LEVELS 4
#define NODE_BYTES 64

struct nodes {
	unsigned int taken;
	char nodes[LEVELS][NODE_BYTES] __aligned(NODE_BYTES);
};

static DEFINE_PER_CPU_ALIGNED(struct nodes, nodes);

void *lw_k_numbered(u32 number)
{
	return per_cpu_ptr(&nodes, (number >> 2) - 1)->nodes[number & 3];
}

// Null if all are in use. It must be given back all the same.
void *lw_k_take_numbered(u32 *number)
{
	struct nodes *mine = raw_cpu_ptr(&nodes);
	unsigned int level = mine->taken++;

	barrier(); // an interrupt from here on takes the next one
	if (level >= LEVELS)
		return NULL;
	*number = (raw_smp_processor_id() + 1) << 2 | level;
	return mine->nodes[level];
}

void lw_k_return_numbered(void)
{
	barrier();
	raw_cpu_ptr(&nodes)->taken--;
}
