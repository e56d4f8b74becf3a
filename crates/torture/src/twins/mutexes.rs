//! Mutexes with one mistake in each.

use super::INFO;
use crate::jitter::Jitter;
use latchwork::locks::mutex::{Info, RawMutex, ticket::RawTicket};
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::{Arith, Deadline, Machine, Native, QNode, Word, node_view};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::*};

type M = Jitter;
type U32 = <M as Machine>::U32;

/// Sees that the lock is free, and takes it a moment later.
pub struct ChecksThenActs(U32);

// SAFETY: none, like all here: it is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawMutex for ChecksThenActs {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        ChecksThenActs(U32::new(0))
    }
    fn lock(&self) {
        while self.try_lock().is_none() {
            M::yield_now();
        }
    }
    fn try_lock(&self) -> Option<()> {
        if self.0.load(Acquire) != 0 {
            return None;
        }
        self.0.store(1, Relaxed);
        Some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.0.store(0, Release);
    }
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// Waiters sleep, and no thread wakes them. On the native machine.
pub struct ForgetsToWake(AtomicU32);

// SAFETY: none: exclusion holds, and progress is broken on purpose.
unsafe impl RawMutex for ForgetsToWake {
    type Machine = Native;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        ForgetsToWake(AtomicU32::new(0))
    }
    fn lock(&self) {
        while self.0.swap(1, Acquire) != 0 {
            Native::wait(&self.0, 1, None);
        }
    }
    fn try_lock(&self) -> Option<()> {
        (self.0.swap(1, Acquire) == 0).then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.0.store(0, Release);
    }
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// Hands the lock on before the section is over.
pub struct UnlocksEarly {
    lock: RawTicket<M>,
    /// It knows what it should be.
    inside: U32,
}

// SAFETY: none: the lock is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawMutex for UnlocksEarly {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        UnlocksEarly { lock: RawTicket::new_in(), inside: U32::new(0) }
    }
    fn lock(&self) {
        self.lock.lock();
        // SAFETY: acquired just now.
        unsafe { self.lock.unlock(()) };
        self.inside.fetch_add(1, Relaxed);
    }
    fn try_lock(&self) -> Option<()> {
        self.lock.try_lock()?;
        // SAFETY: acquired just now.
        unsafe { self.lock.unlock(()) };
        self.inside.fetch_add(1, Relaxed);
        Some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.inside.fetch_sub(1, Relaxed);
    }
    fn is_locked(&self) -> bool {
        self.inside.load(Relaxed) != 0
    }
}

/// Reports a deadline that has passed as success.
pub struct GivesInAtTheDeadline(RawTicket<M>);

// SAFETY: none: the lock is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawMutex for GivesInAtTheDeadline {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        GivesInAtTheDeadline(RawTicket::new_in())
    }
    fn lock(&self) {
        self.0.lock();
    }
    fn try_lock(&self) -> Option<()> {
        self.0.try_lock()
    }
    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        while self.0.try_lock().is_none() && !deadline.passed::<M>() {
            M::yield_now();
        }
        Some(())
    }
    unsafe fn unlock(&self, (): ()) {
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock(()) };
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// Counts its releases in the lock, which by then may be gone.
pub struct TouchesLate {
    word: U32,
    releases: U32,
}

// SAFETY: none: the lock is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawMutex for TouchesLate {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        TouchesLate { word: U32::new(0), releases: U32::new(0) }
    }
    fn lock(&self) {
        while self.try_lock().is_none() {
            M::yield_now();
        }
    }
    fn try_lock(&self) -> Option<()> {
        (self.word.load(Relaxed) == 0 && self.word.swap(1, Acquire) == 0).then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.word.store(0, Release);
        self.releases.fetch_add(1, Relaxed);
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != 0
    }
}

/// An MCS lock with deadlines: a waiter that gives up leaves its node in the queue, and its predecessor
/// hands the lock to it.
pub struct LeavesItsNode {
    tail: <M as Machine>::Ptr<QNode<M>>,
}

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

node_view! {
    /// A queue node.
    struct Node {
        /// The successor, once it has linked itself.
        next: links[0],
        /// WAITING or GRANTED.
        status: words[0],
    }
}

impl LeavesItsNode {
    fn queue(&self, deadline: Option<Deadline>) -> Option<NonNull<QNode<M>>> {
        let node = Node(M::acquire_node());
        node.next().store(null_mut(), Relaxed);
        node.status().store(WAITING, Relaxed);
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: nodes are never unmapped.
            unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
            while M::spin_for(node.status(), Acquire, 64, |status| status == GRANTED).is_none() {
                if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                    return None; // not given back, lest it damage the pool that all locks share
                }
                M::yield_now();
            }
        }
        Some(NonNull::from(node.0))
    }
}

// SAFETY: none: the lock is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawMutex for LeavesItsNode {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = INFO;

    fn new_in() -> Self {
        LeavesItsNode { tail: Word::new(null_mut()) }
    }
    fn lock(&self) -> Self::Token {
        self.queue(None).expect("without a deadline it waits")
    }
    fn try_lock(&self) -> Option<Self::Token> {
        self.tail.load(Relaxed).is_null().then(|| self.lock())
    }
    fn lock_until(&self, deadline: Deadline) -> Option<Self::Token> {
        self.queue(Some(deadline))
    }
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the holder's node, which is never unmapped.
        let node = unsafe { Node::at(token.as_ptr()) };
        let mut next = node.next().load(Acquire);
        if next.is_null() {
            if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
                // SAFETY: no other thread has the node.
                unsafe { M::release_node(node.0) };
                return;
            }
            next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        // SAFETY: nodes are never unmapped.
        unsafe { Node::at(next).status().store(GRANTED, Release) };
        // SAFETY: the successor has linked itself.
        unsafe { M::release_node(node.0) };
    }
    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

/// A semaphore with one unit, of which a waiter that gives up makes another.
pub struct GivesBackTooMuch(RawSemaphore<M>);

// SAFETY: none: the lock is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawMutex for GivesBackTooMuch {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        GivesBackTooMuch(RawSemaphore::new_in(1))
    }
    fn lock(&self) {
        self.0.acquire();
    }
    fn try_lock(&self) -> Option<()> {
        self.0.try_acquire().then_some(())
    }
    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        let got = self.0.acquire_until(deadline);
        if !got {
            let _ = self.0.release();
        }
        got.then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        let _ = self.0.release();
    }
    fn is_locked(&self) -> bool {
        self.0.value() == 0
    }
}

/// An MCS lock whose waiters sleep. The holder waits awake until a waiter that has enqueued has also linked itself.
pub struct AwaitsTheLinkAwake {
    tail: <M as Machine>::Ptr<QNode<M>>,
}

// SAFETY: none: exclusion holds, and progress under real-time priorities is broken on purpose.
unsafe impl RawMutex for AwaitsTheLinkAwake {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = INFO;

    fn new_in() -> Self {
        AwaitsTheLinkAwake { tail: Word::new(null_mut()) }
    }
    fn lock(&self) -> Self::Token {
        let node = Node(M::acquire_node());
        node.next().store(null_mut(), Relaxed);
        node.status().store(WAITING, Relaxed);
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: nodes are never unmapped.
            unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
            while node.status().load(Acquire) == WAITING {
                M::wait(node.status(), WAITING, None);
            }
        }
        NonNull::from(node.0)
    }
    fn try_lock(&self) -> Option<Self::Token> {
        self.tail.load(Relaxed).is_null().then(|| self.lock())
    }
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the holder's node, which is never unmapped.
        let node = unsafe { Node::at(token.as_ptr()) };
        if node.next().load(Acquire).is_null()
            && self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok()
        {
            // SAFETY: no other thread has the node.
            return unsafe { M::release_node(node.0) };
        }
        let next = loop {
            let next = node.next().load(Acquire);
            if !next.is_null() {
                break next;
            }
            M::yield_now(); // the mistake: a waiter of a lower priority does not run then
        };
        // SAFETY: nodes are never unmapped, and the waiter has linked itself.
        unsafe {
            let status = Node::at(next).status();
            status.store(GRANTED, Release);
            M::wake(status, 1);
            M::release_node(node.0);
        }
    }
    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}
