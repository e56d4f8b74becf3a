//! What threads of a replay wait for, but for locks: condition variables, semaphores, barriers, and the beginning and end of
//! threads.
//!
//! All of them are one word on which threads sleep, as in glibc, and perhaps a counter of permits. The same serves under each lock
//! that is compared. No wait is longer than the simulation.

use super::load::{Load, Object};
use latchwork::machine::{Arith, Deadline, Machine, Word};
use latchwork_recording::edges::Meaning;
use latchwork_sim::{Sim, now};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering::*;

/// In lines of its own, as locks are.
#[repr(align(128))]
struct Event {
    /// Increased by each signal that may wake a thread.
    signals: <Sim as Machine>::U32,
    permits: Cell<u64>,
    /// How many threads a barrier takes in the replay, how many have come, and how many times all have.
    parties: Cell<u64>,
    come: Cell<u64>,
    rounds: Cell<u32>,
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
                let event = Event::new();
                event.permits.set(object.permits.into());
                Box::new(event)
            })
        };
        Events(load.objects.iter().map(event).collect())
    }

    /// Before the simulation: a barrier takes so many threads.
    pub fn set_parties(&self, object: u32, parties: u64) {
        if let Some(event) = &self.0[object as usize] {
            event.parties.set(parties);
        }
    }

    /// A thread comes to a barrier, and goes on when all have come. `false`: the simulation has ended before.
    pub fn meet(&self, object: u32, end: u64) -> bool {
        let Some(event) = &self.0[object as usize] else { return true };
        event.signals.fetch_add(0, AcqRel);
        let round = event.rounds.get();
        event.come.set(event.come.get() + 1);
        if event.come.get() >= event.parties.get() {
            event.come.set(0);
            event.rounds.set(round.wrapping_add(1));
            event.signals.fetch_add(1, AcqRel);
            event.wake(u32::MAX);
            return true;
        }
        while event.rounds.get() == round {
            if !event.wait(Seen(round), end) {
                return false;
            }
        }
        true
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
        event.signal(if all { u32::MAX } else { 1 });
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
        event.wait(seen, end)
    }
}

impl Event {
    fn new() -> Self {
        Event {
            signals: <Sim as Machine>::U32::new(0),
            permits: Cell::new(0),
            parties: Cell::new(0),
            come: Cell::new(0),
            rounds: Cell::new(0),
            waiting: Cell::new(0),
        }
    }

    fn wake(&self, count: u32) {
        if self.waiting.get() > 0 {
            Sim::wake(&raw const self.signals, count);
        }
    }

    /// Has so many sleeping threads go on.
    fn signal(&self, count: u32) {
        if self.waiting.get() == 0 {
            self.signals.load(Relaxed);
        } else {
            self.signals.fetch_add(1, AcqRel);
            Sim::wake(&raw const self.signals, count);
        }
    }

    /// Sleeps until a signal that comes after the look. `false`: the simulation has ended.
    fn wait(&self, seen: Seen, end: u64) -> bool {
        if now() >= end {
            return false;
        }
        self.waiting.set(self.waiting.get() + 1);
        Sim::wait(&self.signals, seen.0, Some(Deadline::after::<Sim>(end - now())));
        self.waiting.set(self.waiting.get() - 1);
        now() < end
    }

    /// Sleeps until `is_so`, which changes before a signal. `false`: the simulation has ended.
    fn wait_until(&self, end: u64, is_so: impl Fn() -> bool) -> bool {
        loop {
            let seen = Seen(self.signals.load(Acquire));
            if is_so() {
                return true;
            }
            if !self.wait(seen, end) {
                return false;
            }
        }
    }
}

/// A created thread, with its copies: a joining thread waits for the end of all.
pub struct Life {
    left: Cell<usize>,
    ended: Event,
}

impl Life {
    /// Of a thread with so many copies.
    pub fn new(copies: usize) -> Rc<Self> {
        Rc::new(Life { left: Cell::new(copies), ended: Event::new() })
    }

    /// One of the copies ends.
    pub fn end(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.ended.signal(u32::MAX);
        }
    }

    /// Waits for the end of all copies. `false`: the simulation has ended before.
    pub fn join(&self, end: u64) -> bool {
        self.ended.wait_until(end, || self.left.get() == 0)
    }
}

/// Threads of one role that come and go: those that have been created and not begun, and what the replay's threads sleep on until
/// they are to be one of them.
pub struct Births {
    queue: RefCell<VecDeque<(usize, Rc<Life>)>>,
    born: Event,
}

impl Births {
    /// None yet.
    pub fn new() -> Self {
        Births { queue: RefCell::default(), born: Event::new() }
    }

    /// A thread is created, which follows a stream.
    pub fn add(&self, stream: usize, life: Rc<Life>) {
        self.queue.borrow_mut().push_back((stream, life));
        self.born.signal(1);
    }

    /// Waits for a created thread. `None`: the simulation has ended before.
    pub fn next(&self, end: u64) -> Option<(usize, Rc<Life>)> {
        self.born.wait_until(end, || !self.queue.borrow().is_empty()).then_some(())?;
        self.queue.borrow_mut().pop_front()
    }
}
