//! BRAVO with a table of readers in each lock: the yardstick of the interference benchmark.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 5.1: "a specialized version of BRAVO-BA
//! where each lock instance has a private array of 4096 elements", immune to conflicts between
//! locks. Listing 1 otherwise, with its defaults; the slot is chosen by the thread alone.
//!
//! 32 KiB a lock: not one to use.

use crate::data::Array;
use crate::lock::Lock;
use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::{Clock, Machine, Word};
use std::sync::atomic::Ordering::*;

/// Elements of each table.
const SLOTS: usize = 4096;
/// The slow-down guard (listing 1, `N`).
const N: u64 = 9;

/// BRAVO over `R` with a private table.
pub struct PrivateBravo<R: RawRwLock> {
    lock: R,
    biased: <R::Machine as Machine>::U32,
    inhibited_until: <R::Machine as Machine>::U64,
    readers: Array<<R::Machine as Machine>::Usize>,
}

impl<R: RawRwLock> PrivateBravo<R> {
    /// What it is called; over anything else than pf-q there is none.
    pub const NAME: &'static str = "bravo-pf-q-private";

    fn slot(&self) -> &<R::Machine as Machine>::Usize {
        let hash = (R::Machine::thread_id() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.readers[(hash >> 52) as usize % SLOTS]
    }

    fn revoke(&self) {
        let start = R::Machine::now(Clock::Monotonic);
        // (A) pairs with (B): either the reader sees no bias, or we see the reader.
        self.biased.swap(0, SeqCst);
        for slot in self.readers.iter() {
            if slot.load(SeqCst) != 0 {
                R::Machine::spin_until(slot, Acquire, |reader| reader == 0);
            }
        }
        let now = R::Machine::now(Clock::Monotonic);
        self.inhibited_until.store(now + N * (now - start), Relaxed);
    }
}

/// Holds it for reading.
pub enum Reading<'a, R: RawRwLock> {
    /// Through the table.
    Fast(&'a <R::Machine as Machine>::Usize),
    /// Through the underlying lock.
    Slow(&'a R, R::Read),
}

/// Holds it for writing.
pub struct Writing<'a, R: RawRwLock>(&'a R, R::Write);

impl<R: RawRwLock> Drop for Reading<'_, R> {
    fn drop(&mut self) {
        match self {
            Reading::Fast(slot) => slot.store(0, Release),
            // SAFETY: the guard stands for this acquisition, and is dropped once.
            Reading::Slow(lock, token) => unsafe { lock.unlock_read(*token) },
        }
    }
}

impl<R: RawRwLock> Drop for Writing<'_, R> {
    fn drop(&mut self) {
        // SAFETY: the guard stands for this acquisition, and is dropped once.
        unsafe { self.0.unlock_write(self.1) }
    }
}

impl<R: RawRwLock> Lock for PrivateBravo<R> {
    type Machine = R::Machine;
    type Read<'a> = Reading<'a, R>;
    type Write<'a> = Writing<'a, R>;
    type Condvar = RawCondvar<R::Machine>;
    type Semaphore = RawSemaphore<R::Machine>;
    const SHARED: bool = true;

    fn new() -> Self {
        let readers = Array::new(SLOTS, || Word::new(0));
        PrivateBravo { lock: R::new_in(), biased: Word::new(0), inhibited_until: Word::new(0), readers }
    }

    fn read(&self) -> Reading<'_, R> {
        if self.biased.load(Relaxed) != 0 {
            let slot = self.slot();
            // (B) pairs with (A).
            if slot.compare_exchange(0, 1, SeqCst, Relaxed).is_ok() {
                if self.biased.load(SeqCst) != 0 {
                    return Reading::Fast(slot);
                }
                slot.store(0, Release);
            }
        }
        let token = self.lock.read();
        if self.biased.load(Relaxed) == 0
            && R::Machine::now(Clock::Monotonic) >= self.inhibited_until.load(Relaxed)
        {
            self.biased.store(1, SeqCst);
        }
        Reading::Slow(&self.lock, token)
    }

    fn write(&self) -> Writing<'_, R> {
        let token = self.lock.write();
        if self.biased.load(Relaxed) != 0 {
            self.revoke();
        }
        Writing(&self.lock, token)
    }

    fn try_write(&self) -> Option<Writing<'_, R>> {
        let token = self.lock.try_write()?;
        if self.biased.load(Relaxed) != 0 {
            self.revoke();
        }
        Some(Writing(&self.lock, token))
    }

    fn bytes() -> usize {
        size_of::<Self>() + SLOTS * size_of::<<R::Machine as Machine>::Usize>()
    }
}
