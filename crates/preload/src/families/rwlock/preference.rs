//! Reader preference: how a writer waits.
//!
//! While a reader is inside, glibc's rwlocks let further readers in, also if a writer waits. Programs rely on it: a reader
//! may wait for something that another thread does under a read lock of the same object. Our locks do not let a writer
//! starve, so they shut readers out behind a writer that waits. With that alone, neither of the two readers would ever
//! continue.
//!
//! So a writer waits in turns. In the first half of a turn it waits in the lock's queue, which shuts readers out; after
//! [`SHUT_OUT`] it leaves the queue. In the second half, which is as long, it stays out of the queue while readers pass,
//! and takes the lock if it finds it free. Each turn is twice as long as the last one, up to a bound. Most writers get the
//! lock in the first half of the first turn.
//!
//! While a writer is inside, waiting writers keep no reader out, because that writer does so anyway: then the next turn
//! begins at once.
//!
//! After the first half of its first turn, a writer goes on only when no other such writer of the rwlock takes turns; until then it
//! sleeps ([`gate`](super::gate)).
//!
//! A writer with a real-time policy shuts nobody out behind a reader: readers of a higher priority must not wait for it.
//!
//! A waiter cannot leave the queues of `pf-t`, `pf-q`, `mcs-rw`, `percpu` and `cohort-rw`. There `write_until` polls, so
//! under this library no writer of theirs ever shuts readers out. Under glibc a writer starves only while readers overlap, because the
//! last reader wakes it. Here no reader does: a writer can starve behind a single reader that unlocks and at once locks again, because it
//! must find the lock free when it looks.

use super::gate;
use super::raw::operations;
use crate::state::abi::RwLock;
use crate::state::cancel;
use crate::state::memory::quietly;
use latchwork::machine::{Clock, Deadline, Machine, Native};

/// Nanoseconds for which a waiting writer shuts readers out, in the first turn and at most.
///
/// The first: several quanta of the scheduler, so that few writers need another turn. The most: what a reader can bear;
/// with 64 readers for each processor a writer still gets in.
const SHUT_OUT: (u64, u64) = (10_000_000, 80_000_000);
/// The same for a writer with a real-time policy, behind another writer, in every turn: it soon sees whether a reader has
/// come in.
const SHUT_OUT_REAL_TIME: u64 = 1_000_000;
/// Nanoseconds between two looks at a lock that readers pass, at first and at most. The first is the time of a few context
/// switches; at the last a waiting writer uses little of a processor.
const NAPS: (u64, u64) = (50_000, 1_000_000);

/// Nanoseconds between two looks of a writer at the gate: the writer that takes turns may be suspended. Each look is two context
/// switches, so a thousand waiting writers take some hundredths of a processor.
const LOOK: u64 = 500_000_000;

/// Write-locks. Returns `false` if the deadline passed.
///
/// # Safety
///
/// The rwlock is live and ours.
pub(super) unsafe fn write(l: &RwLock, deadline: Option<Deadline>) -> bool {
    // SAFETY: the caller's rwlock is a live one of ours.
    let until = |deadline| unsafe { in_turns(l, deadline) };
    // Without a deadline `in_turns` always returns `true`.
    cancel::wait(deadline, || until(None), |deadline| until(Some(deadline)).then_some(true)).unwrap_or(false)
}

/// # Safety
///
/// As [`write`].
unsafe fn in_turns(l: &RwLock, deadline: Option<Deadline>) -> bool {
    let lock = operations(l);
    // SAFETY: the caller's rwlock is a live one of ours.
    unsafe {
        if is_real_time() {
            return behind_writers_only(l, deadline);
        }
        if (lock.write_until)(l, end_of(SHUT_OUT.0, deadline)) {
            return true;
        }
        let Some(gate) = gate::of(core::ptr::from_ref(l).addr()) else { return go_on(l, deadline) };
        loop {
            if let Some(got) = gate.alone(end_of(LOOK, deadline), || go_on(l, deadline)) {
                return got;
            }
            if (lock.try_write)(l) {
                return true;
            }
            if is_late(deadline) {
                return false;
            }
        }
    }
}

/// The second half of the first turn, and the turns after that.
///
/// # Safety
///
/// As [`write`].
unsafe fn go_on(l: &RwLock, deadline: Option<Deadline>) -> bool {
    let lock = operations(l);
    let mut turn = SHUT_OUT.0;
    // SAFETY: the caller's rwlock is a live one of ours.
    unsafe {
        loop {
            if let_readers_pass(l, end_of(turn, deadline)) {
                return true;
            }
            if is_late(deadline) {
                return (lock.try_write)(l);
            }
            turn = (turn * 2).min(SHUT_OUT.1);
            if (lock.write_until)(l, end_of(turn, deadline)) {
                return true;
            }
        }
    }
}

/// How a thread with a real-time policy waits.
///
/// # Safety
///
/// As [`write`].
unsafe fn behind_writers_only(l: &RwLock, deadline: Option<Deadline>) -> bool {
    let lock = operations(l);
    let end = || end_of(SHUT_OUT_REAL_TIME, deadline);
    // SAFETY: the caller's rwlock is a live one of ours.
    unsafe {
        loop {
            if (lock.is_write_locked)(l) && (lock.write_until)(l, end()) || let_readers_pass(l, end()) {
                return true;
            }
            if is_late(deadline) {
                return (lock.try_write)(l);
            }
        }
    }
}

fn is_late(deadline: Option<Deadline>) -> bool {
    deadline.is_some_and(|deadline| deadline.passed::<Native>())
}

/// So many nanoseconds from now, or the deadline if that is earlier.
fn end_of(nanos: u64, deadline: Option<Deadline>) -> Deadline {
    let left =
        deadline.map_or(u64::MAX, |deadline| deadline.nanos.saturating_sub(Native::now(deadline.clock)));
    Deadline::after::<Native>(nanos.min(left))
}

/// Waits, outside the queue, until the lock is free or held by a writer. Returns whether it has acquired the lock.
///
/// # Safety
///
/// As [`write`].
unsafe fn let_readers_pass(l: &RwLock, end: Deadline) -> bool {
    let lock = operations(l);
    let mut nap = NAPS.0;
    // SAFETY: the caller's rwlock is a live one of ours.
    unsafe {
        while !(lock.is_write_locked)(l) && !end.passed::<Native>() {
            if !(lock.is_locked)(l) && (lock.try_write)(l) {
                return true;
            }
            Native::doze(nap.min(end.nanos.saturating_sub(Native::now(Clock::Monotonic))));
            nap = (nap * 2).min(NAPS.1);
        }
    }
    false
}

/// Whether the calling thread has a real-time policy. glibc remembers the policy, so only a thread's first call is a system
/// call. (glibc does not learn of a later change by `sched_setscheduler`.)
fn is_real_time() -> bool {
    let mut policy = libc::SCHED_OTHER;
    // SAFETY: zero is a value of the parameters, and both pointers are valid for writes.
    quietly(|| unsafe {
        let mut param = core::mem::zeroed();
        libc::pthread_getschedparam(libc::pthread_self(), &mut policy, &mut param);
    });
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR)
}
