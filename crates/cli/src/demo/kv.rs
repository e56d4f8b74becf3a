//! A small multi-threaded key-value store over plain pthread calls.
//!
//! It holds what such programs hold: a table under a reader-writer lock, which threads read far more often than they
//! write it; an access log under a mutex, to which every operation is appended; and a thread that sleeps on a condition
//! variable until a batch of log entries is there.
//!
//! The store checks itself, because a fast lock that loses an update is useless. Nothing in it is atomic but the stop
//! flag: each count below is right only if the lock that guards it excludes other threads.
//!
//! - no lookup meets a writer, and each lookup finds a record with the payload of its version;
//! - the versions in the table and its count add up to the updates made (no lost update);
//! - the log holds each thread's entries, in its order, none missing (no lost or doubled append).

use super::pthread::{Condvar, Mutex, RwLock};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Keys in the table.
const KEYS: u64 = 4096;
/// One operation in this many is an update.
const UPDATE_EVERY: u64 = 64;
/// Log entries that wake the flusher.
const BATCH: usize = 512;
/// Log entries at which appenders wait for the flusher. That is room for the entries that threads append while the flusher
/// waits for a processor, some milliseconds: the program must measure locks, not that wait.
const FULL: usize = 64 * BATCH;

/// How long and how wide to run.
#[derive(Copy, Clone, Debug)]
pub struct Options {
    /// Worker threads, beside the flusher.
    pub threads: usize,
    /// How long the workers work.
    pub duration: Duration,
}

/// What a run did.
#[derive(Copy, Clone, Debug, Default)]
pub struct Report {
    /// Lookups and updates together.
    pub operations: u64,
    /// Of these, updates.
    pub updates: u64,
    /// Entries that went through the log.
    pub logged: u64,
    /// Times that the flusher took the log's contents.
    pub flushes: u64,
    /// From the workers' start to the end of the last one.
    pub elapsed: Duration,
}

impl Report {
    /// Operations in a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

#[derive(Copy, Clone)]
struct Record {
    version: u64,
    payload: [u64; 4],
}

impl Record {
    fn new(key: u64, version: u64) -> Self {
        Self { version, payload: std::array::from_fn(|i| mix(key ^ version << 20 ^ (i as u64) << 56)) }
    }
}

/// What the reader-writer lock guards.
struct Table {
    records: HashMap<u64, Record>,
    /// Whether a writer is inside.
    writing: bool,
    updates: u64,
}

#[derive(Copy, Clone)]
struct Entry {
    thread: usize,
    /// Entries that the thread had appended before.
    count: u64,
}

#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    closed: bool,
}

struct Store {
    table_lock: RwLock,
    table: UnsafeCell<Table>,
    log_lock: Mutex,
    log: UnsafeCell<Log>,
    log_ready: Condvar,
    log_room: Condvar,
    stop: AtomicBool,
}

// SAFETY: threads access `table` only under `table_lock`, and `log` only under `log_lock`.
unsafe impl Sync for Store {}

/// Runs the store, and says what was wrong if its checks failed.
pub fn run(options: Options) -> Result<Report, String> {
    let records = (0..KEYS).map(|key| (key, Record::new(key, 0))).collect();
    let store = Store {
        table_lock: RwLock::new(),
        table: UnsafeCell::new(Table { records, writing: false, updates: 0 }),
        log_lock: Mutex::new(),
        log: UnsafeCell::default(),
        log_ready: Condvar::new(),
        log_room: Condvar::new(),
        stop: AtomicBool::new(false),
    };
    let store = &store;
    let mut report = Report::default();
    let mut appended = vec![0; options.threads];

    let flushed = std::thread::scope(|scope| {
        let flusher = scope.spawn(|| store.flush(options.threads));
        let start = Instant::now();
        let workers: Vec<_> =
            (0..options.threads).map(|thread| scope.spawn(move || store.work(thread))).collect();
        std::thread::sleep(options.duration);
        store.stop.store(true, Ordering::Relaxed);
        // Every thread is joined before a failure is returned: the scope would wait for them anyway.
        let mut workers: Vec<_> =
            workers.into_iter().map(|worker| worker.join().map_err(|_| "a worker panicked")).collect();
        report.elapsed = start.elapsed();
        store.with_log(|log| log.closed = true);
        store.log_ready.signal();
        let flushed = flusher.join().map_err(|_| "the flusher panicked")?;
        for (thread, worker) in workers.drain(..).enumerate() {
            let worker = worker??;
            report.operations += worker.operations;
            report.updates += worker.updates;
            appended[thread] = worker.operations;
        }
        flushed
    })?;
    report.flushes = flushed.flushes;
    report.logged = flushed.counts.iter().sum();

    if flushed.counts != appended {
        return Err(format!("the log lost entries: {appended:?} appended, {:?} flushed", flushed.counts));
    }
    let (versions, counted) = store.with_table(|table| {
        (table.records.values().map(|record| record.version).sum::<u64>(), table.updates)
    });
    if versions != report.updates || counted != report.updates {
        let made = report.updates;
        return Err(format!("{made} updates made; the records hold {versions}, the table counted {counted}"));
    }
    Ok(report)
}

#[derive(Default)]
struct Worker {
    operations: u64,
    updates: u64,
}

struct Flushed {
    flushes: u64,
    counts: Vec<u64>,
}

impl Store {
    fn with_table<R>(&self, f: impl FnOnce(&Table) -> R) -> R {
        // SAFETY: this thread holds the lock for reading. Only `update` makes a mutable reference, under the lock for writing.
        self.table_lock.reading(|| f(unsafe { &*self.table.get() }))
    }

    fn with_log<R>(&self, f: impl FnOnce(&mut Log) -> R) -> R {
        // SAFETY: this thread holds the mutex, and a thread refers to the log only while it does. A wait on a condition
        // variable releases the mutex; both waiters below keep no reference across the wait.
        self.log_lock.with(|_| f(unsafe { &mut *self.log.get() }))
    }

    fn work(&self, thread: usize) -> Result<Worker, String> {
        let mut done = Worker::default();
        let mut random = mix(thread as u64 + 1);
        while !self.stop.load(Ordering::Relaxed) {
            random = mix(random.wrapping_add(1));
            let key = (random >> 32) % KEYS;
            if random.is_multiple_of(UPDATE_EVERY) {
                self.update(key);
                done.updates += 1;
            } else {
                self.lookup(key)?;
            }
            self.append(Entry { thread, count: done.operations });
            done.operations += 1;
        }
        Ok(done)
    }

    fn lookup(&self, key: u64) -> Result<(), String> {
        let (record, writing) = self.with_table(|table| (table.records[&key], table.writing));
        if writing {
            return Err("a reader met a writer".into());
        }
        if record.payload != Record::new(key, record.version).payload {
            return Err(format!("key {key}, version {}: torn record", record.version));
        }
        Ok(())
    }

    fn update(&self, key: u64) {
        self.table_lock.writing(|| {
            let table = self.table.get();
            // SAFETY: this thread holds the lock for writing, so that no other thread refers to the table. The accesses are
            // volatile, because the compiler would leave out what only a broken lock shows.
            unsafe {
                (&raw mut (*table).writing).write_volatile(true);
                let updates = (&raw const (*table).updates).read_volatile();
                let record = (*table).records.get_mut(&key).expect("all keys are there from the start");
                *record = Record::new(key, record.version + 1);
                (&raw mut (*table).updates).write_volatile(updates + 1);
                (&raw mut (*table).writing).write_volatile(false);
            }
        });
    }

    fn append(&self, entry: Entry) {
        self.log_lock.with(|held| {
            // SAFETY: this thread holds the mutex, and the reference ends with the expression, before the wait.
            while unsafe { (*self.log.get()).entries.len() } >= FULL {
                self.log_room.wait(held);
            }
            // SAFETY: this thread holds the mutex until the closure ends, and waits no more.
            let log = unsafe { &mut *self.log.get() };
            log.entries.push(entry);
            if log.entries.len() == BATCH {
                self.log_ready.signal();
            }
        });
    }

    fn flush(&self, threads: usize) -> Result<Flushed, String> {
        let mut flushed = Flushed { flushes: 0, counts: vec![0; threads] };
        let mut batch: Vec<Entry> = Vec::with_capacity(FULL);
        let mut wrong = None;
        loop {
            let closed = self.log_lock.with(|held| {
                // SAFETY: this thread holds the mutex, and the references end with the expression, before the wait.
                while unsafe { (*self.log.get()).entries.len() < BATCH && !(*self.log.get()).closed } {
                    self.log_ready.wait(held);
                }
                // SAFETY: this thread holds the mutex until the closure ends, and waits no more.
                let log = unsafe { &mut *self.log.get() };
                std::mem::swap(&mut log.entries, &mut batch);
                log.closed
            });
            self.log_room.broadcast();
            for entry in batch.drain(..) {
                let expected = &mut flushed.counts[entry.thread];
                if entry.count != *expected {
                    // The flusher goes on, so that no appender waits for room for ever.
                    let Entry { thread, count } = entry;
                    wrong.get_or_insert(format!("log of thread {thread}: {count} where {expected} was due"));
                }
                *expected += 1;
            }
            flushed.flushes += 1;
            if closed {
                return wrong.map_or(Ok(flushed), Err);
            }
        }
    }
}

/// SplitMix64's finaliser.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correct_lock_passes_the_checks() {
        // On a busy machine threads may hardly run in a short time.
        let all_happens = |ms| {
            let report = run(Options { threads: 4, duration: Duration::from_millis(ms) }).unwrap();
            assert_eq!(report.logged, report.operations);
            let reads = report.operations > report.updates;
            report.updates > 0 && reads && report.flushes > 0 && report.rate() > 0.0
        };
        assert!([100, 1_000, 10_000, 60_000].into_iter().any(all_happens));
    }
}
