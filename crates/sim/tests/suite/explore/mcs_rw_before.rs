//! `mcs-rw` as it once was: an attempt to write that loses to readers leaves like a writer, and so lets the writer
//! behind it in beside them. See the library's `rwlock::mcs_rw` for the algorithm.

use latchwork::locks::mutex::Suspension;
use latchwork::locks::rwlock::{Info, RawRwLock};
use latchwork::machine::{Arith, Machine, QNode, Word, node_view};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::*;

const BLOCKED: u32 = 1;
const READER_BEHIND: u32 = 2;
const WRITER_BEHIND: u32 = 4;

const READING: u32 = 0;
const WRITING: u32 = 1;

const NEXT: u32 = 1 << 31;
const COUNT: u32 = NEXT - 1;

/// The lock.
pub struct LosesCount<M: Machine> {
    tail: M::Ptr<QNode<M>>,
    next_writer: M::Ptr<QNode<M>>,
    readers: M::U32,
    /// Whether a writer is inside; only to be looked at.
    written: M::U32,
}

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

impl<M: Machine> LosesCount<M> {
    /// Goes on behind `before`, which our exchange has found in `tail`.
    fn read_behind(&self, node: Node<'static, M>, before: *mut QNode<M>) {
        // SAFETY: the predecessor stays until we have linked ourselves.
        let before = unsafe { Node::at(before) };
        // If it is a reader that waits, it is to let us in: (E) pairs with the load in `enter_read`.
        let waits = before.class().load(Relaxed) == WRITING
            || before.status().compare_exchange(BLOCKED, BLOCKED | READER_BEHIND, AcqRel, Acquire).is_ok();
        if waits {
            before.next().store(node.as_ptr(), Release); // (D)
            wait(node); // counted by who lets us in
        } else {
            // (B) if it fails: the reader in front is inside, and so after the last writer.
            self.readers.fetch_add(1, Relaxed);
            before.next().store(node.as_ptr(), Release); // (D)
            node.status().fetch_and(!BLOCKED, Release); // (B)
        }
    }

    /// A reader that is inside lets in the one behind it, if that was there before.
    fn enter_read(&self, node: Node<'static, M>) {
        // (E) as above: who comes later finds us inside.
        if node.status().load(Acquire) & READER_BEHIND != 0 {
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
            // (A) the section happens before whoever finds the queue empty.
            && self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok()
    }

    /// A writer at the front waits until the readers are gone.
    fn write_first(&self, node: Node<'static, M>) {
        self.next_writer.store(node.as_ptr(), Relaxed);
        // (F) release: the last reader finds `next_writer`. (C) acquire: if there is none, pairs with their
        // subtractions.
        if self.readers.fetch_or(NEXT, AcqRel) & COUNT == 0 {
            // Nobody adds to the count while we are in front.
            self.readers.store(0, Relaxed);
        } else {
            wait(node);
        }
    }
}

/// Gives the node back.
fn release<M: Machine>(node: Node<'static, M>) {
    // SAFETY: it has left the queue, and its successor, if any, has linked itself.
    unsafe { M::release_node(node.0) };
}

// SAFETY: not sound; nothing but a shadow state relies on it. The queue orders everybody. A writer is let in by the writer in front of it, or when the readers
// in front have gone (C); nobody behind it enters before it leaves. A reader is let in by the writer or the
// reader in front, (B).
unsafe impl<M: Machine> RawRwLock for LosesCount<M> {
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
        suspension: Suspension::Blocks,
        blocking: false,
        source: "Mellor-Crummey and Scott, PPoPP 1991, section 3.1",
    };

    fn new_in() -> Self {
        LosesCount {
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
        // (C) the section happens before the writer's. (F) release for, and acquire from, who set NEXT.
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
        let token = NonNull::from(node.0);
        // (C) No reader can add itself while we are in front.
        if self.readers.load(Acquire) & COUNT == 0 {
            self.written.store(1, Relaxed);
            return Some(token);
        }
        // SAFETY: in front, as a writer is; there is no section to end.
        unsafe { self.unlock_write(token) };
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
