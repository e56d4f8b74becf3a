//! Phase-fair ticket lock.
//!
//! # Source
//!
//! Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor real-time systems", Real-Time
//! Systems 46(1), 2010, the PF-T lock (also "Reader-writer synchronization for shared-memory multiprocessor real-time
//! systems", ECRTS 2009).
//!
//! # Idea
//!
//! Reader phases and writer phases alternate. A reader that finds a writer present, holding the lock or waiting for the
//! readers before it, waits for the end of *that* writer's phase and no longer: the next writer waits for this reader. A
//! writer waits for one reader phase per writer before it.
//!
//! # States
//!
//! | word | meaning | which thread changes it |
//! |---|---|---|
//! | `rin`, `rout` | readers arrived and departed, and the writer's phase: see `phases.rs` | readers; the writer with the turn |
//! | `win` | writer tickets drawn | an arriving writer or upgradable reader adds one |
//! | `wout` | the ticket that has the turn | the thread with the turn adds one when it ends its turn |
//!
//! A writer draws a ticket and waits for its turn, enters (PRESENT), waits for the readers that arrived before, and has the
//! lock. When it leaves, it ends its turn and then clears PRESENT. That is its last access: as soon as a reader gets in,
//! that reader may be the last user of the lock and free it. (In the paper the turn comes last.) The next writer waits for
//! the few instructions in between.
//!
//! An upgradable reader has the turn but begins no writer phase, so readers enter beside it. An upgrade begins one.
//!
//! # Orderings
//!
//! (A) and (B) are those of `phases.rs`. (C): the thread that ends its turn stores `wout` with release in `end_turn`. The
//! thread that gets the turn loads `wout` with acquire in `take_turn` or `try_turn`.
//!
//! # Properties
//!
//! - Size: 16 bytes, none per waiter or holder.
//! - Atomic read-modify-writes per uncontended pair: read 2 (arrive, depart); write 3 (ticket, enter, leave). The paper
//!   leaves with a byte store, which would mix access sizes.
//! - Fairness: phase-fair; writers are FIFO among themselves. All waiters spin on shared words.
//! - Suspension: a waiter that is suspended blocks others. Attempts and timed forms wait for no other thread, not even for
//!   a writer that has ended its turn and has not cleared PRESENT yet.
//! - Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! - Limit: 2^27 simultaneous readers. Soon after that, the process ends. An attempt to write that is stopped between its steps for
//!   exactly 2^32 writers or exactly 2^30 readers (or a multiple) would succeed beside a holder: that takes ten seconds or so.
//! - Timed forms poll, because neither a reader nor a writer can leave once the other side has counted on it: a writer that
//!   gave up its phase would end it before the readers in it have noticed. So they may starve, a timed reader under a
//!   ceaseless stream of writers, a timed writer under overlapping readers, or under one reader that at once locks again.

use super::phases::Phases;
use super::{ConstNew, Info, RawDowngrade, RawFair, RawRwLock, RawUpgrade, Suspension, Timeout};
use crate::locks::backoff;
use crate::machine::{Arith, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Phase-fair ticket lock. See the [module documentation](self).
#[repr(C)]
pub struct RawPfT<M: Machine> {
    phases: Phases<M>,
    win: M::U32,
    wout: M::U32,
}

impl RawPfT<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawPfT { phases: Phases::new(), win: AtomicU32::new(0), wout: AtomicU32::new(0) }
    }
}

const_new!(RawPfT<Native>);

impl<M: Machine> RawPfT<M> {
    /// Takes the turn among writers if no other thread has it or waits for it.
    #[inline]
    fn try_turn(&self) -> bool {
        // (C) pairs with the store in `end_turn` by the thread that had the turn before.
        let turn = self.wout.load(Acquire);
        // `win` equals `turn` only if no ticket is out, so a successful exchange draws the ticket that has the turn.
        self.win.compare_exchange(turn, turn.wrapping_add(1), Relaxed, Relaxed).is_ok()
    }

    /// Draws a ticket and waits for its turn.
    #[inline]
    fn take_turn(&self) {
        let ticket = self.win.fetch_add(1, Relaxed);
        // (C) pairs with the store in `end_turn`.
        if self.wout.load(Acquire) != ticket {
            M::spin_until(&self.wout, Acquire, |turn| turn == ticket);
        }
    }

    /// Ends the caller's turn: the next ticket has it.
    #[inline]
    fn end_turn(&self) {
        // Only the thread with the turn writes `wout`. (C) what it did happens before the next thread's turn.
        let turn = self.wout.load(Relaxed);
        self.wout.store(turn.wrapping_add(1), Release);
    }

    /// Takes the turn for an upgradable reader unless that means waiting: for another thread with the turn, or for a writer
    /// that has ended its turn and has not cleared PRESENT yet.
    fn try_upgradable_turn(&self) -> Option<()> {
        if !self.try_turn() {
            return None;
        }
        if self.phases.leaving_writer_is_gone() {
            return Some(());
        }
        self.end_turn();
        None
    }
}

// SAFETY: tickets make writers exclusive among themselves (C). A writer waits for all readers that arrived before it (B),
// and readers that arrive later wait for it (A).
unsafe impl<M: Machine> RawRwLock for RawPfT<M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "pf-t",
        summary: "phase-fair ticket reader-writer spinlock",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "phase-fair: a reader waits for one writer at most, writers are FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Brandenburg and Anderson 2010, PF-T",
    };

    fn new_in() -> Self {
        RawPfT { phases: Phases::new_in(), win: M::U32::new(0), wout: M::U32::new(0) }
    }

    #[inline]
    fn read(&self) {
        if let Some(writer_bits) = self.phases.arrive() {
            self.phases.await_phase_end(writer_bits);
        }
    }

    #[inline]
    fn try_read(&self) -> Option<()> {
        self.phases.try_arrive().then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        self.phases.depart();
    }

    #[inline]
    fn write(&self) {
        self.take_turn();
        let arrivals = self.phases.enter_write();
        self.phases.await_departures(arrivals);
    }

    #[inline]
    fn try_write(&self) -> Option<()> {
        if self.phases.has_writer() || !self.phases.is_empty() || !self.try_turn() {
            return None;
        }
        if self.phases.try_enter_write() {
            return Some(());
        }
        self.end_turn();
        None
    }

    #[inline]
    unsafe fn unlock_write(&self, (): ()) {
        // In this order: after the last step another thread may free the lock.
        self.end_turn();
        self.phases.leave_write();
    }

    fn is_locked(&self) -> bool {
        // `has_writer`: a leaving writer has ended its turn and still has the lock.
        self.win.load(Relaxed) != self.wout.load(Relaxed)
            || self.phases.has_writer()
            || !self.phases.is_empty()
    }

    /// Whether a writer phase had begun and not ended a moment ago. So `true` also while the writer still waits for readers.
    fn is_write_locked(&self) -> bool {
        self.phases.has_writer()
    }
}

// SAFETY: the writer counts itself in as a reader before it ends its turn, and the next writer waits for all readers
// that are counted by then, (B).
unsafe impl<M: Machine> RawDowngrade for RawPfT<M> {
    #[inline]
    unsafe fn downgrade(&self, (): ()) {
        self.phases.arrive_holding_turn();
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}

// SAFETY: an upgradable reader has the turn among writers, which excludes writers and other upgradable readers. It has found PRESENT clear, so
// the writer before has left (A). It begins no writer phase, so readers enter. An upgrade begins one, and waits for the
// readers before it (B).
unsafe impl<M: Machine> RawUpgrade for RawPfT<M> {
    type Upgradable = ();

    fn upgradable_within(&self, timeout: Timeout, _watch: &dyn Fn()) -> Option<()> {
        // No waiter sleeps here, so none ever calls `watch`.
        match timeout {
            Timeout::Immediate => self.try_upgradable_turn(),
            Timeout::At(deadline) => backoff::poll::<M, _>(deadline, || self.try_upgradable_turn()),
            Timeout::Never => {
                self.take_turn();
                self.phases.await_leaving_writer();
                Some(())
            }
        }
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, (): ()) {
        self.end_turn();
    }

    unsafe fn upgrade_within(&self, (): (), timeout: Timeout) -> Result<(), ()> {
        if self.phases.enter_write_within(timeout) { Ok(()) } else { Err(()) }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, (): ()) {
        self.phases.arrive_holding_turn();
        self.end_turn();
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, (): ()) {
        self.phases.leave_write();
    }
}

// SAFETY: `RawFair` asks for no more than `RawRwLock`. Its provided functions are the ordinary releases, which already leave
// the lock to a waiter: the lock is phase-fair.
unsafe impl<M: Machine> RawFair for RawPfT<M> {}

#[cfg(test)]
mod tests {
    use super::super::phases::{PHASE, READER, WRITER};
    use super::*;
    use crate::machine::Deadline;
    use std::sync::Mutex;
    use std::vec::Vec;

    const _: () = assert!(size_of::<RawPfT<Native>>() == 16);

    fn spin_until(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::yield_now();
        }
    }

    /// A reader that arrives while writers wait gets in after the first of them.
    #[test]
    fn a_reader_waits_for_one_writer() {
        let lock = &RawPfT::new();
        let order = &Mutex::new(Vec::new());
        let writer = |name| {
            move || {
                lock.write();
                order.lock().unwrap().push(name);
                // SAFETY: this thread acquired the lock a few lines above.
                unsafe { lock.unlock_write(()) };
            }
        };
        lock.read();
        std::thread::scope(|scope| {
            scope.spawn(writer("first writer"));
            spin_until(|| lock.phases.has_writer());
            assert!(lock.try_read().is_none(), "a reader passed a waiting writer");
            scope.spawn(writer("second writer"));
            spin_until(|| lock.win.load(Relaxed) == 2);
            scope.spawn(|| {
                lock.read();
                order.lock().unwrap().push("reader");
                // SAFETY: this thread acquired the lock a few lines above.
                unsafe { lock.unlock_read(()) };
            });
            spin_until(|| lock.phases.rin.load(Relaxed) & !WRITER == 2 * READER);
            assert!(order.lock().unwrap().is_empty());
            // SAFETY: this thread acquired the lock at the top.
            unsafe { lock.unlock_read(()) };
        });
        assert_eq!(*order.lock().unwrap(), ["first writer", "reader", "second writer"]);
    }

    /// Whatever fails in between, consecutive writer phases look different to a blocked reader.
    #[test]
    fn phases_alternate_when_writers_give_up() {
        let lock = RawPfT::new();
        let mut last = lock.phases.rin.load(Relaxed) & PHASE;
        for _ in 0..6 {
            // SAFETY: each call releases the acquisition before it.
            unsafe {
                lock.read();
                assert!(lock.try_write().is_none());
                // A try that draws a ticket and then meets a reader.
                assert!(lock.try_turn() && !lock.phases.try_enter_write());
                lock.end_turn();
                lock.unlock_read(());
                lock.write();
                let phase = lock.phases.rin.load(Relaxed) & PHASE;
                assert_ne!(phase, last);
                last = phase;
                lock.unlock_write(());
            }
        }
    }

    /// The counters wrap around.
    #[test]
    fn counters_wrap() {
        let near = 0u32.wrapping_sub(2 * READER);
        let lock = RawPfT::<Native> {
            phases: Phases { rin: AtomicU32::new(near), rout: AtomicU32::new(near) },
            win: AtomicU32::new(u32::MAX - 1),
            wout: AtomicU32::new(u32::MAX - 1),
        };
        for _ in 0..4 {
            // SAFETY: each call releases the acquisition before it.
            unsafe {
                lock.read();
                assert!(lock.try_write().is_none());
                lock.unlock_read(());
                lock.write();
                assert!(lock.try_read().is_none());
                lock.unlock_write(());
            }
        }
        assert!(!lock.is_locked());
    }

    /// A writer has ended its turn and has not cleared PRESENT yet. The lock is still locked, and an attempt or a timed
    /// acquisition does not wait for that writer.
    #[test]
    fn attempts_do_not_wait_for_a_leaving_writer() {
        let lock = &RawPfT::<Native>::new();
        for _ in 0..3 {
            lock.write();
            lock.end_turn();
            assert!(lock.is_locked() && lock.is_write_locked());
            std::thread::scope(|scope| {
                let attempts = scope.spawn(|| {
                    let soon = Deadline::after::<Native>(1_000_000);
                    lock.try_read().is_none()
                        && lock.try_write().is_none()
                        && lock.try_upgradable().is_none()
                        && lock.upgradable_until(soon).is_none()
                });
                let late = Deadline::after::<Native>(60_000_000_000);
                while !attempts.is_finished() && !late.passed::<Native>() {
                    std::thread::yield_now();
                }
                let returned = attempts.is_finished();
                lock.phases.leave_write();
                assert!(attempts.join().unwrap() && returned, "an attempt waited for a leaving writer");
            });
            assert!(!lock.is_locked() && !lock.is_write_locked());
        }
    }
}
