#include <latchwork.h>
#include <stdlib.h>

struct route {
    lw_rcu_list node;
    lw_rcu_head head;
    int gateway;
};
static lw_rcu_list routes = LW_RCU_LIST_INIT(routes);
static lw_mutex_t updating;

static void free_route(lw_rcu_head *head) { free(lw_rcu_entry(head, struct route, head)); }

static void add(int gateway) {
    struct route *route = malloc(sizeof *route);
    route->gateway = gateway;
    lw_mutex_lock(&updating);
    lw_rcu_list_add_last(&route->node, &routes);
    lw_mutex_unlock(&updating);
}

static void remove_all(int gateway) {
    lw_mutex_lock(&updating);
    lw_rcu_read_lock();
    lw_rcu_list_for_each(node, &routes) {
        struct route *route = lw_rcu_entry(node, struct route, node);
        if (route->gateway == gateway) {
            lw_rcu_list_remove(node);
            lw_rcu_call(NULL, &route->head, free_route);
        }
    }
    lw_rcu_read_unlock();
    lw_mutex_unlock(&updating);
}

static int sum(void) {
    int total = 0;
    lw_rcu_read_lock();
    lw_rcu_list_for_each(node, &routes) { total += lw_rcu_entry(node, struct route, node)->gateway; }
    lw_rcu_read_unlock();
    return total;
}

int main(void) {
    add(7);
    add(8);
    int before = sum();
    remove_all(7);
    int after = sum();
    remove_all(8);
    lw_rcu_barrier(NULL);
    return before == 15 && after == 8 && lw_rcu_list_is_empty(&routes) ? 0 : 1;
}
