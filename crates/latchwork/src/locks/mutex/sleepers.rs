//! The queue of the blocking ShflLocks, [`shfl`](super::shfl) and [`shfl_rw`](crate::locks::rwlock::shfl_rw).
//!
//! Waiters spin briefly and then park. The *head* of the queue competes for the lock, in each lock's own way, and orders the
//! queue behind itself ([`shuffle`](super::shuffle)). It leaves the queue when it has the lock or gives up; the next waiter
//! becomes the head. Any other waiter may leave too, and abandons its node.
//!
//! | status | meaning | next status, and the thread that sets it |
//! |---|---|---|
//! | WAITING | spins | NODE_PARKED or ABANDONED, the owner; READY, the old head |
//! | NODE_PARKED | parks | INVITED, the head, which unparks it; READY, the old head, which unparks it or moves it to the lock's word; ABANDONED, the owner |
//! | INVITED | may enter beside the head (a reader) | WAITING or ABANDONED, the owner; READY, the old head |
//! | READY | is the head | ABANDONED, the owner, if it already has the lock; it leaves the queue as the head |
//! | ABANDONED | the owner has left, with the lock or after a timeout | READY, the old head; or a walk takes it out. They release the node, or (L) the next arrival does |
//!
//! | ordering | what is known, and to which thread |
//! |---|---|
//! | (C) `tail` | an arrival's node is initialised, to the next arrival; what the last head did, to the next first head |
//! | (Q) `next` | the waiter's node, to the waiters in front |
//! | (R) READY | the queue as the old head left it, to the new head |
//! | (D) ABANDONED | the owner is done with the node, to the head that releases it |
//! | (L) `left` | the owner is done with the node, to the waiter behind it, which has it now and is the head |
//!
//! # Suspended waiters
//!
//! A waiter may stop running at any instruction, for ever (in a debugger, a signal handler or a frozen control group). The other
//! waiters must get the lock nevertheless:
//!
//! - A suspended head keeps a free lock for [`PROMISE_BOUND`]. A thread that finds it free then passes, and sets LAPSED until the
//!   head runs again. A parked waiter looks after 10 ms, 20 ms and so on, up to 0.33 s. Behind such a head it takes the lock
//!   if it is free just then, and abandons its node. Nodes therefore come from the machine's type-stable pool.
//! - A waiter may be suspended before it has linked itself. The leaving head writes [`left`] in place of the link, and leaves its
//!   node to that waiter, which is the head when it runs again.

use super::policies::NoPolicy;
use super::shuffle::{Policy, Waiter, shuffle};
use super::turn::{ASLEEP, PROMISE_BOUND, Turn, age};
use crate::locks::bits::Bits;
use crate::machine::{Arith, Deadline, MICRO, Machine, QNode, Wait, Word, or_abort};
use core::{mem::replace, ptr::null_mut, sync::atomic::Ordering::*};

const WAITING: u32 = 0;
pub(crate) const READY: u32 = 1;
pub(crate) const NODE_PARKED: u32 = 2;
const ABANDONED: u32 = 3;
pub(crate) const INVITED: u32 = 4;

/// Waiters of a group in a row. Newcomers that steal keep the lock in one place too: in the simulator, 1024 is no faster.
const IN_A_ROW: u32 = 16;

/// Microseconds (of 1024 ns) after which a waiter that an unlock unparks wakes up by itself at least: the longest period of Linux's
/// timer tick. For a sleep that may end before the next tick, the processor's timer is set anew twice. On a virtual machine that takes
/// 1.5 to 2 us, as much as the wakeup (`docs/mutexes.md`).
pub(crate) const SHORTEST_SLEEP: u32 = PROMISE_BOUND;
/// Microseconds (of 1024 ns) after which a parked waiter wakes up by itself at most: a thousand of them take 4% of a processor.
const LONGEST_SLEEP: u32 = 32 * PROMISE_BOUND;

/// In a node's `next`: the owner has left, and the node belongs to the waiter that is about to link itself.
fn left<M: Machine>() -> *mut QNode<M> {
    core::ptr::without_provenance_mut(1)
}

/// So many microseconds (of 1024 ns), in nanoseconds.
fn nanos(micros: u32) -> u64 {
    u64::from(micros) << MICRO
}

/// The earlier of the two deadlines.
fn earlier<M: Machine>(one: Option<Deadline>, other: Option<Deadline>) -> Option<Deadline> {
    one.into_iter().chain(other).min_by_key(Deadline::left::<M>)
}

/// Puts `node` at the end of the queue. Returns whether its owner is the head.
fn enqueue<M: Machine>(tail: &M::Ptr<QNode<M>>, node: Waiter<'static, M>) -> bool {
    let before = tail.swap(node.as_ptr(), AcqRel); // (C)
    if before.is_null() {
        return true;
    }
    // SAFETY: nodes of the pool are never unmapped. The predecessor's is released only after its `next` is written, by the
    // caller, or by its owner with `left`; then the caller releases it.
    let before = unsafe { Waiter::at(before) };
    // (Q) pairs with the loads of `next` by walks and heads; (L) with `next_head`.
    if before.next().swap(node.as_ptr(), AcqRel) != left::<M>() {
        return false;
    }
    // SAFETY: its owner has left (L), and no other thread knows the node.
    unsafe { M::release_node(before.0) };
    true
}

/// A thread that is the head of the queue, with its node: whether it was so at once, and whether it has taken the lock already.
pub(crate) struct Head<M: Machine> {
    pub node: Waiter<'static, M>,
    pub at_once: bool,
    pub locked: bool,
}

/// Queues with a node from the pool and the caller's `key`, and waits to be the head. A waiter that is invited, or that woke up
/// by itself, calls `enter(invited)`, which takes the lock if the waiter may have it past the head. `Err`: the caller has left,
/// with the lock (`true`) or after the deadline. Its node is ABANDONED: the head that reaches it releases it.
pub(crate) fn wait_for_head<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    turn: &Turn<M>,
    key: u32,
    deadline: Option<Deadline>,
    mut enter: impl FnMut(bool) -> bool,
) -> Result<Head<M>, bool> {
    let pays = turn.spins_pay::<P>() && !M::has_one_processor();
    let spins = M::hints(if pays { P::SPIN } else { P::LOOK });
    let node = Waiter(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    let words = [(node.status(), WAITING), (node.key(), key), (node.batch(), 0), (node.passed(), 0)];
    words.into_iter().for_each(|(word, value)| word.store(value, Relaxed));
    if enqueue(tail, node) {
        turn.begin();
        return Ok(Head { node, at_once: true, locked: false });
    }
    let change = |from, to| node.status().compare_exchange(from, to, Release, Relaxed).is_ok();
    let abandon = || match node.status().swap(ABANDONED, AcqRel) {
        READY => Ok(Head { node, at_once: false, locked: true }), // (R)
        _ => Err(true),                                           // (D) pairs with `next_head`
    };
    // It does not look earlier: no head is suspended before that, and each look costs two context switches. With looks after 1
    // and 5 ms, 8 to 64 threads on two CPUs were slower by 5 to 10%, with sections of 5 us and pauses of 2 us.
    let mut sleep = SHORTEST_SLEEP;
    let mut woke_by_itself = false;
    loop {
        let looks = if replace(&mut woke_by_itself, false) { 1 } else { spins };
        // (R) pairs with `next_head`.
        match M::spin_for(node.status(), Acquire, looks, |status| matches!(status, READY | INVITED)) {
            Some(READY) => return Ok(Head { node, at_once: false, locked: false }),
            Some(_) if enter(true) => return abandon(),
            Some(_) => {
                _ = change(INVITED, WAITING); // it fails if the caller has become the head
                continue;
            }
            None => (),
        }
        let status = node.status().load(Relaxed);
        let late = deadline.is_some_and(|d| d.passed::<M>());
        // Release: (D) pairs with `next_head`. If the status has changed, the next look sees (R), or the invitation.
        if matches!(status, READY | INVITED) || !change(status, if late { ABANDONED } else { NODE_PARKED }) {
            continue;
        }
        if late {
            return Err(false);
        }
        let until = earlier::<M>(deadline, M::safety_timeout(nanos(sleep)));
        sleep = (2 * sleep).min(LONGEST_SLEEP);
        while node.status().load(Relaxed) == NODE_PARKED {
            if M::wait(node.status(), NODE_PARKED, until) == Wait::TimedOut {
                if enter(false) {
                    return abandon();
                }
                woke_by_itself = true;
                break;
            }
        }
    }
}

/// The owner of `node`, the head, leaves the queue. The next waiter that has not abandoned its node becomes the head. If that
/// waiter is parked, returns its status word and its key. Of the word, which is READY now, only the address may be used: the node
/// may be another waiter's by now.
pub(crate) fn next_head<M: Machine>(
    tail: &M::Ptr<QNode<M>>,
    mut node: Waiter<'static, M>,
) -> Option<(*const M::U32, u32)> {
    loop {
        let mut next = node.next().load(Acquire); // (Q)
        // (C) for the waiter that queues next.
        if next.is_null() && tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_err() {
            // (L) pairs with the swap in `enqueue`: the waiter that links itself releases the node. (Q) if it has linked itself
            // just now.
            match node.next().compare_exchange(null_mut(), left::<M>(), Release, Acquire) {
                Ok(_) => return None,
                Err(linked) => next = linked,
            }
        }
        // SAFETY: its owner is done with it; it is no longer in the queue, and no arrival will link itself to it.
        unsafe { M::release_node(node.0) };
        if next.is_null() {
            return None;
        }
        // SAFETY: nodes of the pool are never unmapped. The node stays the waiter's at least until it is READY.
        node = unsafe { Waiter::at(next) };
        let (status, key) = (core::ptr::from_ref(node.status()), node.key().load(Relaxed));
        // (R) pairs with `wait_for_head`, (D) with the owner that has left.
        match node.status().swap(READY, AcqRel) {
            ABANDONED => (),
            before => return (before == NODE_PARKED).then_some((status, key)),
        }
    }
}

/// Spins for about `nanos`, and calls `take` when the lock is `free` and stays so; with `at_once`, or after
/// [`PROMPTNESS`](Policy::PROMPTNESS) looks in a row at a held lock, when it is free.
pub(crate) fn spin<M: Machine, P: Policy>(
    nanos: u32,
    at_once: bool,
    free: impl Fn() -> bool,
    take: impl Fn() -> bool,
) -> bool {
    let look_again = |_| (M::pause(M::hints(P::LOOK)), free()).1;
    let stays_free = || (0..M::patience(P::SECOND_LOOKS)).all(look_again);
    let (mut waited, mut held) = (0, 0);
    loop {
        let is_free = free();
        if is_free && (at_once || held >= P::PROMPTNESS || stays_free()) && take() {
            return true;
        }
        if waited >= M::patience(nanos) {
            return false;
        }
        // A lock that is free, and could not be taken, is in the cache of a thread that uses it over and over.
        held = if is_free { 0 } else { held + 1 };
        let pause = (if is_free { waited } else { waited / P::PROMPTNESS }).max(P::LOOK);
        M::pause(M::hints(pause));
        waited += pause;
    }
}

/// The head, `node`, orders the queue behind itself until `stop` holds. A head that has waited for long then takes out all abandoned
/// nodes: behind a head that waits for an hour, waiters with deadlines would leave one each.
pub(crate) fn walk<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    turn: &Turn<M>,
    node: Waiter<'_, M>,
    stop: impl Fn() -> bool,
) {
    let long = turn.exceeds(PROMISE_BOUND);
    let abandoned = |waiter: Waiter<'_, M>| waiter.status().load(Acquire) == ABANDONED; // (D)
    if or_abort(P::applies::<M>) {
        _ = shuffle::<M, P>(node, node, tail, IN_A_ROW, |_| stop(), abandoned);
    }
    if long {
        _ = shuffle::<M, NoPolicy>(node, node, tail, u32::MAX, |_| false, abandoned);
    }
}

/// Waits for 0.75 microseconds. A [`release_if`](Machine::release_if) that had begun before is over then, unless its thread was
/// interrupted between its two instructions: on a process's only processor it was.
pub(crate) fn let_release_end<M: Machine>() {
    if !M::has_one_processor() {
        (1..M::patience(16)).for_each(|_| M::pause(M::hints(50)));
    }
}

/// The head sleeps once, until the `deadline` at most. It parks for as long as it has waited at most, or for
/// `least`. Or it naps at the lock's `word`, for as long as it has waited at most. No nap begins, or goes on, once `left` is set there: a
/// fair unlock leaves the lock to the head so, and wakes it.
pub(crate) fn sleep<M: Machine>(
    turn: &Turn<M>,
    deadline: Option<Deadline>,
    least: u32,
    nap: Option<(&M::U32, u32)>,
    park: impl FnOnce(Option<Deadline>),
) {
    // Acquire: the clock is read afterwards, in `age`.
    let waited = age::<M>(Bits(turn.0.fetch_or(ASLEEP, Acquire)));
    if let Some((word, left)) = nap {
        let seen = Bits::of::<M>(word);
        if !seen.has(left) {
            let most = deadline.map_or(u64::MAX, |deadline| deadline.left::<M>());
            M::doze_at(word, seen.0, nanos(waited).min(most));
        }
    } else {
        park(earlier::<M>(deadline, M::torn_timeout(nanos(waited.clamp(least, LONGEST_SLEEP)))));
    }
    turn.0.fetch_and(!ASLEEP, Relaxed);
}
