#include <latchwork.h>
#include <stdio.h>

int main(void) {
    lw_any_mutex_t any;
    if (lw_any_mutex_init(&any, "mcs") != 0) {
        fprintf(stderr, "no such lock; there are:");
        for (size_t i = 0; lw_mutex_name_of(i); i++) {
            fprintf(stderr, " %s", lw_mutex_name_of(i));
        }
        return 1;
    }
    lw_any_mutex_lock(&any);
    lw_any_mutex_unlock(&any);
    lw_any_mutex_destroy(&any);

    static lw_mcs_t by_type;
    lw_mcs_lock(&by_type);
    lw_mcs_unlock(&by_type);

    static lw_pf_q_t table;
    static int rows;
    lw_token token;
    lw_pf_q_uplock(&table, &token); /* reads beside readers */
    if (rows == 0) {
        lw_pf_q_upgrade(&table, token); /* writes, and no other thread has written since */
        rows = 1;
        lw_pf_q_wrunlock(&table);
    } else {
        lw_pf_q_upunlock(&table, token);
    }
    lw_pf_q_destroy(&table);
    return rows == 1 ? 0 : 1;
}
