//! CST: NUMA-aware blocking lock with structures per socket, made on demand.
//!
//! Source: Kashyap, Min and Kim, "Scalable NUMA-aware Blocking Synchronization Primitives", USENIX ATC 2017, section 4.
//!
//! As in lock cohorting, waiters of one NUMA node queue with each other, and the global lock stays with the node for a number
//! of handovers. Two things are different. What a node needs (its *socket*) is allocated when its first thread comes, so a
//! lock that is used from one node costs that of one node. And waiters park: unparking one takes long, so a holder hands the
//! lock to a waiter of the node that still spins, if there is one, before those that have parked.
//!
//! | word | changed by | pairs with |
//! |---|---|---|
//! | `sockets[n]` null | the first thread of the NUMA node, to its socket | (S) release; the acquire of the node's threads |
//! | a socket's `tail` | an arriving waiter's swap; the holder, if no waiter is behind it | (A), (C) |
//! | a socket's `passes`, `roused`, `global`, `last` | the holder | (A), (B) |
//! | a waiter's `next` | the waiter behind it, after its swap; the holder | (D) release; holders' acquire |
//! | a waiter's `status` | as in [`mcs_park`] | (B) |
//!
//! Size: 72 bytes, 128 per socket in use, until the lock is dropped; 64 per waiter and 128 per holder, all from the machine's
//! node pool.
//! Atomics per uncontended pair: 4 (two swaps, two compare-and-exchanges).
//! Fairness: within a NUMA node, FIFO among the waiters that spin. Of the parked waiters, in the order in which they were set
//! aside, one gets the lock each time that the node has it. FIFO among nodes.
//! Suspension: blocks. The lock may be handed to a suspended waiter.
//! Real-time threads: under `SCHED_FIFO` no thread of a lower priority takes the processor that a waiter offers. So a
//! waiter spins through all `IDLE_ROUNDS` of [`mcs_park`] before it parks: 20 to 60 milliseconds, for each of the two locks.
//!
//! Where it differs from the paper:
//! - The holder sets parked waiters aside when it finds them in front of a waiter that spins; in the paper they leave the
//!   queue themselves when they park. The holder unparks one of them in the middle of each turn that the node has with the
//!   global lock, and that waiter then spins when its own turn comes. (While parked waiters stayed in the queue, to be gone
//!   past at each handover, the simulator had 252 acquisitions a millisecond with 384 threads on 8 sockets of 24, where MCS
//!   has 368; now 990. With 96 threads on 2 sockets of 12 it had 68, now 884. With a processor for each thread it is 6% less
//!   than before: 1180 with 192 threads, where MCS has 843. A waiter that parks then parks for milliseconds, until its turn
//!   comes: half of the threads have 0.8 of the acquisitions over 40 ms.)
//! - In the kernel a waiter sees whether its processor has other work, and parks only then. Here it offers its processor to
//!   other threads, and sees by the clock whether one took it. It parks after two times, or after some 20 milliseconds.
//! - The local lock is released before the global one, as in [`stacked`](super::stacked).
//! - Sockets are never freed before the lock, and NUMA nodes beyond the eighth share them.

use super::mcs_park::{self, RawMcsPark, WAITING, await_grant, is_parked, rouse};
use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const SOCKETS: usize = 8;
/// How often the global lock is passed on within a socket, at most.
const PASSES: u32 = 64;
/// How often another thread must have wanted a waiter's processor before the waiter parks.
const ROUNDS: u32 = 2;
/// Parked waiters that one search for a spinning waiter sets aside, at most. Not tuned.
const SEARCH: u32 = 16;
/// Handovers within a socket before the waiter that was set aside first is unparked, to spin when its turn comes.
const ROUSE: u32 = PASSES / 2;
/// Waiters that get the lock before it: as many as do while a thread is being unparked.
const BEFORE: u32 = 16;

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

const_new!(RawCst<Native>);

node_view! {
    /// A queue node of a thread.
    struct Waiter {
        /// The waiter behind this one, once that has linked itself.
        next: links[0],
        /// As in [`mcs_park`]; the owner spins and parks here.
        status: words[0],
        /// The socket that the owner queues at; null for a holder that has the global lock only (`try_lock`).
        socket: links[1],
    }
}

node_view! {
    /// What the threads of one NUMA node share: this node, and the one that `sleepers` names.
    struct Socket {
        /// The last in the queue of the socket.
        tail: links[1],
        /// How often the socket has passed the global lock on.
        passes: words[1],
        /// Whether a parked waiter was unparked for a turn to come, or there was none: 0 or 1.
        roused: words[2],
        /// The second node; see [`Sleepers`].
        sleepers: links[0],
    }
}

node_view! {
    /// The second node of a socket.
    struct Sleepers {
        /// The token of the global lock, while the socket has that.
        global: links[0],
        /// The last of the parked waiters that were set aside, whose `next` is the first; null: none.
        last: links[1],
    }
}

fn fresh_node<M: Machine>() -> Waiter<'static, M> {
    let node = Waiter(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(WAITING, Relaxed);
    node
}

/// Hands the lock of a socket over.
///
/// # Safety
///
/// `next` waits for that lock, which the caller holds and gives up with this call.
unsafe fn grant<M: Machine>(next: *mut QNode<M>) {
    // SAFETY: a waiter's node stays at least until it has been granted the lock.
    unsafe { mcs_park::grant::<M>(Waiter::at(next).status()) };
}

impl<M: Machine> Drop for RawCst<M> {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let socket = socket.load(Relaxed);
            if !socket.is_null() {
                // SAFETY: taken from the pool in `socket`, and no thread uses the lock any more.
                unsafe {
                    let socket = Socket::at(socket);
                    M::release_node(Self::sleepers(socket).0);
                    M::release_node(socket.0);
                }
            }
        }
    }
}

impl<M: Machine> RawCst<M> {
    /// The socket of the calling thread.
    fn socket(&self) -> Socket<'static, M> {
        let slot = &self.sockets[M::numa_node() as usize % SOCKETS];
        // (S) pairs with the exchange below.
        let mut socket = slot.load(Acquire);
        if socket.is_null() {
            let (new, sleepers) = (Socket(M::acquire_node()), Sleepers(M::acquire_node()));
            new.tail().store(null_mut(), Relaxed);
            new.passes().store(0, Relaxed);
            new.sleepers().store(sleepers.as_ptr(), Relaxed);
            new.roused().store(0, Relaxed);
            sleepers.last().store(null_mut(), Relaxed);
            // (S) a thread that finds the socket finds it initialised.
            socket = match slot.compare_exchange(null_mut(), new.as_ptr(), AcqRel, Acquire) {
                Ok(_) => new.as_ptr(),
                Err(other) => {
                    // SAFETY: taken from the pool above, and no other thread has seen them.
                    unsafe {
                        M::release_node(sleepers.0);
                        M::release_node(new.0);
                    }
                    other
                }
            };
        }
        // SAFETY: a socket stays until the lock is dropped.
        unsafe { Socket::at(socket) }
    }

    /// The second node of a socket.
    fn sleepers(socket: Socket<'_, M>) -> Sleepers<'static, M> {
        // SAFETY: the second node stays as long as the socket, which stays until the lock is dropped.
        unsafe { Sleepers::at(socket.sleepers().load(Relaxed)) }
    }

    /// Adds a parked waiter to those set aside.
    ///
    /// # Safety
    ///
    /// The caller is the holder. `sleeper` waits, and is not in the queue any more.
    unsafe fn set_aside(sleepers: Sleepers<'_, M>, sleeper: *mut QNode<M>) {
        let last = sleepers.last().load(Relaxed);
        // SAFETY: waiters keep their nodes until they are granted the lock, which the caller holds.
        unsafe {
            if last.is_null() {
                Waiter::at(sleeper).next().store(sleeper, Relaxed);
            } else {
                Waiter::at(sleeper).next().store(Waiter::at(last).next().load(Relaxed), Relaxed);
                Waiter::at(last).next().store(sleeper, Relaxed);
            }
        }
        sleepers.last().store(sleeper, Relaxed);
    }

    /// Takes the waiter that was set aside first, if there is one, and puts it in front of `next`.
    ///
    /// # Safety
    ///
    /// The caller is the holder.
    unsafe fn in_front_of(sleepers: Sleepers<'_, M>, next: *mut QNode<M>) -> Option<*mut QNode<M>> {
        let last = sleepers.last().load(Relaxed);
        if last.is_null() {
            return None;
        }
        // SAFETY: waiters keep their nodes until they are granted the lock, which the caller holds.
        unsafe {
            let first = Waiter::at(last).next().load(Relaxed);
            if first == last {
                sleepers.last().store(null_mut(), Relaxed);
            } else {
                Waiter::at(last).next().store(Waiter::at(first).next().load(Relaxed), Relaxed);
            }
            // (C) if it becomes the tail, the link of an arriving waiter does not overtake this store.
            Waiter::at(first).next().store(next, Relaxed);
            Some(first)
        }
    }

    /// The first waiter behind the holder `node` that spins. Parked waiters in front of it are set aside.
    ///
    /// # Safety
    ///
    /// `node` is the holder's, in the queue of `socket`.
    unsafe fn first_awake(socket: Socket<'_, M>, node: Waiter<'_, M>) -> Option<*mut QNode<M>> {
        let mut next = node.next().load(Acquire); // (D)
        if next.is_null() {
            if socket.tail().load(Relaxed) == node.as_ptr() {
                return None;
            }
            // A waiter has swapped the tail but has not linked itself yet.
            next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        // SAFETY: waiters behind the holder keep their nodes, and only the holder changes their links.
        unsafe {
            for _ in 0..SEARCH {
                if !is_parked::<M>(Waiter::at(next).status()) {
                    return Some(next);
                }
                let after = Waiter::at(next).next().load(Acquire); // (D)
                if after.is_null() {
                    break; // the last: an arriving waiter links itself behind it
                }
                Self::set_aside(Self::sleepers(socket), next);
                node.next().store(after, Relaxed);
                next = after;
            }
        }
        None
    }

    /// Releases the holder's place in the queue of its socket, without the global lock. If no waiter was unparked for that
    /// turn (`roused`), the place goes to the waiter that was set aside first.
    ///
    /// # Safety
    ///
    /// `node` is the holder's, in the queue of `socket`.
    unsafe fn release_local(socket: Socket<'_, M>, node: Waiter<'_, M>, roused: bool) {
        let sleepers = Self::sleepers(socket);
        let mut next = node.next().load(Acquire); // (D)
        // SAFETY: the caller is the holder; the thread that is granted the lock waits, and is then first in the queue.
        unsafe {
            if next.is_null() {
                let sleeper = Self::in_front_of(sleepers, null_mut());
                // (A) what the holder leaves in the socket happens before the thread that finds the queue empty.
                let tail = sleeper.unwrap_or(null_mut());
                if socket.tail().compare_exchange(node.as_ptr(), tail, Release, Relaxed).is_err() {
                    next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
                    if let Some(sleeper) = sleeper {
                        Waiter::at(sleeper).next().store(next, Relaxed);
                    }
                }
                next = sleeper.unwrap_or(next);
                if next.is_null() {
                    return;
                }
            } else if !roused || is_parked::<M>(Waiter::at(next).status()) {
                next = Self::in_front_of(sleepers, next).unwrap_or(next);
            }
            grant(next);
        }
    }

    /// Unparks the waiter that was set aside first, if there is one, and gives it a place in the queue where it will spin
    /// when its turn comes. `false`: there is no such place, because `next` is the last.
    ///
    /// # Safety
    ///
    /// The caller is the holder, and `next` is first in the queue behind it.
    unsafe fn rouse_one(sleepers: Sleepers<'_, M>, next: *mut QNode<M>) -> bool {
        let mut before = next;
        // SAFETY: waiters behind the holder keep their nodes, and only the holder changes their links.
        unsafe {
            let mut behind = Waiter::at(before).next().load(Acquire); // (D)
            if behind.is_null() {
                return false;
            }
            for _ in 1..BEFORE {
                let after = Waiter::at(behind).next().load(Acquire); // (D)
                if after.is_null() {
                    break; // an arriving waiter links itself behind it
                }
                (before, behind) = (behind, after);
            }
            if let Some(sleeper) = Self::in_front_of(sleepers, behind) {
                Waiter::at(before).next().store(sleeper, Relaxed);
                rouse::<M>(Waiter::at(sleeper).status());
            }
        }
        true
    }
}

// SAFETY: a holder has the global lock, itself or through its socket, and of a socket only the head of its queue makes use.
// (A), (B) what a holder leaves in its socket, and its section, happen before the next holder's, through the socket's queue
// or through the global lock.
unsafe impl<M: Machine> RawMutex for RawCst<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "cst",
        summary: "NUMA-aware, per-socket structures on demand; waiters sleep",
        atomics: 4,
        waiter_bytes: 64,
        holder_bytes: 128,
        fairness: "per NUMA node FIFO among spinning waiters, 64 in a row, then a sleeper; FIFO among nodes",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Kashyap, Min and Kim 2017, section 4",
    };

    fn new_in() -> Self {
        RawCst { global: RawMcsPark::new_in(), sockets: core::array::from_fn(|_| M::Ptr::new(null_mut())) }
    }

    fn lock(&self) -> Self::Token {
        let socket = self.socket();
        let node = fresh_node::<M>();
        node.socket().store(socket.as_ptr(), Relaxed);
        // Acquire: (A) pairs with the exchange in `release_local`. Release: (C) the successor finds this node initialised.
        let before = socket.tail().swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until a holder has gone past it, and for that the holder waits for `next`.
            // (D) pairs with the holders' loads of `next`.
            unsafe { Waiter::at(before).next().store(node.as_ptr(), Release) };
            await_grant::<M>(node.status(), ROUNDS); // (B)
        }
        if socket.passes().load(Relaxed) == 0 {
            Self::sleepers(socket).global().store(self.global.lock().as_ptr(), Relaxed);
        }
        NonNull::from(node.0)
    }

    fn try_lock(&self) -> Option<Self::Token> {
        let token = self.global.try_lock()?;
        // SAFETY: the token is the caller's node.
        unsafe { Waiter::at(token.as_ptr()) }.socket().store(null_mut(), Relaxed);
        Some(token)
    }

    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Waiter::at(token.as_ptr()) };
        let socket = node.socket().load(Relaxed);
        if socket.is_null() {
            // SAFETY: without a socket the token is from `try_lock`, which got it from the global lock.
            unsafe { self.global.unlock(token) };
            return;
        }
        // SAFETY: a socket stays until the lock is dropped. The caller holds the lock, so the socket's fields are its own,
        // and hold a global token. No other thread can reach the node once its place has been released.
        unsafe {
            let socket = Socket::at(socket);
            let sleepers = Self::sleepers(socket);
            let passes = socket.passes().load(Relaxed);
            let next = if passes < PASSES { Self::first_awake(socket, node) } else { None };
            if let Some(next) = next {
                socket.passes().store(passes + 1, Relaxed);
                if passes >= M::patience(ROUSE)
                    && socket.roused().load(Relaxed) == 0
                    && Self::rouse_one(sleepers, next)
                {
                    socket.roused().store(1, Relaxed);
                }
                grant(next);
            } else {
                let global = NonNull::new_unchecked(sleepers.global().load(Relaxed));
                let roused = socket.roused().load(Relaxed) != 0;
                socket.roused().store(0, Relaxed);
                socket.passes().store(0, Relaxed);
                Self::release_local(socket, node, roused);
                self.global.unlock(global);
            }
            M::release_node(node.0);
        }
    }

    fn is_locked(&self) -> bool {
        self.global.is_locked()
    }
}
