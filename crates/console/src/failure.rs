//! An error as the user reads it, with the exit status that goes with it.

use crate::{output, signals};

/// Why the command stops. `main` prints it after `latchwork: ` and exits with the status.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub status: u8,
    /// What happened, and what to do about it.
    pub message: String,
}

/// Wrong arguments, as clap reports them too.
pub const USAGE: u8 = 2;
/// The program cannot be executed. env(1), nohup(1) and the shells use the same status.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such program. env(1), nohup(1) and the shells use the same status.
pub const NOT_FOUND: u8 = 127;

/// What shells say of a program that SIGPIPE has ended.
const READER_GONE: u8 = 128 + libc::SIGPIPE as u8;

impl Failure {
    /// A failure that the arguments do not explain.
    pub fn new(message: impl Into<String>) -> Self {
        Self { status: 1, message: message.into() }
    }

    /// The reader of what the command prints has closed its end of the pipe. There is no message: programs end by SIGPIPE then,
    /// and [`exit_status`] has this one do so.
    pub fn reader_gone() -> Self {
        Self { status: READER_GONE, message: String::new() }
    }

    fn is_reader_gone(&self) -> bool {
        self.status == READER_GONE && self.message.is_empty()
    }

    /// The arguments are wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: USAGE, message: message.into() }
    }
}

/// The usual result.
pub type Result<T> = std::result::Result<T, Failure>;

/// The exit status of `command`. A failure's message goes to standard error. Does not return if the reader of the output has gone
/// away: SIGPIPE ends the process.
pub fn exit_status(command: &str, result: Result<i32>) -> i32 {
    result.unwrap_or_else(|failure| {
        if failure.is_reader_gone() {
            // As a closed pipe ends other programs.
            signals::end_by(libc::SIGPIPE);
        } else {
            output::say(&format!("{command}: {}", failure.message));
        }
        i32::from(failure.status)
    })
}
