/* Hazard pointers from C. */
#include "check.h"
#include <latchwork.h>
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

/* A hazard pointer that another thread has made outlives that thread. */
static void *protect_top(void *unused) {
    (void)unused;
    lw_hazard *hazard = lw_hazard_make();
    lw_hazard_protect(hazard, &top, offsetof(struct node, head));
    return hazard;
}

int main(void) {
    lw_garbage garbage;
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
    struct node *kept = top;
    top = NULL;
    lw_hazard_retire(&kept->head, reclaim);
    for (int i = 0; i < 3000; i++) {
        lw_hazard_retire(&make()->head, reclaim);
    }
    CHECK(reclaimed > 2000 && kept->state == ALIVE);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        lw_hazard_collect();
        CHECK(kept->state == ALIVE);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
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
    puts("ok");
    return 0;
}
