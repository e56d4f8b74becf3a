//! The naps of threads with real-time priorities. [`priorities`](crate::priorities) says what they are for.

use crate::jitter;
use crate::random::Random;
use latchwork::machine::{Deadline, Machine, Native};
use std::cell::Cell;
use std::sync::atomic::AtomicU32;

/// Threads: one for each priority.
pub const PRIORITIES: usize = 3;
/// Nanoseconds of the longest nap: some ten times what a thread needs for an operation.
const NAP: u64 = 50_000;

/// What a thread naps on, by its place. The value stays 0.
static BEDS: [AtomicU32; PRIORITIES] = [const { AtomicU32::new(0) }; PRIORITIES];

thread_local! {
    /// The place of a thread that has a real-time priority: a higher place has a higher priority.
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Whether the calling thread naps.
pub(crate) fn is_a_napper() -> bool {
    PLACE.get().is_some()
}

/// The calling thread naps from now on, and ends the naps of others on the jitter machine.
pub(crate) fn become_a_napper(place: usize) {
    PLACE.set(Some(place));
    jitter::preempt_with(end_a_nap);
}

/// For a thread with a real-time priority: naps, with a chance of one in `n` (the lowest priority more rarely: it fills the
/// time in which the others sleep). Returns whether the thread is such a thread.
pub(crate) fn nap(random: &mut Random, n: u64) -> bool {
    let Some(place) = PLACE.get() else { return false };
    if random.once_in(if place == 0 { 4 * n } else { n }) {
        Native::wait(&BEDS[place], 0, Some(Deadline::after::<Native>(random.below(NAP))));
    }
    true
}

/// Ends the nap of a thread with a higher priority, which then preempts the caller.
fn end_a_nap(chance: u64) {
    let Some(place) = PLACE.get() else { return };
    let above = PRIORITIES - 1 - place;
    if above > 0 {
        Native::wake(&BEDS[place + 1 + chance as usize % above], 1);
    }
}
