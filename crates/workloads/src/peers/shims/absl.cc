// Abseil's absl::Mutex, whose fresh state is all zero bytes, as C functions. Debian: libabsl-dev.
#include <absl/synchronization/mutex.h>

static_assert(sizeof(absl::Mutex) <= 8, "storage in foreign.rs");

extern "C" {
void lw_absl_lock(absl::Mutex *lock) { lock->Lock(); }
void lw_absl_unlock(absl::Mutex *lock) { lock->Unlock(); }
int lw_absl_try(absl::Mutex *lock) { return lock->TryLock(); }
void lw_absl_read(absl::Mutex *lock) { lock->ReaderLock(); }
void lw_absl_unread(absl::Mutex *lock) { lock->ReaderUnlock(); }
}
