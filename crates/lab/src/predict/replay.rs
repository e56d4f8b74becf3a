//! One simulation: the threads of a trace, over the real source of the locks.

use super::events::{Births, Events, Life};
use super::length::Time;
use super::load::{Form, Load, WAITED, acquires};
use super::locks::{AnyLock, Held, Make};
use latchwork::machine::{Deadline, Machine, Word};
use latchwork_recording::edges::Meaning;
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::Step;
use latchwork_sim::{Arbitration, Error, Options, Placement, Profile, Sim, now, run, work};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A thread jumps to another place of its stream after so many places at which it holds no lock. So a short simulation
/// samples the whole recording, and keeps the order within each part.
const BLOCK: u32 = 64;
/// The same for a thread that waits at barriers, in barriers.
const ROUNDS: u32 = 8;
/// The shortest computation between two events, in nanoseconds: without any, the last holder is always the first to be back.
const LEAST: u64 = 10;
/// The most of it that a thread makes good for later, in nanoseconds: sections that take no time at all are not to shorten a long one.
const MOST_OWED: u64 = 100;
/// The shortest time between two attempts of a thread that polls a lock, in nanoseconds: about that of a loop with a pause.
const POLL: u64 = 100;
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
    /// The share that they waited for conditions and semaphores that another thread signals, at barriers, and for the end of threads
    /// that they created.
    pub sleeping: f64,
    /// From some moment on every thread waited for a signal of another one.
    pub stands_still: bool,
    /// From some moment on threads waited for locks that others of them held.
    pub deadlocked: bool,
    /// For each class: acquisitions a second, the share of the threads' time spent waiting, and the share of the time in which
    /// its busiest lock is held alone.
    pub classes: Vec<(f64, f64, f64)>,
}

/// What the threads count.
struct Counts {
    acquisitions: Vec<u64>,
    waited: Vec<u64>,
    held: Vec<u64>,
    /// Nanoseconds of waits for conditions and the like.
    slept: u64,
    /// For how many nanoseconds the threads lived that were created in the simulation.
    lived: u64,
    /// Of the threads that waited for one of them when the simulation ended, or were not created, how many there are, and when the last
    /// of these waits began.
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
        lived: 0,
        stuck: (0, 0),
    });
    let births: Vec<Births> = load.roles.iter().map(|_| Births::new()).collect();
    how.set_parties(load, &events);
    let threads: usize = how.threads.iter().sum();
    let time = how.time(load, threads);
    let limit_ns = time.end.get().saturating_mul(50) + 60_000_000_000;
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = Vec::new();
    for (number, role) in load.roles.iter().enumerate() {
        for thread in 0..how.threads[number] {
            let stream = role.members[thread % role.members.len()];
            let random = how.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (bodies.len() as u64 + 1) << 20;
            let thread = Thread {
                load,
                how,
                locks: &locks,
                events: &events,
                births: &births,
                counts: &counts,
                stream,
                random: Cell::new(random),
                block: Cell::new(0),
                children: RefCell::default(),
                owed: Cell::new(0),
                time: &time,
            };
            if role.forked {
                bodies.push(Box::new(move || thread.live(number)));
            } else {
                load.streams[stream].given.iter().for_each(|(object, by)| events.give(*object, *by));
                bodies.push(Box::new(move || thread.run()));
            }
        }
    }
    let options = Options {
        seed: how.seed,
        placement: Placement::FirstFill,
        arbitration: how.arbitration,
        limit_ns,
        ..Options::default()
    };
    let deadlocked = match run(&how.profile, &options, bodies) {
        Ok(_) => false,
        // Waiters that wake up now and then find the time over in place of a deadlock.
        Err(Error::Deadlock { .. } | Error::TimeLimit { .. }) => true,
        Err(error) => return Err(error.to_string()),
    };
    let counts = counts.into_inner();
    let (warm_up, end) = (time.warm_up.get(), time.end.get());
    let nanos = (end - warm_up).max(1) as f64;
    let steady = load.roles.iter().zip(&how.threads).filter(|(role, _)| !role.forked);
    let steady: usize = steady.map(|(_, threads)| *threads).sum();
    let share = |waited: u64| waited as f64 / (nanos * steady as f64 + counts.lived as f64).max(1.0);
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
        deadlocked,
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

    /// A barrier that takes as many threads as come there at all takes all of the replay. Otherwise (a new set of threads comes there
    /// in each round of fork and join, or in turns) it grows as the roles do.
    fn set_parties(&self, load: &Load, events: &Events) {
        for (object, known) in
            load.objects.iter().enumerate().filter(|(_, known)| known.meaning == Meaning::Barrier)
        {
            let object = object as u32;
            let (mut users, mut replayed, mut of_roles, mut of_replay) = (0, 0, 0, 0);
            let mut forked = false;
            for (role, count) in load.roles.iter().zip(&self.threads) {
                let comes = |thread: &usize| load.streams[*thread].barriers.contains(&object);
                let of_role = role.members.iter().filter(|thread| comes(thread)).count();
                if of_role > 0 {
                    (users, of_roles, of_replay) =
                        (users + of_role, of_roles + role.threads, of_replay + count);
                    forked |= role.forked;
                    let follows = |number: &usize| comes(&role.members[number % role.members.len()]);
                    replayed += (0..*count).filter(follows).count();
                }
            }
            let parties = if !forked && users == known.parties as usize {
                replayed
            } else {
                (known.parties as usize * of_replay + of_roles / 2) / of_roles.max(1)
            };
            events.set_parties(object, parties.max(1) as u64);
        }
    }

    /// How many copies of a thread are created if `before` others of its role that the same thread created live.
    fn copies(&self, load: &Load, role: usize, before: usize) -> usize {
        let (recorded, replayed) = (load.roles[role].threads, self.threads[role]);
        replayed / recorded + usize::from(before % recorded < replayed % recorded)
    }
}

/// A simulated thread.
struct Thread<'a> {
    load: &'a Load,
    how: &'a How,
    locks: &'a Locks,
    events: &'a Events,
    /// By the number of the role.
    births: &'a [Births],
    counts: &'a RefCell<Counts>,
    stream: usize,
    random: Cell<u64>,
    /// How many times the thread has jumped.
    block: Cell<u64>,
    /// The threads that it created and has not joined, by their numbers in the trace; and their roles.
    children: RefCell<BTreeMap<u32, (usize, Rc<Life>)>>,
    /// Nanoseconds that the thread has computed too much.
    owed: Cell<u64>,
    time: &'a Time,
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
        let block = if stream.passes.is_empty() { BLOCK } else { ROUNDS };
        let mut at = self.jump();
        let mut left = block;
        while !self.time.is_over() {
            self.step(at, &asleep, &mut held);
            at += 1;
            if at == stream.end {
                held.clear();
                (left, at) = (block, self.jump());
            } else if stream.marks[at].top {
                left = left.saturating_sub(1);
                if left == 0 {
                    (left, at) = (block, self.jump());
                }
            }
        }
    }

    /// One thread after the other of a role whose threads come and go: each performs its events from the first to the last.
    fn live(mut self, role: usize) {
        let asleep = <Sim as Machine>::U32::new(0);
        let births: &[Births] = self.births;
        loop {
            let idle = now();
            let Some((stream, life)) = births[role].next(self.time.end.get()) else {
                let mut counts = self.counts.borrow_mut();
                counts.stuck = (counts.stuck.0 + 1, counts.stuck.1.max(idle));
                return;
            };
            self.stream = stream;
            self.children.borrow_mut().clear();
            let begin = now();
            {
                let mut held: BTreeMap<u32, Holding> = BTreeMap::new();
                for at in 0..self.load.streams[stream].steps.len() {
                    if self.time.is_over() {
                        break;
                    }
                    self.step(at, &asleep, &mut held);
                }
            }
            self.counts.borrow_mut().lived += self.part(begin, now());
            life.end();
        }
    }

    /// What the thread does up to the end of an event.
    fn step<'a>(&'a self, at: usize, asleep: &<Sim as Machine>::U32, held: &mut BTreeMap<u32, Holding<'a>>) {
        let step = &self.load.streams[self.stream].steps[at];
        let mark = &self.load.streams[self.stream].marks[at];
        let part = self.part_of_section(held);
        self.time.count();
        if !mark.retries {
            self.compute(step, part);
            if step.off > 0 {
                sleep(asleep, scaled(step.off, part));
            }
        }
        self.perform(at, part, asleep, held);
    }

    /// The part of its recorded time that a step takes: other than 1 in the sections that [`Change::Hold`] changes.
    fn part_of_section(&self, held: &BTreeMap<u32, Holding>) -> f64 {
        match self.how.change {
            Some((class, Change::Hold(part)))
                if held.keys().any(|object| self.load.objects[*object as usize].class == class) =>
            {
                part
            }
            _ => 1.0,
        }
    }

    /// A place of the stream to go on at.
    fn jump(&self) -> usize {
        let stream = &self.load.streams[self.stream];
        self.children.borrow_mut().clear();
        let block = self.block.replace(self.block.get() + 1);
        if stream.aligned {
            // All threads that meet at its barriers are in the same block.
            let random =
                (self.how.seed ^ block << 32).wrapping_add(block).wrapping_mul(0x2545_f491_4f6c_dd1d);
            return stream.tops[(random >> 33) as usize % stream.tops.len()];
        }
        stream.tops[self.below(stream.tops.len())]
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

    /// This part of the CPU time before the step.
    fn compute(&self, step: &Step, part: f64) {
        // What is more than there was to compute is taken from the computations that follow.
        let nanos = scaled(step.cpu, part);
        let owed = self.owed.get().min(nanos);
        let least = LEAST.max(nanos - owed);
        self.owed.set((self.owed.get() - owed + least.saturating_sub(nanos - owed)).min(MOST_OWED));
        work(least);
    }

    fn perform<'a>(
        &'a self,
        at: usize,
        part: f64,
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
                let seen = wait.map(|next| (next.object, self.events.begin_wait(next.object)));
                self.release(step.object, held);
                if let Some((object, seen)) = seen {
                    self.edge(|| self.events.wait(object, seen, self.time.end.get()));
                }
            }
            _ if acquires(step) => {
                let again = if mark.retries { (step.cpu, step.off) } else { (0, 0) };
                self.acquire(step, !mark.again, again, held);
                if let Some(condvar) = mark.takes {
                    self.take(step, condvar, held);
                }
            }
            op::CREATE => self.create(step),
            op::JOIN => self.join(step, asleep),
            op::SLEEP if meaning(step) == Meaning::Barrier => {
                self.edge(|| self.events.meet(step.object, self.time.end.get()));
            }
            op::WAKE | op::WAKE_ALL => self.events.signal(step.object, step.op == op::WAKE_ALL),
            op::SLEEP if meaning(step) == Meaning::Permits => {
                self.edge(|| self.events.take_or_wait(step.object, self.time.end.get()));
            }
            // The wait is over: see the release.
            op::SLEEP if meaning(step) == Meaning::Signals => {}
            // What the thread waits for is not in the trace, or is a deadline: the wait stays as long as it was, unless it is in a
            // section that is shortened.
            _ if step.wait > 0 => sleep(asleep, scaled(step.wait, part)),
            _ => {}
        }
    }

    /// Creates a thread, and its copies. What the call took is work, but for the wake-up.
    fn create(&self, step: &Step) {
        let wake = self.how.profile.kernel.wake.value as u64;
        let cost = step.wait.saturating_sub(wake);
        let role = self.load.forked.get(step.object as usize).copied().flatten();
        let Some(role) = role else { return work(cost) };
        let before = self.children.borrow().values().filter(|(of, _)| *of == role).count();
        let copies = self.how.copies(self.load, role, before);
        let life = self.births[role].life(copies);
        self.children.borrow_mut().insert(step.object, (role, life.clone()));
        for _ in 0..copies {
            work(cost);
            self.births[role].add(step.object as usize, life.clone());
        }
    }

    /// Waits for the end of a thread, and of its copies.
    fn join(&self, step: &Step, asleep: &<Sim as Machine>::U32) {
        let child = self.children.borrow_mut().remove(&step.object);
        match child {
            Some((_, life)) => self.edge(|| life.join(self.time.end.get())),
            // The replay has no beginning and no end of it.
            None if step.wait > 0 => sleep(asleep, step.wait),
            None => {}
        }
    }

    /// Takes a permit of the condition variable, with the mutex held, as programs do: while there is none, the thread waits for
    /// the condition, and acquires the mutex again.
    fn take<'a>(&'a self, step: &Step, condvar: u32, held: &mut BTreeMap<u32, Holding<'a>>) {
        while !self.time.is_over() && !self.events.take(condvar) {
            let seen = self.events.begin_wait(condvar);
            // That takes time, in which a signal from outside of the mutex may come.
            if self.events.take(condvar) {
                return self.events.withdraw(condvar, seen);
            }
            self.release(step.object, held);
            self.edge(|| self.events.wait(condvar, seen, self.time.end.get()));
            self.acquire(&Step { op: op::ACQUIRE, ..*step }, false, (0, 0), held);
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
        end.min(self.time.end.get()).saturating_sub(start.max(self.time.warm_up.get()))
    }

    fn release(&self, object: u32, held: &mut BTreeMap<u32, Holding>) {
        if let Some((object, since, guard)) = held.remove(&object) {
            if let Some(since) = since {
                self.counts.borrow_mut().held[object as usize] += self.part(since, now());
            }
            drop(guard);
        }
    }

    /// Acquires a lock. `asked`: the program asks for it; otherwise a wait for a condition has ended. `again`: what a trylock that
    /// failed computes and sleeps before the next one.
    fn acquire<'a>(
        &'a self,
        step: &Step,
        asked: bool,
        again: (u64, u64),
        held: &mut BTreeMap<u32, Holding<'a>>,
    ) {
        let object = &self.load.objects[step.object as usize];
        let start = now();
        let (mut guard, mut failed) = (None, false);
        match &self.locks.0[step.object as usize][..] {
            _ if self.how.change == Some((object.class, Change::Free)) => self.uncontended(),
            [] => self.uncontended(),
            parts => {
                let lock = &parts[if parts.len() > 1 { self.below(parts.len()) } else { 0 }];
                guard = match step.op {
                    op::READ => Some(lock.read()),
                    op::TRY => {
                        let got = self.try_until(&**lock, again, !held.is_empty());
                        failed = got.is_none();
                        got
                    }
                    _ => {
                        let tried = if self.how.tries_first { lock.try_write() } else { None };
                        tried.or_else(|| Some(lock.write()))
                    }
                };
            }
        }
        let end = now();
        let warm_up = self.time.warm_up.get();
        if (warm_up..self.time.end.get()).contains(&end) {
            let mut counts = self.counts.borrow_mut();
            counts.acquisitions[object.class] += u64::from(asked && !failed);
            if end - start > WAITED {
                let waited = end - start.max(warm_up);
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

    /// Tries until it gets the lock, as the program does if it polls. A thread that holds other locks tries once: the holder may wait
    /// for one of these.
    fn try_until<'a>(
        &self,
        lock: &'a dyn AnyLock,
        again: (u64, u64),
        once: bool,
    ) -> Option<Box<dyn Held + 'a>> {
        let asleep = <Sim as Machine>::U32::new(0);
        loop {
            let guard = lock.try_write();
            if guard.is_some() || once || self.time.is_over() {
                return guard;
            }
            self.time.count();
            work(again.0.max(POLL));
            if again.1 > 0 {
                sleep(&asleep, again.1);
            }
        }
    }

    /// A lock that nobody else uses.
    fn uncontended(&self) {
        work((PRIVATE * self.how.profile.lines.atomic.value) as u64);
    }
}

fn scaled(nanos: u64, part: f64) -> u64 {
    (nanos as f64 * part) as u64
}

fn sleep(asleep: &<Sim as Machine>::U32, nanos: u64) {
    let deadline = Deadline::after::<Sim>(nanos);
    while now() < deadline.nanos {
        Sim::wait(asleep, 0, Some(deadline));
    }
}
