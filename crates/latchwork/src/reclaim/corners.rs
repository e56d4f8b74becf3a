//! Tests of the corners: readers that outlive their thread's record, destructors that panic, readers that
//! stay in their section.

use super::counted::CountedDomain;
use super::epoch::EpochDomain;
use super::hazard::HazardDomain;
use super::qsbr::QsbrDomain;
use super::rcu::RcuDomain;
use super::*;
use crate::machine::{Native, record};
use core::sync::atomic::Ordering::*;
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::vec::Vec;

/// More threads than a group of records has entries.
const MANY: usize = 40;

/// What a key's destructor is to do when the thread exits.
struct AtExit {
    key: libc::pthread_key_t,
    /// How often the destructor has been called.
    calls: u32,
    body: Box<dyn FnOnce()>,
}

/// Runs `body` in the destructor of a `pthread_key`, in the second round of destructors: after the thread has given its
/// record back.
fn at_exit(body: impl FnOnce() + 'static) {
    extern "C" fn run(value: *mut libc::c_void) {
        // SAFETY: the value that was set for this thread.
        let mut this = unsafe { Box::from_raw(value.cast::<AtExit>()) };
        this.calls += 1;
        if this.calls == 2 {
            return (this.body)();
        }
        // SAFETY: the key exists, and `run` is given what it expects.
        unsafe { libc::pthread_setspecific(this.key, Box::into_raw(this).cast()) };
    }
    let mut key = 0;
    // SAFETY: `key` is valid for writes, and `run` is given what it expects.
    unsafe {
        assert_eq!(libc::pthread_key_create(&mut key, Some(run)), 0);
        let this = AtExit { key, calls: 0, body: Box::new(body) };
        assert_eq!(libc::pthread_setspecific(key, Box::into_raw(Box::new(this)).cast()), 0);
    }
}

/// The records that many threads have, all at once.
fn records_of_many() -> Vec<usize> {
    let all_there = &Barrier::new(MANY);
    std::thread::scope(|scope| {
        let one = || {
            let record = record::own::<Native>().as_ptr().addr();
            all_there.wait();
            record
        };
        let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A reader that a thread still has when it gives its record back keeps that record: no other thread may get it,
/// or both would count their sections in the same word.
fn a_kept_reader_keeps_its_record<D: Reclaim<Machine = Native>>() {
    let domain: &'static D = Box::leak(Box::new(D::new_in()));
    let [inside, leave]: [&'static Barrier; 2] = [(); 2].map(|()| &*Box::leak(Box::new(Barrier::new(2))));
    let record: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let thread = std::thread::spawn(move || {
        let mut reader = domain.reader();
        record.store(record::own::<Native>().as_ptr().addr(), Relaxed);
        at_exit(move || {
            inside.wait();
            leave.wait();
            drop(reader.enter());
            reader.offline(|| {
                inside.wait();
                leave.wait();
            });
            drop(reader.enter());
        });
    });
    for moment in ["while it is kept", "while it is offline"] {
        inside.wait();
        assert!(!records_of_many().contains(&record.load(Relaxed)), "{} {moment}", D::INFO.name);
        leave.wait();
    }
    thread.join().unwrap();
}

#[test]
fn kept_readers_keep_their_record() {
    a_kept_reader_keeps_its_record::<RcuDomain<Native>>();
    a_kept_reader_keeps_its_record::<EpochDomain<Native>>();
    a_kept_reader_keeps_its_record::<QsbrDomain<Native>>();
    a_kept_reader_keeps_its_record::<HazardDomain<Native>>();
    a_kept_reader_keeps_its_record::<HazardDomain<Native, true>>();
}

/// Destructors that run after their thread has given its record back read, retire, and defer: what they retire is reclaimed
/// by the other threads, and what they read is protected.
fn late_destructors_retire<D: Reclaim<Machine = Native>>() {
    const OBJECTS: usize = 20;
    let domain: &'static D = Box::leak(Box::new(D::new_in()));
    let dropped: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let make = move || Box::into_raw(Box::new(Bomb { header: Header::new(), armed: false, dropped }));
    let root: &'static AtomicPtr<Bomb> = Box::leak(Box::new(AtomicPtr::new(make())));
    for round in 0..3 {
        let thread = std::thread::spawn(move || {
            at_exit(move || {
                for number in 0..OBJECTS {
                    let reader = domain.reader();
                    let guard = reader.enter();
                    let before = round * OBJECTS + number; // objects that were retired
                    let seen = guard.protect(0, root);
                    // SAFETY: this exchange has removed the object.
                    unsafe { domain.retire(root.swap(make(), AcqRel)) };
                    // SAFETY: the guard protects it.
                    assert!(!unsafe { (*seen).armed } && dropped.load(Relaxed) <= before);
                }
            });
            // The thread has a record before it exits.
            drop(domain.reader().enter());
        });
        thread.join().unwrap();
    }
    domain.barrier();
    assert_eq!(dropped.load(Relaxed), 3 * OBJECTS, "{}", D::INFO.name);
    assert_eq!(domain.garbage(), Garbage::default(), "{}", D::INFO.name);
}

#[test]
fn destructors_of_exiting_threads_retire() {
    late_destructors_retire::<RcuDomain<Native>>();
    late_destructors_retire::<EpochDomain<Native>>();
    late_destructors_retire::<QsbrDomain<Native>>();
    late_destructors_retire::<HazardDomain<Native>>();
    late_destructors_retire::<CountedDomain<Native>>();
}

/// To wait for a section of one's own panics, also in a destructor that runs after others: of a section that the thread
/// began before it exits, or in an earlier destructor. The sections stay open.
fn late_destructors_wait_for_no_section_of_their_own<D: GracePeriod<Machine = Native>>() {
    for in_destructor in [false, true] {
        let domain: &'static D = Box::leak(Box::new(D::new_in()));
        let (send, receive) = std::sync::mpsc::channel();
        let enter = || {
            let reader: &'static _ = Box::leak(Box::new(domain.reader()));
            core::mem::forget(reader.enter());
        };
        std::thread::spawn(move || {
            drop(domain.reader().enter()); // so that the thread has a record before it exits
            let wait = move || {
                let waits = catch_unwind(AssertUnwindSafe(|| domain.synchronize()));
                send.send(waits.is_err()).unwrap();
            };
            if in_destructor {
                at_exit(move || {
                    enter();
                    at_exit(wait);
                });
            } else {
                enter();
                at_exit(wait);
            }
        });
        let panicked = receive.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(panicked, Ok(true), "{}, {in_destructor}", D::INFO.name);
    }
}

#[test]
fn destructors_of_exiting_threads_do_not_wait_for_themselves() {
    const TEST: &str = "reclaim::corners::destructors_of_exiting_threads_do_not_wait_for_themselves";
    crate::machine::alone::alone(TEST, || {
        late_destructors_wait_for_no_section_of_their_own::<RcuDomain<Native>>();
        late_destructors_wait_for_no_section_of_their_own::<EpochDomain<Native>>();
        late_destructors_wait_for_no_section_of_their_own::<QsbrDomain<Native>>();
    });
}

/// A destructor that takes long holds up the thread that reclaims, and those that wait for all garbage. Other threads read,
/// retire beyond the limit, and wait for grace periods meanwhile.
#[test]
fn a_long_destructor_holds_up_no_other_thread() {
    static DOMAIN: RcuDomain<Native> = RcuDomain::new();
    let dropped: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let [inside, leave]: [&'static Barrier; 2] = [(); 2].map(|()| &*Box::leak(Box::new(Barrier::new(2))));
    DOMAIN.set_limit(Limit { objects: 100, bytes: u64::MAX });
    DOMAIN.set_at_limit(AtLimit::Wait { nanos: 1_000_000 });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            DOMAIN.defer(|| {
                inside.wait();
                leave.wait();
            });
            DOMAIN.barrier();
        });
        inside.wait();
        for _ in 0..2000 {
            let _guard = DOMAIN.enter();
            let bomb = Bomb { header: Header::new(), armed: false, dropped };
            // SAFETY: no other thread has it.
            unsafe { DOMAIN.retire(Box::into_raw(Box::new(bomb))) };
        }
        (0..3).for_each(|_| DOMAIN.synchronize());
        DOMAIN.throttle();
        DOMAIN.collect();
        leave.wait();
    });
    DOMAIN.barrier();
    assert_eq!(dropped.load(Relaxed), 2000);
}

/// An object whose destructor panics if it is told to.
#[repr(C)]
struct Bomb {
    header: Header,
    armed: bool,
    dropped: &'static AtomicUsize,
}

// SAFETY: `repr(C)`, the header first; made by boxes.
unsafe impl Retire for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
        assert!(!self.armed, "a destructor panics");
    }
}

/// Returns whether the destructor of a bomb, which need not be this one, has panicked.
fn retire_bomb(domain: &impl Reclaim<Machine = Native>, armed: bool, dropped: &'static AtomicUsize) -> bool {
    let bomb = Box::into_raw(Box::new(Bomb { header: Header::new(), armed, dropped }));
    // SAFETY: no other thread has it.
    catch_unwind(AssertUnwindSafe(|| unsafe { domain.retire(bomb) })).is_err()
}

/// A destructor that panics is the caller's panic; the object counts as reclaimed all the same, and the others are.
fn a_panic_leaves_the_count_right<D: Reclaim<Machine = Native>>() {
    let domain = D::new_in();
    let dropped: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    const OBJECTS: usize = 9;
    // The first ones are reclaimed at once.
    let mut panics = (0..OBJECTS).filter(|number| retire_bomb(&domain, number % 3 == 0, dropped)).count();
    while catch_unwind(AssertUnwindSafe(|| domain.barrier())).is_err() {
        panics += 1;
        assert!(panics <= OBJECTS, "{}: no end of panics", D::INFO.name);
    }
    assert_eq!((panics, dropped.load(Relaxed)), (OBJECTS / 3, OBJECTS), "{}", D::INFO.name);
    assert_eq!(domain.garbage(), Garbage::default(), "{}", D::INFO.name);
}

/// A domain that is dropped runs all destructors, although one panics.
fn a_panic_does_not_end_a_drop<D: Reclaim<Machine = Native>>() {
    let dropped: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let domain = D::new_in();
    let early = (0..5).filter(|number| retire_bomb(&domain, *number == 2, dropped)).count();
    let panics = early + usize::from(catch_unwind(AssertUnwindSafe(|| drop(domain))).is_err());
    assert_eq!(panics, 1, "{}", D::INFO.name);
    assert_eq!(dropped.load(Relaxed), 5, "{}", D::INFO.name);
}

#[test]
fn panicking_destructors_do_not_end_a_drop() {
    a_panic_does_not_end_a_drop::<RcuDomain<Native>>();
    a_panic_does_not_end_a_drop::<EpochDomain<Native>>();
    a_panic_does_not_end_a_drop::<HazardDomain<Native>>();
    a_panic_does_not_end_a_drop::<CountedDomain<Native>>();
    a_panic_does_not_end_a_drop::<crate::reclaim::interval::IntervalDomain<Native>>();
}

/// What a barrier in a section has not reclaimed when a destructor panics, the next one reclaims.
#[test]
fn a_panic_in_a_barrier_in_a_section_leaves_the_rest_to_the_next() {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C-unwind" fn reclaim(header: *mut Header) {
        // SAFETY: it was made by a box.
        drop(unsafe { Box::from_raw(header) });
        assert!(RUN.fetch_add(1, Relaxed) != 0, "the first one");
    }
    let domain = RcuDomain::<Native>::new();
    domain.backlog.never_soon();
    for _ in 0..5 {
        // SAFETY: no other thread has it.
        unsafe { domain.retire_ordered(Box::into_raw(Box::new(Header::new())), 24, reclaim) };
    }
    let section = domain.enter();
    assert!(catch_unwind(AssertUnwindSafe(|| domain.barrier_anywhere())).is_err());
    drop(section);
    domain.barrier();
    assert_eq!((RUN.load(Relaxed), domain.garbage().objects, domain.is_clean()), (5, 0, true));
}

#[test]
fn panicking_destructors_leave_the_count_right() {
    a_panic_leaves_the_count_right::<RcuDomain<Native>>();
    a_panic_leaves_the_count_right::<EpochDomain<Native>>();
    a_panic_leaves_the_count_right::<QsbrDomain<Native>>();
    a_panic_leaves_the_count_right::<HazardDomain<Native>>();
    a_panic_leaves_the_count_right::<CountedDomain<Native>>();
}

/// A reader stays in its section, and another thread waits for all reclamation: a thread that retires waits for a
/// while, goes on, and counts that. When the reader has left, everything is reclaimed, and the limit holds again.
fn retiring_goes_on_beyond_a_stuck_reader<F: domain::Flavour>() {
    const LIMIT: u64 = 100;
    let domain = &domain::Domain::<Native, F>::new_in();
    domain.set_limit(Limit { objects: LIMIT, bytes: u64::MAX });
    domain.set_at_limit(AtLimit::Wait { nanos: 1_000_000 });
    let dropped: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let retire = |count| {
        for _ in 0..count {
            let bomb = Bomb { header: Header::new(), armed: false, dropped };
            // SAFETY: no other thread has it.
            unsafe { domain.retire(Box::into_raw(Box::new(bomb))) };
        }
    };
    let (inside, leave) = (&Barrier::new(2), &Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = domain.reader();
            let guard = reader.enter();
            inside.wait();
            leave.wait();
            drop(guard);
        });
        inside.wait();
        retire(1);
        scope.spawn(|| domain.barrier());
        retire(20 * LIMIT);
        let garbage = domain.garbage();
        assert!(garbage.objects > 19 * LIMIT && garbage.overruns > 0, "{}: {garbage:?}", F::INFO.name);
        assert_eq!(dropped.load(Relaxed), 0, "{}", F::INFO.name);
        leave.wait();
    });
    // Another test's reader may be in the way: until it has left, too, no thread waits at the limit.
    domain.synchronize();
    domain.set_at_limit(AtLimit::Wait { nanos: u64::MAX });
    let before = domain.garbage().overruns;
    retire(20 * LIMIT);
    // A batch is 32 here: the largest power of two in half of the limit.
    assert!(domain.garbage().objects <= LIMIT + 32, "{}: {:?}", F::INFO.name, domain.garbage());
    // A second reader is waited for again.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = domain.reader();
            let guard = reader.enter();
            inside.wait();
            while domain.garbage().objects <= LIMIT {
                std::thread::yield_now();
            }
            drop(guard);
        });
        inside.wait();
        retire(20 * LIMIT);
    });
    domain.barrier();
    let after = domain.garbage();
    assert_eq!((after.objects, after.bytes, after.overruns), (0, 0, before), "{}", F::INFO.name);
    assert_eq!(dropped.load(Relaxed) as u64, 60 * LIMIT + 1, "{}", F::INFO.name);
}

#[test]
fn retiring_has_a_bounded_wait() {
    retiring_goes_on_beyond_a_stuck_reader::<rcu::General>();
    retiring_goes_on_beyond_a_stuck_reader::<epoch::Epoch>();
    retiring_goes_on_beyond_a_stuck_reader::<qsbr::Qsbr>();
}

/// Guards of one domain cover another of the type where readers are the process's, and only there.
#[test]
fn guards_cover_what_they_protect() {
    fn covered<D: Reclaim<Machine = Native>>() -> [bool; 2] {
        let (own, other) = (D::new_in(), D::new_in());
        let reader = own.reader();
        let guard = reader.enter();
        [own.covers(&guard), other.covers(&guard)]
    }
    assert_eq!(covered::<RcuDomain<Native>>(), [true, true]);
    assert_eq!(covered::<EpochDomain<Native>>(), [true, true]);
    assert_eq!(covered::<QsbrDomain<Native>>(), [true, true]);
    assert_eq!(covered::<HazardDomain<Native>>(), [true, true]);
    assert_eq!(covered::<CountedDomain<Native>>(), [true, false]);
}

/// What a guard of another domain protects, if it covers this one, stays; counted references of another domain do not
/// cover, and do not protect.
#[test]
fn a_covering_guard_protects_what_another_domain_retires() {
    fn check<D: Reclaim<Machine = Native>>() {
        let (domain, other) = (D::new_in(), D::new_in());
        let dropped: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
        let bomb = Box::into_raw(Box::new(Bomb { header: Header::new(), armed: false, dropped }));
        let root = AtomicPtr::new(bomb);
        let reader = other.reader();
        let guard = reader.enter();
        assert_eq!(guard.protect(0, &root), bomb);
        // SAFETY: no other thread has it, and the pointer is not followed after this.
        unsafe { domain.retire(root.swap(core::ptr::null_mut(), AcqRel)) };
        domain.collect();
        assert_eq!(dropped.load(Relaxed) == 0, domain.covers(&guard), "{}", D::INFO.name);
        drop(guard);
        drop(reader);
        domain.barrier();
        assert_eq!(dropped.load(Relaxed), 1, "{}", D::INFO.name);
    }
    check::<RcuDomain<Native>>();
    check::<EpochDomain<Native>>();
    check::<QsbrDomain<Native>>();
    check::<HazardDomain<Native>>();
    check::<CountedDomain<Native>>();
}

/// A guard of the caller's own keeps what a barrier waits for.
#[test]
fn a_barrier_and_hazard_pointers_of_the_callers_own() {
    #[repr(C)]
    struct Object(Header, std::sync::Arc<()>);
    // SAFETY: `repr(C)`, the header first.
    unsafe impl Retire for Object {}
    fn check<const FULL_FENCE: bool>(is_offline: bool) {
        let domain = HazardDomain::<Native, FULL_FENCE>::new_in();
        let (mut reader, dropped) = (domain.reader(), std::sync::Arc::new(()));
        let root = AtomicPtr::new(Box::into_raw(Box::new(Object(Header::new(), dropped.clone()))));
        let guard = reader.enter();
        guard.protect(0, &root);
        // SAFETY: removed by the exchange, and no other thread has it.
        unsafe { domain.retire(root.swap(core::ptr::null_mut(), Relaxed)) };
        let refused = catch_unwind(AssertUnwindSafe(|| domain.barrier()));
        let message = refused.expect_err("it would wait for itself");
        assert!(message.downcast_ref::<&str>().unwrap().contains("barrier in a section"));
        assert_eq!(std::sync::Arc::strong_count(&dropped), 2);
        drop(guard);
        if is_offline {
            reader.offline(|| domain.barrier());
        } else {
            let _reader = (!FULL_FENCE).then_some(reader); // else its slots count as long as it lives
            domain.barrier();
        }
        assert_eq!(std::sync::Arc::strong_count(&dropped), 1);
    }
    check::<false>(false);
    check::<true>(false);
    check::<true>(true);
}

/// The thread would wait for itself.
#[test]
fn a_domain_that_is_dropped_in_a_section_leaks_its_garbage() {
    let guard = rcu::global().enter();
    let dropped = std::sync::Arc::new(());
    let domain = RcuDomain::<Native>::new_in();
    let object = dropped.clone();
    domain.defer(move || drop(object));
    drop(domain);
    drop(guard);
    assert_eq!(std::sync::Arc::strong_count(&dropped), 2);
}
