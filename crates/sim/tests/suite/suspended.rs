//! One thread is suspended for ever, anywhere between its call of an operation and the return. All others, those in the
//! queue included, must have the lock again and again, if the lock says that it tolerates this ([`Suspension`]).
//!
//! If the thread is suspended when the lock is its own already (it has taken the word, and its call has not returned),
//! the others wait for ever by right. Such runs are counted, and a bound on their number ([`Tally::tells`]) catches locks that
//! make holders of waiters.
//!
//! `LATCHWORK_LOCK=name` runs one lock only. `LATCHWORK_SIM_SEEDS=10000` tries more seeds, and `LATCHWORK_SEED=7` a few others.

use latchwork::locks::mutex::{Info, RawMutex, Suspension, mcs::RawMcs, shfl::RawShfl, ticket::RawTicket};
use latchwork::locks::rwlock::{RawRwLock, bravo::RawBravo, pf_q::RawPfQ, shfl_rw::RawShflRw};
use latchwork::machine::Deadline;
use latchwork::registry::{Visitor, visit};
use latchwork_sim::{
    Adversary, Error, Options, Profile, Sim, fail, never_suspend, now, run, suspend_in, thread, work,
};
use std::cell::Cell;
use std::ops::RangeInclusive;

fn seeds() -> u64 {
    std::env::var("LATCHWORK_SIM_SEEDS").map_or(150, |n| n.parse().expect("a number of seeds"))
}

/// How many seeds are tried from a fresh one on.
const FRESH: u64 = 15;

const THREADS: usize = 7;
const ROUNDS: u64 = 30;
/// The thread that is suspended comes as often, until it is.
const ROUNDS_OF_VICTIM: u64 = 200;
/// Nanoseconds that an acquisition takes if nobody else is there.
const UNCONTENDED: u64 = 800;
/// Nanoseconds. Far more than a suspended head keeps the lock (10 ms) and a waiter sleeps (128 ms).
const LIMIT: u64 = 3_000_000_000;
const MILLI: u64 = 1_000_000;

/// Numbers that look random.
fn mix(seed: u64, of: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ of.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 32
}

/// How an acquisition is made.
#[derive(Copy, Clone)]
enum How {
    Waits,
    Tries,
    Until(Deadline),
}

/// The index of the thread that is suspended.
const VICTIM: usize = 0;

/// How a run ended, and whether the last call of the thread that is to be suspended shares the lock.
type Run = (End, bool);

/// How a run ended.
enum End {
    /// All have finished.
    Missed,
    /// All but the suspended thread have finished.
    Passed,
    /// They have not; the lock was the suspended thread's.
    Held,
}

/// What the threads do with the lock.
#[derive(Default)]
struct Uses {
    /// Threads inside that run.
    holders: Cell<i64>,
    /// Whether the last call of the thread that is to be suspended is for a lock that it shares: a read.
    shares: Cell<bool>,
}

/// In how many runs the thread was suspended, and in how many of these with the lock in its hands.
#[derive(Default, Debug)]
struct Counts {
    suspended: u64,
    held: u64,
}

/// The same for calls that want the lock alone, and for calls that share it.
#[derive(Default, Debug)]
struct Tally {
    alone: Counts,
    shared: Counts,
}

impl Tally {
    /// Whether so many seeds tell that a suspended waiter keeps the lock from no thread.
    fn tells(&self, seeds: u64) -> bool {
        let Tally { alone, shared } = self;
        let passed = alone.suspended - alone.held + shared.suspended - shared.held;
        // In most runs, the thread must be one that the others have to pass.
        // A call that wants the lock alone returns when the lock is its own. If it is suspended with the lock more often than
        // once in ten runs, it was given the lock as a waiter, or keeps the lock while it waits for readers, as writers of
        // `bravo-shfl-rw` do. Readers of BRAVO are not bounded like this. While they have the underlying lock, they note that
        // there is no bias, or look through the slots and turn it on.
        passed * 2 > seeds && alone.held * 10 <= alone.suspended
    }
}

/// Runs the client: `turn(random, how)` acquires the lock, calls the function that it is given, and then releases it
/// after a section; `locked` says that it looks locked.
fn client(seed: u64, turn: &dyn Fn(u64, How), locked: &dyn Fn() -> bool, uses: &Uses) -> Result<End, Error> {
    let (finished, survived) = (Cell::new(0), Cell::new(false));
    let how = |random: u64| match random % 4 {
        0 => How::Tries,
        1 => How::Until(Deadline::after::<Sim>(1 << (8 + random / 4 % 18))),
        _ => How::Waits,
    };
    let victim = || {
        for round in 0..ROUNDS_OF_VICTIM {
            let random = mix(seed, round);
            work(random % 400);
            // An acquisition without contention is over by then.
            suspend_in(UNCONTENDED + (random >> 16) % (1 << (5 + (random >> 8) % 13)), None);
            turn(random >> 40, how(random >> 32));
        }
        survived.set(true);
    };
    let other = || {
        for round in 0..ROUNDS {
            let random = mix(seed, (thread() as u64 + 1) << 32 | round);
            turn(random >> 40, how(random >> 32));
            work(random % 4 * 200);
        }
        finished.set(finished.get() + 1);
    };
    // Looks at the lock when the others have had time enough.
    let held = Cell::new(false);
    let watcher = || {
        while now() < LIMIT / 2 {
            if finished.get() == THREADS - 1 {
                return;
            }
            work(MILLI);
        }
        held.set(locked() && uses.holders.get() == 0);
    };
    let machine = ["2x2", "2x4", "1x2"][seed as usize % 3];
    let adversary = seed.is_multiple_of(2).then(Adversary::default);
    let options = Options { seed, suspends: true, limit_ns: LIMIT, adversary, ..Options::default() };
    let bodies = (0..=THREADS)
        .map(|i| match i {
            VICTIM => Box::new(victim) as Box<dyn FnOnce()>,
            THREADS => Box::new(watcher),
            _ => Box::new(other),
        })
        .collect();
    match run(&Profile::find(machine)?, &options, bodies) {
        Ok(_) if survived.get() => Ok(End::Missed),
        Ok(_) if finished.get() == THREADS - 1 => Ok(End::Passed),
        Ok(_) => Err(Error::Failed { at_ns: 0, message: "threads did not finish".into() }),
        Err(Error::TimeLimit { .. }) if held.get() => Ok(End::Held),
        Err(error) => Err(error),
    }
}

fn mutex<L: RawMutex<Machine = Sim>>(seed: u64) -> Result<Run, Error> {
    let lock = L::new_in();
    let uses = Uses::default();
    let holders = &uses.holders;
    let turn = |random: u64, how| {
        let token = match how {
            How::Waits => Some(lock.lock()),
            How::Tries => lock.try_lock(),
            How::Until(deadline) => lock.lock_until(deadline),
        };
        never_suspend();
        let Some(token) = token else { return };
        if holders.replace(1) != 0 {
            fail("two holders at once");
        }
        work(if random.is_multiple_of(16) { 20_000 } else { 60 });
        holders.set(0);
        // SAFETY: the token is from the acquisition just before.
        unsafe { lock.unlock(token) };
    };
    let end = client(seed, &turn, &|| lock.is_locked(), &uses)?;
    Ok((end, uses.shares.get()))
}

fn rwlock<R: RawRwLock<Machine = Sim>>(seed: u64) -> Result<Run, Error> {
    let lock = R::new_in();
    let (uses, writing) = (Uses::default(), Cell::new(false));
    let holders = &uses.holders;
    let section = |random: u64| work(if random.is_multiple_of(16) { 20_000 } else { 60 });
    let turn = |random: u64, how| {
        let writes = (random / 16).is_multiple_of(4);
        if thread() == VICTIM {
            uses.shares.set(!writes);
        }
        if writes {
            let token = match how {
                How::Waits => Some(lock.write()),
                How::Tries => lock.try_write(),
                How::Until(deadline) => lock.write_until(deadline),
            };
            never_suspend();
            let Some(token) = token else { return };
            if writing.replace(true) || holders.get() > 0 {
                fail("a writer beside another thread");
            }
            holders.set(1);
            section(random);
            holders.set(0);
            writing.set(false);
            // SAFETY: the token is from the acquisition just before.
            unsafe { lock.unlock_write(token) };
        } else {
            let token = match how {
                How::Waits => Some(lock.read()),
                How::Tries => lock.try_read(),
                How::Until(deadline) => lock.read_until(deadline),
            };
            never_suspend();
            let Some(token) = token else { return };
            if writing.get() {
                fail("a reader beside a writer");
            }
            holders.set(holders.get() + 1);
            section(random);
            holders.set(holders.get() - 1);
            // SAFETY: the token is from the acquisition just before.
            unsafe { lock.unlock_read(token) };
        }
    };
    let end = client(seed, &turn, &|| lock.is_locked(), &uses)?;
    Ok((end, uses.shares.get()))
}

fn all_seeds(run: impl Fn(u64) -> Result<Run, Error>) -> Result<Tally, String> {
    of_seeds(1..=seeds(), run)
}

fn of_seeds(seeds: RangeInclusive<u64>, run: impl Fn(u64) -> Result<Run, Error>) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for seed in seeds {
        let (end, shares) = run(seed).map_err(|error| format!("seed {seed}: {error}"))?;
        let counts = if shares { &mut tally.shared } else { &mut tally.alone };
        counts.suspended += u64::from(!matches!(end, End::Missed));
        counts.held += u64::from(matches!(end, End::Held));
    }
    Ok(tally)
}

struct Each;

impl Each {
    fn check(&self, info: &Info, run: impl Fn(u64) -> Result<Run, Error>) {
        if !crate::wanted(info.name) || info.suspension == Suspension::Blocks {
            return;
        }
        let tally = all_seeds(&run).unwrap_or_else(|error| panic!("{}: {error}", info.name));
        println!("{}: {tally:?}", info.name);
        assert!(tally.tells(seeds()), "{}: {tally:?}", info.name);
        if let Some(first) = crate::fresh_seed()
            && let Err(error) = of_seeds(first..=first + FRESH - 1, run)
        {
            panic!("{}: {error}{}", info.name, crate::again(info.name));
        }
    }
}

impl Visitor<Sim> for Each {
    fn mutex<L: RawMutex<Machine = Sim>>(&mut self) {
        self.check(&L::INFO, mutex::<L>);
    }
    fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
        self.check(&R::INFO, rwlock::<R>);
    }
}

#[test]
fn a_suspended_waiter_keeps_the_lock_from_nobody() {
    visit(&mut Each);
}

/// Locks that hand over to a certain waiter, whether that runs or not.
#[test]
fn a_lock_that_blocks_is_caught() {
    for (info, found) in [
        (RawTicket::<Sim>::INFO, all_seeds(mutex::<RawTicket<Sim>>)),
        (RawMcs::<Sim>::INFO, all_seeds(mutex::<RawMcs<Sim>>)),
        (RawPfQ::<Sim>::INFO, all_seeds(rwlock::<RawPfQ<Sim>>)),
    ] {
        assert_eq!(info.suspension, Suspension::Blocks);
        assert!(found.is_err_and(|error| error.contains("deadlock")), "{}", info.name);
    }
}

/// A writer that keeps the underlying lock while it revokes.
#[test]
fn a_writer_that_blocks_while_it_revokes_is_caught() {
    type Lock = RawBravo<Sim, RawShflRw<Sim>>;
    assert_eq!(Lock::INFO.suspension, Suspension::Blocks);
    let tally = all_seeds(rwlock::<Lock>).unwrap();
    println!("{}: {tally:?}", Lock::INFO.name);
    assert!(!tally.tells(seeds()), "{tally:?}");
}

/// Behind a head that is suspended, a waiter with a deadline looks at the lock before it gives up, too: it has been free for long.
#[test]
fn a_waiter_looks_once_more_at_its_deadline() {
    fn gets_it<L: RawMutex<Machine = Sim>>(milliseconds: u64) -> bool {
        let (lock, got) = (L::new_in(), Cell::new(false));
        let holder = || {
            let token = lock.lock();
            work(2 * MILLI);
            // SAFETY: the token is from the acquisition just before.
            unsafe { lock.unlock(token) };
        };
        let head = || {
            work(MILLI / 10);
            suspend_in(MILLI / 2, None);
            lock.lock();
        };
        let waiter = || {
            work(MILLI / 5);
            got.set(lock.lock_until(Deadline::after::<Sim>(milliseconds * MILLI)).is_some());
        };
        let options = Options { suspends: true, limit_ns: LIMIT, ..Options::default() };
        let bodies: Vec<Box<dyn FnOnce()>> = vec![Box::new(holder), Box::new(head), Box::new(waiter)];
        run(&Profile::find("2x2").unwrap(), &options, bodies).expect("all but the head end");
        got.get()
    }
    // From the end of the promise to a free lock (10 ms after the head's turn has begun) on.
    let late: Vec<u64> = (13..60).filter(|&milliseconds| !gets_it::<RawShfl<Sim>>(milliseconds)).collect();
    assert!(late.is_empty(), "gave up beside a free lock after so many milliseconds: {late:?}");
}
