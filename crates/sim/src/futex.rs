//! Sleeping on a word, as `futex(2)` does it.
//!
//! A queue per word, longest sleeper first. Each call takes the lock of the word's hash bucket, which
//! is a simulated cache line of its own. A wake costs the waker `wake` for each thread that it wakes,
//! and the woken thread can run `wakeup` later (plus the time that it then waits for a processor). The
//! memory behind a word may be gone: only its address is used.

use crate::access::Pending;
use crate::events::{Event, NS, Time};
use crate::lines::Kind;
use crate::simulation::{Simulation, access};
use crate::state::{Phase, State};
use latchwork::machine::{Deadline, Wait, Word};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;

/// The sleepers on each word. (Only ever looked up by key: the map's own order plays no part.)
#[derive(Default)]
pub(crate) struct Futexes(HashMap<usize, VecDeque<u32>>);

/// An address that nobody has, for the lock of a word's bucket.
fn bucket(address: usize) -> usize {
    !address
}

impl State {
    /// The running thread goes to sleep. Suspend afterwards.
    fn sleep(&mut self, address: usize, deadline: Option<Deadline>) {
        let id = self.running;
        let now = self.thread(id).time;
        let timer = deadline.map_or(0, |deadline| {
            self.events.plan(deadline.nanos.saturating_mul(NS).max(now), Event::Timer(id))
        });
        self.futexes.0.entry(address).or_default().push_back(id);
        let thread = self.thread(id);
        thread.phase = Phase::Sleeping;
        thread.pending = Pending::Nothing;
        thread.timer = timer;
        thread.sleeps_on = address;
        thread.slept = now.max(1);
        thread.counts.sleeps += 1;
        self.trace(now, u64::from(id) << 40 | 0xf0);
        self.leave_cpu(id, now);
        self.set_dormant(id, deadline.is_none());
    }

    /// Takes the longest sleeper.
    fn pop_sleeper(&mut self, address: usize) -> Option<u32> {
        let queue = self.futexes.0.get_mut(&address)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.futexes.0.remove(&address);
        }
        first
    }

    /// The running thread wakes up to `count`.
    fn wake(&mut self, address: usize, count: u32) -> usize {
        let mut woken = 0;
        while woken < count as usize {
            let Some(id) = self.pop_sleeper(address) else { break };
            let cost = self.costs.wake;
            let me = self.me();
            me.time += cost;
            me.counts.wakes += 1;
            let now = me.time;
            self.end_sleep(id, now, Wait::Woken);
            woken += 1;
        }
        woken
    }

    /// A sleeper's deadline has passed.
    pub(crate) fn sleep_is_over(&mut self, id: u32, now: Time, outcome: Wait) {
        let address = self.thread(id).sleeps_on;
        if let Some(queue) = self.futexes.0.get_mut(&address) {
            queue.retain(|sleeper| *sleeper != id);
            if queue.is_empty() {
                self.futexes.0.remove(&address);
            }
        }
        self.end_sleep(id, now, outcome);
    }

    fn end_sleep(&mut self, id: u32, now: Time, outcome: Wait) {
        let wakeup = self.costs.wakeup;
        let thread = self.thread(id);
        thread.outcome = outcome;
        thread.timer = 0;
        thread.phase = Phase::Stopped;
        let at = now.max(thread.time) + wakeup;
        self.events.plan(at, Event::Ready(id));
        self.trace(at, u64::from(id) << 40 | 0xf1);
        self.set_dormant(id, false);
    }

    /// Whether a wait returns for no reason.
    fn spurious(&mut self) -> bool {
        let chance = self.options.adversary.map_or(0.0, |adversary| adversary.spurious);
        self.rng.chance(chance)
    }
}

/// `Machine::wait`.
pub(crate) fn wait(
    sim: &Simulation,
    word: &crate::words::U32,
    expected: u32,
    deadline: Option<Deadline>,
) -> Wait {
    let address = std::ptr::from_ref(word).addr();
    sim.with(|s| {
        let syscall = s.costs.syscall;
        s.me().time += syscall;
    });
    access(bucket(address), Kind::Rmw);
    // Comparing and going to sleep are one step: nothing is suspended in between.
    if word.load(Relaxed) != expected {
        return Wait::Woken;
    }
    if sim.with(|s| deadline.is_some_and(|deadline| deadline.nanos.saturating_mul(NS) <= s.me().time)) {
        return Wait::TimedOut;
    }
    if sim.with(State::spurious) {
        return Wait::Woken;
    }
    sim.with(|s| s.sleep(address, deadline));
    sim.suspend();
    sim.with(|s| s.me().outcome)
}

/// `Machine::wake`.
pub(crate) fn wake(sim: &Simulation, address: usize, count: u32) -> usize {
    sim.with(|s| {
        let syscall = s.costs.syscall;
        s.me().time += syscall;
    });
    access(bucket(address), Kind::Rmw);
    sim.with(|s| s.wake(address, count))
}

/// `Machine::requeue`.
pub(crate) fn requeue(sim: &Simulation, from: *const crate::words::U32, expected: u32, to: usize) {
    sim.with(|s| {
        let syscall = s.costs.syscall;
        s.me().time += syscall;
    });
    access(bucket(from.addr()), Kind::Rmw);
    if !sim.with(|s| s.futexes.0.contains_key(&from.addr())) {
        return; // the word may be gone
    }
    // SAFETY: a sleeper is in the middle of a call on the word, so the word is there.
    if unsafe { &*from }.load(Relaxed) != expected {
        return;
    }
    sim.with(|s| {
        if let Some(id) = s.pop_sleeper(from.addr()) {
            s.thread(id).sleeps_on = to;
            s.futexes.0.entry(to).or_default().push_back(id);
        }
    });
}
