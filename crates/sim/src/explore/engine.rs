//! The engine: threads, their store buffers, the sleepers, and the choice of the thread that runs next.
//!
//! One thread runs at a time, as a coroutine on the OS thread that explores. It goes on from access to access, and
//! at each of them (a *step*) another thread may take its place.

mod memory;
mod schedule;
mod sleep;

use super::arena::Arena;
use super::coverage::Coverage;
use super::place::Place;
use super::{Mistake, Strategy, plan};
use corosensei::stack::{DefaultStack, Stack as _};
use corosensei::{Coroutine, CoroutineResult};
use latchwork::machine::Wait;
use plan::{Decision, Source};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

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

/// The deadline of a sleep that ends by itself only if a release of its word was torn, so that other lost wakeups show.
pub(super) const WHEN_TORN: u64 = u64::MAX;
/// Nanoseconds until it does then.
const TORN_NS: u64 = 1_000_000;

/// Steps after which a sleeper's deadline passes in any case, though others go on.
const LONGEST: u32 = 1_000;

/// Nanoseconds that a step takes.
const STEP_NS: u64 = 20;
/// Nanoseconds of the clock when a schedule begins.
const START_NS: u64 = 1_000_000;

/// Bytes at the beginning of the arena that coverage looks at: they hold the locks, and no data.
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
    /// Of a release of a lock: the step of the look before it.
    looked: Option<u32>,
}

struct Thread {
    status: Status,
    priority: u32,
    outcome: Wait,
    deadline: Option<u64>,
    /// The step at which it went to sleep, if a torn release of the word ends the sleep.
    until_torn: Option<u32>,
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
            until_torn: None,
            expires: u32::MAX,
            yielder: null(),
            buffer: [Buffered { place: Place::NOWHERE, value: 0, due: 0, looked: None }; BUFFER],
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

/// What the threads have around them that is made of words. Words know the engine; so the engine knows no more of the
/// surroundings than this.
pub(super) trait Surroundings: Any {
    /// Puts everything back to its beginning. Called outside of schedules, where words are plain memory.
    fn reset(&mut self, grouped: bool);

    /// Whether the address is that of a slot for visible readers.
    fn is_reader_slot(&self, address: usize) -> bool;

    /// What a word of the surroundings is called in a trace.
    fn name(&self, address: usize) -> Option<String>;
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
    pub(super) freeze: Option<(usize, u32)>,
    pub frozen: bool,
    pub refused_fences: bool,
    /// Whether a release of a lock is one step.
    pub whole_releases: bool,
    /// The step after which chance has another seed.
    until: u32,
    pub coverage: Coverage,
    /// Where the words are that coverage looks at.
    covered: std::ops::Range<usize>,
    /// Stacks of coroutines that are over, for the next ones.
    stacks: Vec<DefaultStack>,
    /// The lowest and the highest address of each thread's stack.
    stack_ranges: [(usize, usize); MAX_THREADS],
    pub arena: Arena,
    pub surroundings: Box<dyn Surroundings>,
}

pub(super) struct Engine {
    state: UnsafeCell<State>,
}

std::thread_local! {
    /// The engine that runs on this OS thread, while one of its coroutines executes; else null.
    static INSIDE: Cell<*const Engine> = const { Cell::new(null()) };
    /// The engine that this OS thread explores with; null if it does not.
    static WORLD: Cell<*const Engine> = const { Cell::new(null()) };
}

/// The engine, for code that runs as one of its threads.
#[inline(always)]
pub(super) fn inside<'a>() -> Option<&'a Engine> {
    // SAFETY: set by `drive` to an engine that lives until it has been set to null again.
    unsafe { INSIDE.get().as_ref() }
}

/// The engine of this OS thread, also for code that prepares a schedule.
pub(super) fn world<'a>() -> &'a Engine {
    // SAFETY: set by `Engine::enter` to an engine that lives until it has been set to null again.
    unsafe { WORLD.get().as_ref() }.expect("a lock over Explore is used outside of an exploration")
}

/// Writes a line of the trace, if there is one.
macro_rules! trace {
    ($engine:expr, $place:expr, $name:expr, $old:expr, $new:expr) => {
        if $engine.with(|s| s.trace.is_some()) {
            $engine.with(|s| s.trace_access($place, $name, $old, $new));
        }
    };
}
pub(super) use trace;

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
    pub whole_releases: bool,
}

impl Engine {
    pub(super) fn new(surroundings: Box<dyn Surroundings>) -> Box<Engine> {
        let arena = Arena::new();
        let start = arena.start().addr();
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
                whole_releases: false,
                until: u32::MAX,
                coverage: Coverage::new(),
                covered: start..start + COVERED,
                stacks: Vec::with_capacity(2 * MAX_THREADS),
                stack_ranges: [(0, 0); MAX_THREADS],
                arena,
                surroundings,
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
        let word = self.with(|s| s.name(place.address));
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

    /// The running thread spins until a word changes that did not satisfy it.
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
        let surroundings: *mut dyn Surroundings = self.with(|s| &raw mut *s.surroundings);
        // SAFETY: what resets words does not come back here, as nobody runs.
        unsafe { &mut *surroundings }.reset(grouped);
        self.with(|s| {
            s.arena.reset();
            s.begin(setup);
        });
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
                self.with(|s| s.stacks.push(stack));
            }
        }
        result
    }

    fn coroutine<'a>(&self, thread: usize, body: Box<dyn FnOnce() + 'a>) -> Body {
        let stack = self.with(|s| s.stacks.pop());
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK).expect("memory for a stack"));
        self.with(|s| s.stack_ranges[thread] = (stack.limit().get(), stack.base().get()));
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
