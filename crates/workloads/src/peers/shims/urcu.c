// liburcu's readers, inlined into a loop: what `reclaimbench` compares with.
#define _LGPL_SOURCE
#include <urcu/urcu-memb.h>
#include <urcu/urcu-qsbr.h>

void latchwork_urcu_memb_register(void) { urcu_memb_register_thread(); }
void latchwork_urcu_memb_unregister(void) { urcu_memb_unregister_thread(); }
void latchwork_urcu_qsbr_register(void) { urcu_qsbr_register_thread(); }
void latchwork_urcu_qsbr_unregister(void) { urcu_qsbr_unregister_thread(); }
void latchwork_urcu_memb_synchronize(void) { urcu_memb_synchronize_rcu(); }

unsigned long latchwork_urcu_memb_read(unsigned long **root, unsigned long times)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < times; i++) {
		urcu_memb_read_lock();
		sum += *rcu_dereference(*root);
		urcu_memb_read_unlock();
	}
	return sum;
}

unsigned long latchwork_urcu_qsbr_read(unsigned long **root, unsigned long times)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < times; i++) {
		urcu_qsbr_read_lock();
		sum += *rcu_dereference(*root);
		urcu_qsbr_read_unlock();
		urcu_qsbr_quiescent_state();
	}
	return sum;
}

// liburcu's hash table under both flavours: what the example `maps` compares with.
#include <stdlib.h>
#include <urcu/rculfhash.h>

// The headers declare these for the flavour that is included first.
extern const struct rcu_flavor_struct urcu_qsbr_flavor;
void urcu_qsbr_call_rcu(struct rcu_head *head, void (*reclaim)(struct rcu_head *head));
void urcu_qsbr_barrier(void);

struct element {
	struct cds_lfht_node node;
	unsigned long key, value;
	struct rcu_head head;
};

static inline struct element *element(struct cds_lfht_node *node)
{
	return caa_container_of(node, struct element, node);
}

static int is_of(struct cds_lfht_node *node, const void *key)
{
	return element(node)->key == *(const unsigned long *)key;
}

static void reclaim(struct rcu_head *head)
{
	free(caa_container_of(head, struct element, head));
}

// With `buckets` 0, the table grows and shrinks.
#define TABLE(FLAVOUR)                                                                             \
	void *latchwork_##FLAVOUR##_new(unsigned long buckets)                                     \
	{                                                                                          \
		int flags = buckets ? 0 : CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING;              \
		unsigned long least = buckets ? buckets : 1;                                       \
		return cds_lfht_new_flavor(least, least, buckets, flags, &FLAVOUR##_flavor, NULL); \
	}                                                                                          \
                                                                                                   \
	int latchwork_##FLAVOUR##_get(struct cds_lfht *table, unsigned long hash,                  \
				      unsigned long key, unsigned long *value)                     \
	{                                                                                          \
		struct cds_lfht_iter at;                                                           \
		FLAVOUR##_read_lock();                                                             \
		cds_lfht_lookup(table, hash, is_of, &key, &at);                                    \
		struct cds_lfht_node *found = cds_lfht_iter_get_node(&at);                         \
		if (found)                                                                         \
			*value = element(found)->value;                                            \
		FLAVOUR##_read_unlock();                                                           \
		return found != NULL;                                                              \
	}                                                                                          \
                                                                                                   \
	int latchwork_##FLAVOUR##_insert(struct cds_lfht *table, unsigned long hash,               \
					 unsigned long key, unsigned long value)                   \
	{                                                                                          \
		struct element *new = malloc(sizeof(*new));                                        \
		if (!new)                                                                          \
			abort();                                                                   \
		cds_lfht_node_init(&new->node);                                                    \
		new->key = key;                                                                    \
		new->value = value;                                                                \
		FLAVOUR##_read_lock();                                                             \
		int done = cds_lfht_add_unique(table, hash, is_of, &key, &new->node) == &new->node; \
		FLAVOUR##_read_unlock();                                                           \
		if (!done)                                                                         \
			free(new);                                                                 \
		return done;                                                                       \
	}                                                                                          \
                                                                                                   \
	int latchwork_##FLAVOUR##_remove(struct cds_lfht *table, unsigned long hash,               \
					 unsigned long key)                                        \
	{                                                                                          \
		struct cds_lfht_iter at;                                                           \
		FLAVOUR##_read_lock();                                                             \
		cds_lfht_lookup(table, hash, is_of, &key, &at);                                    \
		struct cds_lfht_node *found = cds_lfht_iter_get_node(&at);                         \
		int done = found && !cds_lfht_del(table, found);                                   \
		if (done)                                                                          \
			FLAVOUR##_call_rcu(&element(found)->head, reclaim);                        \
		FLAVOUR##_read_unlock();                                                           \
		return done;                                                                       \
	}                                                                                          \
                                                                                                   \
	void latchwork_##FLAVOUR##_each(struct cds_lfht *table, void *context,                     \
					void (*each)(void *, unsigned long, unsigned long))        \
	{                                                                                          \
		struct cds_lfht_iter at;                                                           \
		struct cds_lfht_node *node;                                                        \
		FLAVOUR##_read_lock();                                                             \
		cds_lfht_for_each(table, &at, node)                                                \
			each(context, element(node)->key, element(node)->value);                   \
		FLAVOUR##_read_unlock();                                                           \
	}                                                                                          \
                                                                                                   \
	/* With everything in it, when nobody uses it any more; waits until all is freed. */      \
	void latchwork_##FLAVOUR##_destroy(struct cds_lfht *table)                                 \
	{                                                                                          \
		struct cds_lfht_iter at;                                                           \
		struct cds_lfht_node *node;                                                        \
		FLAVOUR##_read_lock();                                                             \
		cds_lfht_for_each(table, &at, node) {                                              \
			if (!cds_lfht_del(table, node))                                            \
				FLAVOUR##_call_rcu(&element(node)->head, reclaim);                 \
		}                                                                                  \
		FLAVOUR##_read_unlock();                                                           \
		FLAVOUR##_barrier();                                                               \
		if (cds_lfht_destroy(table, NULL))                                                 \
			abort();                                                                   \
	}

TABLE(urcu_memb)
TABLE(urcu_qsbr)

void latchwork_urcu_memb_quiescent(void) {}
void latchwork_urcu_qsbr_quiescent(void) { urcu_qsbr_quiescent_state(); }
