//! A hash table under each way to synchronize it: locks, RCU, hazard pointers, epochs, nothing.
//!
//! Source: McKenney, Hart and Walpole, "Practical Concerns for Scalable Synchronization", 2005, sections 3.3
//! and 4. Not to be confused with `hash-table`, which is a table under one lock after the ShflLock paper.
//!
//! A mix of lookups and updates of random keys; the table's size decides whether a lookup misses the caches.
//! Half of the keys are in the table. Every thread owns a share of the keys, spread over all chains, and
//! only the owner inserts and removes them, in turn. So each update has to succeed, and each lookup of an own key has one
//! right answer. A lookup of another thread's key must find the value that belongs to the key. A thread that meets an element that
//! has been reclaimed says so ([`tables`](crate::tables)).
//!
//! Without synchronization ("ideal"), the threads share a table that nobody changes; if they change it, each
//! has one for itself.
//!
//! What differs from the paper: a thread announces quiescent states every `budget / 4` operations, and
//! updates insert or remove (the paper does not say what its updates are).

use crate::data::Line;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::tables::{Reclaimed, Shape, Table, TableWorkload};
use crate::thread::Thread;
use crate::workload::{Info, Locks, Parameter, Settings, Threads};
use std::hint::black_box;
use std::sync::Mutex;

/// See the [module documentation](self).
pub struct HashtableStrategies {
    updates: f64,
    buckets: usize,
    keys: u64,
    budget: usize,
    gap: u64,
}

/// A key's bucket says neither which thread owns the key nor whether the key is there at first.
fn mix(key: u64) -> u64 {
    let mixed = (key ^ (key >> 15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

/// The value that belongs to a key.
fn value(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn initially(key: u64) -> bool {
    mix(key) >> 20 & 1 == 1
}

/// A thread's keys.
struct Own {
    keys: Vec<u32>,
    /// Whether each of all keys is there; right for the own ones.
    there: Vec<bool>,
    /// How many elements the thread has removed.
    removed: usize,
    /// How many elements of all threads waited to be reclaimed when the thread had done its operations.
    waiting: Option<usize>,
}

impl HashtableStrategies {
    fn owner(key: u64, threads: usize) -> usize {
        (mix(key) % threads as u64) as usize
    }

    fn own(&self, thread: usize, threads: usize) -> Own {
        let keys = (0..self.keys).filter(|key| Self::owner(*key, threads) == thread);
        let there = (0..self.keys).map(initially).collect();
        Own { keys: keys.map(|key| key as u32).collect(), there, removed: 0, waiting: None }
    }

    /// Inserts or removes one of the thread's own keys.
    #[inline(never)]
    fn update<'t, S: Stage, T: Table>(
        table: &'t T,
        handle: &mut T::Handle<'t>,
        thread: &mut Thread<S>,
        own: &mut Own,
    ) -> Result<(), Reclaimed> {
        let Some(last) = own.keys.len().checked_sub(1) else { return Ok(()) };
        let key = u64::from(own.keys[thread.below(last as u64 + 1) as usize]);
        let there = &mut own.there[key as usize];
        own.removed += usize::from(*there);
        let done = if *there { table.remove(handle, key)? } else { table.insert(handle, key, value(key))? };
        if !done {
            let what = if *there { "lost before it was removed" } else { "there before it was inserted" };
            thread.fail(|| format!("key {key} was {what}"));
        }
        *there = !*there;
        Ok(())
    }

    /// The lookup that is measured. A function of its own, as [`update`](Self::update) and
    /// [`quiescent`](Self::quiescent) are, for every table: else the loop around them is compiled differently for each,
    /// which was more than what RCU's section costs.
    ///
    /// # Safety
    ///
    /// The handle is one of this table.
    #[inline(never)]
    unsafe fn get<'t, T: Table>(
        table: &'t T,
        handle: &mut T::Handle<'t>,
        key: u64,
    ) -> Result<Option<u64>, Reclaimed> {
        // SAFETY: as the caller promises.
        unsafe { table.get(handle, key) }
    }

    /// Says that the thread has no reference into the table. Also where that is nothing: else the count of operations
    /// until then would be left out of some loops.
    #[inline(never)]
    fn quiescent<'t, T: Table>(table: &'t T, handle: &mut T::Handle<'t>) {
        table.quiescent(handle);
        black_box(());
    }

    /// With the key by value, which else would lie in memory in every round.
    #[cold]
    #[inline(never)]
    fn wrong<S: Stage>(thread: &mut Thread<S>, key: u64, found: Option<u64>, what: &str) {
        thread.fail(|| format!("key {key} {what}: {found:?}"));
    }

    /// Looks a random key up.
    ///
    /// # Safety
    ///
    /// The handle is one of this table.
    #[inline(always)]
    unsafe fn look<'t, S: Stage, T: Table>(
        table: &'t T,
        handle: &mut T::Handle<'t>,
        thread: &mut Thread<S>,
        own: &Own,
        key: u64,
        threads: usize,
    ) -> Result<(), Reclaimed> {
        // SAFETY: the handle is one of this table, as the caller promises.
        let found = unsafe { Self::get(table, handle, key) }?;
        if found.is_some_and(|found| found != value(key)) {
            Self::wrong(thread, key, found, "has the value of another");
        } else if found.is_some() != own.there[key as usize] && Self::owner(key, threads) == thread.index {
            Self::wrong(thread, key, found, "of this thread was found as it is not");
        }
        Ok(())
    }

    /// What one thread does. Returns its keys as it leaves them.
    fn body<S: Stage, T: Table>(
        &self,
        table: &T,
        thread: &mut Thread<S>,
        threads: usize,
    ) -> Result<Own, Reclaimed> {
        let mut own = self.own(thread.index, threads);
        let mut handle = table.join(thread.index);
        let quiet = (self.budget / 4).max(1);
        let mut until_quiet = quiet;
        while thread.running() {
            if thread.chance(self.updates) {
                Self::update::<S, T>(table, &mut handle, thread, &mut own)?;
            } else {
                let key = thread.below(self.keys);
                // SAFETY: `handle` is of `table`, see above.
                unsafe { Self::look::<S, T>(table, &mut handle, thread, &own, key, threads) }?;
            }
            thread.done();
            until_quiet -= 1;
            if until_quiet == 0 {
                until_quiet = quiet;
                Self::quiescent(table, &mut handle);
            }
            if self.gap > 0 {
                let gap = thread.below(2 * self.gap + 1);
                thread.work(gap);
            }
        }
        own.waiting = table.waiting();
        Ok(own)
    }

    /// A table with half of the keys.
    fn filled<T: Table>(&self, threads: usize) -> Result<T, Reclaimed> {
        let (buckets, elements) = (self.buckets, self.keys as usize);
        let table = T::new(&Shape { buckets, elements, threads, waiting: self.budget });
        let mut handle = table.join(0);
        for key in (0..self.keys).filter(|key| initially(*key)) {
            table.insert(&mut handle, key, value(key))?;
        }
        drop(handle);
        Ok(table)
    }

    /// Of the elements that the threads removed, the share that was reclaimed before the first thread left the table: later
    /// reclamation is not in the measured time. `None` if none was removed, or if the table does not say what waits.
    fn reclaimed(owns: &[(usize, Own)]) -> Option<f64> {
        let removed: usize = owns.iter().map(|(_, own)| own.removed).sum();
        // What a thread leaves is reclaimed when it leaves, so the most that any saw is near what waited before that.
        let waited =
            owns.iter().map(|(_, own)| own.waiting).collect::<Option<Vec<_>>>()?.into_iter().max()?;
        (removed > 0).then(|| removed.saturating_sub(waited) as f64 / removed as f64)
    }

    /// Whether the table has the keys that their owners left in it, and no others.
    fn check<'o, T: Table>(&self, mut table: T, owns: impl Iterator<Item = &'o Own>) -> Result<(), String> {
        let mut expected: Vec<bool> = (0..self.keys).map(initially).collect();
        for own in owns {
            for key in &own.keys {
                expected[*key as usize] = own.there[*key as usize];
            }
        }
        let mut wrong = None;
        table.each(|key, found| match expected.get_mut(key as usize) {
            Some(there) if *there && found == value(key) => *there = false,
            _ => wrong = Some(format!("key {key} is in the table, and should not be")),
        });
        let lost = expected.iter().position(|left| *left).map(|key| format!("key {key} is lost"));
        wrong.or(lost).map_or(Ok(()), Err)
    }
}

impl TableWorkload for HashtableStrategies {
    const INFO: Info = Info {
        name: "hashtable-strategies",
        summary: "look up and change random keys of a hash table under locks, RCU, hazard pointers, epochs or nothing",
        source: "McKenney, Hart and Walpole 2005, sections 3.3 and 4, figures 2 to 9",
        shows: "readers that lock nothing scale; what deferred reclamation costs as updates become more",
        operation: "lookup or update",
        locks: Locks::Table,
        parameters: &[
            Parameter::fraction(
                "updates",
                "0",
                "share of operations that insert or remove (the paper: 0 to 1)",
            ),
            Parameter::count(
                "buckets",
                "32",
                1..=1 << 20,
                "chains, a power of two (32 fit the first cache; with 262144 a lookup misses most)",
            ),
            Parameter::count(
                "chain",
                "1",
                1..=64,
                "average elements in a chain; there are twice as many keys",
            ),
            Parameter::count(
                "budget",
                "1000",
                1..=1 << 20,
                "removed elements that may wait to be reclaimed, for each thread",
            ),
            Parameter::time("gap", "0ns", "average computation between operations"),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: false,
        simulated_us: 2_000,
    };

    fn new(settings: &Settings) -> Self {
        let buckets = settings.count("buckets").next_power_of_two();
        HashtableStrategies {
            updates: settings.number("updates"),
            buckets,
            keys: 2 * (buckets * settings.count("chain")) as u64,
            budget: settings.count("budget"),
            gap: settings.ns("gap"),
        }
    }

    fn run<S: Stage, T: Table<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let alone = !T::INFO.concurrent && self.updates > 0.0;
        let tables = (0..if alone { threads } else { 1 }).map(|_| self.filled::<T>(threads).map(Line));
        let tables: Vec<Line<T>> = tables.collect::<Result<_, _>>().map_err(|why| why.to_string())?;
        let owns = Mutex::new(Vec::new());
        let measured = measure::run(stage, threads, &|thread| {
            let table = &tables[thread.index % tables.len()].0;
            match self.body::<S, T>(table, thread, threads) {
                Ok(own) => owns.lock().expect("nobody panics with it").push((thread.index, own)),
                Err(why) => thread.fail(|| why.to_string()),
            }
        })?;
        let owns = owns.into_inner().expect("nobody panics with it");
        let count = tables.len();
        for (index, table) in tables.into_iter().enumerate() {
            let of_table = owns.iter().filter(|(thread, _)| thread % count == index);
            self.check(table.0, of_table.map(|(_, own)| own))?;
        }
        Ok(match Self::reclaimed(&owns) {
            Some(share) => measured.with("reclaimed", share),
            None => measured,
        })
    }
}
