//! Sleeping and waking, as `futex(2)` does it; the lines of a trace; and the mistakes that concern single stores.

use super::plan::{Chance, Kind};
use super::*;
use std::sync::atomic::Ordering;

impl State {
    /// Whether a futex wait returns for no reason.
    pub(in crate::explore) fn is_spurious(&mut self) -> bool {
        let decide =
            |chance: &mut Chance| u32::from(chance.spurious > 0 && chance.happens(1, chance.spurious));
        self.decide(Kind::Spurious, 0, decide) != 0
    }

    pub(super) fn sleep(&mut self, address: usize, deadline: Option<u64>) {
        let me = self.running;
        if address != 0 {
            self.sleepers.push_back((address, me));
        }
        match deadline {
            Some(WHEN_TORN) => self.threads[me].until_torn = Some(self.step),
            Some(deadline) => self.end_by(me, deadline),
            None => (),
        }
    }

    /// The sleep of a thread has a deadline.
    fn end_by(&mut self, sleeper: usize, deadline: u64) {
        let after = self.decide(Kind::Expire, 0, |chance| {
            if chance.happens(chance.expires, 8) { 1 + chance.rng.below(60) as u32 } else { 0 }
        });
        self.threads[sleeper].deadline = Some(deadline);
        self.threads[sleeper].expires = self.step + if after == 0 { LONGEST } else { after };
        self.timed |= 1 << sleeper;
    }

    /// A store has released a lock. It is torn for a thread that went to sleep after the look: that one may get no wakeup, and wakes
    /// up by itself.
    pub(super) fn tear(&mut self, address: usize, looked: u32) {
        for at in 0..self.sleepers.len() {
            let (word, sleeper) = self.sleepers[at];
            if word == address && self.threads[sleeper].until_torn.is_some_and(|slept| slept > looked) {
                if self.trace.is_some() {
                    self.note(format!("(the release is torn for thread {sleeper})"));
                }
                self.threads[sleeper].until_torn = None;
                self.end_by(sleeper, self.time() + TORN_NS);
                self.plan();
            }
        }
    }

    pub(in crate::explore) fn wake(&mut self, address: usize, count: u32) -> usize {
        if self.mistake == Mistake::DroppedWake {
            return 0;
        }
        let mut woken = 0;
        while woken < count as usize {
            let Some(at) = self.sleepers.iter().position(|(word, _)| *word == address) else { break };
            let (_, thread) = self.sleepers.remove(at).expect("found there");
            if self.trace.is_some() {
                self.note(format!("(wakes thread {thread})"));
            }
            self.wake_thread(thread, Wait::Woken);
            woken += 1;
        }
        woken
    }

    pub(in crate::explore) fn sleeps_somebody(&self, address: usize) -> bool {
        self.sleepers.iter().any(|(word, _)| *word == address)
    }

    pub(in crate::explore) fn requeue(&mut self, from: usize, to: usize) {
        if let Some(at) = self.sleepers.iter().position(|(word, _)| *word == from) {
            let (_, thread) = self.sleepers.remove(at).expect("found there");
            self.sleepers.push_back((to, thread));
            if let Status::Sleeps(_) = self.threads[thread].status {
                self.threads[thread].status = Status::Sleeps(to);
            }
            if self.trace.is_some() {
                let (from, to) = (self.name(from), self.name(to));
                self.note(format!("(thread {thread}, which slept on {from}, sleeps on {to} now)"));
            }
        }
    }

    /// The running thread begins or ends an operation that may wait.
    pub(in crate::explore) fn set_waits(&mut self, waits: bool) {
        self.threads[self.running].waits = waits;
        if waits && self.freeze.is_some() {
            self.plan();
        }
    }

    /// Whether the machine loses this store, by mistake.
    #[inline]
    pub(in crate::explore) fn loses(&self, place: Place, value: u64, order: Ordering) -> bool {
        match self.mistake {
            Mistake::LostSkip => value == 2 && order == Ordering::Release,
            Mistake::LostLink => order == Ordering::Relaxed && value != 0 && is_pointer(value),
            Mistake::OpenRing => value as usize == place.address,
            _ => false,
        }
    }

    pub(in crate::explore) fn note(&mut self, text: String) {
        let thread = self.running;
        if let Some(trace) = &mut self.trace {
            trace.push(Line { thread, text });
        }
    }

    /// What a word is called in a trace.
    pub(in crate::explore) fn name(&self, address: usize) -> String {
        let stack = || {
            let mut stacks = self.stack_ranges.iter().enumerate();
            let (thread, (_, high)) = stacks.find(|(_, (low, high))| (*low..*high).contains(&address))?;
            Some(format!("stack {thread}-{:#x}", high - address))
        };
        let labelled = self.arena.name(address);
        let named = labelled.or_else(|| self.surroundings.name(address)).or_else(stack);
        named.unwrap_or_else(|| format!("{address:#x}"))
    }

    /// A value in a trace: a number, or what it points to.
    fn value(&self, value: u64) -> String {
        if !is_pointer(value) {
            return if value < 10 { value.to_string() } else { format!("{value:#x}") };
        }
        let name = self.name(value as usize);
        match name.strip_suffix(".link0") {
            Some(node) => format!("&{node}"),
            None => format!("&{name}"),
        }
    }

    #[cold]
    #[inline(never)]
    pub(in crate::explore) fn trace_access(
        &mut self,
        place: Place,
        name: &str,
        old: Option<u64>,
        new: Option<u64>,
    ) {
        let word = self.name(place.address);
        let value = |value: u64| self.value(value);
        let values = match (old, new) {
            (Some(old), Some(new)) if old == new => format!("{}, unchanged", value(old)),
            (Some(old), Some(new)) => format!("{} -> {}", value(old), value(new)),
            (Some(only), None) | (None, Some(only)) => value(only),
            (None, None) => String::new(),
        };
        self.note(format!("{name} {word}: {values}"));
    }
}

/// Whether a value can be an address.
fn is_pointer(value: u64) -> bool {
    value > u64::from(u32::MAX)
}
