//! Reader-writer locks at moments that chance seldom finds: fair unlocks, upgradable reads, keys of policies, deadlines.

use latchwork::locks::mutex::shuffle::Policy;
use latchwork::locks::rwlock::rwsem::RawRwSem;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::locks::rwlock::{RawFair, RawRecursive, RawRwLock, RawUpgrade};
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

/// A reader unlocks fairly while a writer, the head of the queue, keeps newcomers out for a spin. The lock is left to the writer
/// then, also when the spin is over.
#[test]
fn the_end_of_a_spin_takes_no_fair_unlock_back() {
    for moment in (20 * MICRO..70 * MICRO).step_by(50) {
        let lock = RawShflRw::<Sim>::new_in();
        let awaited = Cell::new(false);
        let leaves = || {
            lock.read();
            work(moment.saturating_sub(now()));
            awaited.set(lock.is_awaited());
            // SAFETY: acquired above.
            unsafe { lock.unlock_read_fair(()) };
        };
        let stays = || {
            lock.read();
            at(400 * MICRO);
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(()) };
        };
        let writes = || {
            at(20 * MICRO);
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        };
        let comes = || {
            at(200 * MICRO);
            if lock.try_read().is_some() {
                // SAFETY: acquired above.
                unsafe { lock.unlock_read(()) };
                if awaited.get() {
                    fail("a newcomer has passed the head, to which the lock was left");
                }
            }
        };
        simulate("2x4", vec![Box::new(leaves), Box::new(stays), Box::new(writes), Box::new(comes)]);
    }
}

/// The lock is left to a writer, the head of the queue, which then meets a recursive reader and takes WRITER back: the lock stays
/// left to it.
#[test]
fn a_head_that_turns_back_keeps_what_was_left_to_it() {
    // The head has found no reader at 112,035 ns, and sets WRITER in the next nanosecond. It is suspended between the two.
    for moment in 111_800..112_300 {
        let lock = RawShflRw::<Sim>::new_in();
        let written = Cell::new(false);
        let leaves = || {
            lock.read();
            at(100 * MICRO);
            if !lock.is_awaited() {
                fail("the writer is not in the queue");
            }
            // SAFETY: acquired above.
            unsafe { lock.unlock_read_fair(()) };
        };
        let writes = || {
            at(20 * MICRO);
            suspend_in(moment - now(), Some(2 * MICRO));
            lock.write();
            written.set(true);
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        };
        let again = || {
            work(moment + MICRO);
            lock.read_recursive();
            at(300 * MICRO);
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(()) };
        };
        let comes = || {
            at(200 * MICRO);
            if lock.try_read().is_some() {
                // SAFETY: acquired above.
                unsafe { lock.unlock_read(()) };
                if !written.get() {
                    fail("a newcomer has passed the head, to which the lock was left");
                }
            }
        };
        simulate("2x4", vec![Box::new(leaves), Box::new(writes), Box::new(again), Box::new(comes)]);
    }
}

/// The head of the queue has been robbed, and is suspended just before it naps, or later. The holder unlocks fairly meanwhile. The
/// head then does not nap beside a free lock.
#[test]
fn a_fair_unlock_ends_a_nap_at_every_moment() {
    const ABSENCE: u64 = 10 * MICRO;
    /// The absence, a wakeup and a spin. The first nap is 62 microseconds long.
    const MOST: u64 = 30 * MICRO;
    // The head wakes up 5 microseconds after the first unlock, spins for 10, and naps.
    for moment in (119 * MICRO..125 * MICRO).step_by(20) {
        let lock = RawShflRw::<Sim>::new_in();
        let (left, got) = (Cell::new(0), Cell::new(0));
        let holder = || {
            lock.write();
            at(100 * MICRO);
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
            lock.write(); // before the head is awake
            work((moment + MICRO).saturating_sub(now()));
            left.set(now());
            // SAFETY: acquired above.
            unsafe { lock.unlock_write_fair(()) };
            if lock.try_write().is_some() {
                fail("the holder has passed the head, to which it had left the lock");
            }
        };
        let head = || {
            at(20 * MICRO);
            suspend_in(moment - now(), Some(ABSENCE));
            lock.write();
            got.set(now());
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        };
        simulate("2x4", vec![Box::new(holder), Box::new(head)]);
        let waited = got.get() - left.get();
        assert!(waited < MOST, "suspended at {moment} ns, the head got the lock after {waited} ns");
    }
}

/// A waiting upgradable reader keeps no plain reader out: it does not need them to leave. It is passed by other upgradable
/// readers for a turn only.
#[test]
fn a_waiting_upgradable_reader_keeps_no_reader_out() {
    const LEAVES: u64 = 20 * MILLI;
    const LAST: u64 = 40 * MILLI;
    let lock = RawShflRw::<Sim>::new_in();
    let (longest, got) = (Cell::new(0), Cell::new(0));
    let holder = || {
        lock.upgradable();
        at(LEAVES);
        // SAFETY: acquired above.
        unsafe { lock.unlock_upgradable(()) };
        while now() < LAST {
            lock.upgradable();
            work(50 * MICRO);
            // SAFETY: acquired above.
            unsafe { lock.unlock_upgradable(()) };
        }
    };
    let head = || {
        at(MILLI);
        lock.upgradable();
        got.set(now());
        // SAFETY: acquired above.
        unsafe { lock.unlock_upgradable(()) };
    };
    let reader = || {
        while now() < LAST {
            let asked = now();
            lock.read();
            longest.set(longest.get().max(now() - asked));
            at(now() + 100 * MICRO);
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(()) };
            work(MICRO);
        }
    };
    let readers = (0..3).map(|_| Box::new(reader) as Box<dyn FnOnce()>);
    let bodies = [Box::new(holder) as Box<dyn FnOnce()>, Box::new(head)].into_iter().chain(readers).collect();
    simulate("2x4", bodies);
    let (longest, late) = (longest.get(), got.get() - LEAVES);
    assert!(longest < 50 * MICRO, "a reader waited for {longest} ns");
    assert!(late < 2 * MILLI, "the waiting upgradable reader got in after {late} ns");
}
