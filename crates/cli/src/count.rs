//! Atomic read-modify-writes per acquisition and release, counted by the simulator.

use crate::failure::{Failure, Result};
use latchwork::mutex::RawMutex;
use latchwork::registry::{self, Kind, Visitor};
use latchwork::rwlock::RawRwLock;
use latchwork_sim::{Options, Placement, Profile, Sim, run, work};

/// The machine, and the threads of the contended count: two in each socket.
const MACHINE: &str = "8x24";
pub const CROWD: usize = 16;
/// Acquisitions of each thread that are counted, after as many that are not: a lock may need time to
/// find its ways.
const PAIRS: u64 = 100;

/// What was counted for one lock.
#[derive(Copy, Clone, Debug)]
pub struct Atomics {
    pub kind: Kind,
    pub name: &'static str,
    /// Of one thread that is alone (of a reader-writer lock: of a read, here and below).
    pub alone: f64,
    /// Of [`CROWD`] threads on as many processors of all sockets.
    pub contended: f64,
}

/// Counts for every lock of the registry.
pub fn all() -> Result<Vec<Atomics>> {
    struct Each<'a>(&'a Profile, Result<Vec<Atomics>>);
    impl Each<'_> {
        fn add(&mut self, kind: Kind, name: &'static str, run: impl Fn(usize, u64) -> Result<u64>) {
            let count = |threads| {
                let (warm, all) = (run(threads, PAIRS)?, run(threads, 2 * PAIRS)?);
                Ok(all.saturating_sub(warm) as f64 / (threads as u64 * PAIRS) as f64)
            };
            if let Ok(list) = &mut self.1 {
                match count(1).and_then(|alone| Ok((alone, count(CROWD)?))) {
                    Ok((alone, contended)) => list.push(Atomics { kind, name, alone, contended }),
                    Err(failure) => self.1 = Err(failure),
                }
            }
        }
    }
    impl Visitor<Sim> for Each<'_> {
        fn mutex<L: RawMutex<Machine = Sim>>(&mut self) {
            let profile = self.0;
            self.add(Kind::Mutex, L::INFO.name, |threads, pairs| {
                let lock = L::new_in();
                simulate(profile, threads, pairs, &|| {
                    let token = lock.lock();
                    work(50);
                    // SAFETY: the token is from the acquisition just before.
                    unsafe { lock.unlock(token) };
                })
            });
        }
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            let profile = self.0;
            self.add(Kind::RwLock, R::INFO.name, |threads, pairs| {
                let lock = R::new_in();
                simulate(profile, threads, pairs, &|| {
                    let token = lock.read();
                    work(50);
                    // SAFETY: the token is from the acquisition just before.
                    unsafe { lock.unlock_read(token) };
                })
            });
        }
    }
    let profile = Profile::find(MACHINE).map_err(|error| Failure::new(error.to_string()))?;
    let mut each = Each(&profile, Ok(Vec::new()));
    registry::visit(&mut each);
    each.1
}

/// Atomics of `threads` threads that do `pair` `pairs` times each.
fn simulate(profile: &Profile, threads: usize, pairs: u64, pair: &dyn Fn()) -> Result<u64> {
    let options = Options { placement: Placement::RoundRobin, ..Options::default() };
    let body = || {
        for _ in 0..pairs {
            pair();
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

    /// What the locks say of themselves is what is counted.
    #[test]
    fn locks_do_not_lie_about_their_atomics() {
        for counted in all().unwrap() {
            let entry = registry::find(counted.kind, counted.name).unwrap();
            assert_eq!(counted.alone, f64::from(entry.info.atomics), "{}", counted.name);
            assert!(counted.contended >= 0.5 || counted.kind == Kind::RwLock, "{}", counted.name);
        }
    }
}
