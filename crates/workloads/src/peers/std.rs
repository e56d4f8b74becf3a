//! Rust's standard library.

use crate::lock::{self, Lock};
use crate::peers::glibc;
use latchwork::locks::condvar::RawCondvar;
use latchwork::machine::Native;
use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// `std::sync::Mutex`.
pub struct Mutex(std::sync::Mutex<()>);

impl Lock for Mutex {
    type Machine = Native;
    type Read<'a> = MutexGuard<'a, ()>;
    type Write<'a> = MutexGuard<'a, ()>;
    type Condvar = Condvar;
    type Semaphore = glibc::Semaphore;
    const SHARED: bool = false;

    fn new() -> Self {
        Mutex(std::sync::Mutex::new(()))
    }
    #[inline]
    fn read(&self) -> MutexGuard<'_, ()> {
        self.write()
    }
    #[inline]
    fn write(&self) -> MutexGuard<'_, ()> {
        self.0.lock().expect("no workload panics with it")
    }
    #[inline]
    fn try_write(&self) -> Option<MutexGuard<'_, ()>> {
        self.0.try_lock().ok()
    }
}

/// `std::sync::Condvar`.
pub struct Condvar(std::sync::Condvar);

impl lock::Condvar<Mutex> for Condvar {
    fn new() -> Self {
        Condvar(std::sync::Condvar::new())
    }
    #[inline]
    fn wait<'l>(&self, _: &'l Mutex, held: MutexGuard<'l, ()>) -> MutexGuard<'l, ()> {
        self.0.wait(held).expect("no workload panics with it")
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

/// `std::sync::RwLock`.
pub struct RwLock(std::sync::RwLock<()>);

impl Lock for RwLock {
    type Machine = Native;
    type Read<'a> = RwLockReadGuard<'a, ()>;
    type Write<'a> = RwLockWriteGuard<'a, ()>;
    type Condvar = RawCondvar<Native>;
    type Semaphore = glibc::Semaphore;
    const SHARED: bool = true;

    fn new() -> Self {
        RwLock(std::sync::RwLock::new(()))
    }
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().expect("no workload panics with it")
    }
    #[inline]
    fn write(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().expect("no workload panics with it")
    }
    #[inline]
    fn try_write(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.0.try_write().ok()
    }
}
