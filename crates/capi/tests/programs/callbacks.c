/* What a callback may do: it may wait for readers, but not for the code that it interrupts. And the end of a section that is none. */
#define LW_DEBUG 1
#include "check.h"
#include <latchwork.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long calls;
static void (*what)(void); /* what the callback does */

static void callback(lw_rcu_head *head) {
    (void)head;
    calls++;
    what();
}

static void reclaim_element(void *key, void *value) {
    (void)key;
    callback(value);
}

static int is_online(void) { return (__atomic_load_n(&lw_thread.record->online, __ATOMIC_RELAXED) & 0x7fff) == 1; }

/* A child does `body`, and ends in it with a message that has `name` and `advice` in it. */
static void ends(void (*body)(void), const char *name, const char *advice) {
    int ends[2], status;
    char text[100000];
    size_t length = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dup2(ends[1], 2) == 2);
        body();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) {
        length += (size_t)got;
    }
    text[length] = 0;
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, name) || !strstr(text, advice)) {
        fprintf(stderr, "status %#x, without \"%s\" or \"%s\":\n%s\n", (unsigned)status, name, advice, text);
        exit(1);
    }
}

/* Callbacks that run while their thread is online. None runs at once, because the thread that retires is in a section then. */
static lw_rcu_head head;

static void call_in_rcu(lw_rcu_domain *domain) {
    lw_rcu_read_lock();
    lw_rcu_call(domain, &head, callback);
    lw_rcu_read_unlock();
}
static void call_in_epoch(lw_epoch_domain *domain) {
    lw_epoch_enter();
    lw_epoch_call(domain, &head, callback);
    lw_epoch_leave();
}

static void collect_online(void) {
    lw_qsbr_online();
    lw_qsbr_call(NULL, &head, callback);
    while (calls == 0) {
        lw_qsbr_collect(NULL);
        lw_qsbr_quiescent();
    }
}
static void barrier_of_rcu_online(void) {
    call_in_rcu(NULL);
    lw_qsbr_online();
    lw_rcu_barrier(NULL);
}
static void barrier_of_epochs_online(void) {
    call_in_epoch(NULL);
    lw_qsbr_online();
    lw_epoch_barrier(NULL);
}
static void end_of_rcu_online(void) {
    lw_rcu_domain *domain = lw_rcu_domain_create();
    call_in_rcu(domain);
    lw_qsbr_online();
    lw_rcu_domain_destroy(domain);
}
static void end_of_epochs_online(void) {
    lw_epoch_domain *domain = lw_epoch_domain_create();
    call_in_epoch(domain);
    lw_qsbr_online();
    lw_epoch_domain_destroy(domain);
}
static void collect_hazards_online(void) {
    lw_qsbr_online();
    lw_hazard_retire(&head, callback);
    lw_hazard_collect();
}
static void map_online(void) {
    lw_rcu_map *map = lw_rcu_map_create(NULL, NULL, reclaim_element);
    lw_qsbr_online();
    CHECK(lw_rcu_map_set(map, &head, &head) == 0 && lw_rcu_map_remove(map, &head) == 0);
    lw_rcu_map_barrier();
}

static lw_qsbr_domain *other; /* without garbage */
static void do_barrier(void) { lw_qsbr_barrier(other); }
static void do_destroy(void) { lw_qsbr_domain_destroy(lw_qsbr_domain_create()); }
static void do_announce(void) {
    lw_rcu_synchronize(); /* begins a grace period, so that there is something to announce */
    lw_qsbr_quiescent();
}

/* Where the thread reads, a callback must not have what the thread reads reclaimed. */
static void refused(void) {
    static const struct {
        void (*what)(void);
        const char *name;
    } actions[] = {
        {lw_qsbr_synchronize, "lw_qsbr_synchronize"}, {do_barrier, "lw_qsbr_barrier"},
        {do_destroy, "lw_qsbr_domain_destroy"},       {lw_qsbr_offline, "lw_qsbr_offline"},
        {do_announce, "lw_qsbr_quiescent"},
    };
    static void (*const places[])(void) = {
        collect_online,       barrier_of_rcu_online,  barrier_of_epochs_online, end_of_rcu_online,
        end_of_epochs_online, collect_hazards_online, map_online,
    };
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        what = actions[i].what;
        ends(collect_online, actions[i].name, "lw_qsbr_call in its place");
    }
    what = lw_qsbr_synchronize;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        ends(places[i], "lw_qsbr_synchronize", "lw_qsbr_call in its place");
    }
}

/* The same for a callback that runs in a section of its thread. */
static void collect_in_a_section(void) {
    call_in_rcu(NULL);
    while (calls == 0) {
        lw_rcu_read_lock(); /* begins after the grace period that the last turn has begun */
        lw_rcu_collect(NULL);
        lw_rcu_read_unlock();
    }
}

/* Where the library has taken the thread offline, a callback may do all this. */
static void do_all(void) {
    CHECK(!is_online());
    lw_qsbr_synchronize();
    do_barrier();
    do_destroy();
    lw_qsbr_quiescent();
    lw_qsbr_offline();
    lw_qsbr_online();
    CHECK(is_online());
    lw_qsbr_synchronize();
    CHECK(is_online());
    lw_qsbr_quiescent();
    lw_qsbr_offline();
    CHECK(!is_online());
    lw_rcu_synchronize();
}
static void allowed(void) {
    what = do_all, calls = 0;
    lw_qsbr_online();
    lw_qsbr_call(NULL, &head, callback);
    lw_qsbr_barrier(NULL);
    CHECK(calls == 1 && is_online());
    lw_qsbr_domain *domain = lw_qsbr_domain_create();
    lw_qsbr_call(domain, &head, callback);
    lw_qsbr_domain_destroy(domain);
    CHECK(calls == 2 && is_online());
    lw_qsbr_synchronize();
    CHECK(is_online());
    lw_qsbr_offline();
    lw_qsbr_call(NULL, &head, callback);
    lw_qsbr_barrier(NULL);
    CHECK(calls == 3 && !is_online());
}

/* A callback must not end its own domain, which waits for it. */
static lw_rcu_domain *own;
static void destroy_own(void) { lw_rcu_domain_destroy(own); }
static void ends_own_domain(void) {
    own = lw_rcu_domain_create();
    call_in_rcu(own);
    lw_rcu_barrier(own);
}

/* A thread that ends a section too often. Without LW_DEBUG, it would be in a section for ever. */
static void ends_two_sections(void) {
    lw_rcu_read_lock();
    lw_rcu_read_unlock();
    lw_rcu_read_unlock();
}

/* Threads that read a pointer outside of a section, and where it may change. */
static int *shared;
static lw_mutex_t updaters;
static void dereferences(void) { (void)lw_rcu_dereference(&shared); }
static void dereferences_after_a_section(void) {
    lw_rcu_read_lock();
    lw_rcu_read_unlock();
    lw_epoch_enter();
    lw_epoch_leave();
    lw_qsbr_online();
    lw_qsbr_offline();
    (void)lw_rcu_dereference(&shared);
}
static void dereferences_unprotected(void) { (void)lw_rcu_dereference_protected(&shared, lw_mutex_is_locked(&updaters)); }
static void dereferences_rightly(void) {
    static int number = 7;
    CHECK(!lw_rcu_access_pointer(&shared));
    lw_rcu_read_lock();
    CHECK(!lw_rcu_dereference(&shared));
    lw_rcu_read_unlock();
    lw_epoch_enter();
    CHECK(!lw_rcu_dereference(&shared));
    lw_epoch_leave();
    lw_qsbr_online();
    CHECK(!lw_rcu_dereference(&shared));
    lw_qsbr_offline();
    lw_mutex_lock(&updaters);
    lw_rcu_assign(&shared, &number);
    CHECK(*lw_rcu_dereference_protected(&shared, lw_mutex_is_locked(&updaters)) == 7);
    lw_mutex_unlock(&updaters);
}
/* A barrier that would wait for the caller. */
static void barrier_in_an_epoch(void) {
    lw_epoch_enter();
    lw_epoch_call(NULL, &head, callback);
    lw_epoch_barrier(NULL);
}

/* A thread that is online stays so while it waits for other flavours. */
static void check_online(void) { CHECK(is_online()); }

static void stays_online(void) {
    what = check_online, calls = 0;
    barrier_of_rcu_online();
    uint64_t stamp = lw_thread.record->online;
    end_of_rcu_online();
    barrier_of_epochs_online();
    end_of_epochs_online();
    CHECK(calls == 4 && is_online() && lw_thread.record->online == stamp);
    lw_qsbr_offline();
}

int main(void) {
    other = lw_qsbr_domain_create();
    CHECK(other);
    stays_online();
    allowed();
    calls = 0;
    refused();
    what = lw_rcu_synchronize;
    ends(collect_in_a_section, "lw_rcu_synchronize", "lw_rcu_call in its place");
    what = lw_rcu_synchronize_expedited;
    ends(collect_in_a_section, "lw_rcu_synchronize", "lw_rcu_call in its place");
    what = destroy_own;
    ends(ends_own_domain, "lw_rcu_domain_destroy", "in a callback");
    ends(ends_two_sections, "lw_rcu_read_unlock", "in no section");
    ends(lw_epoch_leave, "lw_epoch_leave", "in no section");
    ends(dereferences, "lw_rcu_dereference", "in no section");
    ends(dereferences_after_a_section, "lw_rcu_dereference", "in no section");
    ends(dereferences_unprotected, "lw_rcu_dereference_protected", "lw_mutex_is_locked(&updaters)");
    dereferences_rightly();
    ends(barrier_in_an_epoch, "barrier", "own section");
    lw_qsbr_domain_destroy(other);
    puts("ok");
    return 0;
}
