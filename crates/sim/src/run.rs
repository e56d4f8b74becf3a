//! Running a simulation: one coroutine for each simulated thread, and the loop over the events that switches between
//! them.
//!
//! All coroutines of a simulation run on the OS thread that called [`run`], one at a time. Several simulations can run
//! on different OS threads.

use crate::events::{Event, Time};
use crate::machine::resources;
use crate::profile::{MAX_THREADS, Profile};
use crate::report::Report;
use crate::simulation::{Simulation, current};
use crate::state::{Action, State};
use crate::thread::{Pending, Phase, Yielder};
use crate::{Error, Options};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use latchwork::machine::Wait;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

type Body = Coroutine<(), (), Result<(), Box<dyn Any + Send>>, DefaultStack>;

/// Runs `bodies`, each as a thread of the simulated machine (number `i` is thread `i`), until all have
/// returned.
///
/// Within a body, locks over [`Sim`](crate::Sim) take simulated time, and so does
/// [`work`](crate::work); everything else takes none. Bodies run one at a time on the calling OS thread,
/// so they may share plain memory (a [`Cell`](std::cell::Cell)) as far as Rust lets them.
///
/// # Errors
///
/// Too many threads, a deadlock, a time limit, or [`fail`](crate::fail). Bodies that have not finished
/// are then abandoned where they are: what is on their stacks is leaked, not dropped.
///
/// # Panics
///
/// If a body does, once the others have been abandoned; or within a body.
pub fn run(
    profile: &Profile,
    options: &Options,
    bodies: Vec<Box<dyn FnOnce() + '_>>,
) -> Result<Report, Error> {
    assert!(current().is_none(), "a simulation within a simulation");
    match bodies.len() {
        0 => return Err(Error::Usage("a simulation needs at least one thread".into())),
        n if n > MAX_THREADS => {
            return Err(Error::Usage(format!("{n} threads: at most {MAX_THREADS} can be simulated")));
        }
        _ => (),
    }
    resources::begin();
    let mut state = State::new(profile, options, bodies.len());
    state.start(bodies.len());
    let simulation = Simulation::new(state);
    let mut coroutines = Vec::with_capacity(bodies.len());
    for body in bodies {
        let stack = resources::take_stack()
            .map_err(|error| Error::Resources(format!("no stack for another thread: {error}")))?;
        coroutines.push(coroutine(&simulation, stack, body));
    }
    let result = drive(&simulation, &mut coroutines);
    for mut coroutine in coroutines {
        if coroutine.started() && !coroutine.done() {
            // SAFETY: what is on the stack is leaked, as documented; nobody resumes it any more.
            unsafe { coroutine.force_reset() };
        }
        if coroutine.done() {
            resources::give_stack(coroutine.into_stack());
        }
    }
    resources::end();
    let state = simulation.into_state();
    match result {
        Ok(()) => {
            let threads = state.threads.iter().map(|thread| thread.counts).collect();
            let lines = state.lines.count();
            Ok(state.marks.into_report(threads, state.events.happened, state.trace, lines))
        }
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::Panic(payload)) => resume_unwind(payload),
    }
}

fn coroutine<'a>(simulation: &Simulation, stack: DefaultStack, body: Box<dyn FnOnce() + 'a>) -> Body {
    let simulation: *const Simulation = simulation;
    let run = move |yielder: &Yielder, ()| {
        // SAFETY: coroutines are only resumed by `drive`, which borrows the simulation.
        unsafe { &*simulation }.with(|s| s.me().yielder = yielder);
        catch_unwind(AssertUnwindSafe(body))
    };
    // SAFETY: what `body` borrows outlives `run`, which resumes the coroutine, and drops or resets it
    // before it returns.
    unsafe { Coroutine::with_stack_unchecked(stack, run) }
}

/// Why the loop ended early.
enum Stop {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

/// The loop over the events.
fn drive(simulation: &Simulation, coroutines: &mut [Body]) -> Result<(), Stop> {
    let mut action = simulation.with(State::step);
    loop {
        action = match action {
            Action::Done => return Ok(()),
            Action::Fail(error) => return Err(Stop::Error(error)),
            Action::Resume(id) => {
                simulation.with(|s| s.running = id);
                match simulation.within(|| coroutines[id as usize].resume(())) {
                    CoroutineResult::Yield(()) => (),
                    CoroutineResult::Return(Ok(())) => simulation.with(|s| {
                        let time = s.thread(id).time;
                        s.thread(id).pending = Pending::Exit;
                        s.events.plan(time, Event::Run(id));
                    }),
                    CoroutineResult::Return(Err(payload)) => return Err(Stop::Panic(payload)),
                }
                simulation.with(State::step)
            }
            Action::Look(id, look) => {
                // SAFETY: the predicate is on the stack of a coroutine that is suspended until it has
                // been satisfied or given up.
                let done = match catch_unwind(AssertUnwindSafe(|| unsafe { (*look)() })) {
                    Ok(done) => done,
                    Err(payload) => return Err(Stop::Panic(payload)),
                };
                simulation.with(|s| s.looked(id, done).unwrap_or_else(|| s.step()))
            }
        };
    }
}

impl State {
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
                Event::Balance => {
                    self.balance(now);
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
}
