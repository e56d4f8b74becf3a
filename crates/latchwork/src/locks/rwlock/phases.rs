//! The readers' half of the phase-fair locks, [`pf_t`](super::pf_t) and [`pf_q`](super::pf_q): two counters of readers and
//! the writer's phase.
//!
//! Source: Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor real-time systems",
//! Real-Time Systems 46(1), 2010, the fields `rin` and `rout`.
//!
//! Reader phases and writer phases alternate. A reader that finds a writer present waits for the end of *that* writer's
//! phase and no longer: the next writer waits for this reader. The writers agree among themselves which of them has the
//! *turn*; only that writer touches the writer's bits.
//!
//! | word | bits | meaning | which thread changes it |
//! |---|---|---|---|
//! | `rin` | 2 to 31 | readers that have arrived | an arriving reader adds one |
//! | `rin` | 1, PRESENT | a writer has the lock, or waits for the readers that arrived before it | the writer with the turn sets it when it enters, and clears it when it leaves |
//! | `rin` | 0, PHASE | differs from one writer phase to the next | the writer with the turn flips it together with setting PRESENT |
//! | `rout` | 2 to 31 | readers that have departed | a departing reader adds one |
//!
//! A blocked reader waits until PRESENT and PHASE are no longer both what it saw when it arrived. Without PHASE it could
//! miss the end of a phase when the next one begins at once. It cannot miss two phases: each writer waits for all readers
//! that arrived before it, so no second phase ends before the reader has had the lock.
//!
//! The paper takes PHASE from the writer's ticket. Here PHASE alternates between writers that *entered*, because an attempt
//! draws a ticket and may not enter.
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A) | the writer clears PRESENT, release | readers and the next writer that find it clear, acquire |
//! | (B) | a reader departs, release | the writer that counts the departures, acquire; all departures are read-modify-writes, so the last one stands for all |
//! | (E) | the writer enters, release | a reader that arrives in this phase, acquire: it sees what the writers before wrote |

use super::Timeout;
use crate::locks::backoff;
use crate::machine::{Arith, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A writer has the lock, or waits for the readers before it.
pub(super) const PRESENT: u32 = 2;
/// Flips with every writer that enters.
pub(super) const PHASE: u32 = 1;
/// The writer's part of `rin`.
pub(super) const WRITER: u32 = PRESENT | PHASE;
/// One reader in `rin` and `rout`.
pub(super) const READER: u32 = 4;

/// The two counters. See the [module documentation](self).
#[repr(C)]
pub(super) struct Readers<M: Machine> {
    pub(super) rin: M::U32,
    pub(super) rout: M::U32,
}

impl Readers<Native> {
    pub(super) const fn new() -> Self {
        Readers { rin: AtomicU32::new(0), rout: AtomicU32::new(0) }
    }
}

/// For readers.
impl<M: Machine> Readers<M> {
    pub(super) fn new_in() -> Self {
        Readers { rin: M::U32::new(0), rout: M::U32::new(0) }
    }

    /// Counts the caller in. `None`: it has the lock. Otherwise the writer's bits, which it must wait out.
    #[inline]
    pub(super) fn arrive(&self) -> Option<u32> {
        // (A) pairs with `leave_write`, directly or through the read-modify-writes after that. (E) pairs with
        // `enter_write`.
        let writer = self.rin.fetch_add(READER, Acquire) & WRITER;
        (writer & PRESENT != 0).then_some(writer)
    }

    /// Counts the caller in unless a writer is present. It cannot count itself in first and take that back: the writer may
    /// already have counted it. Hence the compare-and-exchange.
    #[inline]
    pub(super) fn try_arrive(&self) -> bool {
        let mut rin = self.rin.load(Relaxed);
        while rin & PRESENT == 0 {
            // (A) as in `arrive`. If the exchange fails, another reader has arrived, or a writer has entered.
            match self.rin.compare_exchange(rin, rin.wrapping_add(READER), Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => rin = now,
            }
        }
        false
    }

    /// Waits until the phase of `writer`, which counted the caller in, has ended.
    #[inline]
    pub(super) fn await_end(&self, writer: u32) {
        // (A) pairs with `leave_write`, directly or through the next writer's entry.
        M::spin_until(&self.rin, Acquire, |rin| rin & WRITER != writer);
    }

    #[inline]
    pub(super) fn depart(&self) {
        // (B) the section happens before the section of the writer that counts this reader out.
        self.rout.fetch_add(READER, Release);
    }

    /// Counts the caller, which has the turn among writers, in as a reader.
    #[inline]
    pub(super) fn arrive_with_turn(&self) {
        // Relaxed: the caller has the lock already. It gives the turn on with a release, and the next writer to have the turn
        // therefore counts this reader.
        self.rin.fetch_add(READER, Relaxed);
    }
}

/// For writers; the caller has the turn, except where it says otherwise.
impl<M: Machine> Readers<M> {
    /// The value of `rin` after a writer has entered from the value `rin`: PRESENT set, PHASE flipped.
    #[inline]
    fn entered(rin: u32) -> u32 {
        (rin ^ PHASE) | PRESENT
    }

    /// Begins a writer phase. Returns the value that `rout` has when all readers before the phase have departed.
    #[inline]
    pub(super) fn enter_write(&self) -> u32 {
        // The writer before gives the turn on before it leaves: (A) pairs with `leave_write`. From then on only the caller
        // changes the writer's bits, so the addition below finds them as they are here.
        let bits = M::spin_until(&self.rin, Acquire, |rin| rin & PRESENT == 0) & WRITER;
        // (E) what the writers before wrote is visible to readers that see this phase.
        self.rin.fetch_add(Self::entered(bits).wrapping_sub(bits), Release) & !WRITER
    }

    /// Begins a writer phase if there are no readers and the writer before has left.
    #[inline]
    pub(super) fn try_enter_write(&self) -> bool {
        // (B) pairs with `depart`: all readers that had arrived by then have departed.
        let rout = self.rout.load(Acquire);
        // (A) pairs with `leave_write` of the writer before, if PRESENT is clear.
        let rin = self.rin.load(Acquire);
        // (E) as in `enter_write`. The exchange fails if a reader has arrived since.
        rin & !PHASE == rout && self.rin.compare_exchange(rin, Self::entered(rin), Release, Relaxed).is_ok()
    }

    /// Begins a writer phase and waits for the readers before it. With a timeout the phase does not begin before the readers
    /// are gone: a phase that has begun cannot be taken back.
    pub(super) fn enter_write_within(&self, timeout: Timeout) -> bool {
        match timeout {
            Timeout::Immediate => self.try_enter_write(),
            Timeout::At(deadline) => {
                backoff::poll::<M, _>(deadline, || self.try_enter_write().then_some(())).is_some()
            }
            Timeout::Never => {
                let readers = self.enter_write();
                self.await_readers(readers);
                true
            }
        }
    }

    /// Waits until all readers before the phase have departed; `readers` is from [`enter_write`](Self::enter_write).
    #[inline]
    pub(super) fn await_readers(&self, readers: u32) {
        // (B) pairs with `depart`.
        M::spin_until(&self.rout, Acquire, |rout| rout == readers);
    }

    /// Waits until the writer before the caller has left, without beginning a phase.
    #[inline]
    pub(super) fn await_writer(&self) {
        // (A) pairs with `leave_write`. That writer has given its turn on and is a few instructions from the end.
        M::spin_until(&self.rin, Acquire, |rin| rin & PRESENT == 0);
    }

    /// Ends the caller's writer phase.
    #[inline]
    pub(super) fn leave_write(&self) {
        // (A) the section happens before the sections of readers that find PRESENT clear, or a PHASE other than the one that
        // they wait out.
        self.rin.fetch_and(!PRESENT, Release);
    }

    /// The PHASE of the caller's own writer phase.
    pub(super) fn phase(&self) -> u32 {
        self.rin.load(Relaxed) & PHASE
    }
}

/// For any thread: how it was a moment ago.
impl<M: Machine> Readers<M> {
    /// Whether no reader was inside.
    pub(super) fn is_empty(&self) -> bool {
        // In this order: departures that are seen are no more than the arrivals that are seen.
        let rout = self.rout.load(Acquire);
        self.rin.load(Relaxed) & !WRITER == rout
    }

    /// Whether a writer was present.
    pub(super) fn has_writer(&self) -> bool {
        self.rin.load(Relaxed) & PRESENT != 0
    }
}
