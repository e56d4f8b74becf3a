//! Threads that sleep on a word: the kernel's half of `futex(2)`. `machine/futex.rs` is the half that a thread executes.
//!
//! Each word has a queue, with the longest sleeper first. A wake costs the waker `wake` for each thread that it wakes, and the
//! woken thread can run `wakeup` later (plus the time that it then waits for a processor). Both cost less if the thread's processor is
//! awake: see `scheduler.rs`. The memory behind a word may be gone: only its address is used.

use crate::events::{Event, NS, Time};
use crate::lines::NONE;
use crate::state::State;
use crate::thread::{Pending, Phase};
use latchwork::machine::{Deadline, Wait};

impl State {
    /// The running thread goes to sleep. Suspend afterwards.
    pub(crate) fn sleep(&mut self, address: usize, deadline: Option<Deadline>) {
        let id = self.running;
        let now = self.thread(id).time;
        let timer = deadline.map_or(0, |deadline| {
            self.events.plan(deadline.nanos.saturating_mul(NS).max(now), Event::Timer(id))
        });
        self.sleepers.entry(address).or_default().push_back(id);
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
        let queue = self.sleepers.get_mut(&address)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.sleepers.remove(&address);
        }
        first
    }

    /// The running thread wakes up to `count`.
    pub(crate) fn wake(&mut self, address: usize, count: u32) -> usize {
        let mut woken = 0;
        while woken < count as usize {
            let Some(id) = self.pop_sleeper(address) else { break };
            let (waker, now) = (self.running, self.me().time);
            let cost = self.end_sleep(id, waker, now, Wait::Woken);
            let me = self.me();
            me.time += cost;
            me.counts.wakes += 1;
            woken += 1;
        }
        woken
    }

    /// A sleeper's deadline has passed.
    pub(crate) fn sleep_is_over(&mut self, id: u32, now: Time, outcome: Wait) {
        let address = self.thread(id).sleeps_on;
        if let Some(queue) = self.sleepers.get_mut(&address) {
            queue.retain(|sleeper| *sleeper != id);
            if queue.is_empty() {
                self.sleepers.remove(&address);
            }
        }
        self.end_sleep(id, NONE, now, outcome);
    }

    /// Returns what that costs the waker, if it is a thread.
    fn end_sleep(&mut self, id: u32, waker: u32, now: Time, outcome: Wait) -> Time {
        let thread = self.thread(id);
        thread.outcome = outcome;
        thread.timer = 0;
        let cost = self.wake_up(id, waker, now);
        self.set_dormant(id, false);
        cost
    }

    /// Moves the longest sleeper at one word to the end of the queue of another.
    pub(crate) fn requeue(&mut self, from: usize, to: usize) {
        if let Some(id) = self.pop_sleeper(from) {
            self.thread(id).sleeps_on = to;
            self.sleepers.entry(to).or_default().push_back(id);
        }
    }

    /// Whether a wait returns for no reason.
    pub(crate) fn spurious(&mut self) -> bool {
        let chance = self.options.adversary.map_or(0.0, |adversary| adversary.spurious);
        self.rng.chance(chance)
    }
}
