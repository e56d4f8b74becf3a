//! What is explored: a lock (or a strategy) with the shadow state that says what must hold.

use super::client::{Client, What};
use super::engine::{Engine, inside};
use crate::rng::Rng;

/// A lock and its shadow state, for one schedule.
pub(super) trait Subject: Sized {
    /// A client by chance.
    fn client(rng: &mut Rng) -> Client;

    /// Whether a client that was made smaller still comes to its end.
    fn valid(_: &Client) -> bool {
        true
    }

    /// Another operation for a thread of this client, if that may have any.
    fn another(_: &Client, _: &mut Rng) -> Option<What> {
        None
    }

    /// In the arena, and with everything done that comes before the threads.
    fn new(engine: &Engine, client: &Client) -> Self;

    /// What a thread does.
    fn run(&self, client: &Client, thread: usize);

    /// What one more thread does and checks when the others have come to their end.
    fn after(&self, client: &Client);
}

/// The engine of the running thread.
pub(super) fn here<'a>() -> &'a Engine {
    inside().expect("called by a thread of a schedule")
}

/// The running thread begins the operation of this number.
pub(super) fn begin(number: usize) {
    here().work();
    here().with(|s| s.begin_operation(number));
}

/// A check of a shadow state.
#[track_caller]
pub(super) fn check(holds: bool, message: impl FnOnce() -> String) {
    if !holds {
        here().fail(message());
    }
}

/// The number of the running thread.
pub(super) fn me() -> usize {
    here().with(|s| s.running)
}

/// A line of the trace, if there is one.
pub(super) fn note(text: impl FnOnce() -> String) {
    here().with(|s| {
        if s.trace.is_some() {
            s.note(text());
        }
    });
}

/// Nanoseconds of a long section.
const LONG: u64 = 100_000;

/// The section of an operation.
pub(super) fn hold(how: u8) {
    match how {
        0 => (),
        1 => (0..2).for_each(|_| here().work()),
        2 => (0..6).for_each(|_| here().work()),
        _ => {
            // Until nobody else can go on, or a time that chance chooses.
            let deadline = here().with(|s| s.time()) + LONG;
            here().sleep(0, Some(deadline));
        }
    }
}

/// How long timed operations wait at most, in nanoseconds, by the length of their section.
pub(super) const TIMEOUTS: [u64; 4] = [0, 1_000, 500_000, 20_000_000];

/// An operation that is going on, from its beginning to its end: counted, so that an attempt that fails knows
/// whether there was a reason.
pub(super) struct Going {
    alone: bool,
    begun: u32,
}

impl Going {
    /// An operation begins. `held`: a thread has the lock, and is in no operation.
    pub(super) fn begin(held: bool) -> Going {
        here().with(|s| {
            let alone = !held && s.going == 0 && s.no_stores_elsewhere();
            s.begun += 1;
            s.going += 1;
            Going { alone, begun: s.begun }
        })
    }

    /// An attempt has failed. It must not if nobody else has used the lock from its beginning on.
    pub(super) fn failed(&self, what: &str) {
        let alone = self.alone && here().with(|s| s.begun) == self.begun;
        check(!alone, || format!("{what} failed though the lock was free and nobody else used it"));
    }

    pub(super) fn end(self) {
        here().with(|s| s.going -= 1);
    }
}

/// Runs what may wait. A thread may be stopped there for ever, if that is asked for.
pub(super) fn waiting<R>(operation: impl FnOnce() -> R) -> R {
    here().with(|s| s.set_waits(true));
    let result = operation();
    here().with(|s| s.set_waits(false));
    result
}
