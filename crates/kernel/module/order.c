// SPDX-License-Identifier: MIT OR Apache-2.0
// Two locks in one order, or in two: what lockdep says of them.

#include <linux/debug_locks.h>
#include <linux/slab.h>

#include "torture.h"

static void take_both(const void *outer, const void *inner, bool outer_writes)
{
	unsigned long outer_token, inner_token;
	bool spins = !(row->flags & LW_SLEEPS);

	if (spins)
		preempt_disable();
	take(outer, outer_writes, LW_ENDLESS, 0, &outer_token);
	take(inner, true, LW_ENDLESS, 0, &inner_token);
	give_back(inner, true, inner_token);
	give_back(outer, outer_writes, outer_token);
	if (spins)
		preempt_enable();
}

void check_order(bool inverted)
{
	void *first = lw_new(row, GFP_KERNEL), *second = lw_new(row, GFP_KERNEL); // a class for each

	if (!debug_locks) { // it turns itself off
		error("lockdep has reported something in an earlier check");
	} else if (!first || !second) {
		error("no memory for a lock");
	} else {
		take_both(first, second, true);
		take_both(inverted ? second : first, inverted ? first : second, !row->read);
		if (!debug_locks)
			error("lockdep has reported the order");
	}
	kfree(first);
	kfree(second);
}
