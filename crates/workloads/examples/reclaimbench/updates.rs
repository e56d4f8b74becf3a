//! Updaters: a new object in the place of the old one, which is retired; reclaiming is counted as well.

use super::Work;
use latchwork::machine::Native;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{Header, Reader, Reclaim, Retire};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel};

#[repr(C)]
struct Object {
    header: Header,
    value: u64,
}

// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {}

pub fn all() -> Vec<(&'static str, Work)> {
    vec![
        ("none (freed at once)", freed as Work),
        ("qsbr", ours::<QsbrDomain<Native>>),
        ("rcu", ours::<RcuDomain<Native>>),
        ("epoch", ours::<EpochDomain<Native>>),
        ("interval", ours::<IntervalDomain<Native>>),
        ("hazard", ours::<HazardDomain<Native>>),
        ("crossbeam-epoch", crossbeam),
        ("haphazard", haphazard),
        ("seize", seize),
    ]
}

fn ours<D: Reclaim<Machine = Native>>(times: u64) -> u64 {
    let domain = D::new_in();
    let make = |value| {
        let mut object = Box::new(Object { header: Header::new(), value });
        D::note_new(&mut *object);
        Box::into_raw(object)
    };
    let root = AtomicPtr::new(make(0));
    let mut reader = domain.reader();
    for value in 1..=times {
        let old = root.swap(make(value), AcqRel);
        // SAFETY: removed here, by nobody else.
        unsafe { domain.retire(old) };
        reader.quiescent();
    }
    drop(reader);
    domain.barrier();
    // SAFETY: nobody else uses it.
    unsafe { Box::from_raw(root.into_inner()) }.value
}

fn freed(times: u64) -> u64 {
    let make = |value| Box::into_raw(Box::new(Object { header: Header::new(), value }));
    let root = AtomicPtr::new(make(0));
    for value in 1..=times {
        // SAFETY: nobody else uses it.
        drop(unsafe { Box::from_raw(root.swap(make(value), AcqRel)) });
    }
    // SAFETY: the loop has ended, and the root owns its box alone.
    unsafe { Box::from_raw(root.into_inner()) }.value
}

fn crossbeam(times: u64) -> u64 {
    use crossbeam_epoch::{Atomic, Owned, pin};
    let root = Atomic::new([0u64; 4]);
    for value in 1..=times {
        let guard = pin();
        let old = root.swap(Owned::new([value; 4]), AcqRel, &guard);
        // SAFETY: removed here, by nobody else.
        unsafe { guard.defer_destroy(old) };
    }
    // SAFETY: nobody else uses it.
    let last = unsafe { root.into_owned() };
    last[0]
}

fn haphazard(times: u64) -> u64 {
    use haphazard::AtomicPtr;
    let root = AtomicPtr::from(Box::new([0u64; 4]));
    for value in 1..=times {
        let old = root.swap(Box::new([value; 4])).expect("there is always one");
        // SAFETY: removed here, by nobody else.
        unsafe { old.retire() };
    }
    times
}

fn seize(times: u64) -> u64 {
    use seize::{Collector, Guard, reclaim};
    static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);
    let root = AtomicPtr::new(Box::into_raw(Box::new([0u64; 4])));
    for value in 1..=times {
        let guard = COLLECTOR.enter();
        let old = guard.swap(&root, Box::into_raw(Box::new([value; 4])), AcqRel);
        // SAFETY: removed here, by nobody else; it came from a box.
        unsafe { guard.defer_retire(old, reclaim::boxed) };
    }
    // SAFETY: nobody else uses it.
    let last = unsafe { Box::from_raw(root.into_inner()) };
    last[0]
}
