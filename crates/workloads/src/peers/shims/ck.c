/*
 * Concurrency Kit's locks, which are inline functions, as functions. Debian: libck-dev.
 *
 * A thread of a workload holds one lock at a time, so one MCS node per thread is enough.
 */
#include <ck_brlock.h>
#include <ck_pflock.h>
#include <ck_rwlock.h>
#include <ck_spinlock.h>

_Static_assert(sizeof(ck_spinlock_ticket_t) <= 8, "storage in foreign.rs");
_Static_assert(sizeof(ck_spinlock_mcs_t *) <= 8, "storage in foreign.rs");
_Static_assert(sizeof(ck_pflock_t) <= 16, "storage in foreign.rs");
_Static_assert(sizeof(ck_rwlock_t) <= 8, "storage in foreign.rs");

static __thread ck_spinlock_mcs_context_t node;

/* Its readers register with each lock, so it is no lock of the kind above: this one is read by everybody. */
static ck_brlock_t brlock = CK_BRLOCK_INITIALIZER;

void lw_ck_br_read_pairs(unsigned int pairs)
{
	struct { _Alignas(128) ck_brlock_reader_t reader; } place = {.reader = CK_BRLOCK_READER_INITIALIZER};

	ck_brlock_read_register(&brlock, &place.reader);
	while (pairs-- > 0) {
		ck_brlock_read_lock(&brlock, &place.reader);
		ck_brlock_read_unlock(&place.reader);
	}
	ck_brlock_read_unregister(&brlock, &place.reader);
}

void lw_ck_ticket_lock(ck_spinlock_ticket_t *lock) { ck_spinlock_ticket_lock(lock); }
void lw_ck_ticket_unlock(ck_spinlock_ticket_t *lock) { ck_spinlock_ticket_unlock(lock); }
int lw_ck_ticket_try(ck_spinlock_ticket_t *lock) { return ck_spinlock_ticket_trylock(lock); }

void lw_ck_mcs_lock(ck_spinlock_mcs_t *lock) { ck_spinlock_mcs_lock(lock, &node); }
void lw_ck_mcs_unlock(ck_spinlock_mcs_t *lock) { ck_spinlock_mcs_unlock(lock, &node); }
int lw_ck_mcs_try(ck_spinlock_mcs_t *lock) { return ck_spinlock_mcs_trylock(lock, &node); }

void lw_ck_pf_lock(ck_pflock_t *lock) { ck_pflock_write_lock(lock); }
void lw_ck_pf_unlock(ck_pflock_t *lock) { ck_pflock_write_unlock(lock); }
void lw_ck_pf_read(ck_pflock_t *lock) { ck_pflock_read_lock(lock); }
void lw_ck_pf_unread(ck_pflock_t *lock) { ck_pflock_read_unlock(lock); }

void lw_ck_rw_lock(ck_rwlock_t *lock) { ck_rwlock_write_lock(lock); }
void lw_ck_rw_unlock(ck_rwlock_t *lock) { ck_rwlock_write_unlock(lock); }
int lw_ck_rw_try(ck_rwlock_t *lock) { return ck_rwlock_write_trylock(lock); }
void lw_ck_rw_read(ck_rwlock_t *lock) { ck_rwlock_read_lock(lock); }
void lw_ck_rw_unread(ck_rwlock_t *lock) { ck_rwlock_read_unlock(lock); }
