//! ShflLock, non-blocking, in the 4 bytes of the kernel's spin lock: the slow path of `queued_spin_lock`. In the module it is a lock
//! of its own, `shfl-spin-4`.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section 4.2.1, figure 4. It is the lock of
//! `latchwork::locks::mutex::shfl_spin` with other storage.
//!
//! | byte | meaning |
//! |---|---|
//! | 0 | `locked`: 1 while a thread holds the lock. The kernel's inline functions set and clear it |
//! | 1 | `shuffling`: 1 while a waiter is, or is about to be, the shuffler |
//! | 2, 3 | `tail`: the number of the last waiter's node, 0 if there is no queue |
//!
//! The kernel's inline functions stay as they are. `queued_spin_lock` and `queued_spin_trylock` take the lock by one
//! compare-and-exchange of all 4 bytes from 0, and the release is a store of byte 0. So nobody takes the lock past a queue, and the
//! head of the queue waits for byte 0 alone. `shfl_spin` needs a word `no_stealing` for that; here the tail is that word.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `locked` 0, no queue | 1 | a newcomer | (A) acquire; the holder's store |
//! | `locked` 0, a queue | 1 | the head | (A) acquire; the holder's store |
//! | `locked` 1 | 0 | the holder's store in the kernel's inline function | (A) release |
//! | `tail` | the newcomer's number | a newcomer | (C) its node is initialised |
//! | `tail` | 0 | a head with no waiter behind it, together with `locked` | (C) |
//! | `shuffling` 0 | 1 | a head | (T) |
//! | `shuffling` 1 | 0 | the shuffler, with a full run or as the last of the queue | (T) release |
//! | a node's `next` | the waiter behind | that waiter, or the shuffler | (Q) release; acquire |
//! | a node's `status` WAITING | READY | the head before it | (R) release; acquire |
//! | a node's `shuffler` 0 | 1 | the shuffler before it, or the head | (S) release; acquire |
//!
//! A node belongs to a processor and not to a thread: preemption is off for as long as a thread waits. Each processor has one for
//! a task, a softirq, an interrupt and an NMI, as in the kernel's own lock. A fifth waiter of a processor spins without a node.
//!
//! Size: 4 bytes; 64 for each node. Atomics per uncontended pair: 1.
//! Fairness: FIFO within a NUMA node, [`MOST_IN_A_ROW`] waiters of a node in a row.

use crate::machine::{Kernel, SOUND};
use crate::shim::{lw_k_numbered, lw_k_return_numbered, lw_k_take_numbered};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::*};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::policies::NumaPolicy;
use latchwork::locks::mutex::shuffle::Policy;
use latchwork::locks::{Info, Suspension};
use latchwork::machine::{Machine, QNode, node_view};

type Here = Kernel<SOUND>;
type Waiter = Node<'static, Here>;

const WAITING: u32 = 0;
const READY: u32 = 1;
const LOCKED: u32 = 1;
/// Where the tail begins in the 4 bytes.
const TAIL: u32 = 16;
/// Waiters of one NUMA node in a row before another one gets its turn (the paper's `MAX_SHUFFLES`).
const MOST_IN_A_ROW: u32 = 1024;
/// Looks at one word before a waiter looks at the rest of its duties again.
const LOOKS: u32 = 64;

node_view! {
    /// A waiter's node.
    struct Node {
        /// The waiter behind this one, once it has linked itself.
        next: links[0],
        /// Of the shuffler: the waiter at which its walk starts (the paper's `qlast`); null: at the shuffler.
        resume: links[1],
        /// WAITING or READY. The owner spins here.
        status: words[0],
        /// The waiter's number in its run, from 1; 0: no shuffler has grouped it.
        batch: words[1],
        /// The waiter's NUMA node.
        key: words[2],
        /// 1: the waiter is the shuffler.
        shuffler: words[3],
    }
}

impl Waiter {
    fn is_shuffler(self) -> bool {
        // (S) the shuffler sees the queue as the walk before left it.
        self.shuffler().load(Acquire) != 0
    }

    /// The waiter behind this one, if it has linked itself.
    ///
    /// The caller is this waiter, or the shuffler and stands in front of it. A waiter leaves the queue at its head alone, so the
    /// one behind is there.
    fn behind(self) -> Option<Waiter> {
        let next = self.next().load(Acquire); // (Q)
        // SAFETY: nodes are static: they belong to processors.
        (!next.is_null()).then(|| unsafe { Waiter::at(next) })
    }
}

/// A `struct qspinlock`.
#[repr(C, align(4))]
pub struct Spin {
    locked: AtomicU8,
    shuffling: AtomicU8,
    tail: AtomicU16,
}

const _: () = assert!(size_of::<Spin>() == 4 && align_of::<Spin>() == 4);
const _: () = assert!(size_of::<QNode<Here>>() == 64);

impl Spin {
    /// All 4 bytes as one word. The kernel's inline functions use it so, too.
    fn whole(&self) -> &AtomicU32 {
        // SAFETY: 4 bytes, aligned to 4, that are atomic.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }

    fn try_whole(&self, from: u32) -> bool {
        self.whole().compare_exchange(from, LOCKED, Acquire, Relaxed).is_ok() // (A)
    }

    /// Takes the lock although a holder is inside, in a kernel that is broken on purpose.
    #[cfg(feature = "twin")]
    pub fn take_anyway(&self) {
        self.locked.store(LOCKED as u8, Relaxed);
    }

    /// Waits and takes the lock. The caller has turned preemption off.
    #[cold]
    pub fn lock_slow(&self) {
        let mut number = 0;
        // SAFETY: preemption is off, and the node is given back below. Null, or a node that no other waiter has.
        let node = unsafe { lw_k_take_numbered(&mut number) };
        if node.is_null() {
            while !self.try_whole(0) {
                core::hint::spin_loop();
            }
        } else {
            // SAFETY: a node of this processor, static and 64 bytes, that is all zero at first and used as a node alone.
            self.lock_queued(number, unsafe { Waiter::at(node.cast()) });
        }
        // SAFETY: this function took the node, on this processor; no waiter looks at a node whose owner has left the queue.
        unsafe { lw_k_return_numbered() };
    }

    fn lock_queued(&self, number: u32, node: Waiter) {
        node.next().store(null_mut(), Relaxed);
        node.resume().store(null_mut(), Relaxed);
        node.status().store(WAITING, Relaxed);
        node.batch().store(0, Relaxed);
        node.shuffler().store(0, Relaxed);
        node.key().store(NumaPolicy::key::<Here>(), Relaxed);
        // (C) this node is initialised for the next arrival, and the predecessor's for this thread.
        let before = self.tail.swap(number as u16, AcqRel);
        if before != 0 {
            // SAFETY: the predecessor keeps its node until it has made this waiter the head, and for that it waits for `next`.
            // (Q) pairs with `behind`.
            unsafe { Waiter::at(lw_k_numbered(before.into()).cast()).next().store(node.as_ptr(), Release) };
            self.wait_for_head(node);
        }
        let mut shuffler = node.is_shuffler() || self.head_may_shuffle();
        // (A) pairs with the holder's store. From here on nobody but the head can take the lock.
        while Here::spin_for(&self.locked, Acquire, LOOKS, |locked| locked == 0).is_none() {
            if shuffler && let Some(next) = node.behind() {
                next.shuffler().store(1, Release); // (S)
                shuffler = false;
            }
        }
        self.leave(number, node, shuffler);
    }

    /// Whether the head may begin to shuffle: it makes the waiter behind it the shuffler.
    fn head_may_shuffle(&self) -> bool {
        // (T) pairs with the end of a walk.
        let may = NumaPolicy::applies::<Here>() && self.shuffling.load(Acquire) == 0;
        if may {
            self.shuffling.store(1, Relaxed);
        }
        may
    }

    /// Takes the free lock as the head, and leaves the queue.
    fn leave(&self, number: u32, node: Waiter, shuffler: bool) {
        let mut next = node.behind();
        if next.is_none() {
            if shuffler {
                self.shuffling.store(0, Relaxed); // (C) known to the next head, if the queue is empty now
            }
            if self.try_whole(number << TAIL) {
                return;
            }
        }
        self.locked.store(LOCKED as u8, Relaxed);
        while next.is_none() {
            core::hint::spin_loop();
            next = node.behind();
        }
        let Some(next) = next else { return };
        if shuffler {
            self.shuffling.store(1, Relaxed);
            next.shuffler().store(1, Release); // (S)
        }
        // (R) the queue as the walks left it.
        next.status().store(READY, Release);
    }

    fn wait_for_head(&self, node: Waiter) {
        let mut idle = true;
        loop {
            // (R) pairs with the hand-over in `leave`.
            match Here::spin_for(node.status(), Acquire, LOOKS, |status| {
                status == READY || idle && node.is_shuffler()
            }) {
                Some(READY) => return,
                Some(_) => idle = false, // the shuffler from now on; its later walks come after `LOOKS` looks each
                None => {}
            }
            if node.is_shuffler() {
                self.walk(node);
            }
        }
    }

    /// One walk of the shuffler `node`: it moves waiters of its NUMA node behind itself. After it another waiter may have the
    /// role; no waiter has it once the run is complete.
    fn walk(&self, node: Waiter) {
        let mut batch = node.batch().load(Relaxed).max(1);
        let resume = node.resume().load(Relaxed);
        node.batch().store(batch, Relaxed);
        node.shuffler().store(0, Relaxed);
        node.resume().store(null_mut(), Relaxed);
        if batch >= MOST_IN_A_ROW {
            return self.shuffling.store(0, Release); // (T) this walk is over before another one starts
        }
        let key = node.key().load(Relaxed);
        // SAFETY: nodes are static. The waiter stands behind the shuffler, so it cannot have left before the shuffler does.
        let mut reached = if resume.is_null() { node } else { unsafe { Waiter::at(resume) } };
        let (mut last, mut stopped) = (node, false);
        while batch < MOST_IN_A_ROW && !stopped {
            let Some(current) = reached.behind() else { break };
            if current.key().load(Relaxed) != key {
                reached = current;
            } else {
                if last == reached {
                    reached = current;
                } else {
                    // A new waiter links itself behind the last waiter, so the last waiter stays where it is.
                    let Some(after) = current.behind() else { break };
                    reached.next().store(after.as_ptr(), Release);
                    current.next().store(last.next().load(Relaxed), Release);
                    last.next().store(current.as_ptr(), Release);
                }
                batch += 1;
                current.batch().store(batch, Relaxed);
                last = current;
            }
            stopped = node.status().load(Relaxed) == READY;
        }
        // A head does not walk. If it has found no waiter of its own, the role goes to another node's.
        let next = if stopped && last == node { reached } else { last };
        next.resume().store(if reached == next { null_mut() } else { reached.as_ptr() }, Relaxed);
        next.shuffler().store(1, Release); // (S)
    }
}

// SAFETY: the lock is taken by a compare-and-exchange from 0, or by the head of the queue when `locked` is 0. While there is a
// queue the 4 bytes are not 0, and it has one head. (A) orders the sections.
unsafe impl RawMutex for Spin {
    type Machine = Here;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl-spin-4",
        summary: "ShflLock, non-blocking, in the 4 bytes of the kernel's spin lock",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "FIFO per NUMA node, 1024 in a row; stealing while the queue is empty",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Kashyap et al. 2019, section 4.2.1",
    };

    fn new_in() -> Self {
        Spin { locked: AtomicU8::new(0), shuffling: AtomicU8::new(0), tail: AtomicU16::new(0) }
    }

    fn lock(&self) {
        if !self.try_whole(0) {
            self.lock_slow();
        }
    }

    fn try_lock(&self) -> Option<()> {
        self.try_whole(0).then_some(())
    }

    unsafe fn unlock(&self, (): ()) {
        self.locked.store(0, Release); // (A)
    }

    fn is_locked(&self) -> bool {
        self.whole().load(Relaxed) != 0
    }
}
