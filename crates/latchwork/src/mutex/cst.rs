//! CST: NUMA-aware blocking lock with structures per socket, made on demand.
//!
//! Source: Kashyap, Min and Kim, "Scalable NUMA-aware Blocking Synchronization Primitives", USENIX ATC
//! 2017, section 4.
//!
//! As in lock cohorting, waiters of one NUMA node queue with each other, and the global lock stays with
//! the node for a number of handovers. Two things are different: what a node needs is allocated when its
//! first thread comes, so that a lock used from one node costs that of one node; and waiters sleep.
//! To wake one takes long, so the lock is handed to a waiter of the node that is still awake, if there
//! is one, before those that have gone to sleep.
//!
//! Lock: `sockets`, null until first used. A socket is a queue node: `resume` the tail of its queue; `next`
//! its node in the queue of the global lock, while it has that; `batch` how often it has passed that on.
//! Waiter's node: `status` as in [`mcs_park`](super::mcs_park); `resume` its socket, null for a holder that
//! has the global lock only (`try_lock`).
//! Size: 72 bytes, 64 per socket in use, until the lock is dropped; 64 per waiter, and 128 per holder, all
//! from the machine's node pool. Atomics per uncontended pair: 4 (two swaps, two compare-and-exchanges).
//! Fairness: within a NUMA node FIFO, but who is awake passes sleepers, 64 times at most; FIFO among nodes.
//!
//! Where it differs from the paper:
//! - Sleepers stay in the queue; the paper moves them to a list of their own, from which they return.
//! - In the kernel a waiter sees whether its processor has other work, and sleeps only then. Here it offers
//!   its processor to others, and sees by the clock whether one took it; it sleeps after 16 times, or after
//!   some 20 milliseconds. (By a fixed number of rounds, all waiters of 8 sockets of 24 fell asleep and every
//!   handover became a wakeup: in the simulator 600 acquisitions a millisecond with 192 threads instead of
//!   2998, where MCS has 1476; with 384 threads 215 instead of 362.)
//! - The local lock is released before the global one, as in [`stacked`](super::stacked).
//! - Sockets are never freed before the lock, and those beyond the eighth share.

use super::mcs_park::{RawMcsPark, await_grant, fresh_node, grant, is_parked};
use super::{ConstNew, Info, RawMutex};
use crate::machine::{Machine, Native, QNode, Word};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const SOCKETS: usize = 8;
/// How often the global lock is passed on within a socket.
const PASSES: u32 = 64;
/// How often a waiter's processor was wanted by another thread before it sleeps.
const ROUNDS: u32 = 16;
/// Sleepers that a search for somebody awake goes past.
const SEARCH: u32 = 16;

/// CST lock. See the [module documentation](self).
pub struct RawCst<M: Machine> {
    global: RawMcsPark<M, ROUNDS>,
    sockets: [M::Ptr<QNode<M>>; SOCKETS],
}

impl RawCst<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawCst { global: RawMcsPark::new(), sockets: [const { AtomicPtr::new(null_mut()) }; SOCKETS] }
    }
}

impl Default for RawCst<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawCst<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine> Drop for RawCst<M> {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let socket = socket.load(Relaxed);
            if !socket.is_null() {
                // SAFETY: taken in `socket`, and nobody uses the lock any more.
                unsafe { M::release_node(&*socket) };
            }
        }
    }
}

impl<M: Machine> RawCst<M> {
    /// The socket of the calling thread.
    fn socket(&self) -> &'static QNode<M> {
        let slot = &self.sockets[M::numa_node() as usize % SOCKETS];
        // (S) pairs with the exchange below.
        let mut socket = slot.load(Acquire);
        if socket.is_null() {
            let new = M::acquire_node();
            new.resume.store(null_mut(), Relaxed);
            new.batch.store(0, Relaxed);
            // (S) whoever finds the socket finds it initialised.
            socket = match slot.compare_exchange(null_mut(), new.as_ptr(), AcqRel, Acquire) {
                Ok(_) => new.as_ptr(),
                Err(other) => {
                    // SAFETY: taken above and never published.
                    unsafe { M::release_node(new) };
                    other
                }
            };
        }
        // SAFETY: it stays until the lock is dropped.
        unsafe { &*socket }
    }

    /// Whom to hand over to: `first`, or, if that sleeps, one behind it that does not, which then comes
    /// first.
    ///
    /// # Safety
    ///
    /// For the holder; `first` is first in the queue.
    unsafe fn first_awake(first: *mut QNode<M>) -> *mut QNode<M> {
        let mut before = first;
        // SAFETY: waiters behind the holder stay, and only the holder changes their links.
        unsafe {
            for _ in 0..SEARCH {
                if !is_parked(&*before) {
                    break;
                }
                let current = (*before).next.load(Acquire); // (D)
                if current.is_null() {
                    break;
                }
                if !is_parked(&*current) {
                    let after = (*current).next.load(Acquire); // (D)
                    if after.is_null() {
                        break; // the last: arrivals link themselves behind it
                    }
                    (*before).next.store(after, Relaxed);
                    (*current).next.store(first, Relaxed);
                    return current;
                }
                before = current;
            }
        }
        first
    }

    /// Releases the holder's place in the queue of its socket; if `pass`, with the global lock, to a waiter
    /// that there is.
    ///
    /// # Safety
    ///
    /// `node` is the holder's, in the queue of `socket`.
    unsafe fn release_local(socket: &QNode<M>, node: &QNode<M>, pass: bool) {
        let mut next = node.next.load(Acquire); // (D)
        if next.is_null() {
            // (A) what the holder leaves in the socket happens before whoever finds the queue empty.
            if !pass && socket.resume.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // Somebody has swapped the tail but not linked itself yet.
            next = M::spin_until(&node.next, Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        // SAFETY: we are the holder, and it is first behind us.
        unsafe { grant(if pass { Self::first_awake(next) } else { next }, 0) };
    }
}

// SAFETY: a holder has the global lock, itself or through its socket, of which only the head of the
// socket's queue makes use. (A), (B) what a holder leaves in its socket, and its section, happen before the
// next one's through the socket's queue, or through the global lock.
unsafe impl<M: Machine> RawMutex for RawCst<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "cst",
        summary: "NUMA-aware, per-socket structures on demand; waiters sleep",
        atomics: 4,
        waiter_bytes: 64,
        holder_bytes: 128,
        fairness: "per NUMA node FIFO among the awake, 64 in a row; FIFO among nodes",
        blocking: true,
        source: "Kashyap, Min and Kim 2017, section 4",
    };

    fn new_in() -> Self {
        RawCst { global: RawMcsPark::new_in(), sockets: core::array::from_fn(|_| M::Ptr::new(null_mut())) }
    }

    fn lock(&self) -> Self::Token {
        let socket = self.socket();
        let node = fresh_node::<M>();
        node.resume.store(socket.as_ptr(), Relaxed);
        // Acquire: (A) pairs with the exchange in `release_local`; release: (C) our successor finds our
        // node initialised.
        let before = socket.resume.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor stays until a holder has passed it, which needs `next`.
            // (D) pairs with the holders' loads of `next`.
            unsafe { (*before).next.store(node.as_ptr(), Release) };
            await_grant(node, ROUNDS); // (B)
        }
        if socket.batch.load(Relaxed) == 0 {
            socket.next.store(self.global.lock().as_ptr(), Relaxed);
        }
        NonNull::from(node)
    }

    fn try_lock(&self) -> Option<Self::Token> {
        let token = self.global.try_lock()?;
        // SAFETY: the token is our node.
        unsafe { token.as_ref() }.resume.store(null_mut(), Relaxed);
        Some(token)
    }

    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node.
        let node: &'static QNode<M> = unsafe { token.as_ref() };
        let socket = node.resume.load(Relaxed);
        if socket.is_null() {
            // SAFETY: from `try_lock`, where it came from the global lock.
            unsafe { self.global.unlock(token) };
            return;
        }
        // SAFETY: it stays until the lock is dropped; we hold the lock, so its fields are ours, and have a
        // global token; nobody knows our node when its place has been released.
        unsafe {
            let socket = &*socket;
            let passes = socket.batch.load(Relaxed);
            let waiters = !node.next.load(Relaxed).is_null() || socket.resume.load(Relaxed) != node.as_ptr();
            if waiters && passes < PASSES {
                socket.batch.store(passes + 1, Relaxed);
                Self::release_local(socket, node, true);
            } else {
                let global = NonNull::new_unchecked(socket.next.load(Relaxed));
                socket.batch.store(0, Relaxed);
                Self::release_local(socket, node, false);
                self.global.unlock(global);
            }
            M::release_node(node);
        }
    }

    fn is_locked(&self) -> bool {
        self.global.is_locked()
    }
}
