// The locks of TBB and abseil, for counting instructions beside costs.c: `peers ROUNDS` executes each operation so many times,
// in a function of its own. What is not installed is left out. Like costs.c, the process has had a second thread.
#include "operation.h"
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <thread>
#if __has_include(<absl/synchronization/mutex.h>)
#include <absl/synchronization/mutex.h>
#define WITH_ABSL
#endif
#if __has_include(<oneapi/tbb/mutex.h>)
#include <oneapi/tbb/mutex.h>
#include <oneapi/tbb/queuing_mutex.h>
#include <oneapi/tbb/queuing_rw_mutex.h>
#include <oneapi/tbb/rw_mutex.h>
#include <oneapi/tbb/spin_mutex.h>
#include <oneapi/tbb/spin_rw_mutex.h>
#define WITH_TBB
#endif

static std::shared_mutex std_shared;
OPERATION(empty, )
OPERATION(std_shared_read, std_shared.lock_shared(); std_shared.unlock_shared())
#ifdef WITH_ABSL
static absl::Mutex absl_mutex;
OPERATION(absl_pair, absl_mutex.Lock(); absl_mutex.Unlock())
OPERATION(absl_read, absl_mutex.ReaderLock(); absl_mutex.ReaderUnlock())
#endif
#ifdef WITH_TBB
static tbb::mutex tbb_mutex;
static tbb::rw_mutex tbb_rw;
static tbb::spin_mutex tbb_spin;
static tbb::spin_rw_mutex tbb_spin_rw;
static tbb::queuing_mutex tbb_queuing;
static tbb::queuing_rw_mutex tbb_queuing_rw;
OPERATION(tbb_pair, tbb_mutex.lock(); tbb_mutex.unlock())
OPERATION(tbb_read, tbb_rw.lock_shared(); tbb_rw.unlock_shared())
OPERATION(tbb_spin_pair, tbb_spin.lock(); tbb_spin.unlock())
OPERATION(tbb_spin_read, tbb_spin_rw.lock_shared(); tbb_spin_rw.unlock_shared())
OPERATION(tbb_queuing_pair, tbb::queuing_mutex::scoped_lock lock(tbb_queuing))
OPERATION(tbb_queuing_read, tbb::queuing_rw_mutex::scoped_lock lock(tbb_queuing_rw, false))
#endif

static void (*const OPERATIONS[])(long) = {
    empty,
    std_shared_read,
#ifdef WITH_ABSL
    absl_pair,
    absl_read,
#endif
#ifdef WITH_TBB
    tbb_pair,
    tbb_read,
    tbb_spin_pair,
    tbb_spin_read,
    tbb_queuing_pair,
    tbb_queuing_read,
#endif
};

int main(int count, char **arguments) {
    std::thread([] {}).join();
    for (const auto operation : OPERATIONS) {
        operation(count == 2 ? std::atol(arguments[1]) : 1);
    }
    return 0;
}
