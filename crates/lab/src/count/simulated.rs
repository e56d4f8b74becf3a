//! Atomic read-modify-writes per acquisition and release, and the bytes of queue nodes that waiters and
//! holders occupy, counted by the simulator.

use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::semaphore::Unit;
use latchwork::locks::seqlock::RawSeqLock;
use latchwork::machine::QNode;
use latchwork::registry::{self, Kind, Visitor};
use latchwork_console::failure::{Failure, Result};
use latchwork_sim::{Options, Placement, Profile, Sim, most_nodes, nodes, run, work};

use std::cell::Cell;

/// The machine, and the threads of the contended count: two in each socket.
pub const MACHINE: &str = "8x24";
pub const CROWD: usize = 16;
/// Acquisitions of each thread that are counted, after as many that are not: a lock may need time to
/// find its ways.
const PAIRS: u64 = 100;

/// What was counted for one lock.
#[derive(Copy, Clone, Debug)]
pub struct Counted {
    pub kind: Kind,
    pub name: &'static str,
    /// Of one thread that is alone (of a reader-writer lock: of a read, here and below).
    pub alone: f64,
    /// Of [`CROWD`] threads on as many processors of all sockets.
    pub contended: f64,
    /// Bytes of queue nodes of a thread that waits behind another one of its NUMA node (of a reader-writer
    /// lock: of a reader or writer, whichever has more).
    pub waiter_bytes: usize,
    /// The same of a thread that holds the lock and has not waited (of a reader-writer lock: of a reader).
    pub holder_bytes: usize,
}

/// Counts for every lock of the registry, and the semaphore.
pub fn all() -> Result<Vec<Counted>> {
    struct Each<'a>(&'a Profile, Result<Vec<Counted>>);
    impl Each<'_> {
        fn add(
            &mut self,
            (kind, name): (Kind, &'static str),
            ways: [Section<'_>; 2],
            counted: impl Fn(usize, u64) -> Result<u64>,
        ) {
            let Ok(list) = &mut self.1 else { return };
            let count = |threads| {
                let (warm, all) = (counted(threads, PAIRS)?, counted(threads, 2 * PAIRS)?);
                Ok(all.saturating_sub(warm) as f64 / (threads as u64 * PAIRS) as f64)
            };
            let counted = || {
                let (waiter_bytes, holder_bytes) = occupied(self.0, ways)?;
                let (alone, contended) = (count(1)?, count(CROWD)?);
                Ok(Counted { kind, name, alone, contended, waiter_bytes, holder_bytes })
            };
            match counted() {
                Ok(counted) => list.push(counted),
                Err(failure) => self.1 = Err(failure),
            }
        }
    }
    impl Visitor<Sim> for Each<'_> {
        fn mutex<L: RawMutex<Machine = Sim>>(&mut self) {
            let (profile, lock) = (self.0, L::new_in());
            self.add(
                (Kind::Mutex, L::INFO.name),
                [&|inside| exclusive(&lock, inside); 2],
                |threads, pairs| {
                    let lock = L::new_in();
                    simulate(profile, threads, pairs, &|inside| exclusive(&lock, inside))
                },
            );
        }
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            let (profile, lock) = (self.0, R::new_in());
            let ways: [Section<'_>; 2] = [&|inside| writing(&lock, inside), &|inside| reading(&lock, inside)];
            self.add((Kind::RwLock, R::INFO.name), ways, |threads, pairs| {
                let lock = R::new_in();
                simulate(profile, threads, pairs, &|inside| reading(&lock, inside))
            });
        }
        fn seqlock<L: RawMutex<Machine = Sim>>(&mut self) {
            let (profile, lock) = (self.0, RawSeqLock::<L>::new_in());
            let ways: [Section<'_>; 2] =
                [&|inside| changing(&lock, inside), &|inside| copying(&lock, inside)];
            self.add((Kind::SeqLock, RawSeqLock::<L>::INFO.name), ways, |threads, pairs| {
                let lock = RawSeqLock::<L>::new_in();
                simulate(profile, threads, pairs, &|inside| copying(&lock, inside))
            });
        }
    }
    let profile = Profile::find(MACHINE).map_err(|error| Failure::new(error.to_string()))?;
    let mut each = Each(&profile, Ok(Vec::new()));
    registry::visit(&mut each);
    each.mutex::<Unit<Sim>>();
    each.1
}

/// Acquires, calls what is given, and releases.
type Section<'a> = &'a dyn Fn(&dyn Fn());

fn exclusive<L: RawMutex>(lock: &L, inside: &dyn Fn()) {
    let token = lock.lock();
    inside();
    // SAFETY: the token is from the acquisition just before.
    unsafe { lock.unlock(token) };
}

fn reading<R: RawRwLock>(lock: &R, inside: &dyn Fn()) {
    let token = lock.read();
    inside();
    // SAFETY: the token is from the acquisition just before.
    unsafe { lock.unlock_read(token) };
}

fn writing<R: RawRwLock>(lock: &R, inside: &dyn Fn()) {
    let token = lock.write();
    inside();
    // SAFETY: the token is from the acquisition just before.
    unsafe { lock.unlock_write(token) };
}

/// A sequence lock's reader holds nothing while it is `inside`.
fn copying<L: RawMutex>(lock: &RawSeqLock<L>, inside: &dyn Fn()) {
    lock.read(&[], &mut [], || ());
    inside();
}

fn changing<L: RawMutex>(lock: &RawSeqLock<L>, inside: &dyn Fn()) {
    let mut writing = lock.write();
    inside();
    writing.store(&[], &[]);
}

/// When the waiters come, one after the other, in nanoseconds: each has had time to go to sleep, if it does so
/// after some looks, before the next one comes. The first may have a place that the lock itself has.
const ARRIVALS: u64 = 200_000;
const WAITERS: u64 = 3;

/// Bytes of a waiter behind the first way to take the lock, the most of both ways, and of a holder, by the second
/// way.
fn occupied(profile: &Profile, [first, second]: [Section<'_>; 2]) -> Result<(usize, usize)> {
    let holder = Cell::new(0);
    let waiter = Cell::new(0);
    let alone = || {
        for section in [first, second] {
            // What the lock keeps for later uses is its own.
            section(&|| ());
            let idle = nodes();
            section(&|| holder.set(nodes() - idle));
        }
        work(ARRIVALS / 2);
        first(&|| {
            for _ in 0..=WAITERS {
                let before = nodes();
                most_nodes();
                work(ARRIVALS);
                waiter.set(waiter.get().max(most_nodes() - before));
            }
        });
    };
    let waits = |arrival: u64, section: Section<'_>| {
        section(&|| ());
        work(ARRIVALS * arrival);
        section(&|| ());
    };
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = vec![Box::new(alone)];
    for arrival in 1..=WAITERS {
        let section = if arrival == 2 { second } else { first };
        bodies.push(Box::new(move || waits(arrival, section)));
    }
    let options = Options { placement: Placement::FirstFill, ..Options::default() };
    run(profile, &options, bodies).map_err(|error| Failure::new(error.to_string()))?;
    let bytes = |nodes: i64| usize::try_from(nodes).unwrap_or_default() * size_of::<QNode<Sim>>();
    Ok((bytes(waiter.get()), bytes(holder.get())))
}

/// Atomics of `threads` threads that run `section` `pairs` times each.
fn simulate(profile: &Profile, threads: usize, pairs: u64, section: Section<'_>) -> Result<u64> {
    let options = Options { placement: Placement::RoundRobin, ..Options::default() };
    let body = || {
        for _ in 0..pairs {
            section(&|| work(50));
            work(50);
        }
    };
    let bodies = (0..threads).map(|_| Box::new(body) as Box<dyn FnOnce()>).collect();
    let report = run(profile, &options, bodies).map_err(|error| Failure::new(error.to_string()))?;
    Ok(report.total.atomics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork::locks::mutex::Info;

    /// What the locks say of themselves is what is counted.
    #[test]
    fn locks_do_not_lie_about_their_atomics_and_bytes() {
        let mut lies = Vec::new();
        for counted in all().unwrap() {
            // What is not in the registry is the semaphore.
            let info = registry::find(counted.kind, counted.name).map(|entry| entry.info);
            let Info { atomics, waiter_bytes, holder_bytes, .. } = info.unwrap_or(Unit::<Sim>::INFO);
            assert_eq!(info.is_none(), counted.name == Unit::<Sim>::INFO.name, "{}", counted.name);
            let says = (f64::from(atomics), waiter_bytes, holder_bytes);
            let has = (counted.alone, counted.waiter_bytes, counted.holder_bytes);
            if says != has {
                lies.push(format!("{}: (atomics, waiter, holder) are {has:?}, not {says:?}", counted.name));
            }
            assert!(counted.contended >= 0.5 || counted.kind != Kind::Mutex, "{}", counted.name);
        }
        assert!(lies.is_empty(), "{}", lies.join("\n"));
    }
}
