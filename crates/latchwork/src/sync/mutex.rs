//! `Mutex` and its guards.

use crate::locks::mutex::Api;
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;

/// A mutex: one thread at a time has the value.
///
/// **When to take it.** By default. The algorithm is [`shfl`](crate::locks::mutex::shfl), the blocking ShflLock.
/// A running thread can take the lock before a waiter that has to be woken, but only for a bounded time. Take
/// [`RwLock`](crate::RwLock) if most sections only read. Take [`SeqLock`](crate::SeqLock) for a few words that are
/// mostly read. Other algorithms are in [`locks`](crate::locks).
///
/// ```
/// use latchwork::Mutex;
/// use std::time::Duration;
///
/// static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
///
/// JOBS.lock().push(7);
/// if let Some(mut jobs) = JOBS.try_lock_for(Duration::from_millis(10)) {
///     assert_eq!(jobs.pop(), Some(7));
/// }
/// ```
///
/// **What it costs.** Uncontended, locking is one compare-and-exchange, and unlocking a load and a store. While the process has a
/// single thread, locking needs no atomic read-modify-write either.
///
/// | `shfl` | |
/// |---|---|
/// | bytes beside the value | 16 |
/// | bytes for each waiter | 64 |
/// | bytes for each holder | 0 |
/// | atomic read-modify-writes, uncontended | 1 |
/// | waiters | spin for microseconds, then sleep |
/// | fairness | stealing for 1 to 2 ms per queue position; FIFO per NUMA node, 16 in a row |
/// | a suspended waiter | delays the others, for tens of milliseconds at most |
///
/// The bytes for waiters come from a pool of the process, which keeps them. Locking allocates nothing else.
/// [`MutexGuard::unlock_fair`](lock_api::MutexGuard::unlock_fair) and [`bump`](lock_api::MutexGuard::bump) hand the lock
/// to the first waiter in the queue.
///
/// **Panics.** No method panics. A thread that locks a mutex which it holds waits for ever. If the kernel has no page for waiters,
/// the process ends.
///
/// **Poisoning.** There is none. If a thread panics while it holds the lock, its guard unlocks, and the next
/// thread finds the value as the panic left it.
///
/// **Between processes.** It is for the threads of one process: do not use it in memory that processes share.
///
/// **On fork.** The child has the thread that forked and no other. A mutex that another thread held, or waited for, stays
/// as it was: the child must not use it. Every other mutex works, and the child can drop a guard of its own thread.
///
/// **In a signal handler.** Do not lock. The interrupted thread may hold the mutex, and the handler would wait for it for
/// ever.
///
/// A guard that is forgotten ([`mem::forget`](core::mem::forget)) leaves its mutex locked, and harms nothing else.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// The value of a [`Mutex`], from [`lock`](lock_api::Mutex::lock). The mutex is unlocked when the guard is dropped.
///
/// The guard stays in the thread that locked. Other threads may use it through a reference if they may use the value so
/// (it is `Sync` where `T: Sync`).
///
/// ```compile_fail,E0277
/// use latchwork::Mutex;
///
/// static LOCK: Mutex<u32> = Mutex::new(0);
/// let guard = LOCK.lock();
/// std::thread::spawn(move || drop(guard));
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// A part of the value of a [`Mutex`], from [`MutexGuard::map`](lock_api::MutexGuard::map).
///
/// ```
/// use latchwork::{MappedMutexGuard, Mutex, MutexGuard};
///
/// struct Server {
///     served: Mutex<(u32, Vec<String>)>,
/// }
///
/// impl Server {
///     fn names(&self) -> MappedMutexGuard<'_, Vec<String>> {
///         MutexGuard::map(self.served.lock(), |(_, names)| names)
///     }
/// }
///
/// let server = Server { served: Mutex::default() };
/// server.names().push("first".into());
/// assert_eq!(server.served.lock().1, ["first"]);
/// ```
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// A [`MutexGuard`] that owns an [`Arc`](alloc::sync::Arc) of its mutex, from
/// [`lock_arc`](lock_api::Mutex::lock_arc). (Feature `arc_lock`.)
#[cfg(feature = "arc_lock")]
pub type ArcMutexGuard<T> = lock_api::ArcMutexGuard<RawMutex, T>;

/// The algorithm of [`Mutex`], as [`lock_api`] sees it: for code that is generic over `lock_api::RawMutex`.
pub type RawMutex = Api<RawShfl<Native>>;
