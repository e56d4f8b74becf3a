/* Takes two locks in one order, and then in the other: `latchwork check` reports it, with their names. */
#include <latchwork.h>

static lw_mutex_t accounts;
static lw_rwlock_t journal;

int main(void) {
    lw_mutex_name(&accounts, "accounts");
    lw_rwlock_name(&journal, "journal");
    lw_mutex_lock(&accounts);
    lw_rwlock_rdlock(&journal);
    lw_rwlock_rdunlock(&journal);
    lw_mutex_unlock(&accounts);

    lw_rwlock_wrlock(&journal);
    lw_mutex_lock(&accounts);
    lw_mutex_unlock(&accounts);
    lw_rwlock_wrunlock(&journal);
    return 0;
}
