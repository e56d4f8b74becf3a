/* Plain variables behind a mutex, a reader-writer lock and RCU, for helgrind. */
#include "check.h"
#include <latchwork.h>

static lw_mutex_t mutex;
static lw_rwlock_t lock;
static long counter, value;

struct object {
    lw_rcu_head head;
    long number;
};
static struct object *shared;

static void reclaim(lw_rcu_head *head) {
    struct object *object = (struct object *)head;
    object->number = -1;
    free(object);
}

static struct object *make(long number) {
    struct object *object = malloc(sizeof *object);
    object->number = number;
    return object;
}

static void *work(void *thread) {
    for (int i = 0; i < 50; i++) {
        lw_mutex_lock(&mutex);
        counter++;
        lw_mutex_unlock(&mutex);
        if ((long)thread == 0) {
            lw_rwlock_wrlock(&lock);
            value++;
            lw_rwlock_wrunlock(&lock);
            /* Between a release and an acquisition that helgrind knows, because it does not know atomic operations. */
            lw_mutex_lock(&mutex);
            struct object *old = lw_rcu_exchange(&shared, make(i));
            lw_mutex_unlock(&mutex);
            lw_rcu_synchronize();
            LW_TSAN_ACQUIRE(lw_thread.clocks);
            reclaim(&old->head);
        } else {
            lw_rwlock_rdlock(&lock);
            CHECK(value >= 0);
            lw_rwlock_rdunlock(&lock);
        }
    }
    return NULL;
}

int main(void) {
    shared = make(-1);
    in_threads(work);
    CHECK(counter == 50 * THREADS);
    free(shared);
    return 0;
}
