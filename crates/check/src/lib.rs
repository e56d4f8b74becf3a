//! Which thread holds which locks, in which order it took them, and what is wrong with that.
//!
//! [`Checked`] wraps any lock of the `latchwork` crate; the preloaded library does the same to every
//! pthread lock of a program (`latchwork run --check`). Reported, with stacks, on stderr:
//!
//! - *lock-order inversion*: a thread takes B while it holds A, and another time one took A while it held B
//!   (also through further locks). It need not have come to a deadlock. Known from Linux's lockdep. Two orders that were only
//!   taken under the same third lock, a *gate*, are none;
//! - *deadlock*: threads wait for each other. The last of them reports it, and waits, too;
//! - *self-deadlock*: a thread waits for what it holds itself;
//! - *unlock by a stranger*: by a thread that does not hold the lock; also a wait for a condition with such a lock;
//! - *end of the holder*: a thread ends while it holds the lock (seen by the preloaded library only);
//! - *destroyed while held*.
//!
//! ```
//! use latchwork_check::CheckedMutex;
//!
//! static A: CheckedMutex<u32> = CheckedMutex::new(1);
//! static B: CheckedMutex<u32> = CheckedMutex::new(2);
//!
//! let before = latchwork_check::problems();
//! drop((A.lock(), B.lock())); // A, then B
//! drop((B.lock(), A.lock())); // B, then A: reported, although nobody waited
//! assert_eq!(latchwork_check::problems(), before + 1);
//! ```
//!
//! # How it is made
//!
//! A table has the holders of each lock. A graph has which lock was taken while which other was held. One spin lock
//! protects both. Their memory comes from `mmap` and has a fixed size, because the caller may be an allocator. A stack is
//! recorded as raw addresses. Names are looked up when the stack is printed; no lock of this crate is held then. The thread
//! that prints runs on a stack of this crate's meanwhile, because its own may be small. The checks are slow: a tenth of
//! a microsecond for each acquisition, and microseconds where its stack has to be unwound. They are for finding mistakes, not for
//! production.
//!
//! A lock is known by its address. Memory that is freed without `destroy`, and becomes another lock without
//! `init`, inherits what was known of the first, unless the caller recognises the new lock and says so ([`found`]).
//!
//! A thread that is cancelled asynchronously must not die here: it would take the spin lock, the loader's lock and the
//! turn to print with it. So each function switches cancellation off while it runs.
//!
//! The tables have room for 65,435 orders of two locks, for 4,096 threads that hold locks at the same time, and for 32 locks that one
//! thread holds. What is beyond that is not checked; that is said once, of each.
//!
//! A signal handler may interrupt a function here. What the handler does with locks is then not looked at, because the thread has the
//! spin lock already.

mod cancel;
mod description;
mod fork;
mod gates;
mod graph;
mod ignored;
mod memory;
mod names;
mod output;
mod owned;
mod report;
mod roomy;
mod sanitizer;
mod stack;
mod wrapper;

pub use cancel::quietly;
pub use fork::{after_fork, before_fork};
pub use ignored::{ignore, matches};
pub use names::{BYTES as NAME_BYTES, of as name_of, set as name};
pub use output::write;
pub use owned::OwnedLock;
pub use report::{json_with, problems, problems_since_fork};
pub use stack::Unwind;
pub use wrapper::{Checked, CheckedCondvar, CheckedMutex, CheckedRwLock};

use cancel::Uncancelled;
use graph::Tables;
use latchwork::machine::{Machine, Native};
use report::Problem;
use stack::Stack;

/// How a lock is asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Together with other threads that only read.
    pub shared: bool,
    /// Waiting for it, with or without a deadline. An attempt cannot deadlock.
    pub waits: bool,
    /// Waiting until it gets it: then a circle of threads that wait for each other stays one for ever.
    pub forever: bool,
    /// The holder may take the lock again (recursive), or the lock itself refuses that (error-checking).
    pub again: bool,
    /// The lock knows its holder, and refuses to be unlocked by another thread: the holder keeps it.
    pub refuses: bool,
}

impl Wish {
    /// A mutex, for as long as it takes.
    pub const LOCK: Wish = Wish { shared: false, waits: true, forever: true, again: false, refuses: false };
}

/// The stack of an acquisition that is under way; for [`acquired`].
pub struct Asked(Stack);

/// The calling thread is about to ask for the lock at `lock`. What it returns goes to [`acquired`].
pub fn acquiring(lock: usize, wish: Wish) -> Option<Asked> {
    let _uncancelled = Uncancelled::new();
    let me = Native::thread_id();
    if report::is_reporting(me) {
        return None;
    }
    let asked = Asked(Stack::here());
    if wish.waits {
        judge(me, lock, wish, &asked.0);
    }
    Some(asked)
}

/// Not inlined: a problem takes kilobytes of stack, which unwinding must not be called from.
#[inline(never)]
fn judge(me: usize, lock: usize, wish: Wish, here: &Stack) {
    if let Some(problem) = graph::with(|tables| tables.acquiring(me, lock, wish, here)).flatten() {
        report::report(me, &problem);
    }
    // From here on, other threads find this one waiting. So it says that after it has reported what is wrong with its order.
    if wish.forever && graph::with(|tables| tables.asks(me, lock, wish, here)) == Some(true) {
        report::report(me, &Problem::Deadlock);
    }
}

/// It has got it.
pub fn acquired(lock: usize, wish: Wish, asked: Option<Asked>) {
    if let Some(Asked(stack)) = asked {
        let _uncancelled = Uncancelled::new();
        let me = Native::thread_id();
        let look = |tables: &mut Tables| {
            tables.asks_no_more(me);
            tables.acquired(me, lock, wish, stack)
        };
        if let Some(problem) = graph::with(look).flatten() {
            report::report(me, &problem);
        }
    }
}

/// It has not got it: the call has failed.
pub fn refused(asked: Option<Asked>) {
    if asked.is_some() {
        let _uncancelled = Uncancelled::new();
        graph::with(|tables| tables.asks_no_more(Native::thread_id()));
    }
}

/// The calling thread is about to release the lock.
pub fn releasing(lock: usize) {
    say(|me, tables| tables.releasing(me, lock));
}

/// The calling thread is about to wait for a condition, with a lock that it releases without another call of this crate.
pub fn waiting(lock: usize) {
    say(|me, tables| tables.waiting(me, lock));
}

/// As [`releasing`] and [`waiting`], for a lock that a thread may have acquired before this crate heard of the program's calls. So it is no
/// mistake if no thread is known to hold it.
pub mod early {
    use super::{Problem, say};

    /// The calling thread is about to release the lock.
    pub fn releasing(lock: usize) {
        say(|me, tables| tables.releasing(me, lock).filter(names_a_holder));
    }

    /// The calling thread is about to wait for a condition with the lock.
    pub fn waiting(lock: usize) {
        say(|me, tables| tables.waiting(me, lock).filter(names_a_holder));
    }

    fn names_a_holder(problem: &Problem) -> bool {
        !matches!(problem, Problem::Stranger { holder: None, .. })
    }
}

/// Whether the calling thread, which is about to end, holds locks. A destructor may release them.
pub fn holds_any() -> bool {
    let _uncancelled = Uncancelled::new();
    graph::with(|tables| tables.holds_any(Native::thread_id())).unwrap_or(false)
}

/// The calling thread has ended, for all that the program can do in it. What it still holds stays held.
pub fn ended() {
    while say(|me, tables| tables.ended(me)) {}
}

/// The calling thread is about to destroy the lock. If that succeeds, [`forget`] comes next.
pub fn destroying(lock: usize) {
    say(|_, tables| tables.destroying(lock));
}

/// Reports what is found, if something is, with the stack of the calling thread.
fn say(look: impl FnOnce(usize, &mut Tables) -> Option<Problem>) -> bool {
    let _uncancelled = Uncancelled::new();
    let me = Native::thread_id();
    if report::is_reporting(me) {
        return false;
    }
    let Some(mut problem) = graph::with(|tables| look(me, tables)).flatten() else { return false };
    if let Problem::Stranger { here, .. } | Problem::Destroyed { here, .. } = &mut problem {
        *here = Stack::here();
    }
    report::report(me, &problem);
    true
}

/// The lock at this address, if there was one, is gone. A new one may be made there.
pub fn forget(lock: usize) {
    let _uncancelled = Uncancelled::new();
    graph::with(|tables: &mut Tables| tables.forget(lock));
}

/// The calling thread is about to use a lock that may be a new one at an old address, made without a call. `is_new`
/// tells, and if it marks the lock so that the next caller is told otherwise, no other thread comes in between.
pub fn found(lock: usize, is_new: impl FnOnce() -> bool) {
    let _uncancelled = Uncancelled::new();
    graph::with(|tables: &mut Tables| is_new().then(|| tables.forget(lock)));
}

/// For a library that puts itself under a program. Does once what must not happen for the first time inside of a lock call,
/// and leaves the library's own functions out of stacks. Reports go to `write`. `unwind` finds the frames of a stack: a program may
/// have put anything into the words above its own frames, which the library cannot know.
pub fn prepare(write: fn(&[u8]), unwind: Unwind) {
    stack::OWN_OBJECT.store(true, std::sync::atomic::Ordering::Relaxed);
    report::write_with(write);
    stack::unwind_with(unwind);
    graph::with(|_| ());
    let _ = Stack::here();
}
