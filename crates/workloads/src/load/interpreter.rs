//! A queue between the threads of an interpreter: semaphores, and one mutex that is handed over at each step.
//!
//! Source: CPython 3 (`ceval_gil.c`, `thread_pthread.h`, `queue.py`), reduced. The interpreter lock is a flag under a mutex, with
//! a condition variable for the threads that want it. A Python lock is a semaphore; a thread that has to wait for one gives up
//! the interpreter lock meanwhile, and takes it again afterwards. The queue has such a lock, and a list of waiters, each with a
//! semaphore of its own.
//!
//! Half of the threads put items into the queue, the others take them out. The queue is short, so nearly every operation has to
//! wait, and so hands the interpreter lock to another thread. The sections of the mutex are a few instructions long. What counts
//! is what the mutex does to a thread that the condition variable or a semaphore has just woken.
//!
//! The interpreter's switch interval of 5 ms is left out: no thread runs for so long here.

use crate::data::{Cell, Line, cells};
use crate::lock::{Condvar, Lock, Semaphore};
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::thread::Thread;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;
use latchwork::map::array::Array;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// See the [module documentation](self).
pub struct Interpreter {
    step: u64,
    capacity: u64,
}

/// The interpreter lock. It guards everything below.
struct Global<M: Machine, L: Lock> {
    mutex: L,
    taken: Cell<M>,
    changed: L::Condvar,
}

impl<M: Machine, L: Lock<Machine = M>> Global<M, L> {
    fn take<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>) {
        let mut held = thread.write(&self.mutex);
        while self.taken.get() != 0 {
            held = thread.wait(&self.mutex, held, &self.changed);
        }
        self.taken.set(1);
        drop(held);
    }

    fn give_up<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>) {
        let held = thread.write(&self.mutex);
        self.taken.set(0);
        self.changed.notify_one();
        drop(held);
    }

    /// Takes a unit of `semaphore`, without the interpreter lock if that has to wait.
    fn acquire<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>, semaphore: &L::Semaphore) {
        if !semaphore.try_acquire() {
            self.give_up(thread);
            semaphore.acquire();
            self.take(thread);
        }
    }
}

/// Threads that wait for the queue to change, first come, first served.
struct Waiters<M: Machine> {
    /// A ring: `first` and `last` count on and on.
    ring: Array<Cell<M>>,
    first: Cell<M>,
    last: Cell<M>,
}

impl<M: Machine> Waiters<M> {
    fn new(threads: usize) -> Self {
        Waiters { ring: cells(threads), first: Cell::new(0), last: Cell::new(0) }
    }

    fn push(&self, thread: usize) {
        let last = self.last.get();
        self.ring[last as usize % self.ring.len()].set(thread as u64);
        self.last.set(last + 1);
    }

    fn pop(&self) -> Option<usize> {
        let first = self.first.get();
        (first != self.last.get()).then(|| {
            self.first.set(first + 1);
            self.ring[first as usize % self.ring.len()].get() as usize
        })
    }
}

struct State<M: Machine, L: Lock> {
    global: Line<Global<M, L>>,
    /// The queue's lock: a semaphore of one unit.
    lock: Line<L::Semaphore>,
    items: Cell<M>,
    not_empty: Waiters<M>,
    not_full: Waiters<M>,
    /// A semaphore for each thread to wait at.
    own: Vec<Line<L::Semaphore>>,
    /// Set by each thread that leaves; no thread waits any more then.
    over: Cell<M>,
    /// Operations, counted under the interpreter lock.
    done: Cell<M>,
}

impl<M: Machine, L: Lock<Machine = M>> State<M, L> {
    fn new(threads: usize) -> Self {
        State {
            global: Line(Global { mutex: L::new(), taken: Cell::new(0), changed: L::Condvar::new() }),
            lock: Line(L::Semaphore::new(1)),
            items: Cell::new(0),
            not_empty: Waiters::new(threads),
            not_full: Waiters::new(threads),
            own: (0..threads).map(|_| Line(L::Semaphore::new(0))).collect(),
            over: Cell::new(0),
            done: Cell::new(0),
        }
    }

    /// Puts an item or takes one, under the interpreter lock; returns whether it did.
    fn operate<S: Stage<Machine = M>>(&self, thread: &mut Thread<S>, puts: bool, capacity: u64) -> bool {
        self.global.acquire(thread, &self.lock);
        let (ready, wakes): (&dyn Fn() -> bool, _) = if puts {
            (&|| self.items.get() < capacity, &self.not_empty)
        } else {
            (&|| self.items.get() > 0, &self.not_full)
        };
        while !ready() && self.over.get() == 0 {
            let waits = if puts { &self.not_full } else { &self.not_empty };
            waits.push(thread.index);
            self.lock.release();
            self.global.acquire(thread, &self.own[thread.index]);
            self.global.acquire(thread, &self.lock);
        }
        let ready = ready();
        if ready {
            let items = self.items.get();
            self.items.set(if puts { items + 1 } else { items - 1 });
            self.done.add(1);
            if let Some(waiter) = wakes.pop() {
                self.own[waiter].release();
            }
        }
        self.lock.release();
        ready
    }

    /// Ends the waiting of all threads; under the interpreter lock.
    fn end(&self) {
        self.over.set(1);
        for waiters in [&self.not_empty, &self.not_full] {
            while let Some(waiter) = waiters.pop() {
                self.own[waiter].release();
            }
        }
    }
}

impl Workload for Interpreter {
    const INFO: Info = Info {
        name: "interpreter",
        summary: "put into a short queue and take out of it, under an interpreter lock, with semaphores",
        source: "CPython, ceval_gil.c and queue.py",
        shows: "what a mutex adds where each step is a handover: a woken thread that finds the mutex held for an instant",
        operation: "put or take",
        locks: Locks::Mutex,
        parameters: &[
            Parameter::time(
                "step",
                "1us",
                "average computation between operations, under the interpreter lock",
            ),
            Parameter::count("capacity", "1", 1..=1 << 32, "items that the queue has room for"),
        ],
        threads: Threads::Each(&[2, 4, 8, 16]),
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        Interpreter { step: settings.ns("step"), capacity: settings.count("capacity") as u64 }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let state: State<S::Machine, L> = State::new(threads);
        let total = AtomicU64::new(0);
        let measured = measure::run(stage, threads, &|thread| {
            let mut made = 0;
            state.global.take(thread);
            while thread.running() {
                let step = thread.below(2 * self.step + 1);
                thread.work(step);
                // A thread alone does both in turn.
                let puts = if threads == 1 { made % 2 == 0 } else { thread.index % 2 == 0 };
                if state.operate(thread, puts, self.capacity) {
                    thread.done();
                    made += 1;
                }
            }
            state.end();
            state.global.give_up(thread);
            total.fetch_add(made, Relaxed);
        })?;
        measured.expect("operations", state.done.get(), total.into_inner())
    }
}
