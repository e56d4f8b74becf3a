//! The running simulation, as code that runs in one of its threads finds it.
//!
//! No reference to the state is held while a coroutine is switched to or from: all code that touches the state does so
//! within [`Simulation::with`].

use crate::events::NEVER;
use crate::lines::Kind;
use crate::state::State;
use crate::thread::Look;
use std::cell::{Cell, UnsafeCell};
use std::ptr::null;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};

/// A running simulation.
pub(crate) struct Simulation {
    state: UnsafeCell<State>,
}

std::thread_local! {
    /// The simulation that runs on this OS thread, while one of its coroutines executes. Null outside, and while a
    /// predicate is asked: words are plain memory then.
    static CURRENT: Cell<*const Simulation> = const { Cell::new(null()) };
}

/// The simulation that the caller runs in, if any.
#[inline]
pub(crate) fn current<'a>() -> Option<&'a Simulation> {
    // SAFETY: null, or set by `Simulation::within` to a borrowed simulation; it is null again when the borrow ends.
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
    pub(crate) fn new(state: State) -> Self {
        Simulation { state: UnsafeCell::new(state) }
    }

    pub(crate) fn into_state(self) -> State {
        self.state.into_inner()
    }

    /// Calls `f` with this simulation as the one that [`current`] finds.
    pub(crate) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Sets `CURRENT` to null again, even if `f` panics.
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(null());
            }
        }
        CURRENT.set(self);
        let _leave = Leave;
        f()
    }

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

/// Spins on a word whose value, read just before, did not satisfy the caller, until `look` (which looks at it once more) is
/// satisfied, or for the time of `spins` looks.
pub(crate) fn spin(sim: &Simulation, look: &mut dyn FnMut() -> bool, spins: Option<u32>) {
    let look: *mut (dyn FnMut() -> bool + '_) = look;
    // SAFETY: only the lifetime changes. The pointer is not used after this function has returned:
    // the loop resumes us only when it has been forgotten.
    let look: Look = unsafe { std::mem::transmute(look) };
    sim.with(|s| {
        let turn = s.costs.pause + s.lines.look();
        let now = s.me().time;
        let give_up = spins.map_or(NEVER, |spins| now + turn * u64::from(spins));
        s.start_spin(look, give_up);
    });
    sim.suspend();
}
