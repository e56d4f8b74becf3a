//! The fork handlers.
//!
//! They must be registered before all others. Then `prepare` runs last and `child` runs first. So a lock that the program
//! takes in its own prepare handler is held at the fork, and when the program's child handler releases it, the new
//! generation has begun. That is why `__register_atfork` is exported: see [`entry`](super::entry).

use crate::families::rwlock::{gate, holds};
use crate::observers::{profile, trace};
use crate::state::table::REAL;
use crate::state::{counters, generation, mapping, place, stderr};
use core::ptr::null_mut;
use latchwork::machine::Native;

/// Registers the handlers. `serves`: pthread objects are served or observed. Otherwise only locks' names are kept, which the
/// program gives in any case.
pub(super) fn register(serves: bool) {
    let [prepare, parent, child]: [unsafe extern "C" fn(); 3] =
        if serves { [prepare, parent, child] } else { [prepare_names, parent_names, child_names] };
    // SAFETY: the handlers are plain functions; a null object means that they are never removed.
    unsafe { REAL.register_atfork.get()(Some(prepare), Some(parent), Some(child), null_mut()) };
}

unsafe extern "C" fn prepare_names() {
    latchwork_check::before_fork();
}

unsafe extern "C" fn parent_names() {
    latchwork_check::after_fork(false);
}

unsafe extern "C" fn child_names() {
    latchwork_check::after_fork(true);
    stderr::after_fork();
}

unsafe extern "C" fn prepare() {
    latchwork_check::before_fork();
    generation::before_fork();
    place::before_fork();
    profile::live::before_fork();
}

unsafe extern "C" fn parent() {
    give_back(false);
}

/// Gives back what `prepare` has taken.
fn give_back(child: bool) {
    profile::live::after_fork();
    place::after_fork();
    generation::after_fork();
    latchwork_check::after_fork(child);
}

unsafe extern "C" fn child() {
    give_back(true);
    stderr::after_fork();
    generation::begin();
    counters::after_fork();
    profile::after_fork();
    trace::after_fork();
    mapping::forget();
    // The reader tables of BRAVO name threads that the child does not have. What this thread reads is looked up when it next
    // uses the lock; until then nothing touches the object, which may have been freed without being released.
    // SAFETY: the child has one thread.
    unsafe { Native::forget_readers() };
    holds::after_fork();
    gate::after_fork();
}
