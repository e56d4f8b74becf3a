// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
// The kernel's mutex, with ShflLock in it.

#include <linux/debug_locks.h>
#include <linux/device.h>
#include <linux/export.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/sched/debug.h>

#ifdef CONFIG_DEBUG_MUTEXES
#define CHECK_MAGIC(lock) DEBUG_LOCKS_WARN_ON((lock)->magic != (lock))

void mutex_destroy(struct mutex *lock)
{
	DEBUG_LOCKS_WARN_ON(mutex_is_locked(lock));
	lock->magic = NULL;
}
EXPORT_SYMBOL_GPL(mutex_destroy);

static void destroy_resource(void *lock)
{
	mutex_destroy(lock);
}

int __devm_mutex_init(struct device *dev, struct mutex *lock)
{
	return devm_add_action_or_reset(dev, destroy_resource, lock);
}
EXPORT_SYMBOL_GPL(__devm_mutex_init);
#else
#define CHECK_MAGIC(lock) ((void)(lock))
#endif

void __mutex_init(struct mutex *lock, const char *name, struct lock_class_key *key)
{
	memset(&lock->shfl, 0, sizeof(lock->shfl));
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	debug_check_no_locks_freed((void *)lock, sizeof(*lock));
	lockdep_init_map_wait(&lock->dep_map, name, key, 0, LD_WAIT_SLEEP);
#endif
#ifdef CONFIG_DEBUG_MUTEXES
	lock->magic = lock;
#endif
}
EXPORT_SYMBOL(__mutex_init);

bool mutex_is_locked(struct mutex *lock)
{
	return lw_shfl_is_locked(&lock->shfl);
}
EXPORT_SYMBOL(mutex_is_locked);

static __always_inline int acquire(struct mutex *lock, enum lw_patience patience, unsigned int subclass,
				   struct lockdep_map *nest, unsigned long ip)
{
	might_sleep();
	CHECK_MAGIC(lock);
	mutex_acquire_nest(&lock->dep_map, subclass, 0, nest, ip);
	if (!lw_shfl_lock(&lock->shfl, LW_TRY)) {
		lock_contended(&lock->dep_map, ip);
		if (!lw_shfl_lock(&lock->shfl, patience)) {
			mutex_release(&lock->dep_map, ip);
			return -EINTR;
		}
	}
	lock_acquired(&lock->dep_map, ip);
	return 0;
}

// The names have a suffix if lockdep is told of classes within a class. Otherwise it is a macro.
#ifdef CONFIG_DEBUG_LOCK_ALLOC
#define NAME(name) name##_nested
#define ARGUMENTS struct mutex *lock, unsigned int subclass
#define SUBCLASS subclass

void __sched _mutex_lock_nest_lock(struct mutex *lock, struct lockdep_map *nest)
{
	acquire(lock, LW_ENDLESS, 0, nest, _RET_IP_);
}
EXPORT_SYMBOL_GPL(_mutex_lock_nest_lock);
#else
#define NAME(name) name
#define ARGUMENTS struct mutex *lock
#define SUBCLASS 0
#endif

void __sched NAME(mutex_lock)(ARGUMENTS)
{
	acquire(lock, LW_ENDLESS, SUBCLASS, NULL, _RET_IP_);
}
EXPORT_SYMBOL_GPL(NAME(mutex_lock));

int __sched NAME(mutex_lock_interruptible)(ARGUMENTS)
{
	return acquire(lock, LW_INTERRUPTIBLE, SUBCLASS, NULL, _RET_IP_);
}
EXPORT_SYMBOL_GPL(NAME(mutex_lock_interruptible));

int __sched NAME(mutex_lock_killable)(ARGUMENTS)
{
	return acquire(lock, LW_KILLABLE, SUBCLASS, NULL, _RET_IP_);
}
EXPORT_SYMBOL_GPL(NAME(mutex_lock_killable));

void __sched NAME(mutex_lock_io)(ARGUMENTS)
{
	int token = io_schedule_prepare();

	acquire(lock, LW_ENDLESS, SUBCLASS, NULL, _RET_IP_);
	io_schedule_finish(token);
}
EXPORT_SYMBOL_GPL(NAME(mutex_lock_io));

int __sched mutex_trylock(struct mutex *lock)
{
	bool locked;

	CHECK_MAGIC(lock);
	locked = lw_shfl_lock(&lock->shfl, LW_TRY);
	if (locked)
		mutex_acquire(&lock->dep_map, 0, 1, _RET_IP_);
	return locked;
}
EXPORT_SYMBOL(mutex_trylock);

void __sched mutex_unlock(struct mutex *lock)
{
	CHECK_MAGIC(lock);
	mutex_release(&lock->dep_map, _RET_IP_);
	lw_shfl_unlock(&lock->shfl);
}
EXPORT_SYMBOL(mutex_unlock);

int atomic_dec_and_mutex_lock(atomic_t *count, struct mutex *lock)
{
	if (atomic_add_unless(count, -1, 1))
		return 0;
	mutex_lock(lock);
	if (atomic_dec_and_test(count))
		return 1;
	mutex_unlock(lock);
	return 0;
}
EXPORT_SYMBOL(atomic_dec_and_mutex_lock);
