//! Notifications of a condition variable: for one waiter, and for all.
//!
//! With `notify=one`, the threads pass a baton. A thread takes it, computes for `work`, puts it down, notifies one waiter,
//! and waits until another thread has put it down. All threads but about two are asleep on the condition variable, so
//! every pass is a wakeup, unless a thread that is still running takes the baton before the notified thread runs. The
//! notified thread then waits again.
//!
//! With `notify=all`, the threads go through rounds. Each computes for `work`, and arrives. The last thread to arrive begins
//! the next round and notifies all others, which have been asleep. They all need the mutex to go on.
//!
//! With `mutex=held` a thread notifies before it releases the mutex, so a notified thread may find the mutex held. With
//! `mutex=free` it notifies after.
//!
//! The number of threads is that of the waiters: the thread that notifies comes on top.

use crate::data::{Cell, Line};
use crate::lock::{Condvar as _, Lock};
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::thread::{Section, Thread};
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// See the [module documentation](self).
pub struct Condvar {
    work: u64,
    all: bool,
    held: bool,
}

struct State<L: Lock> {
    lock: Line<L>,
    changed: Line<L::Condvar>,
    /// Of the thread that has put the baton down; [`TAKEN`] while a thread has it.
    baton: Cell<L::Machine>,
    /// Passes of the baton, or arrivals in all rounds.
    count: Cell<L::Machine>,
    /// Threads that have arrived in this round.
    arrived: Cell<L::Machine>,
    round: Cell<L::Machine>,
    /// The run is over, and no thread waits any more.
    closed: Cell<L::Machine>,
}

const TAKEN: u64 = u64::MAX;

impl<L: Lock> State<L> {
    /// Waits until `done`, with the lock held before and after. Returns how often it waited, too.
    fn wait<'l, S: Stage<Machine = L::Machine>>(
        &'l self,
        thread: &mut Thread<S>,
        mut section: Section<S, L::Write<'l>>,
        done: impl Fn() -> bool,
    ) -> (Section<S, L::Write<'l>>, u64) {
        let mut waits = 0;
        while !done() {
            section = thread.wait(&*self.lock, section, &self.changed);
            waits += 1;
        }
        (section, waits)
    }
}

/// Ends the section, and calls `notify`: before the end if it is `held` then, else after it.
pub(super) fn end_and_notify<G>(held: bool, section: G, notify: impl FnOnce()) {
    if held {
        notify();
        drop(section);
    } else {
        drop(section);
        notify();
    }
}

impl Condvar {
    /// Notifies one waiter or all, when the section ends.
    fn notify<L: Lock, G>(&self, changed: &L::Condvar, section: G) {
        end_and_notify(self.held, section, || {
            if self.all { changed.notify_all() } else { changed.notify_one() }
        });
    }

    /// Passes the baton until the run is over. Returns how often the thread has waited.
    fn pass<S: Stage, L: Lock<Machine = S::Machine>>(&self, state: &State<L>, thread: &mut Thread<S>) -> u64 {
        let (me, mut all_waits) = (thread.index as u64, 0);
        loop {
            let section = thread.write(&*state.lock);
            let (section, waits) = state.wait(thread, section, || {
                state.closed.get() != 0 || ![TAKEN, me].contains(&state.baton.get())
            });
            all_waits += waits;
            if state.closed.get() != 0 {
                return all_waits;
            }
            state.baton.set(TAKEN);
            state.count.add(1);
            drop(section);
            thread.work(self.work);
            thread.done();
            let section = thread.write(&*state.lock);
            state.baton.set(me);
            if !thread.running() {
                state.closed.set(1);
                state.changed.notify_all();
                return all_waits;
            }
            self.notify::<L, _>(&state.changed, section);
        }
    }

    /// Goes through rounds until the run is over. Returns how often the thread has waited.
    fn arrive<S: Stage, L: Lock<Machine = S::Machine>>(
        &self,
        state: &State<L>,
        thread: &mut Thread<S>,
        threads: usize,
    ) -> u64 {
        let mut all_waits = 0;
        loop {
            thread.work(self.work);
            let section = thread.write(&*state.lock);
            state.count.add(1);
            if state.arrived.add(1) == threads as u64 {
                state.arrived.set(0);
                state.round.add(1);
                let over = u64::from(!thread.running());
                state.closed.set(over);
                self.notify::<L, _>(&state.changed, section);
                thread.done();
                if over != 0 {
                    return all_waits;
                }
                continue;
            }
            let round = state.round.get();
            let (section, waits) = state.wait(thread, section, || state.round.get() != round);
            all_waits += waits;
            thread.done();
            thread.running();
            // The next round cannot end before this thread has arrived, so this is the round's own word.
            if state.closed.get() != 0 {
                return all_waits;
            }
            drop(section);
        }
    }
}

impl Workload for Condvar {
    const INFO: Info = Info {
        name: "condvar",
        summary: "notify one waiter or all of a condition variable, with the mutex held or not (threads: waiters)",
        source: "ours",
        shows: "what a wakeup costs, and whether notified threads wake up only to wait for the mutex",
        operation: "pass of the baton (one), arrival in a round (all)",
        locks: Locks::Mutex,
        parameters: &[
            Parameter::word("notify", "one", &["one", "all"], "whom"),
            Parameter::word(
                "mutex",
                "free",
                &["free", "held"],
                "whether the notifying thread has released the mutex",
            ),
            Parameter::time(
                "work",
                "1us",
                "computation with the baton, or before each arrival, without the mutex",
            ),
        ],
        threads: Threads::Each(&[1, 4, 16, 64]),
        all_threads: |threads| threads + 1,
        log_threads: true,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        Condvar {
            work: settings.ns("work"),
            all: settings.count("notify") == 1,
            held: settings.count("mutex") == 1,
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, waiters: usize) -> Outcome {
        let threads = waiters + 1;
        let state = State::<L> {
            lock: Line(L::new()),
            changed: Line(L::Condvar::new()),
            baton: Cell::new(threads as u64),
            count: Cell::new(0),
            arrived: Cell::new(0),
            round: Cell::new(0),
            closed: Cell::new(0),
        };
        let waits = AtomicU64::new(0);
        let measured = measure::run(stage, threads, &|thread| {
            let waited =
                if self.all { self.arrive(&state, thread, threads) } else { self.pass(&state, thread) };
            waits.fetch_add(waited, Relaxed);
        })?;
        let total = measured.total;
        Ok(measured
            .expect("passes or arrivals counted", state.count.get(), total)?
            .with("wakeups/op", waits.into_inner() as f64 / total.max(1) as f64))
    }
}
