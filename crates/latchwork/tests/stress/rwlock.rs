//! Reader-writer locks: two numbers that are equal whenever nobody writes.

use crate::harness::{Random, Subject, must_work};
use latchwork::machine::{Deadline, Native};
use latchwork::registry::{self, Visitor};
use latchwork::rwlock::RawRwLock;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// A reader-writer lock and what it protects.
pub struct Pair<R> {
    lock: R,
    numbers: UnsafeCell<(u64, u64)>,
    reads: AtomicU64,
    writes: AtomicU64,
}

// SAFETY: the cell is only used by holders of the lock, through volatile accesses; whether the lock
// keeps readers and writers apart is what is being tested.
unsafe impl<R: Sync> Sync for Pair<R> {}

impl<R: RawRwLock> Pair<R> {
    pub fn new() -> Self {
        Pair {
            lock: R::new_in(),
            numbers: UnsafeCell::new((0, 0)),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// Where the two numbers are.
    fn places(&self) -> (*mut u64, *mut u64) {
        let both = self.numbers.get();
        // SAFETY: addresses of fields of a live value.
        unsafe { (&raw mut (*both).0, &raw mut (*both).1) }
    }

    fn look(&self, random: &mut Random) -> Result<(), String> {
        self.reads.fetch_add(1, Relaxed);
        let (first, second) = self.places();
        // SAFETY: the caller holds the lock for reading.
        let a = unsafe { first.read_volatile() };
        random.dawdle();
        // SAFETY: as above.
        let b = unsafe { second.read_volatile() };
        if a != b { Err(format!("a reader saw {a} and {b}: a writer was inside")) } else { Ok(()) }
    }

    fn change(&self, random: &mut Random) -> Result<(), String> {
        self.writes.fetch_add(1, Relaxed);
        let (first, second) = self.places();
        // SAFETY: the caller holds the lock for writing.
        let before = unsafe { (first.read_volatile(), second.read_volatile()) };
        // SAFETY: as above.
        unsafe { first.write_volatile(before.0 + 1) };
        random.dawdle();
        // SAFETY: as above.
        unsafe { second.write_volatile(before.1 + 1) };
        // SAFETY: as above.
        let after = unsafe { (first.read_volatile(), second.read_volatile()) };
        if before.0 != before.1 || after != (before.0 + 1, before.1 + 1) {
            return Err(format!("a writer saw {before:?} and left {after:?}: another one was inside"));
        }
        Ok(())
    }
}

impl<R: RawRwLock> Subject for Pair<R> {
    fn operate(&self, random: &mut Random) -> Result<(), String> {
        let deadline =
            |random: &mut Random| Deadline::after::<Native>(if random.once_in(4) { 0 } else { 50_000 });
        if random.once_in(8) {
            let token = if random.once_in(8) {
                self.lock.try_write()
            } else if random.once_in(8) {
                self.lock.write_until(deadline(random))
            } else {
                Some(self.lock.write())
            };
            let Some(token) = token else { return Ok(()) };
            let result = self.change(random);
            if !self.lock.is_write_locked() {
                return Err("the lock of a writer says that nobody writes".to_owned());
            }
            // SAFETY: acquired above.
            unsafe { self.lock.unlock_write(token) };
            result
        } else {
            let token = if random.once_in(8) {
                self.lock.try_read()
            } else if random.once_in(8) {
                self.lock.read_until(deadline(random))
            } else {
                Some(self.lock.read())
            };
            let Some(token) = token else { return Ok(()) };
            let result = self.look(random);
            // SAFETY: acquired above.
            unsafe { self.lock.unlock_read(token) };
            result
        }
    }

    fn balance(&self) -> Result<u64, String> {
        let (first, second) = self.places();
        // SAFETY: nobody is inside any more.
        let numbers = unsafe { (first.read_volatile(), second.read_volatile()) };
        let writes = self.writes.load(Relaxed);
        if numbers != (writes, writes) {
            return Err(format!("{writes} writes left {numbers:?}"));
        }
        if self.lock.is_locked() {
            return Err("the lock is held when everybody has left".to_owned());
        }
        match self.lock.try_write() {
            // SAFETY: acquired just now.
            Some(token) => unsafe { self.lock.unlock_write(token) },
            None => return Err("the lock cannot be taken when everybody has left".to_owned()),
        }
        Ok(writes + self.reads.load(Relaxed))
    }
}

#[test]
fn every_rwlock() {
    struct Each;
    impl Visitor<Native> for Each {
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            must_work(R::INFO.name, Pair::<R>::new());
        }
    }
    registry::visit(&mut Each);
}
