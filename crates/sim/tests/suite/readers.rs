//! Reader-writer locks at moments that chance seldom finds: fair unlocks, upgradable reads, keys of policies, deadlines.

use latchwork::locks::mutex::shuffle::Policy;
use latchwork::locks::rwlock::rwsem::RawRwSem;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::locks::rwlock::{RawFair, RawRwLock, RawUpgrade};
use latchwork::machine::{Deadline, Machine};
use latchwork_sim::{Options, Profile, Sim, fail, now, run, suspend_in, work};
use std::cell::Cell;

const MICRO: u64 = 1000;
const MILLI: u64 = 1000 * MICRO;

/// Sleeps until the time `at`.
fn at(time: u64) {
    Sim::doze(time.saturating_sub(now()));
}

/// Runs `bodies` on the machine, each on a processor of its own.
fn simulate(machine: &str, bodies: Vec<Box<dyn FnOnce() + '_>>) {
    let options = Options { limit_ns: 1000 * MILLI, spread_ns: Some(0), ..Options::default() };
    run(&Profile::find(machine).expect("a machine"), &options, bodies).expect("all threads end");
}

/// A policy that gives each waiter the same key.
struct OneKey<const KEY: u32>;

impl<const KEY: u32> Policy for OneKey<KEY> {
    fn key<M: Machine>() -> u32 {
        KEY
    }
    fn rank<M: Machine>(_: u32, _: u32) -> usize {
        Self::RANKS
    }
}

/// A reader that enters from the queue lets readers behind it in, and no writer, whatever the writer's key.
#[test]
fn no_key_makes_a_writer_a_reader() {
    fn client<const KEY: u32>() {
        let lock = RawShflRw::<Sim, OneKey<KEY>>::new_in();
        let readers = Cell::new(0);
        let holder = || {
            lock.write();
            at(300 * MICRO);
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        };
        let reader = || {
            at(100 * MICRO);
            lock.read();
            readers.set(readers.get() + 1);
            at(now() + 300 * MICRO);
            readers.set(readers.get() - 1);
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(()) };
        };
        // It is woken with the others, and runs later: else it would be the head, and let the writer be the next head, before the
        // writer runs.
        let late = || {
            suspend_in(250 * MICRO, Some(100 * MICRO));
            reader();
        };
        let writer = || {
            at(200 * MICRO);
            lock.write();
            if readers.get() > 0 {
                fail("a writer beside a reader");
            }
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        };
        simulate("2x4", vec![Box::new(holder), Box::new(reader), Box::new(late), Box::new(writer)]);
    }
    client::<{ u32::MAX }>();
    client::<{ u32::MAX - 1 }>();
    client::<0>();
}

/// A writer that spins while the lock goes from one other writer to the next looks at its deadline.
#[test]
fn a_spinner_looks_at_its_deadline() {
    const LAST: u64 = 20 * MILLI;
    const DEADLINE: u64 = MILLI;
    for (section, outside) in [(100, 0), (300, 0), (300, 50), (1000, 0), (1000, 1000), (5000, 0)] {
        let (lock, end) = (RawRwSem::<Sim>::new_in(), Cell::new(0));
        let writes = || {
            while now() < LAST {
                lock.write();
                work(section);
                // SAFETY: acquired above.
                unsafe { lock.unlock_write(()) };
                work(outside);
            }
        };
        let tries = || {
            at(100 * MICRO);
            if lock.write_until(Deadline::after::<Sim>(DEADLINE - now())).is_some() {
                // SAFETY: acquired above.
                unsafe { lock.unlock_write(()) };
            }
            end.set(now());
        };
        let bodies =
            (0..5).map(|i| if i < 4 { Box::new(writes) as Box<dyn FnOnce()> } else { Box::new(tries) });
        simulate("2x4", bodies.collect());
        let end = end.get();
        assert!(end < DEADLINE + 100 * MICRO, "sections of {section} ns: {end} ns");
    }
}
