//! What the commands say of a program that seems to use no locks: it may use locks that no command sees.

use crate::live::stuck::Stuck;
use crate::profile::model::{Class, Profile};

/// Languages with such locks, in a few words.
pub const OTHER_LOCKS: &str = "Rust's std and Go have locks of their own";

/// The same in sentences, with what can be done about it.
pub const UNSEEN: &str = "What cannot be seen: locks that are not pthread's (those of Rust's std and of Go, of latchwork.h without \
                          -DLW_DEBUG=1, of stdio and the allocator, a program's own spin locks and futexes), and programs that are statically linked or executed \
                          without the environment. A program that you can change can use latchwork's locks itself: those of the crate latchwork in \
                          Rust, of latchwork.h in C and C++.";

/// What is said of a live process that calls no lock: it may be stuck since before the recording began. Nothing if no thread
/// of it sleeps. `stuck`: what is known of these waits.
pub fn asleep(pid: u32, threads: usize, stuck: &Stuck) -> Option<String> {
    let sleep = match threads {
        0 => return None,
        1 => "1 thread sleeps".into(),
        _ => format!("{threads} threads sleep"),
    };
    let named = match stuck {
        Stuck { deadlock: Some(_), .. } => "",
        Stuck { refused: true, .. } => {
            " Under glibc's locks, root (with the capability CAP_SYS_PTRACE) is told which of them wait for each other."
        }
        _ => {
            " No circle of waits for each other is known among them; locks of latchwork do not name their holders. To have one named: \
             latchwork check -- PROG, when it happens; or latchwork run --mutex glibc --rwlock glibc -- PROG, and this command afterwards."
        }
    };
    Some(format!(
        "{sleep} in a futex: such a thread waits for a lock, a condition or another thread. A wait that began before the recording is in no figure. \
         To see where it is: gdb -p {pid} -batch -ex 'thread apply all backtrace'.{named}"
    ))
}

/// A program that locks matter to calls them thousands of times in a second. With fewer calls in all, its locks are probably others.
pub const FEW_CALLS: u64 = 1_000;

/// How many calls asked for locks, as far as the profile knows. Of a process that was killed, only the calls that waited may be known.
pub fn calls(profile: &Profile) -> u64 {
    let sum =
        |of: fn(&Class) -> u64| profile.locks.iter().fold(0, |sum: u64, class| sum.saturating_add(of(class)));
    match sum(|class| class.calls().saturating_add(class.failed_tries)) {
        0 => sum(|class| class.contended.saturating_add(class.waiting.threads)),
        calls => calls,
    }
}
