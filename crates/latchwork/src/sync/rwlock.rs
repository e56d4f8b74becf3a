//! `RwLock` and its guards.

use crate::locks::rwlock::Api;
use crate::locks::rwlock::bravo::Rows;
use crate::locks::rwlock::shfl_rw::RawShflRw;
use crate::machine::Native;

/// The algorithm of [`RwLock`], as [`lock_api`] sees it.
pub type RawRwLock = Api<Rows<Native, RawShflRw<Native>>>;

/// A reader-writer lock.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// What [`RwLock::read`](lock_api::RwLock::read) returns: the value, shared with other readers, until the guard is
/// dropped.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// What [`RwLock::write`](lock_api::RwLock::write) returns: the value, until the guard is dropped.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// A [`RwLockReadGuard`] of a part of the value, from
/// [`RwLockReadGuard::map`](lock_api::RwLockReadGuard::map).
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// A [`RwLockWriteGuard`] of a part of the value, from
/// [`RwLockWriteGuard::map`](lock_api::RwLockWriteGuard::map).
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// A [`RwLockReadGuard`] that owns a reference to its lock, from
/// [`RwLock::read_arc`](lock_api::RwLock::read_arc).
#[cfg(feature = "arc_lock")]
pub type ArcRwLockReadGuard<T> = lock_api::ArcRwLockReadGuard<RawRwLock, T>;

/// A [`RwLockWriteGuard`] that owns a reference to its lock, from
/// [`RwLock::write_arc`](lock_api::RwLock::write_arc).
#[cfg(feature = "arc_lock")]
pub type ArcRwLockWriteGuard<T> = lock_api::ArcRwLockWriteGuard<RawRwLock, T>;
