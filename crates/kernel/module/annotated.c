// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions of the rows, with what lockdep and the tracepoints of contention are told.

#include <linux/errno.h>
#include <linux/lockdep.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "latchwork.h"

#ifdef LATCHWORK_TRACES
#include <trace/events/lock.h>
#endif

// A lock of lw_new() has its map behind it. Without lockdep a map has no bytes.
static size_t map_offset(const struct lw_row *row)
{
	return ALIGN(row->bytes, sizeof(void *));
}

static struct lockdep_map *map_of(const struct lw_row *row, const void *lock)
{
	return (void *)lock + map_offset(row);
}

void *__lw_new(const struct lw_row *row, gfp_t flags, const char *name, struct lock_class_key *key)
{
	size_t bytes = map_offset(row) + sizeof(struct lockdep_map);
	// Blocks of a power of two are aligned to their size.
	void *lock = kzalloc(roundup_pow_of_two(max_t(size_t, bytes, row->align)), flags);

	if (!lock)
		return NULL;
	if (row->init)
		row->init(lock);
	lockdep_init_map_wait(map_of(row, lock), name, key, 0, row->flags & LW_SLEEPS ? LD_WAIT_SLEEP : LD_WAIT_SPIN);
	return lock;
}
EXPORT_SYMBOL_GPL(__lw_new);

// With the tracepoints on, an acquisition is an attempt first: only one that must wait is contended.
static bool wait(const struct lw_row *row, const void *lock, bool writes, enum lw_patience patience, u64 nanos, unsigned long *token)
{
	lw_row_acquire function = writes ? row->write : row->read;
#ifdef LATCHWORK_TRACES
	if (trace_contention_begin_enabled()) {
		unsigned int kind = !(row->flags & LW_SHARED) ? (row->flags & LW_SLEEPS ? LCB_F_MUTEX : 0) :
				    writes ? LCB_F_WRITE : LCB_F_READ;
		bool acquired;

		if (function(lock, LW_TRY, 0, token))
			return true;
		trace_contention_begin((void *)lock, kind | (row->flags & LW_SLEEPS ? 0 : LCB_F_SPIN));
		acquired = function(lock, patience, nanos, token);
		trace_contention_end((void *)lock, acquired ? 0 : patience == LW_TIMED ? -ETIMEDOUT : -EINTR);
		return acquired;
	}
#endif
	return function(lock, patience, nanos, token);
}

static bool acquire(const struct lw_row *row, const void *lock, bool writes, enum lw_patience patience, u64 nanos, unsigned long *token,
		    unsigned long ip)
{
	struct lockdep_map *map __maybe_unused = map_of(row, lock);
	// 2: a thread that reads may read again, even if a writer waits.
	int shared __maybe_unused = writes ? 0 : row->flags & LW_PREFERS_READERS ? 2 : 1;

	if (patience == LW_TRY) {
		if (!(writes ? row->write : row->read)(lock, LW_TRY, 0, token))
			return false;
		lock_acquire(map, 0, 1, shared, 1, NULL, ip);
		return true;
	}
	lock_acquire(map, 0, 0, shared, 1, NULL, ip);
	if (wait(row, lock, writes, patience, nanos, token))
		return true;
	lock_release(map, ip);
	return false;
}

bool lw_write(const struct lw_row *row, const void *lock, enum lw_patience patience, u64 nanos, unsigned long *token)
{
	return acquire(row, lock, true, patience, nanos, token, _RET_IP_);
}
EXPORT_SYMBOL_GPL(lw_write);

bool lw_read(const struct lw_row *row, const void *lock, enum lw_patience patience, u64 nanos, unsigned long *token)
{
	return acquire(row, lock, false, patience, nanos, token, _RET_IP_);
}
EXPORT_SYMBOL_GPL(lw_read);

void lw_unlock_write(const struct lw_row *row, const void *lock, unsigned long token)
{
	lock_release(map_of(row, lock), _RET_IP_);
	row->unlock_write(lock, token);
}
EXPORT_SYMBOL_GPL(lw_unlock_write);

void lw_unlock_read(const struct lw_row *row, const void *lock, unsigned long token)
{
	lock_release(map_of(row, lock), _RET_IP_);
	row->unlock_read(lock, token);
}
EXPORT_SYMBOL_GPL(lw_unlock_read);

unsigned long lw_downgrade(const struct lw_row *row, const void *lock, unsigned long token)
{
	lock_downgrade(map_of(row, lock), _RET_IP_);
	return row->downgrade(lock, token);
}
EXPORT_SYMBOL_GPL(lw_downgrade);
