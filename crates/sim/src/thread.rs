//! A simulated thread: what it is doing, what it does next, and what the other parts of the state keep about it.

use crate::events::{NEVER, Time};
use crate::lines::{Kind, NONE};
use crate::report::Counts;
use crate::scheduler::{Averages, Entity};
use crate::streams::Streams;
use latchwork::machine::Wait;

/// Where the coroutine of a thread is suspended.
pub(crate) type Yielder = corosensei::Yielder<(), ()>;

/// What a simulated thread is doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// On a processor; executing, or an event says when it goes on.
    Running,
    /// On a processor, in the queue of a cache line.
    Queued,
    /// On a processor, looking at a line until it is written.
    Spinning,
    /// Waits for a processor.
    Ready,
    /// Sleeps on a word.
    Sleeping,
    /// Taken off by the adversary, or not started yet.
    Stopped,
    /// Done, or suspended for ever: nobody waits for it.
    Finished,
}

/// A predicate of a spinning thread, on its stack: looks at the word once more.
pub(crate) type Look = *mut (dyn FnMut() -> bool + 'static);

/// What a thread does when it next runs.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Pending {
    /// Goes on with its code.
    Nothing,
    /// An access; then it goes on.
    Access { address: usize, line: u32, kind: Kind },
    /// Computes for so long; then it goes on.
    Work(Time),
    /// Is done.
    Exit,
}

/// A simulated thread.
pub(crate) struct Thread {
    /// Its own clock; never behind the time of the event that it runs in.
    pub(crate) time: Time,
    pub(crate) phase: Phase,
    pub(crate) cpu: u32,
    /// When its buffered stores are done.
    pub(crate) drained: Time,
    /// From when on the scheduler wants to see it (see `scheduler.rs`).
    pub(crate) attention: Time,
    /// The line that it has just read and had to wait for: which, from when on, and until when.
    pub(crate) fetched: (u32, Time, Time),
    /// Its last full fence: from when on, and until when.
    pub(crate) fenced: (Time, Time),
    /// Whether it has stored anything since its last barrier.
    pub(crate) stored: bool,
    /// What the prefetcher knows about its loads.
    pub(crate) streams: Streams,
    /// Interrupts that it has to serve.
    pub(crate) interrupted: Time,
    /// When the adversary strikes.
    pub(crate) strike: Time,
    /// When it is suspended, and for how long.
    pub(crate) suspended: Time,
    pub(crate) absence: Time,
    /// What it does when it next runs.
    pub(crate) pending: Pending,
    /// It spins: the predicate, ...
    pub(crate) look: Option<Look>,
    /// ... when it gives up, ...
    pub(crate) give_up: Time,
    /// ... and whether it stands in the list of a line's spinners.
    pub(crate) linked: bool,
    /// Neighbours in the list of a line.
    pub(crate) next: u32,
    pub(crate) previous: u32,
    /// The number of the one timer event that counts; 0 if none does.
    pub(crate) timer: u32,
    /// It can only go on if another thread writes or wakes.
    pub(crate) dormant: bool,
    /// Attempts since anything in memory changed, and which change that was.
    pub(crate) idle: (u64, u32),
    /// How its sleep ended.
    pub(crate) outcome: Wait,
    /// What it sleeps on.
    pub(crate) sleeps_on: usize,
    /// Since when it has its processor.
    pub(crate) runs_since: Time,
    /// The time that it has had a processor, before that, in picoseconds; at least as much as other threads of the processor had
    /// when it woke up.
    pub(crate) vruntime: i64,
    /// What EEVDF keeps about it: its place among the threads of its processor, and what its time was used for.
    pub(crate) entity: Entity,
    pub(crate) averages: Averages,
    /// When it went to sleep, and when it last ran again after that.
    pub(crate) slept: Time,
    pub(crate) woken: Time,
    /// When it asked for a lock that it has not got yet.
    pub(crate) asked: Option<Time>,
    /// How many locks it has, as far as it was marked.
    pub(crate) holds: u32,
    /// Where its coroutine can be suspended.
    pub(crate) yielder: *const Yielder,
    pub(crate) counts: Counts,
}

impl Thread {
    pub(crate) fn new(start: Time, strike: Time) -> Self {
        Thread {
            time: start,
            phase: Phase::Stopped,
            cpu: 0,
            drained: 0,
            attention: NEVER,
            fetched: (NONE, 0, 0),
            fenced: (0, 0),
            stored: false,
            streams: Streams::default(),
            interrupted: 0,
            strike,
            suspended: NEVER,
            absence: NEVER,
            pending: Pending::Nothing,
            look: None,
            give_up: NEVER,
            linked: false,
            next: NONE,
            previous: NONE,
            timer: 0,
            dormant: false,
            idle: (0, 0),
            outcome: Wait::Woken,
            sleeps_on: 0,
            runs_since: Time::MAX,
            vruntime: 0,
            entity: Entity::default(),
            averages: Averages::default(),
            slept: 0,
            woken: 0,
            asked: None,
            holds: 0,
            yielder: std::ptr::null(),
            counts: Counts::default(),
        }
    }
}
