//! Processors, and which thread has which.
//!
//! What is modelled, with the numbers of `Profile::kernel`:
//!
//! - *More threads than processors.* Each processor has a queue. A thread runs until it sleeps, ends,
//!   or has had its `quantum` while others wait; the next one runs after a `context_switch`. A
//!   processor that runs out of threads steals one: from its own node first, from the longest queue.
//! - *Moves.* A thread that is stolen, or woken on another processor, finds its lines where it has left them: the next access to each
//!   is a transfer from there (`lines.rs`). Nothing is charged beside that and the `context_switch`.
//! - *Spinning threads make room.* One that spins without end offers its processor to those that wait
//!   for it after 64 looks, as the native machine's `spin_until` does; it spins on when its turn comes.
//! - *Wake-ups.* A woken thread returns to its last processor if that is idle. Otherwise it goes to an idle processor of the
//!   same node, or else to any idle one. If none is idle, it queues at its last processor. It can run `wakeup` after the
//!   wake, or `wakeup_soon` if that processor was not idle for long. A processor goes on for `falls_asleep` after its last thread
//!   went to sleep; a wake in that time costs `wake_early` and `wakeup_early`.
//! - *Preemption by woken threads*, where the profile has `wakeup_busy`. If no processor is idle, the woken thread takes the place
//!   of its last processor's current thread, unless it has had more processor time than that one. It forgets
//!   the processor time of others that it has missed while it slept. The thread that is preempted goes on as soon as the other
//!   one leaves. If the processor is the waker's own, that is at the end of the waker's system call, and no processor is interrupted.
//! - *EEVDF*, where the profile has `[eevdf]`: the rules of Linux from 6.6 on say which of a processor's threads runs and for how long
//!   (`eevdf.rs`), to which processor a woken thread goes (`selection.rs`), and what an idle processor takes from others
//!   (`balance.rs`). They replace the quantum and the choices of the two rules about woken threads; what a wake-up takes stays.
//! - *Interrupts* (`membarrier`) stop a running thread for a moment.
//! - *Pauses*, where the profile has `pause_every`: timer ticks, other interrupts, and what the host of a virtual machine takes.
//!   Their intervals and lengths are exponentially distributed. Without them, threads that hand over to each other by context
//!   switches of equal length stay in step for ever, where on a machine the order changes in a millisecond.
//! - *SMT.* Computing takes `smt_slowdown` times as long while the core's other thread is busy.
//! - *The adversary* stops threads at random.
//!
//! A running thread is not looked at on every operation: its `attention` says from what time on
//! the scheduler has something for it ([`State::attend`]).

mod balance;
mod eevdf;
mod selection;
mod wakeups;

use crate::events::{Event, NEVER, NS, Time};
use crate::lines::NONE;
use crate::options::Placement;
use crate::rng::Rng;
use crate::state::State;
use crate::thread::{Pending, Phase, Thread};

pub(crate) use eevdf::Entity;
pub(crate) use selection::Averages;

/// Looks at a word before a spinning thread makes room (as `SPINS_BEFORE_YIELD` of the native machine).
const LOOKS: Time = 64;
/// For how long an idle processor waits for a wake before it sleeps (Linux's `guest_halt_poll_ns` is 50 microseconds where this
/// was measured; `kernel.wakeup` is measured after 200).
const IDLE_SOON: Time = 50_000 * NS;
/// Computing is cut into pieces of this length, so that preemption comes in time.
const PIECE: Time = 20_000 * NS;
/// The same where woken threads preempt others: no longer than such a wake-up takes.
const SHORT_PIECE: Time = 2000 * NS;
/// How soon after an acquisition the adversary stops a holder.
const HOLDER: Time = 1000 * NS;

impl State {
    /// Plans the start of each thread.
    pub(crate) fn start(&mut self, threads: usize) {
        let spread = self.options.spread_ns.unwrap_or(1000 * threads as u64).saturating_mul(NS);
        if let Some((every, _)) = self.costs.pauses {
            for cpu in 0..self.cpus.len() {
                self.cpus[cpu].pauses_at = self.rng.exponential(every);
            }
        }
        // A generator of its own: the starts depend on the seed and on the number of threads alone.
        let mut rng = Rng::new(self.options.seed);
        rng.next();
        for thread in 0..threads {
            let start = rng.below(spread.saturating_add(1));
            let strike = self.next_strike(start);
            self.threads.push(Thread::new(start, strike));
            self.threads[thread].cpu = self.place(thread) as u32;
            self.events.plan(start, Event::Ready(thread as u32));
        }
    }

    /// The processor on which thread number `thread` starts.
    pub(crate) fn place(&self, thread: usize) -> usize {
        let cpus = self.topology.cpus.len();
        match self.options.placement {
            Placement::FirstFill => thread % cpus,
            Placement::RoundRobin => {
                let (thread, nodes) = (thread % cpus, self.topology.nodes);
                self.topology.cpus_of((thread % nodes) as u16).start + thread / nodes
            }
        }
    }

    /// When the adversary strikes next, after `from`.
    pub(crate) fn next_strike(&mut self, from: Time) -> Time {
        match self.options.adversary {
            Some(adversary) => from + 1 + self.rng.exponential(adversary.every_ns.saturating_mul(NS)),
            None => NEVER,
        }
    }

    /// The running thread has just got a lock.
    pub(crate) fn tempt_adversary(&mut self) {
        let Some(adversary) = self.options.adversary else { return };
        if self.rng.chance(adversary.holder) {
            let soon = self.rng.below(HOLDER);
            let thread = self.me();
            thread.strike = thread.time + soon;
            thread.attention = thread.attention.min(thread.strike);
        }
    }

    /// The processor time of a thread.
    fn vruntime(&self, id: u32, now: Time) -> i64 {
        let thread = &self.threads[id as usize];
        thread.vruntime + now.saturating_sub(thread.runs_since) as i64
    }

    fn idle_cpu(&self, last: usize) -> Option<usize> {
        let idle = |cpu: &usize| self.cpus[*cpu].current == NONE;
        let node = self.topology.cpus[last].node;
        Some(last)
            .filter(idle)
            .or_else(|| self.topology.cpus_of(node).find(idle))
            .or_else(|| (0..self.cpus.len()).find(idle))
    }

    /// Gives a processor to a thread.
    fn dispatch(&mut self, cpu: usize, id: u32, at: Time) {
        self.average(id, at);
        let at = at.max(self.threads[id as usize].time);
        self.cpus[cpu].current = id;
        self.cpus[cpu].preempted = false;
        self.cpus[cpu].slice_end = at.saturating_add(self.costs.quantum);
        self.thread(id).runs_since = at;
        if self.is_eevdf() {
            self.picked(id, at);
        }
        let missed = self.threads[id as usize].strike <= at;
        let strike = if missed { self.next_strike(at) } else { self.threads[id as usize].strike };
        let thread = self.thread(id);
        thread.cpu = cpu as u32;
        thread.time = at;
        thread.phase = Phase::Running;
        thread.strike = strike;
        if thread.slept > 0 {
            thread.counts.parked_ns += (at - thread.slept) / NS;
            thread.slept = 0;
            thread.woken = at;
        }
        self.events.plan(at, Event::Run(id));
        self.reset_attention(id);
    }

    fn reset_attention(&mut self, id: u32) {
        let cpu = &self.cpus[self.threads[id as usize].cpu as usize];
        let slice_end = if cpu.queue.is_empty() { NEVER } else { cpu.slice_end };
        let of_cpu = slice_end.min(cpu.pauses_at);
        // A thread that is alone would never come back to the loop over the events.
        let limit = self.limit;
        let thread = self.thread(id);
        let next = thread.strike.min(thread.suspended).min(of_cpu).min(limit);
        thread.attention = if thread.interrupted > 0 { 0 } else { next };
    }

    /// A thread waits for a processor.
    fn enqueue(&mut self, cpu: usize, id: u32, now: Time) {
        self.cpus[cpu].queue.push_back(id);
        self.queued(cpu, id, now);
    }

    /// A thread stands in the queue of a processor that runs another one.
    fn queued(&mut self, cpu: usize, id: u32, now: Time) {
        self.thread(id).phase = Phase::Ready;
        self.thread(id).cpu = cpu as u32;
        self.ready += 1;
        self.notice_queue(cpu, now);
        self.plan_balance(now);
    }

    /// The current thread of a processor that others wait for has to leave it in time.
    fn notice_queue(&mut self, cpu: usize, now: Time) {
        let (current, slice_end) = (self.cpus[cpu].current, self.cpus[cpu].slice_end);
        let thread = self.thread(current);
        thread.attention = thread.attention.min(slice_end);
        if thread.phase == Phase::Spinning {
            // The timer is for the spin itself. The quantum also ends when the spin has ended before.
            self.set_spin_timer(current, now);
        }
    }

    /// The current thread leaves its processor: the next one gets it. If it is ready, it goes to the end of the queue. One that is
    /// preempted by a woken thread goes on after that.
    pub(crate) fn leave_cpu(&mut self, id: u32, now: Time) {
        let cpu = self.threads[id as usize].cpu as usize;
        self.average(id, now);
        self.settle(id, now);
        let phase = self.threads[id as usize].phase;
        if phase == Phase::Ready {
            self.ready += 1;
            let queue = &mut self.cpus[cpu];
            let place = if std::mem::take(&mut queue.preempted) { 1 } else { queue.queue.len() };
            queue.queue.insert(place, id);
        } else if self.is_eevdf() {
            self.dequeue(cpu, id, phase == Phase::Sleeping, now);
        }
        self.cpus[cpu].current = NONE;
        match self.take(cpu, now).or_else(|| self.steal(cpu, now)) {
            Some(next) => {
                self.ready -= 1;
                let switch = if next == id { 0 } else { self.costs.context_switch };
                self.dispatch(cpu, next, now + switch);
                if self.is_eevdf() {
                    // The switch counts as the next thread's time.
                    self.thread(next).runs_since = now;
                }
            }
            None => {
                self.cpus[cpu].idle_since = now;
                self.plan_balance(now);
            }
        }
    }

    /// Brings the current thread's virtual time up to date: it leaves the processor.
    fn settle(&mut self, id: u32, now: Time) {
        let vruntime = self.vruntime(id, now);
        let cpu = self.threads[id as usize].cpu as usize;
        let thread = self.thread(id);
        (thread.vruntime, thread.runs_since) = (vruntime, Time::MAX);
        thread.entity.ran_at = Some(now);
        self.cpus[cpu].vruntime = self.cpus[cpu].vruntime.max(vruntime);
    }

    /// Takes the next thread out of a processor's queue.
    fn take(&mut self, cpu: usize, now: Time) -> Option<u32> {
        if self.is_eevdf() { self.take_eligible(cpu, now) } else { self.cpus[cpu].queue.pop_front() }
    }

    /// The scheduler has something for a running thread. `true`: it does not go on now.
    pub(crate) fn attend(&mut self, id: u32, now: Time) -> bool {
        let thread = self.thread(id);
        let interrupted = std::mem::take(&mut thread.interrupted);
        if interrupted > 0 {
            self.events.plan(now + interrupted, Event::Run(id));
            self.reset_attention(id);
            return true;
        }
        if thread.suspended <= now {
            self.suspend(id, now);
            return true;
        }
        if thread.strike <= now {
            self.stop(id, now);
            return true;
        }
        let cpu = self.threads[id as usize].cpu as usize;
        if self.has_to_leave(cpu, now) {
            self.yield_cpu(id, now);
            return true;
        }
        let left = self.pause(cpu, now);
        if left > 0 {
            self.events.plan(now + left, Event::Run(id));
        }
        self.reset_attention(id);
        left > 0
    }

    /// What is left at `now` of a pause of this processor. A pause that came while its thread waited may be over.
    fn pause(&mut self, cpu: usize, now: Time) -> Time {
        let (Some((every, pause)), at) = (self.costs.pauses, self.cpus[cpu].pauses_at) else { return 0 };
        if at > now {
            return 0;
        }
        let length = self.rng.exponential(pause);
        self.cpus[cpu].pauses_at = now + 1 + self.rng.exponential(every);
        (at + length).saturating_sub(now)
    }

    /// How long the pauses of a processor took that came until `until`.
    pub(crate) fn paused(&mut self, cpu: usize, until: Time) -> Time {
        let (Some((every, pause)), at) = (self.costs.pauses, self.cpus[cpu].pauses_at) else { return 0 };
        if at > until {
            return 0;
        }
        let length = self.rng.exponential(pause);
        self.cpus[cpu].pauses_at = at + length + 1 + self.rng.exponential(every);
        length
    }

    /// The adversary takes a thread off its processor.
    fn stop(&mut self, id: u32, now: Time) {
        let mean = self.options.adversary.map_or(0, |adversary| adversary.stop_ns.saturating_mul(NS));
        let end = now + 1 + self.rng.exponential(mean);
        let strike = self.next_strike(end);
        let thread = self.thread(id);
        thread.phase = Phase::Stopped;
        thread.strike = strike;
        thread.timer = 0;
        thread.counts.preemptions += 1;
        self.events.plan(end, Event::Ready(id));
        self.leave_cpu(id, now);
    }

    /// A thread does not run for a time. If that is for ever, the run is over when all others have finished.
    fn suspend(&mut self, id: u32, now: Time) {
        self.set_dormant(id, false);
        let thread = self.thread(id);
        thread.timer = 0;
        thread.suspended = NEVER;
        if thread.absence == NEVER {
            return self.exit(id, now);
        }
        thread.phase = Phase::Stopped;
        let end = now + thread.absence;
        self.events.plan(end, Event::Ready(id));
        self.leave_cpu(id, now);
    }

    /// Whether the current thread has to leave the processor to another one.
    fn has_to_leave(&mut self, cpu: usize, now: Time) -> bool {
        if self.cpus[cpu].queue.is_empty() || self.cpus[cpu].slice_end > now {
            return false;
        }
        if self.is_eevdf() && !self.makes_room(cpu, None, now) {
            self.cpus[cpu].slice_end = now + self.costs.quantum;
            return false;
        }
        true
    }

    /// A thread makes room for another one: its processor's queue is not empty.
    fn yield_cpu(&mut self, id: u32, now: Time) {
        let thread = self.thread(id);
        thread.phase = Phase::Ready;
        thread.timer = 0;
        thread.counts.preemptions += 1;
        self.leave_cpu(id, now);
    }

    /// The running thread offers its processor. `true`: it goes on; `false`: suspend.
    pub(crate) fn offer_cpu(&mut self) -> bool {
        let id = self.running;
        let now = self.thread(id).time;
        self.thread(id).pending = Pending::Nothing;
        let syscall = self.costs.syscall;
        self.thread(id).time += syscall;
        self.note_attempt();
        let cpu = self.threads[id as usize].cpu as usize;
        if self.cpus[cpu].queue.is_empty() {
            return true;
        }
        self.yield_all(cpu, id, now);
        false
    }

    /// `sched_yield`, where others wait.
    fn yield_all(&mut self, cpu: usize, id: u32, now: Time) {
        if self.is_eevdf() {
            self.forfeit(cpu, id, now);
        }
        self.yield_cpu(id, now);
    }

    /// Plans when a spinning thread gives up or makes room, whichever comes first.
    pub(crate) fn set_spin_timer(&mut self, id: u32, now: Time) {
        let turn = self.costs.pause + self.lines.look();
        let thread = &self.threads[id as usize];
        let cpu = &self.cpus[thread.cpu as usize];
        let mut at = thread.give_up.min(thread.strike).min(thread.suspended);
        if !cpu.queue.is_empty() {
            at = at.min(cpu.slice_end);
            if thread.give_up == NEVER {
                at = at.min(now + LOOKS * turn);
            }
        }
        self.thread(id).timer = match at {
            NEVER => 0,
            at => self.events.plan(at.max(now), Event::Timer(id)),
        };
    }

    /// The timer of a spinning thread, other than for giving up.
    pub(crate) fn make_room(&mut self, id: u32, now: Time) {
        let cpu = self.threads[id as usize].cpu as usize;
        if self.threads[id as usize].suspended <= now {
            self.suspend(id, now);
        } else if self.threads[id as usize].strike <= now {
            self.stop(id, now);
        } else if self.has_to_leave(cpu, now) {
            self.yield_cpu(id, now);
        } else if self.cpus[cpu].queue.is_empty() || self.threads[id as usize].give_up != NEVER {
            self.set_spin_timer(id, now);
        } else {
            self.yield_all(cpu, id, now);
        }
    }

    /// The running thread computes for `time`. `true`: done; `false`: suspend.
    pub(crate) fn compute(&mut self, time: Time) -> bool {
        let id = self.running;
        self.me().idle.1 = 0;
        let busy = |cpu: usize| match self.cpus[cpu].current {
            NONE => false,
            other => self.threads[other as usize].phase == Phase::Running,
        };
        let slow = self.costs.smt_slowdown > 1.0
            && self.topology.siblings(self.threads[id as usize].cpu as usize).any(busy);
        let time = if slow { (time as f64 * self.costs.smt_slowdown) as Time } else { time };
        self.work(id, time)
    }

    /// Goes on computing. `true`: done.
    #[inline]
    pub(crate) fn work(&mut self, id: u32, left: Time) -> bool {
        let most = if self.costs.wakeup_busy.is_some() { SHORT_PIECE } else { PIECE };
        let thread = &mut self.threads[id as usize];
        let piece = left.min(most).min(thread.attention.saturating_sub(thread.time));
        thread.time += piece;
        if piece == left {
            return true;
        }
        thread.pending = Pending::Work(left - piece);
        let at = thread.time;
        self.events.plan(at, Event::Run(id));
        false
    }

    /// A thread has ended.
    pub(crate) fn exit(&mut self, id: u32, now: Time) {
        let thread = self.thread(id);
        thread.phase = Phase::Finished;
        thread.counts.end_ns = now / NS;
        self.unfinished -= 1;
        self.leave_cpu(id, now);
        self.check_deadlock();
    }

    /// `membarrier` by the running thread: interrupts every processor that runs another.
    pub(crate) fn membarrier(&mut self) {
        let me = self.running;
        let interrupt = self.costs.interrupt;
        let mut interrupted = 0;
        for cpu in 0..self.cpus.len() {
            let current = self.cpus[cpu].current;
            if current == NONE || current == me {
                continue;
            }
            interrupted += 1;
            let thread = self.thread(current);
            // One that spins loses nothing that it has a use for.
            if thread.phase != Phase::Spinning {
                thread.interrupted += interrupt;
                thread.attention = 0;
            }
        }
        let waits = match interrupted {
            0 => 0,
            n => interrupt + interrupt / 10 * (n - 1),
        };
        let cost = self.costs.membarrier + waits;
        let free = self.membarrier_free;
        let thread = self.me();
        thread.time = thread.time.max(thread.drained).max(free) + cost;
        self.membarrier_free = self.me().time;
    }
}
