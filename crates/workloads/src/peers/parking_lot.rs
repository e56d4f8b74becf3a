//! The crate parking_lot.

use crate::lock::{self, Lock};
use crate::peers::glibc;
use ::parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use latchwork::locks::condvar::RawCondvar;
use latchwork::machine::Native;

/// `parking_lot::Mutex`.
pub struct Mutex(::parking_lot::Mutex<()>);

impl Lock for Mutex {
    type Machine = Native;
    type Read<'a> = MutexGuard<'a, ()>;
    type Write<'a> = MutexGuard<'a, ()>;
    type Condvar = Condvar;
    type Semaphore = glibc::Semaphore;
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

/// `parking_lot::Condvar`.
pub struct Condvar(::parking_lot::Condvar);

impl lock::Condvar<Mutex> for Condvar {
    fn new() -> Self {
        Condvar(::parking_lot::Condvar::new())
    }
    #[inline]
    fn wait<'l>(&self, _: &'l Mutex, mut held: MutexGuard<'l, ()>) -> MutexGuard<'l, ()> {
        self.0.wait(&mut held);
        held
    }
    #[inline]
    fn notify_one(&self) {
        self.0.notify_one();
    }
    #[inline]
    fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// `parking_lot::RwLock`.
pub struct RwLock(::parking_lot::RwLock<()>);

impl Lock for RwLock {
    type Machine = Native;
    type Read<'a> = RwLockReadGuard<'a, ()>;
    type Write<'a> = RwLockWriteGuard<'a, ()>;
    type Condvar = RawCondvar<Native>;
    type Semaphore = glibc::Semaphore;
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
