//! Reclamation.

use super::*;

#[repr(C)]
struct Object {
    header: Header,
    owned: Vec<u8>,
}
// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {}

fn make() -> *mut Object {
    Box::into_raw(Box::new(Object { header: Header::new(), owned: vec![7; 40] }))
}

/// A thread that exits forgets readers and guards.
fn abandons<D: Reclaim<Machine = Native>>(domain: &D) {
    let root = AtomicPtr::new(make());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let reader = domain.reader();
            let guard = reader.enter();
            guard.protect(0, &root);
            forget(guard);
            forget(reader);
        });
        thread.join().unwrap();
    });
    // SAFETY: this thread's exchange has removed it.
    unsafe { domain.retire(root.load(Relaxed)) };
    domain.collect();
}

fn strategy<D: Reclaim<Machine = Native>>() {
    let domain = D::new_in();
    for limit in [Limit { objects: 0, bytes: 0 }, Limit { objects: u64::MAX, bytes: u64::MAX }] {
        domain.set_limit(limit);
        let mut reader = domain.reader();
        let root = AtomicPtr::new(make());
        {
            let guards: Vec<_> = (0..9).map(|_| reader.enter()).collect();
            let seen = guards[8].protect(3, &root);
            // Slots beyond the last are refused, or not needed.
            refused(|| _ = guards[8].protect(usize::MAX, &root));
            _ = reader.try_enter();
            assert!(guards.iter().all(|guard| domain.covers(guard)));
            // SAFETY: this thread's exchange has removed it.
            unsafe { domain.retire(seen) };
            // SAFETY: the guard protects it.
            let object = unsafe { &*seen };
            assert_eq!(object.owned[39], 7);
            assert!(format!("{:?}", object.header).contains("Header"));
        }
        reader.quiescent();
        assert!(refused(|| reader.offline(|| panic!("offline"))));
        reader.offline(|| domain.throttle());
        drop(reader);
        domain.barrier();
        assert_eq!(domain.garbage().objects, 0);
    }
}

fn sections<F: Flavour>() {
    // Leaked: at the end this thread stays in its section for ever, and dropping the domain would not wait for itself.
    let domain: &'static Domain<Native, F> = Box::leak(Box::new(Domain::new_in()));
    domain.set_stall_nanos(0);
    domain.set_at_limit(AtLimit::Grow);
    domain.on_stall(|_| ());
    domain.on_stall(stall::to_stderr);
    domain.set_limit(Limit { objects: 0, bytes: 0 });
    // A cookie of another domain tells nothing, and harms nothing.
    let cookie = domain.start_poll();
    refused(|| _ = Domain::<Native, F>::new_in().poll(cookie));
    {
        let reader = domain.reader();
        let _guard = reader.enter();
        assert!(Domain::<Native, F>::is_inside());
        assert!(refused(|| domain.synchronize()) && refused(|| domain.synchronize_expedited()));
        assert!(refused(|| GracePeriod::synchronize(domain)) && refused(|| domain.barrier()));
        // SAFETY: no other thread has them.
        (0..100).for_each(|_| unsafe { domain.retire(make()) });
        _ = domain.stall();
    }
    domain.throttle();
    domain.serve(0, || true);
    assert!(domain.is_clean() && !domain.is_reclaiming() && domain.garbage().objects == 0);
    // More guards than can be counted.
    let reader = domain.reader();
    assert!(refused(|| (0..1 << 16).for_each(|_| forget((reader.enter(), domain.reader())))));
    // Words of a record without an owner.
    let (record, clocks) = (Record::<Native>::new(), Clocks::<Native>::new());
    F::word(&record).store(u64::MAX, Relaxed);
    F::clock(&clocks).store(0, Relaxed);
    _ = F::reached(&clocks);
    refused(|| drop(F::reader(domain)));
}

/// The barrier that may be called in a section: without garbage, twice nested; and from a destructor, which it refuses.
fn ordered() {
    unsafe extern "C-unwind" fn calls_back(header: *mut Header) {
        assert!(refused(|| ORDERED.barrier_anywhere()));
        // SAFETY: made by a box below.
        drop(unsafe { Box::from_raw(header) });
    }
    static ORDERED: RcuDomain<Native> = RcuDomain::new();
    ORDERED.barrier_anywhere();
    // SAFETY: no other thread has the header, which is all of the object.
    unsafe { ORDERED.retire_ordered(Box::into_raw(Box::new(Header::new())), u32::MAX, calls_back) };
    let (_outer, _inner) = (ORDERED.enter(), ORDERED.enter());
    ORDERED.barrier_anywhere();
    assert!(ORDERED.is_clean());
}

fn periods() {
    let grace = Grace::<Native, General>::new();
    let ticket = grace.start();
    grace.set_patience(0);
    assert!(!grace.is_over(u64::MAX) && !grace.poll(u64::MAX, &|_| ()));
    _ = grace.poll(ticket, &|_| ());
    let deadline = Some(Deadline { clock: Clock::Monotonic, nanos: 0 });
    assert!(!grace.wait(u64::MAX, Pace::Expedited, deadline, &|_| ()));
    _ = grace.stall();
    let section = global().enter();
    Grace::<Native, General>::rest();
    drop(section);
    Grace::<Native, General>::rest();
}

pub fn strategies() {
    ordered();
    strategy::<RcuDomain<Native>>();
    strategy::<EpochDomain<Native>>();
    strategy::<QsbrDomain<Native>>();
    strategy::<HazardDomain<Native>>();
    strategy::<HazardDomain<Native, true>>();
    strategy::<CountedDomain<Native>>();
    strategy::<IntervalDomain<Native>>();
    strategy::<IntervalDomain<Native, 0>>();
    intervals();
    periods();
    assert!(HazardDomain::<Native>::bound(4, 100) > 100);
    hazard_pointers();
    let reader = HazardDomain::<Native>::new_in();
    let reader = reader.reader();
    let guard = reader.enter();
    guard.clear(0);
    assert!(refused(|| guard.clear(usize::MAX)));
}

/// Hazard pointers that are used in the wrong order, forgotten, and dropped in other threads.
fn hazard_pointers() {
    let domain = HazardDomain::<Native>::new();
    let root = AtomicPtr::new(make());
    let (mut hazard, mut other) = (HazardPointer::new(), HazardPointer::<Native>::new_in());
    other.set_raw(without_provenance::<Object>(NOWHERE));
    assert_eq!(other.protected().addr(), NOWHERE);
    assert!(other.try_protect_raw(without_provenance_mut(NOWHERE), &root).is_err());
    assert!(other.protected().is_null());
    let seen = hazard.protect_raw(&root);
    // SAFETY: this thread's exchange has removed it.
    unsafe { domain.retire(root.swap(std::ptr::null_mut(), AcqRel)) };
    std::mem::swap(&mut hazard, &mut other);
    hazard.reset();
    forget(hazard);
    domain.collect();
    assert!(!domain.is_clean());
    // SAFETY: protected, by the one that it was swapped with.
    assert_eq!(unsafe { (&*seen).owned[39] }, 7);
    std::thread::spawn(|| drop(other)).join().unwrap();
    domain.barrier();
    assert!(domain.is_clean());
}

/// Objects whose birth is noted late, twice, or never; typed pointers; and what is refused inside.
fn intervals() {
    type Domain = IntervalDomain<Native, 0>;
    let (domain, other) = (Domain::new_in(), Domain::default());
    let place = Atomic::<Vec<u8>, Domain>::new_in(Some(Owned::new(vec![7; 40])));
    let reader = domain.reader();
    for _ in 0..100 {
        let guard = reader.enter();
        let seen = place.load(&guard);
        let removed = place.swap(Some(Owned::new(vec![7; 40]).with_tag(3)), &other);
        // What stands there was made after the section began.
        let unchanged = place.compare_exchange(seen, None, &domain, &guard).unwrap_err();
        drop(removed);
        other.collect();
        assert_eq!(unchanged.current.as_ref().map(|object| object[39]), Some(7));
        assert_eq!(seen.as_ref().map(|object| object[39]), Some(7));
        assert!(place.compare_exchange_tag(seen, 1, &guard).is_err());
        let mut object = Object { header: Header::new(), owned: vec![7; 40] };
        Domain::note_new(&mut object);
        Domain::note_new(&mut object);
        // SAFETY: no other thread has it.
        unsafe { domain.retire(Box::into_raw(Box::new(object))) };
        assert!(Domain::is_inside() && refused(|| other.barrier()));
    }
    assert!(!Domain::is_inside());
    place.store(None, &domain);
    let root = AtomicPtr::new(make());
    let guard = reader.enter();
    let seen = guard.protect(usize::MAX, &root);
    assert_eq!(Domain::protect_seen(&guard, seen, &root), seen);
    drop(guard);
    // SAFETY: this thread's exchange has removed it.
    unsafe { domain.retire(root.swap(std::ptr::null_mut(), AcqRel)) };
    domain.barrier();
    other.barrier();
    assert_eq!((domain.garbage().objects, other.garbage().objects), (0, 0));
}

/// The reader that is offline meanwhile cannot be counted any more when it comes back.
pub fn too_many_while_offline() {
    let domain: &'static QsbrDomain<Native> = Box::leak(Box::new(QsbrDomain::new()));
    let cell = Rcu::new_in(vec![7; 40], domain);
    let (mut reader, mut readers) = (domain.reader(), Vec::new());
    refused(|| reader.offline(|| (0..32_767).for_each(|_| readers.push(domain.reader()))));
    drop(readers);
    let guard = reader.enter();
    let seen = cell.read(&guard);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cell.replace(vec![1; 40]);
            domain.barrier();
        });
    });
    println!("offline with a guard: {}", seen[39]);
}

pub fn cells() {
    let soon = latchwork::reclaim::due::Soon::native();
    soon.reclaim(|| soon.reclaim(|| _ = soon.has_come()));
    assert!(refused(|| soon.reclaim(|| panic!("work that panics"))));
    // Values that replace, update and read their own cell while they are made, read and dropped.
    static CELL: std::sync::OnceLock<Rcu<Nosy>> = std::sync::OnceLock::new();
    struct Nosy(Vec<u8>);
    impl Drop for Nosy {
        fn drop(&mut self) {
            let now = CELL.get().unwrap().get();
            assert_eq!((now.0.len(), self.0.len()), (40, 40));
        }
    }
    let cell = CELL.get_or_init(|| Rcu::new(Nosy(vec![0; 40])));
    for round in 0..40 {
        cell.replace(Nosy(vec![round; 40]));
        let mut meddles = true;
        cell.update(|old| {
            if std::mem::take(&mut meddles) {
                cell.replace(Nosy(vec![round; 40]));
            }
            Nosy(old.0.clone())
        });
        assert!(refused(|| cell.update(|_| panic!("no new value"))));
    }
    assert!(refused(|| cell.update_with::<()>(|_| panic!("no new value"))));
    assert_eq!(cell.try_update(|_| Err::<(Nosy, ()), _>(7)), Err(7));
    drop(cell.swap(Nosy(vec![1; 40])));
    assert!(refused(|| drop(Ref::map(cell.get(), |_| -> &u8 { panic!("no part") }))));
    typed();
    let guard = global().enter();
    assert_eq!(cell.read(&guard).0.len(), 40);
    drop(guard);
    global().barrier();
    let domain: &'static EpochDomain<Native> = Box::leak(Box::new(EpochDomain::new_in()));
    let root = AtomicPtr::new(without_provenance_mut::<u32>(NOWHERE));
    assert_eq!(EpochDomain::<Native>::new_in().enter().protect(0, &root).addr(), NOWHERE);
    let other = Rcu::new_in(7, domain);
    assert_eq!(*other.read(&domain.enter()), 7);
}

/// Typed pointers: tags out of range, pointers of other places, and objects that are forgotten.
fn typed() {
    static OPTION: RcuOption<Vec<u8>> = RcuOption::none();
    OPTION.replace(Some(vec![7; 40]));
    let seen = OPTION.get();
    forget(OPTION.take());
    assert_eq!((seen.map(|seen| seen.len()), OPTION.is_none()), (Some(40), true));
    let mut option = RcuOption::from(Some(vec![7; 40]));
    option.get_mut().unwrap().push(1);
    assert_eq!(option.read(&global().enter()).map(Vec::len), Some(41));
    drop(option.swap(None));
    assert!(option.into_inner().is_none() && RcuOption::<u8>::default().is_none());
    let mut cell = Rcu::new(std::sync::Arc::new(vec![7; 40]));
    let snapshot = cell.snapshot();
    assert!(std::sync::Arc::get_mut(cell.get_mut()).is_none());
    drop(cell.into_inner());
    assert_eq!(snapshot.len(), 40);

    let (place, other) = (Atomic::<Vec<u8>>::null(), Atomic::<Vec<u8>>::new(vec![7; 40]));
    let guard = global().enter();
    let foreign = other.load(&guard).with_tag(usize::MAX);
    assert_eq!((foreign.tag(), foreign.as_ref().map(Vec::len)), (7, Some(40)));
    let tagged = Owned::new(vec![7; 40]).with_tag(usize::MAX);
    assert_eq!(tagged.tag(), 7);
    // A pointer of another place is not here.
    let unchanged = place.compare_exchange(foreign, Some(tagged), global(), &guard).unwrap_err();
    assert!(unchanged.current.is_null() && place.compare_exchange_tag(foreign, 9, &guard).is_err());
    drop(place.swap(unchanged.new, global()));
    // A tag without an object.
    let null = place.compare_exchange_tag(Shared::null().with_tag(7), 0, &guard).unwrap_err();
    assert!(null.as_ref().is_some() && !place.is_null());
    forget(place.swap(None, global()));
    assert!(place.compare_exchange_tag(Shared::null(), 5, &guard).is_ok());
    assert!(place.is_null() && place.load(&guard).as_ref().is_none() && place.into_owned().is_none());
    other.store(None, global());
    assert_eq!(foreign.as_ref().map(|seen| seen[39]), Some(7));
    drop(guard);
    let mut place = Atomic::<Vec<u8>>::new(Owned::new(vec![1]).into_inner());
    place.get_mut().unwrap().push(2);
    global().defer(|| global().defer(|| ()));
    // By the barrier, or at once if the last batch was reclaimed some milliseconds ago.
    assert!(refused(|| {
        global().defer(|| panic!("work that panics"));
        global().barrier();
    }));

    let place = Atomic::<Vec<u8>, HazardDomain<Native>>::new_in(Some(Owned::new(vec![7; 40])));
    let mut hazard = HazardPointer::new();
    let seen = hazard.protect(&place);
    let domain = HazardDomain::new();
    place.store(None, &domain);
    domain.collect();
    assert_eq!(seen.map(Vec::len), Some(40));
}

/// At the end: nothing is reclaimed after this.
pub fn forgotten() {
    std::thread::spawn(|| {
        sections::<General>();
        sections::<Epoch>();
        sections::<Qsbr>();
    })
    .join()
    .unwrap();
    forget(EpochDomain::<Native>::new_in().enter());
    abandons(Box::leak(Box::new(HazardDomain::<Native>::new_in())));
    abandons(Box::leak(Box::new(CountedDomain::<Native>::new_in())));
    abandons(Box::leak(Box::new(RcuDomain::<Native>::new_in())));
    Native::give_up_key();
    std::thread::spawn(|| drop(RcuDomain::<Native>::new_in().enter())).join().unwrap();
}
