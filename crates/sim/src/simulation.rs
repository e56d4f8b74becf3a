//! Running it: one coroutine per simulated thread, and the loop that switches between them.
//!
//! All coroutines of a simulation run on the OS thread that called [`run`], one at a time; several
//! simulations can run on different OS threads. No reference to the state is held while a coroutine
//! is switched to or from: whoever touches the state does so within [`Simulation::with`].

use crate::access::Pending;
use crate::events::Event;
use crate::lines::Kind;
use crate::profile::{MAX_THREADS, Profile};
use crate::report::Report;
use crate::resources;
use crate::state::{Action, Look, State};
use crate::{Error, Options};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};

/// Where a coroutine is suspended.
pub(crate) type Yielder = corosensei::Yielder<(), ()>;
type Body = Coroutine<(), (), Result<(), Box<dyn Any + Send>>, DefaultStack>;

/// A running simulation.
pub(crate) struct Simulation {
    state: UnsafeCell<State>,
}

std::thread_local! {
    /// The simulation whose coroutine is executing on this OS thread; null outside, and while a
    /// predicate is asked: words are plain memory then.
    static CURRENT: Cell<*const Simulation> = const { Cell::new(null()) };
}

/// The simulation that the caller runs in, if any.
#[inline]
pub(crate) fn current<'a>() -> Option<&'a Simulation> {
    // SAFETY: set by `run` to a simulation that lives until it has been set to null again.
    unsafe { CURRENT.get().as_ref() }
}

/// The same for operations that make no sense elsewhere.
#[track_caller]
pub(crate) fn inside<'a>(what: &str) -> &'a Simulation {
    current().unwrap_or_else(|| {
        panic!("{what} outside of a simulation: call it from a body given to latchwork_sim::run")
    })
}

impl Simulation {
    /// Looks at or changes the state. `f` must not switch coroutines, nor call this again.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        // SAFETY: all coroutines of the simulation and its loop are on one OS thread, and none of the
        // closures given to this function switches or re-enters, so this is the only reference.
        f(unsafe { &mut *self.state.get() })
    }

    /// Lets other threads run, until the loop resumes this one.
    #[inline]
    pub(crate) fn suspend(&self) {
        let yielder = self.with(|s| s.me().yielder);
        // SAFETY: set when the coroutine started; we are on its stack, so it is still there.
        unsafe { &*yielder }.suspend(());
    }
}

/// An access to memory at `address` by the running thread; outside of a simulation, nothing.
#[inline]
pub(crate) fn access(address: usize, kind: Kind) {
    if let Some(sim) = current()
        && !sim.with(|s| s.access(address, kind))
    {
        sim.suspend();
    }
}

/// What a machine with weak ordering does before a write of this ordering.
#[inline]
pub(crate) fn before(order: Ordering) {
    if matches!(order, Release | AcqRel | SeqCst)
        && let Some(sim) = current()
    {
        sim.with(State::release_barrier);
    }
}

/// What such a machine does after an atomic instruction of this ordering.
#[inline]
pub(crate) fn after(order: Ordering) {
    if matches!(order, Acquire | AcqRel | SeqCst)
        && let Some(sim) = current()
    {
        sim.with(State::acquire_barrier);
    }
}

/// A write has changed something in memory, or not.
#[inline]
pub(crate) fn changed(something: bool) {
    if let Some(sim) = current() {
        sim.with(|s| if something { s.version += 1 } else { s.note_attempt() });
    }
}

/// With an adversary, now and then: lets others run between the two halves of an instruction that is not
/// atomic.
#[inline]
pub(crate) fn tear() {
    if let Some(sim) = current()
        && sim.with(State::begin_tear)
    {
        sim.suspend();
        sim.with(|s| s.me().torn = false);
    }
}

/// Waits until no thread is in the middle of an instruction: an interrupt falls between two.
pub(crate) fn await_tears(sim: &Simulation) {
    while sim.with(State::await_tear) {
        sim.suspend();
    }
}

/// Runs `bodies`, each as a thread of the simulated machine (number `i` is thread `i`), until all have
/// returned.
///
/// Within a body, locks over [`Sim`](crate::Sim) take simulated time, and so does
/// [`work`](crate::work); everything else takes none. Bodies run one at a time on the calling OS thread,
/// so they may share plain memory (a [`Cell`]) as far as Rust lets them.
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
    let simulation = Simulation { state: UnsafeCell::new(State::new(profile, options, bodies.len())) };
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
    let state = simulation.state.into_inner();
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
    /// Takes `CURRENT` back even if a predicate panics.
    struct Within;
    impl Drop for Within {
        fn drop(&mut self) {
            CURRENT.set(null());
        }
    }
    let mut action = simulation.with(State::step);
    loop {
        action = match action {
            Action::Done => return Ok(()),
            Action::Fail(error) => return Err(Stop::Error(error)),
            Action::Resume(id) => {
                simulation.with(|s| s.running = id);
                CURRENT.set(simulation);
                let within = Within;
                let result = coroutines[id as usize].resume(());
                drop(within);
                match result {
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

/// Spins on a word that has just been read in vain, until `look` (which looks at it once more) is
/// satisfied, or for the time of `spins` looks.
pub(crate) fn spin(sim: &Simulation, look: &mut dyn FnMut() -> bool, spins: Option<u32>) {
    let look: *mut (dyn FnMut() -> bool + '_) = look;
    // SAFETY: only the lifetime changes. The pointer is not used after this function has returned:
    // the loop resumes us only when it has been forgotten.
    let look: Look = unsafe { std::mem::transmute(look) };
    sim.with(|s| {
        let turn = s.costs.pause + s.lines.look();
        let now = s.me().time;
        let give_up = spins.map_or(crate::events::NEVER, |spins| now + turn * u64::from(spins));
        s.start_spin(look, give_up);
    });
    sim.suspend();
}
