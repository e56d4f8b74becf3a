//! More readers than a lock can count. A process that comes so far ends: a count that has wrapped around would let a writer in
//! beside readers.

use super::*;
use crate::machine::Word;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::format;
use std::string::String;
use std::vec::Vec;

/// For the child process: the lock, and how its last readers come.
const LOCK: &str = "LATCHWORK_TEST_MANY_READERS";

/// The locks that count readers in a word. (Each reader of `mcs-rw` has 64 bytes, so memory ends first.)
const COUNTING: [&str; 7] = ["pf-t", "pf-q", "shfl-rw", "rwsem", "glibc-rw-model", "cohort-rw", "percpu"];

fn words<R>(lock: &R) -> Vec<&AtomicU32> {
    let first = (&raw const *lock).cast::<AtomicU32>();
    // SAFETY: these locks consist of words that are changed atomically, or not at all by one thread; padding is not written to.
    (0..size_of::<R>() / 4).map(|at| unsafe { &*first.add(at) }).collect()
}

/// One reader comes and stays, and then counts for all that the lock can count.
fn exhaust<R: RawRwLock<Machine = Native>>(attempt: bool) {
    let lock = R::new_in();
    let values = |lock: &R| -> Vec<u32> { words(lock).iter().map(|word| word.load(Relaxed)).collect() };
    // What the first acquisition sets for good is set now.
    // SAFETY: the token is from the acquisition.
    unsafe { lock.unlock_read(lock.read()) };
    let before = values(&lock);
    _ = lock.read();
    let changes = values(&lock).into_iter().zip(before).map(|(now, then)| now.wrapping_sub(then));
    let (at, one) = changes.enumerate().find(|(_, change)| *change > 0 && *change < 16).expect("it counts");
    words(&lock)[at].fetch_add((MOST_READERS - 3) * one, Relaxed);
    std::println!("so far so good");
    for _ in 0..8 {
        _ = if attempt { lock.try_read() } else { Some(lock.read()) };
    }
}

struct Exhaust(String);

impl Visitor<Native> for Exhaust {
    fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
        for (attempt, what) in [(false, "read"), (true, "try")] {
            if self.0 == format!("{} {what}", R::INFO.name) {
                exhaust::<R>(attempt);
            }
        }
    }
}

#[test]
fn too_many_readers_end_the_process() {
    if let Ok(lock) = std::env::var(LOCK) {
        // Locks that count for each processor count for one.
        // SAFETY: the set is initialised by zeroes, and the size is its own.
        unsafe {
            let mut cpus: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
            libc::sched_setaffinity(0, size_of_val(&cpus), &cpus);
        }
        return visit(&mut Exhaust(lock));
    }
    for lock in COUNTING {
        for what in ["read", "try"] {
            let test = "locks::rwlock::tests::many::too_many_readers_end_the_process";
            let (succeeded, text) = in_a_process(test, LOCK, &format!("{lock} {what}"));
            assert!(text.contains("so far so good"), "{lock}: {text}");
            assert!(!succeeded && text.contains("would wrap around"), "{lock}: {text}");
        }
    }
}

/// A count that other threads change between one load and the next.
struct Script {
    /// What the loads find; the last one is for all further loads.
    values: Vec<u32>,
    loads: AtomicU32,
    /// The thread is suspended before this load.
    suspended: Option<u32>,
}

impl Word<u32> for Script {
    fn new(_: u32) -> Self {
        unreachable!()
    }
    fn load(&self, _: Ordering) -> u32 {
        let load = self.loads.fetch_add(1, Relaxed);
        if Some(load) == self.suspended {
            thread::sleep(Duration::from_millis(300));
        }
        self.values[(load as usize).min(self.values.len() - 1)]
    }
    fn store(&self, _: u32, _: Ordering) {
        unreachable!()
    }
    fn swap(&self, _: u32, _: Ordering) -> u32 {
        unreachable!()
    }
    fn compare_exchange(&self, _: u32, _: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        unreachable!()
    }
}

/// Readers depart and others arrive while a thread looks how many are inside. The look must not end the process.
#[test]
fn a_look_beside_readers_that_come_and_go() {
    const BEFORE: u32 = MOST_READERS;
    const LATER: u32 = BEFORE + MOST_READERS;
    for reader in [1, 4] {
        let look = |arrived: &[u32], departed: &[u32], suspended| {
            let [arrived, departed] = [arrived, departed].map(|values| Script {
                values: values.iter().map(|value| value.wrapping_mul(reader)).collect(),
                loads: AtomicU32::new(0),
                suspended,
            });
            check_difference::<Native, _>(BEFORE.wrapping_mul(reader), &arrived, &departed, reader);
        };
        // The readers that were inside have departed, and one that arrived later.
        look(&[BEFORE + 3], &[BEFORE + 2], None);
        // The thread is suspended in its first look, between the two counts.
        look(&[LATER], &[BEFORE, LATER - 1], None);
        // In its second look: the difference is that of other moments.
        look(&[LATER], &[BEFORE, BEFORE, LATER - 1], None);
        // In its second look, until the count of departures comes back to what it was.
        look(&[LATER], &[BEFORE, BEFORE, BEFORE, LATER - 1], Some(2));
    }
}
