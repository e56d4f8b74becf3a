//! Phase-fair queue lock: the waiting readers and writers spin locally.
//!
//! Source: Brandenburg and Anderson, "Spin-based reader-writer synchronization for multiprocessor
//! real-time systems", Real-Time Systems 46(1), 2010, the PF-Q lock.
//!
//! The phases are those of [`pf_t`](super::pf_t): `rin` and `rout` count readers in and out, and a
//! reader that finds a writer present waits for the end of that writer's phase. But where everybody
//! there spins on the shared counters, here a blocked reader pushes a node onto a list and spins on
//! it until the writer, ending its phase, takes the list and tells each; and writers form an MCS
//! queue.
//!
//! State:
//!
//! | word | who writes it |
//! |---|---|
//! | `rin`, `rout` | as in `pf_t` |
//! | `blocked`: the list of readers blocked by the present writer; in bit 0 the PHASE whose end it last saw | a blocked reader pushes while bit 0 is not its own phase; the writer ending a phase takes the list and puts its own PHASE into bit 0 |
//! | `writers`: tail of the MCS queue | an arriving writer; the last one to leave |
//! | a node's `status`: WAITING -> GRANTED | the writer ending its phase (reader), the writer before it (writer) |
//!
//! A reader that has seen the writer but finds its phase ended when it comes to push has the lock:
//! bit 0 tells, and the next writer waits for it. So one list is enough where the paper has two.
//!
//! Where it differs from the paper, to fit 24 bytes and for practice:
//! - Readers push with compare-and-exchange instead of an exchange. Only readers that are about to
//!   wait for a whole writer phase can make each other retry.
//! - The writer wakes all blocked readers itself; in the paper it wakes one, and each the next.
//!   With more threads than cores every link of such a chain waits for its turn on a processor.
//! - The first writer spins on `rout` until the readers before it have left (the paper's last reader
//!   tells it, which takes two more words). It is the only thread that spins on a shared word for long.
//! - A writer lets the next writer go first, takes the list, and clears PRESENT last, for the reason
//!   given in `pf_t`; then it wakes the readers, whose nodes are their own. A reader that finds the
//!   phase ended when it comes to push waits until PRESENT is clear.
//!
//! Nodes: a reader's is on its stack, as it is gone before `read` returns. A writer's must stay
//! until the release, so it is from the machine's pool and is the token.
//! Size: 24 bytes; 64 per waiter; none per reading holder, 64 per writing holder. Atomics per
//! uncontended pair: read 2 (add, add); write 5 (queue 2, enter, leave, take the list).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: phase-fair; writers are FIFO among themselves.
//! More than 2^30 - 1 simultaneous readers would break it.
//! Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! Timed forms: they poll, for the reason given in `pf_t`.

use super::pf_t::{PHASE, Readers, WRITER};
use super::{ConstNew, Info, RawRwLock, Suspension};
use crate::locks::mutex::RawMutex;
use crate::locks::mutex::mcs::RawMcs;
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

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

/// The phase in a value of `blocked`. Nodes are aligned, so their addresses leave the bit free.
fn phase_of<M: Machine>(list: *mut QNode<M>) -> u32 {
    list.addr() as u32 & PHASE
}

fn node_of<M: Machine>(list: *mut QNode<M>) -> *mut QNode<M> {
    list.map_addr(|address| address & !(PHASE as usize))
}

fn tagged<M: Machine>(node: *mut QNode<M>, phase: u32) -> *mut QNode<M> {
    node.map_addr(|address| address | phase as usize)
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

impl<M: Machine> RawPfQ<M> {
    /// Waits for the end of the phase of `writer`, which counts the caller in.
    #[cold]
    #[inline(never)]
    fn wait_out(&self, writer: u32) {
        let phase = writer & PHASE;
        let storage = QNode::<M>::new();
        let node = Reader(&storage);
        node.status().store(WAITING, Relaxed);
        // (F) pairs with the exchange in `end_phase`, for a phase that has ended. The value is not
        // older than the phase before ours: (E) in `Readers::arrive`.
        let mut list = self.blocked.load(Acquire);
        loop {
            if phase_of(list) == phase {
                // The writer is about to leave; until it has, the lock must not go away.
                // (A) pairs with `leave_write`, directly or through the next writer's entry.
                M::spin_until(&self.readers.rin, Acquire, |rin| rin & WRITER != writer);
                return;
            }
            node.next().store(node_of(list), Relaxed);
            // (G) pairs with the exchange in `end_phase`: the node is initialised. Nodes leave the
            // list only all at once at the end of the phase, so an equal value is an equal list.
            match self.blocked.compare_exchange(list, tagged(node.as_ptr(), phase ^ PHASE), Release, Acquire)
            {
                Ok(_) => break,
                Err(now) => list = now,
            }
        }
        // (H) pairs with the store in `end_phase`.
        M::spin_until(node.status(), Acquire, |status| status == GRANTED);
    }

    /// Ends the caller's writer phase and wakes the readers that it blocked. The turn is the next
    /// writer's already, which waits until PRESENT is clear.
    #[inline]
    fn end_phase(&self, phase: u32) {
        // (F) the section happens before readers that find the phase ended when they come to push.
        // (G) pairs with the pushes: every push is a read-modify-write, so this sees all nodes.
        let list = self.blocked.swap(tagged(null_mut(), phase), AcqRel);
        // The last access to the lock: a reader that gets in may be the last one, and free it.
        self.readers.leave_write();
        let mut node = node_of(list);
        while !node.is_null() {
            // SAFETY: a pushed node stays on its reader's stack until it is granted.
            let reader = unsafe { Reader::at(node) };
            node = reader.next().load(Relaxed);
            // (H) the section happens before the reader's. The node is gone after this.
            reader.status().store(GRANTED, Release);
        }
    }
}

// SAFETY: the MCS lock makes writers exclusive among themselves; a writer waits for all readers
// that arrived before it (B in `pf_t`), and those that arrive later wait for it, (A) in `pf_t`, (F),
// (H).
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
        // SAFETY: the token is from the acquisition above.
        unsafe { self.writers.unlock(token) };
        None
    }

    #[inline]
    unsafe fn unlock_write(&self, token: Self::Write) {
        let phase = self.readers.phase();
        // SAFETY: the token is from the MCS lock's acquisition.
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

#[cfg(test)]
mod tests {
    use super::super::bravo::RawBravo;
    use super::super::pf_t::READER;
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
                // SAFETY: acquired above.
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
                    // SAFETY: acquired above.
                    unsafe { lock.unlock_read(()) };
                });
            }
            spin_until(|| lock.readers.rin.load(Relaxed) & !WRITER == (1 + READERS) * READER);
            // Some of them have pushed their nodes, others may come too late to.
            spin_until(|| !node_of(lock.blocked.load(Relaxed)).is_null());
            assert!(order.lock().unwrap().is_empty());
            // SAFETY: acquired at the top.
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
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(token) };
            lock.wait_out(writer);
            assert!(node_of(lock.blocked.load(Relaxed)).is_null());
            assert!(lock.try_write().is_none());
            // SAFETY: acquired by the two halves of `read` above.
            unsafe { lock.unlock_read(()) };
        }
        assert!(!lock.is_locked());
    }
}
