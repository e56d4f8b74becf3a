//! ThreadSanitizer does not see what this crate writes.
//!
//! The compiler copies a large value with `memcpy`. In a program that is built with ThreadSanitizer, that is the sanitizer's
//! function, which notes the write. But the sanitizer does not see the locks of this crate, so it would report races between such
//! writes. It must not see these locks either: a lock that every thread takes at each lock call would order what the program
//! itself has left unordered, and hide races of the program.

use std::arch::global_asm;
use std::ffi::{c_char, c_int};

/// The sanitizer's functions; `None` in a program without it. The arguments are the place of the call.
type Ignore = Option<unsafe extern "C" fn(*const c_char, c_int)>;

// Weak references: looking the functions up when they are needed would allocate the text of an error where there are none.
global_asm!(
    ".weak AnnotateIgnoreWritesBegin",
    ".weak AnnotateIgnoreWritesEnd",
    ".pushsection .data.rel.ro.latchwork_check_ignore, \"aw\", %progbits",
    ".globl latchwork_check_ignore",
    ".hidden latchwork_check_ignore",
    ".balign {size}",
    "latchwork_check_ignore:",
    ".{size}byte AnnotateIgnoreWritesBegin",
    ".{size}byte AnnotateIgnoreWritesEnd",
    ".popsection",
    size = const size_of::<Ignore>(),
);

unsafe extern "C" {
    #[link_name = "latchwork_check_ignore"]
    static IGNORE: [Ignore; 2];
}

/// Calls one of the two.
fn call(index: usize) {
    // SAFETY: the assembly above defines the array, which the linker fills with null or with the addresses of functions of this
    // type. They only count, for the calling thread.
    unsafe {
        if let Some(function) = IGNORE[index] {
            function(c"latchwork".as_ptr(), 0);
        }
    }
}

/// The sanitizer sees no write of the calling thread until it is dropped.
pub(crate) struct Unseen(());

impl Unseen {
    pub(crate) fn new() -> Self {
        call(0);
        Unseen(())
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        call(1);
    }
}
