//! What threads of a replay wait for, but for locks: condition variables and semaphores.
//!
//! All of them are one word on which threads sleep, as in glibc, and perhaps a counter of permits. The same serves under each lock
//! that is compared. No wait is longer than the simulation.

use super::load::{Load, Object};
use latchwork::machine::{Arith, Deadline, Machine, Word};
use latchwork_recording::edges::Meaning;
use latchwork_sim::{Sim, now};
use std::cell::Cell;
use std::sync::atomic::Ordering::*;

/// In lines of its own, as locks are.
#[repr(align(128))]
struct Event {
    /// Increased by each signal that may wake a thread.
    signals: <Sim as Machine>::U32,
    permits: Cell<u64>,
    /// Threads that sleep, or are about to.
    waiting: Cell<u32>,
}

/// The condition variables and semaphores, by the numbers of their objects.
pub struct Events(Vec<Option<Box<Event>>>);

/// What a thread saw of a condition variable while it held the mutex.
#[derive(Copy, Clone)]
pub struct Seen(u32);

impl Events {
    /// Those of a program.
    pub fn new(load: &Load) -> Self {
        let event = |object: &Object| {
            (object.meaning != Meaning::Recorded).then(|| {
                Box::new(Event {
                    signals: <Sim as Machine>::U32::new(0),
                    permits: Cell::new(object.permits.into()),
                    waiting: Cell::new(0),
                })
            })
        };
        Events(load.objects.iter().map(event).collect())
    }

    /// Before the simulation: a thread begins at a place at which it has given so many permits back.
    pub fn give(&self, object: u32, by: i64) {
        if let Some(event) = &self.0[object as usize] {
            event.permits.set(event.permits.get().saturating_add_signed(by));
        }
    }

    /// A signal or a post: one permit more, and one sleeping thread, or all, go on.
    pub fn signal(&self, object: u32, all: bool) {
        let Some(event) = &self.0[object as usize] else { return };
        event.permits.set(event.permits.get() + 1);
        if event.waiting.get() == 0 {
            event.signals.load(Relaxed);
        } else {
            event.signals.fetch_add(1, AcqRel);
            Sim::wake(&raw const event.signals, if all { u32::MAX } else { 1 });
        }
    }

    /// Takes a permit, if there is one. Costs nothing: where a mutex guards the permits, they are the program's data.
    pub fn take(&self, object: u32) -> bool {
        let Some(event) = &self.0[object as usize] else { return true };
        let left = event.permits.get().checked_sub(1);
        event.permits.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Takes a permit, or waits for one until the simulation ends. Returns whether the thread got it.
    pub fn take_or_wait(&self, object: u32, end: u64) -> bool {
        let Some(event) = &self.0[object as usize] else { return true };
        // The attempt, which changes the semaphore's word.
        event.signals.fetch_add(0, AcqRel);
        loop {
            let seen = self.look(object);
            if self.take(object) {
                return true;
            }
            if !self.wait(object, seen, end) {
                return false;
            }
        }
    }

    /// What a thread must look at before it releases the mutex, to wait then.
    pub fn look(&self, object: u32) -> Seen {
        Seen(self.0[object as usize].as_ref().map_or(0, |event| event.signals.load(Acquire)))
    }

    /// Sleeps until a signal that comes after the look. `false`: the simulation has ended.
    pub fn wait(&self, object: u32, seen: Seen, end: u64) -> bool {
        let Some(event) = &self.0[object as usize] else { return true };
        if now() >= end {
            return false;
        }
        event.waiting.set(event.waiting.get() + 1);
        Sim::wait(&event.signals, seen.0, Some(Deadline::after::<Sim>(end - now())));
        event.waiting.set(event.waiting.get() - 1);
        now() < end
    }
}
