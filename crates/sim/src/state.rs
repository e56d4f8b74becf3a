//! All there is to know about a running simulation.
//!
//! The rules are in the files above this one: cache lines in `lines.rs` and `access.rs`, processors in `scheduler.rs`,
//! sleeping threads in `futex.rs`, the loop over the events in `run.rs`.

use crate::events::{Events, NEVER, NS, Time};
use crate::lines::{Lines, NONE, Requester};
use crate::profile::{Number, Profile};
use crate::report::Marks;
use crate::rng::Rng;
use crate::thread::{Look, Pending, Phase, Thread};
use crate::topology::Topology;
use crate::{Error, Options};
use std::collections::{HashMap, VecDeque};

/// The numbers of the profile that are used outside of `lines.rs`, in picoseconds.
pub(crate) struct Costs {
    pub(crate) ahead: Time,
    pub(crate) fence: Time,
    pub(crate) past_fence: Time,
    pub(crate) acquire: Time,
    pub(crate) release: Time,
    pub(crate) pause: Time,
    pub(crate) clock: Time,
    pub(crate) smt_slowdown: f64,
    pub(crate) syscall: Time,
    pub(crate) futex_wait: Time,
    pub(crate) futex_wake: Time,
    pub(crate) wake: Time,
    pub(crate) wakeup: Time,
    pub(crate) wakeup_soon: Time,
    pub(crate) falls_asleep: Time,
    pub(crate) wake_early: Time,
    pub(crate) wakeup_early: Time,
    pub(crate) wakeup_busy: Option<Time>,
    pub(crate) context_switch: Time,
    pub(crate) quantum: Time,
    pub(crate) membarrier: Time,
    pub(crate) interrupt: Time,
    /// Mean times: between two pauses of a processor, and of a pause.
    pub(crate) pauses: Option<(Time, Time)>,
    pub(crate) eevdf: Option<Eevdf>,
}

/// The constants of the scheduler, where it is EEVDF.
pub(crate) struct Eevdf {
    pub(crate) base_slice: Time,
    pub(crate) migration_cost: Time,
}

impl Costs {
    fn new(profile: &Profile) -> Self {
        let ps = Number::time;
        let or = |number: &Option<Number>, otherwise| number.as_ref().map_or(otherwise, ps);
        let processor = &profile.processor;
        let wakeup_soon = or(&profile.kernel.wakeup_soon, ps(&profile.kernel.wakeup));
        Costs {
            fence: or(&processor.fence, ps(&profile.lines.atomic)),
            past_fence: or(&processor.past_fence, 0),
            acquire: or(&processor.acquire, 0),
            release: or(&processor.release, 0),
            ahead: ps(&profile.processor.ahead),
            pause: ps(&profile.processor.pause).max(1),
            clock: ps(&profile.processor.clock),
            smt_slowdown: profile.processor.smt_slowdown.value,
            syscall: ps(&profile.kernel.syscall),
            futex_wait: or(&profile.kernel.futex_wait, ps(&profile.kernel.syscall)),
            futex_wake: or(&profile.kernel.futex_wake, ps(&profile.kernel.syscall)),
            wake: ps(&profile.kernel.wake),
            wakeup: ps(&profile.kernel.wakeup),
            wakeup_soon,
            falls_asleep: or(&profile.kernel.falls_asleep, 0),
            wake_early: or(&profile.kernel.wake_early, ps(&profile.kernel.wake)),
            wakeup_early: or(&profile.kernel.wakeup_early, wakeup_soon),
            wakeup_busy: profile.kernel.wakeup_busy.as_ref().map(ps),
            context_switch: ps(&profile.kernel.context_switch),
            quantum: ps(&profile.kernel.quantum),
            membarrier: ps(&profile.kernel.membarrier),
            interrupt: ps(&profile.kernel.interrupt),
            pauses: profile.kernel.pause_every.as_ref().zip(profile.kernel.pause.as_ref()).map(
                |(every, pause)| {
                    // The mean of an exponential distribution, from its median.
                    let mean = |number| (ps(number) as f64 / std::f64::consts::LN_2) as Time;
                    (mean(every), mean(pause))
                },
            ),
            eevdf: profile.eevdf.as_ref().map(|eevdf| Eevdf {
                base_slice: ps(&eevdf.base_slice),
                migration_cost: ps(&eevdf.migration_cost),
            }),
        }
    }
}

/// A processor.
pub(crate) struct Cpu {
    /// The thread that has it.
    pub(crate) current: u32,
    /// The threads that wait for it.
    pub(crate) queue: VecDeque<u32>,
    /// When the current thread has had its quantum.
    pub(crate) slice_end: Time,
    /// Since when it is idle, if it is.
    pub(crate) idle_since: Time,
    /// The most of [`Thread::vruntime`] of the threads that have left it.
    pub(crate) vruntime: i64,
    /// A woken thread, the first of the queue, takes the current one's place. (Not with EEVDF.)
    pub(crate) preempted: bool,
    /// Threads that sleep and count as threads of this processor still (`scheduler/eevdf.rs`).
    pub(crate) delayed: Vec<u32>,
    /// At how many timer ticks in a row it was idle and found no thread (`scheduler/balance.rs`).
    pub(crate) failed: u32,
    /// When it pauses next.
    pub(crate) pauses_at: Time,
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu {
            current: NONE,
            queue: VecDeque::new(),
            slice_end: 0,
            idle_since: 0,
            vruntime: 0,
            preempted: false,
            delayed: Vec::new(),
            failed: 0,
            pauses_at: NEVER,
        }
    }
}

/// What the loop over the events has to do outside of the state.
pub(crate) enum Action {
    /// Let a thread's coroutine run.
    Resume(u32),
    /// Ask a spinning thread's predicate, and tell [`State::looked`].
    Look(u32, Look),
    /// All threads have finished.
    Done,
    /// The run has failed.
    Fail(Error),
}

/// Pauses, yields and attempts without any change in memory after which a thread counts as going round in
/// circles.
const IN_CIRCLES: u32 = 10_000;

/// The state of a simulation.
pub(crate) struct State {
    pub(crate) topology: Topology,
    pub(crate) costs: Costs,
    pub(crate) options: Options,
    /// The first time that is past `Options::limit_ns`.
    pub(crate) limit: Time,
    pub(crate) events: Events,
    pub(crate) lines: Lines,
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Vec<Cpu>,
    /// Threads that wait for a processor.
    pub(crate) ready: usize,
    /// The next look of idle processors for threads is planned.
    pub(crate) balances: bool,
    /// The sleepers on each word, the longest first. (Only looked up by key: the order of the map plays no part.)
    pub(crate) sleepers: HashMap<usize, VecDeque<u32>>,
    /// When the kernel can serve the next `membarrier`.
    pub(crate) membarrier_free: Time,
    pub(crate) rng: Rng,
    /// The running thread: its coroutine executes.
    pub(crate) running: u32,
    pub(crate) unfinished: usize,
    pub(crate) dormant: usize,
    /// Counts changes of memory.
    pub(crate) version: u64,
    pub(crate) trace: u64,
    pub(crate) marks: Marks,
    pub(crate) failure: Option<Error>,
}

impl State {
    pub(crate) fn new(profile: &Profile, options: &Options, threads: usize) -> Self {
        let mut rng = Rng::new(options.seed);
        let topology = Topology::new(profile);
        State {
            costs: Costs::new(profile),
            options: options.clone(),
            limit: options.limit_ns.saturating_mul(NS).saturating_add(1),
            events: Events::default(),
            lines: Lines::new(profile, &topology),
            threads: Vec::with_capacity(threads),
            cpus: (0..topology.cpus.len()).map(|_| Cpu::default()).collect(),
            ready: 0,
            balances: false,
            sleepers: HashMap::new(),
            membarrier_free: 0,
            running: NONE,
            unfinished: threads,
            dormant: 0,
            version: 1,
            trace: options.seed,
            marks: Marks::new(),
            failure: None,
            rng: Rng::new(rng.next()),
            topology,
        }
    }

    #[inline]
    pub(crate) fn thread(&mut self, id: u32) -> &mut Thread {
        &mut self.threads[id as usize]
    }

    /// The running thread: its coroutine executes.
    #[inline]
    pub(crate) fn me(&mut self) -> &mut Thread {
        let running = self.running;
        self.thread(running)
    }

    /// The node that a thread runs on.
    pub(crate) fn node(&self, id: u32) -> u16 {
        self.topology.cpus[self.threads[id as usize].cpu as usize].node
    }

    pub(crate) fn requester(&self, id: u32) -> Requester {
        let thread = &self.threads[id as usize];
        Requester {
            cpu: thread.cpu as u16,
            place: self.topology.cpus[thread.cpu as usize],
            drained: thread.drained,
            sent: thread.time,
        }
    }

    /// Adds to the trace's hash.
    #[inline]
    pub(crate) fn trace(&mut self, time: Time, what: u64) {
        let mixed = (self.trace ^ time).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ what;
        self.trace = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }

    /// The running thread can only go on if another one writes or wakes.
    pub(crate) fn set_dormant(&mut self, id: u32, dormant: bool) {
        let thread = self.thread(id);
        if thread.dormant != dormant {
            thread.dormant = dormant;
            if dormant {
                self.dormant += 1;
                self.check_deadlock();
            } else {
                self.dormant -= 1;
            }
        }
    }

    pub(crate) fn check_deadlock(&mut self) {
        if self.dormant == self.unfinished && self.unfinished > 0 && self.failure.is_none() {
            self.failure = Some(self.deadlock());
        }
    }

    pub(crate) fn deadlock(&self) -> Error {
        let now = self.threads.iter().map(|thread| thread.time).max().unwrap_or(0);
        Error::Deadlock { at_ns: now / NS, waits: self.waits() }
    }

    /// The running thread has paused, yielded, or tried something without success. Notices threads that go
    /// round in circles: all do nothing else, and nothing changes. Plain loads do not count (a long scan
    /// is no circle), and looking at the clock and computing start the count again.
    #[inline]
    pub(crate) fn note_attempt(&mut self) {
        let version = self.version;
        let thread = self.me();
        if thread.idle.0 != version {
            thread.idle = (version, 0);
            return;
        }
        thread.idle.1 += 1;
        if thread.idle.1 == IN_CIRCLES {
            self.check_circles();
        }
    }

    #[cold]
    fn check_circles(&mut self) {
        let stuck = self.threads.iter().filter(|thread| {
            thread.phase != Phase::Finished
                && (thread.dormant || thread.idle.0 == self.version && thread.idle.1 >= IN_CIRCLES)
        });
        if stuck.count() == self.unfinished && self.failure.is_none() {
            self.failure = Some(self.deadlock());
            self.me().attention = 0; // back to the loop over the events
        }
    }

    /// What each thread that has not finished is waiting for.
    pub(crate) fn waits(&self) -> Vec<String> {
        let mut waits = Vec::new();
        for (id, thread) in self.threads.iter().enumerate() {
            let line = |pending: &Pending| match pending {
                Pending::Access { address, .. } => self.name_of(*address),
                _ => "nothing".into(),
            };
            let what = match thread.phase {
                Phase::Finished => continue,
                Phase::Sleeping => format!("sleeps on {}", self.name_of(thread.sleeps_on)),
                _ if thread.look.is_some() => format!("spins on {}", line(&thread.pending)),
                Phase::Queued => format!("waits for the cache line of {}", line(&thread.pending)),
                Phase::Ready | Phase::Stopped => "waits for a processor".into(),
                Phase::Running | Phase::Spinning => match &thread.pending {
                    Pending::Access { address, .. } => format!("accesses {}", self.name_of(*address)),
                    _ => "runs".into(),
                },
            };
            let holds = if thread.holds > 0 { ", holding a lock" } else { "" };
            waits.push(format!("thread {id} on CPU {} {what}{holds}", thread.cpu));
        }
        waits
    }

    /// An address as a message shows it.
    fn name_of(&self, address: usize) -> String {
        let label =
            self.options.labels.iter().find(|(start, size, _)| (*start..start + size).contains(&address));
        match label {
            Some((start, _, name)) if address == *start => name.clone(),
            Some((start, _, name)) => format!("{name}+{}", address - start),
            None => match self.lines.known(address) {
                Some(line) => format!("line {line}+{}", address % 64),
                None => "an untouched line".into(),
            },
        }
    }
}
