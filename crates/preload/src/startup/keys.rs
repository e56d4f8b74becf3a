//! Thread-specific keys: the program gets all of them.
//!
//! This library needs one key itself, to take back what a thread keeps when the thread exits. It takes a number that
//! programs use late (`exit` in the crate `latchwork`), and deletes its key when the program has taken all others.

use crate::state::table::{Destructor, REAL, install};
use latchwork::machine::Native;
use libc::{c_int, pthread_key_t};

pub(super) fn install() {
    install! { key_create => key_create, tss_create => tss_create }
}

unsafe extern "C" fn key_create(key: *mut pthread_key_t, destructor: Destructor) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { create(|| REAL.key_create.get()(key, destructor)) }
}

unsafe extern "C" fn tss_create(key: *mut pthread_key_t, destructor: Destructor) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { create(|| REAL.tss_create.get()(key, destructor)) }
}

/// Calls `create`, and again if it failed and this library could give up its key: both functions fail for one reason, that
/// no key is left.
fn create(create: impl Fn() -> c_int) -> c_int {
    match create() {
        0 => 0,
        _ if Native::give_up_key() => create(),
        error => error,
    }
}
