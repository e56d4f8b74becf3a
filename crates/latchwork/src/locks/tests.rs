//! What the tests of several kinds of locks share.
//!
//! A test of every lock hands its threads over as pointers to closures. So the code that spawns a thread is compiled once, and
//! not once for each test and each lock.

use std::thread;

/// What a thread of a test does.
pub(super) type Body<'a, R> = &'a (dyn Fn() -> R + Sync);

/// Runs a test of this crate in a process of its own, with this value of a variable. Returns whether it succeeded, and what it
/// printed.
pub(crate) fn in_a_process(test: &str, variable: &str, value: &str) -> (bool, std::string::String) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    let output = child.env(variable, value).env("RUST_BACKTRACE", "0").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), std::string::String::from_utf8_lossy(&text).into_owned())
}

/// Runs `body` in so many threads at once, each with its number.
pub(super) fn in_threads(threads: u32, body: &(dyn Fn(u32) + Sync)) {
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || body(number));
        }
    });
}
