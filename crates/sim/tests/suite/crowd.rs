//! 16 readers that overlap and 16 writers on one processor. A lock that prefers readers, as its
//! [`PREFERS_READERS`](RawRwLock::PREFERS_READERS) says, may keep the writers out until the readers stop; in every other lock
//! each writer gets in before. When the readers stop, each writer gets in: none of them sleeps on. (BRAVO over a lock that
//! prefers readers lets those writers in that come while all readers are in the table.)
//!
//! `LATCHWORK_LOCK=name` runs one lock only.

use crate::broken::Prefers;
use latchwork::locks::rwlock::{RawRwLock, glibc_rw::RawGlibcRw};
use latchwork::machine::Machine;
use latchwork::registry::{Visitor, visit};
use latchwork_sim::{Error, Options, Profile, Sim, work};
use std::cell::Cell;

const READERS: usize = 16;
const WRITERS: usize = 16;
/// The readers stop after so many nanoseconds.
const STOP: u64 = 400_000_000;

/// How many writers got in while the readers came and went.
fn writers_between_readers<R: RawRwLock<Machine = Sim>>() -> Result<usize, Error> {
    let lock = R::new_in();
    let early = Cell::new(0);
    let reader = || {
        while latchwork_sim::now() < STOP {
            let token = lock.read();
            // Asleep inside: on one processor the readers overlap all the same.
            Sim::doze(1_000_000);
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(token) };
            work(1_000);
        }
    };
    let writer = || {
        // The readers are inside by then.
        Sim::doze(10_000_000);
        let token = lock.write();
        early.set(early.get() + usize::from(latchwork_sim::now() < STOP));
        work(1_000);
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(token) };
    };
    let bodies = (0..READERS + WRITERS)
        .map(|i| if i < READERS { Box::new(reader) as Box<dyn FnOnce()> } else { Box::new(writer) })
        .collect();
    // A writer that sleeps on is a deadlock, or has not finished at the limit.
    let options = Options { limit_ns: 20 * STOP, ..Options::default() };
    latchwork_sim::run(&Profile::find("1x1")?, &options, bodies)?;
    Ok(early.get())
}

#[test]
fn a_crowd_of_readers_keeps_no_writer_out_unless_the_lock_says_so() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            let name = R::INFO.name;
            if !crate::wanted(name) {
                return;
            }
            let early = writers_between_readers::<R>().unwrap_or_else(|error| panic!("{name}: {error}"));
            println!("{name}: {early} of {WRITERS} writers between readers");
            let promised = if R::PREFERS_READERS { 0 } else { WRITERS };
            assert!(early >= promised, "{name}: {early} of {WRITERS} writers between readers");
        }
    }
    visit(&mut Each);
}

/// Whether a writer gets in beside 31 threads that try to read over and over, each on a processor of its own.
fn writer_beside_attempts<R: RawRwLock<Machine = Sim>>() -> Result<bool, Error> {
    const THREADS: usize = 32;
    const LAST: u64 = 20_000_000;
    let lock = R::new_in();
    let (written, early) = (Cell::new(false), Cell::new(false));
    let tries = || {
        while !written.get() && latchwork_sim::now() < LAST {
            if let Some(token) = lock.try_read() {
                work(300);
                // SAFETY: acquired above.
                unsafe { lock.unlock_read(token) };
            }
        }
    };
    let writer = || {
        work(10_000);
        // Several times: BRAVO keeps attempts away from the lock below it until it has been written once.
        for _ in 0..4 {
            let token = lock.write();
            early.set(latchwork_sim::now() < LAST);
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(token) };
            work(10_000);
        }
        written.set(true);
    };
    let bodies = (0..THREADS)
        .map(|i| if i > 0 { Box::new(tries) as Box<dyn FnOnce()> } else { Box::new(writer) })
        .collect();
    let options = Options { limit_ns: 20 * LAST, ..Options::default() };
    latchwork_sim::run(&Profile::find("2x16")?, &options, bodies)?;
    Ok(early.get())
}

/// An attempt that fails must not keep the waiting writer out that made it fail.
#[test]
fn attempts_to_read_keep_no_writer_out() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            let name = R::INFO.name;
            if crate::wanted(name) && !R::PREFERS_READERS {
                let early = writer_beside_attempts::<R>().unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(early, "{name}: attempts to read have kept a writer out");
            }
        }
    }
    visit(&mut Each);
}

#[test]
fn the_lock_that_says_so_keeps_writers_out() {
    let early = writers_between_readers::<RawGlibcRw<Sim>>().expect("the writers get in afterwards");
    assert_eq!(early, 0);
}

/// A lock that prefers readers and does not say so.
#[test]
fn a_lock_that_does_not_say_so_is_caught() {
    let early = writers_between_readers::<Prefers<false, Sim>>().expect("the writers get in afterwards");
    assert!(early < WRITERS && !<Prefers<false, Sim> as RawRwLock>::PREFERS_READERS);
}
