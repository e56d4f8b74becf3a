//! The system calls that sleep on a word and wake its sleepers: a thread's half of `futex(2)`.
//!
//! Each call takes the lock of the word's hash bucket, which is a simulated cache line of its own.

use crate::events::NS;
use crate::lines::Kind;
use crate::simulation::{Simulation, access};
use crate::state::State;
use crate::words::U32;
use latchwork::machine::{Deadline, Wait, Word};
use std::sync::atomic::Ordering::Relaxed;

/// An address that nobody has, for the lock of a word's bucket.
fn bucket(address: usize) -> usize {
    !address
}

/// `Machine::wait`.
pub(crate) fn wait(sim: &Simulation, word: &U32, expected: u32, deadline: Option<Deadline>) -> Wait {
    let address = std::ptr::from_ref(word).addr();
    sim.with(|s| {
        let call = s.costs.futex_wait;
        s.me().time += call;
    });
    access(bucket(address), Kind::Rmw);
    // Comparing and going to sleep are one step: nothing is suspended in between.
    if word.load(Relaxed) != expected {
        return Wait::Woken;
    }
    if sim.with(|s| deadline.is_some_and(|deadline| deadline.nanos.saturating_mul(NS) <= s.me().time)) {
        return Wait::TimedOut;
    }
    if sim.with(State::spurious) {
        return Wait::Woken;
    }
    sim.with(|s| s.sleep(address, deadline));
    sim.suspend();
    sim.with(|s| s.me().outcome)
}

/// `Machine::wake`.
pub(crate) fn wake(sim: &Simulation, address: usize, count: u32) -> usize {
    sim.with(|s| {
        let call = s.costs.futex_wake;
        s.me().time += call;
    });
    access(bucket(address), Kind::Rmw);
    sim.with(|s| s.wake(address, count))
}

/// `Machine::requeue`.
pub(crate) fn requeue(sim: &Simulation, from: *const U32, expected: u32, to: usize) {
    sim.with(|s| {
        let syscall = s.costs.syscall;
        s.me().time += syscall;
    });
    access(bucket(from.addr()), Kind::Rmw);
    if !sim.with(|s| s.sleepers.contains_key(&from.addr())) {
        return; // the word may be gone
    }
    // SAFETY: a sleeper is in the middle of a call on the word, so the word is there.
    if unsafe { &*from }.load(Relaxed) != expected {
        return;
    }
    sim.with(|s| s.requeue(from.addr(), to));
}
