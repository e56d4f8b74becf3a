//! Reclamation: what readers see is never reclaimed, and everything that is retired is, once.
//!
//! In the manner of the kernel's rcutorture: threads read, and stay inside for a while; replace what others
//! read, and retire it or wait for a grace period themselves; flood the domain with garbage; and exit and are
//! replaced. Objects come from a pool and go back to it, so that a reader that sees one which was
//! reclaimed sees that, instead of crashing: an object says which of its lives it is in, and whether that is
//! over.

use crate::jitter::Jitter;
use crate::priorities::under_priorities;
use crate::run::{Bounds, Outcome, Subject, run};
use crate::scenario::Scenario;
use crate::worker::{Count, Crew, Worker};
use latchwork::machine::{Machine, Native, Word};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{GracePeriod, Guard, Header, Limit, Reader, Reclaim, Retire, SLOTS};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

/// What is shared.
#[repr(C)]
struct Object {
    header: Header,
    /// Odd while it is alive; grows by one when it is made, and when it is reclaimed.
    life: AtomicU64,
    pool: *const Pool,
}

// SAFETY: the words are shared, the pool outlives its objects.
unsafe impl Send for Object {}
// SAFETY: the words are shared, and the pool outlives its objects.
unsafe impl Sync for Object {}

// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {
    unsafe fn reclaim(this: *mut Self) {
        // SAFETY: objects are never freed before their pool is.
        let (object, pool) = unsafe { (&*this, &*(*this).pool) };
        if object.life.fetch_add(1, AcqRel).is_multiple_of(2) {
            pool.reclaimed_twice.fetch_add(1, Relaxed);
        }
        pool.reclaimed.fetch_add(1, Relaxed);
        pool.free.lock().unwrap().push(this.expose_provenance());
    }
}

/// All objects, by address.
#[derive(Default)]
struct Pool {
    free: Mutex<Vec<usize>>,
    all: Mutex<Vec<usize>>,
    made: AtomicU64,
    reclaimed: AtomicU64,
    reclaimed_twice: AtomicU64,
}

impl Pool {
    /// An object that is alive.
    fn make<D: Reclaim>(&self) -> *mut Object {
        self.made.fetch_add(1, Relaxed);
        let free = self.free.lock().unwrap().pop();
        let object: *mut Object = free.map(std::ptr::with_exposed_provenance_mut).unwrap_or_else(|| {
            let new = Object { header: Header::new(), life: AtomicU64::new(0), pool: self };
            let new = Box::into_raw(Box::new(new));
            self.all.lock().unwrap().push(new.expose_provenance());
            new
        });
        // SAFETY: nobody uses the header of an object that is in no list; a late reader looks at its life.
        unsafe {
            (&raw mut (*object).header).write(Header::new());
            D::note_new(&mut *object);
            (*object).life.fetch_add(1, AcqRel);
        }
        object
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for object in self.all.lock().unwrap().drain(..) {
            let object: *mut Object = std::ptr::with_exposed_provenance_mut(object);
            // SAFETY: made by a box, and used by nobody any more.
            drop(unsafe { Box::from_raw(object) });
        }
    }
}

/// Waits for a grace period, where there are any.
type Synchronize<D> = fn(&D);

/// The subject.
pub struct Readers<D: Reclaim> {
    /// Dropped before the pool.
    domain: D,
    roots: [<D::Machine as Machine>::Ptr<Object>; SLOTS],
    pool: Arc<Pool>,
    synchronize: Option<Synchronize<D>>,
}

/// Objects that a flood retires.
const FLOOD: u64 = 300;

/// How often a reader that stays inside lets others run.
const STAY: usize = 50;

impl<D: Reclaim> Readers<D> {
    fn new(synchronize: Option<Synchronize<D>>) -> Self {
        let (domain, pool) = (D::new_in(), Arc::<Pool>::default());
        domain.set_limit(Limit { objects: 2000, bytes: u64::MAX });
        let roots = std::array::from_fn(|_| Word::new(pool.make::<D>()));
        Readers { domain, roots, pool, synchronize }
    }

    /// Some sections, nested or not.
    fn read(&self, worker: &mut Worker) -> Result<(), String> {
        let mut reader = self.domain.reader();
        for _ in 0..1 + worker.random.below(4) {
            let outer = reader.enter();
            let seen: [_; SLOTS] = std::array::from_fn(|slot| look(&outer, slot, &self.roots[slot]));
            if worker.random.once_in(4) {
                let inner = reader.enter();
                let slot = worker.random.below(SLOTS as u64) as usize;
                let nested = look(&inner, slot, &self.roots[SLOTS - 1 - slot]);
                worker.rest();
                check(nested)?;
            } else {
                worker.rest();
            }
            seen.into_iter().try_for_each(check)?;
            drop(outer);
            worker.count(Count::Reads);
            reader.quiescent();
        }
        Ok(())
    }

    /// A reader that retires what it reads, and stays inside until the others have had the time to reclaim
    /// it, had they been allowed to; half of the time it asks for that itself.
    fn stay(&self, worker: &mut Worker) -> Result<(), String> {
        let mut reader = self.domain.reader();
        let guard = reader.enter();
        let slot = SLOTS - 1; // the last store of a section is the one that nothing follows
        let seen = look(&guard, slot, &self.roots[slot]);
        let new = self.pool.make::<D>();
        if self.roots[slot].compare_exchange(seen.0, new, AcqRel, Relaxed).is_ok() {
            // SAFETY: removed here, by nobody else; protected.
            unsafe { self.domain.retire(seen.0) };
        } else {
            // SAFETY: no other thread has ever seen it.
            unsafe { self.domain.retire(new) };
        }
        let asks = worker.random.once_in(2);
        for _ in 0..STAY {
            if asks {
                self.domain.collect();
            }
            std::thread::yield_now();
            worker.rest();
            check(seen)?;
            if worker.crew().is_over() {
                break;
            }
        }
        drop(guard);
        worker.count(Count::Reads);
        reader.quiescent();
        Ok(())
    }

    /// Removes what is at one of the roots.
    fn remove(&self, worker: &mut Worker) -> *mut Object {
        worker.count(Count::Writes);
        self.roots[worker.random.below(SLOTS as u64) as usize].swap(self.pool.make::<D>(), AcqRel)
    }
}

/// Protects an object, and notes which life it is in.
fn look<G: Guard>(guard: &G, slot: usize, root: &<G::Machine as Machine>::Ptr<Object>) -> (*mut Object, u64) {
    let object = guard.protect(slot, root);
    // SAFETY: objects are never freed before the pool is.
    (object, unsafe { (*object).life.load(Acquire) })
}

fn check((object, life): (*mut Object, u64)) -> Result<(), String> {
    // SAFETY: objects are never freed before the pool is, even after they are reclaimed.
    let now = unsafe { (*object).life.load(Acquire) };
    if life.is_multiple_of(2) || now != life {
        return Err(format!("a reader saw a reclaimed object: life {life}, then {now}"));
    }
    Ok(())
}

impl<D: Reclaim> Subject for Readers<D> {
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
        match worker.random.below(100) {
            0..59 => self.read(worker)?,
            59 => self.stay(worker)?,
            60..90 => {
                let object = self.remove(worker);
                // SAFETY: this thread alone removed it.
                unsafe { self.domain.retire(object) };
            }
            90..92 => {
                // Inside of a section, where a thread must not wait.
                let mut reader = self.domain.reader();
                let guard = reader.enter();
                // SAFETY: this thread alone removed it.
                unsafe { self.domain.retire(self.remove(worker)) };
                drop(guard);
                reader.quiescent();
            }
            92..94 => {
                for _ in 0..FLOOD {
                    // SAFETY: no other thread has ever seen it.
                    unsafe { self.domain.retire(self.pool.make::<D>()) };
                }
            }
            94..97 => self.domain.collect(),
            97..99 => {
                let Some(synchronize) = self.synchronize else { return Ok(()) };
                let object = self.remove(worker);
                synchronize(&self.domain);
                // SAFETY: a grace period has passed since it was removed.
                unsafe { Object::reclaim(object) };
            }
            _ => self.domain.barrier(),
        }
        Ok(())
    }

    fn balance(&self, _: &Crew) -> Result<(), String> {
        let pool = &self.pool;
        let twice = pool.reclaimed_twice.load(Relaxed);
        if twice != 0 {
            return Err(format!("{twice} objects were reclaimed twice"));
        }
        self.domain.barrier();
        let left = pool.made.load(Relaxed) - SLOTS as u64 - pool.reclaimed.load(Relaxed);
        let garbage = self.domain.garbage();
        if left != 0 || garbage.objects != 0 {
            return Err(format!(
                "after every thread has left, {left} objects are not reclaimed ({garbage:?})"
            ));
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        vec![format!("{:?}", self.domain.garbage())]
    }

    fn works_in_child(&self) -> bool {
        let (domain, pool) = (D::new_in(), Pool::default());
        // SAFETY: nobody else has it.
        unsafe { domain.retire(pool.make::<D>()) };
        domain.barrier();
        pool.reclaimed.load(Relaxed) == 1
    }
}

/// Readers of a strategy with grace periods.
pub(crate) fn sections<D: GracePeriod>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    run(Readers::<D>::new(Some(D::synchronize)), bounds, cancelled)
}

/// Readers of a strategy without.
pub(crate) fn pointers<D: Reclaim>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    run(Readers::<D>::new(None), bounds, cancelled)
}

/// [`sections`] by threads of three priorities.
fn sections_under_priorities<D: GracePeriod>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    under_priorities(Readers::<D>::new(Some(D::synchronize)), bounds, cancelled)
}

/// [`pointers`] by threads of three priorities.
fn pointers_under_priorities<D: Reclaim>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    under_priorities(Readers::<D>::new(None), bounds, cancelled)
}

/// What is done to each strategy, by its name.
pub fn strategies() -> Vec<(&'static str, Vec<Scenario>)> {
    fn periods<D: GracePeriod, J: GracePeriod>() -> Vec<Scenario> {
        vec![
            Scenario::new("reclaim", "native", sections::<D>),
            Scenario::new("priorities", "native", sections_under_priorities::<D>),
            Scenario::new("reclaim", "jitter", sections::<J>),
            Scenario::new("priorities", "jitter", sections_under_priorities::<J>),
        ]
    }
    fn without<D: Reclaim, J: Reclaim>() -> Vec<Scenario> {
        vec![
            Scenario::new("reclaim", "native", pointers::<D>),
            Scenario::new("priorities", "native", pointers_under_priorities::<D>),
            Scenario::new("reclaim", "jitter", pointers::<J>),
            Scenario::new("priorities", "jitter", pointers_under_priorities::<J>),
        ]
    }
    vec![
        ("rcu", periods::<RcuDomain<Native>, RcuDomain<Jitter>>()),
        ("qsbr", periods::<QsbrDomain<Native>, QsbrDomain<Jitter>>()),
        ("epoch", periods::<EpochDomain<Native>, EpochDomain<Jitter>>()),
        ("counted", without::<CountedDomain<Native>, CountedDomain<Jitter>>()),
        ("hazard", without::<HazardDomain<Native>, HazardDomain<Jitter>>()),
        // With one era for each number of birth, so that sections raise their intervals all the time.
        ("interval", without::<IntervalDomain<Native>, IntervalDomain<Jitter, 0>>()),
    ]
}

/// What is done to the strategy `name`; nothing if there is none.
pub fn of(name: &str) -> Vec<Scenario> {
    strategies()
        .into_iter()
        .find(|(known, _)| *known == name)
        .map_or_else(Vec::new, |(_, scenarios)| scenarios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_of_the_library_is_tortured() {
        for info in latchwork::reclaim::STRATEGIES {
            assert_eq!(of(info.name).len(), 4, "{}", info.name);
        }
        assert_eq!(strategies().len(), latchwork::reclaim::STRATEGIES.len());
        assert!(of("rcv").is_empty());
    }
}
