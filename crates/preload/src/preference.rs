//! Reader preference: how a writer waits.
//!
//! glibc's rwlocks let readers in while a reader is inside, also if a writer waits. Programs rely on it: a reader waits
//! for something that another thread does under a read lock of the same object. Our locks do not let a writer starve,
//! and shut readers out behind a writer that waits; then neither reader would ever go on.
//!
//! So a writer waits in turns. In one it waits as the lock has it, in the queue, and shuts readers out; it gives up
//! after [`SHUT_OUT`]. Then it stays out of the queue for as long, while readers pass, and takes the lock if it
//! finds it free. Each turn is twice as long as the last one, up to a bound. Most writers get the lock in the first.
//!
//! While a writer is inside, readers are not kept out by those that wait: then the next turn begins at once.
//!
//! A writer of a real-time policy shuts nobody out behind a reader: readers of a higher priority must not wait for it.
//!
//! The queues of `pf-t`, `pf-q`, `mcs-rw`, `percpu` and `cohort-rw` cannot be left. A writer with a deadline polls there,
//! and so all their writers do under this library: they never shut readers out, and may starve, like glibc's.

use crate::cancel;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Clock, Deadline, Machine, Native};

/// Nanoseconds for which a waiting writer shuts readers out, at first and at most. At first: several quanta of the
/// scheduler, so that few writers need another turn. At most: what a reader can bear; with 64 readers for each processor
/// a writer still gets in.
const SHUT_OUT: (u64, u64) = (10_000_000, 80_000_000);
/// The same for one of a real-time policy, behind another writer.
const SHUT_OUT_REAL_TIME: u64 = 1_000_000;
/// Nanoseconds between two looks at a lock that readers pass, at first and at most.
const NAPS: (u64, u64) = (50_000, 1_000_000);

/// Acquires for writing. `None`: the deadline passed.
pub(crate) fn write<R: RawRwLock<Machine = Native>>(
    lock: &R,
    deadline: Option<Deadline>,
) -> Option<R::Write> {
    let until = |deadline| in_turns(lock, deadline);
    // Without a deadline there is no end.
    cancel::wait(deadline, || until(None), |deadline| until(Some(deadline)).map(Some)).flatten()
}

fn in_turns<R: RawRwLock<Machine = Native>>(lock: &R, deadline: Option<Deadline>) -> Option<R::Write> {
    let real_time = is_real_time();
    let mut turn = if real_time { SHUT_OUT_REAL_TIME } else { SHUT_OUT.0 };
    loop {
        if !real_time || lock.is_write_locked() {
            let end = end_of(turn, deadline);
            if let Some(token) = lock.write_until(end) {
                return Some(token);
            }
        }
        if let Some(token) = let_readers_pass(lock, end_of(turn, deadline)) {
            return Some(token);
        }
        if deadline.is_some_and(|deadline| deadline.passed::<Native>()) {
            return lock.try_write();
        }
        if !real_time {
            turn = (turn * 2).min(SHUT_OUT.1);
        }
    }
}

/// So many nanoseconds from now, or the deadline.
fn end_of(nanos: u64, deadline: Option<Deadline>) -> Deadline {
    let left =
        deadline.map_or(u64::MAX, |deadline| deadline.nanos.saturating_sub(Native::now(deadline.clock)));
    Deadline::after::<Native>(nanos.min(left))
}

/// Waits for the lock to be free, or to be held by a writer, and shuts nobody out.
fn let_readers_pass<R: RawRwLock<Machine = Native>>(lock: &R, end: Deadline) -> Option<R::Write> {
    let mut nap = NAPS.0;
    while !lock.is_write_locked() && !end.passed::<Native>() {
        if !lock.is_locked()
            && let Some(token) = lock.try_write()
        {
            return Some(token);
        }
        Native::doze(nap.min(end.nanos.saturating_sub(Native::now(Clock::Monotonic))));
        nap = (nap * 2).min(NAPS.1);
    }
    None
}

/// Whether the calling thread has a real-time policy. glibc remembers it: only a thread's first call is a system call.
/// (It does not learn what `sched_setscheduler` changes after that.)
fn is_real_time() -> bool {
    let mut policy = libc::SCHED_OTHER;
    // SAFETY: both pointers are valid for writes; `errno` is restored because lock calls must not disturb it.
    unsafe {
        let errno = *libc::__errno_location();
        let mut param = core::mem::zeroed();
        libc::pthread_getschedparam(libc::pthread_self(), &mut policy, &mut param);
        *libc::__errno_location() = errno;
    }
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR)
}
