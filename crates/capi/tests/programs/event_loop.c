/* An event loop of docs/c.md, which the test puts into the file LOOP, with and without WITH_URING. It serves events until another
 * thread has seen a few grace periods end. */
#include "check.h"
#include <latchwork.h>
#include <string.h>

#ifdef WITH_URING
#include <liburing.h>
#else
#include <sys/epoll.h>
#include <sys/eventfd.h>
#endif

enum { EVENTS = 1000, GRACE_PERIODS = 5 };

static int table = 1;
static int *shared = &table;
static long grace_periods;

/* Reads what RCU protects. Ends the program when enough has happened. */
static void read_table(void) {
    static int served;
    CHECK(*lw_rcu_dereference(&shared) == 1);
    if (++served >= EVENTS && __atomic_load_n(&grace_periods, __ATOMIC_RELAXED) >= GRACE_PERIODS) {
        puts("ok");
        exit(0);
    }
}

#ifdef WITH_URING
static struct io_uring ring;

/* Each event asks for the next one. */
static void ask(void) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    CHECK(sqe);
    io_uring_prep_nop(sqe);
}

static void serve(struct io_uring_cqe *cqe) {
    CHECK(cqe->res == 0);
    read_table();
    ask();
}

static void prepare(void) {
    int result = io_uring_queue_init(8, &ring, 0);
    if (result < 0) {
        printf("SKIPPED: the kernel has no io_uring for this program: %s\n", strerror(-result));
        exit(0);
    }
    ask();
}
#else
static int epoll;
static struct epoll_event events[64];

static void serve(struct epoll_event *event) {
    CHECK(event->events & EPOLLIN);
    read_table();
}

/* An event that is never taken away. */
static void prepare(void) {
    struct epoll_event event = {.events = EPOLLIN};
    epoll = epoll_create1(0);
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, eventfd(1, 0), &event) == 0);
}
#endif

static void *update(void *unused) {
    for (;;) {
        lw_qsbr_synchronize();
        __atomic_fetch_add(&grace_periods, 1, __ATOMIC_RELAXED);
    }
    return unused;
}

int main(void) {
    pthread_t updater;
    prepare();
    CHECK(pthread_create(&updater, NULL, update, NULL) == 0);
#include LOOP
}
