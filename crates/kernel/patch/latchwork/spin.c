// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
// The slow path of the kernel's spin lock, with ShflLock in it. It stands in place of qspinlock.c; the kernel's inline functions, which
// take a free lock and release, stay as they are.

#include <linux/export.h>
#include <linux/latchwork.h>
#include <linux/spinlock.h>

void __lockfunc queued_spin_lock_slowpath(struct qspinlock *lock, u32 val)
{
	// The number of a node has 16 bits, two of them for the node of the processor.
	BUILD_BUG_ON(CONFIG_NR_CPUS >= 1 << 14);
	BUILD_BUG_ON(sizeof(struct qspinlock) != 4);
	lw_shfl_spin_slow(lock);
}
EXPORT_SYMBOL(queued_spin_lock_slowpath);
