//! What the tests of several kinds of locks share.
//!
//! A test of every lock hands its threads over as pointers to closures. So the code that spawns a thread is compiled once, and
//! not once for each test and each lock.

use std::thread;
use std::time::Duration;

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

/// Whether `condition` holds within a minute. It is asked every millisecond.
pub(super) fn in_a_minute(condition: impl Fn() -> bool) -> bool {
    (0..60_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        condition()
    })
}
