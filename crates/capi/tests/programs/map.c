/* lw_rcu_map from C: a model in one thread, and readers beside updaters. */
#include "check.h"
#include <latchwork.h>
#include <sched.h>
#include <string.h>

enum { KEYS = 512, ROUNDS = 4000, ALIVE = 0x600d, GONE = 0xbad };

struct route {
    char name[16];
    int state;
    long number;
};

static long made, reclaimed;

static uint64_t hash(const void *key) {
    /* A poor one: the map mixes it. */
    return (uint64_t)atoi((const char *)key) % 64;
}
static int equal(const void *a, const void *b) { return strcmp(a, b) == 0; }
static void reclaim(void *key, void *value) {
    struct route *route = value;
    CHECK(key == route->name && route->state == ALIVE);
    route->state = GONE;
    free(route);
    __atomic_fetch_add(&reclaimed, 1, __ATOMIC_RELAXED);
}

static struct route *make(long number) {
    struct route *route = malloc(sizeof *route);
    snprintf(route->name, sizeof route->name, "%ld", number % KEYS);
    route->state = ALIVE;
    route->number = number;
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return route;
}

static int sum(void *key, void *value, void *context) {
    const struct route *route = value;
    CHECK(key == route->name && route->state == ALIVE);
    *(long *)context += route->number;
    return 0;
}
static int stop_at_once(void *key, void *value, void *context) {
    (void)key, (void)value;
    ++*(int *)context;
    return 7;
}

static void model(void) {
    lw_rcu_map *map = lw_rcu_map_create(hash, equal, reclaim);
    CHECK(!lw_rcu_map_create(hash, NULL, NULL) && !lw_rcu_map_create(NULL, equal, NULL));
    CHECK(lw_rcu_map_get(map, "1") == NULL && lw_rcu_map_count(map) == 0);
    for (long i = 0; i < KEYS; i++) {
        struct route *route = make(i), *other = make(i);
        CHECK(lw_rcu_map_insert(map, route->name, route) == 0);
        CHECK(lw_rcu_map_insert(map, other->name, other) == EEXIST && other->state == ALIVE);
        reclaim(other->name, other);
        CHECK(lw_rcu_map_get(map, route->name) == route);
    }
    CHECK(lw_rcu_map_set(map, "1", NULL) == EINVAL && lw_rcu_map_insert(map, "1", NULL) == EINVAL);
    long total = 0;
    CHECK(lw_rcu_map_count(map) == KEYS && lw_rcu_map_each(map, sum, &total) == 0 && total == KEYS * (KEYS - 1L) / 2);
    int calls = 0;
    CHECK(lw_rcu_map_each(map, stop_at_once, &calls) == 7 && calls == 1);

    /* What a section has found stays, whatever becomes of it. */
    lw_rcu_read_lock();
    struct route *five = lw_rcu_map_get(map, "5"), *new_five = make(5);
    CHECK(lw_rcu_map_set(map, new_five->name, new_five) == 0 && lw_rcu_map_get(map, "5") == new_five);
    CHECK(lw_rcu_map_remove_value(map, "5", five) == ENOENT && lw_rcu_map_remove_value(map, "5", new_five) == 0);
    CHECK(lw_rcu_map_remove(map, "5") == ENOENT && lw_rcu_map_get(map, "5") == NULL);
    CHECK(five->state == ALIVE && new_five->state == ALIVE);
    lw_rcu_read_unlock();
    for (long i = 0; i < KEYS; i += 2) {
        char name[32];
        snprintf(name, sizeof name, "%ld", i);
        CHECK(lw_rcu_map_remove(map, name) == 0);
    }
    CHECK(lw_rcu_map_count(map) == KEYS / 2 - 1);
    lw_rcu_map_destroy(map);
    lw_rcu_map_destroy(NULL);
    lw_rcu_map_barrier();
    CHECK(made == reclaimed);
}

static void numbers(void) {
    lw_rcu_map *map = lw_rcu_map_create(NULL, NULL, NULL);
    static int values[100];
    for (uintptr_t i = 0; i < 100; i++) {
        CHECK(lw_rcu_map_set(map, (void *)i, &values[i]) == 0);
    }
    for (uintptr_t i = 0; i < 100; i++) {
        CHECK(lw_rcu_map_get(map, (void *)i) == &values[i]);
    }
    lw_rcu_map_destroy(map);
}

static lw_rcu_map *shared;

static void free_value(void *key, void *value) {
    (void)key;
    free(value);
}

/* What one thread puts in, another one replaces or removes, and reclaims: nothing but the map orders the two. */
static void *replace(void *thread) {
    for (uintptr_t i = 0; i < ROUNDS; i++) {
        int *value = malloc(sizeof *value);
        *value = ALIVE;
        CHECK(lw_rcu_map_set(shared, (void *)((i * 7 + (uintptr_t)thread) % KEYS), value) == 0);
        if (i % 3 == 0) {
            lw_rcu_map_remove(shared, (void *)(i % KEYS));
        }
    }
    return NULL;
}

static void *use(void *thread) {
    for (long i = 0; i < ROUNDS; i++) {
        long key = (i * 7 + (long)thread * 131) % KEYS;
        char name[16];
        snprintf(name, sizeof name, "%ld", key);
        if (i % 8 == 0) {
            struct route *route = make(key + KEYS * i);
            CHECK(lw_rcu_map_set(shared, route->name, route) == 0);
        } else if (i % 32 == 1) {
            lw_rcu_map_remove(shared, name);
        } else {
            lw_rcu_read_lock();
            const struct route *route = lw_rcu_map_get(shared, name);
            CHECK(!route || (route->state == ALIVE && route->number % KEYS == key && strcmp(route->name, name) == 0));
            lw_rcu_read_unlock();
        }
    }
    return NULL;
}

/* What the map itself has allocated in one thread, another thread frees: nothing but the library orders the two. */
static int grown, freed;

static void *grow(void *thread) {
    static int value;
    if (thread) {
        while (!__atomic_load_n(&grown, __ATOMIC_RELAXED)) {
            sched_yield();
        }
        lw_rcu_map_barrier();
        __atomic_store_n(&freed, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    for (uintptr_t i = 0; i < 1000; i++) {
        CHECK(lw_rcu_map_set(shared, (void *)i, &value) == 0);
    }
    __atomic_store_n(&grown, 1, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&freed, __ATOMIC_RELAXED)) {
        sched_yield();
    }
    return NULL;
}

int main(void) {
    model();
    numbers();
    shared = lw_rcu_map_create(NULL, NULL, NULL);
    in_threads(grow);
    lw_rcu_map_destroy(shared);
    shared = lw_rcu_map_create(NULL, NULL, free_value);
    in_threads(replace);
    lw_rcu_map_destroy(shared);
    made = reclaimed = 0;
    shared = lw_rcu_map_create(hash, equal, reclaim);
    in_threads(use);
    lw_rcu_map_destroy(shared);
    lw_rcu_map_barrier();
    CHECK(made == reclaimed && made > 0);
    return 0;
}
