//! What the library does when a thread exits. The machine calls one function, and there is more than one use.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use latchwork::machine::Native;

/// A use: what it does when a thread exits.
pub(crate) struct Use(usize);

impl Use {
    /// The lists of rwlocks that a thread holds.
    pub(crate) const HOLDS: Use = Use(0);
    /// The recorder of profiles.
    pub(crate) const PROFILE: Use = Use(1);
    /// The recorder of traces.
    pub(crate) const TRACE: Use = Use(2);
    /// The stacks of [`check`](crate::observers::check).
    pub(crate) const CHECK: Use = Use(3);

    /// Sets the function. It runs when a thread exits that has asked for it ([`Native::notice_exit`]), for whichever use.
    pub(crate) fn set(&self, at_exit: fn()) {
        // (A) pairs with the load in `run`.
        FUNCTIONS[self.0].store(at_exit as *mut (), Release);
    }
}

/// Has the machine call the functions from now on.
pub(crate) fn init() {
    Native::set_exit(run);
}

static FUNCTIONS: [AtomicPtr<()>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

fn run() {
    for function in &FUNCTIONS {
        let function = function.load(Acquire); // (A)
        if !function.is_null() {
            // SAFETY: `set` stores nothing but a `fn()`.
            unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
        }
    }
}
