//! `Mutex` and its guards.

use crate::locks::mutex::Api;
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;

/// The algorithm of [`Mutex`], as [`lock_api`] sees it.
pub type RawMutex = Api<RawShfl<Native>>;

/// A mutex.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// What [`Mutex::lock`](lock_api::Mutex::lock) returns: the value, until the guard is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// A [`MutexGuard`] of a part of the value, from [`MutexGuard::map`](lock_api::MutexGuard::map).
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// A [`MutexGuard`] that owns a reference to its mutex, from [`Mutex::lock_arc`](lock_api::Mutex::lock_arc).
#[cfg(feature = "arc_lock")]
pub type ArcMutexGuard<T> = lock_api::ArcMutexGuard<RawMutex, T>;
