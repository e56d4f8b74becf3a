//! What the tests of several kinds of locks share.
//!
//! A test of every lock hands its threads over as pointers to closures. So the code that spawns a thread is compiled once, and
//! not once for each test and each lock.

use std::thread;

/// What a thread of a test does.
pub(super) type Body<'a, R> = &'a (dyn Fn() -> R + Sync);

/// Runs `body` in so many threads at once, each with its number.
pub(super) fn in_threads(threads: u32, body: &(dyn Fn(u32) + Sync)) {
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || body(number));
        }
    });
}
