//! Tests of interval-based reclamation beside a reader that stays in its section.

use super::interval::IntervalDomain;
use super::typed::{Atomic, Owned};
use super::*;
use crate::machine::Native;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use std::boxed::Box;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::vec::Vec;

/// Each era has a number of birth of its own.
type Domain = IntervalDomain<Native, 0>;

/// Objects of a batch, with the smallest limit.
const BATCH: u64 = 16;
/// Objects that are linked.
const LIVE: u64 = 40;

/// Counts that it was dropped.
struct Counting(Arc<AtomicUsize>);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Held by one test at a time: a reader of another one would hold up more.
static ALONE: Mutex<()> = Mutex::new(());

fn small() -> Domain {
    let domain = Domain::new_in();
    domain.set_limit(Limit { objects: 0, bytes: 0 });
    domain
}

/// Runs `work` while a thread has read all the places in a section of `domain`.
fn beside_a_reader(
    domain: &Domain,
    places: &[Atomic<Counting, Domain>],
    dropped: &AtomicUsize,
    work: impl FnOnce(),
) {
    let (inside, leave) = (&Barrier::new(2), &Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = domain.reader();
            let guard = reader.enter();
            let seen: Vec<_> = places.iter().map(|place| place.load(&guard)).collect();
            let before = dropped.load(Relaxed);
            inside.wait();
            leave.wait();
            assert!(seen.iter().all(|seen| seen.as_ref().is_some()));
            assert!(dropped.load(Relaxed) >= before);
        });
        inside.wait();
        work();
        leave.wait();
    });
}

/// A reader holds what it has seen, and what was there with it; all that came later is reclaimed, in every domain.
#[test]
fn a_stalled_reader_holds_what_there_was() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (domain, other) = (&small(), &small());
    let dropped = Arc::new(AtomicUsize::new(0));
    let make = || Some(Owned::new(Counting(dropped.clone())));
    let places: Vec<_> = (0..LIVE).map(|_| Atomic::<_, Domain>::new_in(make())).collect();
    beside_a_reader(domain, &places, &dropped, || {
        for round in 0..100 {
            for place in &places {
                place.store(make(), if round % 2 == 0 { domain } else { other });
            }
            // What was linked when the reader came; what was made in the era in which it read; and what has come in since
            // the last look, for which a list waits until it has half as much as it keeps.
            let garbage = domain.garbage().objects + other.garbage().objects;
            assert!(garbage <= 4 * (2 * LIVE + 3 * BATCH), "{garbage} in round {round}");
        }
        domain.collect();
        other.collect();
        assert!(dropped.load(Relaxed) as u64 <= 99 * LIVE, "the reader's are reclaimed");
    });
    places.iter().for_each(|place| place.store(None, domain));
    domain.barrier();
    other.barrier();
    assert_eq!((domain.garbage().objects, other.garbage().objects), (0, 0));
    assert_eq!((dropped.load(Relaxed) as u64, Arc::strong_count(&dropped)), (101 * LIVE, 1));
}

/// What a comparing exchange links was made when it was linked: a section that has read nothing since does not keep it.
#[test]
fn what_an_exchange_links_has_a_birth() {
    assert!(forks::in_a_child(|| {
        let (domain, dropped) = (small(), Arc::new(AtomicUsize::new(0)));
        let make = || Some(Owned::new(Counting(dropped.clone())));
        let place = Atomic::<Counting, Domain>::new_in(make());
        let reader = domain.reader();
        let stalled = reader.enter();
        place.store(make(), &domain);
        domain.collect(); // which ends the era
        {
            let guard = reader.enter();
            let now = place.load(&guard);
            assert!(place.compare_exchange(now, make(), &domain, &guard).is_ok());
        }
        place.store(None, &domain);
        domain.collect();
        let reclaimed = dropped.load(Relaxed);
        drop(stalled);
        domain.barrier();
        (reclaimed, dropped.load(Relaxed)) == (1, 3)
    }));
}

/// An object whose birth was not noted.
#[repr(C)]
struct Unnoted {
    header: Header,
    counting: Counting,
}
// SAFETY: `repr(C)`, the header first; made by boxes.
unsafe impl Retire for Unnoted {}

/// It counts as older than every reader.
#[test]
fn objects_without_a_birth_wait_for_all_readers() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let domain = &small();
    let dropped = Arc::new(AtomicUsize::new(0));
    let retire = || {
        let counting = Counting(dropped.clone());
        // SAFETY: no other thread has it.
        unsafe { domain.retire(Box::into_raw(Box::new(Unnoted { header: Header::new(), counting }))) };
    };
    beside_a_reader(domain, &[], &dropped, || {
        (0..10 * BATCH).for_each(|_| retire());
        domain.collect();
        assert_eq!((dropped.load(Relaxed) as u64, domain.garbage().objects), (0, 10 * BATCH));
    });
    domain.barrier();
    assert_eq!(dropped.load(Relaxed) as u64, 10 * BATCH);
}
