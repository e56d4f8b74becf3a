//! Readers. One function each, not inlined, so that each can be found in a disassembly and a profile.

use super::Work;
use latchwork::machine::Native;
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::{self, RcuDomain};
use latchwork::reclaim::{Guard, Reader, Reclaim};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire};

/// What is read: a pointer to a word, which is never replaced here.
static ROOT: LazyLock<AtomicPtr<u64>> = LazyLock::new(|| AtomicPtr::new(Box::leak(Box::new(1))));

/// The word behind a pointer that was read from [`ROOT`].
#[inline(always)]
fn follow(pointer: *mut u64) -> u64 {
    // SAFETY: the word is never freed.
    unsafe { *pointer }
}

pub fn all() -> Vec<(&'static str, Work)> {
    vec![
        ("none", none_reader as Work),
        ("qsbr", qsbr_reader),
        ("rcu", rcu_reader),
        ("rcu, thread looked up", rcu_looked_up),
        ("epoch", epoch_reader),
        ("interval", interval_reader),
        ("interval, in a section that is kept", interval_kept),
        ("hazard, protect and clear", hazard_slot),
        ("hazard", hazard_reader),
        ("counted", counted_reader),
        #[cfg(feature = "urcu")]
        ("liburcu-memb", urcu::memb_reader),
        #[cfg(feature = "urcu")]
        ("liburcu-qsbr", urcu::qsbr_reader),
        ("crossbeam-epoch, handle kept", crossbeam_handle),
        ("crossbeam-epoch, looked up", crossbeam_reader),
        ("haphazard, protect and clear", haphazard_slot),
        ("seize", seize_reader),
        ("std Arc (count)", arc_reader),
    ]
}

/// No protection.
#[inline(never)]
fn none_reader(times: u64) -> u64 {
    let root = &*ROOT;
    (0..times).map(|_| follow(root.load(Acquire))).sum()
}

#[inline(never)]
fn sections<D: Reclaim<Machine = Native>>(domain: &D, times: u64) -> u64 {
    let root = &*ROOT;
    let mut reader = domain.reader();
    let mut sum = 0;
    for _ in 0..times {
        let guard = reader.enter();
        sum += follow(guard.protect(0, root));
        drop(guard);
        // For a fair comparison of QSBR; what others do here is not counted with a section.
        if D::INFO.name == "qsbr" {
            reader.quiescent();
        }
    }
    sum
}

/// With a quiescent state after every section.
#[inline(never)]
fn qsbr_reader(times: u64) -> u64 {
    static DOMAIN: LazyLock<QsbrDomain<Native>> = LazyLock::new(QsbrDomain::new_in);
    sections(&*DOMAIN, times)
}

#[inline(never)]
fn rcu_reader(times: u64) -> u64 {
    static DOMAIN: LazyLock<RcuDomain<Native>> = LazyLock::new(RcuDomain::new_in);
    sections(&*DOMAIN, times)
}

/// Where nothing keeps the reader from section to section.
#[inline(never)]
fn rcu_looked_up(times: u64) -> u64 {
    let (root, domain) = (&*ROOT, rcu::global());
    (0..times).map(|_| follow(domain.enter().protect(0, root))).sum()
}

#[inline(never)]
fn epoch_reader(times: u64) -> u64 {
    static DOMAIN: LazyLock<EpochDomain<Native>> = LazyLock::new(EpochDomain::new_in);
    sections(&*DOMAIN, times)
}

#[inline(never)]
fn counted_reader(times: u64) -> u64 {
    static DOMAIN: LazyLock<CountedDomain<Native>> = LazyLock::new(CountedDomain::new_in);
    sections(&*DOMAIN, times)
}

static INTERVALS: LazyLock<IntervalDomain<Native>> = LazyLock::new(IntervalDomain::new_in);

#[inline(never)]
fn interval_reader(times: u64) -> u64 {
    sections(&*INTERVALS, times)
}

/// What a further pointer costs.
#[inline(never)]
fn interval_kept(times: u64) -> u64 {
    let root = &*ROOT;
    let reader = INTERVALS.reader();
    let guard = reader.enter();
    (0..times).map(|_| follow(guard.protect(0, root))).sum()
}

static HAZARDS: LazyLock<HazardDomain<Native>> = LazyLock::new(HazardDomain::new_in);

/// A guard per pointer.
#[inline(never)]
fn hazard_reader(times: u64) -> u64 {
    sections(&*HAZARDS, times)
}

/// A guard that is kept.
#[inline(never)]
fn hazard_slot(times: u64) -> u64 {
    let root = &*ROOT;
    let reader = HAZARDS.reader();
    let guard = reader.enter();
    let mut sum = 0;
    for _ in 0..times {
        sum += follow(guard.protect(0, root));
        guard.clear(0);
    }
    sum
}

static CROSSBEAM: LazyLock<crossbeam_epoch::Atomic<u64>> = LazyLock::new(|| crossbeam_epoch::Atomic::new(1));

/// As `rcu` with a reader that is kept.
#[inline(never)]
fn crossbeam_handle(times: u64) -> u64 {
    let root = &*CROSSBEAM;
    let handle = crossbeam_epoch::default_collector().register();
    let mut sum = 0;
    for _ in 0..times {
        let guard = handle.pin();
        // SAFETY: never replaced.
        sum += unsafe { *root.load(Acquire, &guard).deref() };
    }
    sum
}

/// As `rcu` with the thread looked up each time.
#[inline(never)]
fn crossbeam_reader(times: u64) -> u64 {
    use crossbeam_epoch::pin;
    let root = &*CROSSBEAM;
    let mut sum = 0;
    for _ in 0..times {
        let guard = pin();
        // SAFETY: never replaced.
        sum += unsafe { *root.load(Acquire, &guard).deref() };
    }
    sum
}

#[inline(never)]
fn haphazard_slot(times: u64) -> u64 {
    use haphazard::HazardPointer;
    static OWN: LazyLock<haphazard::AtomicPtr<u64>> = LazyLock::new(|| Box::new(1).into());
    let root = &*OWN;
    let mut hazard = HazardPointer::new();
    let mut sum = 0;
    for _ in 0..times {
        // SAFETY: never replaced.
        sum += unsafe { root.load(&mut hazard) }.map_or(0, |word| *word);
        hazard.reset_protection();
    }
    sum
}

#[inline(never)]
fn seize_reader(times: u64) -> u64 {
    use seize::{Collector, Guard};
    static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);
    let (root, collector) = (&*ROOT, &*COLLECTOR);
    let mut sum = 0;
    for _ in 0..times {
        let guard = collector.enter();
        sum += follow(guard.protect(root, Acquire));
    }
    sum
}

/// A reference count in the object, without which the paper begins: two atomic instructions. (By itself it
/// does not even make it safe to follow the pointer.)
#[inline(never)]
fn arc_reader(times: u64) -> u64 {
    use std::sync::Arc;
    static OWN: LazyLock<Arc<u64>> = LazyLock::new(|| Arc::new(1));
    let root = &*OWN;
    (0..times).map(|_| *std::hint::black_box(Arc::clone(root))).sum()
}

#[cfg(feature = "urcu")]
mod urcu {
    use super::ROOT;
    // The shim is linked into the library.
    use latchwork_workloads as _;

    unsafe extern "C" {
        fn latchwork_urcu_memb_register();
        fn latchwork_urcu_memb_unregister();
        fn latchwork_urcu_memb_read(root: *const core::ffi::c_void, times: u64) -> u64;
        fn latchwork_urcu_qsbr_register();
        fn latchwork_urcu_qsbr_unregister();
        fn latchwork_urcu_qsbr_read(root: *const core::ffi::c_void, times: u64) -> u64;
    }

    pub fn memb_reader(times: u64) -> u64 {
        let root = ROOT.as_ptr().cast();
        // SAFETY: the thread is registered while it reads, and what it reads is never freed.
        unsafe {
            latchwork_urcu_memb_register();
            let sum = latchwork_urcu_memb_read(root, times);
            latchwork_urcu_memb_unregister();
            sum
        }
    }

    pub fn qsbr_reader(times: u64) -> u64 {
        let root = ROOT.as_ptr().cast();
        // SAFETY: the root points to a word that is never freed; the thread registers and unregisters itself.
        unsafe {
            latchwork_urcu_qsbr_register();
            let sum = latchwork_urcu_qsbr_read(root, times);
            latchwork_urcu_qsbr_unregister();
            sum
        }
    }
}
