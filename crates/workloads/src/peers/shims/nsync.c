/* nsync's mutex with readers, as functions that take a pointer to zeroed memory. Debian: libnsync-dev. */
#include <nsync.h>

_Static_assert(sizeof(nsync_mu) <= 16, "storage in foreign.rs");

void lw_nsync_lock(nsync_mu *lock) { nsync_mu_lock(lock); }
void lw_nsync_unlock(nsync_mu *lock) { nsync_mu_unlock(lock); }
int lw_nsync_try(nsync_mu *lock) { return nsync_mu_trylock(lock); }
void lw_nsync_read(nsync_mu *lock) { nsync_mu_rlock(lock); }
void lw_nsync_unread(nsync_mu *lock) { nsync_mu_runlock(lock); }
