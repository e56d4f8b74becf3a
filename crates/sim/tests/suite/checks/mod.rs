//! What every lock is put through.

use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::seqlock::{RawSeqLock, SeqLock};
use latchwork::machine::{Arith, Clock, Deadline, Machine, Word};
use latchwork_sim::{
    Adversary, Error, Options, Profile, Report, Sim, U64, acquired, acquiring, fail, released, run, thread,
    work,
};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// A machine, threads, and how they are treated.
pub struct Scene {
    machine: &'static str,
    threads: usize,
    rounds: u64,
    adversary: bool,
    seed: u64,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scene { machine, threads, adversary, seed, .. } = self;
        write!(f, "{threads} threads on {machine}, adversary {adversary}, seed {seed}")
    }
}

/// A quiet machine, a crowded one, and both with threads stopped at random.
pub fn scenes() -> Vec<Scene> {
    let seeds = std::env::var("LATCHWORK_SIM_SEEDS").map_or(2, |n| n.parse().expect("a number of seeds"));
    (1..=seeds)
        .chain(crate::fresh_seed())
        .flat_map(|seed| {
            [(("2x4"), 8, false), ("2x2", 12, false), ("4x3", 12, true), ("2x2", 10, true)]
                .map(|(machine, threads, adversary)| Scene { machine, threads, rounds: 25, adversary, seed })
        })
        .collect()
}

/// What a scene came to.
pub struct Outcome {
    pub report: Report,
    /// Whether what makes it interesting happened: a timed acquisition that gave up, readers that
    /// shared the lock.
    pub covered: bool,
}

/// Objects in lines of their own, so that a trace does not depend on what is beside them.
#[repr(align(128))]
struct Padded<T>(T);

impl Scene {
    /// Four threads for each processor, for long enough that a node has the lock many times in a row.
    pub fn long(seed: u64) -> Scene {
        Scene { machine: "2x4", threads: 32, rounds: 200, adversary: true, seed }
    }

    fn run<L>(&self, lock: &Padded<L>, body: &dyn Fn(u64)) -> Result<Report, Error> {
        let mut options = Options { seed: self.seed, limit_ns: 2_000_000_000, ..Options::default() };
        options.label(&lock.0, "lock");
        if self.adversary {
            options.adversary = Some(Adversary::default());
        }
        let rounds = || (0..self.rounds).for_each(body);
        let bodies = (0..self.threads).map(|_| Box::new(rounds) as Box<dyn FnOnce()>).collect();
        run(&Profile::find(self.machine)?, &options, bodies)
    }
}

/// A number that differs from round to round and thread to thread.
fn mix(round: u64) -> u64 {
    (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(thread() as u32 * 7) >> 40
}

/// Exclusion, progress and timed acquisitions of a mutex.
pub fn mutex<L: RawMutex<Machine = Sim>>(scene: &Scene) -> Result<Outcome, Error> {
    let (lock, data) = (Padded(L::new_in()), Padded(U64::new(0)));
    let (holder, done, given_up) = (Cell::new(None), Cell::new(0), Cell::new(0));
    let section = |token| {
        acquired(0);
        if let Some(other) = holder.replace(Some(thread())) {
            fail(format!("two holders at once: threads {other} and {}", thread()));
        }
        let value = data.0.load(Relaxed);
        work(30);
        data.0.store(value + 1, Relaxed);
        if holder.replace(None) != Some(thread()) {
            fail("two holders at once, after the section");
        }
        released(0);
        done.set(done.get() + 1);
        // SAFETY: the token is from the acquisition just before.
        unsafe { lock.0.unlock(token) };
    };
    let report = scene.run(&lock, &|round| {
        acquiring();
        match mix(round) % 8 {
            0 => {
                if let Some(token) = lock.0.try_lock() {
                    section(token);
                }
            }
            // Long enough for some, too short for others.
            n @ 1..=2 => match lock.0.lock_until(Deadline::after::<Sim>(n * 700)) {
                Some(token) => section(token),
                None => given_up.set(given_up.get() + 1),
            },
            _ => section(lock.0.lock()),
        }
        work(50 + mix(round) % 300);
    })?;
    let check = |holds: bool, what: String| {
        if holds { Ok(()) } else { Err(Error::Failed { at_ns: 0, message: what }) }
    };
    check(data.0.fetch_add(0, Relaxed) == done.get(), "an update was lost".into())?;
    check(report.acquisitions == done.get(), "acquisitions were not counted".into())?;
    let least = scene.threads as u64 * scene.rounds / 2;
    check(done.get() > least, format!("only {} acquisitions", done.get()))?;
    check(!lock.0.is_locked(), "it looks locked when all is over".into())?;
    check(lock.0.try_lock().is_some(), "it cannot be locked when all is over".into())?;
    Ok(Outcome { report, covered: given_up.get() > 0 })
}

/// Exclusion, progress and timed acquisitions of a reader-writer lock.
pub fn rwlock<R: RawRwLock<Machine = Sim>>(scene: &Scene) -> Result<Outcome, Error> {
    let (lock, data) = (Padded(R::new_in()), Padded((U64::new(0), U64::new(0))));
    let (readers, most, writing, writes) = (Cell::new(0), Cell::new(0), Cell::new(false), Cell::new(0));
    let read = |token| {
        readers.set(readers.get() + 1);
        most.set(most.get().max(readers.get()));
        if writing.get() {
            fail("a reader beside a writer");
        }
        let before = data.0.0.load(Relaxed);
        work(60);
        if writing.get() || data.0.1.load(Relaxed) != before {
            fail("a writer beside a reader");
        }
        readers.set(readers.get() - 1);
        // SAFETY: the token is from the acquisition just before.
        unsafe { lock.0.unlock_read(token) };
    };
    let write = |token| {
        acquired(0);
        if writing.replace(true) || readers.get() > 0 {
            fail(format!("a writer beside {} readers or another writer", readers.get()));
        }
        let value = data.0.0.load(Relaxed);
        data.0.0.store(value + 1, Relaxed);
        work(30);
        data.0.1.store(value + 1, Relaxed);
        writes.set(writes.get() + 1);
        writing.set(false);
        released(0);
        // SAFETY: the token is from the acquisition just before.
        unsafe { lock.0.unlock_write(token) };
    };
    let report = scene.run(&lock, &|round| {
        let soon = || Deadline::after::<Sim>(900);
        match mix(round) % 16 {
            0 => lock.0.try_read().into_iter().for_each(read),
            1 => lock.0.try_write().into_iter().for_each(write),
            2 => lock.0.read_until(soon()).into_iter().for_each(read),
            3 => lock.0.write_until(soon()).into_iter().for_each(write),
            4 | 5 => write(lock.0.write()),
            _ => read(lock.0.read()),
        }
        work(50 + mix(round) % 100);
    })?;
    let check = |holds: bool, what: &str| {
        if holds { Ok(()) } else { Err(Error::Failed { at_ns: 0, message: what.into() }) }
    };
    check(data.0.0.fetch_add(0, Relaxed) == writes.get(), "an update was lost")?;
    check(!lock.0.is_locked() && !lock.0.is_write_locked(), "it looks locked when all is over")?;
    check(lock.0.try_write().is_some(), "it cannot be locked when all is over")?;
    Ok(Outcome { report, covered: most.get() > 1 })
}

/// What is shared of a sequence lock: the lock, and four words.
pub type Copied<L> = (RawSeqLock<L>, [<Sim as Machine>::Usize; 4]);

/// A reader's copy, and how many copies failed before it.
pub type Copy = ([usize; 4], u64);

/// Copies of one moment, none before the last one, by `read`; and progress.
pub fn seqlock<L: RawMutex<Machine = Sim>>(
    scene: &Scene,
    read: fn(&Copied<L>) -> Copy,
) -> Result<Outcome, Error> {
    let shared: Padded<Copied<L>> = Padded((RawSeqLock::new_in(), std::array::from_fn(|_| Word::new(0))));
    let (lock, words) = (&shared.0.0, &shared.0.1);
    let (writes, in_vain) = (Cell::new(0), Cell::new(0));
    let seen: Vec<_> = (0..scene.threads).map(|_| Cell::new(0)).collect();
    let report = scene.run(&shared, &|round| {
        let seen = &seen[thread()];
        if mix(round).is_multiple_of(4) {
            let mut writing = lock.write();
            acquired(0);
            let mut values = [0; 4];
            writing.load(words, &mut values);
            work(30);
            writing.store(words, &values.map(|value| value + 1));
            writes.set(writes.get() + 1);
            seen.set(values[0] + 1);
            released(0);
        } else {
            let (copy, again) = read(&shared.0);
            in_vain.set(in_vain.get() + again);
            if copy.iter().any(|word| *word != copy[0]) {
                fail(format!("a copy of two moments: {copy:?}"));
            }
            if seen.replace(copy[0]) > copy[0] {
                fail(format!("a copy of an earlier moment: {copy:?}"));
            }
        }
        work(mix(round) % 100);
    })?;
    if lock.try_read(words, &mut [0; 4]) && words.iter().all(|word| word.load(Relaxed) == writes.get()) {
        return Ok(Outcome { report, covered: in_vain.get() > 0 });
    }
    Err(Error::Failed { at_ns: 0, message: "a write was lost, or is not over".into() })
}

/// Every thread gets the mutex, however long the others go on asking for it.
pub fn nobody_starves<L: RawMutex<Machine = Sim>>(threads: usize) -> Result<Report, Error> {
    const TURNS: u32 = 2;
    let (lock, behind) = (Padded(L::new_in()), Cell::new(threads));
    let body = || {
        work(1000 * thread() as u64);
        let mut turns = 0;
        while behind.get() > 0 {
            let token = lock.0.lock();
            work(100);
            // SAFETY: the token is from the acquisition just before.
            unsafe { lock.0.unlock(token) };
            turns += 1;
            if turns == TURNS {
                behind.set(behind.get() - 1);
            }
            work(100);
        }
    };
    let mut options = Options { limit_ns: 200_000_000, ..Options::default() };
    options.label(&lock.0, "lock");
    run(
        &Profile::find("4x12")?,
        &options,
        (0..threads).map(|_| Box::new(body) as Box<dyn FnOnce()>).collect(),
    )
}

/// The threads that have to get a turn, and are outnumbered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Few {
    /// Two writers against readers with overlapping sections: a reader is always inside.
    Writers,
    /// Two readers against writers that ask again at once.
    Readers,
}

/// Two threads of one side get the lock, however long the others go on asking for it. How long the longest
/// wait was, in nanoseconds.
pub fn outnumbered<R: RawRwLock<Machine = Sim>>(
    few: Few,
    machine: &str,
    threads: usize,
) -> Result<u64, Error> {
    let lock = Padded(R::new_in());
    longest_wait(&lock, few, machine, threads, &|writes| {
        if writes {
            let token = lock.0.write();
            work(100);
            // SAFETY: the token is from the acquisition just before.
            unsafe { lock.0.unlock_write(token) };
        } else {
            let token = lock.0.read();
            work(3000);
            // SAFETY: the token is from the acquisition just before.
            unsafe { lock.0.unlock_read(token) };
        }
    })
}

/// The same of two readers of a sequence lock, against writers that ask again at once.
pub fn outpaced<L: RawMutex<Machine = Sim>>(machine: &str, threads: usize) -> Result<u64, Error> {
    let lock = Padded(SeqLock::<L, 8>::new_in());
    longest_wait(&lock, Few::Readers, machine, threads, &|writes| {
        if writes {
            lock.0.write(|words| words.iter_mut().for_each(|word| *word += 1));
        } else {
            lock.0.read();
        }
    })
}

fn longest_wait<L>(
    lock: &Padded<L>,
    few: Few,
    machine: &str,
    threads: usize,
    turn: &dyn Fn(bool),
) -> Result<u64, Error> {
    const FEW: usize = 2;
    const TURNS: u32 = 20;
    let (behind, longest) = (Cell::new(FEW), Cell::new(0));
    let body = || {
        let (writers_are_few, is_few) = (few == Few::Writers, thread() < FEW);
        work(if is_few { 20_000 } else { 100 * thread() as u64 });
        if !is_few {
            while behind.get() > 0 {
                turn(!writers_are_few);
                work(50);
            }
            return;
        }
        for _ in 0..TURNS {
            let start = Sim::now(Clock::Monotonic);
            turn(writers_are_few);
            longest.set(longest.get().max(Sim::now(Clock::Monotonic) - start));
            work(1000);
        }
        behind.set(behind.get() - 1);
    };
    let mut options = Options { limit_ns: 800_000_000, ..Options::default() };
    options.label(&lock.0, "lock");
    let bodies = (0..threads).map(|_| Box::new(body) as Box<dyn FnOnce()>).collect();
    run(&Profile::find(machine)?, &options, bodies).map(|_| longest.get())
}
