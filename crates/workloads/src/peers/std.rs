//! Rust's standard library.

use crate::condition::{Condition, Ours};
use crate::lock::Lock;
use latchwork::machine::Native;
use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// `std::sync::Mutex`.
pub struct Mutex(std::sync::Mutex<()>);

impl Lock for Mutex {
    type Machine = Native;
    type Read<'a> = MutexGuard<'a, ()>;
    type Write<'a> = MutexGuard<'a, ()>;
    type Condvar = std::sync::Condvar;
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

impl Condition<Mutex> for std::sync::Condvar {
    fn new() -> Self {
        std::sync::Condvar::new()
    }
    fn wait<'l>(&self, _: &'l Mutex, held: MutexGuard<'l, ()>) -> MutexGuard<'l, ()> {
        self.wait(held).expect("no workload panics with it")
    }
    fn notify_one(&self) {
        self.notify_one();
    }
    fn notify_all(&self) {
        self.notify_all();
    }
}

/// `std::sync::RwLock`.
pub struct RwLock(std::sync::RwLock<()>);

impl Lock for RwLock {
    type Machine = Native;
    type Read<'a> = RwLockReadGuard<'a, ()>;
    type Write<'a> = RwLockWriteGuard<'a, ()>;
    type Condvar = Ours<Native>;
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
