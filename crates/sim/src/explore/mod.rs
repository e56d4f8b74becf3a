//! Exploring schedules: the same lock source under many schedules of larger clients than loom can have.
//!
//! [`Explore`] implements [`Machine`](latchwork::machine::Machine) without costs: an access to a word is a step, at
//! which another thread may take over. Memory is that of x86-64, with a store buffer for each thread. A [`Target`] is a
//! lock with clients that are made by chance from its kind, and a shadow state that says what must hold.
//!
//! ```
//! use latchwork::locks::mutex::mcs::RawMcs;
//! use latchwork_sim::explore::{Settings, Target};
//!
//! let outcome = Target::mutex::<RawMcs<_>>().explore(&Settings::default(), 0..1000);
//! assert!(outcome.failure.is_none());
//! ```
//!
//! `docs/exploring.md` describes the machine, the clients, and what they find and do not find.

mod arena;
mod client;
mod coverage;
mod engine;
mod keep;
mod machine;
mod map;
mod mutex;
mod place;
mod plan;
mod reclamation;
mod rwlock;
mod search;
mod semaphore;
mod seqlock;
mod subject;
mod tables;
mod words;
mod world;

use engine::trace;
use plan::Strategy;

pub use keep::Keeping;
pub use machine::Explore;
pub use search::{Failure, Outcome, Settings, Target, explore_all, targets};

/// A seeded mistake: the machine breaks one promise, and the exploration has to notice what that does to the
/// locks that rely on it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// None: the machine keeps all its promises.
    None,
    /// The heavy fence does nothing.
    NoHeavyFence,
    /// A full fence does nothing.
    NoFullFence,
    /// What a thread loads next after a light fence is 0.
    NoSecondLook,
    /// A thread gets a row of slots that does not say that it is taken.
    UntakenRow,
    /// A thread that exits gives its row back, though another thread may still end its reads; and its record.
    EarlyReturn,
    /// A scan of the threads' records does not see the newest.
    SkipsReader,
    /// A thread gets a record that does not say that it is taken.
    UntakenRecord,
    /// A thread does not look at those below it in its group of records.
    BlindVoucher,
    /// A sleep that misses its wakeup because a release was torn does not end by itself.
    NoTornTimeout,
    /// `release_if` does not look whether a thread waits.
    BlindRelease,
    /// `wake` wakes nobody.
    DroppedWake,
    /// `wait` does not compare the word.
    SleepsUnseen,
    /// A load of a slot for visible readers sees nobody.
    BlindScan,
    /// A node counts as free from the moment it is handed out.
    NodeTooEarly,
    /// Each thread has a waiting array of its own.
    PrivateArray,
    /// A relaxed store of a pointer is lost.
    LostLink,
    /// A pointer to the node that it is stored in is lost.
    OpenRing,
    /// A release store of 2 is lost.
    LostSkip,
    /// An exchange of null for null says that null was there.
    SeenCleared,
    /// A waiter of a condition variable takes its ticket after it has counted itself in.
    LateTicket,
    /// An update of a map looks at the key, and then sets it in a second step.
    TornUpdate,
}

impl Mistake {
    /// All that can be made.
    pub const ALL: [Mistake; 21] = [
        Mistake::NoHeavyFence,
        Mistake::NoFullFence,
        Mistake::NoSecondLook,
        Mistake::UntakenRow,
        Mistake::EarlyReturn,
        Mistake::SkipsReader,
        Mistake::UntakenRecord,
        Mistake::BlindVoucher,
        Mistake::NoTornTimeout,
        Mistake::BlindRelease,
        Mistake::DroppedWake,
        Mistake::SleepsUnseen,
        Mistake::BlindScan,
        Mistake::NodeTooEarly,
        Mistake::PrivateArray,
        Mistake::LostLink,
        Mistake::OpenRing,
        Mistake::LostSkip,
        Mistake::SeenCleared,
        Mistake::LateTicket,
        Mistake::TornUpdate,
    ];
}
