//! Fair reader-writer queue lock with local spinning.
//!
//! # Source
//!
//! Mellor-Crummey and Scott, "Scalable reader-writer synchronization for shared-memory multiprocessors", PPoPP 1991, section
//! 3.1 (the fair lock).
//!
//! # Idea
//!
//! Readers and writers form one MCS queue. A reader behind a reader that is inside enters too. A waiting reader that enters
//! lets in the reader behind it, and a writer that leaves lets in the thread behind it. A reader leaves the queue when it
//! leaves, and readers in front of a writer may leave in any order. So readers are counted, and a writer enters when the count
//! of the readers in front of it is zero.
//!
//! # States
//!
//! | word | meaning | which thread changes it |
//! |---|---|---|
//! | `tail` | the last node of the queue | an arriving reader or writer; the last one in the queue when it leaves |
//! | `readers`, COUNT | readers inside | a reader adds itself, or the reader behind it; each subtracts itself |
//! | `readers`, NEXT | a writer is to be let in when the count is zero | as `next_writer` |
//! | `next_writer` | that writer's node | the reader, or the failed attempt, in front of the writer when it leaves the queue; a writer that finds the queue empty |
//! | a node's `status`, BLOCKED | its owner waits | the thread that lets the owner in clears it |
//! | a node's `status`, READER_BEHIND, WRITER_BEHIND | what stands behind it | its successor sets it |
//! | a node's `class`, READING or WRITING | what its owner wants | its owner, before it queues |
//!
//! # Orderings
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A) | the last thread leaves the queue empty, release | the next thread exchanges `tail`, acquire |
//! | (B) | a thread lets another in: clears BLOCKED, release | that thread waits for it, acquire |
//! | (C) | a reader leaves: subtraction, release | the writer, or the reader that lets it in, finds no reader left, acquire |
//! | (D) | a thread links itself: `next`, release | its predecessor follows the link, acquire |
//! | (E) | a successor sets READER_BEHIND while its predecessor is BLOCKED | the predecessor looks for it after it has been let in |
//! | (F) | `next_writer` is stored before NEXT is set, release | the last reader, which finds NEXT, acquire |
//! | (G) | a node is initialised before it is in `tail`, release | the successor that finds it there, acquire |
//!
//! # Where it differs from the paper
//!
//! - The count and "a writer waits" are one word. The paper's last reader looks at the count and then takes the writer from
//!   `next_writer` with a compare-and-exchange. If that reader stands still between the two, it may take the same writer's next
//!   turn, while others read. Here exactly one subtraction brings the word to NEXT, and that reader lets the writer in.
//! - There are attempts, which the paper does not have. An attempt to read joins the queue only behind a reader that is
//!   inside. If that reader leaves, and its node is queued again at that moment, the attempt waits. An attempt to write joins an
//!   empty queue; if it then finds readers inside, it makes the writer behind it the next one.
//!
//! # Properties
//!
//! - Size: 24 bytes; 64 per waiter and per holder.
//! - Atomic read-modify-writes per uncontended pair: read 5 (queue 2, count 2, its own node 1), write 3 (queue 2, NEXT 1).
//! - Fairness: FIFO.
//! - Suspension: a waiter that is suspended blocks others.
//! - Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! - Timed forms poll outside the queue, which a waiter cannot leave.
//! - Limit: 2^31 - 1 simultaneous readers.

use super::{ConstNew, Info, RawFair, RawRwLock, Suspension};
use crate::machine::{Arith, Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

const BLOCKED: u32 = 1;
const READER_BEHIND: u32 = 2;
const WRITER_BEHIND: u32 = 4;

const READING: u32 = 0;
const WRITING: u32 = 1;

const NEXT: u32 = 1 << 31;
const COUNT: u32 = NEXT - 1;

/// Fair reader-writer queue lock. See the [module documentation](self).
#[repr(C)]
pub struct RawMcsRw<M: Machine> {
    tail: M::Ptr<QNode<M>>,
    next_writer: M::Ptr<QNode<M>>,
    readers: M::U32,
    /// Whether a writer is inside; only to be looked at.
    written: M::U32,
}

impl RawMcsRw<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawMcsRw {
            tail: AtomicPtr::new(null_mut()),
            next_writer: AtomicPtr::new(null_mut()),
            readers: AtomicU32::new(0),
            written: AtomicU32::new(0),
        }
    }
}

const_new!(RawMcsRw<Native>);

node_view! {
    /// A queue node.
    struct Node {
        /// The node behind this one, once its owner has linked it.
        next: links[0],
        /// BLOCKED, and which class stands behind (READER_BEHIND, WRITER_BEHIND); the owner spins here.
        status: words[0],
        /// READING or WRITING.
        class: words[2],
    }
}

fn fresh_node<M: Machine>(class: u32) -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(BLOCKED, Relaxed);
    node.class().store(class, Relaxed);
    node
}

/// Lets the owner of `node` in.
fn unblock<M: Machine>(node: Node<'_, M>) {
    // (B) what was before happens before the owner's section.
    node.status().fetch_and(!BLOCKED, Release);
}

fn wait<M: Machine>(node: Node<'_, M>) {
    // (B) pairs with `unblock`.
    M::spin_until(node.status(), Acquire, |status| status & BLOCKED == 0);
}

/// The node behind `node`, which is known to come.
fn successor<M: Machine>(node: Node<'_, M>) -> Node<'static, M> {
    // (D) pairs with the stores of `next`.
    let next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
    // SAFETY: nodes are type-stable, and the successor's stays at least until we have let it in.
    unsafe { Node::at(next) }
}

impl<M: Machine> RawMcsRw<M> {
    /// Goes on behind `before`, which our exchange has found in `tail`.
    fn read_behind(&self, node: Node<'static, M>, before: *mut QNode<M>) {
        // SAFETY: the predecessor stays until we have linked ourselves.
        let before = unsafe { Node::at(before) };
        // If it is a reader that waits, it is to let us in: (E) pairs with the load in `enter_read`.
        let waits = before.class().load(Relaxed) == WRITING
            || before.status().compare_exchange(BLOCKED, BLOCKED | READER_BEHIND, AcqRel, Acquire).is_ok();
        if waits {
            before.next().store(node.as_ptr(), Release); // (D)
            wait(node); // the thread that lets this reader in counts it
        } else {
            // (B) if it fails: the reader in front is inside, and so after the last writer.
            self.readers.fetch_add(1, Relaxed);
            before.next().store(node.as_ptr(), Release); // (D)
            node.status().fetch_and(!BLOCKED, Release); // (B)
        }
    }

    /// A reader that is inside lets in the one behind it, if that was there before.
    fn enter_read(&self, node: Node<'static, M>) {
        // (E) A reader that comes later finds this one inside. Relaxed: `successor` acquires what the other reader has written.
        if node.status().load(Relaxed) & READER_BEHIND != 0 {
            let next = successor(node);
            self.readers.fetch_add(1, Relaxed);
            unblock(next);
        }
    }

    /// The first in the queue, without a reader or writer in front.
    fn read_first(&self, node: Node<'static, M>) {
        self.readers.fetch_add(1, Relaxed);
        node.status().fetch_and(!BLOCKED, Release); // (B)
        self.enter_read(node);
    }

    /// Leaves the queue if nobody is behind. The node may then be released.
    fn is_last(&self, node: Node<'static, M>) -> bool {
        node.next().load(Relaxed).is_null()
            // (A) the section happens before the section of the thread that finds the queue empty.
            && self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok()
    }

    /// Makes the writer at the front of the queue the one that the last reader lets in. Returns whether there is
    /// no reader, so that nobody will.
    fn is_alone(&self, writer: Node<'_, M>) -> bool {
        self.next_writer.store(writer.as_ptr(), Relaxed);
        // (F) release: the last reader finds `next_writer`. (C) acquire: if there is none, pairs with their
        // subtractions.
        let alone = self.readers.fetch_or(NEXT, AcqRel) & COUNT == 0;
        if alone {
            // Nobody adds to the count while a writer is at the front.
            self.readers.store(0, Relaxed);
        }
        alone
    }

    /// A writer at the front waits until the readers are gone.
    fn write_first(&self, node: Node<'static, M>) {
        if !self.is_alone(node) {
            wait(node);
        }
    }

    /// An attempt to write that has found readers gives its place at the front to its successor. A reader enters
    /// beside the readers; a writer waits for them, as the attempt would have had to.
    fn give_up_first(&self, node: Node<'static, M>) {
        if self.is_last(node) {
            return;
        }
        let next = successor(node);
        if next.class().load(Relaxed) == READING {
            self.readers.fetch_add(1, Relaxed);
            unblock(next);
        } else if self.is_alone(next) {
            unblock(next);
        }
    }
}

/// Gives the node back.
fn release<M: Machine>(node: Node<'static, M>) {
    // SAFETY: it has left the queue, and its successor, if any, has linked itself.
    unsafe { M::release_node(node.0) };
}

// SAFETY: the queue orders all threads. A writer is let in by the writer in front of it, or when the readers in front of it
// have gone (C), and no thread behind it enters before it leaves. A reader is let in by the writer or the reader in front of
// it, (B).
unsafe impl<M: Machine> RawRwLock for RawMcsRw<M> {
    type Machine = M;
    type Read = NonNull<QNode<M>>;
    type Write = NonNull<QNode<M>>;
    type Counted = Self;
    const INFO: Info = Info {
        name: "mcs-rw",
        summary: "fair reader-writer queue spinlock",
        atomics: 5,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO; readers in a row enter together",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Mellor-Crummey and Scott, PPoPP 1991, section 3.1",
    };

    fn new_in() -> Self {
        RawMcsRw {
            tail: M::Ptr::new(null_mut()),
            next_writer: M::Ptr::new(null_mut()),
            readers: M::U32::new(0),
            written: M::U32::new(0),
        }
    }

    fn read(&self) -> Self::Read {
        let node = fresh_node(READING);
        // Acquire: (A) pairs with `is_last`; (G) the predecessor's node is initialised, and ours for the next.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            self.read_first(node);
        } else {
            self.read_behind(node, before);
            self.enter_read(node);
        }
        NonNull::from(node.0)
    }

    fn try_read(&self) -> Option<Self::Read> {
        let before = self.tail.load(Acquire); // (G)
        if !before.is_null() {
            // SAFETY: nodes are type-stable; this one may be another's by now, and then we mostly notice.
            let before = unsafe { Node::at(before) };
            if before.class().load(Relaxed) == WRITING || before.status().load(Relaxed) & BLOCKED != 0 {
                return None;
            }
        }
        let node = fresh_node(READING);
        // (A), (G) as above.
        if self.tail.compare_exchange(before, node.as_ptr(), AcqRel, Relaxed).is_err() {
            release(node);
            return None;
        }
        if before.is_null() {
            self.read_first(node);
        } else {
            self.read_behind(node, before);
            self.enter_read(node);
        }
        Some(NonNull::from(node.0))
    }

    unsafe fn unlock_read(&self, token: Self::Read) {
        // SAFETY: the token is the reader's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        let mut leave = 1;
        if !self.is_last(node) {
            let next = successor(node);
            if node.status().load(Acquire) & WRITER_BEHIND != 0 {
                self.next_writer.store(next.as_ptr(), Relaxed);
                leave = 1u32.wrapping_sub(NEXT);
            }
        }
        release(node);
        // (C) the section happens before the writer's. (F) Acquire pairs with the thread that set NEXT, release with the thread
        // that sets it next.
        let left = self.readers.fetch_sub(leave, AcqRel).wrapping_sub(leave);
        if left == NEXT {
            // SAFETY: the writer waits, so it and the lock are still there.
            let writer = unsafe { Node::at(self.next_writer.load(Relaxed)) };
            self.readers.store(0, Relaxed);
            unblock(writer);
        }
    }

    fn write(&self) -> Self::Write {
        let node = fresh_node(WRITING);
        // (A), (G) as in `read`.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            self.write_first(node);
        } else {
            // SAFETY: the predecessor stays until we have linked ourselves.
            let before = unsafe { Node::at(before) };
            before.status().fetch_or(WRITER_BEHIND, Relaxed);
            before.next().store(node.as_ptr(), Release); // (D)
            wait(node);
        }
        self.written.store(1, Relaxed);
        NonNull::from(node.0)
    }

    fn try_write(&self) -> Option<Self::Write> {
        if !self.tail.load(Relaxed).is_null() || self.readers.load(Relaxed) != 0 {
            return None;
        }
        let node = fresh_node(WRITING);
        // (A), (G) as in `read`.
        if self.tail.compare_exchange(null_mut(), node.as_ptr(), AcqRel, Relaxed).is_err() {
            release(node);
            return None;
        }
        // (C) No reader can add itself while we are in front.
        if self.readers.load(Acquire) & COUNT == 0 {
            self.written.store(1, Relaxed);
            return Some(NonNull::from(node.0));
        }
        self.give_up_first(node);
        release(node);
        None
    }

    unsafe fn unlock_write(&self, token: Self::Write) {
        // SAFETY: the token is the writer's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        self.written.store(0, Relaxed);
        if !self.is_last(node) {
            let next = successor(node);
            if next.class().load(Relaxed) == READING {
                self.readers.fetch_add(1, Relaxed);
            }
            unblock(next);
        }
        release(node);
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null() || self.readers.load(Relaxed) & COUNT != 0
    }

    fn is_write_locked(&self) -> bool {
        self.written.load(Relaxed) != 0
    }
}

// SAFETY: the functions are those of `RawRwLock`: the lock is FIFO.
unsafe impl<M: Machine> RawFair for RawMcsRw<M> {}
