//! ShflLock, blocking, as the paper has it: a yardstick beside this library's `shfl`, which differs on purpose.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019: figure 4 with the changes of figures
//! 6 and 7, and section 4.2.1 for where the next shuffler goes on (*qlast*).
//!
//! A test-and-set word in front of a queue. Newcomers steal the word whenever it is free (section 4.2.2, first optimisation:
//! the queue does not disable stealing). The head of the queue first sets its successor spinning, and wakes it if it is
//! parked (figure 7); then it spins for the word, for as long as that takes. A waiter of the queue spins until its time is up,
//! and parks. The shuffler moves waiters of its socket together, sets each spinning, and wakes it if it is parked.
//!
//! | `status` | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | WAITING | PARKED | the waiter, when its time is up | none; it looks again |
//! | WAITING | SPINNING: it does not park | the shuffler, or the head in front of it | none |
//! | PARKED | SPINNING, woken | the same | none |
//! | WAITING, PARKED or SPINNING | READY | the old head, which wakes it if it was parked | (R) release; the waiter's acquire |
//!
//! (A) The word's release is acquired by the next holder. (C) A node is initialised for the thread that finds it in `tail`.
//! (Q) A waiter's link. (S) A new shuffler sees the queue as the last one left it.
//!
//! Size: 16 bytes; 64 per waiter, on its stack; none per holder.
//! Fairness: none between newcomers and the queue. At most 1024 waiters of a socket in a row.
//! Suspension: blocks.
//!
//! Where it differs from the figures:
//!
//! - Figure 6, line 24, swaps SPINNING into the shuffler's own status. If the old head has set READY just before, that is
//!   lost, and the queue stands still. Here it is an exchange of WAITING for SPINNING.
//! - A kernel's thread knows when its time is up. Here a waiter offers its processor after `LOOKS` looks, and its time is up
//!   if another thread has had the processor meanwhile.

use latchwork::locks::mutex::{Info, RawMutex, Suspension};
use latchwork::machine::{Clock, Machine, Word};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::*;

const FREE: u32 = 0;
const HELD: u32 = 1;

const WAITING: u32 = 0;
const READY: u32 = 1;
const PARKED: u32 = 2;
const SPINNING: u32 = 3;

/// Waiters of one socket in a row.
const MAX_SHUFFLES: u32 = 1024;
/// Looks of a waiter before it offers its processor.
const LOOKS: u32 = 1024;
/// Nanoseconds of a `sched_yield` that show that another thread had the processor: the system call alone takes less.
const TAKEN: u64 = 5_000;

/// A waiter's node, on its stack.
#[repr(C, align(64))]
struct Node<M: Machine> {
    next: M::Ptr<Node<M>>,
    /// Of a shuffler: the waiter at which its walk starts; null: at the shuffler.
    resume: M::Ptr<Node<M>>,
    status: M::U32,
    batch: M::U32,
    shuffler: M::U32,
    socket: u32,
}

/// The lock. See the [module documentation](self).
pub struct ShflPaper<M: Machine> {
    word: M::U32,
    tail: M::Ptr<Node<M>>,
}

impl<M: Machine> ShflPaper<M> {
    #[cold]
    fn lock_queued(&self) {
        let node = Node::<M> {
            next: M::Ptr::new(null_mut()),
            resume: M::Ptr::new(null_mut()),
            status: M::U32::new(WAITING),
            batch: M::U32::new(0),
            shuffler: M::U32::new(0),
            socket: M::numa_node(),
        };
        let this = (&raw const node).cast_mut();
        let before = self.tail.swap(this, AcqRel); // (C)
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until it has set a successor READY, and for that it waits for `next`.
            unsafe { &*before }.next.store(this, Release); // (Q)
            self.await_head(&node);
        }
        // Figure 7. SAFETY: the successor keeps its node until it is READY, which this thread makes it.
        if let Some(next) = unsafe { node.next.load(Acquire).as_ref() }
            && next.status.swap(SPINNING, Relaxed) == PARKED
        {
            M::wake(&raw const next.status, 1);
        }
        loop {
            if node.batch.load(Relaxed) == 0 || node.shuffler.load(Acquire) != 0 {
                self.shuffle(&node, true);
            }
            M::spin_until(&self.word, Relaxed, |word| word == FREE);
            if self.try_lock().is_some() {
                break;
            }
        }
        self.leave_queue(&node);
    }

    /// Waits until the old head has set `node` READY.
    fn await_head(&self, node: &Node<M>) {
        loop {
            // (R) pairs with the exchange in `leave_queue`.
            let seen = M::spin_for(&node.status, Acquire, LOOKS, |status| {
                status == READY || node.shuffler.load(Relaxed) != 0
            });
            if seen == Some(READY) || node.status.load(Acquire) == READY {
                return;
            }
            if node.shuffler.load(Acquire) != 0 {
                self.shuffle(node, false);
                continue;
            }
            let start = M::now(Clock::Monotonic);
            M::yield_now();
            let time_is_up = M::now(Clock::Monotonic).saturating_sub(start) > TAKEN;
            // A waiter that is SPINNING does not park.
            if time_is_up && node.status.compare_exchange(WAITING, PARKED, Relaxed, Relaxed).is_ok() {
                while node.status.load(Relaxed) == PARKED {
                    M::wait(&node.status, PARKED, None);
                }
            }
        }
    }

    /// The holder hands the head of the queue on.
    fn leave_queue(&self, node: &Node<M>) {
        let mut next = node.next.load(Acquire); // (Q)
        if next.is_null() {
            let this = std::ptr::from_ref(node).cast_mut();
            if self.tail.compare_exchange(this, null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            next = M::spin_until(&node.next, Acquire, |next: *mut Node<M>| !next.is_null());
        }
        // SAFETY: the successor keeps its node until it is READY. Afterwards only the address is used.
        let (status, before) = unsafe {
            let status = &raw const (*next).status;
            (status, (*status).swap(READY, AcqRel)) // (R)
        };
        if before == PARKED {
            M::wake(status, 1);
        }
    }

    /// Figure 4, lines 59 to 108, with figure 6. The caller is the shuffler, and the only one.
    fn shuffle(&self, node: &Node<M>, head: bool) {
        let mut batch = node.batch.load(Relaxed);
        if batch == 0 {
            batch = 1;
            node.batch.store(batch, Relaxed);
        }
        node.shuffler.store(0, Relaxed);
        let resume = node.resume.swap(null_mut(), Relaxed);
        if batch >= MAX_SHUFFLES {
            return;
        }
        // It will acquire the lock soon.
        let _ = node.status.compare_exchange(WAITING, SPINNING, Relaxed, Relaxed);
        let mut last = node;
        // SAFETY: all nodes that the walk meets stand behind the shuffler's, so that none leaves before the shuffler does; the
        // same of the one at which an earlier walk stopped, which stands behind the waiters that it has moved.
        let mut before = unsafe { resume.as_ref() }.unwrap_or(node);
        loop {
            let current = before.next.load(Acquire); // (Q)
            if current.is_null() || current == self.tail.load(Relaxed) {
                break;
            }
            // SAFETY: as above.
            let here = unsafe { &*current };
            if here.socket != node.socket {
                before = here;
            } else if std::ptr::eq(before, last) {
                keep_awake(here);
                batch += 1;
                here.batch.store(batch, Relaxed);
                (last, before) = (here, here);
            } else {
                let after = here.next.load(Acquire); // (Q)
                if after.is_null() {
                    break;
                }
                keep_awake(here);
                batch += 1;
                here.batch.store(batch, Relaxed);
                before.next.store(after, Relaxed);
                here.next.store(last.next.load(Relaxed), Relaxed);
                last.next.store(current, Relaxed);
                last = here;
            }
            let over = match head {
                true => self.word.load(Relaxed) == FREE,
                false => node.status.load(Relaxed) == READY,
            };
            if over {
                break;
            }
        }
        if !std::ptr::eq(before, last) {
            last.resume.store(std::ptr::from_ref(before).cast_mut(), Relaxed);
        }
        last.shuffler.store(1, Release); // (S)
    }
}

/// Figure 6, lines 41 to 47.
fn keep_awake<M: Machine>(waiter: &Node<M>) {
    if waiter.status.compare_exchange(WAITING, SPINNING, Relaxed, Relaxed).is_ok() {
        return;
    }
    if waiter.status.compare_exchange(PARKED, SPINNING, Relaxed, Relaxed).is_ok() {
        M::wake(&raw const waiter.status, 1);
    }
}

// SAFETY: only one exchange takes the word from FREE to HELD; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for ShflPaper<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl-paper",
        summary: "blocking ShflLock as figures 4, 6 and 7 of its paper have it",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "none for newcomers; 1024 waiters of a NUMA node in a row",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Kashyap et al. 2019, figures 4, 6 and 7",
    };

    fn new_in() -> Self {
        ShflPaper { word: M::U32::new(FREE), tail: M::Ptr::new(null_mut()) }
    }
    fn lock(&self) {
        if self.try_lock().is_none() {
            self.lock_queued();
        }
    }
    fn try_lock(&self) -> Option<()> {
        // (A) pairs with the store in `unlock`.
        let free = self.word.load(Relaxed) == FREE;
        (free && self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()).then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquire.
        self.word.store(FREE, Release);
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}
