//! Thread-specific keys: all of them are the program's.
//!
//! This library needs one itself, to give back what a thread keeps when the thread exits. It takes a number that programs
//! come to late (`exit` in the crate `latchwork`), and deletes its key when the program has taken all others.

use crate::table::{REAL, install};
use latchwork::machine::Native;
use libc::{c_int, c_void, pthread_key_t};

type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

pub(crate) fn install() {
    install! { key_create => key_create, tss_create => tss_create }
}

unsafe extern "C" fn key_create(key: *mut pthread_key_t, destructor: Destructor) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { create(|| REAL.key_create.get()(key, destructor)) }
}

unsafe extern "C" fn tss_create(key: *mut pthread_key_t, destructor: Destructor) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { create(|| REAL.tss_create.get()(key, destructor)) }
}

/// Both fail for one reason: no key is left.
fn create(create: impl Fn() -> c_int) -> c_int {
    match create() {
        0 => 0,
        _ if Native::give_up_key() => create(),
        error => error,
    }
}
