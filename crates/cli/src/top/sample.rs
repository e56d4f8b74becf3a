//! What happened between two looks at a recording that grows.

use crate::live::stuck::Stuck;
use crate::profile::join;
use crate::profile::model::{Class, Kind, Profile};
use crate::profile::symbols::Symbols;
use clap::ValueEnum;
use latchwork_recording::reader::Recording;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Instant;

/// What rows are sorted by.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Time that threads waited for the lock
    #[default]
    Wait,
    /// Acquisitions that had to wait
    Contended,
    /// Acquisitions
    Acquisitions,
    /// Mean time that the lock was held
    Hold,
}

/// What one class of locks did.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub acquisitions: u64,
    pub reads: u64,
    pub contended: u64,
    /// Calls that gave up at a deadline. They are in `contended`, and not in `acquisitions`.
    pub timeouts: u64,
    /// Waiting time, also of waits that have not ended.
    pub wait_ns: u64,
    /// Of the holds that were measured.
    pub hold_ns: u64,
    pub holds: u64,
}

impl Figures {
    fn of(class: &Class) -> Self {
        Self {
            acquisitions: class.acquisitions,
            reads: class.reads,
            contended: class.contended,
            timeouts: class.timeouts,
            wait_ns: class.lost_ns(),
            hold_ns: class.holds.sum_ns,
            holds: class.holds.count,
        }
    }

    /// Without what was there before. Each figure is read at another moment, so one may seem to shrink.
    fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// With those of processes that have ended.
    fn and(&self, more: &Self) -> Self {
        self.with(more, u64::saturating_add)
    }

    fn with(&self, other: &Self, of_both: fn(u64, u64) -> u64) -> Self {
        Self {
            acquisitions: of_both(self.acquisitions, other.acquisitions),
            reads: of_both(self.reads, other.reads),
            contended: of_both(self.contended, other.contended),
            timeouts: of_both(self.timeouts, other.timeouts),
            wait_ns: of_both(self.wait_ns, other.wait_ns),
            hold_ns: of_both(self.hold_ns, other.hold_ns),
            holds: of_both(self.holds, other.holds),
        }
    }

    /// Calls that got a lock, and those that gave up at a deadline.
    pub fn calls(&self) -> u64 {
        self.acquisitions.saturating_add(self.timeouts)
    }

    /// The mean hold, if one was measured.
    pub fn hold_mean_ns(&self) -> Option<u64> {
        self.hold_ns.checked_div(self.holds)
    }

    fn key(&self, order: Order) -> u64 {
        match order {
            Order::Wait => self.wait_ns,
            Order::Contended => self.contended,
            Order::Acquisitions => self.acquisitions,
            Order::Hold => self.hold_mean_ns().unwrap_or(0),
        }
    }
}

/// A class of locks.
#[derive(Clone, Debug)]
pub struct Row {
    /// A number in [`Profile::locks`].
    pub lock: usize,
    pub name: String,
    pub kind: Kind,
    pub instances: u64,
    /// Threads that wait now.
    pub waiting: u64,
    /// In the last interval.
    pub last: Figures,
    /// Since the recording began.
    pub all: Figures,
}

/// One look.
#[derive(Debug, Default)]
pub struct Sample {
    /// Length of the last interval.
    pub seconds: f64,
    /// Since the recording began.
    pub total_seconds: f64,
    /// Threads that use locks and live.
    pub threads: usize,
    /// Threads that sleep in a futex, also since before the recording began.
    pub asleep: usize,
    /// What is known of these.
    pub stuck: Stuck,
    pub rows: Vec<Row>,
    pub profile: Profile,
}

impl Sample {
    /// The rows in order: of the last interval, or of the whole recording.
    pub fn sorted(&self, order: Order, whole: bool) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| {
            let figures = row.figures(whole);
            Reverse((figures.key(order), figures.wait_ns, figures.acquisitions, row.all.wait_ns))
        });
        rows
    }

    /// The time that figures are of.
    pub fn time(&self, whole: bool) -> f64 {
        if whole { self.total_seconds } else { self.seconds }
    }
}

impl Row {
    pub fn figures(&self, whole: bool) -> &Figures {
        if whole { &self.all } else { &self.last }
    }
}

/// A recording that is looked at again and again.
pub struct Watch {
    symbols: Symbols,
    before: HashMap<(Kind, String), Figures>,
    /// The figures of forked processes that have ended, whose recordings were removed.
    ended: HashMap<(Kind, String), Figures>,
    begun: Instant,
    looked: Instant,
}

impl Watch {
    /// For a recording that begins now.
    pub fn new() -> Self {
        let now = Instant::now();
        let (before, ended) = (HashMap::new(), HashMap::new());
        Self { symbols: Symbols::default(), before, ended, begun: now, looked: now }
    }

    /// Begins anew, for a recording that begins now. Files that were looked into stay open.
    pub fn restart(&mut self) {
        *self = Self { symbols: std::mem::take(&mut self.symbols), ..Self::new() };
    }

    /// Keeps the figures of recordings that are read no more.
    pub fn keep(&mut self, recordings: &[Recording]) {
        if recordings.is_empty() {
            return;
        }
        for class in &join::join_again(recordings, &mut self.symbols).locks {
            let figures = self.ended.entry((class.kind, class.key.clone())).or_default();
            *figures = figures.and(&Figures::of(class));
        }
    }

    /// Looks at what was read of it just now.
    pub fn look(&mut self, recordings: &[Recording]) -> Sample {
        // Looking up names takes a while.
        let now = Instant::now();
        let profile = join::join_again(recordings, &mut self.symbols);
        let sample = self.compare(profile, now);
        self.looked = now;
        sample
    }

    fn compare(&mut self, profile: Profile, now: Instant) -> Sample {
        let mut rows = Vec::new();
        for (lock, class) in profile.locks.iter().enumerate() {
            let key = (class.kind, class.key.clone());
            let ended = self.ended.get(&key).copied().unwrap_or_default();
            let all = Figures::of(class).and(&ended);
            let before = self.before.insert(key, all).unwrap_or_default();
            rows.push(Row {
                lock,
                name: class.name.clone(),
                kind: class.kind,
                instances: class.instances,
                waiting: class.waiting.threads,
                last: all.since(&before),
                all,
            });
        }
        Sample {
            seconds: now.duration_since(self.looked).as_secs_f64(),
            total_seconds: now.duration_since(self.begun).as_secs_f64(),
            threads: profile.threads.iter().filter(|thread| thread.lives).count(),
            asleep: 0,
            stuck: Stuck::default(),
            rows,
            profile,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::profile::sample;
    use std::time::Duration;

    /// Two looks at the sample profile: nothing happened in between, but for one lock.
    pub fn looks() -> [Sample; 2] {
        let mut watch = Watch::new();
        let begin = watch.begun;
        let first = watch.compare(sample::profile(), begin + Duration::from_secs(10));
        watch.looked = begin + Duration::from_secs(10);
        let mut later = sample::profile();
        later.locks[1].acquisitions += 500;
        later.locks[1].contended += 5;
        later.threads[0].lives = false;
        // Another lock has the same name now, so this one's is longer.
        later.locks[1].name += " (table.cc)";
        later.locks[1].waiting.add(500_000_000, 0);
        later.locks[1].waiting.add(500_000_000, 0);
        [first, watch.compare(later, begin + Duration::from_secs(11))]
    }

    #[test]
    fn an_interval_is_the_difference_of_two_looks() {
        let [first, second] = looks();
        assert_eq!(first.rows[0].last, first.rows[0].all);
        assert_eq!((second.seconds, second.total_seconds), (1.0, 11.0));
        assert_eq!(second.rows[0].last, Figures::default());
        // A thread has ended meanwhile.
        assert_eq!((first.threads, second.threads), (10, 9));
        let last = second.rows[1].last;
        assert_eq!((last.acquisitions, last.contended), (500, 5));
        // Two threads have waited for half a second each, and still do.
        assert_eq!(last.wait_ns, 1_000_000_000);
        // The order of the last second is another than that of the whole.
        assert_eq!(second.sorted(Order::Wait, false)[0].lock, 1);
        assert_eq!(second.sorted(Order::Wait, true)[0].lock, 0);
        let most = second.sorted(Order::Acquisitions, true)[0].all.acquisitions;
        assert!(second.rows.iter().all(|row| row.all.acquisitions <= most));
    }
}
