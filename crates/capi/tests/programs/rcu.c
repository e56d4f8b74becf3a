/* RCU, epochs and quiescent-state-based RCU from C. */
#include "check.h"
#include <latchwork.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 3000, ALIVE = 0x600d, GONE = 0xbad };

struct object {
    int state;
    lw_rcu_head head;
    int number;
};

static struct object *shared;
static long reclaimed;

static struct object *of(lw_rcu_head *head) {
    return (struct object *)((char *)head - offsetof(struct object, head));
}

static void reclaim(lw_rcu_head *head) {
    struct object *object = of(head);
    CHECK(object->state == ALIVE);
    object->state = GONE;
    free(object);
    __atomic_fetch_add(&reclaimed, 1, __ATOMIC_RELAXED);
}

static void reclaim_object(void *object) { reclaim(&((struct object *)object)->head); }

static struct object *make(int number) {
    struct object *object = malloc(sizeof *object);
    object->state = ALIVE;
    object->number = number;
    return object;
}

/* The functions of a flavour. */
static void (*enter)(void), (*leave)(void);
static void (*call)(lw_rcu_head *), (*wait_for_readers)(void);
static int (*retire)(void *);

static void *read_and_replace(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        enter();
        struct object *object = lw_rcu_dereference(&shared);
        CHECK(object->state == ALIVE);
        enter();
        CHECK(object->state == ALIVE && object->number >= 0);
        leave();
        CHECK(object->state == ALIVE);
        leave();
        if (i % 4 == 0) {
            struct object *old = lw_rcu_exchange(&shared, make(i));
            switch (((long)number + i / 4) % 16) {
            case 0:
                wait_for_readers();
                reclaim(&old->head);
                break;
            case 1:
                CHECK(retire(old) == 0);
                break;
            default:
                call(&old->head);
            }
        }
    }
    return NULL;
}

static void rcu_call(lw_rcu_head *head) { lw_rcu_call(NULL, head, reclaim); }
static int rcu_retire(void *object) { return lw_rcu_retire(NULL, object, reclaim_object); }
static void epoch_call(lw_rcu_head *head) { lw_epoch_call(NULL, head, reclaim); }
static int epoch_retire(void *object) { return lw_epoch_retire(NULL, object, reclaim_object); }
static void rcu_enter(void) { lw_rcu_read_lock(); }
static void rcu_leave(void) { lw_rcu_read_unlock(); }
static void epoch_enter(void) { lw_epoch_enter(); }
static void epoch_leave(void) { lw_epoch_leave(); }
static void epoch_barrier(void) { lw_epoch_barrier(NULL); }

static void run(void) {
    reclaimed = 0;
    shared = make(0);
    in_threads(read_and_replace);
}

/* A thread that exits in a section and ends it in a destructor that runs after the library's own. */
static pthread_key_t late;
static void leave_late(void *round) {
    if ((long)round < 3) {
        CHECK(pthread_setspecific(late, (void *)((long)round + 1)) == 0);
        return;
    }
    lw_rcu_read_unlock();
    lw_rcu_read_lock();
    lw_rcu_read_unlock();
}

static void *read_until_exit(void *unused) {
    CHECK(pthread_setspecific(late, (void *)1) == 0);
    lw_rcu_read_lock();
    return unused;
}

static int depth;
static lw_rcu_head again;
static void call_again(lw_rcu_head *head) {
    lw_rcu_synchronize(); /* a callback may wait for readers */
    if (++depth < 5) {
        lw_rcu_call(NULL, head, call_again);
    }
}

/* The pauses grow to seconds: a domain leaves objects alone for a hundred times as long as the last reclamation took, in which a busy
 * machine may have preempted the thread. */
static void pause_before(int attempt) {
    long ms = 20 + attempt * attempt / 4;
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    CHECK(nanosleep(&pause, NULL) == 0);
}

static void general(void) {
    lw_garbage garbage;
    enter = rcu_enter, leave = rcu_leave, call = rcu_call, retire = rcu_retire, wait_for_readers = lw_rcu_synchronize;
    run();
    lw_rcu_barrier(NULL);
    CHECK(reclaimed == (long)THREADS * ROUNDS / 4);
    lw_rcu_garbage(NULL, &garbage);
    CHECK(garbage.objects == 0 && garbage.bytes == 0);

    /* Nothing is reclaimed before the reader has left, and retiring does not wait for it. */
    reclaimed = 0;
    lw_rcu_read_lock();
    CHECK(lw_rcu_is_reading());
    lw_rcu_barrier(NULL);
    uint64_t number = lw_rcu_start_poll();
    for (int i = 0; i < 5000; i++) {
        rcu_call(&make(i)->head);
    }
    CHECK(reclaimed == 0 && !lw_rcu_poll(number));
    lw_rcu_read_unlock();
    CHECK(!lw_rcu_is_reading());
    lw_rcu_synchronize_expedited();
    while (!lw_rcu_poll(number)) {
    }
    lw_rcu_barrier(NULL);
    CHECK(reclaimed == 5000);

    lw_rcu_call(NULL, &again, call_again);
    for (int i = 0; i < 5; i++) {
        lw_rcu_barrier(NULL);
    }
    CHECK(depth == 5);

    lw_rcu_domain *domain = lw_rcu_domain_create();
    CHECK(domain && domain != lw_rcu_default_domain() && lw_rcu_default_domain() == lw_rcu_default_domain());
    reclaimed = 0;
    lw_rcu_read_lock();
    for (int i = 0; i < 10; i++) {
        lw_rcu_call(domain, &make(i)->head, reclaim);
    }
    lw_rcu_garbage(domain, &garbage);
    CHECK(garbage.objects == 10 && reclaimed == 0);
    lw_rcu_read_unlock();
    /* The first one after a pause takes the reclamation a step on. */
    for (int i = 0; i < 100 && reclaimed < 10; i++) {
        pause_before(i);
        lw_rcu_call(domain, &make(i)->head, reclaim);
    }
    CHECK(reclaimed >= 10);
    /* And so do those in sections of their own, two pauses later. */
    reclaimed = 0;
    for (int i = 0; i < 100 && reclaimed < 5; i++) {
        pause_before(i);
        lw_rcu_read_lock();
        lw_rcu_call(domain, &make(i)->head, reclaim);
        lw_rcu_read_unlock();
    }
    CHECK(reclaimed >= 5);
    lw_rcu_barrier(domain);
    reclaimed = 0;
    lw_rcu_read_lock();
    for (int i = 0; i < 10; i++) {
        lw_rcu_call(domain, &make(i)->head, reclaim);
    }
    lw_rcu_read_unlock();
    lw_rcu_collect(domain);
    lw_rcu_domain_destroy(domain);
    CHECK(reclaimed == 10);

    CHECK(pthread_key_create(&late, leave_late) == 0);
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, read_until_exit, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    lw_rcu_synchronize();

    /* A child has the sections of the thread that forked, and no others. */
    lw_rcu_read_lock();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(lw_rcu_is_reading());
        lw_rcu_read_unlock();
        lw_rcu_synchronize();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    lw_rcu_read_unlock();
    free(shared);
}

static void epochs(void) {
    lw_garbage garbage;
    enter = epoch_enter, leave = epoch_leave, call = epoch_call, retire = epoch_retire, wait_for_readers = epoch_barrier;
    shared = NULL;
    run();
    lw_epoch_barrier(NULL);
    lw_epoch_garbage(NULL, &garbage);
    CHECK(garbage.objects == 0);
    free(shared);
    lw_epoch_domain *domain = lw_epoch_domain_create();
    lw_epoch_call(domain, &make(1)->head, reclaim);
    lw_epoch_collect(domain);
    lw_epoch_domain_destroy(domain);
}

static void *read_quiescent(void *number) {
    lw_qsbr_online();
    for (int i = 0; i < ROUNDS; i++) {
        struct object *object = lw_rcu_dereference(&shared);
        CHECK(object->state == ALIVE);
        lw_qsbr_quiescent();
        if (i % 8 == 0) {
            struct object *old = lw_rcu_exchange(&shared, make(i));
            if (i % 256 == 0) {
                lw_qsbr_synchronize();
                reclaim(&old->head);
            } else if (i % 16 == 0) {
                CHECK(lw_qsbr_retire(NULL, old, reclaim_object) == 0);
            } else {
                lw_qsbr_call(NULL, &old->head, reclaim);
            }
        }
        if (i % 100 == (long)number) {
            lw_qsbr_offline();
            lw_qsbr_online();
        }
    }
    if (number != NULL) {
        lw_qsbr_offline();
    } /* else the exit of the thread does it */
    return NULL;
}

/* A signal handler that reads, wherever it interrupts its thread. */
static int handled, is_done;

static void read_in_handler(int signal) {
    (void)signal;
    rcu_enter();
    CHECK(lw_rcu_dereference(&shared)->state == ALIVE);
    rcu_leave();
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static void *read_interrupted(void *unused) {
    lw_rcu_read_lock(); /* makes the thread known */
    lw_rcu_read_unlock();
    sigset_t none;
    sigemptyset(&none);
    CHECK(pthread_sigmask(SIG_SETMASK, &none, NULL) == 0);
    for (int i = 0; i < 10 * ROUNDS || __atomic_load_n(&handled, __ATOMIC_RELAXED) < 100; i++) {
        rcu_enter();
        CHECK(lw_rcu_dereference(&shared)->state == ALIVE);
        rcu_enter();
        rcu_leave();
        rcu_leave();
        CHECK(!lw_rcu_is_reading());
        if (i % 4 == 0) {
            rcu_call(&lw_rcu_exchange(&shared, make(i))->head);
        }
    }
    __atomic_store_n(&is_done, 1, __ATOMIC_RELEASE);
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    return unused;
}

static void interrupted(void) {
    struct sigaction action = {.sa_handler = read_in_handler};
    sigset_t mine;
    pthread_t thread;
    shared = make(0);
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && pthread_sigmask(SIG_BLOCK, &mine, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, read_interrupted, NULL) == 0);
    struct timespec pause = {0, 20000};
    while (!__atomic_load_n(&is_done, __ATOMIC_ACQUIRE)) {
        CHECK(pthread_kill(thread, SIGUSR1) == 0 && nanosleep(&pause, NULL) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0 && handled >= 100);
    lw_rcu_synchronize();
    free(shared);
}

static void quiescent(void) {
    lw_garbage garbage;
    reclaimed = 0;
    shared = make(0);
    in_threads(read_quiescent);
    lw_qsbr_online();
    lw_qsbr_barrier(NULL);
    lw_qsbr_collect(NULL);
    lw_qsbr_garbage(NULL, &garbage);
    CHECK(garbage.objects == 0 && reclaimed == (long)THREADS * ROUNDS / 8);
    lw_qsbr_domain *domain = lw_qsbr_domain_create();
    lw_qsbr_call(domain, &make(1)->head, reclaim);
    lw_qsbr_domain_destroy(domain);
    /* A thread that is online polls for others; for itself it announces a quiescent state. */
    uint64_t number = lw_qsbr_start_poll();
    CHECK(!lw_qsbr_poll(number));
    while (!lw_qsbr_poll(number)) {
        lw_qsbr_quiescent();
    }
    lw_qsbr_offline();
    number = lw_qsbr_start_poll();
    while (!lw_qsbr_poll(number)) {
    }
    lw_qsbr_offline();
    free(shared);
}

int main(void) {
    lw_rcu_domain_destroy(NULL); /* as free */
    lw_epoch_domain_destroy(NULL);
    lw_qsbr_domain_destroy(NULL);
    general();
    interrupted();
    epochs();
    quiescent();
    puts("ok");
    return 0;
}
