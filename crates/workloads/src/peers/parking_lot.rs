//! The crate parking_lot.

use crate::lock::Lock;
use ::parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use latchwork::machine::Native;

/// `parking_lot::Mutex`.
pub struct Mutex(::parking_lot::Mutex<()>);

impl Lock for Mutex {
    type Machine = Native;
    type Read<'a> = MutexGuard<'a, ()>;
    type Write<'a> = MutexGuard<'a, ()>;
    const SHARED: bool = false;

    fn new() -> Self {
        Mutex(::parking_lot::Mutex::new(()))
    }
    #[inline]
    fn read(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
    #[inline]
    fn write(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
    #[inline]
    fn try_write(&self) -> Option<MutexGuard<'_, ()>> {
        self.0.try_lock()
    }
}

/// `parking_lot::RwLock`.
pub struct RwLock(::parking_lot::RwLock<()>);

impl Lock for RwLock {
    type Machine = Native;
    type Read<'a> = RwLockReadGuard<'a, ()>;
    type Write<'a> = RwLockWriteGuard<'a, ()>;
    const SHARED: bool = true;

    fn new() -> Self {
        RwLock(::parking_lot::RwLock::new(()))
    }
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read()
    }
    #[inline]
    fn write(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write()
    }
    #[inline]
    fn try_write(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.0.try_write()
    }
}
