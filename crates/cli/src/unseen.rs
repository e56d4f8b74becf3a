//! What the commands say of a program that seems to use no locks: it may use locks that no command sees.

use crate::profile::model::{Class, Profile};

/// Whose locks those are, in a few words.
pub const OTHER_LOCKS: &str = "Rust's std and Go have locks of their own";

/// The same in sentences, with what can be done about it.
pub const UNSEEN: &str = "What cannot be seen: locks that are not pthread's (those of Rust's std and of Go, of latchwork.h without \
                          -DLW_DEBUG=1, of stdio and the allocator, a program's own spin locks and futexes), and programs that are statically linked or executed \
                          without the environment. A program that you can change can use latchwork's locks itself: those of the crate latchwork in \
                          Rust, of latchwork.h in C and C++.";

/// A program that locks matter to calls them thousands of times in a second. With fewer calls in all, its locks are probably others.
pub const FEW_CALLS: u64 = 1_000;

/// How many calls asked for locks, as far as the profile knows. Calls that still waited at the end count.
pub fn calls(profile: &Profile) -> u64 {
    let of = |class: &Class| class.calls().saturating_add(class.failed_tries);
    let of = |class: &Class| of(class).max(class.contended).saturating_add(class.waiting.threads);
    profile.locks.iter().fold(0, |sum, class| sum.saturating_add(of(class)))
}
