#include <latchwork.h>
#include <stdlib.h>

struct route {
    lw_rcu_head head;
    int gateway;
};
static struct route *current;

static void free_route(lw_rcu_head *head) { free(head); } /* the head comes first */

static int gateway(void) {
    lw_rcu_read_lock();
    const struct route *route = lw_rcu_dereference(&current);
    int found = route ? route->gateway : -1;
    lw_rcu_read_unlock();
    return found;
}

static void replace(int number) {
    struct route *made = malloc(sizeof *made);
    made->gateway = number;
    struct route *old = lw_rcu_exchange(&current, made);
    if (old) {
        lw_rcu_call(NULL, &old->head, free_route);
    }
}

int main(void) {
    replace(7);
    replace(8);
    int found = gateway();
    lw_rcu_barrier(NULL);
    free(current);
    return found == 8 ? 0 : 1;
}
