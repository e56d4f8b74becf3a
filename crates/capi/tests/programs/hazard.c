/* Hazard pointers from C. */
#include "check.h"
#include <latchwork.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 4000, MANY = 10000, ALIVE = 0x600d, GONE = 0xbad };

struct node {
    int state;
    struct node *next;
    lw_rcu_head head;
};

static struct node *top;
static long reclaimed, made;

static void reclaim(lw_rcu_head *head) {
    struct node *node = (struct node *)((char *)head - offsetof(struct node, head));
    CHECK(node->state == ALIVE);
    node->state = GONE;
    free(node);
    __atomic_fetch_add(&reclaimed, 1, __ATOMIC_RELAXED);
}

static struct node *make(void) {
    struct node *node = malloc(sizeof *node);
    node->state = ALIVE;
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return node;
}

/* A stack, from which several threads pop. */
static void *push_and_pop(void *unused) {
    lw_hazard *hazard = lw_hazard_make();
    CHECK(hazard);
    for (int i = 0; i < ROUNDS; i++) {
        struct node *node = make();
        node->next = __atomic_load_n(&top, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&top, &node->next, node, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        }
        for (;;) {
            struct node *first = lw_hazard_protect(hazard, &top, offsetof(struct node, head));
            if (!first) {
                break;
            }
            CHECK(first->state == ALIVE);
            struct node *next = first->next;
            if (__atomic_compare_exchange_n(&top, &first, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                CHECK(first->state == ALIVE);
                lw_hazard_clear(hazard);
                lw_hazard_retire(&first->head, reclaim);
                break;
            }
        }
        if (i % 100 == 0) {
            lw_hazard_destroy(hazard);
            hazard = lw_hazard_make();
        }
    }
    lw_hazard_destroy(hazard);
    return unused;
}

/* Objects without a head: several threads exchange the one that all read. */
struct plain {
    int state;
};
static struct plain *shared;

static struct plain *make_plain(void) {
    struct plain *plain = malloc(sizeof *plain);
    plain->state = ALIVE;
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return plain;
}

static void reclaim_plain(void *object) {
    struct plain *plain = object;
    CHECK(plain->state == ALIVE);
    plain->state = GONE;
    free(plain);
    __atomic_fetch_add(&reclaimed, 1, __ATOMIC_RELAXED);
}

static void *read_and_exchange(void *unused) {
    lw_hazard *hazard = lw_hazard_make();
    CHECK(hazard);
    for (int i = 0; i < ROUNDS; i++) {
        const struct plain *plain = lw_hazard_protect(hazard, &shared, 0);
        CHECK(plain->state == ALIVE);
        struct plain *old = __atomic_exchange_n(&shared, make_plain(), __ATOMIC_ACQ_REL);
        CHECK(lw_hazard_retire_ptr(old, reclaim_plain) == 0);
        CHECK(plain->state == ALIVE);
        lw_hazard_clear(hazard);
    }
    lw_hazard_destroy(hazard);
    return unused;
}

/* A protected object stays, whichever kind its neighbours in the scan are. */
static void without_heads(void) {
    lw_garbage garbage;
    made = reclaimed = 0;
    shared = make_plain();
    in_threads(read_and_exchange);
    lw_hazard_collect();
    CHECK(reclaimed == made - 1);

    lw_hazard *hazard = lw_hazard_make();
    struct plain *kept = lw_hazard_protect(hazard, &shared, 0);
    reclaimed = 0;
    shared = NULL;
    struct plain *plain = make_plain();
    struct node *node = make();
    lw_hazard *others[2] = {lw_hazard_make(), lw_hazard_make()};
    lw_hazard_protect(others[0], &plain, 0);
    lw_hazard_protect(others[1], &node, offsetof(struct node, head));
    CHECK(lw_hazard_retire_ptr(kept, reclaim_plain) == 0 && lw_hazard_retire_ptr(plain, reclaim_plain) == 0);
    lw_hazard_retire(&node->head, reclaim);
    lw_hazard_garbage(&garbage);
    CHECK(garbage.objects == 3 && garbage.bytes == 2 * 48 + 32);
    lw_hazard_destroy(others[0]);
    lw_hazard_destroy(others[1]);
    lw_hazard_collect();
    lw_hazard_garbage(&garbage);
    CHECK(reclaimed == 2 && kept->state == ALIVE && garbage.objects == 1 && garbage.bytes == 48);
    lw_hazard_destroy(hazard);
    lw_hazard_collect();
    lw_hazard_garbage(&garbage);
    CHECK(reclaimed == 3 && garbage.objects == 0 && garbage.bytes == 0);
}

/* Domains: what is retired in one stays there; a callback may retire into another one, which is then scanned. */
static lw_hazard_domain *domains[2];
static long chained;

static void chain(void *object) {
    free(object);
    chained++;
    CHECK(lw_hazard_domain_destroy(domains[0]) == EBUSY);
    CHECK(lw_hazard_domain_retire_ptr(domains[1], make_plain(), reclaim_plain) == 0);
}

/* A callback of the first domain scans the second one, a callback of which asks for a scan of the first: there is one already. */
static int scanning, more;

static void outer(void *object);

static void inner(void *object) {
    reclaim_plain(object);
    if (more-- > 0) {
        CHECK(lw_hazard_domain_retire_ptr(domains[0], make_plain(), outer) == 0);
    }
    lw_hazard_domain_collect(domains[0]);
}

static void outer(void *object) {
    CHECK(!scanning);
    scanning = 1;
    reclaim_plain(object);
    CHECK(lw_hazard_domain_retire_ptr(domains[1], make_plain(), inner) == 0);
    lw_hazard_domain_collect(domains[1]);
    scanning = 0;
}

static void nested(void) {
    domains[0] = lw_hazard_domain_create();
    domains[1] = lw_hazard_domain_create();
    CHECK(domains[0] && domains[1]);
    reclaimed = 0;
    more = 9;
    CHECK(lw_hazard_domain_retire_ptr(domains[0], make_plain(), outer) == 0);
    CHECK(lw_hazard_domain_destroy(domains[0]) == 0 && lw_hazard_domain_destroy(domains[1]) == 0);
    CHECK(reclaimed == 20);
}

/* Each object of a list retires the next one when it is reclaimed. */
static lw_hazard_domain *of_list;

static void reclaim_list(lw_rcu_head *head) {
    struct node *next = ((struct node *)((char *)head - offsetof(struct node, head)))->next;
    reclaim(head);
    if (next) {
        lw_hazard_domain_retire(of_list, &next->head, reclaim_list);
    }
}

static void retire_list(int length) {
    struct node *list = NULL;
    for (int i = 0; i < length; i++) {
        struct node *node = make();
        node->next = list;
        list = node;
    }
    lw_hazard_domain_retire(of_list, &list->head, reclaim_list);
}

static void lists(void) {
    lw_garbage garbage;
    of_list = lw_hazard_domain_create();
    CHECK(of_list);
    reclaimed = 0;
    retire_list(40);
    for (long begun = reclaimed; reclaimed < 40; begun++) { /* the first may be reclaimed by now */
        CHECK(reclaimed == begun);
        lw_hazard_domain_collect(of_list);
    }
    /* With an object that stays. */
    lw_hazard *hazard = lw_hazard_make();
    struct plain *kept = shared = make_plain();
    CHECK(lw_hazard_protect(hazard, &shared, 0) == kept);
    CHECK(lw_hazard_domain_retire_ptr(of_list, kept, reclaim_plain) == 0);
    retire_list(40);
    do {
        lw_hazard_domain_collect(of_list);
        lw_hazard_domain_garbage(of_list, &garbage);
    } while (garbage.objects > 1);
    CHECK(reclaimed == 80 && garbage.objects == 1);
    lw_hazard_destroy(hazard);
    retire_list(40);
    CHECK(lw_hazard_domain_destroy(of_list) == 0 && reclaimed == 121);
}

/* Objects that always retire themselves anew hold up neither a collection nor a retirement. */
enum { RETURNING = 1000 };
static long returns;
static int ends;

static void retire_again(lw_rcu_head *head) {
    returns++;
    if (!ends) {
        lw_hazard_domain_retire(of_list, head, retire_again);
    }
}

static void returning(void) {
    static lw_rcu_head heads[RETURNING];
    of_list = lw_hazard_domain_create();
    CHECK(of_list);
    for (int i = 0; i < RETURNING; i++) {
        lw_hazard_domain_retire(of_list, &heads[i], retire_again);
    }
    returns = 0;
    lw_hazard_domain_collect(of_list);
    CHECK(returns == RETURNING);
    lw_hazard_domain_collect(of_list);
    CHECK(returns == 2 * RETURNING);
    ends = 1;
    CHECK(lw_hazard_domain_destroy(of_list) == 0 && returns == 3 * RETURNING);
}

static void in_domains(void) {
    lw_garbage garbage;
    for (int i = 0; i < 2; i++) {
        domains[i] = lw_hazard_domain_create();
        CHECK(domains[i]);
    }
    lw_hazard *hazard = lw_hazard_make();
    struct plain *kept = shared = make_plain();
    CHECK(lw_hazard_protect(hazard, &shared, 0) == kept);
    shared = NULL;
    reclaimed = 0;
    CHECK(lw_hazard_domain_retire_ptr(domains[0], kept, reclaim_plain) == 0);
    struct node *node = make();
    lw_hazard *other = lw_hazard_make();
    lw_hazard_protect(other, &node, offsetof(struct node, head));
    lw_hazard_domain_retire(domains[1], &node->head, reclaim);
    lw_hazard_destroy(other);
    lw_hazard_domain_retire(NULL, &make()->head, reclaim);
    lw_hazard_collect();
    CHECK(reclaimed == 1);
    lw_hazard_domain_collect(domains[1]);
    CHECK(reclaimed == 2);
    CHECK(lw_hazard_domain_destroy(domains[0]) == EBUSY && kept->state == ALIVE);
    lw_hazard_domain_garbage(domains[0], &garbage);
    CHECK(garbage.objects == 1 && garbage.bytes == 48);
    lw_hazard_destroy(hazard);
    lw_hazard_domain_collect(domains[0]);
    CHECK(reclaimed == 3);

    /* The callbacks of one domain retire into the other one, and into no third: it is scanned in between. */
    reclaimed = 0;
    for (int i = 0; i < 4 * MANY; i++) {
        CHECK(lw_hazard_domain_retire_ptr(domains[0], malloc(1), chain) == 0);
    }
    lw_hazard_domain_collect(domains[0]);
    CHECK(chained == 4 * MANY && reclaimed > 0);
    CHECK(lw_hazard_domain_destroy(domains[0]) == 0 && lw_hazard_domain_destroy(domains[1]) == 0);
    CHECK(reclaimed == 4 * MANY);
}

/* What is retired seldom does not wait for many others. */
static void seldom(void) {
    struct timespec pause = {0, 12000000};
    reclaimed = 0;
    for (int i = 0; i < 20; i++) {
        CHECK(nanosleep(&pause, NULL) == 0);
        lw_hazard_retire(&make()->head, reclaim);
    }
    CHECK(reclaimed > 0); /* each one, unless a scan was held up */
    lw_hazard_collect();
    CHECK(reclaimed == 20);
}

/* A hazard pointer that another thread has made outlives that thread. */
static void *protect_top(void *unused) {
    (void)unused;
    lw_hazard *hazard = lw_hazard_make();
    lw_hazard_protect(hazard, &top, offsetof(struct node, head));
    return hazard;
}

/* A scan reclaims nothing while the kernel refuses membarrier, without which it may overlook a slot. */
static void refused(void) {
    enum { EXPEDITED = 8 };
    if (syscall(SYS_membarrier, EXPEDITED, 0, 0) != 0) {
        return; /* the library does without it */
    }
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    lw_garbage garbage;
    lw_hazard_domain *domain = lw_hazard_domain_create();
    CHECK(domain && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return;
    }
    reclaimed = 0;
    lw_hazard_domain_retire(domain, &make()->head, reclaim);
    lw_hazard_domain_collect(domain);
    lw_hazard_domain_garbage(domain, &garbage);
    CHECK(reclaimed == 0 && garbage.objects == 1);
    CHECK(lw_hazard_domain_destroy(domain) == EBUSY && reclaimed == 0);
}

/* Runs a check in a child, and waits for it. */
static void in_child(void check(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static struct node *kept;

static void keep(void) {
    lw_hazard_collect();
    CHECK(kept->state == ALIVE);
}

int main(void) {
    lw_garbage garbage;
    CHECK(lw_hazard_domain_destroy(NULL) == 0);
    seldom(); /* while there are few slots, and a scan is short */
    made = reclaimed = 0;
    in_threads(push_and_pop);
    CHECK(top == NULL);
    lw_hazard_collect();
    lw_hazard_garbage(&garbage);
    CHECK(made == reclaimed && garbage.objects == 0);

    pthread_t thread;
    void *hazard;
    reclaimed = 0;
    top = make();
    CHECK(pthread_create(&thread, NULL, protect_top, NULL) == 0 && pthread_join(thread, &hazard) == 0);
    kept = top;
    top = NULL;
    lw_hazard_retire(&kept->head, reclaim);
    for (int i = 0; i < 3000; i++) {
        lw_hazard_retire(&make()->head, reclaim);
    }
    CHECK(reclaimed > 2000 && kept->state == ALIVE);
    in_child(keep);
    lw_hazard_collect();
    CHECK(reclaimed == 3000 && kept->state == ALIVE);
    lw_hazard_destroy(hazard);
    lw_hazard_collect();
    CHECK(reclaimed == 3001);

    /* Thousands at once, each of which protects. */
    static lw_hazard *many[MANY];
    static struct node *nodes[MANY];
    reclaimed = 0;
    for (int i = 0; i < MANY; i++) {
        many[i] = lw_hazard_make();
        nodes[i] = make();
        CHECK(many[i] && lw_hazard_protect(many[i], &nodes[i], offsetof(struct node, head)) == nodes[i]);
    }
    for (int i = 0; i < MANY; i++) {
        lw_hazard_retire(&nodes[i]->head, reclaim);
    }
    lw_hazard_collect();
    CHECK(reclaimed == 0);
    for (int i = 0; i < MANY; i++) {
        CHECK(nodes[i]->state == ALIVE);
        lw_hazard_destroy(many[i]);
    }
    lw_hazard_collect();
    CHECK(reclaimed == MANY);
    without_heads();
    in_domains();
    nested();
    lists();
    returning();
    in_child(refused);
    puts("ok");
    return 0;
}
