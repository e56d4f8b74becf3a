//! The locks as types that protect a value, by the names that the registry gives to them.
//!
//! An application takes [`Mutex`](crate::Mutex), [`RwLock`](crate::RwLock) and [`Condvar`](crate::Condvar) from the root
//! of the crate. These aliases are for a program that wants one certain algorithm. `aliases/compared.rs` has those of
//! the feature `all-locks`.

use super::{condvar, mutex, rwlock};
use crate::machine::Native;

#[cfg(feature = "all-locks")]
mod compared;
#[cfg(feature = "all-locks")]
pub use compared::*;

/// A mutex over the algorithm `L`.
pub type MutexOver<L, T> = lock_api::Mutex<mutex::Api<L>, T>;
/// A reader-writer lock over the algorithm `R`.
pub type RwLockOver<R, T> = lock_api::RwLock<rwlock::Api<R>, T>;
/// A condition variable for mutexes over the algorithm `L`.
///
/// The compiler finds the `L` of a local variable. In a type, write `L`, as in `CondvarOver<mutex::clh::RawClh<Native>>`. The
/// mutexes that need no feature have an alias for it.
///
/// ```
/// use latchwork::locks::{CondvarOver, McsCondvar, McsMutex, TicketMutex};
/// use std::thread;
///
/// static DONE: McsMutex<bool> = McsMutex::new(false);
/// static CHANGED: McsCondvar = McsCondvar::new();
///
/// thread::spawn(|| {
///     *DONE.lock() = true;
///     CHANGED.notify_one();
/// });
/// CHANGED.wait_while(&mut DONE.lock(), |done| !*done);
///
/// let (jobs, arrived) = (TicketMutex::new(vec![]), CondvarOver::new());
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         jobs.lock().push(1);
///         arrived.notify_all();
///     });
///     let mut jobs = jobs.lock();
///     arrived.wait_while(&mut jobs, |jobs| jobs.is_empty());
///     assert_eq!(jobs.pop(), Some(1));
/// });
/// ```
pub type CondvarOver<L> = lock_api::Condvar<condvar::Api<L>>;

/// Mutex over [`ticket`](mutex::ticket).
pub type TicketMutex<T> = MutexOver<mutex::ticket::RawTicket<Native>, T>;
/// Mutex over [`mcs`](mutex::mcs).
pub type McsMutex<T> = MutexOver<mutex::mcs::RawMcs<Native>, T>;
/// Mutex over [`shfl`](mutex::shfl): the root of the crate calls it [`Mutex`](crate::Mutex).
pub type ShflMutex<T> = MutexOver<mutex::shfl::RawShfl<Native>, T>;
/// Reader-writer lock over [`pf_q`](rwlock::pf_q).
pub type PfQRwLock<T> = RwLockOver<rwlock::pf_q::RawPfQ<Native>, T>;
/// Reader-writer lock over [`shfl_rw`](rwlock::shfl_rw).
pub type ShflRwLock<T> = RwLockOver<rwlock::shfl_rw::RawShflRw<Native>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`shfl_rw`](rwlock::shfl_rw).
pub type BravoShflRwLock<T> =
    RwLockOver<rwlock::bravo::RawBravo<Native, rwlock::shfl_rw::RawShflRw<Native>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) with a row of slots per thread over
/// [`shfl_rw`](rwlock::shfl_rw): the root of the crate calls it [`RwLock`](crate::RwLock).
pub type Bravo2dShflRwLock<T> =
    RwLockOver<rwlock::bravo::Rows<Native, rwlock::shfl_rw::RawShflRw<Native>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) with a row of slots per processor over
/// [`pf_q`](rwlock::pf_q).
pub type BravoCpuPfQRwLock<T> = RwLockOver<rwlock::bravo::Columns<Native, rwlock::pf_q::RawPfQ<Native>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`pf_q`](rwlock::pf_q).
pub type BravoRwLock<T> = RwLockOver<rwlock::bravo::RawBravo<Native, rwlock::pf_q::RawPfQ<Native>>, T>;
/// Condition variable for [`TicketMutex`].
pub type TicketCondvar = CondvarOver<mutex::ticket::RawTicket<Native>>;
/// Condition variable for [`McsMutex`].
pub type McsCondvar = CondvarOver<mutex::mcs::RawMcs<Native>>;
/// Condition variable for [`ShflMutex`].
pub type ShflCondvar = CondvarOver<mutex::shfl::RawShfl<Native>>;
