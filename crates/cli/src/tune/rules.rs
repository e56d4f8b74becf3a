//! Which locks are tried for a class. The rules are few; the measuring decides.
//!
//! | kind | if | then try |
//! |---|---|---|
//! | both | always | glibc's, and the recommended lock of the kind |
//! | mutex | no more threads than processors, and short holds | `ttas` where few wait, `mcs` where more wait |
//! | mutex | as many waiters as processors or more, and more than two threads | `malthusian`: it lets surplus waiters sleep |
//! | mutex | long holds, or some long ones that make up a tenth of the time in which the lock is held | `mcs-park`: waiters sleep in order, and no processor is spent on them |
//! | mutex | no long holds on average | `hybrid`: it spins for a bounded number of looks, then sleeps |
//! | rwlock | mostly reads | `shfl-rw`, to see what the bias is worth, and `bravo-shfl-rw`, whose readers pay an atomic and whose writers no fence of all processors |
//! | rwlock | many writes | `shfl-rw` and `rwsem` |
//!
//! *Short* is below [`SHORT`], *long* above [`LONG`].

use super::classes::Features;
use crate::config::resolve::recommended;
use crate::profile::model;
use latchwork::registry::Kind;
use latchwork_console::machine;
use latchwork_console::names::{self, GLIBC};

/// Nanoseconds: a waiter spins through such a hold at less cost than it sleeps.
const SHORT: u64 = 2_000;
/// Nanoseconds: a waiter that spins through such a hold wastes its processor. It is about the time of two context switches.
pub const LONG: u64 = 20_000;
/// From this share of the held time in long sections on, a lock that serves in order is tried: the threads with short sections may keep
/// the one with long sections out.
const SOME: f64 = 0.1;
/// With more waiters than this, a lock that all of them watch slows down its holder.
const FEW: u64 = 4;
/// From this share of reads on, writers are rare.
const MOSTLY: f64 = 0.9;

/// The locks to try for a class of this kind: glibc's, the recommended one, and others by its features.
pub fn candidates(
    kind: model::Kind,
    features: &Features,
    threads: usize,
    oversubscribed: bool,
) -> Vec<String> {
    let kind = if kind == model::Kind::RwLock { Kind::RwLock } else { Kind::Mutex };
    let mut names = vec![GLIBC.to_owned(), recommended(kind)];
    let mut add = |name: &str| {
        let found = names::find(kind, name);
        // What only spins stands still where the thread that it waits for does not run.
        if found.is_some_and(|entry| entry.info.blocking || !oversubscribed) {
            names.push(name.into());
        }
    };
    if kind == Kind::RwLock {
        add("shfl-rw");
        add(if features.reads < MOSTLY { "rwsem" } else { "bravo-shfl-rw" });
        return names;
    }
    if features.hold_ns < SHORT {
        add(if features.waiters <= FEW { "ttas" } else { "mcs" });
    }
    if features.waiters as usize >= machine::cpus() && threads > 2 {
        add("malthusian");
    }
    if features.hold_ns > LONG || features.long_holds > SOME {
        add("mcs-park");
    }
    if features.hold_ns <= LONG {
        add("hybrid");
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_spins_is_not_tried_where_threads_are_many() {
        let kinds = [(model::Kind::Mutex, Kind::Mutex), (model::Kind::RwLock, Kind::RwLock)];
        for (kind, registered) in kinds {
            for hold_ns in [100, 10_000, 1_000_000] {
                for waiters in [1, 10, 1000] {
                    for reads in [0.0, 0.5, 0.999] {
                        let features = Features { hold_ns, waiters, reads, ..Features::default() };
                        let names = candidates(kind, &features, 100, true);
                        assert_eq!(names[0], GLIBC);
                        assert!((2..=6).contains(&names.len()), "{names:?}");
                        for name in &names[1..] {
                            let entry = names::find(registered, name).expect("a lock");
                            assert!(entry.info.blocking, "{name} spins");
                        }
                    }
                }
            }
        }
        let some = Features { hold_ns: 200, long_holds: 0.2, ..Features::default() };
        assert!(candidates(model::Kind::Mutex, &some, 100, true).contains(&"mcs-park".into()));
        let read = Features { reads: 0.999, ..Features::default() };
        assert!(candidates(model::Kind::RwLock, &read, 100, true).contains(&"bravo-shfl-rw".into()));
        let short = Features { hold_ns: 100, waiters: 2, ..Features::default() };
        assert!(candidates(model::Kind::Mutex, &short, 2, false).contains(&"ttas".into()));
    }
}
