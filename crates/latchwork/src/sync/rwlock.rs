//! `RwLock` and its guards.

use crate::locks::rwlock::Api;
use crate::locks::rwlock::bravo::Rows;
use crate::locks::rwlock::shfl_rw::RawShflRw;
use crate::machine::Native;

pub use crate::locks::rwlock::ReadRecursive;

/// A reader-writer lock: many threads read the value at the same time, or one thread writes it.
///
/// **When to take it.** If most sections only read. It is `bravo-2d-shfl-rw`: [`bravo`](crate::locks::rwlock::bravo) with a
/// row of slots for each thread, over the reader-writer ShflLock [`shfl_rw`](crate::locks::rwlock::shfl_rw). While writers
/// are rare, a reader writes to its own row only, so readers on different processors share no cache line that changes.
/// If many sections write, measure it beside [`Mutex`](crate::Mutex). If writes matter where many readers share a processor, take
/// [`ShflRwLock`](crate::locks::ShflRwLock): a writer waits until each reader inside has had its turn of the processor, here up to
/// twice. For readers that need no lock at all, see [`reclaim`](crate::reclaim).
///
/// ```
/// use latchwork::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
///
/// static LIMITS: RwLock<[u32; 2]> = RwLock::new([10, 20]);
///
/// assert_eq!(LIMITS.read()[1], 20);
///
/// // Look first, beside other readers; then write, with no other writer in between; then read on.
/// let limits = LIMITS.upgradable_read();
/// if limits[1] == 20 {
///     let mut limits = RwLockUpgradableReadGuard::upgrade(limits);
///     limits[1] += 1;
///     let limits = RwLockWriteGuard::downgrade(limits);
///     assert_eq!(limits[1], 21);
/// }
/// ```
///
/// **What it costs.** A read costs two plain stores and no atomic read-modify-write while the lock is biased to
/// readers. A writer that ends the bias looks through the rows of all threads; the bias comes back after some reads.
///
/// | `bravo-2d-shfl-rw` | |
/// |---|---|
/// | bytes beside the value | 32 |
/// | bytes for each waiter | 64 |
/// | bytes for each holder | 0 |
/// | atomic read-modify-writes, uncontended | 0 |
/// | waiters | spin for microseconds, then sleep |
/// | fairness | as the lock below; a writer also waits for the readers in the table |
/// | fairness of the lock below, `shfl-rw` | stealing for 1 to 2 ms per queue position; then FIFO, readers together, writers per NUMA node |
/// | a suspended waiter | delays the others, for tens of milliseconds at most |
///
/// The atomics are those of a read. Each thread that reads under such a lock has a row of
/// 128 bytes, however many locks there are.
///
/// **Panics.** No method panics. The process ends if the read guards that were forgotten come to 2^28, or if the kernel has no page
/// for waiters and readers. A thread that asks for the write lock while it reads, or for any lock while it writes, waits for ever.
///
/// **Recursive reads.** A thread that holds a read guard must not call [`read`](lock_api::RwLock::read) again: if a writer
/// waits in between, both may wait for ever. It can call [`read_recursive`](ReadRecursive::read_recursive).
///
/// **Poisoning.** There is none. If a writer panics, its guard unlocks, and the next thread finds the value as the panic
/// left it.
///
/// **Between processes.** It is for the threads of one process: do not use it in memory that processes share.
///
/// **On fork.** The child has the thread that forked and no other. A lock that another thread held, or waited for, stays
/// as it was: the child must not use it. Every other lock works, and the child can drop the guards of its own thread.
///
/// **In a signal handler.** Do not lock. The interrupted thread may hold the lock, and the handler would wait for it for
/// ever.
///
/// A read guard is dropped by the thread that locked. One that is forgotten ([`mem::forget`](core::mem::forget)) leaves
/// its lock read-locked, and harms no other lock, with one exception: if locks are moved, which needs them mutable (with
/// [`mem::swap`](core::mem::swap), say), the lock that comes to the place may be the one that stays read-locked.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// The value of a [`RwLock`], shared with other readers, from [`read`](lock_api::RwLock::read).
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// The value of a [`RwLock`], for one thread alone, from [`write`](lock_api::RwLock::write).
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// The value of a [`RwLock`] for a reader that can become a writer, from
/// [`upgradable_read`](lock_api::RwLock::upgradable_read).
///
/// Readers share the value with it. Writers and other upgradable readers wait. It can become a [`RwLockWriteGuard`], and no
/// writer enters in between.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;

/// A part of the value of a [`RwLock`], from [`RwLockReadGuard::map`](lock_api::RwLockReadGuard::map).
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// A part of the value of a [`RwLock`], from [`RwLockWriteGuard::map`](lock_api::RwLockWriteGuard::map).
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// A [`RwLockReadGuard`] that owns an [`Arc`](alloc::sync::Arc) of its lock, from
/// [`read_arc`](lock_api::RwLock::read_arc). (Feature `arc_lock`.)
#[cfg(feature = "arc_lock")]
pub type ArcRwLockReadGuard<T> = lock_api::ArcRwLockReadGuard<RawRwLock, T>;

/// A [`RwLockWriteGuard`] that owns an [`Arc`](alloc::sync::Arc) of its lock, from
/// [`write_arc`](lock_api::RwLock::write_arc). (Feature `arc_lock`.)
#[cfg(feature = "arc_lock")]
pub type ArcRwLockWriteGuard<T> = lock_api::ArcRwLockWriteGuard<RawRwLock, T>;

/// A [`RwLockUpgradableReadGuard`] that owns an [`Arc`](alloc::sync::Arc) of its lock, from
/// [`upgradable_read_arc`](lock_api::RwLock::upgradable_read_arc). (Feature `arc_lock`.)
#[cfg(feature = "arc_lock")]
pub type ArcRwLockUpgradableReadGuard<T> = lock_api::ArcRwLockUpgradableReadGuard<RawRwLock, T>;

/// The algorithm of [`RwLock`], as [`lock_api`] sees it: for code that is generic over `lock_api::RawRwLock`.
pub type RawRwLock = Api<Rows<Native, RawShflRw<Native>>>;
