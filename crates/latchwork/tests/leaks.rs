//! Nothing leaks. Every retired object is freed by the end of its domain, also the objects of threads that have exited.
//! The memory that the library keeps for the process does not grow. The allocator counts, so the test has a process of
//! its own.

use latchwork::machine::{Machine, Native};
use latchwork::map::{RcuMap, RcuTreeMap};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::{RcuDomain, global};
use latchwork::reclaim::{Guard, Header, Rcu, Reader, Reclaim, Retire};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::*};
use std::sync::{Barrier, Mutex};

struct Counting;
static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: the caller keeps the conditions of `GlobalAlloc::alloc`, which are those of `System`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: the caller keeps the conditions of `GlobalAlloc::dealloc`; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[repr(C)]
struct Object {
    header: Header,
    owned: Vec<u8>,
}
// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {}

/// Threads read, retire objects inside nested guards, and exit.
fn churn<D: Reclaim<Machine = Native>>() {
    let domain = D::new_in();
    let make = || Box::into_raw(Box::new(Object { header: Header::new(), owned: vec![7; 100] }));
    let root = <Native as Machine>::Ptr::new(make());
    let all_there = Barrier::new(8);
    let body = || {
        for _ in 0..300 {
            let mut reader = domain.reader();
            let guards: [_; 4] = std::array::from_fn(|_| reader.enter());
            let object = guards[3].protect(1, &root);
            // SAFETY: the guard protects the object.
            assert_eq!(unsafe { &*object }.owned[99], 7);
            // SAFETY: the exchange gave the object to this thread alone, and readers protect it in this domain.
            unsafe { domain.retire(root.swap(make(), AcqRel)) };
            drop(guards);
            reader.quiescent();
        }
        // No thread gets the record of another: so every churn uses the same number of records.
        all_there.wait();
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(body)).collect();
        // The end of the scope waits only for the threads' closures. `join` also waits until their records are given
        // back.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    // SAFETY: the threads have exited, and the last object was not retired.
    drop(unsafe { Box::from_raw(root.load(Acquire)) });
}

/// The fewest bytes that three runs of `body` leave allocated: the test's harness allocates at the same time, but not
/// during every run.
fn always_left(body: fn()) -> isize {
    (0..3).map(|_| left(body)).min().unwrap()
}

/// Bytes that `body` leaves allocated.
fn left(body: fn()) -> isize {
    let before = BYTES.load(Relaxed);
    body();
    BYTES.load(Relaxed) - before
}

/// One test, because the allocator counts for the whole process.
#[test]
fn nothing_leaks() {
    let strategies: [(&str, fn()); 6] = [
        ("rcu", churn::<RcuDomain<Native>>),
        ("qsbr", churn::<QsbrDomain<Native>>),
        ("epoch", churn::<EpochDomain<Native>>),
        ("hazard", churn::<HazardDomain<Native>>),
        ("interval", churn::<IntervalDomain<Native>>),
        ("counted", churn::<CountedDomain<Native>>),
    ];
    for (name, churn) in strategies {
        // The first run makes what the library keeps: the threads' records, and what belongs to them.
        churn();
        let left = always_left(churn);
        assert!(left <= 0, "{name}: {left} bytes");
    }
    let cell = || {
        let cell = Rcu::new(vec![0; 100]);
        (0..1000).for_each(|_| cell.update(|old| old.clone()));
        drop(cell);
        global().barrier();
    };
    cell();
    assert!(always_left(cell) <= 0);
    // A map that is filled and cleared uses the same memory each time.
    static MAP: Mutex<Option<RcuMap<u32, Box<u32>>>> = Mutex::new(None);
    let fill_and_clear = || {
        let map = MAP.lock().unwrap();
        let map = map.as_ref().unwrap();
        (0..5000).for_each(|key| _ = map.insert(key, Box::new(key)));
        map.clear();
        global().barrier();
    };
    *MAP.lock().unwrap() = Some(RcuMap::new());
    (0..3).for_each(|_| fill_and_clear());
    let left = always_left(fill_and_clear);
    assert!(left <= 0, "clear: {left} bytes");
    *MAP.lock().unwrap() = None;
    // Maps that have used their memory again and again give it back when they end.
    let maps = || {
        let (map, boxes, tree) = (RcuMap::new(), RcuMap::new(), RcuTreeMap::new());
        for round in 0..3_u32 {
            for key in 0..500_u32 {
                _ = (map.insert(key, round), boxes.insert(key, Box::new(round)), tree.insert(key, round));
            }
            (0..500).for_each(|key| _ = (map.remove(&key), boxes.remove(&key), tree.remove(&key)));
            global().barrier();
        }
        _ = (map.insert(0, 0), boxes.insert(0, Box::new(0)));
        drop((map, boxes, tree));
        global().barrier();
    };
    maps();
    let left = always_left(maps);
    assert!(left <= 0, "maps: {left} bytes");
    // The counter notices a leak.
    static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let leak = || KEPT.lock().unwrap().extend([0; 1000]);
    assert!(always_left(leak) > 0);
}
