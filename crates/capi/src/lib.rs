//! The C interface of latchwork: what `latchwork.h` declares and does not define itself.
//!
//! The headers in `include` have the uncontended paths, as inline functions over the bytes of the locks. What they know of
//! those bytes is asserted twice: there by static assertions, and here beside the functions (`same_layout`). The functions
//! here are the slow paths. A function that the headers declare is described there.
//!
//! | file | what it is for |
//! |---|---|
//! | `thread` | the words of the calling thread that the headers use, and its exit |
//! | `time` | `struct timespec` |
//! | `mutex`, `rwlock`, `cond`, `sem`, `seqlock` | the default locks |
//! | `locks`, `registered` | every lock of the registry, behind tables of functions; `registered` is generated |
//! | `rcu` | the flavours of RCU |
//! | `map` | the hash map |
//! | `debug`, `probe` | what debuggers, `latchwork profile` and `latchwork check` see; static probes |
//! | `hazard` | hazard pointers that may move between threads |
//! | `archive` | the allocator, in the archive alone |
//!
//! No function unwinds: a panic ends the process with its message.
#![allow(clippy::missing_safety_doc, reason = "the headers say what a caller must do")]

#[cfg(feature = "archive")]
mod archive;
mod boxed;
mod cond;
mod debug;
mod hazard;
pub mod locks;
mod map;
mod mutex;
mod probe;
mod rcu;
#[rustfmt::skip]
mod registered;
mod rwlock;
mod sem;
mod seqlock;
mod stalls;
mod thread;
mod time;

use std::ffi::{CStr, c_char};

/// Asserts that a type of C has the size and the alignment of what it stands for.
macro_rules! same_layout {
    ($rust:ty, $size:literal, $align:literal) => {
        const _: () = assert!(size_of::<$rust>() == $size && align_of::<$rust>() == $align);
    };
}
use same_layout;

#[unsafe(no_mangle)]
extern "C" fn lw_init() {
    latchwork::machine::Native::init();
}

#[unsafe(no_mangle)]
extern "C" fn lw_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("the version has a zero byte"),
        };
    VERSION.as_ptr()
}
