//! Every reclamation strategy on a simulated machine: with more processors than there are here, readers are
//! safe, everything is reclaimed, and a run can be repeated exactly.

use latchwork::machine::{Arith, Machine, Word};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{Guard, Header, Reader, Reclaim, Retire};
use latchwork_sim::{Options, Profile, Sim, run, work};
use std::cell::Cell;
use std::sync::atomic::Ordering::*;

/// Lines of its own: which objects share one must not depend on the allocator.
#[repr(C, align(128))]
struct Object {
    header: Header,
    alive: <Sim as Machine>::U32,
}

std::thread_local! {
    /// All simulated threads run on one.
    static RECLAIMED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {
    unsafe fn reclaim(this: *mut Self) {
        RECLAIMED.set(RECLAIMED.get() + 1);
        // Not freed: a reader that comes too late sees it.
        // SAFETY: leaked by `make`.
        unsafe { (*this).alive.store(0, Relaxed) };
    }
}

fn make() -> *mut Object {
    Box::leak(Box::new(Object { header: Header::new(), alive: Word::new(1) }))
}

const READERS: usize = 12;
const UPDATES: usize = 300;

/// The trace's hash, and how many objects were reclaimed.
fn simulate<D: Reclaim<Machine = Sim>>() -> (u64, usize) {
    RECLAIMED.set(0);
    let (domain, root) = (D::new_in(), <Sim as Machine>::Ptr::new(make()));
    let left = <Sim as Machine>::U32::new(2);
    let read = || {
        let mut reader = domain.reader();
        while left.load(Relaxed) != 0 {
            let guard = reader.enter();
            let object = guard.protect(0, &root);
            work(200);
            // SAFETY: objects are not freed.
            let alive = unsafe { (*object).alive.load(Relaxed) };
            assert_eq!(alive, 1, "{}: a reader saw a reclaimed object", D::INFO.name);
            drop(guard);
            reader.quiescent();
            work(100);
        }
    };
    let update = || {
        for _ in 0..UPDATES {
            // SAFETY: removed here, by nobody else.
            unsafe { domain.retire(root.swap(make(), AcqRel)) };
            work(300);
        }
        domain.barrier();
        left.fetch_sub(1, Relaxed);
    };
    let mut bodies: Vec<Box<dyn FnOnce()>> = vec![Box::new(update), Box::new(update)];
    bodies.extend((0..READERS).map(|_| Box::new(read) as Box<dyn FnOnce()>));
    let profile = Profile::find("8x24").expect("there is such a machine");
    let report = run(&profile, &Options::default(), bodies).expect("everybody gets through");
    (report.trace_hash, RECLAIMED.get())
}

fn check<D: Reclaim<Machine = Sim>>() {
    let first = simulate::<D>();
    assert_eq!(first.1, 2 * UPDATES, "{}", D::INFO.name);
    assert_eq!(first, simulate::<D>(), "{}: another run of the same", D::INFO.name);
}

#[test]
fn strategies_run_on_a_simulated_machine() {
    check::<RcuDomain<Sim>>();
    check::<QsbrDomain<Sim>>();
    check::<EpochDomain<Sim>>();
    check::<HazardDomain<Sim>>();
    check::<IntervalDomain<Sim>>();
    check::<CountedDomain<Sim>>();
}
