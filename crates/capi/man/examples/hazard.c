#include <latchwork.h>
#include <stdlib.h>

struct node {
    int value;
    lw_rcu_head head;
};
static struct node *top;
static int *limit; /* without a head */

static void free_node(lw_rcu_head *head) { free((char *)head - offsetof(struct node, head)); }

int main(void) {
    top = calloc(1, sizeof *top);
    top->value = 7;

    lw_hazard *hazard = lw_hazard_make();
    if (!hazard) {
        return 1;
    }
    const struct node *node = lw_hazard_protect(hazard, &top, offsetof(struct node, head));
    struct node *removed = __atomic_exchange_n(&top, NULL, __ATOMIC_ACQ_REL);
    lw_hazard_retire(&removed->head, free_node);
    int value = node->value; /* still there */

    limit = calloc(1, sizeof *limit);
    *limit = 9;
    const int *read = lw_hazard_protect(hazard, &limit, 0);
    int *old = __atomic_exchange_n(&limit, NULL, __ATOMIC_ACQ_REL);
    if (lw_hazard_retire_ptr(old, free) != 0) {
        return 1;
    }
    value += *read; /* still there, too */
    lw_hazard_destroy(hazard);
    lw_hazard_collect();

    lw_hazard_domain *domain = lw_hazard_domain_create();
    if (!domain || lw_hazard_domain_retire_ptr(domain, malloc(1), free) != 0) {
        return 1;
    }
    return value == 16 && lw_hazard_domain_destroy(domain) == 0 ? 0 : 1; /* everything in it is reclaimed */
}
