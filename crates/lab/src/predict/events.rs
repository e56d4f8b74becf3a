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
    /// Threads that wait: a signal ends their waits, whether they sleep already or not.
    waiting: Cell<u32>,
}

/// The condition variables and semaphores, by the numbers of their objects.
pub struct Events(Vec<Option<Box<Event>>>);

/// A thread is one of those that wait for a condition variable: what it saw of that when it became one.
#[must_use = "the thread waits until `wait` or `withdraw`"]
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
            if !event.wait(round, end) {
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
            let seen = event.signals.load(Acquire);
            if self.take(object) {
                return true;
            }
            if !event.wait(seen, end) {
                return false;
            }
        }
    }

    /// A thread that is about to release the mutex begins to wait for the condition. A signal that comes between the release and the
    /// sleep ends the wait, as it does with `pthread_cond_wait`.
    pub fn begin_wait(&self, object: u32) -> Seen {
        Seen(self.0[object as usize].as_ref().map_or(0, |event| {
            let seen = event.signals.load(Acquire);
            event.waiting.set(event.waiting.get() + 1);
            seen
        }))
    }

    /// The thread does not wait after all.
    pub fn withdraw(&self, object: u32, _: Seen) {
        if let Some(event) = &self.0[object as usize] {
            event.waiting.set(event.waiting.get() - 1);
        }
    }

    /// Sleeps until a signal that comes after the beginning of the wait. `false`: the simulation has ended.
    pub fn wait(&self, object: u32, Seen(seen): Seen, end: u64) -> bool {
        let Some(event) = &self.0[object as usize] else { return true };
        let woken = event.sleep(seen, end);
        event.waiting.set(event.waiting.get() - 1);
        woken
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

    /// Waits for a signal that comes after `signals` was `seen`. No simulated time may pass between that and the call: a signal in
    /// that time would find no waiting thread. `false`: the simulation has ended.
    fn wait(&self, seen: u32, end: u64) -> bool {
        self.waiting.set(self.waiting.get() + 1);
        let woken = self.sleep(seen, end);
        self.waiting.set(self.waiting.get() - 1);
        woken
    }

    /// Sleeps as long as `signals` is as it was `seen`. `false`: the simulation has ended.
    fn sleep(&self, seen: u32, end: u64) -> bool {
        if now() < end {
            Sim::wait(&self.signals, seen, Some(Deadline::after::<Sim>(end - now())));
        }
        now() < end
    }

    /// Sleeps until `is_so`, which changes before a signal. `false`: the simulation has ended.
    fn wait_until(&self, end: u64, is_so: impl Fn() -> bool) -> bool {
        loop {
            let seen = self.signals.load(Acquire);
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
    /// All that there were. The simulator knows a cache line by its address: if a new life had the memory of an old one, it would lie in some
    /// processor's cache already, and whether it has depends on the allocator.
    lives: RefCell<Vec<Rc<Life>>>,
}

impl Births {
    /// None yet.
    pub fn new() -> Self {
        Births { queue: RefCell::default(), born: Event::new(), lives: RefCell::default() }
    }

    /// Of a thread that is about to be created, with so many copies.
    pub fn life(&self, copies: usize) -> Rc<Life> {
        let life = Rc::new(Life { left: Cell::new(copies), ended: Event::new() });
        self.lives.borrow_mut().push(life.clone());
        life
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

#[cfg(test)]
mod tests {
    use super::super::locks::{self, GLIBC};
    use super::*;
    use latchwork_sim::{Options, Profile, run, work};

    /// A server, and clients that wait for its answers, each with a condition variable of its own, under one mutex. While one thread's
    /// release wakes the next waiter for the mutex, a third one gets it and signals.
    #[test]
    fn a_signal_between_release_and_sleep_ends_the_wait() {
        const CLIENTS: u32 = 8;
        const END: u64 = 10_000_000;
        let mutex = locks::find(GLIBC, false).unwrap()();
        let events = Events((0..=CLIENTS).map(|_| Some(Box::new(Event::new()))).collect());
        let queue = RefCell::new(VecDeque::new());
        let (served, lost) = (Cell::new(0), Cell::new(0));
        // As a thread of a replay takes a permit in a section. `None`: the simulation has ended.
        let take = |condvar: u32, mut section| {
            while !events.take(condvar) {
                let seen = events.begin_wait(condvar);
                if events.take(condvar) {
                    events.withdraw(condvar, seen);
                    break;
                }
                drop(section);
                let start = now();
                if !events.wait(condvar, seen, END) {
                    let permits = events.0[condvar as usize].as_ref().unwrap().permits.get();
                    lost.set(lost.get() + u32::from(permits > 0 && start < END - 1_000_000));
                    return None;
                }
                section = mutex.write();
            }
            Some(section)
        };
        let server = || {
            while let Some(section) = take(0, mutex.write()) {
                let next = queue.borrow_mut().pop_front();
                if let Some(client) = next {
                    work(100);
                    served.set(served.get() + 1);
                    events.signal(client, false);
                }
                drop(section);
                work(20);
            }
        };
        let client = |client: u32| {
            while now() < END {
                let section = mutex.write();
                queue.borrow_mut().push_back(client);
                events.signal(0, false);
                work(50);
                let Some(section) = take(client, section) else { return };
                drop(section);
                // From 1 to 5 us, so that requests come at any moment.
                work(1_000 + (now().wrapping_mul(2_654_435_761) >> 7) % 4_000);
            }
        };
        let mut bodies: Vec<Box<dyn FnOnce() + '_>> = vec![Box::new(server)];
        let client = &client;
        bodies.extend((1..=CLIENTS).map(|number| Box::new(move || client(number)) as Box<dyn FnOnce() + '_>));
        run(&Profile::find("1x8").unwrap(), &Options::default(), bodies).unwrap();
        assert_eq!(
            lost.get(),
            0,
            "threads sleep beside permits of theirs; {} requests were served",
            served.get()
        );
        assert!(served.get() > 1_500, "{} requests were served", served.get());
    }
}
