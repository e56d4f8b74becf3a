/* Lists that are read while another thread changes them, and pointers that are exchanged by comparison. Compiled as C and as C++. */
#include "check.h"
#include <latchwork.h>

enum { ROUNDS = 3000, KEYS = 16, ALIVE = 0x600d, GONE = 0xbad };

struct object {
    int state;
    int key;
    lw_rcu_list node;
    lw_rcu_hlist_node bucket;
    lw_rcu_head head;
};

static lw_rcu_list list = LW_RCU_LIST_INIT(list);
static lw_rcu_hlist buckets[2];
static lw_mutex_t updating;
static long made, reclaimed;

static struct object *make(int key) {
    struct object *object = (struct object *)malloc(sizeof *object);
    object->state = ALIVE;
    object->key = key;
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return object;
}

static void reclaim(lw_rcu_head *head) {
    struct object *object = lw_rcu_entry(head, struct object, head);
    CHECK(object->state == ALIVE);
    object->state = GONE;
    free(object);
    __atomic_fetch_add(&reclaimed, 1, __ATOMIC_RELAXED);
}

static struct object *find(int key) {
    lw_rcu_list_for_each(node, &list) {
        struct object *object = lw_rcu_entry(node, struct object, node);
        if (object->key == key) {
            return object;
        }
    }
    return NULL;
}

/* Key 0 is replaced, and never missing. Each other one comes and goes. */
static void update(int key, int round) {
    lw_mutex_lock(&updating);
    lw_rcu_read_lock();
    struct object *old = find(key);
    if (old && key == 0) {
        struct object *object = make(0);
        lw_rcu_list_replace(&old->node, &object->node);
        lw_rcu_hlist_remove(&old->bucket);
        lw_rcu_hlist_add(&object->bucket, &buckets[0]);
    } else if (old) {
        lw_rcu_list_remove(&old->node);
        lw_rcu_hlist_remove(&old->bucket);
    } else {
        struct object *object = make(key);
        if (round % 2) {
            lw_rcu_list_add(&object->node, &list);
        } else {
            lw_rcu_list_add_last(&object->node, &list);
        }
        lw_rcu_hlist_add(&object->bucket, &buckets[key % 2]);
    }
    lw_rcu_read_unlock();
    lw_mutex_unlock(&updating);
    if (old) {
        lw_rcu_call(NULL, &old->head, reclaim);
    }
}

static void *read_and_update(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        lw_rcu_read_lock();
        int zeros = 0;
        lw_rcu_list_for_each(node, &list) {
            struct object *object = lw_rcu_entry(node, struct object, node);
            CHECK(object->state == ALIVE);
            zeros += object->key == 0;
        }
        CHECK(zeros > 0);
        lw_rcu_hlist_for_each(node, &buckets[i % 2]) {
            struct object *object = lw_rcu_entry(node, struct object, bucket);
            CHECK(object->state == ALIVE && object->key % 2 == i % 2);
        }
        lw_rcu_read_unlock();
        if (i % 4 == 0) {
            update((int)((i / 4 + (long)number) % KEYS), i);
        }
    }
    return NULL;
}

/* The keys of a list, as digits. */
static long digits(const lw_rcu_list *of) {
    long digits = 0;
    lw_rcu_list_for_each(node, of) { digits = 10 * digits + lw_rcu_entry(node, struct object, node)->key; }
    return digits;
}

static void one_thread(void) {
    struct object objects[6];
    lw_rcu_list mine;
    lw_rcu_list_init(&mine);
    CHECK(lw_rcu_list_is_empty(&mine));
    for (int i = 0; i < 6; i++) {
        objects[i].key = i;
    }
    lw_rcu_read_lock();
    lw_rcu_list_add(&objects[2].node, &mine);
    lw_rcu_list_add(&objects[1].node, &mine);
    lw_rcu_list_add_last(&objects[4].node, &mine);
    lw_rcu_list_add(&objects[3].node, &objects[2].node);
    CHECK(digits(&mine) == 1234 && !lw_rcu_list_is_empty(&mine));
    lw_rcu_list_replace(&objects[2].node, &objects[5].node);
    CHECK(digits(&mine) == 1534);
    lw_rcu_list_for_each(node, &mine) { lw_rcu_list_remove(node); }
    CHECK(lw_rcu_list_is_empty(&mine));

    lw_rcu_hlist bucket = {NULL};
    int seen = 0;
    for (int i = 0; i < 3; i++) {
        lw_rcu_hlist_add(&objects[i].bucket, &bucket);
    }
    lw_rcu_hlist_remove(&objects[1].bucket);
    lw_rcu_hlist_for_each(node, &bucket) { seen = 10 * seen + lw_rcu_entry(node, struct object, bucket)->key; }
    CHECK(seen == 20);
    lw_rcu_hlist_for_each(node, &bucket) { lw_rcu_hlist_remove(node); }
    CHECK(!bucket.first);
    lw_rcu_read_unlock();
}

static struct object *newest;

/* Each object gets the number after that of the one that it replaces, so no exchange is lost. */
static void *exchange(void *unused) {
    for (int i = 0; i < ROUNDS / 4; i++) {
        struct object *object = make(0);
        lw_rcu_read_lock();
        struct object *seen = lw_rcu_dereference(&newest);
        do {
            CHECK(seen->state == ALIVE);
            object->key = seen->key + 1;
        } while (!lw_rcu_compare_exchange(&newest, &seen, object));
        lw_rcu_read_unlock();
        lw_rcu_call(NULL, &seen->head, reclaim);
    }
    return unused;
}

int main(void) {
    one_thread();
    update(0, 0);
    in_threads(read_and_update);
    newest = make(0);
    in_threads(exchange);
    CHECK(newest->key == THREADS * (ROUNDS / 4));
    reclaim(&newest->head);
    lw_rcu_read_lock();
    lw_rcu_list_for_each(node, &list) {
        lw_rcu_list_remove(node);
        lw_rcu_call(NULL, &lw_rcu_entry(node, struct object, node)->head, reclaim);
    }
    lw_rcu_read_unlock();
    lw_rcu_barrier(NULL);
    CHECK(made == reclaimed);
    return 0;
}
