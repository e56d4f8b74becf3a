//! `Condvar`.

use crate::locks::condvar::Api;
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;

pub use lock_api::WaitTimeoutResult;

/// A condition variable: threads that hold a [`Mutex`](crate::Mutex) wait until another thread says that the value has
/// changed.
///
/// **When to take it.** With [`Mutex`](crate::Mutex), to wait for a condition of the value. For a mutex of another
/// algorithm, take the alias with the mutex's name, or [`CondvarOver`](crate::locks::CondvarOver).
///
/// ```
/// use latchwork::{Condvar, Mutex};
/// use std::thread;
///
/// static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// static ARRIVED: Condvar = Condvar::new();
///
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         JOBS.lock().push(7);
///         ARRIVED.notify_one();
///     });
///     let mut jobs = JOBS.lock();
///     ARRIVED.wait_while(&mut jobs, |jobs| jobs.is_empty());
///     assert_eq!(jobs.pop(), Some(7));
/// });
/// ```
///
/// **What it costs.** A notification without a waiter is one load. A wait is two atomic read-modify-writes beside those of
/// the mutex.
///
/// | | |
/// |---|---|
/// | bytes | 8 |
/// | bytes for each waiter | 0 |
/// | waiters | sleep |
/// | fairness | the kernel wakes the longest sleeper of the highest priority; the mutex decides which thread goes on |
///
/// **Spurious wakeups** happen, so wait in a loop or with [`wait_while`](lock_api::Condvar::wait_while). For the same
/// reason `notify_one` always returns `false`, and `notify_all` always returns 0: they do not know how many threads go on.
/// Waiters of one condition variable may wait with different mutexes.
///
/// **Panics.** No method panics. If the mutex cannot be locked again after a wait because a part of it that the program
/// wrote panics, the process ends.
///
/// **Poisoning.** There is none.
///
/// **Between processes.** It is for the threads of one process: do not use it in memory that processes share.
///
/// **On fork.** A condition variable with waiters in another thread is lost to the child: make a new one there.
///
/// **In a signal handler.** Do not use it: it goes with a mutex.
pub type Condvar = lock_api::Condvar<Api<RawShfl<Native>>>;
