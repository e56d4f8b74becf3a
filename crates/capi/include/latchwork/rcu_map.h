/* lw_rcu_map: a hash map from pointers to pointers. Lookups lock nothing and wait for no thread, also while the map grows.
 *
 *     lw_rcu_map *routes = lw_rcu_map_create(hash_of_name, same_name, free_route);
 *     lw_rcu_map_set(routes, route->name, route);
 *
 *     lw_rcu_read_lock();
 *     struct route *route = lw_rcu_map_get(routes, "10.0.0.0/8");      // valid until the section ends
 *     lw_rcu_read_unlock();
 *
 * The map keeps the pointers, not what they point to. `reclaim` ends the life of an element that was removed or replaced, when
 * every section of lw_rcu_read_lock is over that may have found it. The key may be a part of the value: an element's pointers
 * are replaced and reclaimed together.
 *
 * Each operation on one key is atomic. An update locks one part of the map, and may run callbacks of elements that were
 * removed before, in the calling thread: so do not hold a lock that `reclaim` takes. While there is too much garbage (100,000
 * elements that a reader keeps from being reclaimed), an update outside of sections waits for a second at most. `hash`,
 * `equal` and `reclaim` must not update the map. No function returns without memory: then the process ends. A map has at most
 * 4,294,967,000 elements. Those count that were removed and wait for readers. With one more, the process ends. */
#ifndef LATCHWORK_RCU_MAP_H
#define LATCHWORK_RCU_MAP_H

#include "rcu.h"

LW_BEGIN_C

typedef struct lw_rcu_map lw_rcu_map;

/* The hash of a key: the same for equal keys. The map mixes the bits itself, each map in another way. So keys that are numbers
 * cannot be chosen so that they meet. Where others choose the keys, a hash function of the program's needs a secret of its own:
 * equal hashes stay equal. */
typedef uint64_t lw_rcu_map_hash(const void *key);
/* Not 0 if the keys are equal. */
typedef int lw_rcu_map_equal(const void *a, const void *b);
/* Ends the life of an element. Any thread may run it, and several may at the same time. */
typedef void lw_rcu_map_reclaim(void *key, void *value);

/* An empty map. Without `hash` and `equal` (both null), a key is the pointer itself, or a number in its place. `reclaim` may
 * be null. Returns null if one of `hash` and `equal` is null and the other is not. */
lw_rcu_map *lw_rcu_map_create(lw_rcu_map_hash *hash, lw_rcu_map_equal *equal, lw_rcu_map_reclaim *reclaim) LW_NOEXCEPT;
/* Ends the map, and reclaims what is in it. No thread uses it any more, or is in a section that has found an element.
 * Elements that were removed before may be reclaimed later: see lw_rcu_map_barrier. Null is ignored. */
void lw_rcu_map_destroy(lw_rcu_map *map) LW_NOEXCEPT;

/* The value of a key, or null. In a section, the value is valid until the section ends. */
void *lw_rcu_map_get(const lw_rcu_map *map, const void *key) LW_NOEXCEPT;
/* Sets the value of a key, which is not null. If the key was there, the previous element is reclaimed later. Returns 0, or
 * EINVAL if the value is null. */
int lw_rcu_map_set(lw_rcu_map *map, void *key, void *value) LW_NOEXCEPT;
/* Inserts a key that is not there. Returns 0, EEXIST (the map is as it was, and key and value stay the caller's) or EINVAL. */
int lw_rcu_map_insert(lw_rcu_map *map, void *key, void *value) LW_NOEXCEPT;
/* Removes a key. Returns 0 or ENOENT. */
int lw_rcu_map_remove(lw_rcu_map *map, const void *key) LW_NOEXCEPT;
/* Removes a key if this is its value. Returns 0 or ENOENT. */
int lw_rcu_map_remove_value(lw_rcu_map *map, const void *key, const void *value) LW_NOEXCEPT;
/* How many elements there are; while threads update the map, how many there were. */
size_t lw_rcu_map_count(const lw_rcu_map *map) LW_NOEXCEPT;
/* Calls `visit` with each element, in a section, in no order, until it returns another value than 0. Returns that value, or
 * 0. Elements that come or go meanwhile may be left out. `visit` may update the map. */
int lw_rcu_map_each(const lw_rcu_map *map, int (*visit)(void *key, void *value, void *context), void *context) LW_NOEXCEPT;
/* Waits until every element is reclaimed that was removed before from any map. Not in a section or in `reclaim`: there it
 * ends the process, with a message. */
void lw_rcu_map_barrier(void) LW_NOEXCEPT;

LW_END_C

#endif
