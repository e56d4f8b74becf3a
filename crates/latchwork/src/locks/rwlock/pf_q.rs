//! Phase-fair queue lock: waiting readers and writers spin on words of their own.
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
//! its phase, and lets each reader in. Writers form an MCS queue.
//!
//! # States
//!
//! | word | meaning | which thread changes it |
//! |---|---|---|
//! | `rin`, bits 2 to 31 | readers that have arrived | an arriving reader adds one |
//! | `rin`, PRESENT | a writer has the lock, or waits for the readers that arrived before it | the writer at the head of the queue sets it; that writer clears it when it leaves |
//! | `rin`, PHASE | differs from one writer phase to the next | the writer flips it together with setting PRESENT |
//! | `rout` | readers that have departed | a departing reader adds one |
//! | `blocked` | the list of readers that the present writer blocks | a blocked reader pushes its node; the writer takes the whole list when its phase ends |
//! | `blocked`, bit 0 | the PHASE of the last writer phase that has ended | that writer, together with taking the list |
//! | `writers` | the tail of the MCS queue of writers | an arriving writer; the last one to leave |
//! | a reader's node | WAITING, then GRANTED | the writer that ends its phase |
//!
//! What a blocked reader does:
//!
//! | the reader finds in `blocked` | it means | the reader |
//! |---|---|---|
//! | a PHASE other than the writer's | the writer's phase has not ended | pushes its node and waits for GRANTED |
//! | the writer's own PHASE | the phase ended before the reader came to push | has the lock as soon as PRESENT is clear; the next writer waits for it |
//!
//! So one list is enough where the paper has two. A writer leaves in four steps. It gives its turn to the next writer, takes
//! the list, clears PRESENT, and grants the readers in the list. Clearing PRESENT is its last access to the
//! lock: as soon as a reader gets in, that reader may be the last user of the lock and free it. (The nodes are the readers'
//! own.) The next writer waits until PRESENT is clear.
//!
//! # Orderings
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A), (B), (E) | as in `phases.rs`: leaving and arriving, departing and counting, entering and arriving | |
//! | (F) | the writer takes the list, release | a reader that finds the phase ended, acquire: the writer's section comes before |
//! | (G) | a reader pushes its node, release | the writer that takes the list, acquire: the node is initialised |
//! | (H) | the writer grants, release | the reader that waits at its node, acquire |
//!
//! # Where it differs from the paper
//!
//! To fit into 24 bytes, and for practice:
//!
//! - Readers push with a compare-and-exchange instead of an exchange. Only readers that are about to wait for a whole writer
//!   phase can make each other retry.
//! - The writer grants all blocked readers itself. In the paper it grants one, and each reader the next. With more threads
//!   than cores, every link of such a chain waits for its turn on a processor.
//! - The writer at the head of the queue spins on `rout` until the readers before it have left. (The paper's last reader
//!   tells it, which takes two more words.) It is the only thread that spins on a shared word for long.
//!
//! # Properties
//!
//! - Size: 24 bytes; 64 per waiter; none per reading holder, 64 per writing holder. A reader's node is on its stack: it is
//!   out of the list before `read` returns. A writer's node must stay until the release, so it comes from the machine's pool
//!   and is the token.
//! - Atomic read-modify-writes per uncontended pair: read 2 (arrive, depart); write 5 (queue 2, enter, leave, take the list).
//! - Fairness: phase-fair; writers are FIFO among themselves.
//! - Suspension: a waiter that is suspended blocks others.
//! - Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! - Limit: 2^30 - 1 simultaneous readers.
//! - Timed forms poll, for the reason given in `pf_t`.
//! - An upgradable reader is at the head of the queue of writers but begins no writer phase; an upgrade begins one.

use super::phases::{PHASE, Readers};
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
    readers: Readers<M>,
    blocked: M::Ptr<QNode<M>>,
    writers: RawMcs<M>,
}

impl RawPfQ<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawPfQ { readers: Readers::new(), blocked: AtomicPtr::new(null_mut()), writers: RawMcs::new() }
    }
}

impl Default for RawPfQ<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawPfQ<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

node_view! {
    /// A blocked reader's node.
    struct Reader {
        /// The reader that was blocked before this one; null: none.
        next: links[0],
        /// WAITING or GRANTED; the owner spins here.
        status: words[0],
    }
}

/// In a reader's node: the writer's phase has not ended.
const WAITING: u32 = 0;
/// In a reader's node: the writer has left, and its owner has the lock.
const GRANTED: u32 = 1;

/// A value of `blocked`: the first node of the list, and the phase that ended last. Nodes are aligned, so their addresses
/// leave bit 0 free for the phase.
struct Blocked<M: Machine>(*mut QNode<M>);

impl<M: Machine> Blocked<M> {
    fn marked(first: *mut QNode<M>, ended: u32) -> *mut QNode<M> {
        first.map_addr(|address| address | ended as usize)
    }

    fn ended(&self) -> u32 {
        self.0.addr() as u32 & PHASE
    }

    fn first(&self) -> *mut QNode<M> {
        self.0.map_addr(|address| address & !(PHASE as usize))
    }
}

impl<M: Machine> RawPfQ<M> {
    /// A blocked reader waits for the end of the phase of `writer`, which counts it in.
    #[cold]
    #[inline(never)]
    fn wait_out(&self, writer: u32) {
        let phase = writer & PHASE;
        let storage = QNode::<M>::new();
        let node = Reader(&storage);
        node.status().store(WAITING, Relaxed);
        // (F) pairs with the exchange in `end_phase`, if the phase has ended. The value is not older than the phase before
        // the writer's: (E) in `Readers::arrive`.
        let mut list = self.blocked.load(Acquire);
        loop {
            if Blocked(list).ended() == phase {
                // The writer is about to clear PRESENT. Until it has, this thread must not go on and free the lock.
                self.readers.await_end(writer);
                return;
            }
            node.next().store(Blocked(list).first(), Relaxed);
            let pushed = Blocked::marked(node.as_ptr(), phase ^ PHASE);
            // (G) pairs with the exchange in `end_phase`: the node is initialised. Nodes leave the list all at once, at the end
            // of the phase, so an equal value is an equal list.
            match self.blocked.compare_exchange(list, pushed, Release, Acquire) {
                Ok(_) => break,
                Err(now) => list = now,
            }
        }
        // (H) pairs with the store in `end_phase`.
        M::spin_until(node.status(), Acquire, |status| status == GRANTED);
    }

    /// The writer ends its phase and grants the readers that it blocked. It may have given its turn on before; the writer that
    /// got it waits until PRESENT is clear.
    #[inline]
    fn end_phase(&self, phase: u32) {
        // (F) the section happens before the sections of readers that find the phase ended when they come to push. (G) pairs
        // with the pushes: each is a read-modify-write, so this exchange sees all nodes.
        let list = self.blocked.swap(Blocked::marked(null_mut(), phase), AcqRel);
        // The last access to the lock: a reader that gets in may be the last user, and free it.
        self.readers.leave_write();
        let mut node = Blocked(list).first();
        while !node.is_null() {
            // SAFETY: a pushed node stays on its reader's stack until it is granted.
            let reader = unsafe { Reader::at(node) };
            node = reader.next().load(Relaxed);
            // (H) the section happens before the reader's. The node is gone after this.
            reader.status().store(GRANTED, Release);
        }
    }
}

// SAFETY: the MCS lock makes writers exclusive among themselves. A writer waits for all readers that arrived before it (B).
// Readers that arrive later wait for it: (A), (F), (H).
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
        RawPfQ { readers: Readers::new_in(), blocked: M::Ptr::new(null_mut()), writers: RawMcs::new_in() }
    }

    #[inline]
    fn read(&self) {
        if let Some(writer) = self.readers.arrive() {
            self.wait_out(writer);
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
    fn write(&self) -> Self::Write {
        let token = self.writers.lock();
        let readers = self.readers.enter_write();
        self.readers.await_readers(readers);
        token
    }

    #[inline]
    fn try_write(&self) -> Option<Self::Write> {
        if self.readers.has_writer() || !self.readers.is_empty() {
            return None;
        }
        let token = self.writers.try_lock()?;
        if self.readers.try_enter_write() {
            return Some(token);
        }
        // SAFETY: the token is from `try_lock` a few lines above.
        unsafe { self.writers.unlock(token) };
        None
    }

    #[inline]
    unsafe fn unlock_write(&self, token: Self::Write) {
        let phase = self.readers.phase();
        // SAFETY: the token is from the caller's acquisition of the MCS lock.
        unsafe { self.writers.unlock(token) };
        self.end_phase(phase);
    }

    fn is_locked(&self) -> bool {
        self.writers.is_locked() || !self.readers.is_empty()
    }

    fn is_write_locked(&self) -> bool {
        self.readers.has_writer()
    }
}

// SAFETY: the writer counts itself in as a reader before it gives its turn on, and the next writer waits for all readers
// that are counted by then, (B).
unsafe impl<M: Machine> RawDowngrade for RawPfQ<M> {
    #[inline]
    unsafe fn downgrade(&self, token: Self::Write) {
        self.readers.arrive_with_turn();
        // SAFETY: the token is from the caller's write acquisition.
        unsafe { self.unlock_write(token) };
    }
}

// SAFETY: an upgradable reader holds the MCS lock, which excludes writers and other upgradable readers, and begins no writer
// phase, so readers enter. An upgrade begins one, and waits for the readers before it.
unsafe impl<M: Machine> RawUpgrade for RawPfQ<M> {
    /// The node in the queue of writers.
    type Upgradable = NonNull<QNode<M>>;

    fn upgradable_within(&self, timeout: Timeout, _watch: &dyn Fn()) -> Option<Self::Upgradable> {
        let token = match timeout {
            Timeout::Immediate => self.writers.try_lock()?,
            Timeout::At(deadline) => backoff::poll::<M, _>(deadline, || self.writers.try_lock())?,
            Timeout::Never => self.writers.lock(),
        };
        self.readers.await_writer();
        Some(token)
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
        if self.readers.enter_write_within(timeout) { Ok(token) } else { Err(token) }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, token: Self::Upgradable) {
        self.readers.arrive_with_turn();
        // SAFETY: the token is from the caller's acquisition of the MCS lock.
        unsafe { self.writers.unlock(token) };
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, token: Self::Write) -> Self::Upgradable {
        self.end_phase(self.readers.phase());
        token
    }
}

// SAFETY: the functions are those of `RawRwLock`: the lock is phase-fair.
unsafe impl<M: Machine> RawFair for RawPfQ<M> {}

#[cfg(test)]
mod tests {
    use super::super::bravo::RawBravo;
    use super::super::phases::{READER, WRITER};
    use super::*;
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
            spin_until(|| lock.readers.has_writer());
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
            spin_until(|| lock.readers.rin.load(Relaxed) & !WRITER == (1 + READERS) * READER);
            // Some of them have pushed their nodes, others may come too late to.
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

    /// A reader that comes to push when its phase has ended has the lock.
    #[test]
    fn a_late_reader_does_not_wait() {
        let lock = RawPfQ::<Native>::new();
        for _ in 0..4 {
            let token = lock.write();
            let writer = lock.readers.arrive().expect("a writer is present");
            // SAFETY: this thread acquired the lock a few lines above.
            unsafe { lock.unlock_write(token) };
            lock.wait_out(writer);
            assert!(Blocked(lock.blocked.load(Relaxed)).first().is_null());
            assert!(lock.try_write().is_none());
            // SAFETY: `arrive` and `wait_out` above are the two halves of `read`.
            unsafe { lock.unlock_read(()) };
        }
        assert!(!lock.is_locked());
    }
}
