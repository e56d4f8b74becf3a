//! What a run gives back, and the marks from which it is computed.

use crate::events::{NS, Time};
use hdrhistogram::Histogram;

/// Counts of one thread.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations on words.
    pub accesses: u64,
    /// Of these, those for which a cache line had to come from elsewhere, or others had to give up
    /// their copies.
    pub misses: u64,
    /// Of the misses, those in which another node took part.
    pub remote: u64,
    /// Atomic read-modify-writes.
    pub atomics: u64,
    /// Full fences, and on a machine with weak ordering the barriers of acquisitions and releases.
    pub fences: u64,
    /// How often it woke another thread.
    pub wakes: u64,
    /// How often it slept.
    pub sleeps: u64,
    /// How often it was taken off its processor while it could run.
    pub preemptions: u64,
    /// Nanoseconds asleep.
    pub parked_ns: u64,
    /// When it finished.
    pub end_ns: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.accesses += other.accesses;
        self.misses += other.misses;
        self.remote += other.remote;
        self.atomics += other.atomics;
        self.fences += other.fences;
        self.wakes += other.wakes;
        self.sleeps += other.sleeps;
        self.preemptions += other.preemptions;
        self.parked_ns += other.parked_ns;
        self.end_ns = self.end_ns.max(other.end_ns);
    }
}

/// What a run gives back. What comes from [`acquired`](crate::acquired) and its like is 0 in
/// workloads that do not call them.
#[derive(Clone, Debug)]
pub struct Report {
    /// Simulated time, until the last thread finished.
    pub simulated_ns: u64,
    /// Of each thread.
    pub threads: Vec<Counts>,
    /// Their sum.
    pub total: Counts,
    /// Events of the simulation.
    pub events: u64,
    /// A hash of the trace (every access, with time, thread, line and kind): the same for the same
    /// machine, options and bodies.
    pub trace_hash: u64,
    /// Distinct cache lines touched.
    pub lines: u64,
    /// Acquisitions that were marked.
    pub acquisitions: u64,
    /// Of these, those of a lock that another thread had before.
    pub handovers: u64,
    /// Of these, those where that thread was on another node.
    pub remote_handovers: u64,
    /// Acquisitions by a thread that was still being woken when the lock became free.
    pub critical_wakeups: u64,
    /// Nanoseconds from [`acquiring`](crate::acquiring) to [`acquired`](crate::acquired).
    pub waits: Histogram<u64>,
}

impl Report {
    /// Acquisitions of a lock that a thread on another node held last, as a share of all.
    pub fn remote_handover_fraction(&self) -> f64 {
        share(self.remote_handovers, self.acquisitions)
    }

    /// The share of all threads' time that they were asleep.
    pub fn parked_share(&self) -> f64 {
        share(self.total.parked_ns, self.threads.iter().map(|thread| thread.end_ns).sum())
    }

    /// The wait that this share of the acquisitions did not exceed, in nanoseconds.
    pub fn wait_quantile(&self, share: f64) -> u64 {
        self.waits.value_at_quantile(share)
    }

    /// The longest wait, in nanoseconds.
    pub fn longest_wait(&self) -> u64 {
        self.waits.max()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The last holder of a lock.
#[derive(Copy, Clone)]
struct Last {
    thread: u32,
    node: u16,
    released: Time,
}

/// What the marks have told so far.
pub(crate) struct Marks {
    locks: Vec<Option<Last>>,
    acquisitions: u64,
    handovers: u64,
    remote_handovers: u64,
    critical_wakeups: u64,
    waits: Histogram<u64>,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Marks {
            locks: Vec::new(),
            acquisitions: 0,
            handovers: 0,
            remote_handovers: 0,
            critical_wakeups: 0,
            waits: Histogram::new(3).expect("three digits are allowed"),
        }
    }

    fn lock(&mut self, lock: usize) -> &mut Option<Last> {
        if lock >= self.locks.len() {
            self.locks.resize(lock + 1, None);
        }
        &mut self.locks[lock]
    }

    /// `woken`: when the thread last began to run after a sleep.
    pub(crate) fn acquired(
        &mut self,
        lock: usize,
        thread: u32,
        node: u16,
        woken: Time,
        asked: Option<Time>,
        now: Time,
    ) {
        let last = *self.lock(lock);
        self.acquisitions += 1;
        if let Some(last) = last.filter(|last| last.thread != thread) {
            self.handovers += 1;
            self.remote_handovers += u64::from(last.node != node);
            self.critical_wakeups += u64::from(woken > last.released);
        }
        if let Some(asked) = asked {
            self.waits.record((now - asked.min(now)) / NS).expect("it grows as needed");
        }
    }

    pub(crate) fn released(&mut self, lock: usize, thread: u32, node: u16, now: Time) {
        *self.lock(lock) = Some(Last { thread, node, released: now });
    }

    pub(crate) fn into_report(
        self,
        threads: Vec<Counts>,
        events: u64,
        trace_hash: u64,
        lines: u64,
    ) -> Report {
        let mut total = Counts::default();
        threads.iter().for_each(|counts| total += *counts);
        Report {
            simulated_ns: total.end_ns,
            threads,
            total,
            events,
            trace_hash,
            lines,
            acquisitions: self.acquisitions,
            handovers: self.handovers,
            remote_handovers: self.remote_handovers,
            critical_wakeups: self.critical_wakeups,
            waits: self.waits,
        }
    }
}
