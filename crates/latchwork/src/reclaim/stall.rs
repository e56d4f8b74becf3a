//! Grace periods that do not end, and the function that a domain calls then ([`Hooks`]).

use crate::machine::record::{Records, Stall};
use crate::machine::{Machine, Native, Word};
use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

/// Writes one line to stderr, in one piece: for [`on_stall`](super::domain::Domain::on_stall).
///
/// ```
/// use latchwork::reclaim::{rcu, stall};
///
/// rcu::global().on_stall(stall::to_stderr);
/// ```
pub fn to_stderr(stall: &Stall) {
    Native::report_stall(*stall);
}

/// A hook, and the one that was set before it.
struct Hook {
    call: Box<dyn Fn(&Stall) + Send + Sync>,
    before: *mut Hook,
}

// SAFETY: `before` was made by a box, and only `Hooks` follows it, when it is dropped.
unsafe impl Send for Hook {}
// SAFETY: as above; `call` is `Sync`.
unsafe impl Sync for Hook {}

/// The function of a domain that is told of stalls. Functions that were set before stay until the domain is dropped, because
/// another thread may be calling one.
pub(super) struct Hooks<M: Machine> {
    newest: Link<M>,
    /// The number of the process ([`Records::generation`]) and a set bit while a thread calls the hook: a hook that uses the
    /// domain is not called again by that. In the child of a fork, the mark of a thread that is not there means nothing.
    calling: M::U32,
}

type Link<M> = <M as Machine>::Ptr<Hook>;

impl Hooks<Native> {
    pub(super) const fn native() -> Self {
        use core::sync::atomic::{AtomicPtr, AtomicU32};
        Hooks { newest: AtomicPtr::new(null_mut()), calling: AtomicU32::new(0) }
    }
}

impl<M: Machine> Hooks<M> {
    pub(super) fn new() -> Self {
        Hooks { newest: Link::<M>::new(null_mut()), calling: M::U32::new(0) }
    }

    /// Sets the function.
    pub(super) fn set(&self, call: Box<dyn Fn(&Stall) + Send + Sync>) {
        let mut before = self.newest.load(Relaxed);
        let hook = Box::into_raw(Box::new(Hook { call, before }));
        // (A) pairs with the load in `call`, and in `drop`.
        while let Err(now) = self.newest.compare_exchange(before, hook, AcqRel, Relaxed) {
            before = now;
            // SAFETY: made above, and no other thread has it yet.
            unsafe { (*hook).before = before };
        }
    }
}

impl<M: Records> Hooks<M> {
    /// Calls the function that was set last, if there is one, unless a thread is in it.
    #[cold]
    pub(super) fn call(&self, stall: &Stall) {
        /// Ends the call, also if the hook panics.
        struct Calling<'a, M: Machine>(&'a M::U32);
        impl<M: Machine> Drop for Calling<'_, M> {
            fn drop(&mut self) {
                self.0.store(0, Release);
            }
        }
        // (A) pairs with the exchange in `set`. SAFETY: hooks are freed with the domain.
        let Some(hook) = (unsafe { self.newest.load(Acquire).as_ref() }) else { return };
        let (before, mark) = (self.calling.load(Relaxed), M::generation() << 1 | 1);
        if before != mark && self.calling.compare_exchange(before, mark, Acquire, Relaxed).is_ok() {
            let _calling = Calling::<M>(&self.calling);
            (hook.call)(stall);
        }
    }
}

impl<M: Machine> Drop for Hooks<M> {
    fn drop(&mut self) {
        let mut hook = self.newest.load(Acquire); // (A)
        while !hook.is_null() {
            // SAFETY: made by a box in `set`; the domain is dropped, so no thread uses it.
            hook = unsafe { Box::from_raw(hook) }.before;
        }
    }
}
