/* cc -DLW_DEBUG=1 program.c ...; latchwork check -- ./program */
#include <latchwork.h>

static lw_mutex_t accounts, journal;

int main(void) {
    lw_name(&accounts, "accounts");
    lw_name(&journal, "journal");
    lw_mutex_lock(&accounts);
    lw_mutex_lock(&journal);
    lw_mutex_unlock(&journal);
    lw_mutex_unlock(&accounts);
    return 0;
}
