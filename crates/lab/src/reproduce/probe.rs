//! What claims ask the simulator that is no figure of a workload: the policy of BRAVO's bias, its revocation, and its table.
//!
//! The locks are the library's, with a counter of this file in place of the library's own.

use super::claims::Claim;
use super::experiment::Effort;
use super::store::{Outcome, Store};
use crate::measure::results::Run;
use crate::simulate::sweep;
use indicatif::ProgressBar;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::RawBravo;
use latchwork::locks::rwlock::bravo::bias::Guard;
use latchwork::locks::rwlock::bravo::count::{Count, Event};
use latchwork::locks::rwlock::bravo::revoke::Holding;
use latchwork::locks::rwlock::bravo::table::Hashed;
use latchwork::locks::rwlock::pf_q::RawPfQ;
use latchwork::machine::Machine;
use latchwork_console::signals::Signals;
use latchwork_sim::{Options, Placement, Profile, Sim, now, run, work};
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Instant;

/// The paper's machine.
pub const MACHINE: &str = "x5-2";
/// Slots of the table of readers.
const SLOTS: f64 = 4096.0;

/// A question.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Writes a second of one writer beside so many readers, all of which come back at once, with this `N`; without BRAVO if
    /// there is none.
    Writes { guard: Option<u64>, readers: usize },
    /// The share of time that revocations take there.
    Revoking { guard: u64, readers: usize },
    /// Nanoseconds for each slot of a revocation that meets no reader, after so many readers have used the table.
    Scan { readers: usize },
    /// Of the reads of biased locks, those that find their slot taken, over threads / (2 x slots): the threads read random
    /// locks in step.
    Collisions { threads: usize, locks: usize },
}

impl Probe {
    /// For the reader.
    pub fn text(self) -> String {
        match self {
            Probe::Writes { guard: Some(guard), readers } => {
                format!("writes a second beside {readers} readers of bravo-pf-q with N = {guard}")
            }
            Probe::Writes { guard: None, readers } => format!("of pf-q beside {readers}"),
            Probe::Revoking { guard, readers } => {
                format!("share of time in revocations of bravo-pf-q with N = {guard}, {readers} readers")
            }
            Probe::Scan { readers } => {
                format!("nanoseconds per slot of a revocation of bravo-pf-q, {readers} readers")
            }
            Probe::Collisions { threads, locks } => {
                format!(
                    "collisions over threads / (2 x slots) of bravo-pf-q, {threads} threads, {locks} locks"
                )
            }
        }
    }

    /// The lock that it is about.
    pub fn lock(self) -> &'static str {
        if matches!(self, Probe::Writes { guard: None, .. }) { "pf-q" } else { "bravo-pf-q" }
    }

    /// The answer.
    fn ask(self, seed: u64) -> Result<f64, String> {
        match self {
            Probe::Writes { guard, readers } => beside(guard, readers, seed).map(|(writes, _)| writes),
            Probe::Revoking { guard, readers } => beside(Some(guard), readers, seed).map(|(_, share)| share),
            Probe::Scan { readers } => scan(readers, seed),
            Probe::Collisions { threads, locks } => collisions(threads, locks, seed),
        }
    }
}

/// The answers, one for each seed.
#[derive(Default)]
pub struct Answers(HashMap<(Probe, usize), Result<f64, String>>);

#[cfg(test)]
impl Answers {
    /// Of one run, with this answer to one question.
    pub fn made_up(probe: Probe, answer: f64) -> Self {
        Answers(HashMap::from([((probe, 0), Ok(answer))]))
    }
}

impl Answers {
    /// The answer of one of the runs.
    pub fn get(&self, probe: Probe, run: usize) -> Result<f64, String> {
        self.0.get(&(probe, run)).cloned().unwrap_or_else(|| Err("the run was interrupted".into()))
    }

    /// Asks what the claims ask; also returns the signal that ended it.
    pub fn ask(
        claims: &[Claim],
        effort: &Effort,
        store: &Store,
        signals: &Signals,
        bar: &ProgressBar,
    ) -> (Self, Option<i32>) {
        let mut asked: Vec<(Probe, usize)> = Vec::new();
        for probe in claims.iter().flat_map(Claim::probes) {
            for run in 0..effort.runs as usize {
                if !asked.contains(&(probe, run)) {
                    asked.push((probe, run));
                }
            }
        }
        let mut answers = Answers::default();
        let seed = |run: usize| effort.seed.wrapping_add(run as u64);
        let key = |(probe, run): &(Probe, usize)| format!("{probe:?}|{}", seed(*run));
        let rate = |outcome: Outcome| outcome.map(|run| run.rate);
        asked.retain(|question| {
            let known = store.get(&key(question)).cloned();
            let open = known.is_none();
            answers.0.extend(known.map(|known| (*question, rate(known))));
            open && !store.is_frozen()
        });
        bar.inc_length(asked.len() as u64);
        let ask = |question: &(Probe, usize)| {
            let start = Instant::now();
            let answer = question.0.ask(seed(question.1)).map(Run::at);
            rate(store.put(&key(question), answer, start.elapsed().as_secs_f64()))
        };
        let signal = sweep::in_parallel(&asked, signals, bar, ask, |question, answer| {
            answers.0.insert(*question, answer);
        });
        (answers, signal)
    }
}

/// Counts on the OS thread of the simulation.
struct Tally;

thread_local! {
    static COUNTS: Cell<Tallied> = const { Cell::new(Tallied { fast: 0, collisions: 0, revocations: 0, revoking: 0 }) };
}

/// What is counted.
#[derive(Copy, Clone, Default)]
struct Tallied {
    fast: u64,
    collisions: u64,
    revocations: u64,
    revoking: u64,
}

impl Count for Tally {
    const ON: bool = true;

    fn add<M: Machine>(event: Event, value: u64) {
        let mut counts = COUNTS.get();
        match event {
            Event::Fast => counts.fast += value,
            Event::Collision => counts.collisions += value,
            Event::Revocation => counts.revocations += value,
            Event::Revoking => counts.revoking += value,
            Event::Unbiased | Event::InVain => (),
        }
        COUNTS.set(counts);
    }
}

/// The paper's BRAVO over the paper's BA, with this `N`.
type Bravo<const N: u64> = RawBravo<Sim, RawPfQ<Sim>, Hashed, Guard<N>, Holding, Tally>;

/// Each lock in lines of its own.
#[repr(align(128))]
struct Apart<L>(L);

type Body<'a> = Box<dyn FnOnce() + 'a>;

fn simulate(bodies: Vec<Body<'_>>, seed: u64) -> Result<(), String> {
    let profile = Profile::find(MACHINE).map_err(|error| error.to_string())?;
    let options = Options { placement: Placement::RoundRobin, seed, ..Options::default() };
    run(&profile, &options, bodies).map(|_| ()).map_err(|error| error.to_string())
}

fn read<R: RawRwLock>(lock: &R, inside: impl FnOnce()) {
    let token = lock.read();
    inside();
    // SAFETY: the token is from the acquisition just before.
    unsafe { lock.unlock_read(token) };
}

fn write<R: RawRwLock>(lock: &R, inside: impl FnOnce()) {
    let token = lock.write();
    inside();
    // SAFETY: the token is from the acquisition just before.
    unsafe { lock.unlock_write(token) };
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Computes until then.
///
/// The simulator looks once, at the start of a computation, whether the core's other thread is busy, and makes all of the
/// computation slower if it is. The factor is less than 2, so half of what is left never lasts beyond `time`.
fn until(time: u64) {
    const LAST: u64 = 20;
    loop {
        let left = time.saturating_sub(now());
        if left <= LAST {
            return work(left);
        }
        work(left / 2);
    }
}

/// One writer beside readers: writes a second, and the share of the time that revocations take.
fn beside(guard: Option<u64>, readers: usize, seed: u64) -> Result<(f64, f64), String> {
    match guard {
        None => beside_in::<RawPfQ<Sim>>(readers, seed),
        Some(0) => beside_in::<Bravo<0>>(readers, seed),
        Some(1) => beside_in::<Bravo<1>>(readers, seed),
        Some(3) => beside_in::<Bravo<3>>(readers, seed),
        Some(9) => beside_in::<Bravo<9>>(readers, seed),
        Some(19) => beside_in::<Bravo<19>>(readers, seed),
        Some(other) => Err(format!("no lock has N = {other}")),
    }
}

fn beside_in<R: RawRwLock<Machine = Sim>>(readers: usize, seed: u64) -> Result<(f64, f64), String> {
    const WARM: u64 = 500_000;
    const END: u64 = WARM + 4_000_000;
    let lock = Apart(R::new_in());
    let (writes, before, after) =
        (Cell::new(0), Cell::new(Tallied::default()), Cell::new(Tallied::default()));
    COUNTS.set(Tallied::default());
    let writer = || {
        while now() < END {
            if now() < WARM {
                before.set(COUNTS.get());
            }
            write(&lock.0, || work(40));
            if now() >= WARM {
                writes.set(writes.get() + 1);
            }
            work(10);
        }
        after.set(COUNTS.get());
    };
    let mut bodies: Vec<Body<'_>> = vec![Box::new(writer)];
    for reader in 0..readers as u64 {
        let lock = &lock;
        bodies.push(Box::new(move || {
            work(13 * reader);
            while now() < END {
                read(&lock.0, || work(40));
                work(10);
            }
        }));
    }
    simulate(bodies, seed)?;
    let revoking = after.get().revoking - before.get().revoking;
    Ok((f64::from(writes.get()) * 1e9 / (END - WARM) as f64, revoking as f64 / (END - WARM) as f64))
}

/// Nanoseconds for each slot of a revocation that meets no reader.
fn scan(readers: usize, seed: u64) -> Result<f64, String> {
    const LOCKS: usize = 256;
    const ROUNDS: usize = 20;
    const ROUND: u64 = 2_000_000;
    let locks: Vec<Apart<Bravo<9>>> = (0..LOCKS).map(|_| Apart(Bravo::new_warm_in())).collect();
    let sum = Cell::new(Tallied::default());
    let writer = || {
        for (round, lock) in locks.iter().enumerate().take(ROUNDS) {
            until((round as u64 + 1) * ROUND - ROUND / 10);
            COUNTS.set(Tallied::default());
            write(&lock.0, || work(40));
            let (one, all) = (COUNTS.get(), sum.get());
            sum.set(Tallied {
                revocations: all.revocations + one.revocations,
                revoking: all.revoking + one.revoking,
                ..all
            });
        }
    };
    let mut bodies: Vec<Body<'_>> = vec![Box::new(writer)];
    for reader in 0..readers {
        let locks = &locks;
        bodies.push(Box::new(move || {
            for round in 0..ROUNDS as u64 {
                until(round * ROUND);
                // Each reader has its own order. The writer waits for the end of the round.
                for at in 0..LOCKS {
                    read(&locks[(at + 7 * reader) % LOCKS].0, || work(10));
                }
            }
        }));
    }
    simulate(bodies, seed)?;
    let sum = sum.get();
    if sum.revocations < ROUNDS as u64 / 2 {
        return Err(format!("{} of {ROUNDS} writes revoked", sum.revocations));
    }
    Ok(sum.revoking as f64 / sum.revocations as f64 / SLOTS)
}

/// The rate of collisions, over the paper's.
fn collisions(threads: usize, locks: usize, seed: u64) -> Result<f64, String> {
    const ACCESSES: usize = 200_000;
    const ROUND: u64 = 20_000;
    let rounds = ACCESSES / threads;
    let pool: Vec<Apart<Bravo<9>>> = (0..locks).map(|_| Apart(Bravo::new_warm_in())).collect();
    let begin = locks as u64 * 10_000;
    let late = Cell::new(0_usize);
    COUNTS.set(Tallied::default());
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for thread in 0..threads {
        let (pool, late) = (&pool, &late);
        bodies.push(Box::new(move || {
            if thread == 0 {
                // Every lock is biased before the threads fall in step.
                pool.iter().for_each(|lock| (0..2).for_each(|_| read(&lock.0, || ())));
                COUNTS.set(Tallied::default());
            }
            let mut random = Random(seed << 16 | thread as u64);
            for round in 0..rounds as u64 {
                let start = begin + round * ROUND;
                until(start);
                let lock = &pool[(random.next() % pool.len() as u64) as usize];
                read(&lock.0, || {
                    // What is counted supposes that all threads hold their locks at the same time.
                    if now() >= start + ROUND / 4 {
                        late.set(late.get() + 1);
                    }
                    until(start + ROUND / 2);
                });
            }
        }));
    }
    simulate(bodies, seed)?;
    if late.get() > 0 {
        return Err(format!("{} of {} reads began late", late.get(), rounds * threads));
    }
    let counts = COUNTS.get();
    let reads = counts.fast + counts.collisions;
    if (reads as usize) < rounds * threads * 9 / 10 {
        return Err(format!("{reads} of {} reads were of biased locks", rounds * threads));
    }
    Ok(counts.collisions as f64 / reads as f64 / (threads as f64 / (2.0 * SLOTS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_inhibition_the_less_time_revocations_take() {
        let share = |guard| Probe::Revoking { guard, readers: 4 }.ask(1).unwrap();
        let (none, some) = (share(0), share(19));
        assert!(0.0 < some && some < none / 2.0 && none < 1.0, "{none} {some}");
        assert_eq!(beside(None, 4, 1).unwrap().1, 0.0, "a lock without a bias has nothing to revoke");
        assert!(Probe::Writes { guard: Some(2), readers: 4 }.ask(1).is_err(), "no such lock is compiled");
    }

    /// With 72 threads every core of the machine has two.
    #[test]
    fn threads_that_share_cores_arrive_together() {
        const TIME: u64 = 1_000_000;
        let arrivals = std::cell::RefCell::new(Vec::new());
        let bodies = (0..72).map(|thread| -> Body<'_> {
            let arrivals = &arrivals;
            Box::new(move || {
                work(13 * thread);
                until(TIME);
                arrivals.borrow_mut().push(now());
            })
        });
        simulate(bodies.collect(), 1).unwrap();
        let (first, last) =
            (arrivals.borrow().iter().min().copied(), arrivals.borrow().iter().max().copied());
        let (first, last) = (first.unwrap(), last.unwrap());
        assert!(TIME <= first && last <= TIME + 20, "{first} .. {last}");
    }

    #[test]
    fn what_was_not_asked_has_no_answer() {
        let answers = Answers::default();
        assert!(answers.get(Probe::Scan { readers: 8 }, 0).unwrap_err().contains("interrupted"));
    }
}
