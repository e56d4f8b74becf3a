//! A barrier made of lock, trylock and condition waiting, between short phases of work.
//!
//! Source: Kashyap et al., "Scalable and Practical Locking with Shuffling", SOSP 2019, section 6.4
//! (figure 12c): streamcluster of PARSEC (Bienia 2011), with a barrier that spins before it blocks
//! (`parsec_barrier.cpp`, `ENABLE_SPIN_BARRIER`).
//!
//! A thread *waits* for the lock to count itself as arrived; if the last round's threads have not all left, it
//! releases and goes on as below. The last thread to arrive opens the way out, and wakes the sleepers; the others
//! release, spin until it is open, and then *try* until they have the lock again, to count themselves out. A
//! thread that has spun for too long (100 us there) sleeps on a condition variable when it has the lock. The last thread
//! to count itself out lets the next round in.
//!
//! So threads that try and threads that queue meet at the lock. A trylock that fails although the lock is about
//! to be free, or that dirties the lock's line, makes everybody late.

use crate::data::{Cell, Line};
use crate::lock::{Condvar, Lock};
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::thread::{Section, Thread};
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::{Machine, Word};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// See the [module documentation](self).
pub struct Barrier {
    work: u64,
}

/// Threads arrive.
const ARRIVING: u32 = 0;
/// All have arrived; they leave.
const LEAVING: u32 = 1;

/// Looks at the phase before a thread sleeps.
const LOOKS: u32 = 4096;

struct State<M: Machine, L: Lock> {
    lock: Line<L>,
    phase: Line<M::U32>,
    changed: Line<L::Condvar>,
    inside: Cell<M>,
    /// Set by the last one to arrive once the run is over; everybody reads it in the same round.
    over: Cell<M>,
}

/// What happened at the lock.
#[derive(Default)]
struct Tally {
    failed: u64,
    slept: u64,
}

impl<M: Machine, L: Lock<Machine = M>> State<M, L> {
    /// Waits for the phase without the lock; returns with it.
    fn await_phase<'l, S: Stage<Machine = M>>(
        &'l self,
        thread: &mut Thread<S>,
        wanted: u32,
        tally: &mut Tally,
    ) -> Section<S, L::Write<'l>> {
        let _ = M::spin_for(&self.phase.0, Acquire, LOOKS, |phase| phase == wanted);
        let mut held = thread.try_hard(&*self.lock, &mut tally.failed);
        while self.phase.load(Relaxed) != wanted {
            tally.slept += 1;
            held = thread.wait(&*self.lock, held, &self.changed);
        }
        held
    }

    fn change(&self, phase: u32) {
        self.phase.store(phase, Release);
        self.changed.notify_all();
    }

    /// Waits for all; returns whether to go on.
    fn wait<S: Stage<Machine = M>>(
        &self,
        thread: &mut Thread<S>,
        threads: usize,
        over: bool,
        tally: &mut Tally,
    ) -> bool {
        let mut held = thread.write(&*self.lock);
        if self.phase.load(Relaxed) != ARRIVING {
            drop(held);
            held = self.await_phase(thread, ARRIVING, tally);
        }
        if self.inside.add(1) == threads as u64 {
            self.over.set(u64::from(over));
            self.change(LEAVING);
        } else {
            drop(held);
            held = self.await_phase(thread, LEAVING, tally);
        }
        let go_on = self.over.get() == 0;
        let left = self.inside.get().wrapping_sub(1);
        self.inside.set(left);
        if left == 0 {
            self.change(ARRIVING);
        }
        drop(held);
        go_on
    }
}

impl Workload for Barrier {
    const INFO: Info = Info {
        name: "barrier",
        summary: "meet at a barrier: queue for its lock to arrive, try for it to leave",
        source: "ShflLock, section 6.4, figure 12c (PARSEC streamcluster)",
        shows: "what failed tries cost: a lock whose state is apart from its queue can be had at once",
        operation: "arrival of a thread",
        locks: Locks::Mutex,
        parameters: &[Parameter::time("work", "1us", "average computation between barriers")],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: false,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        Barrier { work: settings.ns("work") }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let state: State<S::Machine, L> = State {
            lock: Line(L::new()),
            phase: Line(Word::new(ARRIVING)),
            changed: Line(L::Condvar::new()),
            inside: Cell::new(0),
            over: Cell::new(0),
        };
        let (failed, slept) = (AtomicU64::new(0), AtomicU64::new(0));
        let measured = measure::run(stage, threads, &|thread| {
            let mut tally = Tally::default();
            loop {
                let time = thread.below(2 * self.work + 1);
                thread.work(time);
                let over = !thread.running();
                let go_on = state.wait(thread, threads, over, &mut tally);
                thread.done();
                if !go_on {
                    break;
                }
            }
            failed.fetch_add(tally.failed, Relaxed);
            slept.fetch_add(tally.slept, Relaxed);
        })?;
        let (first, total) = (measured.totals[0], measured.total);
        if let Some(other) = measured.totals.iter().find(|other| **other != first) {
            return Err(format!("one thread passed {first} barriers, another one {other}"));
        }
        let per = |count: AtomicU64| count.into_inner() as f64 / total.max(1) as f64;
        Ok(measured
            .expect("threads inside the barrier", state.inside.get(), 0)?
            .with("failed tries/op", per(failed))
            .with("sleeps/op", per(slept)))
    }
}
