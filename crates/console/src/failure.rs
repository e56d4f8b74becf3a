//! An error as the user reads it, with the exit status that goes with it.

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

impl Failure {
    /// A failure that the arguments do not explain.
    pub fn new(message: impl Into<String>) -> Self {
        Self { status: 1, message: message.into() }
    }

    /// The arguments are wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: USAGE, message: message.into() }
    }
}

/// The usual result.
pub type Result<T> = std::result::Result<T, Failure>;

/// The exit status of `command`. A failure's message goes to standard error.
pub fn exit_status(command: &str, result: Result<i32>) -> i32 {
    result.unwrap_or_else(|failure| {
        eprintln!("{command}: {}", failure.message);
        i32::from(failure.status)
    })
}
