//! The engine: threads, their store buffers, who sleeps, and who runs next.
//!
//! One thread runs at a time, as a coroutine on the OS thread that explores. It goes on from access to access, and
//! at each of them (a *step*) another thread may take its place.

use super::coverage::Coverage;
use super::words::Place;
use super::{Mistake, Strategy, plan};
use corosensei::stack::{DefaultStack, Stack as _};
use corosensei::{Coroutine, CoroutineResult};
use latchwork::machine::Wait;
use plan::{At, Chance, Decision, Kind, Source};
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::atomic::Ordering;

/// Threads of a client at most, and one more that looks at the result.
pub const MAX_THREADS: usize = 7;

/// Stores in a thread's buffer at most; processors have about as many for each of their threads.
const BUFFER: usize = 32;

/// Steps after which a schedule counts as one without end.
const LIMIT: u32 = 20_000;
/// Pauses in a row, of all threads together, in which nothing has changed, after which threads go round in circles.
const IDLE: u32 = 2_000;

/// The lowest priority at the beginning, and how many there are above it.
const PRIORITIES: u32 = 1 << 20;

/// Pauses after which a sleeper's deadline passes, while others could go on like this for ever.
const NAP: u32 = 48;

/// Steps after which a sleeper's deadline passes in any case, though others go on.
const LONGEST: u32 = 1_000;

/// Nanoseconds that a step takes.
const STEP_NS: u64 = 20;
/// Nanoseconds of the clock when a schedule begins.
const START_NS: u64 = 1_000_000;

/// Bytes at the beginning of the arena whose words coverage looks at: the locks, and not the data.
pub(super) const COVERED: usize = 20 * 1024;

/// Bytes of a coroutine's stack. Only what is touched takes memory.
const STACK: usize = 128 * 1024;

pub(super) type Yielder = corosensei::Yielder<(), ()>;
type Body = Coroutine<(), (), Result<(), String>, DefaultStack>;

/// What a thread does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It runs, or can.
    Runnable,
    /// It spins on a word that has not changed since it looked.
    Spins(usize),
    /// It sleeps at a word, or (0) for a time only.
    Sleeps(usize),
    /// It was stopped for ever.
    Frozen,
    Done,
}

/// A store that other threads do not see yet.
#[derive(Copy, Clone)]
struct Buffered {
    place: Place,
    value: u64,
    /// The step at which it becomes visible, if those in front of it are.
    due: u32,
}

struct Thread {
    status: Status,
    priority: u32,
    outcome: Wait,
    deadline: Option<u64>,
    /// The step at which the deadline of a sleep passes by itself.
    expires: u32,
    yielder: *const Yielder,
    buffer: [Buffered; BUFFER],
    /// The first entry of the buffer, and how many there are.
    first: usize,
    stored: usize,
    /// The operation that it is in, and its steps there; only counted if decisions are recorded.
    operation: u8,
    steps: u32,
    /// Whether it is inside of an operation that may wait, and may be stopped there for ever.
    waits: bool,
}

impl Thread {
    fn new() -> Thread {
        Thread {
            status: Status::Done,
            priority: 0,
            outcome: Wait::Woken,
            deadline: None,
            expires: u32::MAX,
            yielder: null(),
            buffer: [Buffered { place: Place::NOWHERE, value: 0, due: 0 }; BUFFER],
            first: 0,
            stored: 0,
            operation: 0,
            steps: 0,
            waits: false,
        }
    }
}

/// One line of a trace.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub thread: usize,
    pub text: String,
}

/// All that changes within a schedule.
pub(super) struct State {
    threads: [Thread; MAX_THREADS],
    /// Threads of the running schedule.
    count: usize,
    pub running: usize,
    /// A bit for each thread.
    runnable: u32,
    /// Until which step threads stay behind, and the bits of those that do.
    stalled_until: [u32; MAX_THREADS],
    stalled: u32,
    spinning: u32,
    buffering: u32,
    timed: u32,
    pub step: u32,
    /// The next step at which something else may happen than the running thread's going on.
    event: u32,
    preempt: u32,
    /// Steps of the kind that others can see: read-modify-writes, release stores, fences and futex calls.
    pub marks: u32,
    preempt_mark: u32,
    source: Source,
    /// What was decided, if it is recorded.
    pub record: Option<Vec<Decision>>,
    /// Sleepers, the longest first: the word and the thread.
    sleepers: VecDeque<(usize, usize)>,
    /// Nanoseconds beyond those that steps take.
    jumped: u64,
    /// Pauses since something has changed.
    idle: u32,
    /// Pauses since a deadline has passed.
    naps: u32,
    /// The lowest priority that was given so far.
    lowest: u32,
    pub mistake: Mistake,
    /// Whether the last thing that the running thread did was a light fence.
    pub fenced: bool,
    pub failure: Option<String>,
    pub trace: Option<Vec<Line>>,
    /// How often an operation has begun, of all threads, and how many are going on.
    pub begun: u32,
    pub going: u32,
    /// What `M::patience` answers at most.
    pub patience: u32,
    pub nodes: u32,
    /// Freeze the thread at this step or the next at which it waits.
    freeze: Option<(usize, u32)>,
    pub frozen: bool,
    pub refused_fences: bool,
    /// The step after which chance has another seed.
    until: u32,
    pub coverage: Coverage,
    /// Where the words are that coverage looks at.
    covered: std::ops::Range<usize>,
    pub world: super::world::World,
}

pub(super) struct Engine {
    state: UnsafeCell<State>,
}

std::thread_local! {
    /// The engine whose coroutine is executing on this OS thread; null outside.
    static INSIDE: Cell<*const Engine> = const { Cell::new(null()) };
    /// The engine that this OS thread explores with; null if it does not.
    static WORLD: Cell<*const Engine> = const { Cell::new(null()) };
}

/// The engine, for who runs as one of its threads.
#[inline(always)]
pub(super) fn inside<'a>() -> Option<&'a Engine> {
    // SAFETY: set by `drive` to an engine that lives until it has been set to null again.
    unsafe { INSIDE.get().as_ref() }
}

/// The engine of this OS thread, also for who prepares a schedule.
pub(super) fn world<'a>() -> &'a Engine {
    // SAFETY: set by `Engine::enter` to an engine that lives until it has been set to null again.
    unsafe { WORLD.get().as_ref() }.expect("a lock over Explore is used outside of an exploration")
}

/// Writes a line of the trace, if there is one.
#[macro_export]
#[doc(hidden)]
macro_rules! explore_trace {
    ($engine:expr, $place:expr, $name:expr, $old:expr, $new:expr) => {
        if $engine.with(|s| s.trace.is_some()) {
            $engine.with(|s| s.trace_access($place, $name, $old, $new));
        }
    };
}
pub(super) use crate::explore_trace as trace;

/// A schedule, and how it is to be run.
pub(super) struct Setup {
    pub threads: usize,
    pub source: Source,
    pub record: bool,
    pub trace: bool,
    pub mistake: Mistake,
    pub patience: u32,
    pub nodes: u32,
    pub freeze: Option<(usize, u32)>,
    pub refused_fences: bool,
}

impl Engine {
    pub(super) fn new() -> Box<Engine> {
        let world = super::world::World::new();
        let arena = world.arena().addr();
        Box::new(Engine {
            state: UnsafeCell::new(State {
                threads: std::array::from_fn(|_| Thread::new()),
                count: 0,
                running: 0,
                runnable: 0,
                stalled_until: [0; MAX_THREADS],
                stalled: 0,
                spinning: 0,
                buffering: 0,
                timed: 0,
                step: 0,
                event: 0,
                preempt: u32::MAX,
                marks: 0,
                preempt_mark: u32::MAX,
                source: Source::Record(Vec::new()),
                record: None,
                sleepers: VecDeque::with_capacity(MAX_THREADS),
                jumped: 0,
                idle: 0,
                naps: 0,
                lowest: 0,
                mistake: Mistake::None,
                fenced: false,
                failure: None,
                trace: None,
                begun: 0,
                going: 0,
                patience: 1,
                nodes: 2,
                freeze: None,
                frozen: false,
                refused_fences: false,
                until: u32::MAX,
                coverage: Coverage::new(),
                covered: arena..arena + COVERED,
                world,
            }),
        })
    }

    /// Runs `f` with this engine as the OS thread's own.
    pub(super) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                WORLD.set(null());
            }
        }
        assert!(WORLD.get().is_null(), "an exploration within an exploration");
        WORLD.set(self);
        let _leave = Leave;
        f()
    }

    /// Looks at or changes the state. `f` must not switch coroutines, nor call this again.
    #[inline(always)]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        // SAFETY: all coroutines of the engine and its loop are on one OS thread, and none of the closures given
        // to this function switches or re-enters, so this is the only reference.
        f(unsafe { &mut *self.state.get() })
    }

    /// Lets the thread that was chosen run, until this one is.
    fn leave(&self, yielder: *const Yielder) {
        // SAFETY: the yielder of the coroutine that calls this, which is alive as long as it runs.
        unsafe { &*yielder }.suspend(());
    }

    /// A step of the running thread: others may run before it.
    #[inline(always)]
    pub(super) fn point(&self) {
        let quiet = self.with(|s| {
            s.step += 1;
            s.step < s.event
        });
        if !quiet {
            self.happen();
        }
    }

    /// The same, if others can see it.
    #[inline(always)]
    pub(super) fn mark(&self) {
        let quiet = self.with(|s| {
            s.step += 1;
            s.marks += 1;
            s.step < s.event && s.marks < s.preempt_mark
        });
        if !quiet {
            self.happen();
        }
    }

    #[cold]
    #[inline(never)]
    fn happen(&self) {
        let me = self.with(|s| s.running);
        let yielder = self.with(|s| s.threads[me].yielder);
        if self.with(State::happen) {
            self.leave(yielder);
        }
    }

    /// The running thread is about to access a word.
    #[inline(always)]
    pub(super) fn touch(&self, place: Place, name: &'static str) {
        if !place.is_alive() {
            self.fail_at(place, name);
        }
    }

    #[cold]
    #[inline(never)]
    fn fail_at(&self, place: Place, name: &'static str) -> ! {
        let word = self.with(|s| s.world.name(place.address));
        self.fail(format!("{name} of a word that was destroyed ({word})"));
    }

    /// Ends the schedule: a check did not hold. Nothing on the caller's stack is dropped.
    pub(super) fn fail(&self, message: String) -> ! {
        let yielder = self.with(|s| {
            s.failure.get_or_insert(message);
            s.threads[s.running].yielder
        });
        loop {
            self.leave(yielder);
        }
    }

    /// A point of the section or between operations.
    pub(super) fn work(&self) {
        self.point();
    }

    /// A pause between two attempts: mostly lets others run.
    pub(super) fn pause(&self) {
        self.point();
        let yielder = self.with(|s| s.threads[s.running].yielder);
        if self.with(State::pause) {
            self.leave(yielder);
        }
    }

    /// The running thread has looked at a word in vain, and spins until it changes.
    pub(super) fn spin(&self, address: usize) {
        self.block(Status::Spins(address));
    }

    pub(super) fn block(&self, status: Status) {
        let yielder = self.with(|s| s.threads[s.running].yielder);
        if self.with(|s| s.block(status)) {
            self.leave(yielder);
        }
    }

    /// The thread goes to sleep at an address (or 0).
    pub(super) fn sleep(&self, address: usize, deadline: Option<u64>) -> Wait {
        let me = self.with(|s| {
            s.sleep(address, deadline);
            s.running
        });
        self.block(Status::Sleeps(address));
        self.with(|s| s.threads[me].outcome)
    }

    /// Begins a schedule: everything is as it was, and the locks can be made.
    pub(super) fn begin(&self, setup: Setup, grouped: bool) {
        // Words are plain memory meanwhile.
        let world: *mut super::world::World = self.with(|s| &raw mut s.world);
        // SAFETY: what resets words does not come back here, as nobody runs.
        unsafe { &mut *world }.reset(grouped);
        self.with(|s| s.begin(setup));
    }

    /// Runs a schedule: `body(thread)` in each thread, then `after` in one more, if all have come to their end.
    pub(super) fn run(&self, threads: usize, body: &dyn Fn(usize), after: &dyn Fn()) -> Result<(), String> {
        assert!((1..MAX_THREADS).contains(&threads));
        self.with(State::start);
        let mut bodies: [Option<Body>; MAX_THREADS] = [const { None }; MAX_THREADS];
        for (thread, slot) in bodies[..threads].iter_mut().enumerate() {
            *slot = Some(self.coroutine(thread, Box::new(move || body(thread))));
        }
        let mut result = self.drive(&mut bodies);
        if result.is_ok() && !self.with(|s| s.frozen) {
            self.with(|s| s.begin_after(threads));
            bodies[threads] = Some(self.coroutine(threads, Box::new(after)));
            result = self.drive(&mut bodies);
        }
        for mut coroutine in bodies.into_iter().flatten() {
            if coroutine.started() && !coroutine.done() {
                // SAFETY: what is on the stack is leaked; nobody resumes it any more.
                unsafe { coroutine.force_reset() };
            }
            if coroutine.done() {
                let stack = coroutine.into_stack();
                self.with(|s| s.world.stacks.push(stack));
            }
        }
        result
    }

    fn coroutine<'a>(&self, thread: usize, body: Box<dyn FnOnce() + 'a>) -> Body {
        let stack = self.with(|s| s.world.stacks.pop());
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK).expect("memory for a stack"));
        self.with(|s| s.world.stack_ranges[thread] = (stack.limit().get(), stack.base().get()));
        let engine: *const Engine = self;
        let run = move |yielder: &Yielder, ()| {
            // SAFETY: coroutines are only resumed by `drive`, which borrows the engine.
            unsafe { &*engine }.with(|s| s.threads[thread].yielder = yielder);
            catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
            })
        };
        // SAFETY: what `body` borrows outlives `run`, which resumes the coroutine, and drops or resets it before
        // it returns.
        unsafe { Coroutine::with_stack_unchecked(stack, run) }
    }

    fn drive(&self, bodies: &mut [Option<Body>; MAX_THREADS]) -> Result<(), String> {
        struct Within;
        impl Drop for Within {
            fn drop(&mut self) {
                INSIDE.set(null());
            }
        }
        INSIDE.set(self);
        let _within = Within;
        loop {
            let running = self.with(|s| s.running);
            let body = bodies[running].as_mut().expect("a thread of this schedule");
            match body.resume(()) {
                CoroutineResult::Yield(()) => (),
                CoroutineResult::Return(Ok(())) => {
                    if !self.with(State::exit) {
                        break;
                    }
                }
                CoroutineResult::Return(Err(panic)) => {
                    self.with(|s| s.failure = Some(format!("a panic: {panic}")));
                }
            }
            if self.with(|s| s.failure.is_some()) {
                break;
            }
        }
        self.with(|s| s.failure.take()).map_or(Ok(()), Err)
    }
}

impl State {
    fn begin(&mut self, setup: Setup) {
        assert!((1..MAX_THREADS).contains(&setup.threads));
        for (number, thread) in self.threads.iter_mut().enumerate() {
            thread.status = if number < setup.threads { Status::Runnable } else { Status::Done };
            thread.priority = PRIORITIES + number as u32;
            (thread.stored, thread.first) = (0, 0);
            (thread.operation, thread.steps) = (0, 0);
            thread.expires = u32::MAX;
            thread.deadline = None;
            thread.waits = false;
        }
        self.count = setup.threads;
        self.runnable = (1 << setup.threads) - 1;
        (self.spinning, self.buffering, self.timed, self.stalled) = (0, 0, 0, 0);
        (self.step, self.marks) = (0, 0);
        (self.preempt, self.preempt_mark) = (u32::MAX, u32::MAX);
        self.source = setup.source;
        self.record = setup.record.then(Vec::new);
        self.sleepers.clear();
        (self.jumped, self.idle, self.naps, self.lowest) = (0, 0, 0, PRIORITIES);
        self.mistake = setup.mistake;
        self.fenced = false;
        self.failure = None;
        self.trace = setup.trace.then(Vec::new);
        (self.begun, self.going) = (0, 0);
        self.patience = setup.patience;
        self.nodes = setup.nodes;
        self.freeze = setup.freeze;
        self.frozen = false;
        self.refused_fences = setup.refused_fences;
        self.running = 0;
        self.coverage.begin();
        self.until = match &self.source {
            Source::Chance(chance) => chance.until(),
            Source::Record(_) => u32::MAX,
        };
        if let Source::Chance(chance) = &mut self.source {
            for thread in &mut self.threads {
                thread.priority += chance.rng.below(u64::from(PRIORITIES)) as u32;
            }
            match chance.marks {
                true => self.preempt_mark = chance.next_preemption(0),
                false => self.preempt = chance.next_preemption(0),
            }
        }
        self.plan();
    }

    /// Chooses the first thread.
    fn start(&mut self) {
        self.running = self.choose_next();
        self.plan();
    }

    /// One more thread, when all others have come to their end.
    fn begin_after(&mut self, thread: usize) {
        (0..MAX_THREADS).for_each(|thread| self.drain(thread));
        self.threads[thread].status = Status::Runnable;
        self.runnable = 1 << thread;
        self.count = thread + 1;
        self.running = thread;
        self.plan();
    }

    /// When something may happen next.
    fn plan(&mut self) {
        if self.record.is_some() || matches!(self.source, Source::Record(_)) {
            self.event = self.step + 1;
            return;
        }
        let mut event = self.preempt.min(LIMIT).min(self.until.saturating_add(1));
        if self.buffering | self.timed != 0 {
            for thread in &self.threads[..self.count] {
                if thread.stored > 0 {
                    event = event.min(thread.buffer[thread.first].due);
                }
                event = event.min(thread.expires);
            }
        }
        if let Some((_, at)) = self.freeze {
            event = event.min(at.max(self.step + 1));
        }
        self.event = event;
    }

    /// Where the running thread is.
    fn at(&self) -> At {
        let Thread { operation, steps, .. } = self.threads[self.running];
        At { thread: self.running as u8, operation, step: steps }
    }

    /// The running thread begins another operation.
    pub(super) fn begin_operation(&mut self, number: usize) {
        let thread = &mut self.threads[self.running];
        (thread.operation, thread.steps) = (number as u8 + 1, 0);
    }

    /// A decision: by chance, or as it was recorded.
    fn decide(&mut self, kind: Kind, default: u32, chance: impl FnOnce(&mut Chance) -> u32) -> u32 {
        let at = self.at();
        match &mut self.source {
            Source::Chance(by_chance) => {
                let value = chance(by_chance);
                if value != default
                    && let Some(record) = &mut self.record
                {
                    record.push(Decision { at, kind, value });
                }
                value
            }
            Source::Record(decisions) => plan::recorded(decisions, at, kind).unwrap_or(default),
        }
    }

    /// What is due at this step. Returns whether another thread is to run.
    fn happen(&mut self) -> bool {
        if self.step >= LIMIT {
            let message = format!("no end after {LIMIT} steps: {}", self.describe());
            self.failure.get_or_insert(message);
            return true;
        }
        if self.buffering != 0 {
            for thread in 0..self.count {
                while self.threads[thread].stored > 0
                    && self.threads[thread].buffer[self.threads[thread].first].due <= self.step
                {
                    self.flush(thread);
                }
            }
        }
        for thread in 0..self.count {
            if self.threads[thread].expires <= self.step {
                self.time_out(thread);
            }
        }
        // One that waits, and not one that has just been let in and does not know it yet.
        if let Some((thread, at)) = self.freeze
            && at <= self.step
            && self.threads[thread].waits
            && matches!(self.threads[thread].status, Status::Spins(_) | Status::Sleeps(_))
        {
            self.freeze_now(thread);
        }
        let me = self.running as u32;
        self.threads[self.running].steps += 1;
        let at = self.at();
        self.end_stalls();
        if self.step > self.until
            && let Source::Chance(chance) = &mut self.source
        {
            chance.go_on((self.step, self.marks));
            self.until = chance.until();
            (self.preempt, self.preempt_mark) = (u32::MAX, u32::MAX);
            match chance.marks {
                true => self.preempt_mark = chance.next_preemption(self.marks),
                false => self.preempt = chance.next_preemption(self.step),
            }
        }
        let due = self.step >= self.preempt || self.marks >= self.preempt_mark;
        let marks = self.marks;
        let runnable = self.runnable;
        let best = self.best();
        let to = {
            let lowest = &mut self.lowest;
            let threads = &mut self.threads;
            let step = self.step;
            let (stalled, stalled_until) = (&mut self.stalled, &mut self.stalled_until);
            let (preempt, preempt_mark) = (&mut self.preempt, &mut self.preempt_mark);
            let mut lowered = false;
            let decided = match &mut self.source {
                Source::Chance(chance) => {
                    let mut to = me;
                    let count = if chance.marks { marks } else { step };
                    if due {
                        match chance.strategy {
                            Strategy::Straight => (),
                            Strategy::Priorities | Strategy::Shuffled => {
                                if chance.left > 0 && chance.points[chance.left - 1] <= count {
                                    *lowest -= 1;
                                    threads[me as usize].priority = match chance.strategy {
                                        Strategy::Priorities => *lowest,
                                        _ => PRIORITIES + chance.rng.below(u64::from(PRIORITIES)) as u32,
                                    };
                                    lowered = true;
                                }
                            }
                            Strategy::Stall(_, longest) => {
                                let others = runnable & !*stalled & !(1 << me);
                                if others != 0 {
                                    to = pick(others, chance);
                                    *stalled |= 1 << me;
                                    stalled_until[me as usize] =
                                        step + 1 + chance.rng.below(u64::from(longest)) as u32;
                                }
                            }
                            _ => to = pick(runnable, chance),
                        }
                        let next = chance.next_preemption(count);
                        *(if chance.marks { preempt_mark } else { preempt }) = next;
                    }
                    to
                }
                Source::Record(decisions) => {
                    let to = plan::recorded(decisions, at, Kind::Switch).unwrap_or(me);
                    if runnable & (1 << to) != 0 { to } else { me }
                }
            };
            if matches!(&self.source, Source::Chance(chance) if chance.by_priority()) {
                if lowered { self.best() } else { best }
            } else {
                decided
            }
        };
        if to != me
            && let (Source::Chance(_), Some(record)) = (&self.source, &mut self.record)
        {
            record.push(Decision { at, kind: Kind::Switch, value: to });
        }
        self.running = to as usize;
        self.plan();
        to != me
    }

    /// Those that have stayed behind for long enough do not any more.
    fn end_stalls(&mut self) {
        for thread in bits(self.stalled) {
            if self.stalled_until[thread] <= self.step {
                self.stalled &= !(1 << thread);
            }
        }
    }

    /// The runnable threads that do not stay behind, or all.
    fn willing(&mut self, among: u32) -> u32 {
        self.end_stalls();
        if among & !self.stalled == 0 { among } else { among & !self.stalled }
    }

    /// The runnable thread of the highest priority.
    fn best(&self) -> u32 {
        let mut best = self.running as u32;
        let mut highest =
            if self.runnable & (1 << best) != 0 { self.threads[best as usize].priority } else { 0 };
        for thread in bits(self.runnable) {
            if self.threads[thread].priority > highest {
                highest = self.threads[thread].priority;
                best = thread as u32;
            }
        }
        best
    }

    /// Who goes on when the running thread cannot. Some thread can.
    fn choose_next(&mut self) -> usize {
        let runnable = self.runnable;
        let default = runnable.trailing_zeros();
        let best = self.best();
        let willing = self.willing(runnable);
        let next = self.decide(Kind::Next, default, |chance| match chance.strategy {
            Strategy::Straight => default,
            _ if chance.by_priority() => best,
            _ => pick(willing, chance),
        });
        // In a record that was changed, it may be a thread that cannot.
        if runnable & (1 << next) != 0 { next as usize } else { default as usize }
    }

    /// The running thread offers its place. Returns whether another one takes it.
    fn pause(&mut self) -> bool {
        self.idle += 1;
        // Time passes faster while nothing else does.
        self.jumped += STEP_NS << (self.idle / self.count as u32).min(20);
        if self.idle > IDLE {
            let message = format!("threads go round in circles, and nothing changes: {}", self.describe());
            self.failure.get_or_insert(message);
            return true;
        }
        let me = self.running;
        self.naps += 1;
        if self.naps > NAP {
            self.naps = 0;
            self.idle_expiry();
        }
        // The next one, so that all get their turn.
        let others = self.runnable & !(1 << me);
        if others == 0 {
            // Stores do not stay in buffers for ever.
            if self.idle.is_multiple_of(8) {
                (0..self.count).for_each(|thread| self.drain(thread));
                self.idle_expiry();
            }
            return false;
        }
        let above = others & !((2 << me) - 1);
        let cyclic = if above != 0 { above.trailing_zeros() } else { others.trailing_zeros() };
        let idle = self.idle;
        if self.decide(Kind::Eager, 0, |chance| u32::from(idle < 64 && chance.happens(chance.eager, 8))) != 0
        {
            return false;
        }
        self.lowest -= 1;
        self.threads[me].priority = self.lowest;
        let best = self.best();
        let willing = self.willing(others);
        let next = self.decide(Kind::Next, cyclic, |chance| match chance.strategy {
            Strategy::Straight => cyclic,
            _ if chance.by_priority() && idle < 64 => best,
            _ => pick(willing, chance),
        });
        let next = if self.runnable & (1 << next) != 0 { next } else { cyclic };
        self.running = next as usize;
        self.plan();
        self.running != me
    }

    /// The running thread cannot go on. Returns whether it is to be suspended (it may have been let go on at once).
    fn block(&mut self, status: Status) -> bool {
        let me = self.running;
        self.threads[me].status = status;
        self.runnable &= !(1 << me);
        if let Status::Spins(_) = status {
            self.spinning |= 1 << me;
        }
        self.go_on();
        self.running != me || self.failure.is_some()
    }

    /// Chooses who runs when the running thread cannot.
    fn go_on(&mut self) {
        if self.runnable == 0 && self.buffering != 0 {
            // Buffers empty themselves sooner or later.
            (0..self.count).for_each(|thread| self.drain(thread));
        }
        // (The deadline of a thread that was stopped lets nobody run.)
        while self.runnable == 0 && self.timed != 0 {
            self.idle_expiry();
        }
        if self.runnable == 0 {
            if let Some((thread, _)) = self.freeze
                && self.threads[thread].status == Status::Frozen
                && (0..self.count)
                    .all(|other| matches!(self.threads[other].status, Status::Done | Status::Frozen))
            {
                return;
            }
            let message = format!("all threads wait, and nobody is left to wake them: {}", self.describe());
            self.failure.get_or_insert(message);
            return;
        }
        self.running = self.choose_next();
        self.plan();
    }

    /// A deadline passes: the earliest, or another one.
    fn idle_expiry(&mut self) {
        if self.timed == 0 {
            return;
        }
        let timed = self.timed;
        let deadline = |thread: &usize| self.threads[*thread].deadline.unwrap_or(u64::MAX);
        let earliest = bits(timed).min_by_key(deadline).expect("some thread") as u32;
        let thread = self.decide(Kind::Idle, earliest, |chance| {
            if chance.happens(chance.expires, 16) { pick(timed, chance) } else { earliest }
        });
        let thread = if timed & (1 << thread) != 0 { thread } else { earliest };
        self.time_out(thread as usize);
    }

    /// A sleeper's deadline passes.
    fn time_out(&mut self, thread: usize) {
        let deadline = self.threads[thread].deadline.unwrap_or(0);
        self.jumped += deadline.saturating_sub(self.time());
        self.sleepers.retain(|(_, sleeper)| *sleeper != thread);
        self.wake_thread(thread, Wait::TimedOut);
        if self.trace.is_some() {
            self.note(format!("(the deadline of thread {thread} passes)"));
        }
    }

    fn wake_thread(&mut self, thread: usize, outcome: Wait) {
        let sleeper = &mut self.threads[thread];
        sleeper.outcome = outcome;
        sleeper.expires = u32::MAX;
        sleeper.deadline = None;
        self.timed &= !(1 << thread);
        if sleeper.status != Status::Frozen {
            sleeper.status = Status::Runnable;
            self.runnable |= 1 << thread;
            self.idle = 0;
        }
        self.look_again();
    }

    /// A thread of a higher priority may be able to run now.
    fn look_again(&mut self) {
        if matches!(&self.source, Source::Chance(chance) if chance.by_priority()) {
            self.event = self.event.min(self.step + 1);
        }
    }

    fn freeze_now(&mut self, thread: usize) {
        self.freeze = Some((thread, u32::MAX));
        self.frozen = true;
        self.threads[thread].status = Status::Frozen;
        self.runnable &= !(1 << thread);
        self.spinning &= !(1 << thread);
        self.drain(thread);
        if self.trace.is_some() {
            self.note(format!("(thread {thread} is stopped for ever)"));
        }
    }

    /// The running thread has come to its end. Returns whether there are others.
    fn exit(&mut self) -> bool {
        let me = self.running;
        self.threads[me].status = Status::Done;
        self.runnable &= !(1 << me);
        if self.threads[..self.count]
            .iter()
            .all(|thread| matches!(thread.status, Status::Done | Status::Frozen))
        {
            return false;
        }
        self.go_on();
        true
    }

    /// What each thread waits for.
    fn describe(&self) -> String {
        let mut text = String::new();
        for (number, thread) in self.threads[..self.count].iter().enumerate() {
            let does = match thread.status {
                Status::Done => continue,
                Status::Runnable => "can run".to_owned(),
                Status::Spins(address) => format!("spins on {}", self.world.name(address)),
                Status::Sleeps(0) => "sleeps".to_owned(),
                Status::Sleeps(address) => format!("sleeps on {}", self.world.name(address)),
                Status::Frozen => "is stopped".to_owned(),
            };
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&format!("thread {number} {does}"));
        }
        text
    }

    /// Nanoseconds since the clock's epoch.
    pub(super) fn time(&self) -> u64 {
        START_NS + u64::from(self.step) * STEP_NS + self.jumped
    }

    /// Reads the clock, which may jump.
    pub(super) fn now(&mut self) -> u64 {
        let jump = self.decide(Kind::Jump, 0, |chance| {
            if chance.happens(chance.jumps, 16) { 1 + chance.rng.below(5) as u32 } else { 0 }
        });
        self.jumped += [0, 2_000, 250_000, 1_100_000, 12_000_000, 1_000_000_000][jump as usize % 6];
        self.time()
    }

    /// A number below `choices`, 0 by default.
    pub(super) fn any(&mut self, kind: Kind, choices: u32) -> u32 {
        self.decide(kind, 0, |chance| {
            let happens = match kind {
                Kind::Look => chance.happens(chance.looks, 8),
                Kind::Cpu => chance.happens(chance.moves, 8),
                _ => true,
            };
            if happens { chance.rng.below(u64::from(choices)) as u32 } else { 0 }
        })
    }

    // Memory.

    /// A write to memory.
    #[inline]
    pub(super) fn write(&mut self, place: Place, value: u64) {
        let old = place.value();
        if old != value {
            place.set(value);
            self.idle = 0;
            if self.covered.contains(&place.address) {
                self.cover(place.address, old, value);
            }
            if self.spinning != 0 {
                self.wake_spinners(place.address);
            }
        }
    }

    #[inline(never)]
    fn cover(&mut self, address: usize, old: u64, new: u64) {
        let waiting = (self.sleepers.len() as u32) << 8 | self.spinning.count_ones();
        if self.coverage.change(address - self.covered.start, old, new, waiting) {
            self.coverage.rare_at = self.step;
            for (operation, thread) in self.coverage.operations.iter_mut().zip(&self.threads) {
                *operation = thread.operation;
            }
        }
    }

    fn wake_spinners(&mut self, address: usize) {
        for thread in bits(self.spinning) {
            if self.threads[thread].status == Status::Spins(address) {
                self.threads[thread].status = Status::Runnable;
                self.spinning &= !(1 << thread);
                self.runnable |= 1 << thread;
                self.look_again();
            }
        }
    }

    /// What the running thread reads.
    #[inline]
    pub(super) fn load(&mut self, place: Place) -> u64 {
        let thread = &self.threads[self.running];
        for i in (0..thread.stored).rev() {
            let entry = &thread.buffer[(thread.first + i) % BUFFER];
            if entry.place.address == place.address {
                return entry.value;
            }
        }
        if self.fenced {
            self.fenced = false;
            if self.mistake == Mistake::NoSecondLook {
                return 0;
            }
        }
        if self.mistake == Mistake::BlindScan && self.world.is_reader_slot(place.address) {
            return 0;
        }
        place.value()
    }

    /// A plain store. Returns whether it stays in the buffer for now.
    #[inline]
    pub(super) fn store(&mut self, place: Place, value: u64) -> bool {
        let delay = self.decide(Kind::Delay, 0, |chance| {
            if chance.happens(chance.buffered, 8) {
                1 + chance.rng.below(u64::from(chance.longest)) as u32
            } else {
                0
            }
        });
        self.store_for(place, value, delay)
    }

    /// The store of a decrement.
    pub(super) fn store_late(&mut self, place: Place, value: u64) -> bool {
        let delay = self.decide(Kind::Delay, 0, |chance| {
            if chance.happens(chance.late, 8) {
                1 + chance.rng.below(u64::from(chance.longest)) as u32
            } else {
                0
            }
        });
        self.store_for(place, value, delay)
    }

    fn store_for(&mut self, place: Place, value: u64, delay: u32) -> bool {
        let me = self.running;
        if delay == 0 && self.threads[me].stored == 0 {
            self.write(place, value);
            return false;
        }
        if self.threads[me].stored == BUFFER {
            self.flush(me);
        }
        let due = self.step + delay;
        let thread = &mut self.threads[me];
        thread.buffer[(thread.first + thread.stored) % BUFFER] = Buffered { place, value, due };
        thread.stored += 1;
        self.buffering |= 1 << me;
        self.plan();
        true
    }

    /// The oldest store of a thread's buffer becomes visible.
    fn flush(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let entry = thread.buffer[thread.first];
        thread.first = (thread.first + 1) % BUFFER;
        thread.stored -= 1;
        if thread.stored == 0 {
            self.buffering &= !(1 << number);
        }
        if entry.place.is_alive() {
            if self.trace.is_some() {
                let word = self.world.name(entry.place.address);
                self.note(format!("(store of thread {number} is visible: {word} = {:#x})", entry.value));
            }
            self.write(entry.place, entry.value);
        } else {
            let word = self.world.name(entry.place.address);
            self.failure
                .get_or_insert(format!("a store of thread {number} to a word that was destroyed ({word})"));
        }
    }

    /// All stores of a thread become visible.
    #[inline]
    pub(super) fn drain(&mut self, thread: usize) {
        while self.threads[thread].stored > 0 {
            self.flush(thread);
        }
    }

    /// A word is dropped by the running thread: what that has stored there does not matter any more.
    pub(super) fn forget(&mut self, address: usize) {
        let me = self.running;
        let kept = |entry: &Buffered| entry.place.address != address;
        let thread = &mut self.threads[me];
        let stored = thread.stored;
        let mut left = 0;
        for i in 0..stored {
            let entry = thread.buffer[(thread.first + i) % BUFFER];
            if kept(&entry) {
                thread.buffer[(thread.first + left) % BUFFER] = entry;
                left += 1;
            }
        }
        thread.stored = left;
        if left == 0 {
            self.buffering &= !(1 << me);
        }
    }

    /// Whether no store of any other thread is in its buffer.
    pub(super) fn no_stores_elsewhere(&self) -> bool {
        self.buffering & !(1 << self.running) == 0
    }

    /// `membarrier`: a full fence on every processor, between two instructions.
    pub(super) fn heavy_fence(&mut self) {
        if self.mistake != Mistake::NoHeavyFence {
            (0..self.count).for_each(|thread| self.drain(thread));
        }
    }

    // Sleeping.

    /// Whether a futex wait returns for no reason.
    pub(super) fn is_spurious(&mut self) -> bool {
        let decide =
            |chance: &mut Chance| u32::from(chance.spurious > 0 && chance.happens(1, chance.spurious));
        self.decide(Kind::Spurious, 0, decide) != 0
    }

    fn sleep(&mut self, address: usize, deadline: Option<u64>) {
        let me = self.running;
        if address != 0 {
            self.sleepers.push_back((address, me));
        }
        if deadline.is_some() {
            let after = self.decide(Kind::Expire, 0, |chance| {
                if chance.happens(chance.expires, 8) { 1 + chance.rng.below(60) as u32 } else { 0 }
            });
            self.threads[me].deadline = deadline;
            self.threads[me].expires = self.step + if after == 0 { LONGEST } else { after };
            self.timed |= 1 << me;
        }
    }

    pub(super) fn wake(&mut self, address: usize, count: u32) -> usize {
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

    pub(super) fn sleeps_somebody(&self, address: usize) -> bool {
        self.sleepers.iter().any(|(word, _)| *word == address)
    }

    pub(super) fn requeue(&mut self, from: usize, to: usize) {
        if let Some(at) = self.sleepers.iter().position(|(word, _)| *word == from) {
            let (_, thread) = self.sleepers.remove(at).expect("found there");
            self.sleepers.push_back((to, thread));
            if let Status::Sleeps(_) = self.threads[thread].status {
                self.threads[thread].status = Status::Sleeps(to);
            }
            if self.trace.is_some() {
                let (from, to) = (self.world.name(from), self.world.name(to));
                self.note(format!("(thread {thread}, which slept on {from}, sleeps on {to} now)"));
            }
        }
    }

    /// The running thread begins or ends an operation that may wait.
    pub(super) fn set_waits(&mut self, waits: bool) {
        self.threads[self.running].waits = waits;
        if waits && self.freeze.is_some() {
            self.plan();
        }
    }

    // Mistakes and traces.

    /// Whether the machine loses this store, by mistake.
    #[inline]
    pub(super) fn loses(&self, place: Place, value: u64, order: Ordering) -> bool {
        match self.mistake {
            Mistake::LostSkip => value == 2 && order == Ordering::Release,
            Mistake::LostLink => order == Ordering::Relaxed && value != 0 && self.world.is_pointer(value),
            Mistake::OpenRing => value as usize == place.address,
            _ => false,
        }
    }

    pub(super) fn note(&mut self, text: String) {
        let thread = self.running;
        if let Some(trace) = &mut self.trace {
            trace.push(Line { thread, text });
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn trace_access(&mut self, place: Place, name: &str, old: Option<u64>, new: Option<u64>) {
        let word = self.world.name(place.address);
        let value = |value: u64| self.world.value(value);
        let values = match (old, new) {
            (Some(old), Some(new)) if old == new => format!("{}, unchanged", value(old)),
            (Some(old), Some(new)) => format!("{} -> {}", value(old), value(new)),
            (Some(only), None) | (None, Some(only)) => value(only),
            (None, None) => String::new(),
        };
        self.note(format!("{name} {word}: {values}"));
    }
}

/// The numbers of the bits that are set.
fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < 32).then_some(bit as usize)
    })
}

/// One of the bits that are set, by chance.
fn pick(mask: u32, chance: &mut Chance) -> u32 {
    let n = chance.rng.below(u64::from(mask.count_ones())) as usize;
    bits(mask).nth(n).expect("a bit is set") as u32
}
