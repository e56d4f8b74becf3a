/* Every kind of lock: results, exclusion, errors, and that zero bytes are ready for use. */
#include "check.h"
#include <latchwork.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 4000 };

#if LW_DEBUG
/* In place of the preload library: what the calls tell of a thread's locks must agree with what the thread does. */
static __thread struct {
    const void *lock;
    int reads;
} held[20];
static __thread int holds;

int latchwork_observe_acquire(void *lock, int how, int (*attempt)(void *), int (*block)(void *), void *context) {
    (void)attempt;
    int result = block(context);
    if (result == 0) {
        CHECK(holds < 20);
        held[holds].lock = lock;
        held[holds++].reads = how & 1;
    }
    return result;
}

int latchwork_observe_release(void *lock, int how, int (*below)(void *), void *context) {
    int at = holds - 1;
    while (at >= 0 && held[at].lock != lock) {
        at--;
    }
    CHECK(at >= 0 && held[at].reads == (how & 1));
    held[at] = held[--holds];
    return below(context);
}

void latchwork_observe_gone(void *lock) {
    for (int i = 0; i < holds; i++) {
        CHECK(held[i].lock != lock);
    }
}
#endif

static lw_mutex_t mutex;
static lw_rwlock_t rwlock;
static long counter;

static void *add(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        lw_mutex_lock(&mutex);
        counter++;
        if (i % 64 == (long)number) {
            lw_mutex_unlock_fair(&mutex);
        } else {
            lw_mutex_unlock(&mutex);
        }
    }
    return NULL;
}

/* Runs a function in another thread: the locks' holders are told apart by thread. */
static void *run(void *body) {
    ((void (*)(void))body)();
    return NULL;
}

static void elsewhere(void (*body)(void)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, (void *)body) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void mutex_is_held(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 20), real = in_ms(CLOCK_REALTIME, 20), wrong = {0, 1000000000};
    CHECK(lw_mutex_trylock(&mutex) == EBUSY);
    CHECK(lw_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(lw_mutex_timedlock(&mutex, &real) == ETIMEDOUT);
    CHECK(lw_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &wrong) == EINVAL);
    CHECK(lw_mutex_clocklock(&mutex, CLOCK_BOOTTIME, &soon) == EINVAL);
    CHECK(lw_mutex_is_locked(&mutex) && lw_mutex_destroy(&mutex) == EBUSY);
}

static void mutex_is_free(void) {
    struct timespec past = {0, 0};
    CHECK(!lw_mutex_is_locked(&mutex));
    CHECK(lw_mutex_trylock(&mutex) == 0 && lw_mutex_unlock(&mutex) == 0);
    CHECK(lw_mutex_clocklock(&mutex, CLOCK_REALTIME, &past) == 0);
    CHECK(lw_mutex_unlock_fair(&mutex) == 0);
}

static void mutexes(void) {
    static lw_mutex_t initialised = LW_MUTEX_INIT;
    CHECK(memcmp(&initialised, &mutex, sizeof mutex) == 0);
    CHECK(lw_mutex_lock(&mutex) == 0);
    elsewhere(mutex_is_held);
    CHECK(lw_mutex_unlock(&mutex) == 0);
    elsewhere(mutex_is_free);
    in_threads(add);
    CHECK(counter == (long)THREADS * ROUNDS);
    CHECK(lw_mutex_destroy(&mutex) == 0 && lw_mutex_init(&mutex) == 0);
}

static void rwlock_is_read(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 20);
    CHECK(lw_rwlock_tryrdlock(&rwlock) == 0 && lw_rwlock_rdunlock(&rwlock) == 0);
    CHECK(lw_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &soon) == 0 && lw_rwlock_rdunlock(&rwlock) == 0);
    CHECK(lw_rwlock_trywrlock(&rwlock) == EBUSY);
    CHECK(lw_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(lw_rwlock_is_locked(&rwlock) && lw_rwlock_destroy(&rwlock) == EBUSY);
}

static void rwlock_is_written(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 20);
    CHECK(lw_rwlock_tryrdlock(&rwlock) == EBUSY && lw_rwlock_trywrlock(&rwlock) == EBUSY);
    CHECK(lw_rwlock_tryuplock(&rwlock) == EBUSY);
    CHECK(lw_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(lw_rwlock_clockuplock(&rwlock, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(lw_rwlock_clockrdlock(&rwlock, CLOCK_BOOTTIME, &soon) == EINVAL);
}

static void rwlock_is_upgradable(void) {
    CHECK(lw_rwlock_tryrdlock(&rwlock) == 0 && lw_rwlock_rdunlock(&rwlock) == 0);
    CHECK(lw_rwlock_tryuplock(&rwlock) == EBUSY && lw_rwlock_trywrlock(&rwlock) == EBUSY);
}

static long pair[2];

static void *read_and_write(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        switch (number == NULL ? i % 200 : 5 + i % 100) {
        case 0:
            lw_rwlock_wrlock(&rwlock);
            pair[0]++, pair[1]++;
            lw_rwlock_wrunlock(&rwlock);
            break;
        case 1:
            lw_rwlock_uplock(&rwlock);
            CHECK(pair[0] == pair[1]);
            lw_rwlock_upgrade(&rwlock);
            pair[0]++, pair[1]++;
            lw_rwlock_downgrade(&rwlock);
            CHECK(pair[0] == pair[1]);
            lw_rwlock_rdunlock(&rwlock);
            break;
        default:
            lw_rwlock_rdlock(&rwlock);
            if (i % 16 == 0) {
                lw_rwlock_rdlock_recursive(&rwlock);
                CHECK(pair[0] == pair[1]);
                lw_rwlock_rdunlock(&rwlock);
            }
            CHECK(pair[0] == pair[1]);
            lw_rwlock_rdunlock(&rwlock);
        }
    }
    return NULL;
}

/* Two threads have an upgradable read one after the other. The second sees what the first did, although no lock for writing and no
 * other order that ThreadSanitizer knows is between them: `step` is relaxed. */
static int step;
static long by_upgradable_readers;

static void *one_after_the_other(void *number) {
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) != (number != NULL)) {
        sched_yield();
    }
    lw_rwlock_uplock(&rwlock);
    by_upgradable_readers++;
    if (number == NULL) {
        lw_rwlock_downgrade_upgradable(&rwlock);
        lw_rwlock_rdunlock(&rwlock);
    } else {
        lw_rwlock_upunlock(&rwlock);
    }
    __atomic_store_n(&step, number == NULL ? 1 : 2, __ATOMIC_RELAXED);
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) != 2 + (number != NULL)) {
        sched_yield();
    }
    CHECK(lw_rwlock_tryuplock(&rwlock) == 0);
    by_upgradable_readers++;
    lw_rwlock_upunlock(&rwlock);
    __atomic_store_n(&step, number == NULL ? 3 : 0, __ATOMIC_RELAXED);
    return NULL;
}

static void upgradable_readers(void *body(void *)) {
    pthread_t threads[2];
    by_upgradable_readers = 0;
    CHECK(pthread_create(&threads[0], NULL, body, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, body, &step) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    CHECK(by_upgradable_readers == 4 && step == 0);
}

/* A thread that exits with a read lock, and unlocks it in a destructor that runs after the library's own. */
static pthread_key_t late;
static void leave_late(void *round) {
    if ((long)round < 3) {
        CHECK(pthread_setspecific(late, (void *)((long)round + 1)) == 0);
        return;
    }
    CHECK(lw_rwlock_rdunlock(&rwlock) == 0);
    lw_rwlock_rdlock(&rwlock);
    lw_rwlock_rdunlock(&rwlock);
}

static void read_until_exit(void) {
    CHECK(pthread_setspecific(late, (void *)1) == 0);
    lw_rwlock_rdlock(&rwlock);
}

/* The same, with a second read lock, which the thread takes in one round of destructors and unlocks in the next one. */
static lw_rwlock_t early_read, late_read;
static pthread_key_t later;
static void leave_later(void *round) {
    if ((long)round == 2) {
        lw_rwlock_rdlock(&late_read);
    }
    if ((long)round < 3) {
        CHECK(pthread_setspecific(later, (void *)((long)round + 1)) == 0);
        return;
    }
    CHECK(lw_rwlock_rdunlock(&late_read) == 0 && lw_rwlock_rdunlock(&early_read) == 0);
}

static void read_two_until_exit(void) {
    CHECK(pthread_setspecific(later, (void *)1) == 0);
    lw_rwlock_rdlock(&early_read);
}

static void rwlocks(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 5);
    for (int i = 0; i < 40; i++) { /* the lock becomes biased */
        CHECK(lw_rwlock_rdlock(&rwlock) == 0);
        if (i % 39 == 0) {
            elsewhere(rwlock_is_read);
        }
        CHECK(lw_rwlock_rdunlock(&rwlock) == 0);
    }
    CHECK(lw_rwlock_wrlock(&rwlock) == 0);
    elsewhere(rwlock_is_written);
    CHECK(lw_rwlock_downgrade(&rwlock) == 0);
    elsewhere(rwlock_is_read);
    CHECK(lw_rwlock_rdunlock(&rwlock) == 0);
    CHECK(lw_rwlock_uplock(&rwlock) == 0);
    elsewhere(rwlock_is_upgradable);
    CHECK(lw_rwlock_tryupgrade(&rwlock) == 0);
    elsewhere(rwlock_is_written);
    CHECK(lw_rwlock_downgrade_to_upgradable(&rwlock) == 0);
    CHECK(lw_rwlock_clockupgrade(&rwlock, CLOCK_MONOTONIC, &soon) == 0);
    CHECK(lw_rwlock_downgrade_to_upgradable(&rwlock) == 0);
    elsewhere(rwlock_is_upgradable);
    CHECK(lw_rwlock_downgrade_upgradable(&rwlock) == 0);
    elsewhere(rwlock_is_read);
    CHECK(lw_rwlock_rdunlock(&rwlock) == 0);
    CHECK(lw_rwlock_tryuplock(&rwlock) == 0 && lw_rwlock_upgrade(&rwlock) == 0 && lw_rwlock_wrunlock(&rwlock) == 0);
    CHECK(lw_rwlock_wrlock(&rwlock) == 0 && lw_rwlock_downgrade_to_upgradable(&rwlock) == 0);
    CHECK(lw_rwlock_upunlock(&rwlock) == 0);
    CHECK(lw_rwlock_wrlock(&rwlock) == 0 && lw_rwlock_wrunlock_fair(&rwlock) == 0);
    CHECK(!lw_rwlock_is_locked(&rwlock));
    CHECK(pthread_key_create(&late, leave_late) == 0);
    for (int i = 0; i < 5; i++) {
        elsewhere(read_until_exit);
    }
    CHECK(lw_rwlock_trywrlock(&rwlock) == 0 && lw_rwlock_wrunlock(&rwlock) == 0);
    CHECK(pthread_key_create(&later, leave_later) == 0);
    for (int i = 0; i < 100; i++) { /* the locks become biased */
        lw_rwlock_rdlock(&early_read), lw_rwlock_rdlock(&late_read);
        lw_rwlock_rdunlock(&late_read), lw_rwlock_rdunlock(&early_read);
    }
    for (int i = 0; i < 5; i++) {
        elsewhere(read_two_until_exit);
        CHECK(!lw_rwlock_is_locked(&early_read) && !lw_rwlock_is_locked(&late_read));
    }
    CHECK(lw_rwlock_trywrlock(&early_read) == 0 && lw_rwlock_wrunlock(&early_read) == 0);
    CHECK(lw_rwlock_destroy(&early_read) == 0 && lw_rwlock_destroy(&late_read) == 0);
    upgradable_readers(one_after_the_other);
    in_threads(read_and_write);
    CHECK(pair[0] == 2 * (ROUNDS / 200));
    CHECK(lw_rwlock_destroy(&rwlock) == 0 && lw_rwlock_init(&rwlock) == 0);
}

static lw_cond_t cond;
static int turn;

static void *take_turns(void *number) {
    for (int i = 0; i < 200; i++) {
        lw_mutex_lock(&mutex);
        while (turn % THREADS != (long)number) {
            lw_cond_wait(&cond, &mutex);
        }
        turn++;
        lw_mutex_unlock(&mutex);
        lw_cond_broadcast(&cond);
    }
    return NULL;
}

static void signal_once(void) {
    lw_mutex_lock(&mutex);
    turn = 1;
    lw_mutex_unlock(&mutex);
    lw_cond_signal(&cond);
}

static void *signal_later(void *unused) {
    struct timespec ms = {0, 2000000};
    nanosleep(&ms, NULL);
    signal_once();
    return unused;
}

/* Its time passes, mostly while another thread holds the mutex: then it has to wait for that thread. */
static void *times_out(void *unused) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 10);
    (void)unused;
    lw_mutex_lock(&mutex);
    turn = 1;
    while (lw_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &soon) == 0) {
    }
    CHECK(turn != 2);
    lw_mutex_unlock(&mutex);
    return NULL;
}

static void timeout_beside_a_holder(void) {
    struct timespec longer = {0, 50000000};
    pthread_t thread;
    turn = 0;
    CHECK(pthread_create(&thread, NULL, times_out, NULL) == 0);
    lw_mutex_lock(&mutex);
    while (turn == 0) {
        lw_mutex_unlock(&mutex);
        sched_yield();
        lw_mutex_lock(&mutex);
    }
    turn = 2;
    nanosleep(&longer, NULL);
    turn = 3;
    lw_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
}

/* A condition variable is not destroyed before the waiters that have been notified are out of their wait. */
static lw_cond_t ended;
static int is_destroyed;

static void *destroy_it(void *unused) {
    CHECK(lw_cond_destroy(&ended) == 0);
    __atomic_store_n(&is_destroyed, 1, __ATOMIC_RELEASE);
    return unused;
}

static void destroyed_while_waited(void) {
    struct timespec ms = {0, 20000000};
    pthread_t thread;
    uint32_t ticket = lw_cond_prepare(&ended);
    lw_cond_broadcast(&ended);
    CHECK(pthread_create(&thread, NULL, destroy_it, NULL) == 0);
    nanosleep(&ms, NULL);
    CHECK(!__atomic_load_n(&is_destroyed, __ATOMIC_ACQUIRE));
    lw_cond_finish(&ended, ticket, 0);
    pthread_join(thread, NULL);
}

static void conditions(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 20), real = in_ms(CLOCK_REALTIME, 20), wrong = {0, -1};
    pthread_t thread;
    int result;
    CHECK(lw_cond_signal(&cond) == 0 && lw_cond_broadcast(&cond) == 0);
    lw_mutex_lock(&mutex);
    while ((result = lw_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &soon)) == 0) {
    }
    CHECK(result == ETIMEDOUT && lw_mutex_is_locked(&mutex));
    while ((result = lw_cond_timedwait(&cond, &mutex, &real)) == 0) {
    }
    CHECK(result == ETIMEDOUT);
    CHECK(lw_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &wrong) == EINVAL && lw_mutex_is_locked(&mutex));
    CHECK(lw_cond_clockwait(&cond, &mutex, 77, &soon) == EINVAL);
    lw_mutex_unlock(&mutex);

    /* With a lock of another library, step by step. */
    pthread_mutex_t foreign = PTHREAD_MUTEX_INITIALIZER;
    turn = 0;
    CHECK(pthread_create(&thread, NULL, signal_later, NULL) == 0);
    pthread_mutex_lock(&foreign);
    for (;;) {
        uint32_t ticket = lw_cond_prepare(&cond);
        pthread_mutex_unlock(&foreign);
        lw_mutex_lock(&mutex);
        int done = turn;
        lw_mutex_unlock(&mutex);
        soon = in_ms(CLOCK_MONOTONIC, 100);
        result = done ? 0 : lw_cond_block(&cond, ticket, CLOCK_MONOTONIC, &soon);
        lw_cond_finish(&cond, ticket, result);
        pthread_mutex_lock(&foreign);
        if (done) {
            break;
        }
    }
    pthread_mutex_unlock(&foreign);
    pthread_join(thread, NULL);
    /* A notification that has come meanwhile counts more than the time that has passed. */
    uint32_t ticket = lw_cond_prepare(&cond);
    CHECK(lw_cond_finish(&cond, ticket, ETIMEDOUT) == ETIMEDOUT);
    ticket = lw_cond_prepare(&cond);
    lw_cond_signal(&cond);
    CHECK(lw_cond_finish(&cond, ticket, ETIMEDOUT) == 0);

    timeout_beside_a_holder();
    destroyed_while_waited();
    turn = 0;
    in_threads(take_turns);
    CHECK(turn == 200 * THREADS && !lw_cond_has_waiters(&cond));
    CHECK(lw_cond_destroy(&cond) == 0 && lw_cond_init(&cond) == 0);
}

static lw_sem_t items, rooms = LW_SEM_INIT(3);
static long produced, consumed;

static void *produce(void *number) {
    for (int i = 0; i < 2000; i++) {
        if ((long)number % 2 == 0) {
            lw_sem_wait(&rooms);
            __atomic_fetch_add(&produced, 1, __ATOMIC_RELAXED);
            lw_sem_post(&items);
        } else {
            lw_sem_wait(&items);
            __atomic_fetch_add(&consumed, 1, __ATOMIC_RELAXED);
            lw_sem_post(&rooms);
        }
    }
    return NULL;
}

static void semaphores(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 20), real = in_ms(CLOCK_REALTIME, 20), wrong = {0, 1000000000};
    CHECK(lw_sem_value(&items) == 0 && lw_sem_value(&rooms) == 3);
    CHECK(lw_sem_trywait(&items) == EBUSY);
    CHECK(lw_sem_clockwait(&items, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(lw_sem_timedwait(&items, &real) == ETIMEDOUT);
    CHECK(lw_sem_clockwait(&items, CLOCK_MONOTONIC, &wrong) == EINVAL);
    CHECK(lw_sem_post(&items) == 0 && lw_sem_post_many(&items, 2) == 0 && lw_sem_value(&items) == 3);
    CHECK(lw_sem_wait(&items) == 0 && lw_sem_trywait(&items) == 0);
    CHECK(lw_sem_clockwait(&items, CLOCK_MONOTONIC, &soon) == 0 && lw_sem_trywait(&items) == EBUSY);
    lw_sem_t full;
    CHECK(lw_sem_init(&full, LW_SEM_VALUE_MAX + 1u) == EINVAL && lw_sem_init(&full, LW_SEM_VALUE_MAX) == 0);
    CHECK(lw_sem_post(&full) == EOVERFLOW && lw_sem_value(&full) == LW_SEM_VALUE_MAX);
    CHECK(lw_sem_trywait(&full) == 0 && lw_sem_post(&full) == 0 && lw_sem_destroy(&full) == 0);
    in_threads(produce);
    CHECK(produced == consumed && produced == 2000 * THREADS / 2 && lw_sem_value(&rooms) == 3);
}

static lw_seqlock_t seqlock;
static uint64_t words[3];

static void *copy_or_store(void *number) {
    uint64_t last = 0;
    for (int i = 0; i < 5000; i++) {
        uint64_t copy[3];
        if (number == NULL) {
            lw_seqlock_write_lock(&seqlock);
            uint64_t next[3] = {words[0] + 1, words[1] + 2, words[2] + 3};
            lw_seqlock_store(&seqlock, words, next, 3);
            lw_seqlock_write_unlock(&seqlock);
        } else {
            CHECK(lw_seqlock_read(&seqlock, copy, words, 3) == 0);
            CHECK(copy[1] == 2 * copy[0] && copy[2] == 3 * copy[0] && copy[0] >= last);
            last = copy[0];
        }
    }
    return NULL;
}

static void sequence_locks(void) {
    uint64_t copy[3];
    in_threads(copy_or_store);
    CHECK(lw_seqlock_try_read(&seqlock, copy, words, 3) == 0 && copy[0] == 5000);
    seqlock.sequence++;
    CHECK(lw_seqlock_try_read(&seqlock, copy, words, 3) == EBUSY);
    CHECK(lw_seqlock_read(&seqlock, copy, words, 3) == 0 && copy[2] == 15000);
    CHECK(lw_seqlock_init(&seqlock) == 0);
}

static lw_any_mutex_t any;
static lw_any_rwlock_t any_rw;

static void *add_any(void *unused) {
    for (int i = 0; i < 40; i++) {
        lw_any_mutex_lock(&any);
        counter++;
        lw_any_mutex_unlock(&any);
    }
    return unused;
}

/* An upgradable read that upgrades; in locks without one, a write acquisition. */
static void change_any_rw(void) {
    lw_token token;
    if (lw_any_rwlock_uplock(&any_rw, &token) == 0) {
        long before = pair[0];
        CHECK(pair[1] == before && lw_any_rwlock_upgrade(&any_rw, token) == 0);
        CHECK(pair[0] == before); /* no writer in between */
    } else {
        CHECK(lw_any_rwlock_wrlock(&any_rw) == 0);
    }
    pair[0]++, pair[1]++;
    if (lw_any_rwlock_downgrade_to_upgradable(&any_rw, &token) == 0) {
        CHECK(pair[0] == pair[1]);
        CHECK(lw_any_rwlock_upunlock(&any_rw, token) == 0);
    } else {
        CHECK(lw_any_rwlock_wrunlock(&any_rw) == 0);
    }
}

static void *use_any_rw(void *number) {
    for (int i = 0; i < 40; i++) {
        lw_token token;
        if (i % 10 == (long)number + 5) {
            change_any_rw();
            continue;
        }
        if (i % 10 == (long)number) {
            lw_any_rwlock_wrlock(&any_rw);
            pair[0]++, pair[1]++;
            if (lw_any_rwlock_downgrade(&any_rw, &token) == 0) {
                CHECK(pair[0] == pair[1]);
                lw_any_rwlock_rdunlock(&any_rw, token);
            } else {
                lw_any_rwlock_wrunlock(&any_rw);
            }
        } else {
            lw_any_rwlock_rdlock(&any_rw, &token);
            CHECK(pair[0] == pair[1]);
            lw_any_rwlock_rdunlock(&any_rw, token);
        }
    }
    return NULL;
}

static void any_is_held(void) {
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 2);
    CHECK(lw_any_mutex_trylock(&any) == EBUSY);
    CHECK(lw_any_mutex_clocklock(&any, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(lw_any_mutex_clocklock(&any, 77, &soon) == EINVAL);
}

static void any_rw_is_upgradable(void) {
    struct timespec past = {0, 0};
    lw_token token;
    CHECK(lw_any_rwlock_rdlock(&any_rw, &token) == 0 && lw_any_rwlock_rdunlock(&any_rw, token) == 0);
    CHECK(lw_any_rwlock_tryuplock(&any_rw, &token) == EBUSY && lw_any_rwlock_trywrlock(&any_rw) == EBUSY);
    CHECK(lw_any_rwlock_clockuplock(&any_rw, CLOCK_MONOTONIC, &past, &token) == ETIMEDOUT);
    CHECK(lw_any_rwlock_clockuplock(&any_rw, 77, &past, &token) == EINVAL);
}

static void any_rw_is_read(void) {
    lw_token token;
    CHECK(lw_any_rwlock_uplock(&any_rw, &token) == 0 && lw_any_rwlock_upunlock(&any_rw, token) == 0);
    CHECK(lw_any_rwlock_trywrlock(&any_rw) == EBUSY);
}

static void any_rw_is_written(void) {
    lw_token token;
    CHECK(lw_any_rwlock_tryrdlock(&any_rw, &token) == EBUSY && lw_any_rwlock_tryuplock(&any_rw, &token) == EBUSY);
}

static void *one_any_after_the_other(void *number) {
    lw_token token;
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) != (number != NULL)) {
        sched_yield();
    }
    CHECK(lw_any_rwlock_uplock(&any_rw, &token) == 0);
    by_upgradable_readers++;
    if (number == NULL) {
        CHECK(lw_any_rwlock_downgrade_upgradable(&any_rw, &token) == 0);
        lw_any_rwlock_rdunlock(&any_rw, token);
    } else {
        CHECK(lw_any_rwlock_upunlock(&any_rw, token) == 0);
    }
    __atomic_store_n(&step, number == NULL ? 1 : 2, __ATOMIC_RELAXED);
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) != 2 + (number != NULL)) {
        sched_yield();
    }
    CHECK(lw_any_rwlock_tryuplock(&any_rw, &token) == 0);
    by_upgradable_readers++;
    CHECK(lw_any_rwlock_upunlock(&any_rw, token) == 0);
    __atomic_store_n(&step, number == NULL ? 3 : 0, __ATOMIC_RELAXED);
    return NULL;
}

/* Whether `any_rw` has upgradable reads, each step of which is tried. */
static int any_rw_upgrades(void) {
    struct timespec past = {0, 0};
    lw_token token = 0, read;
    if (!any_rw.ops->upgrade) {
        CHECK(lw_any_rwlock_uplock(&any_rw, &token) == ENOTSUP && lw_any_rwlock_tryuplock(&any_rw, &token) == ENOTSUP);
        CHECK(lw_any_rwlock_clockuplock(&any_rw, CLOCK_MONOTONIC, &past, &token) == ENOTSUP);
        CHECK(lw_any_rwlock_upunlock(&any_rw, token) == ENOTSUP && lw_any_rwlock_upgrade(&any_rw, token) == ENOTSUP);
        CHECK(lw_any_rwlock_tryupgrade(&any_rw, &token) == ENOTSUP);
        CHECK(lw_any_rwlock_clockupgrade(&any_rw, CLOCK_MONOTONIC, &past, &token) == ENOTSUP);
        CHECK(lw_any_rwlock_downgrade_upgradable(&any_rw, &token) == ENOTSUP);
        CHECK(lw_any_rwlock_wrlock(&any_rw) == 0);
        CHECK(lw_any_rwlock_downgrade_to_upgradable(&any_rw, &token) == ENOTSUP);
        CHECK(lw_any_rwlock_wrunlock(&any_rw) == 0);
        return 0;
    }
    CHECK(lw_any_rwlock_uplock(&any_rw, &token) == 0);
    elsewhere(any_rw_is_upgradable);
    CHECK(lw_any_rwlock_rdlock(&any_rw, &read) == 0); /* a reader, for which the upgrades would wait */
    CHECK(lw_any_rwlock_tryupgrade(&any_rw, &token) == EBUSY);
    CHECK(lw_any_rwlock_clockupgrade(&any_rw, CLOCK_MONOTONIC, &past, &token) == ETIMEDOUT);
    CHECK(lw_any_rwlock_clockupgrade(&any_rw, 77, &past, &token) == EINVAL);
    elsewhere(any_rw_is_upgradable);
    CHECK(lw_any_rwlock_rdunlock(&any_rw, read) == 0);
    CHECK(lw_any_rwlock_tryupgrade(&any_rw, &token) == 0);
    elsewhere(any_rw_is_written);
    CHECK(lw_any_rwlock_downgrade_to_upgradable(&any_rw, &token) == 0);
    elsewhere(any_rw_is_upgradable);
    CHECK(lw_any_rwlock_upgrade(&any_rw, token) == 0);
    elsewhere(any_rw_is_written);
    CHECK(lw_any_rwlock_wrunlock(&any_rw) == 0);
    CHECK(lw_any_rwlock_tryuplock(&any_rw, &token) == 0);
    CHECK(lw_any_rwlock_downgrade_upgradable(&any_rw, &token) == 0);
    elsewhere(any_rw_is_read);
    CHECK(lw_any_rwlock_rdunlock(&any_rw, token) == 0);
    CHECK(lw_any_rwlock_trywrlock(&any_rw) == 0 && lw_any_rwlock_wrunlock(&any_rw) == 0);
    upgradable_readers(one_any_after_the_other);
    return 1;
}

static void locks_by_name(void) {
    const char *name;
    size_t count = 0, upgradable = 0;
    CHECK(lw_any_mutex_init(&any, "no-such-lock") == ENOENT && lw_any_rwlock_init(&any_rw, "shfl") == ENOENT);
    for (; (name = lw_mutex_name_of(count)) != NULL; count++) {
        counter = 0;
        CHECK(lw_any_mutex_init(&any, name) == 0 && strcmp(any.ops->name, name) == 0);
        CHECK(lw_any_mutex_lock(&any) == 0);
        elsewhere(any_is_held);
        CHECK(lw_any_mutex_unlock(&any) == 0 && lw_any_mutex_trylock(&any) == 0);
        if (lw_any_mutex_unlock_fair(&any) == ENOTSUP) {
            CHECK(lw_any_mutex_trylock(&any) == EBUSY && lw_any_mutex_unlock(&any) == 0);
        }
        in_threads(add_any);
        CHECK(counter == 40 * THREADS);
        lw_any_mutex_destroy(&any);
    }
    CHECK(count >= 26);
    for (count = 0; (name = lw_rwlock_name_of(count)) != NULL; count++) {
        pair[0] = pair[1] = 0;
        CHECK(lw_any_rwlock_init(&any_rw, name) == 0);
        upgradable += any_rw_upgrades();
        in_threads(use_any_rw);
        CHECK(pair[0] == 8 * THREADS && pair[1] == pair[0]);
        lw_any_rwlock_destroy(&any_rw);
    }
    CHECK(count >= 15 && upgradable >= 8);
    CHECK(lw_any_mutex_init(&any, NULL) == 0 && strcmp(any.ops->name, "shfl") == 0);
    lw_any_mutex_destroy(&any);
}

static lw_mcs_t mcs;
static lw_cna_t cna;
static lw_pf_q_t phase_fair;

static void *add_typed(void *unused) {
    for (int i = 0; i < 100; i++) {
        lw_token token;
        lw_mcs_lock(&mcs);
        lw_cna_lock(&cna);
        lw_pf_q_wrlock(&phase_fair);
        counter++;
        CHECK(lw_pf_q_downgrade(&phase_fair, &token) == 0);
        CHECK(lw_pf_q_rdunlock(&phase_fair, token) == 0);
        CHECK(lw_pf_q_uplock(&phase_fair, &token) == 0 && lw_pf_q_upgrade(&phase_fair, token) == 0);
        counter++;
        CHECK(lw_pf_q_downgrade_to_upgradable(&phase_fair, &token) == 0);
        CHECK(lw_pf_q_downgrade_upgradable(&phase_fair, &token) == 0);
        CHECK(lw_pf_q_rdunlock(&phase_fair, token) == 0);
        lw_cna_unlock(&cna);
        lw_mcs_unlock(&mcs);
    }
    return unused;
}

static void locks_by_type(void) {
    counter = 0;
    in_threads(add_typed);
    CHECK(counter == 2 * 100 * THREADS);
    CHECK(lw_mcs_trylock(&mcs) == 0 && lw_mcs_trylock(&mcs) == EBUSY && lw_mcs_unlock_fair(&mcs) == 0);
    lw_pf_q_destroy(&phase_fair);
}

/* What gdb reads. */
struct named {
    const void *object;
    char name[40];
};
extern const struct named *lw_names;

static const char *name_of(const void *object) {
    for (const struct named *at = lw_names; at->object; at++) {
        if (at->object == object) {
            return at->name;
        }
    }
    return NULL;
}

static long resident_pages(void) {
    long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident;
}

/* Names that come and go take no memory. */
static void names(void) {
    enum { NAMED = 100, PAIRS = 10000 };
    static char objects[NAMED + 1];
    char name[60];
    for (int i = 0; i < NAMED; i++) {
        snprintf(name, sizeof name, "%d and what is cut off behind the 39th byte", i);
        lw_name(&objects[i], name);
    }
    CHECK(strlen(name_of(&objects[7])) == 39 && strncmp(name_of(&objects[7]), "7 and", 5) == 0);
    const long before = resident_pages();
    for (int i = 0; i < PAIRS; i++) {
        lw_name(&objects[NAMED], "comes and goes");
        lw_name(&objects[NAMED], NULL);
    }
    CHECK(resident_pages() - before < 4L * 1024 * 1024 / sysconf(_SC_PAGESIZE));
    lw_name(&objects[7], "another");
    for (int i = 0; i < NAMED; i += 2) {
        lw_name(&objects[i], NULL);
    }
    lw_name(&objects[2], NULL);
    for (int i = 0; i <= NAMED; i++) {
        const char *now = name_of(&objects[i]);
        CHECK(i % 2 == 0 || i == NAMED ? !now : now && (i == 7 ? strcmp(now, "another") == 0 : atoi(now) == i));
    }
    for (int i = 0; i < NAMED; i++) {
        lw_name(&objects[i], NULL);
    }
    CHECK(!lw_names->object);
}

/* Each thread names objects of its own. The names share memory of the library. */
static void *name_own_objects(void *thread) {
    enum { OWN = 200 };
    static char objects[THREADS][OWN];
    for (int i = 0; i < OWN; i++) {
        lw_name(&objects[(long)thread][i], "an object");
    }
    for (int i = 0; i < OWN; i++) {
        lw_name(&objects[(long)thread][i], NULL);
    }
    return NULL;
}

int main(void) {
    lw_init();
    CHECK(strcmp(lw_version(), LW_VERSION) == 0);
    mutexes();
    rwlocks();
    conditions();
    semaphores();
    sequence_locks();
    locks_by_name();
    locks_by_type();
    names();
    in_threads(name_own_objects);
    CHECK(!lw_names->object);
#if LW_DEBUG
    CHECK(holds == 0 && lw_thread_debug.holds == 0);
#endif
    puts("ok");
    return 0;
}
