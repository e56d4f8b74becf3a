//! One simulation: the threads of a trace, over the real source of the locks.

use super::events::Events;
use super::load::{Form, Load, WAITED, acquires};
use super::locks::{AnyLock, Held, Make};
use latchwork::machine::{Deadline, Machine, Word};
use latchwork_recording::edges::Meaning;
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::Step;
use latchwork_sim::{Arbitration, Options, Placement, Profile, Sim, now, run, work};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A thread jumps to another place of its stream after so many places at which it holds no lock. So a short simulation
/// samples the whole recording, and keeps the order within each part.
const BLOCK: u32 = 64;
/// The shortest computation between two events, in nanoseconds: without any, the last holder is always the first to be back.
const LEAST: u64 = 10;
/// Events for each acquisition that a simulation is made for. If there are more, it has fewer acquisitions.
const EVENTS: f64 = 16.0;
/// The most of it that a thread makes good for later, in nanoseconds: sections that take no time at all are not to shorten a long one.
const MOST_OWED: u64 = 100;
/// How long a private lock takes, acquired and released, in atomic instructions.
const PRIVATE: f64 = 2.0;

/// What is changed against the recording.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Change {
    /// The sections of a class take this part of their time.
    Hold(f64),
    /// Each lock of a class is divided into so many, of which each acquisition takes one at random.
    Split(usize),
    /// The locks of a class exclude nobody.
    Free,
}

/// How a replay is done.
#[derive(Clone)]
pub struct How {
    /// The machine.
    pub profile: Profile,
    /// Makes the mutexes.
    pub mutex: Make,
    /// Makes the reader-writer locks.
    pub rwlock: Make,
    /// A class, another algorithm for its mutexes and another for its reader-writer locks.
    pub other: Option<(usize, Option<Make>, Option<Make>)>,
    /// A class, and what is changed.
    pub change: Option<(usize, Change)>,
    /// How many threads of each role.
    pub threads: Vec<usize>,
    /// Everything random follows from it.
    pub seed: u64,
    /// Which of several requests for a cache line is served first.
    pub arbitration: Arbitration,
    /// About how many acquisitions are simulated, if no thread waits.
    pub acquisitions: u64,
    /// Whether threads acquire locks as they do while they are recorded: they try once, and call the lock's blocking function if
    /// that fails.
    pub tries_first: bool,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Acquisitions a second, all threads together.
    pub throughput: f64,
    /// The share of the threads' time that they waited for locks.
    pub waiting: f64,
    /// The share that they waited for conditions and semaphores that another thread signals.
    pub sleeping: f64,
    /// From some moment on every thread waited for a signal of another one.
    pub stands_still: bool,
    /// For each class: acquisitions a second, the share of the threads' time spent waiting, and the share of the time in which
    /// its busiest lock is held alone.
    pub classes: Vec<(f64, f64, f64)>,
}

/// What the threads count.
struct Counts {
    acquisitions: Vec<u64>,
    waited: Vec<u64>,
    held: Vec<u64>,
    /// Nanoseconds of waits for conditions and semaphores.
    slept: u64,
    /// Of the threads that waited for one of them when the simulation ended, how many there are, and when the last of these waits
    /// began.
    stuck: (usize, u64),
}

/// A lock for each part of a shared object.
struct Locks(Vec<Vec<Box<dyn AnyLock>>>);

/// Simulates.
pub fn replay(load: &Load, how: &How) -> Result<Outcome, String> {
    let locks = Locks(load.objects.iter().map(|object| how.locks(object)).collect());
    let events = Events::new(load);
    let counts = RefCell::new(Counts {
        acquisitions: vec![0; load.classes.len()],
        waited: vec![0; load.classes.len()],
        held: vec![0; load.objects.len()],
        slept: 0,
        stuck: (0, 0),
    });
    let threads: usize = how.threads.iter().sum();
    let (warm_up, end) = how.times(load, threads);
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = Vec::new();
    for (role, count) in load.roles.iter().zip(&how.threads) {
        for number in 0..*count {
            let stream = role.members[number % role.members.len()];
            load.streams[stream].given.iter().for_each(|(object, by)| events.give(*object, *by));
            let random =
                Cell::new(how.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (bodies.len() as u64 + 1) << 20);
            let (locks, events, counts) = (&locks, &events, &counts);
            let thread =
                Thread { load, how, locks, events, counts, stream, random, owed: Cell::new(0), warm_up, end };
            bodies.push(Box::new(move || thread.run()));
        }
    }
    let options = Options {
        seed: how.seed,
        placement: Placement::FirstFill,
        arbitration: how.arbitration,
        limit_ns: end.saturating_mul(50) + 60_000_000_000,
        ..Options::default()
    };
    run(&how.profile, &options, bodies).map_err(|error| error.to_string())?;
    let counts = counts.into_inner();
    let nanos = (end - warm_up) as f64;
    let share = |waited: u64| waited as f64 / (nanos * threads as f64);
    let per_second = |count: u64| count as f64 / nanos * 1e9;
    let held = |class: usize| {
        let of_class = load.objects.iter().zip(&counts.held).filter(|(object, _)| object.class == class);
        of_class.map(|(_, held)| *held).max().unwrap_or(0) as f64 / nanos
    };
    Ok(Outcome {
        throughput: per_second(counts.acquisitions.iter().sum()),
        waiting: share(counts.waited.iter().sum()),
        sleeping: share(counts.slept),
        // A thread that was woken shortly before the end may not have run any more.
        stands_still: counts.stuck.0 == threads && counts.stuck.1 < end - (end - warm_up) / 8,
        classes: (0..load.classes.len())
            .map(|class| (per_second(counts.acquisitions[class]), share(counts.waited[class]), held(class)))
            .collect(),
    })
}

impl How {
    fn locks(&self, object: &super::load::Object) -> Vec<Box<dyn AnyLock>> {
        let of_class = |class| object.class == class;
        let parts = match self.change {
            Some((class, Change::Split(parts))) if of_class(class) => parts,
            _ => 1,
        };
        let (mut mutex, mut rwlock) = (self.mutex, self.rwlock);
        if let Some((class, other_mutex, other_rwlock)) = self.other
            && of_class(class)
        {
            (mutex, rwlock) = (other_mutex.unwrap_or(mutex), other_rwlock.unwrap_or(rwlock));
        }
        let make = match object.form {
            Form::Mutex if object.shared => mutex,
            Form::RwLock if object.shared => rwlock,
            _ => return Vec::new(),
        };
        (0..parts).map(|_| make()).collect()
    }

    /// When the counting begins and ends, in simulated nanoseconds: so that about as many acquisitions happen as are asked for.
    fn times(&self, load: &Load, threads: usize) -> (u64, u64) {
        let cpus = self.profile.cpus();
        let ideal = (threads.min(cpus) as f64 * load.rate).min(load.bound).max(1.0);
        let busy = 1.0 - load.shares.off - load.shares.sleeping - load.shares.timed;
        // A program may use semaphores, and hardly any lock.
        let acquisitions = self.acquisitions as f64 * (EVENTS / load.events).min(1.0);
        let mut length = (acquisitions / (ideal * busy.clamp(0.02, 1.0)) * 1e9) as u64;
        if threads > cpus {
            // Each thread has the processor a few times.
            let turn = self.profile.kernel.quantum.value * (threads as f64 / cpus as f64).ceil();
            length = length.max((4.0 * turn) as u64);
        }
        (length / 4, length / 4 + length)
    }
}

/// A simulated thread.
struct Thread<'a> {
    load: &'a Load,
    how: &'a How,
    locks: &'a Locks,
    events: &'a Events,
    counts: &'a RefCell<Counts>,
    stream: usize,
    random: Cell<u64>,
    /// Nanoseconds that the thread has computed too much.
    owed: Cell<u64>,
    warm_up: u64,
    end: u64,
}

/// A lock that the thread holds: its object, when it was acquired if that counts as holding it alone, and what releases it.
type Holding<'a> = (u32, Option<u64>, Option<Box<dyn Held + 'a>>);

impl Thread<'_> {
    fn run(self) {
        let stream = &self.load.streams[self.stream];
        if stream.steps.is_empty() {
            return;
        }
        let asleep = <Sim as Machine>::U32::new(0);
        let mut held: BTreeMap<u32, Holding> = BTreeMap::new();
        let mut at = self.jump();
        let mut left = BLOCK;
        while now() < self.end {
            let step = &stream.steps[at];
            self.compute(step, &held);
            if step.off > 0 {
                sleep(&asleep, step.off);
            }
            self.perform(at, &asleep, &mut held);
            at += 1;
            if at == stream.end {
                held.clear();
                at = self.jump();
            } else if stream.marks[at].top {
                left = left.saturating_sub(1);
                if left == 0 {
                    (left, at) = (BLOCK, self.jump());
                }
            }
        }
    }

    /// A place of the stream to go on at.
    fn jump(&self) -> usize {
        let tops = &self.load.streams[self.stream].tops;
        tops[self.below(tops.len())]
    }

    /// A random number below the bound (xorshift).
    fn below(&self, bound: usize) -> usize {
        let mut state = self.random.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.random.set(state);
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize % bound
    }

    /// The CPU time before the step.
    fn compute(&self, step: &Step, held: &BTreeMap<u32, Holding>) {
        let mut nanos = step.cpu as f64;
        if let Some((class, Change::Hold(part))) = self.how.change
            && held.keys().any(|object| self.load.objects[*object as usize].class == class)
        {
            nanos *= part;
        }
        // What is more than there was to compute is taken from the computations that follow.
        let nanos = nanos as u64;
        let owed = self.owed.get().min(nanos);
        let least = LEAST.max(nanos - owed);
        self.owed.set((self.owed.get() - owed + least.saturating_sub(nanos - owed)).min(MOST_OWED));
        work(least);
    }

    fn perform<'a>(
        &'a self,
        at: usize,
        asleep: &<Sim as Machine>::U32,
        held: &mut BTreeMap<u32, Holding<'a>>,
    ) {
        let stream = &self.load.streams[self.stream];
        let (step, mark) = (&stream.steps[at], &stream.marks[at]);
        let meaning = |step: &Step| self.load.objects[step.object as usize].meaning;
        match step.op {
            op::EXIT => {}
            op::RELEASE => {
                // Only a signal that comes after the release, or with it, ends the wait.
                let wait = stream.steps.get(at + 1).filter(|next| next.op == op::SLEEP);
                let wait = wait.filter(|next| meaning(next) == Meaning::Signals);
                let seen = wait.map(|next| (next.object, self.events.look(next.object)));
                self.release(step.object, held);
                if let Some((object, seen)) = seen {
                    self.edge(|| self.events.wait(object, seen, self.end));
                }
            }
            _ if acquires(step) => {
                self.acquire(step, !mark.again, held);
                if let Some(condvar) = mark.takes {
                    self.take(step, condvar, held);
                }
            }
            op::WAKE | op::WAKE_ALL => self.events.signal(step.object, step.op == op::WAKE_ALL),
            op::SLEEP if meaning(step) == Meaning::Permits => {
                self.edge(|| self.events.take_or_wait(step.object, self.end));
            }
            // The wait is over: see the release.
            op::SLEEP if meaning(step) == Meaning::Signals => {}
            // What the thread waits for is not in the trace, or is a deadline: the wait stays as long as it was.
            _ if step.wait > 0 => sleep(asleep, step.wait),
            _ => {}
        }
    }

    /// Takes a permit of the condition variable, with the mutex held, as programs do: while there is none, the thread waits for
    /// the condition, and acquires the mutex again.
    fn take<'a>(&'a self, step: &Step, condvar: u32, held: &mut BTreeMap<u32, Holding<'a>>) {
        while now() < self.end && !self.events.take(condvar) {
            let seen = self.events.look(condvar);
            // Reading takes time, in which a signal from outside of the mutex may come.
            if self.events.take(condvar) {
                return;
            }
            self.release(step.object, held);
            self.edge(|| self.events.wait(condvar, seen, self.end));
            self.acquire(&Step { op: op::ACQUIRE, ..*step }, false, held);
        }
    }

    /// A wait for another thread's signal. `wait` returns whether it came.
    fn edge(&self, wait: impl FnOnce() -> bool) {
        let start = now();
        let came = wait();
        let mut counts = self.counts.borrow_mut();
        counts.slept += self.part(start, now());
        if !came {
            counts.stuck.0 += 1;
            counts.stuck.1 = counts.stuck.1.max(start);
        }
    }

    /// The part of an interval that is counted.
    fn part(&self, start: u64, end: u64) -> u64 {
        end.min(self.end).saturating_sub(start.max(self.warm_up))
    }

    fn release(&self, object: u32, held: &mut BTreeMap<u32, Holding>) {
        if let Some((object, since, guard)) = held.remove(&object) {
            if let Some(since) = since {
                self.counts.borrow_mut().held[object as usize] += self.part(since, now());
            }
            drop(guard);
        }
    }

    /// Acquires a lock. `asked`: the program asks for it; otherwise a wait for a condition has ended.
    fn acquire<'a>(&'a self, step: &Step, asked: bool, held: &mut BTreeMap<u32, Holding<'a>>) {
        let object = &self.load.objects[step.object as usize];
        let start = now();
        let mut guard = None;
        match &self.locks.0[step.object as usize][..] {
            _ if self.how.change == Some((object.class, Change::Free)) => self.uncontended(),
            [] => self.uncontended(),
            parts => {
                let lock = &parts[if parts.len() > 1 { self.below(parts.len()) } else { 0 }];
                guard = match step.op {
                    op::READ => Some(lock.read()),
                    op::TRY => lock.try_write(),
                    _ => {
                        let tried = if self.how.tries_first { lock.try_write() } else { None };
                        tried.or_else(|| Some(lock.write()))
                    }
                };
            }
        }
        let end = now();
        if (self.warm_up..self.end).contains(&end) {
            let mut counts = self.counts.borrow_mut();
            counts.acquisitions[object.class] += u64::from(asked);
            if end - start > WAITED {
                let waited = end - start.max(self.warm_up);
                if !asked && self.load.relock_sleeps {
                    counts.slept += waited;
                } else {
                    counts.waited[object.class] += waited;
                }
            }
        }
        let alone = step.op != op::READ && guard.is_some();
        held.insert(step.object, (step.object, alone.then_some(end), guard));
    }

    /// A lock that nobody else uses.
    fn uncontended(&self) {
        work((PRIVATE * self.how.profile.lines.atomic.value) as u64);
    }
}

fn sleep(asleep: &<Sim as Machine>::U32, nanos: u64) {
    let deadline = Deadline::after::<Sim>(nanos);
    while now() < deadline.nanos {
        Sim::wait(asleep, 0, Some(deadline));
    }
}
