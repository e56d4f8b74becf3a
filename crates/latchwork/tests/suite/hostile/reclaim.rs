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
    domain.set_throttle_nanos(0);
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
    assert_eq!(domain.garbage().objects, 0);
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

fn periods() {
    let grace = Grace::<Native, General>::new();
    let ticket = grace.start();
    grace.set_patience(0);
    assert!(!grace.is_over(u64::MAX) && !grace.poll(u64::MAX));
    _ = grace.poll(ticket);
    let deadline = Some(Deadline { clock: Clock::Monotonic, nanos: 0 });
    assert!(!grace.wait(u64::MAX, Pace::Expedited, deadline));
    _ = grace.stall();
}

pub fn strategies() {
    strategy::<RcuDomain<Native>>();
    strategy::<EpochDomain<Native>>();
    strategy::<QsbrDomain<Native>>();
    strategy::<HazardDomain<Native>>();
    strategy::<HazardDomain<Native, true>>();
    strategy::<CountedDomain<Native>>();
    periods();
    assert!(HazardDomain::<Native>::bound(4, 100) > 100);
    let reader = HazardDomain::<Native>::new_in();
    let reader = reader.reader();
    let guard = reader.enter();
    guard.clear(0);
    assert!(refused(|| guard.clear(usize::MAX)));
}

pub fn cells() {
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
