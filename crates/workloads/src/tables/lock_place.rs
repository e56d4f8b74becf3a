//! Where the lock lies that the updaters of a bucket take: in a word of its own ([`Beside`]), or in the head of the chain ([`InHead`]).
//!
//! Source of the second: the kernel's `hlist_bl` (`include/linux/list_bl.h`). The lowest bit of the head is the lock; nodes are aligned,
//! so the bit is free. An updater fetches one cache line in place of two, and publishes a new head with the store that unlocks.
//! Readers clear the bit. Only readers in sections can use it: for a reader that protects a reference, a bit that comes and goes is a
//! link that has changed.
//!
//! | the head | becomes | moved by |
//! |---|---|---|
//! | a node | the node with the bit | an updater's exchange: acquire, pairs with (L) |
//! | a node with the bit | this node or another, without the bit | (L) the store by which the holder unlocks: release |
//!
//! (A) A reader that loads a head with the bit sees the fields of the node: the exchange continues the release sequence of the store
//! that published the node.
//!
//! Size: `InHead` nothing, `Beside` 4 bytes for each bucket. Atomics: 1 for each update.
//! Fairness: none, as of a test-and-test-and-set lock.

use super::node::{Node, is_marked, marked, unmarked};
use crate::lock::{Exclusive, Lock};
use latchwork::locks::mutex::ttas::RawTtas;
use latchwork::machine::{Machine, Word};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The lock of a bucket.
///
/// # Safety
///
/// No two threads are in `with` for the same head at a time.
pub unsafe trait BucketLock<M: Machine>: Send + Sync + 'static {
    /// An unlocked lock.
    fn new() -> Self;
    /// The first node of a chain, from what was loaded from its head.
    fn first(head: *mut Node<M>) -> *mut Node<M>;
    /// Runs `section` while the calling thread holds the lock of the chain.
    fn with<T>(&self, head: &M::Ptr<Node<M>>, section: impl FnOnce(&mut Chain<'_, M>) -> T) -> T;
}

/// A chain whose lock the calling thread holds.
pub struct Chain<'a, M: Machine> {
    /// The link to the first node, which may carry the bit of the lock.
    pub head: &'a M::Ptr<Node<M>>,
    /// The first node.
    pub first: *mut Node<M>,
    /// Whether the store of the head is left to the thread that unlocks.
    later: bool,
}

impl<M: Machine> Chain<'_, M> {
    /// Changes a link of the chain. Readers that follow the link see what this thread has stored before.
    #[inline(always)]
    pub fn set(&mut self, link: &M::Ptr<Node<M>>, node: *mut Node<M>) {
        if self.later && std::ptr::eq(link, self.head) {
            // (L) and (A): published when the chain is unlocked.
            self.first = node;
        } else {
            // (A) pairs with the loads of readers.
            link.store(node, Release);
        }
    }
}

/// A lock in a word of its own.
pub struct Beside<M: Machine>(Exclusive<RawTtas<M>>);

// SAFETY: the holder of a mutex excludes all others.
unsafe impl<M: Machine> BucketLock<M> for Beside<M> {
    fn new() -> Self {
        Beside(Exclusive::new())
    }
    #[inline(always)]
    fn first(head: *mut Node<M>) -> *mut Node<M> {
        head
    }
    #[inline(always)]
    fn with<T>(&self, head: &M::Ptr<Node<M>>, section: impl FnOnce(&mut Chain<'_, M>) -> T) -> T {
        let _held = self.0.write();
        section(&mut Chain { head, first: head.load(Relaxed), later: false })
    }
}

/// A lock in the lowest bit of the head.
pub struct InHead;

// SAFETY: one exchange alone can set the bit, and only the thread whose exchange did so clears it.
unsafe impl<M: Machine> BucketLock<M> for InHead {
    fn new() -> Self {
        InHead
    }
    #[inline(always)]
    fn first(head: *mut Node<M>) -> *mut Node<M> {
        unmarked(head)
    }
    #[inline(always)]
    fn with<T>(&self, head: &M::Ptr<Node<M>>, section: impl FnOnce(&mut Chain<'_, M>) -> T) -> T {
        /// Unlocks, also if the section panics.
        struct Held<'a, M: Machine>(Chain<'a, M>);
        impl<M: Machine> Drop for Held<'_, M> {
            #[inline(always)]
            fn drop(&mut self) {
                // (L) The section happens before the next exchange; (A) a reader sees the fields of the first node.
                self.0.head.store(self.0.first, Release);
            }
        }
        let mut looks = 0;
        let first = loop {
            let first = head.load(Relaxed);
            // (L) pairs with the store in `drop`.
            if !is_marked(first) && head.compare_exchange(first, marked(first), Acquire, Relaxed).is_ok() {
                break first;
            }
            wait::<M>(looks);
            looks += 1;
        };
        section(&mut Held(Chain { head, first, later: true }).0)
    }
}

/// Waits between two looks at a chain that an updater is changing: twice as long each time, and after some looks the
/// processor is offered to other threads, because the updater may have been preempted.
#[cold]
pub fn wait<M: Machine>(looks: u32) {
    /// Spin hints after the first look.
    const FIRST: u32 = 4;
    /// Looks after which the pause does not grow any more (512 spin hints, 5 to 20 microseconds).
    const GROWS: u32 = 7;
    /// Looks after which the thread also yields.
    const YIELDS: u32 = 11;
    M::pause(FIRST << looks.min(GROWS));
    if looks >= YIELDS {
        M::yield_now();
    }
}
