//! What holds for every strategy, on the native machine.

use super::counted::CountedDomain;
use super::epoch::EpochDomain;
use super::hazard::HazardDomain;
use super::interval::IntervalDomain;
use super::qsbr::QsbrDomain;
use super::rcu::RcuDomain;
use super::*;
use crate::machine::alone::alone;
use crate::machine::{Native, record};
use core::sync::atomic::Ordering::*;
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use std::boxed::Box;
use std::sync::Arc;

// As `docs/reclamation.md` says.
const _: () = assert!(size_of::<Header>() == 24);
const _: () = assert!(
    size_of::<crate::machine::Record<Native>>() == if cfg!(feature = "section-origins") { 256 } else { 128 }
);
const _: () = assert!(size_of::<RcuDomain<Native>>() <= 768 && size_of::<HazardDomain<Native>>() <= 768);

/// An object that says when it is reclaimed.
#[repr(C)]
struct Object {
    header: Header,
    value: AtomicUsize,
    reclaimed: Arc<AtomicUsize>,
}

/// What a reclaimed object contains.
const POISON: usize = 0xdead;

// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {}

impl Object {
    fn make(value: usize, reclaimed: &Arc<AtomicUsize>) -> *mut Self {
        let (value, reclaimed) = (AtomicUsize::new(value), reclaimed.clone());
        Box::into_raw(Box::new(Object { header: Header::new(), value, reclaimed }))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.value.store(POISON, Relaxed);
        self.reclaimed.fetch_add(1, Relaxed);
    }
}

/// Readers never see a reclaimed object, and each object is reclaimed once.
fn readers_are_safe<D: Reclaim<Machine = Native>>() {
    let domain = &D::new_in();
    let reclaimed = Arc::new(AtomicUsize::new(0));
    let root = &AtomicPtr::new(Object::make(0, &reclaimed));
    const UPDATES: usize = 20_000;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = domain.reader();
                let mut last = 0;
                while last < 2 * UPDATES {
                    let guard = reader.enter();
                    let object = guard.protect(0, root);
                    // SAFETY: protected; there is always one.
                    let value = unsafe { (*object).value.load(Relaxed) };
                    assert!(value != POISON, "{}: a reader saw a reclaimed object", D::INFO.name);
                    last = last.max(value);
                    drop(guard);
                    reader.quiescent();
                }
            });
        }
        let updaters = [0, 1].map(|_| {
            scope.spawn(|| {
                for value in 1..=UPDATES {
                    let old = root.swap(Object::make(value, &reclaimed), AcqRel);
                    // SAFETY: the exchange above, and no other, has removed it.
                    unsafe { domain.retire(old) };
                }
            })
        });
        updaters.into_iter().for_each(|updater| updater.join().unwrap());
        let old = root.swap(Object::make(2 * UPDATES, &reclaimed), AcqRel);
        // SAFETY: this exchange, and no other, has removed it.
        unsafe { domain.retire(old) };
    });
    domain.barrier();
    assert_eq!(reclaimed.load(Relaxed), 2 * UPDATES + 1, "{}", D::INFO.name);
    assert_eq!(domain.garbage(), Garbage::default());
    // SAFETY: the last object, which was not retired; the readers are gone.
    drop(unsafe { Box::from_raw(root.load(Acquire)) });
}

/// An object stays while it is protected, and is reclaimed after that.
fn protected_objects_stay<D: Reclaim<Machine = Native>>() {
    let domain = D::new_in();
    let reclaimed = Arc::new(AtomicUsize::new(0));
    let root = AtomicPtr::new(Object::make(1, &reclaimed));
    {
        let reader = domain.reader();
        let guard = reader.enter();
        let object = guard.protect(0, &root);
        // SAFETY: no other thread removes it.
        unsafe { domain.retire(root.swap(core::ptr::null_mut(), AcqRel)) };
        domain.collect();
        assert_eq!(reclaimed.load(Relaxed), 0, "{}", D::INFO.name);
        let garbage = domain.garbage();
        assert_eq!(garbage.overruns, 0);
        assert_eq!((garbage.objects, garbage.bytes), (1, size_of::<Object>().next_multiple_of(16) as u64));
        // SAFETY: protected.
        assert_eq!(unsafe { (*object).value.load(Relaxed) }, 1);
    }
    domain.barrier();
    assert_eq!(reclaimed.load(Relaxed), 1, "{}", D::INFO.name);
}

#[test]
fn rcu() {
    readers_are_safe::<RcuDomain<Native>>();
    protected_objects_stay::<RcuDomain<Native>>();
}

#[test]
fn qsbr() {
    readers_are_safe::<QsbrDomain<Native>>();
    protected_objects_stay::<QsbrDomain<Native>>();
}

#[test]
fn epoch() {
    readers_are_safe::<EpochDomain<Native>>();
    protected_objects_stay::<EpochDomain<Native>>();
}

#[test]
fn hazard() {
    readers_are_safe::<HazardDomain<Native>>();
    protected_objects_stay::<HazardDomain<Native>>();
}

/// A domain with a thread that stays in a section until it is told to leave.
fn with_a_reader_inside<D: Reclaim<Machine = Native>>(domain: &D, meanwhile: impl FnOnce(i32)) {
    let (inside, leave) = (&std::sync::Barrier::new(2), &std::sync::Barrier::new(2));
    let thread = &AtomicUsize::new(0);
    let reclaimed = &Arc::new(AtomicUsize::new(0));
    let root = &AtomicPtr::new(Object::make(1, reclaimed));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: no arguments, no memory.
            thread.store(unsafe { libc::gettid() } as usize, Relaxed);
            let reader = domain.reader();
            let guard = reader.enter();
            let object = guard.protect(0, root);
            inside.wait();
            leave.wait();
            // SAFETY: protected.
            assert_eq!(unsafe { (*object).value.load(Relaxed) }, 1);
        });
        inside.wait();
        // SAFETY: this exchange has removed it.
        unsafe { domain.retire(root.swap(core::ptr::null_mut(), AcqRel)) };
        meanwhile(thread.load(Relaxed) as i32);
        assert_eq!(reclaimed.load(Relaxed), 0);
        leave.wait();
    });
    domain.barrier();
    assert_eq!(reclaimed.load(Relaxed), 1, "{}", D::INFO.name);
}

fn retire_many(domain: &impl Reclaim<Machine = Native>, count: usize) {
    let reclaimed = Arc::new(AtomicUsize::new(0));
    for _ in 0..count {
        // SAFETY: no other thread has ever had it.
        unsafe { domain.retire(Object::make(1, &reclaimed)) };
    }
}

/// Whatever readers do, hazard pointers stay within their bound.
#[test]
fn hazard_pointers_bound_the_garbage() {
    let domain = &HazardDomain::<Native>::new_in();
    with_a_reader_inside(domain, |_| {
        const THREADS: usize = 4;
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..200 {
                        retire_many(domain, 100);
                        most.fetch_max(domain.garbage().objects as usize, Relaxed);
                    }
                });
            }
        });
        // Other tests read as well, with two guards at most.
        let bound = HazardDomain::<Native>::bound(THREADS as u64 + 1, 8 * 100);
        assert!((most.into_inner() as u64) <= bound, "more than {bound}");
    });
}

/// A reader that stays in its section holds up reclamation; a thread that retires too much waits, so memory stays bounded.
#[test]
fn rcu_pushes_back_and_names_who_is_in_the_way() {
    let domain = &RcuDomain::<Native>::new_in();
    const LIMIT: usize = 1000;
    domain.set_limit(Limit { objects: LIMIT as u64, bytes: u64::MAX });
    domain.set_at_limit(AtLimit::Wait { nanos: u64::MAX }); // the reader stays for as long as the test does
    let most = &AtomicUsize::new(0);
    let done = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        with_a_reader_inside(domain, |reader| {
            scope.spawn(|| {
                for _ in 0..100 {
                    retire_many(domain, 100);
                    most.fetch_max(domain.garbage().objects as usize, Relaxed);
                }
                done.store(1, Relaxed);
            });
            // Another test's reader may be in the way for a moment.
            while domain.stall().is_none_or(|stall| stall.thread != reader as u32) {
                std::thread::yield_now();
            }
            while domain.garbage().objects <= LIMIT as u64 {
                std::thread::yield_now();
            }
            assert_eq!(done.load(Relaxed), 0, "the retiring thread did not wait");
            assert!(domain.garbage().oldest_nanos > 0);
        });
    });
    assert_eq!(done.load(Relaxed), 1);
    domain.barrier();
    assert_eq!(domain.garbage(), Garbage::default());
    // The thread looks at the limit when a batch is full.
    let most = most.load(Relaxed);
    assert!(most <= LIMIT + 256, "{most} objects");
}

/// A thread that retires inside of a section does not wait there, but at its next quiescent state.
#[test]
fn who_retires_inside_is_held_up_outside() {
    fn check<F: domain::Flavour>() {
        let domain = domain::Domain::<Native, F>::new_in();
        domain.set_limit(Limit { objects: 100, bytes: u64::MAX });
        domain.set_at_limit(AtLimit::Wait { nanos: u64::MAX }); // other tests read, on a busy machine for seconds
        let mut reader = domain.reader();
        let guard = reader.enter();
        retire_many(&domain, 1000);
        assert!(domain.garbage().objects > 100, "{}", F::INFO.name);
        drop(guard);
        reader.quiescent();
        assert!(domain.garbage().objects <= 100, "{}", F::INFO.name);
        assert!(!domain.is_pressed(), "{}", F::INFO.name);
    }
    check::<rcu::General>();
    check::<qsbr::Qsbr>();
    check::<epoch::Epoch>();
}

#[test]
fn cookies_come_due() {
    fn check<F: domain::Flavour>() {
        let domain = &domain::Domain::<Native, F>::new_in();
        let cookie = domain.start_poll();
        while !domain.poll(cookie) {
            std::thread::yield_now(); // other tests read
        }
        let reader = domain.reader();
        let guard = reader.enter();
        let cookie = domain.start_poll();
        for _ in 0..100 {
            assert!(!domain.poll(cookie), "{}", F::INFO.name);
        }
        drop(guard);
        drop(reader);
        domain.synchronize_expedited();
        assert!(domain.poll(cookie), "{}", F::INFO.name);
    }
    check::<rcu::General>();
    check::<qsbr::Qsbr>();
    check::<epoch::Epoch>();
}

/// Sections that begin after `start_poll` are not in the way. In a process of its own, as readers of other tests would be.
#[test]
fn start_poll_begins_a_grace_period() {
    fn check<F: domain::Flavour>() {
        let domain = &domain::Domain::<Native, F>::new_in();
        let (inside, leave) = (&std::sync::Barrier::new(2), &std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let reader = domain.reader();
                let guard = reader.enter();
                inside.wait();
                leave.wait(); // `start_poll` finds this section
                drop(guard);
                drop(reader);
                let reader = domain.reader();
                let _guard = reader.enter();
                inside.wait();
                leave.wait(); // `poll` finds this one
            });
            inside.wait();
            let cookie = domain.start_poll();
            leave.wait();
            inside.wait();
            let is_over = domain.poll(cookie);
            leave.wait();
            assert!(is_over, "{}", F::INFO.name);
        });
    }
    alone("reclaim::tests::start_poll_begins_a_grace_period", || {
        check::<rcu::General>();
        check::<qsbr::Qsbr>();
        check::<epoch::Epoch>();
    });
}

/// A quiescent state counts for nothing while the thread has a second reader, which may have a guard.
#[test]
fn a_second_reader_of_the_thread_may_have_a_guard() {
    let domain = QsbrDomain::<Native>::new();
    let (first, mut second) = (domain.reader(), domain.reader());
    let _guard = first.enter();
    let cookie = domain.start_poll();
    second.quiescent();
    assert!(!domain.poll(cookie));
    drop(first);
    while !domain.poll(cookie) {
        second.quiescent();
        std::thread::yield_now(); // other tests read
    }
}

#[test]
fn misuse_panics() {
    fn panics(what: &str, misuse: impl FnOnce()) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse));
        let payload = result.expect_err(what);
        let text = payload.downcast_ref::<std::string::String>().map(|text| text.as_str());
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
        assert!(text.contains(what), "{text}");
    }
    let domain = RcuDomain::<Native>::new_in();
    let guard = domain.enter();
    panics("synchronize inside", || domain.synchronize());
    panics("barrier inside", || domain.barrier());
    drop(guard);
    let online = QsbrDomain::<Native>::new_in();
    let reader = online.reader();
    panics("synchronize inside", || online.synchronize());
    drop(reader);
    online.synchronize();
    let object = Object::make(1, &Arc::new(AtomicUsize::new(0)));
    let _guard = domain.enter(); // else it may be reclaimed at once
    // SAFETY: no other thread has it.
    unsafe { domain.retire(object) };
    // SAFETY: not: that is what is to be caught, before anything happens.
    #[cfg(debug_assertions)]
    panics("retired twice", || unsafe { domain.retire(object) });
}

/// The child of a fork has one thread: readers and leaders of the parent hold up nothing there.
#[test]
fn a_forked_child_reclaims() {
    let domain = &RcuDomain::<Native>::new_in();
    with_a_reader_inside(domain, |_| {
        domain.collect(); // opens a grace period, which the reader holds up
        assert!(domain.stall().is_some());
        // SAFETY: the child reclaims, which frees memory (the C library sees to its locks), and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(300) };
            domain.synchronize();
            domain.barrier();
            let left = domain.garbage().objects;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(left != 0)) };
        }
        let mut status = -1;
        // SAFETY: the child is ours and `status` valid.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        // Its record in the parent is not touched: the reader is still inside.
    });
}

/// What other threads have retired and left, whether they live or have exited, is reclaimed: by a thread that waits for
/// it, by a thread that retires for itself, and in the child of a fork.
#[test]
fn what_others_have_left_is_reclaimed() {
    fn check<D: Reclaim<Machine = Native>>() {
        let domain = &D::new_in();
        let (retired, over) = (&std::sync::Barrier::new(2), &std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| retire_many(domain, 10)).join().unwrap();
            domain.barrier();
            assert_eq!(domain.garbage(), Garbage::default(), "{}", D::INFO.name);
            scope.spawn(|| {
                retire_many(domain, 10);
                retired.wait();
                over.wait();
            });
            retired.wait();
            // SAFETY: the child reclaims, which frees memory (the C library sees to its locks), and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends a child that hangs.
                unsafe { libc::alarm(300) };
                domain.barrier();
                let left = domain.garbage().objects;
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(left != 0)) };
            }
            let mut status = -1;
            // SAFETY: the child is ours and `status` valid.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "{}", D::INFO.name);
            while domain.garbage().objects != 0 {
                domain.collect();
                std::thread::yield_now();
            }
            over.wait();
        });
    }
    check::<RcuDomain<Native>>();
    check::<QsbrDomain<Native>>();
    check::<EpochDomain<Native>>();
    check::<HazardDomain<Native>>();
    check::<CountedDomain<Native>>();
}

/// An object that retires others when it is reclaimed.
#[repr(C)]
struct Nest<R: Reclaim<Machine = Native>> {
    header: Header,
    domain: *const R,
    depth: usize,
    reclaimed: Arc<AtomicUsize>,
}

// SAFETY: the domain outlives what is retired in it.
unsafe impl<R: Reclaim<Machine = Native>> Send for Nest<R> {}
// SAFETY: `repr(C)`, the header first.
unsafe impl<R: Reclaim<Machine = Native>> Retire for Nest<R> {}

impl<R: Reclaim<Machine = Native>> Nest<R> {
    fn retire(domain: *const R, depth: usize, reclaimed: &Arc<AtomicUsize>) {
        let nest = Nest { header: Header::new(), domain, depth, reclaimed: reclaimed.clone() };
        // SAFETY: the domain is there, and no other thread has the object.
        unsafe { (*domain).retire(Box::into_raw(Box::new(nest))) };
    }
}

impl<R: Reclaim<Machine = Native>> Drop for Nest<R> {
    fn drop(&mut self) {
        self.reclaimed.fetch_add(1, Relaxed);
        if self.depth > 0 {
            (0..2).for_each(|_| Nest::retire(self.domain, self.depth - 1, &self.reclaimed));
        }
    }
}

/// Destructors that retire more than a batch, in the thread that retired them and in others; and while the domain is dropped.
#[test]
fn what_is_reclaimed_may_retire() {
    fn check<R: Reclaim<Machine = Native>>() {
        // In a box, because the objects have pointers to the domain: `drop` moves its argument.
        let domain = Box::new(R::new_in());
        let reclaimed = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..600).for_each(|_| Nest::retire(&raw const *domain, 3, &reclaimed)));
            for _ in 0..100 {
                Nest::retire(&raw const *domain, 3, &reclaimed);
                domain.barrier();
            }
        });
        (0..10).for_each(|_| Nest::retire(&raw const *domain, 3, &reclaimed));
        drop(domain);
        assert_eq!(reclaimed.load(Relaxed), 710 * 15, "{}", R::INFO.name);
    }
    check::<RcuDomain<Native>>();
    check::<HazardDomain<Native>>();
    check::<CountedDomain<Native>>();
    check::<IntervalDomain<Native>>();
}

#[test]
fn a_worker_reclaims_for_the_others() {
    let domain = &RcuDomain::<Native>::new_in();
    let over = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| domain.serve(100_000, || over.load(Relaxed) == 1));
        retire_many(domain, 10);
        while domain.garbage().objects != 0 {
            std::thread::yield_now();
        }
        over.store(1, Relaxed);
    });
    domain.never_soon();
    retire_many(domain, 10);
    domain.serve(0, || true);
    assert_eq!(domain.garbage().objects, 0, "a worker that stops leaves nothing");
}

/// A thread that waits at the limit reclaims what others have retired, too.
#[test]
fn a_thread_that_waits_at_the_limit_reclaims_for_all() {
    fn check<F: domain::Flavour>() {
        let domain = &domain::Domain::<Native, F>::new_in();
        domain.never_soon();
        domain.set_limit(Limit { objects: 0, bytes: u64::MAX });
        domain.set_at_limit(AtLimit::Wait { nanos: u64::MAX });
        std::thread::scope(|scope| _ = scope.spawn(|| retire_many(domain, 5)));
        assert_eq!(domain.garbage().objects, 5, "{}", F::INFO.name);
        domain.throttle();
        assert_eq!(domain.garbage().objects, 0, "{}", F::INFO.name);
    }
    check::<rcu::General>();
    check::<qsbr::Qsbr>();
    check::<epoch::Epoch>();
}

#[test]
fn cells_are_read_and_updated() {
    let cell = &Rcu::new((0, 0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..5000).for_each(|_| cell.update(|(a, b)| (a + 1, b + 1))));
            scope.spawn(|| {
                for _ in 0..5000 {
                    let seen = cell.get();
                    assert_eq!(seen.0, seen.1);
                }
            });
        }
    });
    assert_eq!(*cell.get(), (10_000, 10_000));
    cell.replace((1, 2));
    assert_eq!(*cell.read(&rcu::global().enter()), (1, 2));
}

/// An update retires outside of its section, where it waits at the limit.
#[test]
fn an_update_waits_at_the_limit() {
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new()));
    domain.never_soon();
    domain.set_limit(Limit { objects: 0, bytes: u64::MAX });
    domain.set_at_limit(AtLimit::Wait { nanos: u64::MAX });
    let cell = Rcu::new_in(0, domain);
    (0..16).for_each(|_| cell.update(|number| number + 1));
    assert_eq!((*cell.read(&domain.enter()), domain.garbage().objects), (16, 0));
}

/// A thread that rests begins, nests and ends sections all the same. It does not rest after that, until it waits for a grace period.
#[test]
fn sections_of_a_thread_that_rests() {
    use crate::machine::Machine;
    use crate::machine::record::{NEEDS_FULL_FENCE, NESTING};
    std::thread::spawn(|| {
        let words = || {
            let record = record::own::<Native>();
            [record.section.load(Relaxed), record.online.load(Relaxed), record.pinned.load(Relaxed)]
        };
        let fenced = || words().map(|word| word & NEEDS_FULL_FENCE);
        let resting = [NEEDS_FULL_FENCE, 0, NEEDS_FULL_FENCE];
        let awake = if Native::prepare_fences() { [0; 3] } else { resting };
        assert_eq!(fenced(), resting, "its first section begins with a full fence");
        let (rcu, epoch) = (RcuDomain::<Native>::new_in(), EpochDomain::<Native>::new_in());
        let qsbr = QsbrDomain::<Native>::new_in();
        let mut online = qsbr.reader();
        for _ in 0..3 {
            let outer = (rcu.enter(), epoch.enter());
            let inner = (rcu.enter(), epoch.enter());
            assert_eq!(words().map(|word| word & NESTING), [2, 1, 2]);
            assert_eq!(fenced(), awake);
            drop(outer);
            assert!(RcuDomain::<Native>::is_inside() && EpochDomain::<Native>::is_inside());
            drop(inner);
            assert!(!RcuDomain::<Native>::is_inside() && !EpochDomain::<Native>::is_inside());
            assert_eq!(fenced(), awake);
            rcu.synchronize();
            epoch.collect();
            online.quiescent();
            online.offline(|| qsbr.synchronize());
            assert_eq!(fenced()[0], NEEDS_FULL_FENCE);
        }
    })
    .join()
    .unwrap();
}

#[test]
fn counted() {
    readers_are_safe::<CountedDomain<Native>>();
    protected_objects_stay::<CountedDomain<Native>>();
}
