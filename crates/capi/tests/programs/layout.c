/* Prints the size and the alignment of each type, and the offset of each field that the inline functions use. */
#include <latchwork.h>
#include <stdio.h>

#define TYPE(type) printf("%-20s size %3zu align %2zu\n", #type, sizeof(type), _Alignof(type))
#define FIELD(type, field) printf("%-20s %-10s at %3zu\n", #type, #field, offsetof(type, field))

int main(void) {
    TYPE(lw_mutex_t);
    FIELD(lw_mutex_t, word);
    TYPE(lw_rwlock_t);
    FIELD(lw_rwlock_t, bias);
    TYPE(lw_cond_t);
    FIELD(lw_cond_t, waiters);
    TYPE(lw_sem_t);
    FIELD(lw_sem_t, word);
    TYPE(lw_seqlock_t);
    FIELD(lw_seqlock_t, sequence);
    FIELD(lw_seqlock_t, mutex);
    TYPE(lw_rcu_head);
    TYPE(lw_rcu_list);
    FIELD(lw_rcu_list, next);
    FIELD(lw_rcu_list, previous);
    TYPE(lw_rcu_hlist);
    TYPE(lw_rcu_hlist_node);
    FIELD(lw_rcu_hlist_node, next);
    FIELD(lw_rcu_hlist_node, link);
    TYPE(lw_hazard);
    FIELD(lw_hazard, protected_head);
    FIELD(lw_hazard, fenced);
    TYPE(lw_garbage);
    TYPE(lw_any_mutex_t);
    TYPE(lw_any_rwlock_t);
    TYPE(struct lw_thread);
    FIELD(struct lw_thread, record);
    FIELD(struct lw_thread, clocks);
    FIELD(struct lw_thread, row);
    TYPE(struct lw_thread_debug);
    FIELD(struct lw_thread_debug, waits_for);
    FIELD(struct lw_thread_debug, holds);
    FIELD(struct lw_thread_debug, held);
    FIELD(struct lw_record, section);
    FIELD(struct lw_record, online);
    FIELD(struct lw_record, pinned);
    FIELD(struct lw_clocks, grace);
    FIELD(struct lw_clocks, epoch);
    FIELD(struct lw_row, slots);
    FIELD(struct lw_row, unbiased);
    return 0;
}
