//! Mutexes: a counter that only a lock keeps right.

use crate::harness::{Random, Subject, must_work};
use latchwork::machine::{Deadline, Native};
use latchwork::mutex::RawMutex;
use latchwork::registry::{self, Visitor};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// A mutex and what it protects.
pub struct Counter<L> {
    lock: L,
    /// Twice the number of sections: odd inside one.
    sections: UnsafeCell<u64>,
    acquired: AtomicU64,
}

// SAFETY: the cell is only used by the lock's holder, through volatile accesses; whether the lock
// lets only one in is what is being tested.
unsafe impl<L: Sync> Sync for Counter<L> {}

impl<L: RawMutex> Counter<L> {
    pub fn new() -> Self {
        Counter { lock: L::new_in(), sections: UnsafeCell::new(0), acquired: AtomicU64::new(0) }
    }

    fn section(&self, random: &mut Random) -> Result<(), String> {
        self.acquired.fetch_add(1, Relaxed);
        let cell = self.sections.get();
        // SAFETY: the caller holds the lock.
        let before = unsafe { cell.read_volatile() };
        // SAFETY: as above.
        unsafe { cell.write_volatile(before + 1) };
        random.dawdle();
        // SAFETY: as above.
        let inside = unsafe { cell.read_volatile() };
        // SAFETY: as above.
        unsafe { cell.write_volatile(before + 2) };
        if before % 2 == 1 || inside != before + 1 {
            return Err("two threads were inside at a time".to_owned());
        }
        Ok(())
    }
}

impl<L: RawMutex> Subject for Counter<L> {
    fn operate(&self, random: &mut Random) -> Result<(), String> {
        let token = if random.once_in(8) {
            self.lock.try_lock()
        } else if random.once_in(8) {
            self.lock.lock_until(Deadline::after::<Native>(if random.once_in(4) { 0 } else { 50_000 }))
        } else {
            Some(self.lock.lock())
        };
        let Some(token) = token else { return Ok(()) };
        let result = self.section(random);
        if !self.lock.is_locked() {
            return Err("the lock of a holder says that it is free".to_owned());
        }
        // SAFETY: acquired above.
        unsafe { self.lock.unlock(token) };
        result
    }

    fn balance(&self) -> Result<u64, String> {
        // SAFETY: nobody is inside any more.
        let sections = unsafe { self.sections.get().read_volatile() };
        let acquired = self.acquired.load(Relaxed);
        if sections != 2 * acquired {
            return Err(format!("{acquired} acquisitions left {} marks", sections / 2));
        }
        if self.lock.is_locked() {
            return Err("the lock is held when everybody has left".to_owned());
        }
        match self.lock.try_lock() {
            // SAFETY: acquired just now.
            Some(token) => unsafe { self.lock.unlock(token) },
            None => return Err("the lock cannot be taken when everybody has left".to_owned()),
        }
        Ok(acquired)
    }
}

#[test]
fn every_mutex() {
    struct Each;
    impl Visitor<Native> for Each {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            must_work(L::INFO.name, Counter::<L>::new());
        }
    }
    registry::visit(&mut Each);
    Each.mutex::<crate::example::RawFutex<Native>>();
}
