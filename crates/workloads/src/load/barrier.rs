//! A barrier made of trylock and spinning, between short phases of work.
//!
//! Source: Kashyap et al., "Scalable and Practical Locking with Shuffling", SOSP 2019, section 6.4
//! (figure 12c): streamcluster of PARSEC, whose barrier takes its lock by trying until it has it.
//!
//! A thread tries until it has the lock, counts itself as arrived, releases, and spins on the
//! barrier's phase; the last to arrive changes that. Everybody then tries for the lock once more to
//! count itself out; the last one out opens the barrier again. A trylock that fails although the lock
//! is about to be free, or that dirties the lock's line, makes everybody late.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Measured};
use crate::stage::Stage;
use crate::thread::Thread;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Values, Workload};
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

struct State<M: Machine, L> {
    lock: Line<L>,
    phase: Line<M::U32>,
    inside: Cell<M>,
    /// Set by the last one to arrive once the run is over; everybody reads it in the same round.
    over: Cell<M>,
}

impl<M: Machine, L: Lock<Machine = M>> State<M, L> {
    /// Waits for all; returns whether to go on.
    fn wait<S: Stage<Machine = M>>(
        &self,
        thread: &mut Thread<S>,
        threads: usize,
        over: bool,
        failed: &mut u64,
    ) -> bool {
        let phase = self.phase.load(Acquire);
        if phase != ARRIVING {
            M::spin_until(&self.phase.0, Acquire, |phase| phase == ARRIVING);
        }
        let held = thread.try_hard(&*self.lock, failed);
        if self.inside.add(1) == threads as u64 {
            self.over.set(u64::from(over));
            self.phase.store(LEAVING, Release);
        }
        drop(held);
        M::spin_until(&self.phase.0, Acquire, |phase| phase == LEAVING);
        let held = thread.try_hard(&*self.lock, failed);
        let go_on = self.over.get() == 0;
        let left = self.inside.get().wrapping_sub(1);
        self.inside.set(left);
        if left == 0 {
            self.phase.store(ARRIVING, Release);
        }
        drop(held);
        go_on
    }
}

impl Workload for Barrier {
    const INFO: Info = Info {
        name: "barrier",
        summary: "meet at a barrier whose lock is taken by trying until it is free",
        source: "ShflLock, section 6.4, figure 12c (PARSEC streamcluster)",
        shows: "what failed tries cost: a lock whose state is apart from its queue can be had at once",
        operation: "arrival of a thread",
        locks: Locks::Mutex,
        parameters: &[Parameter {
            name: "work",
            default: "1us",
            values: Values::Time,
            help: "average computation between barriers",
        }],
        threads: Threads::UpToCpus,
        log_threads: false,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        Barrier { work: settings.ns("work") }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(
        &self,
        stage: &S,
        threads: usize,
    ) -> Result<Measured, String> {
        let state: State<S::Machine, L> = State {
            lock: Line(L::new()),
            phase: Line(Word::new(ARRIVING)),
            inside: Cell::new(0),
            over: Cell::new(0),
        };
        let failed_tries = AtomicU64::new(0);
        let measured = measure::run(stage, threads, &|thread| {
            let mut failed = 0;
            loop {
                let time = thread.below(2 * self.work + 1);
                thread.work(time);
                let over = !thread.running();
                let go_on = state.wait(thread, threads, over, &mut failed);
                thread.done();
                if !go_on {
                    break;
                }
            }
            failed_tries.fetch_add(failed, Relaxed);
        })?;
        let (first, total) = (measured.totals[0], measured.total);
        if let Some(other) = measured.totals.iter().find(|other| **other != first) {
            return Err(format!("one thread passed {first} barriers, another one {other}"));
        }
        let failed = failed_tries.into_inner() as f64;
        Ok(measured
            .expect("threads inside the barrier", state.inside.get(), 0)?
            .with("failed tries/op", failed / total.max(1) as f64))
    }
}
