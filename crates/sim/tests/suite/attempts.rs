//! An attempt beside a waiter, at every moment: one thread that tries to read, and one that tries to write, are each
//! suspended for a while at some point of the attempt; a third one queues and goes to sleep meanwhile.
//!
//! What an attempt does to the lock's hints must not take the third thread's wakeup away. (In `shfl-rw`, a reader had
//! once found the queue empty, and dropped the hint of a head that had just gone to sleep behind the writer. The writer
//! then took its bit back, and woke no thread.)

use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::machine::{Deadline, Machine};
use latchwork_sim::{Error, Options, Profile, Sim, never_suspend, run, suspend_in};

const MICRO: u64 = 1000;
const MILLI: u64 = 1000 * MICRO;

/// Nanoseconds between the points at which the reader and the writer are suspended: less than an atomic instruction
/// takes, and than the writer needs to look for readers.
const READER_STEP: usize = 4;
const WRITER_STEP: usize = 20;

/// Nanoseconds after which an attempt that is not suspended has ended.
const LONGEST: u64 = 300;

/// The reader is suspended after `reader` nanoseconds of its attempt, and the writer after `writer`.
fn client<R: RawRwLock<Machine = Sim>>(reader: u64, writer: u64) -> Result<(), Error> {
    let lock = R::new_in();
    let at = |time: u64| Sim::doze(time.saturating_sub(latchwork_sim::now()));
    let read = |token| {
        // SAFETY: the callers' acquisitions.
        unsafe { lock.unlock_read(token) };
    };
    let write = |token| {
        // SAFETY: the callers' acquisitions.
        unsafe { lock.unlock_write(token) };
    };
    let holds = || {
        let token = lock.write();
        at(2 * MILLI);
        write(token);
    };
    // Leaves the hints of a head that sleeps, in a queue that is empty again.
    let gives_up = || {
        at(MILLI);
        lock.write_until(Deadline::after::<Sim>(500 * MICRO)).into_iter().for_each(write);
    };
    // By now that head has waited for as long as any.
    let tries_read = || {
        at(20 * MILLI);
        suspend_in(reader, Some(400 * MICRO));
        let token = lock.try_read();
        never_suspend();
        token.into_iter().for_each(read);
    };
    let tries_write = || {
        at(20 * MILLI + 2 * MICRO);
        suspend_in(writer, Some(800 * MICRO));
        let token = lock.try_write();
        never_suspend();
        token.into_iter().for_each(write);
    };
    let waits = || {
        at(20 * MILLI + 5 * MICRO);
        write(lock.write());
    };
    let options = Options { limit_ns: 1000 * MILLI, spread_ns: Some(0), ..Options::default() };
    let bodies: Vec<Box<dyn FnOnce() + '_>> = vec![
        Box::new(holds),
        Box::new(gives_up),
        Box::new(tries_read),
        Box::new(tries_write),
        Box::new(waits),
    ];
    run(&Profile::find("2x4")?, &options, bodies).map(drop)
}

#[test]
fn attempts_take_nobodys_wakeup() {
    for reader in (0..LONGEST).step_by(READER_STEP) {
        for writer in (0..LONGEST).step_by(WRITER_STEP) {
            if let Err(error) = client::<RawShflRw<Sim>>(reader, writer) {
                panic!("suspended after {reader} and {writer} ns: {error}");
            }
        }
    }
}
