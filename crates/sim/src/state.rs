//! All there is to know about a running simulation: its state, and the loop over its events.
//!
//! The parts of it that have rules of their own are in other files: cache lines in `lines.rs` and
//! `access.rs`, processors in `scheduler.rs`, sleeping threads in `futex.rs`.

use crate::access::Pending;
use crate::events::{Event, Events, NEVER, NS, Time};
use crate::futex::Futexes;
use crate::lines::{Lines, NONE, Requester};
use crate::profile::{Number, Profile};
use crate::report::{Counts, Marks};
use crate::rng::Rng;
use crate::scheduler::Cpu;
use crate::streams::Streams;
use crate::topology::Topology;
use crate::{Error, Options};
use latchwork::machine::Wait;

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
    /// It is in the middle of an instruction, and others see that.
    pub(crate) torn: bool,
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
    /// When it went to sleep, and when it last ran again after that.
    pub(crate) slept: Time,
    pub(crate) woken: Time,
    /// When it asked for a lock that it has not got yet.
    pub(crate) asked: Option<Time>,
    /// How many locks it has, as far as it was marked.
    pub(crate) holds: u32,
    /// Where its coroutine can be suspended.
    pub(crate) yielder: *const crate::simulation::Yielder,
    pub(crate) counts: Counts,
}

impl Thread {
    fn new(start: Time, strike: Time) -> Self {
        Thread {
            time: start,
            phase: Phase::Stopped,
            cpu: 0,
            drained: 0,
            attention: NEVER,
            torn: false,
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
            slept: 0,
            woken: 0,
            asked: None,
            holds: 0,
            yielder: std::ptr::null(),
            counts: Counts::default(),
        }
    }
}

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
    pub(crate) wake: Time,
    pub(crate) wakeup: Time,
    pub(crate) context_switch: Time,
    pub(crate) quantum: Time,
    pub(crate) membarrier: Time,
    pub(crate) interrupt: Time,
}

impl Costs {
    fn new(profile: &Profile) -> Self {
        let ps = |number: &Number| (number.value * NS as f64).round() as Time;
        let or = |number: &Option<Number>, otherwise| number.as_ref().map_or(otherwise, ps);
        let processor = &profile.processor;
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
            wake: ps(&profile.kernel.wake),
            wakeup: ps(&profile.kernel.wakeup),
            context_switch: ps(&profile.kernel.context_switch),
            quantum: ps(&profile.kernel.quantum),
            membarrier: ps(&profile.kernel.membarrier),
            interrupt: ps(&profile.kernel.interrupt),
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
    pub(crate) futexes: Futexes,
    /// When the kernel can serve the next `membarrier`.
    pub(crate) membarrier_free: Time,
    pub(crate) rng: Rng,
    /// The thread whose coroutine runs.
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
        let mut state = State {
            costs: Costs::new(profile),
            options: options.clone(),
            limit: options.limit_ns.saturating_mul(NS).saturating_add(1),
            events: Events::default(),
            lines: Lines::new(profile, options.home),
            threads: Vec::with_capacity(threads),
            cpus: (0..topology.cpus.len()).map(|_| Cpu::default()).collect(),
            ready: 0,
            futexes: Futexes::default(),
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
        };
        let spread = options.spread_ns.unwrap_or(1000 * threads as u64).saturating_mul(NS);
        for thread in 0..threads {
            let start = rng.below(spread.saturating_add(1));
            let strike = state.next_strike(start);
            state.threads.push(Thread::new(start, strike));
            state.threads[thread].cpu = state.place(thread) as u32;
            state.events.plan(start, Event::Ready(thread as u32));
        }
        state
    }

    #[inline]
    pub(crate) fn thread(&mut self, id: u32) -> &mut Thread {
        &mut self.threads[id as usize]
    }

    /// The thread whose coroutine runs.
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

    /// Lets events happen until a coroutine is wanted.
    pub(crate) fn step(&mut self) -> Action {
        loop {
            if let Some(error) = self.failure.take() {
                return Action::Fail(error);
            }
            if self.unfinished == 0 {
                return Action::Done;
            }
            let Some((now, number, event)) = self.events.next() else {
                return Action::Fail(self.deadlock());
            };
            if now >= self.limit {
                return Action::Fail(Error::TimeLimit {
                    limit_ns: self.options.limit_ns,
                    waits: self.waits(),
                });
            }
            let action = match event {
                Event::Run(thread) => self.run(thread, now),
                Event::LineFree(line) => self.line_free(line, now),
                Event::Ready(thread) => {
                    self.make_ready(thread, now);
                    None
                }
                Event::Timer(thread) if self.threads[thread as usize].timer == number => {
                    self.thread(thread).timer = 0;
                    self.timer(thread, now)
                }
                Event::Timer(_) => None,
            };
            if let Some(action) = action {
                return action;
            }
        }
    }

    /// A timer that counts.
    fn timer(&mut self, id: u32, now: Time) -> Option<Action> {
        match self.thread(id).phase {
            Phase::Sleeping => {
                self.sleep_is_over(id, now, Wait::TimedOut);
                None
            }
            Phase::Spinning => self.spin_timer(id, now),
            phase => unreachable!("a timer for a thread that is {phase:?}"),
        }
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

    fn deadlock(&self) -> Error {
        let now = self.threads.iter().map(|thread| thread.time).max().unwrap_or(0);
        Error::Deadlock { at_ns: now / NS, waits: self.waits() }
    }

    /// The running thread has paused, yielded, or tried something in vain. Notices threads that go
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
    fn waits(&self) -> Vec<String> {
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
