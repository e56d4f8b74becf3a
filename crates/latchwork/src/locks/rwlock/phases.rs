//! The reader counters and the writer's bits of the phase-fair locks, [`pf_t`](super::pf_t) and [`pf_q`](super::pf_q).
//!
//! Source: Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor real-time systems",
//! Real-Time Systems 46(1), 2010, the fields `rin` and `rout`.
//!
//! Reader phases and writer phases alternate. A reader that finds a writer present waits for the end of *that* writer's
//! phase and no longer: the next writer waits for this reader.
//!
//! Only the thread that *has the turn* begins a writer phase, and one thread at a time has it: in `pf_t` the thread whose
//! ticket is called, in `pf_q` the holder of the MCS lock. A thread gets the turn before its phase begins. An upgradable reader
//! has the turn as well, without a phase.
//!
//! | word | bits | meaning | which thread changes it |
//! |---|---|---|---|
//! | `rin` | 2 to 31 | readers that have arrived | an arriving reader adds one |
//! | `rin` | 1, PRESENT | a writer has the lock, or waits for the readers that arrived before it | the writer sets it when its phase begins, and clears it when its phase ends |
//! | `rin` | 0, PHASE | differs from one writer phase to the next | the writer flips it together with setting PRESENT |
//! | `rout` | 2 to 31 | readers that have departed | a departing reader adds one |
//!
//! A blocked reader waits until PRESENT and PHASE are no longer both what it saw when it arrived. Without PHASE the reader
//! could miss the end of a phase when the next one begins at once. It cannot miss two phases: each writer waits for all
//! readers that arrived before it, so the next phase does not end before this reader has had the lock.
//!
//! A writer ends its turn *before* it clears PRESENT. Clearing PRESENT must be its last access to the lock: as soon as a
//! reader gets in, that reader may be the last user of the lock and free it. So the thread with the turn can find PRESENT
//! still set, by a *leaving writer*.
//!
//! The paper takes PHASE from the writer's ticket. Here PHASE alternates between writers whose phase *began*, because a
//! failed attempt draws a ticket and begins no phase.
//!
//! # Orderings
//!
//! | pair | release | acquire | what it orders |
//! |---|---|---|---|
//! | (A) | a writer clears PRESENT: the `fetch_and` in `leave_write` | a reader or a later writer looks at `rin`: the `fetch_add` in `arrive`, the exchange in `try_arrive`, the spins in `await_phase_end`, `enter_write` and `await_leaving_writer`, the loads in `leaving_writer_is_gone` and `try_enter_write` | the writer's section, and all before it, happen before the later section |
//! | (B) | a reader departs: the `fetch_add` in `depart` | a writer has counted all departures: the spin in `await_departures`, the load in `try_enter_write` | the sections of all readers before the phase happen before the writer's |
//!
//! All changes of `rin` and `rout` are read-modify-writes. Hence a thread that reads a later change than its partner's
//! synchronises with its partner all the same. So the writer's entry needs no release: a reader that sees the entry
//! synchronises with the writer before, (A). And the last departure stands for all of them, (B).

use super::{LOOK, Timeout, check_difference};
use crate::locks::backoff;
use crate::machine::{Arith, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Bit 1 of `rin`: a writer has the lock, or waits for the readers before it.
pub(super) const PRESENT: u32 = 1 << 1;
/// Bit 0 of `rin`: it flips when a writer phase begins.
pub(super) const PHASE: u32 = 1 << 0;
/// The writer's bits of `rin`.
pub(super) const WRITER: u32 = PRESENT | PHASE;
/// One reader in `rin` and `rout`.
pub(super) const READER: u32 = 1 << 2;

/// The counters and the writer's bits. See the [module documentation](self).
#[repr(C)]
pub(super) struct Phases<M: Machine> {
    /// Readers that have arrived, PRESENT and PHASE.
    pub(super) rin: M::U32,
    /// Readers that have departed.
    pub(super) rout: M::U32,
}

impl Phases<Native> {
    pub(super) const fn new() -> Self {
        Phases { rin: AtomicU32::new(0), rout: AtomicU32::new(0) }
    }
}

/// For readers.
impl<M: Machine> Phases<M> {
    pub(super) fn new_in() -> Self {
        Phases { rin: M::U32::new(0), rout: M::U32::new(0) }
    }

    /// Counts the caller in `rin`. `None`: the caller has the lock. `Some`: the caller is blocked. The value is the PRESENT and
    /// PHASE of the writer that is present; the caller must wait for the end of its phase.
    #[inline]
    pub(super) fn arrive(&self) -> Option<u32> {
        // (A) pairs with `leave_write` of the last writer that has left, whether or not another one has entered since.
        let before = self.rin.fetch_add(READER, Acquire);
        self.check(before);
        let writer_bits = before & WRITER;
        (writer_bits & PRESENT != 0).then_some(writer_bits)
    }

    /// The caller has added itself to this value of `rin`. Both counters wrap around, and their difference must not: 2^30 readers
    /// inside would look like none. So every [`LOOK`]th reader looks at the difference.
    #[inline(always)]
    fn check(&self, before: u32) {
        if before & ((LOOK - 1) * READER) == 0 {
            check_difference::<M, _>(before & !WRITER, &self.rin, &self.rout, READER);
        }
    }

    /// Counts the caller in unless a writer is present. The caller cannot count itself in first and take that back: the writer
    /// may already wait for its departure. Hence the compare-and-exchange.
    #[inline]
    pub(super) fn try_arrive(&self) -> bool {
        let mut rin = self.rin.load(Relaxed);
        while rin & PRESENT == 0 {
            // (A) pairs with `leave_write`. If the exchange fails, another reader has arrived, or a writer has entered.
            match self.rin.compare_exchange(rin, rin.wrapping_add(READER), Acquire, Relaxed) {
                Ok(_) => {
                    self.check(rin);
                    return true;
                }
                Err(now) => rin = now,
            }
        }
        false
    }

    /// Waits until the writer phase that `writer_bits` came from has ended. The caller is counted in `rin`, and
    /// `writer_bits` are from its [`arrive`](Self::arrive).
    #[inline]
    pub(super) fn await_phase_end(&self, writer_bits: u32) {
        // (A) pairs with `leave_write`, whether or not the next writer has entered since.
        M::spin_until(&self.rin, Acquire, |rin| rin & WRITER != writer_bits);
    }

    #[inline]
    pub(super) fn depart(&self) {
        // (B) pairs with `await_departures` and `try_enter_write`.
        self.rout.fetch_add(READER, Release);
    }

    /// Counts the caller in as a reader. The caller has the turn, so it is not blocked.
    #[inline]
    pub(super) fn arrive_holding_turn(&self) {
        // Relaxed: the caller ends its turn with a release, and the next thread with the turn acquires. So the next writer
        // counts this reader.
        self.check(self.rin.fetch_add(READER, Relaxed));
    }
}

/// For writers and upgradable readers. The caller has the turn.
impl<M: Machine> Phases<M> {
    /// The value of `rin` after a writer has entered from the value `rin`: PRESENT set, PHASE flipped.
    #[inline]
    fn entered(rin: u32) -> u32 {
        (rin ^ PHASE) | PRESENT
    }

    /// Begins a writer phase. Returns the value that `rout` has when all readers before the phase have departed.
    #[inline]
    pub(super) fn enter_write(&self) -> u32 {
        // The writer before may still be leaving. (A) pairs with its `leave_write`. From then on only the caller changes the
        // writer's bits, so the addition below finds them as they are here.
        let bits = M::spin_until(&self.rin, Acquire, |rin| rin & PRESENT == 0) & WRITER;
        self.rin.fetch_add(Self::entered(bits).wrapping_sub(bits), Relaxed) & !WRITER
    }

    /// Begins a writer phase if no reader is inside and no writer is leaving.
    #[inline]
    pub(super) fn try_enter_write(&self) -> bool {
        // (B) pairs with `depart`. `rin` below counts at least the readers that have departed.
        let rout = self.rout.load(Acquire);
        // (A) pairs with `leave_write` of the writer before, if PRESENT is clear.
        let rin = self.rin.load(Acquire);
        // The exchange fails if a reader has arrived since.
        rin & !PHASE == rout && self.rin.compare_exchange(rin, Self::entered(rin), Relaxed, Relaxed).is_ok()
    }

    /// Begins a writer phase and waits for the readers before it. Returns whether the caller has the lock for writing.
    ///
    /// With a timeout, the phase begins only at a moment when no reader is inside, because a phase that has begun cannot be
    /// taken back. So a call that returns `false` has never set PRESENT and has blocked no reader.
    pub(super) fn enter_write_within(&self, timeout: Timeout) -> bool {
        match timeout {
            Timeout::Immediate => self.try_enter_write(),
            Timeout::At(deadline) => {
                backoff::poll::<M, _>(deadline, || self.try_enter_write().then_some(())).is_some()
            }
            Timeout::Never => {
                let arrivals = self.enter_write();
                self.await_departures(arrivals);
                true
            }
        }
    }

    /// Waits until all readers before the phase have departed; `arrivals` is from [`enter_write`](Self::enter_write).
    #[inline]
    pub(super) fn await_departures(&self, arrivals: u32) {
        // (B) pairs with `depart`.
        M::spin_until(&self.rout, Acquire, |rout| rout == arrivals);
    }

    /// Waits until the leaving writer, if there is one, has cleared PRESENT. Begins no phase.
    #[inline]
    pub(super) fn await_leaving_writer(&self) {
        // (A) pairs with `leave_write`.
        M::spin_until(&self.rin, Acquire, |rin| rin & PRESENT == 0);
    }

    /// Whether all writers before the caller have left. If it returns `true`, their sections happen before the caller's.
    #[inline]
    pub(super) fn leaving_writer_is_gone(&self) -> bool {
        // (A) pairs with `leave_write`.
        self.rin.load(Acquire) & PRESENT == 0
    }

    /// The PHASE of the caller's own writer phase.
    pub(super) fn phase(&self) -> u32 {
        self.rin.load(Relaxed) & PHASE
    }

    /// Ends the caller's writer phase. The caller has ended its turn, or keeps it as an upgradable reader.
    #[inline]
    pub(super) fn leave_write(&self) {
        // (A) pairs with the readers and writers that find PRESENT clear, and with a blocked reader that finds the next PHASE.
        self.rin.fetch_and(!PRESENT, Release);
    }
}

/// For any thread: what was true a moment ago.
impl<M: Machine> Phases<M> {
    /// Whether no reader was inside.
    pub(super) fn is_empty(&self) -> bool {
        // `rout` first, with acquire (it pairs with `depart`): then `rin` counts at least the readers that `rout` counts.
        let rout = self.rout.load(Acquire);
        self.rin.load(Relaxed) & !WRITER == rout
    }

    /// Whether a writer phase had begun and not ended. The writer had the lock, waited for readers, or was leaving.
    pub(super) fn has_writer(&self) -> bool {
        self.rin.load(Relaxed) & PRESENT != 0
    }
}
