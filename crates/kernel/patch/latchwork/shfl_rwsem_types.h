/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * linux/rwsem.h includes this in place of its own structure, if the semaphore is a ShflLock.
 */
#ifndef _LINUX_LATCHWORK_RWSEM_H
#define _LINUX_LATCHWORK_RWSEM_H

#include <linux/latchwork.h>

struct rw_semaphore {
	struct lw_shfl_rw	shfl;
#ifdef CONFIG_DEBUG_RWSEMS
	void			*magic;
#endif
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	struct lockdep_map	dep_map;
#endif
};

#ifdef CONFIG_DEBUG_RWSEMS
#define __RWSEM_DEBUG_INIT(name) .magic = &name,
#else
#define __RWSEM_DEBUG_INIT(name)
#endif

#define __RWSEM_INITIALIZER(name) \
	{ .shfl = { }, __RWSEM_DEBUG_INIT(name) __RWSEM_DEP_MAP_INIT(name) }

#define DECLARE_RWSEM(name) \
	struct rw_semaphore name = __RWSEM_INITIALIZER(name)

extern void __init_rwsem(struct rw_semaphore *sem, const char *name,
			 struct lock_class_key *key);

#define init_rwsem(sem)						\
do {								\
	static struct lock_class_key __key;			\
								\
	__init_rwsem((sem), #sem, &__key);			\
} while (0)

static inline int rwsem_is_locked(struct rw_semaphore *sem)
{
	return lw_shfl_rw_is_locked(&sem->shfl);
}

static inline int rwsem_is_contended(struct rw_semaphore *sem)
{
	return lw_shfl_rw_is_contended(&sem->shfl);
}

#endif
