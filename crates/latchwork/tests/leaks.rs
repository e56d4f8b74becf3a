//! Nothing leaks: every object that was retired is freed by the end of its domain, also those of threads
//! that have exited; and what stays for the process does not grow. Counted by the allocator, in a process
//! of its own.

use latchwork::machine::{Machine, Native};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::{RcuDomain, global};
use latchwork::reclaim::{Guard, Header, Rcu, Reader, Reclaim, Retire};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::*};
use std::sync::{Barrier, Mutex};

struct Counting;
static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator; counting changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: forwarded.
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

/// Threads read, retire and exit, some inside of a chain of nested guards.
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
            // SAFETY: protected.
            assert_eq!(unsafe { &*object }.owned[99], 7);
            // SAFETY: removed here, by nobody else.
            unsafe { domain.retire(root.swap(make(), AcqRel)) };
            drop(guards);
            reader.quiescent();
        }
        // Each has had a record of its own, and what belongs to it, in every churn alike.
        all_there.wait();
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(body)).collect();
        // The end of the scope waits for the threads' bodies alone; their records are given back after that.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    // SAFETY: the threads are gone.
    drop(unsafe { Box::from_raw(root.load(Acquire)) });
}

/// Bytes that `body` leaves allocated, at least: what others (the test's harness) allocate meanwhile is not
/// there each time.
fn always_left(body: fn()) -> isize {
    (0..3).map(|_| left(body)).min().unwrap()
}

/// Bytes that `body` leaves allocated.
fn left(body: fn()) -> isize {
    let before = BYTES.load(Relaxed);
    body();
    BYTES.load(Relaxed) - before
}

/// One test, because the allocator is the process's.
#[test]
fn nothing_leaks() {
    let strategies: [(&str, fn()); 5] = [
        ("rcu", churn::<RcuDomain<Native>>),
        ("qsbr", churn::<QsbrDomain<Native>>),
        ("epoch", churn::<EpochDomain<Native>>),
        ("hazard", churn::<HazardDomain<Native>>),
        ("counted", churn::<CountedDomain<Native>>),
    ];
    for (name, churn) in strategies {
        churn(); // what stays with the threads' records, and with the library, is there from now on
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
    // The counter counts.
    static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let leak = || KEPT.lock().unwrap().extend([0; 1000]);
    assert!(always_left(leak) > 0);
}
