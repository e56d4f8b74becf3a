//! Phase-fair ticket lock.
//!
//! Source: Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor
//! real-time systems", Real-Time Systems 46(1), 2010, the PF-T lock (also "Reader-writer
//! synchronization for shared-memory multiprocessor real-time systems", ECRTS 2009).
//!
//! Reader phases and writer phases alternate. A reader that finds a writer present, holding the
//! lock or waiting for the readers before it, waits for the end of *that* writer's phase and no
//! longer: the next writer waits for it. A writer waits for one reader phase per writer before it.
//!
//! State:
//!
//! | word | who writes it |
//! |---|---|
//! | `rin`: arrived readers (30 bits), PRESENT, PHASE | an arriving reader adds one; the writer whose turn it is sets PRESENT and flips PHASE together, and clears PRESENT at release |
//! | `rout`: departed readers, same scale | a leaving reader adds one |
//! | `win`, `wout`: writer tickets drawn and served | a ticket lock among writers |
//!
//! A blocked reader waits until PRESENT and PHASE are no longer both what it saw. Flipping PHASE
//! is what lets it notice the end of a phase when the next one begins at once. There cannot be two
//! phases in between: each writer that enters waits for all readers before it, so a writer must
//! not end its phase before they have left. The paper takes PHASE from the ticket; here it
//! alternates between writers that *entered*, because a try draws a ticket and may not enter.
//!
//! A writer gives its turn on before it clears PRESENT, which is its last access: once a reader gets
//! in, it may be the last to use the lock, and free it. The next writer waits for the few instructions
//! in between. (In the paper the turn comes last.)
//!
//! Size: 16 bytes, none per waiter or holder. Atomics per uncontended pair: read 2 (add, add);
//! write 3 (ticket, enter, leave: the paper's byte store to leave would mix access sizes).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: phase-fair; writers are FIFO among themselves. Everybody spins on a shared word.
//! More than 2^30 - 1 simultaneous readers would break it.
//! Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//!
//! Timed forms poll: neither a reader nor a writer can leave once the other side has counted on it
//! (a writer that gave up its phase would end it before the readers in it have noticed). So they
//! may starve, a timed reader under a ceaseless stream of writers, a timed writer under overlapping
//! readers.

use super::{ConstNew, Info, RawDowngrade, RawFair, RawRwLock, RawUpgrade, Suspension, Timeout};
use crate::locks::backoff;
use crate::machine::{Arith, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A writer has the lock, or waits for the last readers before it.
pub(super) const PRESENT: u32 = 2;
/// Flips with every writer that enters.
pub(super) const PHASE: u32 = 1;
/// The writer's part of `rin`.
pub(super) const WRITER: u32 = PRESENT | PHASE;
/// One reader in `rin` and `rout`.
pub(super) const READER: u32 = 4;

/// Phase-fair ticket lock. See the [module documentation](self).
#[repr(C)]
pub struct RawPfT<M: Machine> {
    readers: Readers<M>,
    win: M::U32,
    wout: M::U32,
}

/// The readers' half, which the queue lock shares.
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

impl<M: Machine> Readers<M> {
    pub(super) fn new_in() -> Self {
        Readers { rin: M::U32::new(0), rout: M::U32::new(0) }
    }

    /// Counts the caller in. Returns the writer bits that it must wait out, or `None` if it has
    /// the lock.
    #[inline]
    pub(super) fn arrive(&self) -> Option<u32> {
        // (A) pairs with `leave_write`, directly or through the read-modify-writes after it.
        // (E) pairs with `enter_write`.
        let writer = self.rin.fetch_add(READER, Acquire) & WRITER;
        (writer & PRESENT != 0).then_some(writer)
    }

    /// Acquires for reading unless a writer is present. An arrival cannot be taken back (the
    /// writer may have counted it), hence the compare-and-exchange.
    #[inline]
    pub(super) fn try_arrive(&self) -> bool {
        let mut rin = self.rin.load(Relaxed);
        while rin & PRESENT == 0 {
            // (A) as in `arrive`. A failure is another reader's success, or a writer.
            match self.rin.compare_exchange(rin, rin.wrapping_add(READER), Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => rin = now,
            }
        }
        false
    }

    /// Counts the caller in as a reader. The caller holds the turn among writers.
    #[inline]
    pub(super) fn arrive_with_turn(&self) {
        // Relaxed: the caller has the lock already, and gives the turn on with a release, (C), so the next writer counts it.
        self.rin.fetch_add(READER, Relaxed);
    }

    #[inline]
    pub(super) fn depart(&self) {
        // (B) the section happens before the writer that counts us out.
        self.rout.fetch_add(READER, Release);
    }

    /// The value of `rin` once the caller, the only writer whose turn it is, has entered from
    /// `rin`: PRESENT set, PHASE flipped.
    #[inline]
    fn entered(rin: u32) -> u32 {
        (rin ^ PHASE) | PRESENT
    }

    /// Begins a writer phase; the caller has the turn among writers. Returns the readers to wait
    /// for, as the value that `rout` will reach.
    #[inline]
    pub(super) fn enter_write(&self) -> u32 {
        // The writer before us gives the turn on before it leaves: (A) pairs with `leave_write`.
        // Only the writer whose turn it is writes the writer bits from then on, so this is no race.
        let bits = M::spin_until(&self.rin, Acquire, |rin| rin & PRESENT == 0) & WRITER;
        // (E) what the writers before us wrote is visible to readers that see our phase.
        self.rin.fetch_add(Self::entered(bits).wrapping_sub(bits), Release) & !WRITER
    }

    /// Begins a writer phase if there are no readers; the caller has the turn among writers.
    #[inline]
    pub(super) fn try_enter_write(&self) -> bool {
        // (B) pairs with `depart`: all that arrived by then have left, and their sections are over.
        let rout = self.rout.load(Acquire);
        // Acquire: (A) pairs with `leave_write` of the writer before us, if PRESENT is clear.
        let rin = self.rin.load(Acquire);
        // (E) as in `enter_write`. The exchange fails if a reader has arrived since.
        rin & !PHASE == rout && self.rin.compare_exchange(rin, Self::entered(rin), Release, Relaxed).is_ok()
    }

    /// Begins a writer phase and waits for the readers before it; the caller has the turn among writers. With a
    /// timeout it does not begin before the readers are gone: a phase that has begun cannot be taken back.
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

    /// Waits until the writer before the caller, who has the turn, has cleared PRESENT.
    #[inline]
    pub(super) fn await_writer(&self) {
        // (A) pairs with `leave_write`. That writer has given its turn on and is a few instructions from the end.
        M::spin_until(&self.rin, Acquire, |rin| rin & PRESENT == 0);
    }

    #[inline]
    pub(super) fn await_readers(&self, readers: u32) {
        // (B) pairs with `depart`; every departure is a read-modify-write, so the last one stands
        // for all.
        M::spin_until(&self.rout, Acquire, |rout| rout == readers);
    }

    #[inline]
    pub(super) fn leave_write(&self) {
        // (A) the section happens before the readers that find PRESENT clear, or find a phase
        // other than the one that they wait for.
        self.rin.fetch_and(!PRESENT, Release);
    }

    /// The phase of the present writer, asked by itself.
    pub(super) fn phase(&self) -> u32 {
        self.rin.load(Relaxed) & PHASE
    }

    pub(super) fn is_empty(&self) -> bool {
        // In this order: departures that are seen are no more than the arrivals that are.
        let rout = self.rout.load(Acquire);
        self.rin.load(Relaxed) & !WRITER == rout
    }

    pub(super) fn has_writer(&self) -> bool {
        self.rin.load(Relaxed) & PRESENT != 0
    }
}

impl RawPfT<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawPfT { readers: Readers::new(), win: AtomicU32::new(0), wout: AtomicU32::new(0) }
    }
}

impl Default for RawPfT<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawPfT<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine> RawPfT<M> {
    #[inline]
    fn try_turn(&self) -> bool {
        // (C) pairs with the store in `end_turn`: the section before is the one that served us.
        let turn = self.wout.load(Acquire);
        // Nobody can draw `turn` unless it is next, so success means that it is our turn.
        self.win.compare_exchange(turn, turn.wrapping_add(1), Relaxed, Relaxed).is_ok()
    }

    #[inline]
    fn take_turn(&self) {
        let ticket = self.win.fetch_add(1, Relaxed);
        // (C) pairs with the store in `end_turn`.
        if self.wout.load(Acquire) != ticket {
            M::spin_until(&self.wout, Acquire, |turn| turn == ticket);
        }
    }

    #[inline]
    fn end_turn(&self) {
        // Only the writer whose turn it is writes `wout`. (C) what it did happens before the next
        // writer's turn.
        let turn = self.wout.load(Relaxed);
        self.wout.store(turn.wrapping_add(1), Release);
    }
}

// SAFETY: tickets make writers exclusive among themselves (C); a writer waits for all readers that
// arrived before it (B), and those that arrive later wait for it (A).
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
        RawPfT { readers: Readers::new_in(), win: M::U32::new(0), wout: M::U32::new(0) }
    }

    #[inline]
    fn read(&self) {
        if let Some(writer) = self.readers.arrive() {
            // (A) pairs with `leave_write`, directly or through the next writer's entry.
            M::spin_until(&self.readers.rin, Acquire, |rin| rin & WRITER != writer);
        }
    }

    #[inline]
    fn try_read(&self) -> Option<()> {
        self.readers.try_arrive().then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        self.readers.depart();
    }

    #[inline]
    fn write(&self) {
        self.take_turn();
        let readers = self.readers.enter_write();
        self.readers.await_readers(readers);
    }

    #[inline]
    fn try_write(&self) -> Option<()> {
        if self.readers.has_writer() || !self.readers.is_empty() || !self.try_turn() {
            return None;
        }
        if self.readers.try_enter_write() {
            return Some(());
        }
        self.end_turn();
        None
    }

    #[inline]
    unsafe fn unlock_write(&self, (): ()) {
        // In this order: with the last step the lock may be gone.
        self.end_turn();
        self.readers.leave_write();
    }

    fn is_locked(&self) -> bool {
        self.win.load(Relaxed) != self.wout.load(Relaxed) || !self.readers.is_empty()
    }

    fn is_write_locked(&self) -> bool {
        self.readers.has_writer()
    }
}

// SAFETY: the writer counts itself in as a reader before it gives its turn on, and the next writer waits for all readers
// that are counted by then, (B).
unsafe impl<M: Machine> RawDowngrade for RawPfT<M> {
    #[inline]
    unsafe fn downgrade(&self, (): ()) {
        self.readers.arrive_with_turn();
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}

// SAFETY: an upgradable reader has the turn among writers, which excludes writers and other upgradable readers, and begins
// no writer phase, so readers enter. An upgrade begins one, and waits for the readers before it.
unsafe impl<M: Machine> RawUpgrade for RawPfT<M> {
    type Upgradable = ();

    fn upgradable_within(&self, timeout: Timeout, _watch: &dyn Fn()) -> Option<()> {
        match timeout {
            Timeout::Immediate => self.try_turn().then_some(())?,
            Timeout::At(deadline) => backoff::poll::<M, _>(deadline, || self.try_turn().then_some(()))?,
            Timeout::Never => self.take_turn(),
        }
        self.readers.await_writer();
        Some(())
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, (): ()) {
        self.end_turn();
    }

    unsafe fn upgrade_within(&self, (): (), timeout: Timeout) -> Result<(), ()> {
        if self.readers.enter_write_within(timeout) { Ok(()) } else { Err(()) }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, (): ()) {
        self.readers.arrive_with_turn();
        self.end_turn();
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, (): ()) {
        self.readers.leave_write();
    }
}

// SAFETY: the functions are those of `RawRwLock`: the lock is phase-fair.
unsafe impl<M: Machine> RawFair for RawPfT<M> {}

#[cfg(test)]
mod tests {
    use super::*;
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
                // SAFETY: acquired above.
                unsafe { lock.unlock_write(()) };
            }
        };
        lock.read();
        std::thread::scope(|scope| {
            scope.spawn(writer("first writer"));
            spin_until(|| lock.readers.has_writer());
            assert!(lock.try_read().is_none(), "a reader passed a waiting writer");
            scope.spawn(writer("second writer"));
            spin_until(|| lock.win.load(Relaxed) == 2);
            scope.spawn(|| {
                lock.read();
                order.lock().unwrap().push("reader");
                // SAFETY: acquired above.
                unsafe { lock.unlock_read(()) };
            });
            spin_until(|| lock.readers.rin.load(Relaxed) & !WRITER == 2 * READER);
            assert!(order.lock().unwrap().is_empty());
            // SAFETY: acquired at the top.
            unsafe { lock.unlock_read(()) };
        });
        assert_eq!(*order.lock().unwrap(), ["first writer", "reader", "second writer"]);
    }

    /// Whatever fails in between, consecutive writer phases look different to a blocked reader.
    #[test]
    fn phases_alternate_when_writers_give_up() {
        let lock = RawPfT::new();
        let mut last = lock.readers.rin.load(Relaxed) & PHASE;
        for _ in 0..6 {
            // SAFETY: each call releases the acquisition before it.
            unsafe {
                lock.read();
                assert!(lock.try_write().is_none());
                // A try that draws a ticket and then meets a reader.
                assert!(lock.try_turn() && !lock.readers.try_enter_write());
                lock.end_turn();
                lock.unlock_read(());
                lock.write();
                let phase = lock.readers.rin.load(Relaxed) & PHASE;
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
            readers: Readers { rin: AtomicU32::new(near), rout: AtomicU32::new(near) },
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
}
