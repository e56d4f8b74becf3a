//! What holds for every strategy, on the native machine.

use super::epoch::EpochDomain;
use super::hazard::HazardDomain;
use super::qsbr::QsbrDomain;
use super::rcu::RcuDomain;
use super::*;
use crate::machine::Native;
use core::sync::atomic::Ordering::*;
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use std::boxed::Box;
use std::sync::Arc;

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

/// Readers never see what has been reclaimed; everything is, once.
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
                    // SAFETY: removed above, by nobody else.
                    unsafe { domain.retire(old) };
                }
            })
        });
        updaters.into_iter().for_each(|updater| updater.join().unwrap());
        let old = root.swap(Object::make(2 * UPDATES, &reclaimed), AcqRel);
        // SAFETY: as above.
        unsafe { domain.retire(old) };
    });
    domain.barrier();
    assert_eq!(reclaimed.load(Relaxed), 2 * UPDATES + 1, "{}", D::INFO.name);
    assert_eq!(domain.garbage(), Garbage::default());
    // SAFETY: the last one, which nobody reads any more.
    drop(unsafe { Box::from_raw(root.load(Acquire)) });
}

/// What is protected stays, and goes when it no longer is.
fn protected_objects_stay<D: Reclaim<Machine = Native>>() {
    let domain = D::new_in();
    let reclaimed = Arc::new(AtomicUsize::new(0));
    let root = AtomicPtr::new(Object::make(1, &reclaimed));
    {
        let reader = domain.reader();
        let guard = reader.enter();
        let object = guard.protect(0, &root);
        // SAFETY: nobody else removes it.
        unsafe { domain.retire(root.swap(core::ptr::null_mut(), AcqRel)) };
        domain.collect();
        assert_eq!(reclaimed.load(Relaxed), 0, "{}", D::INFO.name);
        let garbage = domain.garbage();
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
