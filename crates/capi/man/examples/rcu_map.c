#include <latchwork.h>
#include <stdlib.h>
#include <string.h>

struct route {
    char name[20];
    int gateway;
};

static uint64_t hash(const void *key) {
    uint64_t h = 0;
    for (const char *c = key; *c; c++) {
        h = h * 31 + (unsigned char)*c;
    }
    return h;
}
static int equal(const void *a, const void *b) { return strcmp(a, b) == 0; }
static void free_route(void *key, void *value) {
    (void)key; /* a part of the value */
    free(value);
}

int main(void) {
    lw_rcu_map *routes = lw_rcu_map_create(hash, equal, free_route);
    struct route *route = calloc(1, sizeof *route);
    strcpy(route->name, "10.0.0.0/8");
    route->gateway = 7;
    lw_rcu_map_set(routes, route->name, route);

    lw_rcu_read_lock();
    const struct route *found = lw_rcu_map_get(routes, "10.0.0.0/8");
    int gateway = found ? found->gateway : -1;
    lw_rcu_read_unlock();

    lw_rcu_map_destroy(routes);
    return gateway == 7 ? 0 : 1;
}
