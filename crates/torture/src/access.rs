//! What is asked of a lock, and what it answers.

use latchwork::machine::Deadline;

/// What an acquisition allows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Shared with other readers.
    Read,
    /// Shared with readers, but not with another one like it; it may become a writer.
    Upgradable,
    /// Alone.
    Write,
}

/// How to ask for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// As long as it takes.
    Wait,
    /// The same in two steps, as the preloaded library does it.
    WeakTryThenWait,
    /// Without waiting.
    Try,
    /// Until a deadline.
    Until(Deadline),
}

/// What is needed to release.
#[derive(Copy, Clone, Debug)]
pub struct Token {
    /// What the acquisition allows.
    pub access: Access,
    pub(crate) word: usize,
}
