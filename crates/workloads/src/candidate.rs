//! What is known of a lock, or of another way to synchronize, that workloads can run with.

/// A lock that workloads can run with, by name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// As the user types it.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Whether waiters sleep after a while.
    pub blocking: bool,
    /// Where it comes from.
    pub origin: Origin,
}

/// What a workload can run with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Mutual exclusion.
    Mutex,
    /// Readers and writers.
    RwLock,
    /// Words that readers copy.
    SeqLock,
    /// A way to synchronize a table that is more than a lock.
    Strategy,
}

impl Kind {
    /// As a user types it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
            Kind::SeqLock => "seqlock",
            Kind::Strategy => "strategy",
        }
    }
}

/// Where a lock comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This library: it runs on any machine.
    Latchwork,
    /// Not a lock to use, but one to compare with; runs on any machine.
    Yardstick,
    /// Another library; runs on this machine only.
    Peer,
}
