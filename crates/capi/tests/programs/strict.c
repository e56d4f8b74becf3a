/* What the headers put into a program's own lines, for compilers with strict warnings: macros, initialisers, inline functions. It is
 * a program of C, and of C++. */
#include <sys/single_threaded.h>

#include <latchwork.h>

struct route {
    lw_rcu_head head;
    lw_rcu_list node;
    lw_rcu_hlist_node bucket;
    int gateway;
};

static lw_mutex_t mutex = LW_MUTEX_INIT;
static lw_rwlock_t rwlock = LW_RWLOCK_INIT;
static lw_cond_t cond = LW_COND_INIT;
static lw_sem_t sem = LW_SEM_INIT(2);
static lw_seqlock_t seqlock = LW_SEQLOCK_INIT;
static lw_rcu_list routes = LW_RCU_LIST_INIT(routes);
static lw_rcu_hlist buckets;
static struct route only;
static struct route *shared;

static int reclaimed;

static void reclaim(lw_rcu_head *head) { reclaimed += lw_rcu_entry(head, struct route, head)->gateway; }

static void locks(void) {
    lw_any_mutex_t any;
    static lw_mcs_t mcs;
    static lw_pf_q_t pf_q;
    lw_token token;
    lw_mutex_lock(&mutex);
    lw_cond_signal(&cond);
    lw_mutex_unlock_fair(&mutex);
    lw_rwlock_rdlock(&rwlock);
    lw_rwlock_rdunlock(&rwlock);
    lw_rwlock_wrlock(&rwlock);
    lw_rwlock_downgrade(&rwlock);
    lw_rwlock_rdunlock(&rwlock);
    lw_sem_wait(&sem);
    lw_sem_post(&sem);
    lw_mcs_lock(&mcs);
    lw_mcs_unlock_fair(&mcs);
    lw_pf_q_uplock(&pf_q, &token);
    lw_pf_q_upgrade(&pf_q, token);
    lw_pf_q_downgrade(&pf_q, &token);
    lw_pf_q_rdunlock(&pf_q, token);
    if (lw_any_mutex_init(&any, "clh") == 0) {
        lw_any_mutex_lock(&any);
        lw_any_mutex_unlock(&any);
        lw_any_mutex_destroy(&any);
    }
}

static int reads(void) {
    int sum = 0;
    struct route *before;
    lw_hazard *hazard = lw_hazard_make();
    uint64_t words[2] = {1, 2};
    uint64_t copy[2];
    lw_seqlock_read(&seqlock, copy, words, 2);
    lw_rcu_assign(&shared, &only);
    lw_rcu_list_add(&only.node, &routes);
    lw_rcu_hlist_add(&only.bucket, &buckets);
    lw_rcu_read_lock();
    before = lw_rcu_dereference(&shared);
    lw_rcu_list_for_each(node, &routes) { sum += lw_rcu_entry(node, struct route, node)->gateway; }
    lw_rcu_hlist_for_each(node, &buckets) { sum += lw_rcu_entry(node, struct route, bucket)->gateway; }
    lw_rcu_read_unlock();
    lw_epoch_enter();
    lw_epoch_leave();
    if (hazard) {
        sum += lw_hazard_protect(hazard, &shared, offsetof(struct route, head)) == before;
        lw_hazard_clear(hazard);
        lw_hazard_destroy(hazard);
    }
    sum += lw_rcu_dereference_protected(&shared, sum > 0) == lw_rcu_access_pointer(&shared);
    if (lw_rcu_compare_exchange(&shared, &before, before) && lw_rcu_exchange(&shared, before) == before) {
        lw_rcu_call(NULL, &before->head, reclaim);
    }
    lw_rcu_barrier(NULL);
    return sum;
}

int main(void) {
    only.gateway = 3;
    locks();
    return reads() != 8 || reclaimed != 3;
}
