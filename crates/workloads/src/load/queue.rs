//! Producers and consumers at one queue: a mutex and two condition variables.
//!
//! A producer computes for `produce`, puts an item at the end, and notifies one consumer. A consumer takes the first
//! item, notifies one producer if the queue is bounded, and computes for `consume`. Consumers wait while the queue is
//! empty, producers while it is full. This is the queue of a thread pool, as it is written with pthreads, std or
//! parking_lot: every item is notified, whether or not a thread waits.
//!
//! Items are numbered in the order in which they are put. The queue is the number of the next item to put and of the next
//! to take, and a ring of the items' contents. In an unbounded queue, later items overwrite the contents of those that are
//! further behind than the ring is long; the consumer then has nothing to check.
//!
//! The number of threads is that of the producers: there are as many consumers.

use super::condvar::end_and_notify;
use crate::data::{Cell, Line, cells};
use crate::lock::{Condvar, Lock};
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::thread::Thread;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::map::array::Array;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// See the [module documentation](self).
pub struct Queue {
    /// 0: unbounded.
    capacity: u64,
    produce: u64,
    consume: u64,
    held: bool,
}

/// Items whose contents are kept, at least.
const RING: u64 = 1024;

struct State<L: Lock> {
    lock: Line<L>,
    arrived: Line<L::Condvar>,
    taken: Line<L::Condvar>,
    /// The next item to put.
    tail: Cell<L::Machine>,
    /// The next item to take.
    head: Cell<L::Machine>,
    /// The run is over, and no thread waits any more.
    closed: Cell<L::Machine>,
    ring: Array<Cell<L::Machine>>,
}

impl<L: Lock> State<L> {
    fn items(&self) -> u64 {
        self.tail.get().wrapping_sub(self.head.get())
    }

    fn is_closed(&self) -> bool {
        self.closed.get() != 0
    }

    fn content(&self, item: u64) -> &Cell<L::Machine> {
        &self.ring[(item % self.ring.len() as u64) as usize]
    }

    fn close<S: Stage<Machine = L::Machine>>(&self, thread: &mut Thread<S>) {
        let section = thread.write(&*self.lock);
        self.closed.set(1);
        self.arrived.notify_all();
        self.taken.notify_all();
        drop(section);
    }
}

impl Queue {
    /// Notifies one waiter, when the section ends.
    fn notify<L: Lock, G>(&self, condvar: &L::Condvar, section: G) {
        end_and_notify(self.held, section, || condvar.notify_one());
    }

    /// Puts an item. Returns how often it waited, or `None` if the run is over.
    fn put<S: Stage, L: Lock<Machine = S::Machine>>(
        &self,
        state: &State<L>,
        thread: &mut Thread<S>,
    ) -> Option<u64> {
        let mut waits = 0;
        let mut section = thread.write(&*state.lock);
        while self.capacity != 0 && state.items() >= self.capacity && !state.is_closed() {
            section = thread.wait(&*state.lock, section, &state.taken);
            waits += 1;
        }
        if state.is_closed() {
            return None;
        }
        let item = state.tail.get();
        state.content(item).set(item);
        state.tail.set(item.wrapping_add(1));
        self.notify::<L, _>(&state.arrived, section);
        Some(waits)
    }

    /// Takes an item, and returns as `put` does.
    fn take<S: Stage, L: Lock<Machine = S::Machine>>(
        &self,
        state: &State<L>,
        thread: &mut Thread<S>,
    ) -> Option<u64> {
        let mut waits = 0;
        let mut section = thread.write(&*state.lock);
        while state.items() == 0 && !state.is_closed() {
            section = thread.wait(&*state.lock, section, &state.arrived);
            waits += 1;
        }
        if state.is_closed() {
            return None;
        }
        let item = state.head.get();
        let content = state.content(item).get();
        if content != item && state.items() <= state.ring.len() as u64 {
            thread.fail(|| format!("item {item} has the number {content}; the lock does not exclude"));
        }
        state.head.set(item.wrapping_add(1));
        if self.capacity == 0 {
            drop(section);
        } else {
            self.notify::<L, _>(&state.taken, section);
        }
        Some(waits)
    }
}

impl Workload for Queue {
    const INFO: Info = Info {
        name: "queue",
        summary: "producers and consumers at a queue with two condition variables (threads: producers)",
        source: "ours: the queue of a thread pool",
        shows: "what the pair of a mutex and a condition variable costs; how many notifications wake a thread in vain",
        operation: "item taken",
        locks: Locks::Mutex,
        parameters: &[
            Parameter::count("capacity", "64", 0..=1 << 20, "items in the queue at most; 0: unbounded"),
            Parameter::word(
                "mutex",
                "free",
                &["free", "held"],
                "whether the notifying thread has released the mutex",
            ),
            Parameter::time("produce", "1us", "average computation before an item is put"),
            Parameter::time("consume", "1us", "average computation after an item is taken"),
        ],
        threads: Threads::Each(&[1, 4, 16]),
        all_threads: |threads| 2 * threads,
        log_threads: true,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        Queue {
            capacity: settings.count("capacity") as u64,
            produce: settings.ns("produce"),
            consume: settings.ns("consume"),
            held: settings.count("mutex") == 1,
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, producers: usize) -> Outcome {
        let state = State::<L> {
            lock: Line(L::new()),
            arrived: Line(L::Condvar::new()),
            taken: Line(L::Condvar::new()),
            tail: Cell::new(0),
            head: Cell::new(0),
            closed: Cell::new(0),
            ring: cells(self.capacity.max(RING) as usize),
        };
        let waits = AtomicU64::new(0);
        let measured = measure::run(stage, 2 * producers, &|thread| {
            let produces = thread.index % 2 == 0;
            if produces {
                thread.apart();
            }
            let mut waited = 0;
            while thread.running() {
                let time = thread.below(2 * if produces { self.produce } else { self.consume } + 1);
                if produces {
                    thread.work(time);
                }
                let Some(waits) =
                    (if produces { self.put(&state, thread) } else { self.take(&state, thread) })
                else {
                    break;
                };
                waited += waits;
                if !produces {
                    thread.work(time);
                    thread.done();
                }
            }
            state.close(thread);
            waits.fetch_add(waited, Relaxed);
        })?;
        let (total, tail, head) = (measured.total, state.tail.get(), state.head.get());
        if tail < head {
            return Err(format!("{tail} items were put, and {head} taken; the lock does not exclude"));
        }
        Ok(measured
            .expect("items taken", head, total)?
            .with("wakeups/op", waits.into_inner() as f64 / total.max(1) as f64))
    }
}
