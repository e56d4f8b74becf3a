//! Tests of what a domain does about stalled readers, and of retiring without types.

use super::due::LOOK;
use super::hazard::{HazardDomain, HazardPointer};
use super::rcu::RcuDomain;
use super::*;
use crate::machine::Native;
use crate::machine::alone::alone;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::*;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
use std::boxed::Box;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use std::vec::Vec;

/// An object that counts that it was dropped.
#[repr(C)]
struct Counting {
    header: Header,
    dropped: Arc<AtomicUsize>,
}

// SAFETY: `repr(C)`, the header first; made by boxes.
unsafe impl Retire for Counting {}

impl Drop for Counting {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
    }
}

fn counting(dropped: &Arc<AtomicUsize>) -> *mut Counting {
    Box::into_raw(Box::new(Counting { header: Header::new(), dropped: dropped.clone() }))
}

/// Runs `work` while a thread is in a section of the domain. `work` is given the thread's number.
fn beside_a_reader<F: domain::Flavour>(domain: &domain::Domain<Native, F>, work: impl FnOnce(u32)) {
    let (inside, leave) = (&Barrier::new(2), &Barrier::new(2));
    let thread = &AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the call takes no arguments and touches no memory.
            thread.store(unsafe { libc::gettid() } as u32, Relaxed);
            let reader = domain.reader();
            let guard = reader.enter();
            inside.wait();
            leave.wait();
            drop(guard);
        });
        inside.wait();
        work(thread.load(Relaxed));
        leave.wait();
    });
}

/// A domain that grows waits for nobody, however much it is over its limit. The hook names the reader. When the reader has
/// left, all memory comes back.
fn a_growing_domain_never_waits<F: domain::Flavour>() {
    const LIMIT: u64 = 10;
    let domain = &domain::Domain::<Native, F>::new_in();
    domain.set_limit(Limit { objects: LIMIT, bytes: u64::MAX });
    domain.set_at_limit(AtLimit::Grow);
    domain.set_stall_nanos(0);
    let told: &Arc<AtomicU32> = &Arc::default();
    let dropped = Arc::new(AtomicUsize::new(0));
    beside_a_reader(domain, |reader| {
        let hook = told.clone();
        domain.on_stall(|_| panic!("this hook was replaced"));
        // Readers of other tests may be in the way as well.
        domain.on_stall(move |stall| _ = (stall.thread == reader).then(|| hook.fetch_add(1, Relaxed)));
        while told.load(Relaxed) == 0 {
            // SAFETY: no other thread has it.
            (0..100 * LIMIT).for_each(|_| unsafe { domain.retire(counting(&dropped)) });
        }
        // All that was retired since the reader came.
        let garbage = domain.garbage();
        assert_eq!(dropped.load(Relaxed), 0, "{}", F::INFO.name);
        assert_eq!(garbage.objects, Arc::strong_count(&dropped) as u64 - 1, "{}", F::INFO.name);
        assert!(garbage.overruns > 0 && !domain.is_clean(), "{}: {garbage:?}", F::INFO.name);
    });
    domain.barrier();
    let garbage = domain.garbage();
    assert!(domain.is_clean() && (garbage.objects, garbage.bytes) == (0, 0), "{}: {garbage:?}", F::INFO.name);
    assert_eq!(Arc::strong_count(&dropped), 1, "{}", F::INFO.name);
}

#[test]
fn growing_domains_never_wait() {
    a_growing_domain_never_waits::<rcu::General>();
    a_growing_domain_never_waits::<epoch::Epoch>();
    a_growing_domain_never_waits::<qsbr::Qsbr>();
}

/// A thread that has waited for as long as the limit says tells the hook, once for each grace period, and goes on.
#[test]
fn a_bounded_wait_tells_the_hook() {
    let domain = &RcuDomain::<Native>::new();
    domain.set_limit(Limit { objects: 10, bytes: u64::MAX });
    domain.set_at_limit(AtLimit::Wait { nanos: 1_000_000 });
    let told: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let dropped = Arc::new(AtomicUsize::new(0));
    beside_a_reader(domain, |_| {
        domain.on_stall(|_| _ = told.fetch_add(1, Relaxed));
        let retire = || {
            // SAFETY: no other thread has it.
            (0..1000).for_each(|_| unsafe { domain.retire(counting(&dropped)) });
        };
        retire();
        while told.load(Relaxed) == 0 {
            retire(); // another test's reader was in the way, and has left
        }
        retire();
        assert!(domain.garbage().overruns > 1);
        assert_eq!(told.load(Relaxed), 1);
    });
}

/// The limit holds also where no batch is ever full, because after each pause the collector takes what has come in.
#[test]
fn what_is_seldom_retired_meets_the_limit() {
    const LIMIT: u64 = 100;
    let domain = &RcuDomain::<Native>::new();
    domain.set_limit(Limit { objects: LIMIT, bytes: u64::MAX });
    domain.set_at_limit(AtLimit::Grow);
    let dropped = Arc::new(AtomicUsize::new(0));
    beside_a_reader(domain, |_| {
        while domain.garbage().objects < 3 * LIMIT {
            std::thread::sleep(Duration::from_millis(2)); // longer than a list may be left alone
            domain.backlog.soon_now();
            // SAFETY: no other thread has it.
            unsafe { domain.retire(counting(&dropped)) };
        }
    });
    assert!(domain.garbage().overruns > 0, "{:?}", domain.garbage());
}

/// A hook may use the domain: also retire so much there that the hook would be called again.
#[test]
fn a_hook_may_use_the_domain() {
    static DOMAIN: RcuDomain<Native> = RcuDomain::new();
    static CALLED: AtomicBool = AtomicBool::new(false);
    static IS_CALLED: AtomicBool = AtomicBool::new(false);
    static NESTED: AtomicBool = AtomicBool::new(false);
    let dropped = Arc::new(AtomicUsize::new(0));
    DOMAIN.set_limit(Limit { objects: 10, bytes: u64::MAX });
    DOMAIN.set_at_limit(AtLimit::Grow);
    DOMAIN.set_stall_nanos(0);
    beside_a_reader(&DOMAIN, |_| {
        let of_hook = dropped.clone();
        DOMAIN.on_stall(move |_| {
            if IS_CALLED.swap(true, Relaxed) {
                return NESTED.store(true, Relaxed);
            }
            // SAFETY: no other thread has it.
            (0..100).for_each(|_| unsafe { DOMAIN.retire(counting(&of_hook)) });
            _ = (DOMAIN.stall(), DOMAIN.garbage());
            DOMAIN.collect();
            assert!(!DOMAIN.poll(DOMAIN.start_poll()));
            IS_CALLED.store(false, Relaxed);
            CALLED.store(true, Relaxed);
        });
        while !CALLED.load(Relaxed) {
            // SAFETY: no other thread has it.
            (0..100).for_each(|_| unsafe { DOMAIN.retire(counting(&dropped)) });
        }
    });
    // Readers of other tests may be in the way: the hook would retire more.
    DOMAIN.on_stall(|_| ());
    DOMAIN.barrier();
    assert!(DOMAIN.is_clean());
    assert!(!NESTED.load(Relaxed), "the hook was called by what it does");
}

#[cfg(feature = "section-origins")]
#[test]
fn a_stall_says_where_the_section_began() {
    let domain = &RcuDomain::<Native>::new();
    beside_a_reader(domain, |reader| {
        domain.collect();
        let cookie = domain.start_poll();
        let stall = loop {
            assert!(!domain.poll(cookie));
            // Another test's reader may be in the way for a moment.
            if let Some(stall) = domain.stall().filter(|stall| stall.thread == reader) {
                break stall;
            }
        };
        let origin = stall.origin.expect("where the section began");
        assert!(origin.file().ends_with("policies.rs"), "{origin}");
    });
}

/// An object whose destructor waits for a grace period.
#[repr(C)]
struct Patient {
    header: Header,
    domain: *const RcuDomain<Native>,
    dropped: Arc<AtomicUsize>,
}

// SAFETY: the domain outlives what is retired in it.
unsafe impl Send for Patient {}
// SAFETY: `repr(C)`, the header first; made by boxes.
unsafe impl Retire for Patient {}

impl Drop for Patient {
    fn drop(&mut self) {
        // SAFETY: the domain is there.
        unsafe { (*self.domain).synchronize() };
        self.dropped.fetch_add(1, Relaxed);
    }
}

/// Destructors may wait for grace periods, in the thread that waits for the garbage and in one that retires, while other
/// threads do the same.
#[test]
fn destructors_may_synchronize() {
    let domain = RcuDomain::<Native>::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    domain.set_limit(Limit { objects: 10, bytes: u64::MAX });
    const EACH: usize = 40;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let header = Header::new();
                    let patient = Patient { header, domain: &raw const domain, dropped: dropped.clone() };
                    // SAFETY: no other thread has it.
                    unsafe { domain.retire(Box::into_raw(Box::new(patient))) };
                }
                domain.barrier();
            });
        }
    });
    assert_eq!(dropped.load(Relaxed), 3 * EACH);
}

/// An object whose destructor does what the test says.
#[repr(C)]
struct Acting {
    header: Header,
    act: Box<dyn Fn() + Send + Sync>,
}

// SAFETY: `repr(C)`, the header first; made by boxes.
unsafe impl Retire for Acting {}

impl Drop for Acting {
    fn drop(&mut self) {
        (self.act)();
    }
}

/// While a list is worked off, a destructor retires an object that a section has found which is younger than the grace period of
/// all that was in the list. The object stays.
fn what_a_destructor_retires_waits_for_its_own_grace_period<F: domain::Flavour>() {
    let domain: &'static domain::Domain<Native, F> = Box::leak(Box::new(domain::Domain::new_in()));
    let dropped = Arc::new(AtomicUsize::new(0));
    let found: &'static AtomicPtr<Counting> = Box::leak(Box::new(AtomicPtr::new(counting(&dropped))));
    let barriers: &'static [Barrier; 3] = Box::leak(Box::new([2; 3].map(Barrier::new)));
    let [begin, begun, end] = barriers;
    let acted = Arc::new(AtomicBool::new(false));
    let has_acted = acted.clone();
    let act = Box::new(move || {
        begin.wait();
        begun.wait();
        // SAFETY: the exchange removes it.
        unsafe { domain.retire(found.swap(core::ptr::null_mut(), AcqRel)) };
        has_acted.store(true, Relaxed);
    });
    domain.backlog.never_soon();
    // SAFETY: no other thread has it.
    unsafe { domain.retire(Box::into_raw(Box::new(Acting { header: Header::new(), act }))) };
    // Its grace period does not end now, so it waits.
    beside_a_reader(domain, |_| domain.collect());
    assert_eq!(domain.garbage().objects, 1);
    let reader = std::thread::spawn(move || {
        begin.wait();
        let reader = domain.reader();
        let guard = reader.enter();
        assert!(!guard.protect(0, found).is_null());
        begun.wait();
        end.wait();
    });
    while !acted.load(Relaxed) {
        domain.collect(); // other tests' readers may be in the way
    }
    assert_eq!((domain.garbage().objects, dropped.load(Relaxed)), (1, 0));
    end.wait();
    reader.join().unwrap();
    domain.barrier();
    assert_eq!(dropped.load(Relaxed), 1);
}

#[test]
fn what_destructors_retire_waits_for_its_own_grace_period() {
    what_a_destructor_retires_waits_for_its_own_grace_period::<rcu::General>();
    what_a_destructor_retires_waits_for_its_own_grace_period::<epoch::Epoch>();
    what_a_destructor_retires_waits_for_its_own_grace_period::<qsbr::Qsbr>();
}

/// As C and C++ retire: a header somewhere in an object, and a function.
#[repr(C)]
struct Foreign {
    value: u64,
    header: UnsafeCell<Header>,
    reclaimed: AtomicU32,
}

// SAFETY: the header is the library's alone.
unsafe impl Sync for Foreign {}

unsafe extern "C-unwind" fn reclaim_foreign(header: *mut Header) {
    // SAFETY: the header is a field of a `Foreign`.
    let foreign = unsafe { &*header.byte_sub(core::mem::offset_of!(Foreign, header)).cast::<Foreign>() };
    assert_eq!(foreign.value, 7);
    foreign.reclaimed.fetch_add(1, Relaxed);
}

#[test]
fn headers_are_retired_without_types() {
    let make = || Foreign { value: 7, header: UnsafeCell::new(Header::new()), reclaimed: AtomicU32::new(0) };
    let objects: [Foreign; 2] = [make(), make()];
    let (rcu, hazard) = (RcuDomain::<Native>::new(), HazardDomain::<Native>::new());
    // Twice, because the object is alive after it was reclaimed, and may be retired again.
    for round in 1..=2 {
        rcu.backlog.never_soon();
        // SAFETY: the object stays until it was reclaimed, and no thread reads it.
        unsafe { rcu.retire_raw(objects[0].header.get(), 40, reclaim_foreign) };
        assert_eq!((rcu.garbage().objects, rcu.garbage().bytes), (1, 48));
        rcu.barrier();
        // The hazard pointer points to the header, as the bytes are counted from there.
        let header = AtomicPtr::new(objects[1].header.get());
        let mut pointer = HazardPointer::new();
        assert_eq!(pointer.protect_raw(&header), header.load(Relaxed));
        // SAFETY: as above.
        unsafe { hazard.retire_raw(objects[1].header.get(), 1, reclaim_foreign) };
        hazard.collect();
        assert_eq!(objects[1].reclaimed.load(Relaxed), round - 1);
        pointer.reset();
        hazard.barrier();
        assert_eq!(objects.each_ref().map(|object| object.reclaimed.load(Relaxed)), [round; 2]);
    }
}

/// Hazard pointers in thousands, which move between threads; those that are dropped serve again.
#[test]
fn hazard_pointers_come_in_thousands_and_move() {
    const MANY: usize = 5000;
    let domain = &HazardDomain::<Native>::new();
    let dropped = &Arc::new(AtomicUsize::new(0));
    let roots: &Vec<AtomicPtr<Counting>> = &(0..MANY).map(|_| AtomicPtr::new(counting(dropped))).collect();
    let protect = |half: usize| {
        let roots = roots[half * MANY / 2..][..MANY / 2].iter();
        let pointer = |root: &AtomicPtr<Counting>| {
            let mut pointer = HazardPointer::new();
            assert!(!pointer.protect_raw(root).is_null());
            pointer
        };
        roots.map(pointer).collect::<Vec<_>>()
    };
    let mut pointers = std::thread::scope(|scope| {
        let threads = [0, 1].map(|half| scope.spawn(move || protect(half)));
        threads.map(|thread| thread.join().unwrap()).into_iter().flatten().collect::<Vec<_>>()
    });
    for root in roots {
        // SAFETY: this exchange has removed it.
        unsafe { domain.retire(root.swap(core::ptr::null_mut(), AcqRel)) };
    }
    domain.collect();
    assert_eq!(dropped.load(Relaxed), 0);
    let mut slots: Vec<usize> = pointers.iter().map(slot).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), MANY, "two hazard pointers share a slot");
    // The second half is dropped in another thread: so much is reclaimed, and no more.
    let second = pointers.split_off(MANY / 2);
    std::thread::spawn(move || drop(second)).join().unwrap();
    domain.collect();
    assert_eq!(dropped.load(Relaxed), MANY / 2);
    let again: Vec<_> = (0..MANY / 4).map(|_| HazardPointer::new()).collect();
    let reused = again.iter().filter(|pointer| slots.binary_search(&slot(pointer)).is_ok()).count();
    // Other tests may have a few.
    assert!(reused > MANY / 8, "{reused} slots of {} were reused", MANY / 4);
    drop(pointers);
    domain.barrier();
    assert_eq!(dropped.load(Relaxed), MANY);
}

/// Where the hazard pointer has its slot.
fn slot(pointer: &HazardPointer) -> usize {
    // SAFETY: the word is not written to.
    core::ptr::from_ref(unsafe { pointer.word() }).addr()
}

#[test]
fn a_hazard_pointer_sees_what_changed() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (first, second) = (counting(&dropped), counting(&dropped));
    let root = AtomicPtr::new(first);
    let mut pointer = HazardPointer::new();
    assert_eq!(pointer.try_protect_raw(first, &root), Ok(()));
    assert_eq!(pointer.protected().cast(), first);
    root.store(second, Relaxed);
    assert_eq!(pointer.try_protect_raw(first, &root), Err(second));
    assert!(pointer.protected().is_null());
    assert_eq!(pointer.try_protect_raw(core::ptr::null_mut(), &root), Err(second));
    let mut other = HazardPointer::new();
    assert_eq!(other.protect_raw(&root), second);
    core::mem::swap(&mut pointer, &mut other);
    assert_eq!(pointer.protected().cast(), second);
    assert_eq!(size_of::<Option<HazardPointer>>(), size_of::<usize>());
    for object in [first, second] {
        // SAFETY: made above, and never retired.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// Waits for longer than a list is left alone, at the 64th attempt for four seconds. The pause is a hundred times as long as the last
/// reclamation took, in which a busy machine may have preempted the thread.
fn pause(attempt: u32) {
    std::thread::sleep(Duration::from_millis(11 + u64::from(attempt * attempt)));
}

/// A destructor is told that it is one, whoever runs it: the thread that has retired the object, or the collector.
#[test]
fn a_destructor_knows_that_its_domain_reclaims() {
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new()));
    domain.never_soon();
    let told = Arc::new(AtomicUsize::new(0));
    let retire = || {
        let told = told.clone();
        domain.defer(move || _ = told.fetch_add(usize::from(domain.is_reclaiming()), Relaxed));
    };
    retire();
    while told.load(Relaxed) == 0 {
        domain.collect(); // other tests read
    }
    retire();
    domain.barrier();
    assert!(told.load(Relaxed) == 2 && !domain.is_reclaiming());
}

/// A hazard pointer behind the last byte of an object belongs to the next object in memory. One that is dropped protects nothing,
/// nor does the next owner of its slot.
#[test]
fn a_hazard_pointer_protects_its_own_object_until_it_is_dropped() {
    assert!(forks::in_a_child(|| {
        let domain = HazardDomain::<Native>::new();
        let dropped = Arc::new(AtomicUsize::new(0));
        let object = counting(&dropped);
        let (mut first, mut behind) = (HazardPointer::new(), HazardPointer::new());
        first.set_raw(object);
        behind.set_raw(object.wrapping_add(1));
        // SAFETY: no other thread has it.
        unsafe { domain.retire(object) };
        domain.collect();
        let is_kept = dropped.load(Relaxed) == 0;
        let before = slot(&first);
        drop(first);
        let next = HazardPointer::new();
        let is_empty = slot(&next) == before && next.protected().is_null();
        domain.collect();
        is_kept && is_empty && dropped.load(Relaxed) == 1
    }));
}

/// A thread that retires seldom reclaims at once, and not when a batch is full, in which time its objects could own any amount
/// of memory.
fn few_objects<D: Reclaim<Machine = Native>>() -> bool {
    let domain = D::new_in();
    let other = Arc::default();
    // SAFETY: no other thread has it.
    let retire = |dropped: &_| unsafe { domain.retire(counting(dropped)) };
    let until = |done: &dyn Fn() -> bool| {
        (0..LOOK).any(|attempt| {
            pause(attempt);
            retire(&other);
            done()
        })
    };
    for _ in 0..9 {
        let dropped = Arc::new(AtomicUsize::new(0));
        retire(&dropped);
        if !until(&|| dropped.load(Relaxed) == 1) {
            return false;
        }
    }
    // Many at once are reclaimed in batches, and those of the batch that is not full when some more have come.
    let dropped = Arc::new(AtomicUsize::new(0));
    (0..1100).for_each(|_| retire(&dropped));
    until(&|| dropped.load(Relaxed) == 1100)
}

/// A thread that retires seldom, and always in a section, reclaims when it says that it is in none.
fn few_objects_in_sections<D: Reclaim<Machine = Native>>() -> bool {
    let domain = D::new_in();
    let (dropped, mut reader) = (Arc::default(), domain.reader());
    (0..9).all(|already| {
        (0..LOOK).any(|attempt| {
            pause(attempt);
            let guard = reader.enter();
            // SAFETY: no other thread has it.
            unsafe { domain.retire(counting(&dropped)) };
            drop(guard);
            reader.quiescent();
            dropped.load(Relaxed) > already
        })
    })
}

/// Makes attempts until one succeeds: if the machine stops a thread while it reclaims, the domain pauses for a hundred times as long.
fn until_it_succeeds(what: &str, attempt: impl Fn() -> bool) {
    assert!((0..20).any(|_| attempt()), "{what}");
}

/// In a process of its own, as the next one: a reader of another test may hold up what is retired here.
#[test]
fn few_objects_are_reclaimed_at_once() {
    alone("reclaim::policies::few_objects_are_reclaimed_at_once", || {
        until_it_succeeds("Rcu", few_objects::<RcuDomain<Native>>);
        until_it_succeeds("Epoch", few_objects::<epoch::EpochDomain<Native>>);
        until_it_succeeds("Qsbr", few_objects::<qsbr::QsbrDomain<Native>>);
        until_it_succeeds("Hazard", few_objects::<HazardDomain<Native>>);
        until_it_succeeds("Counted", few_objects::<counted::CountedDomain<Native>>);
        until_it_succeeds("Interval", few_objects::<interval::IntervalDomain<Native>>);
        until_it_succeeds("Rcu in sections", few_objects_in_sections::<RcuDomain<Native>>);
        until_it_succeeds("Epoch in sections", few_objects_in_sections::<epoch::EpochDomain<Native>>);
        until_it_succeeds("Qsbr in sections", few_objects_in_sections::<qsbr::QsbrDomain<Native>>);
        until_it_succeeds(
            "Interval in sections",
            few_objects_in_sections::<interval::IntervalDomain<Native>>,
        );
    });
}

/// What a stalled reader has held up is reclaimed by a few objects that are retired after the reader has gone, where each look at
/// all intervals costs more than that.
#[test]
fn what_a_stalled_reader_held_up_is_reclaimed_soon() {
    let attempt = || {
        let domain = &interval::IntervalDomain::<Native>::new_in();
        let dropped = &Arc::new(AtomicUsize::new(0));
        // SAFETY: no other thread has it.
        let retire = |object| unsafe { domain.retire(object) };
        let objects: Vec<_> = (0..5000).map(|_| AtomicPtr::new(counting(dropped))).collect();
        let (inside, leave) = (&Barrier::new(2), &Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let reader = domain.reader();
                let guard = reader.enter();
                assert!(!guard.protect(0, &objects[0]).is_null());
                inside.wait();
                leave.wait();
            });
            inside.wait();
            objects.iter().for_each(|object| retire(object.load(Relaxed)));
            assert_eq!(dropped.load(Relaxed), 0, "the reader may have them");
            leave.wait();
        });
        // It takes some tens of objects.
        let soon = (1..=160_u32).find(|attempt| {
            pause(attempt.saturating_sub(100));
            retire(counting(dropped));
            dropped.load(Relaxed) >= 5000
        });
        soon.is_some()
    };
    alone("reclaim::policies::what_a_stalled_reader_held_up_is_reclaimed_soon", || {
        until_it_succeeds("Interval", attempt);
    });
}

/// A limit on bytes holds for large objects, of which few make a batch.
#[test]
fn large_objects_fill_a_batch_by_their_bytes() {
    #[repr(C)]
    struct Large(Header, [u8; 50_000]);
    // SAFETY: `repr(C)`, the header first; made by boxes.
    unsafe impl Retire for Large {}
    alone("reclaim::policies::large_objects_fill_a_batch_by_their_bytes", || {
        let domain = &RcuDomain::<Native>::new_in();
        let limit = 4 << 20;
        domain.set_limit(Limit { objects: u64::MAX, bytes: limit });
        domain.set_at_limit(AtLimit::Wait { nanos: u64::MAX }); // a busy machine may stop the other threads for seconds
        // Each thread looks when it has a 32nd more, and another thread may have a grace period in hand meanwhile.
        let retire = |count| {
            for _ in 0..count {
                let large = Box::into_raw(Box::new(Large(Header::new(), [0; 50_000])));
                // SAFETY: no other thread has it.
                unsafe { domain.retire(large) };
                assert!(domain.garbage().bytes <= limit + limit / 2, "{:?}", domain.garbage());
            }
        };
        retire(1000);
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(|| retire(300))));
    });
}
