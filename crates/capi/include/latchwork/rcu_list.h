/* Linked lists that are read in a section of RCU, of epochs, or by a thread that is online, while another thread changes them.
 *
 *     struct route {
 *         lw_rcu_list node;
 *         lw_rcu_head head;
 *         int gateway;
 *     };
 *     static lw_rcu_list routes = LW_RCU_LIST_INIT(routes);
 *
 *     lw_rcu_read_lock();                                   // a reader
 *     lw_rcu_list_for_each(node, &routes) {
 *         use(lw_rcu_entry(node, struct route, node));
 *     }
 *     lw_rcu_read_unlock();
 *
 *     lw_mutex_lock(&updating);                             // an updater
 *     lw_rcu_list_remove(&route->node);
 *     lw_mutex_unlock(&updating);
 *     lw_rcu_call(NULL, &route->head, free_route);
 *
 * Only one thread at a time changes a list: updaters hold a lock of the program's. A node that was removed still leads readers
 * on to the rest of the list, so it is not freed, and not put into a list again, before all sections are over that may have
 * found it. An updater that walks through a list and removes what it finds does so in a section, too.
 *
 * lw_rcu_list leads both ways for updaters: it has an end to add to. lw_rcu_hlist has a head of one pointer, for the buckets of
 * a hash table. */
#ifndef LATCHWORK_RCU_LIST_H
#define LATCHWORK_RCU_LIST_H

#include "rcu.h"

LW_BEGIN_C

/* A list, or a node of one. An empty list leads to itself; so zero bytes are no list. */
typedef struct lw_rcu_list {
    struct lw_rcu_list *next;
    struct lw_rcu_list *previous; /* for updaters alone */
} lw_rcu_list;

/* A node of a list whose head is one pointer. */
typedef struct lw_rcu_hlist_node {
    struct lw_rcu_hlist_node *next;
    struct lw_rcu_hlist_node **link; /* what leads here; for updaters alone */
} lw_rcu_hlist_node;

/* Its head. Zero bytes are an empty list. */
typedef struct lw_rcu_hlist {
    lw_rcu_hlist_node *first;
} lw_rcu_hlist;

/* An empty list that is static. */
#define LW_RCU_LIST_INIT(list) {&(list), &(list)}

/* The object of which `node` is the field `member`. */
#define lw_rcu_entry(node, type, member) LW_CAST_(type *, LW_CAST_(uintptr_t, node) - offsetof(type, member))

/* What pairs with what: (A) an updater stores a link (lw_rcu_assign), and a reader follows it (lw_rcu_dereference): the reader
 * sees what is in the node. A removal is (A) as well: the link that it stores leads to a node that another thread may have
 * made. */

/* Makes an empty list. */
LW_INLINE void lw_rcu_list_init(lw_rcu_list *list) { list->next = list->previous = list; }

/* Whether a list is empty. It needs no section. */
LW_INLINE int lw_rcu_list_is_empty(const lw_rcu_list *list) { return lw_rcu_access_pointer(&list->next) == list; }

/* Puts a node behind another one. Behind the list itself: at the front. */
LW_INLINE void lw_rcu_list_add(lw_rcu_list *node, lw_rcu_list *before) {
    lw_rcu_list *next = before->next;
    node->next = next;
    node->previous = before;
    next->previous = node;
    lw_rcu_assign(&before->next, node); /* (A) */
}

/* Puts a node at the end of a list. */
LW_INLINE void lw_rcu_list_add_last(lw_rcu_list *node, lw_rcu_list *list) { lw_rcu_list_add(node, list->previous); }

/* Takes a node out of its list. Readers may still be at the node, and go on from there. */
LW_INLINE void lw_rcu_list_remove(lw_rcu_list *node) {
    node->next->previous = node->previous;
    lw_rcu_assign(&node->previous->next, node->next); /* (A) */
    node->previous = LW_NULL_; /* a second removal crashes at once */
}

/* Puts `node` in the place of `old`, which is removed: a reader finds one of them. */
LW_INLINE void lw_rcu_list_replace(lw_rcu_list *old, lw_rcu_list *node) {
    node->next = old->next;
    node->previous = old->previous;
    node->next->previous = node;
    lw_rcu_assign(&node->previous->next, node); /* (A) */
    old->previous = LW_NULL_;
}

/* For each node of a list, in a section: `node` is declared here. Removing that node does not disturb the walk. */
#define lw_rcu_list_for_each(node, list)                                                                                    \
    for (lw_rcu_list *node = lw_rcu_dereference(&(list)->next); node != (list); node = lw_rcu_dereference(&node->next)) /* (A) */

/* Puts a node at the front of a list. */
LW_INLINE void lw_rcu_hlist_add(lw_rcu_hlist_node *node, lw_rcu_hlist *list) {
    lw_rcu_hlist_node *next = list->first;
    node->next = next;
    node->link = &list->first;
    if (next) {
        next->link = &node->next;
    }
    lw_rcu_assign(&list->first, node); /* (A) */
}

/* Takes a node out of its list, as lw_rcu_list_remove. */
LW_INLINE void lw_rcu_hlist_remove(lw_rcu_hlist_node *node) {
    if (node->next) {
        node->next->link = node->link;
    }
    lw_rcu_assign(node->link, node->next); /* (A) */
    node->link = LW_NULL_;
}

/* For each node of a list, as lw_rcu_list_for_each. */
#define lw_rcu_hlist_for_each(node, list)                                                                                   \
    for (lw_rcu_hlist_node *node = lw_rcu_dereference(&(list)->first); node; node = lw_rcu_dereference(&node->next)) /* (A) */

LW_END_C

#endif
