//! More readers than a lock can count. A process that comes so far ends: a count that has wrapped around would let a writer in
//! beside readers.

use super::*;
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
