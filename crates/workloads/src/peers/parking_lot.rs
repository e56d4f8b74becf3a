//! The crate parking_lot.

use crate::condition::{Condition, Ours};
use crate::lock::Lock;
use ::parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use latchwork::machine::Native;

/// `parking_lot::Mutex`.
pub struct Mutex(::parking_lot::Mutex<()>);

impl Lock for Mutex {
    type Machine = Native;
    type Read<'a> = MutexGuard<'a, ()>;
    type Write<'a> = MutexGuard<'a, ()>;
    type Condvar = ::parking_lot::Condvar;
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

impl Condition<Mutex> for ::parking_lot::Condvar {
    fn new() -> Self {
        ::parking_lot::Condvar::new()
    }
    fn wait<'l>(&self, _: &'l Mutex, mut held: MutexGuard<'l, ()>) -> MutexGuard<'l, ()> {
        self.wait(&mut held);
        held
    }
    fn notify_one(&self) {
        self.notify_one();
    }
    fn notify_all(&self) {
        self.notify_all();
    }
}

/// `parking_lot::RwLock`.
pub struct RwLock(::parking_lot::RwLock<()>);

impl Lock for RwLock {
    type Machine = Native;
    type Read<'a> = RwLockReadGuard<'a, ()>;
    type Write<'a> = RwLockWriteGuard<'a, ()>;
    type Condvar = Ours<Native>;
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
