//! Phase-fair queue lock: blocked readers and queued writers spin on words of their own.
//!
//! # Source
//!
//! Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor real-time systems", Real-Time
//! Systems 46(1), 2010, the PF-Q lock.
//!
//! # Idea
//!
//! Reader phases and writer phases alternate, as in [`pf_t`](super::pf_t): a reader that finds a writer present waits for the
//! end of that writer's phase and no longer, and the next writer waits for this reader. In `pf_t` all waiters spin on shared
//! counters. Here a blocked reader pushes a node onto a list and spins on that node. The writer takes the list when it ends
//! its phase, and grants each reader in the list. Writers queue for an MCS lock. Its holder *has the turn*: it is the one
//! thread that may begin a writer phase. (`phases.rs`, which `pf_t` shares, uses this word, because the turn is a ticket
//! there.) An upgradable reader has the turn too, and begins no phase unless it upgrades.
//!
//! # States
//!
//! | word | meaning | which thread changes it |
//! |---|---|---|
//! | `rin`, bits 2 to 31 | readers that have arrived | an arriving reader adds one |
//! | `rin`, bit 1, PRESENT | a writer has the lock, or waits for the readers that arrived before it | the writer that holds the MCS lock sets it; the same writer clears it when it leaves, after unlocking the MCS lock |
//! | `rin`, bit 0, PHASE | differs from one writer phase to the next | the writer flips it together with setting PRESENT |
//! | `rout` | readers that have departed | a departing reader adds one |
//! | `blocked`, without bit 0 | the list of the readers that the writer with PRESENT blocks | a blocked reader pushes its node; that writer takes the whole list when its phase ends |
//! | `blocked`, bit 0 | the PHASE of the last writer phase that has ended, the *mark* | that writer, together with taking the list |
//! | `writers` | the MCS lock | see [`mcs`](crate::locks::mutex::mcs) |
//! | `status` of a blocked reader's node | WAITING, then GRANTED | the reader stores WAITING; the writer that blocked the reader stores GRANTED |
//!
//! What a blocked reader does. *Its writer* is the one that it found present:
//!
//! | mark in `blocked` | it means | the reader |
//! |---|---|---|
//! | not the PHASE of its writer | its writer's phase has not ended | pushes its node and waits for GRANTED |
//! | the PHASE of its writer | its writer has taken the list already | waits until PRESENT is clear, or set with the other PHASE by the next writer; then it has the lock |
//!
//! One bit is enough for the mark. The writer before has marked the end of its own phase, and this reader sees that mark, by
//! (A). The writer after does not end its phase while this reader is counted in `rin` and not in `rout`. So the reader finds
//! one of two marks: that of the writer before or that of its own writer. (In a new lock the mark and PHASE are 0, and the
//! first writer's PHASE is 1.) An older mark would have the PHASE of its writer, and the reader would spin on `rin` for the
//! whole phase.
//!
//! One list is enough as well; the paper has one for each PHASE. There a reader pushes with an exchange, so a late reader
//! pushes onto the list of a phase that has ended. Here a reader pushes with a compare-and-exchange, which fails if its
//! writer has taken the list. So all nodes that are in the list together belong to readers of one phase.
//!
//! A writer leaves in four steps:
//!
//! 1. It unlocks the MCS lock. Unlocking accesses the lock, and no access may follow step 3.
//! 2. It takes the list and leaves its mark.
//! 3. It clears PRESENT. From now on another reader can get in, depart as the last user of the lock, and free it.
//! 4. It grants the readers in the list. Their nodes are not part of the lock.
//!
//! Between steps 1 and 3 it is a *leaving writer*. The next holder of the MCS lock waits until PRESENT is clear, or fails if it
//! is an attempt.
//!
//! A writer that becomes an upgradable reader (`downgrade_to_upgradable`) skips step 1: an upgradable reader holds the MCS
//! lock, so the thread keeps it. Then step 3 need not be the thread's last access: the thread still uses the lock, so no
//! other thread may free it.
//!
//! # Orderings
//!
//! | pair | release | acquire | what it orders |
//! |---|---|---|---|
//! | (A) | a writer clears PRESENT: the `fetch_and` in `Phases::leave_write` | in `Phases`: an arriving reader, `arrive` and `try_arrive`; a reader that came too late to push, `await_phase_end`; the next writer, `enter_write` and `try_enter_write`; the next upgradable reader, `await_leaving_writer` and `leaving_writer_is_gone` | the writer's section happens before the later section; the writer's mark is visible to all readers that a later writer blocks |
//! | (B) | a reader departs: the `fetch_add` in `Phases::depart` | a writer has counted all departures: `Phases::await_departures`, `Phases::try_enter_write` | the sections of the readers before the phase happen before the writer's |
//! | (C) | a reader pushes its node: the exchange in `wait_for_phase_end` | the writer takes the list: the swap in `end_phase` | the writer sees `next` and WAITING in the node |
//! | (D) | the writer grants: the store in `end_phase` | the reader waits at its node: the spin in `wait_for_phase_end` | the writer's section happens before the reader's |
//! | (E) | a writer or an upgradable reader unlocks the MCS lock: `RawMcs::unlock` | the next one locks it: `RawMcs::lock`, `RawMcs::try_lock` | the older one's changes of `rin` are visible to the newer one, which therefore sees PRESENT of a leaving writer and counts a writer that became a reader; an upgradable reader's section happens before the next writer's |
//!
//! # Where it differs from the paper
//!
//! To fit into 24 bytes, and because it is faster in practice:
//!
//! - Readers push with a compare-and-exchange instead of an exchange. Only readers that are about to wait for a whole writer
//!   phase can make each other retry.
//! - The writer grants all blocked readers itself. In the paper it grants one, and each reader the next. With more threads
//!   than cores, every link of such a chain waits until the scheduler runs that reader. The cost: a writer's release stores
//!   to one cache line for each blocked reader. If the writer is suspended in the middle, the remaining readers wait until it
//!   runs again although PRESENT is clear, and the next writer waits for these readers.
//! - The writer at the head of the queue spins on `rout` until the readers before it have left. (The paper's last reader
//!   tells it, which takes two more words.)
//!
//! Three kinds of thread spin on a shared word. The writer just mentioned is the only one that does so for long. The other two
//! spin on `rin` while a leaving writer takes the list: a reader that came too late to push, and the next holder of the MCS
//! lock.
//!
//! # Properties
//!
//! - Size: 24 bytes; 64 per waiter; none per reading holder, 64 per writing holder. A reader's node is on its stack: it is
//!   out of the list before `read` returns. A writer's node must stay until the release, so it comes from the calling thread's
//!   pool and is the token.
//! - Atomic read-modify-writes per uncontended pair: read 2 (arrive, depart); write 5 (MCS lock 2, enter, take the list,
//!   leave). As in all reader-writer locks, `INFO` gives the reading side: 2, and no bytes per holder.
//! - Fairness: phase-fair; writers are FIFO among themselves.
//! - Suspension: a waiter that is suspended blocks others, and so does a writer that is suspended while it leaves. An attempt
//!   or a timed form does not wait for a leaving writer. It can wait in one place: if it has taken the MCS lock and must
//!   unlock it again, for a writer that is between its swap and its link in the MCS queue.
//! - Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! - Limit: 2^27 simultaneous readers. Soon after that, the process ends. An attempt to write that is stopped between its steps for
//!   exactly 2^30 readers (or a multiple) would succeed beside a reader: that takes ten seconds or so.
//! - Timed forms poll, because neither a reader nor a writer can leave once the other side has counted on it. So they may
//!   starve: a timed reader under a ceaseless stream of writers, a timed writer or upgrade under overlapping readers, or under
//!   one reader that at once locks again.
//! - An upgradable reader holds the MCS lock but begins no writer phase, so readers enter beside it. An upgrade begins one.

use super::phases::{PHASE, Phases};
use super::{ConstNew, Info, RawDowngrade, RawFair, RawRwLock, RawUpgrade, Suspension, Timeout};
use crate::locks::backoff;
use crate::locks::mutex::RawMutex;
use crate::locks::mutex::mcs::RawMcs;
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Phase-fair queue lock. See the [module documentation](self).
#[repr(C)]
pub struct RawPfQ<M: Machine> {
    /// `rin` and `rout`: the counters of readers, and the PRESENT and PHASE of the writer.
    phases: Phases<M>,
    /// The list of blocked readers and the mark, as a [`Blocked`].
    blocked: M::Ptr<QNode<M>>,
    /// Writers and upgradable readers exclude each other with it.
    writers: RawMcs<M>,
}

impl RawPfQ<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawPfQ { phases: Phases::new(), blocked: AtomicPtr::new(null_mut()), writers: RawMcs::new() }
    }
}

const_new!(RawPfQ<Native>);

node_view! {
    /// A blocked reader's node.
    struct ReaderNode {
        /// The node that was pushed before this one; null: none.
        next: links[0],
        /// WAITING or GRANTED; the owner spins here.
        status: words[0],
    }
}

/// In a reader's node: the writer that blocked the reader has not granted it the lock.
const WAITING: u32 = 0;
/// In a reader's node: that writer has left, and the reader has the lock.
const GRANTED: u32 = 1;

/// A value of `blocked`: the first node of the list, and in bit 0 the mark: the PHASE of the last phase that has ended.
struct Blocked<M: Machine>(*mut QNode<M>);

// The mark takes bit 0, which is 0 in the address of an aligned node.
const _: () = assert!(PHASE == 1 && align_of::<QNode<Native>>() > 1);

impl<M: Machine> Blocked<M> {
    fn new(first: *mut QNode<M>, mark: u32) -> Self {
        Blocked(first.map_addr(|address| address | mark as usize))
    }

    fn mark(&self) -> u32 {
        self.0.addr() as u32 & PHASE
    }

    fn first(&self) -> *mut QNode<M> {
        self.0.map_addr(|address| address & !(PHASE as usize))
    }
}

impl<M: Machine> RawPfQ<M> {
    /// Waits, as a blocked reader, until the lock is the caller's. The caller is already counted in `rin`; `writer_bits` are the
    /// PRESENT and PHASE that it saw on arrival.
    #[cold]
    #[inline(never)]
    fn wait_for_phase_end(&self, writer_bits: u32) {
        let phase = writer_bits & PHASE;
        let storage = QNode::<M>::new();
        let node = ReaderNode(&storage);
        node.status().store(WAITING, Relaxed);
        // Relaxed: the caller does not follow the pointer. The mark is that of the writer before or of the caller's writer: (A)
        // in `Phases::arrive` made the former visible.
        let mut list = self.blocked.load(Relaxed);
        loop {
            if Blocked(list).mark() == phase {
                // The writer is about to clear PRESENT. Until it has, this thread must not go on and free the lock. (A) orders the
                // sections.
                self.phases.await_phase_end(writer_bits);
                return;
            }
            node.next().store(Blocked(list).first(), Relaxed);
            let pushed = Blocked::new(node.as_ptr(), phase ^ PHASE).0;
            // (C) pairs with the swap in `end_phase`. Nodes leave the list all at once, at the end of the phase, and the next
            // phase does not end before this reader departs. So an equal value is an equal list.
            match self.blocked.compare_exchange(list, pushed, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => list = now,
            }
        }
        // (D) pairs with the store in `end_phase`.
        M::spin_until(node.status(), Acquire, |status| status == GRANTED);
    }

    /// Ends the caller's writer phase, whose PHASE is `phase`, and grants the readers that this phase blocked: steps 2 to 4 of
    /// the header. `unlock_write` has unlocked the MCS lock before; `downgrade_to_upgradable` keeps it.
    #[inline]
    fn end_phase(&self, phase: u32) {
        // (C) pairs with the pushes: each is a read-modify-write, so this swap synchronises with all of them. It needs no
        // release: the next line has one, (A).
        let list = self.blocked.swap(Blocked::new(null_mut(), phase).0, Acquire);
        // The last access to the lock in this function: a reader that gets in may be the last user, and free it.
        self.phases.leave_write();
        let mut node = Blocked(list).first();
        while !node.is_null() {
            // SAFETY: a pushed node stays on its reader's stack until the reader sees GRANTED, which only this loop stores.
            let reader = unsafe { ReaderNode::at(node) };
            node = reader.next().load(Relaxed);
            // (D) pairs with the spin in `wait_for_phase_end`. The node may be gone after this.
            reader.status().store(GRANTED, Release);
        }
    }

    /// Takes the MCS lock for an upgradable reader unless that means waiting: for its holder, or for a leaving writer.
    fn try_lock_upgradable(&self) -> Option<NonNull<QNode<M>>> {
        // This load first: an attempt that is going to fail takes no node and does not touch the MCS lock.
        if self.phases.has_writer() {
            return None;
        }
        let token = self.writers.try_lock()?;
        // A writer may have entered since and be leaving now.
        if self.phases.leaving_writer_is_gone() {
            return Some(token);
        }
        // SAFETY: the token is from `try_lock` a few lines above.
        unsafe { self.writers.unlock(token) };
        None
    }
}

// SAFETY: the MCS lock and PRESENT make writers exclusive among themselves: a writer holds the MCS lock (E) when it enters, and
// enters only after the writer before has cleared PRESENT (A). A writer waits for all readers that arrived before it (B).
// Readers that arrive later wait until it has cleared PRESENT (A) or until it grants them the lock (D).
unsafe impl<M: Machine> RawRwLock for RawPfQ<M> {
    type Machine = M;
    type Read = ();
    type Write = NonNull<QNode<M>>;
    type Counted = Self;
    const INFO: Info = Info {
        name: "pf-q",
        summary: "phase-fair queue reader-writer spinlock",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "phase-fair: a reader waits for one writer at most, writers are FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Brandenburg and Anderson 2010, PF-Q",
    };

    fn new_in() -> Self {
        RawPfQ { phases: Phases::new_in(), blocked: M::Ptr::new(null_mut()), writers: RawMcs::new_in() }
    }

    #[inline]
    fn read(&self) {
        if let Some(writer_bits) = self.phases.arrive() {
            self.wait_for_phase_end(writer_bits);
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
    fn write(&self) -> Self::Write {
        let token = self.writers.lock();
        let arrivals = self.phases.enter_write();
        self.phases.await_departures(arrivals);
        token
    }

    #[inline]
    fn try_write(&self) -> Option<Self::Write> {
        // Two loads first: an attempt that is going to fail takes no node and does not touch the MCS lock.
        if self.phases.has_writer() || !self.phases.is_empty() {
            return None;
        }
        let token = self.writers.try_lock()?;
        // A reader may have arrived since, or a writer may have entered and be leaving now: `try_enter_write` decides.
        if self.phases.try_enter_write() {
            return Some(token);
        }
        // SAFETY: the token is from `try_lock` a few lines above.
        unsafe { self.writers.unlock(token) };
        None
    }

    #[inline]
    unsafe fn unlock_write(&self, token: Self::Write) {
        // The order of the steps is that of the header. PHASE stays as it is until this writer has cleared PRESENT.
        let phase = self.phases.phase();
        // SAFETY: the token is from the caller's acquisition of the MCS lock.
        unsafe { self.writers.unlock(token) };
        self.end_phase(phase);
    }

    /// Whether a thread held the lock a moment ago. `true` also while a writer waits, or an attempt looks.
    fn is_locked(&self) -> bool {
        // `has_writer`: a leaving writer has unlocked the MCS lock and still has the lock.
        self.writers.is_locked() || self.phases.has_writer() || !self.phases.is_empty()
    }

    /// Whether a writer phase had begun and not ended a moment ago. So `true` also while the writer still waits for readers.
    fn is_write_locked(&self) -> bool {
        self.phases.has_writer()
    }
}

// SAFETY: the writer counts itself in as a reader before it unlocks the MCS lock. The next writer sees that, by (E), and waits
// for the departure, (B).
unsafe impl<M: Machine> RawDowngrade for RawPfQ<M> {
    #[inline]
    unsafe fn downgrade(&self, token: Self::Write) {
        // The caller is a writer: it holds the MCS lock, and so has the turn.
        self.phases.arrive_holding_turn();
        // SAFETY: the token is from the caller's write acquisition.
        unsafe { self.unlock_write(token) };
    }
}

// SAFETY: an upgradable reader holds the MCS lock, which excludes writers and other upgradable readers. It has found PRESENT clear, so
// the writer before has left (A). It begins no writer phase, so readers enter. An upgrade begins one, and waits for the
// readers before it (B).
unsafe impl<M: Machine> RawUpgrade for RawPfQ<M> {
    /// The caller's node in the MCS queue.
    type Upgradable = NonNull<QNode<M>>;

    fn upgradable_within(&self, timeout: Timeout, _watch: &dyn Fn()) -> Option<Self::Upgradable> {
        // No waiter sleeps here, so none ever calls `watch`.
        match timeout {
            Timeout::Immediate => self.try_lock_upgradable(),
            Timeout::At(deadline) => backoff::poll::<M, _>(deadline, || self.try_lock_upgradable()),
            Timeout::Never => {
                let token = self.writers.lock();
                self.phases.await_leaving_writer();
                Some(token)
            }
        }
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, token: Self::Upgradable) {
        // SAFETY: the token is from the caller's acquisition of the MCS lock.
        unsafe { self.writers.unlock(token) };
    }

    unsafe fn upgrade_within(
        &self,
        token: Self::Upgradable,
        timeout: Timeout,
    ) -> Result<Self::Write, Self::Upgradable> {
        // On `Err` no phase has begun, so no reader has been blocked that would have to be granted.
        if self.phases.enter_write_within(timeout) { Ok(token) } else { Err(token) }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, token: Self::Upgradable) {
        // The upgradable reader has the turn. The next writer sees this addition, (E).
        self.phases.arrive_holding_turn();
        // SAFETY: the token is from the caller's acquisition of the MCS lock.
        unsafe { self.writers.unlock(token) };
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, token: Self::Write) -> Self::Upgradable {
        // Steps 2 to 4 of the header. Step 1 is left out: the caller keeps the MCS lock as the upgradable reader.
        self.end_phase(self.phases.phase());
        token
    }
}

// SAFETY: `RawFair` asks for no more than `RawRwLock`. Its provided functions are the ordinary releases, which already leave
// the lock to a waiter: the lock is phase-fair.
unsafe impl<M: Machine> RawFair for RawPfQ<M> {}

#[cfg(test)]
mod tests {
    use super::super::bravo::RawBravo;
    use super::super::phases::{READER, WRITER};
    use super::*;
    use crate::machine::Deadline;
    use core::sync::atomic::AtomicUsize;
    use std::sync::Mutex;
    use std::vec::Vec;

    const _: () = assert!(size_of::<RawPfQ<Native>>() == 24);
    const _: () = assert!(RawBravo::<Native, RawPfQ<Native>>::USED_BYTES == 32);
    const _: () = assert!(size_of::<RawBravo<Native, RawPfQ<Native>>>() == 32);

    fn spin_until(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::yield_now();
        }
    }

    fn last_writer(lock: &RawPfQ<Native>) -> usize {
        // SAFETY: an MCS lock is one word, its tail; the field is private over there.
        unsafe { (*(&raw const lock.writers).cast::<AtomicUsize>()).load(Relaxed) }
    }

    /// Readers that arrive while writers wait get in after the first of them, all of them.
    #[test]
    fn readers_wait_for_one_writer() {
        const READERS: u32 = 5;
        let lock = &RawPfQ::new();
        let order = &Mutex::new(Vec::new());
        let writer = |name| {
            move || {
                let token = lock.write();
                order.lock().unwrap().push(name);
                // SAFETY: this thread acquired the lock a few lines above.
                unsafe { lock.unlock_write(token) };
            }
        };
        lock.read();
        std::thread::scope(|scope| {
            scope.spawn(writer("first writer"));
            spin_until(|| lock.phases.has_writer());
            assert!(lock.try_read().is_none(), "a reader passed a waiting writer");
            let first = last_writer(lock);
            scope.spawn(writer("second writer"));
            spin_until(|| last_writer(lock) != first);
            for _ in 0..READERS {
                scope.spawn(|| {
                    lock.read();
                    order.lock().unwrap().push("reader");
                    // SAFETY: this thread acquired the lock a few lines above.
                    unsafe { lock.unlock_read(()) };
                });
            }
            spin_until(|| lock.phases.rin.load(Relaxed) & !WRITER == (1 + READERS) * READER);
            // At least one reader has pushed its node. The others push later, or find that the phase has ended.
            spin_until(|| !Blocked(lock.blocked.load(Relaxed)).first().is_null());
            assert!(order.lock().unwrap().is_empty());
            // SAFETY: this thread acquired the lock at the top.
            unsafe { lock.unlock_read(()) };
        });
        let order = order.lock().unwrap();
        assert_eq!(order[0], "first writer");
        assert!(order[1..=READERS as usize].iter().all(|who| *who == "reader"), "{order:?}");
        assert_eq!(order[READERS as usize + 1..], ["second writer"]);
    }

    /// A reader has the lock if the phase of its writer ends between its arrival and its push.
    #[test]
    fn a_late_reader_does_not_wait() {
        let lock = RawPfQ::<Native>::new();
        for _ in 0..4 {
            let token = lock.write();
            let writer_bits = lock.phases.arrive().expect("a writer is present");
            // SAFETY: this thread acquired the lock a few lines above.
            unsafe { lock.unlock_write(token) };
            lock.wait_for_phase_end(writer_bits);
            assert!(Blocked(lock.blocked.load(Relaxed)).first().is_null());
            assert!(lock.try_write().is_none());
            // SAFETY: `arrive` and `wait_for_phase_end` above are the two halves of `read`.
            unsafe { lock.unlock_read(()) };
        }
        assert!(!lock.is_locked());
    }

    /// A writer has unlocked the MCS lock and has not cleared PRESENT yet. The lock is still locked, and an attempt or a timed
    /// acquisition does not wait for that writer.
    #[test]
    fn attempts_do_not_wait_for_a_leaving_writer() {
        let lock = &RawPfQ::<Native>::new();
        for _ in 0..3 {
            let token = lock.write();
            let phase = lock.phases.phase();
            // SAFETY: this thread acquired the lock a few lines above; `end_phase` below is the second half of the release.
            unsafe { lock.writers.unlock(token) };
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
                lock.end_phase(phase);
                assert!(attempts.join().unwrap() && returned, "an attempt waited for a leaving writer");
            });
            assert!(!lock.is_locked() && !lock.is_write_locked());
        }
    }
}
