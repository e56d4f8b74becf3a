//! A forgotten read guard holds up the reclamation of the whole process, and nothing else: all updates go on, the hook says
//! which thread it was, and memory grows by what is retired. When the guard is gone, the memory comes back. The test has a
//! process of its own, because it counts all memory.

use latchwork::machine::Native;
use latchwork::map::{RcuMap, RcuTreeMap, RcuTreeSet};
use latchwork::reclaim::rcu::{RcuDomain, global};
use latchwork::reclaim::{AtLimit, Header, Limit, Rcu, Retire};
use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::forget;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Updates of each thread: enough for hundreds of batches above the limit.
const UPDATES: u64 = 20_000;

/// Threads that come and go, while the guard is forgotten.
const THREADS: u64 = 10_000;

/// Removed elements of a map that are retired as one object.
const BATCH: u64 = 21;

/// The limit of garbage, in objects.
const LIMIT: u64 = 1000;

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// An object of a domain of its own.
#[repr(C)]
struct Object {
    header: Header,
    value: [u64; 5],
}
// SAFETY: `repr(C)`, the header first; made by boxes.
unsafe impl Retire for Object {}

/// Calls the function when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn updates_go_on_when_a_guard_was_forgotten() {
    // SAFETY: ends a process that hangs.
    unsafe { libc::alarm(500) };
    global().set_limit(Limit { objects: LIMIT, bytes: u64::MAX });
    global().set_at_limit(AtLimit::Wait { nanos: 10_000_000 });
    static BLAMED: AtomicU32 = AtomicU32::new(0);
    global().on_stall(|stall| BLAMED.store(stall.thread, Relaxed));
    let own = RcuDomain::<Native>::new_in();
    own.set_limit(Limit { objects: LIMIT, bytes: u64::MAX });
    own.set_at_limit(AtLimit::Grow);
    let (first, second, cell) = (RcuMap::from([(1, 1)]), RcuMap::new(), Rcu::new(0));
    let (forgotten, over) = (&Barrier::new(2), &Barrier::new(2));
    let reader = &AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the call takes no arguments and touches no memory.
            reader.store(unsafe { libc::gettid() } as u32, Relaxed);
            let guard = first.get(&1);
            forgotten.wait();
            over.wait();
            drop(guard);
        });
        forgotten.wait();
        // Also if an assertion fails: the scope waits for the reader.
        let _over = OnDrop(|| _ = over.wait());
        let update = |thread: u64, updates: u64| {
            for update in 0..updates {
                second.insert(thread, update);
                cell.replace(update);
                let object = Object { header: Header::new(), value: [update; 5] };
                // SAFETY: no other thread has ever had it.
                unsafe { own.retire(Box::into_raw(Box::new(object))) };
            }
            second.remove(&thread);
        };
        // What the tables of threads take, before anything is counted.
        std::thread::scope(|scope| (0..4).for_each(|thread| _ = scope.spawn(move || update(thread, 1))));
        let before = ALLOCATED.load(Relaxed);
        std::thread::scope(|scope| {
            (0..2).for_each(|thread| _ = scope.spawn(move || update(thread, UPDATES)))
        });
        let after_two = (ALLOCATED.load(Relaxed), global().garbage(), own.garbage());
        for round in 0..THREADS / 4 {
            std::thread::scope(|scope| {
                (0..4).for_each(|thread| _ = scope.spawn(move || update(round % 2 * 4 + thread, 1)));
            });
        }
        // All that was retired is there.
        let garbage = (global().garbage(), own.garbage());
        assert_eq!(garbage.1.objects, 4 + 2 * UPDATES + THREADS);
        // Each replaces a cell, and as many elements as it inserts; the map retires them in batches, and may have grown.
        let expected = garbage.1.objects + garbage.1.objects / BATCH;
        assert!(garbage.0.objects.abs_diff(expected) < 1000, "{garbage:?}");
        assert!(garbage.0.overruns > 0 && garbage.1.overruns > 0, "{garbage:?}");
        assert_eq!(BLAMED.load(Relaxed), reader.load(Relaxed));
        // And nothing else has grown, with the updates or with the threads. What an allocation takes beyond its object,
        // and what the map keeps of its nodes for the next ones, is less than half as much again.
        let retired = |global: &latchwork::reclaim::Garbage, own: &latchwork::reclaim::Garbage| {
            (global.bytes + own.bytes) as usize
        };
        let most = retired(&garbage.0, &garbage.1) * 3 / 2 + 500_000;
        let grown = ALLOCATED.load(Relaxed) - before;
        assert!(grown <= most, "{grown} bytes for {garbage:?}");
        assert!(retired(&after_two.1, &after_two.2) < retired(&garbage.0, &garbage.1), "{after_two:?}");
    });
    // Updates that return a reference to the new element wait at the limit as well, though they retire in its section.
    let (map, tree, set) = (RcuMap::new(), RcuTreeMap::new(), RcuTreeSet::new());
    // A map retires its elements in batches, a tree some pages with each element.
    let (of_map, of_tree) = (3 * BATCH * LIMIT / 2, 3 * LIMIT);
    type Update<'a> = (&'a str, u64, &'a dyn Fn(u64));
    let updates: [Update; 8] = [
        ("update", of_map, &|n| _ = map.update(0, |_| Some(n))),
        ("insert_or_update", of_map, &|n| _ = map.insert_or_update(0, n, |_| n)),
        ("alter", of_map, &|n| _ = map.alter(&0, |_| n)),
        ("entry", of_map, &|n| _ = map.entry(0).insert_entry(n)),
        ("try_insert into a tree", of_tree, &|n| _ = tree.try_insert(n, 0)),
        ("get_or_insert into a tree", of_tree, &|n| _ = tree.get_or_insert(of_tree + n, 0)),
        ("update of a tree", of_tree, &|n| _ = tree.update(0, |_| Some(n))),
        ("insert into a set", of_tree, &|n| _ = set.insert(n)),
    ];
    let mut missed = Vec::new();
    for (name, count, update) in updates {
        let waited = global().garbage().overruns;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = global().enter();
                forgotten.wait();
                over.wait();
                drop(guard);
            });
            forgotten.wait();
            let _over = OnDrop(|| _ = over.wait());
            (0..count).for_each(update);
            if global().garbage().overruns == waited {
                missed.push(name);
            }
        });
        global().barrier();
    }
    assert!(missed.is_empty(), "did not wait: {missed:?}");
    drop((map, tree, set));
    // The guard is gone.
    global().barrier();
    own.barrier();
    assert!(global().is_clean() && own.is_clean());
    assert!(second.is_empty());
    // The map keeps the memory of its nodes for other elements until it is dropped.
    drop((own, first, second, cell));
    let left = ALLOCATED.load(Relaxed);
    assert!(left <= 500_000, "{left} bytes are still allocated");

    // A guard that is forgotten by a thread that exits: nothing is reclaimed any more, and updates go on all the same.
    let (first, second) = (RcuMap::from([(1, 1)]), RcuMap::new());
    std::thread::scope(|scope| scope.spawn(|| forget(first.get(&1))).join().unwrap());
    (0..UPDATES).for_each(|update| _ = second.insert(update % 7, update));
    assert!(global().garbage().objects > UPDATES / BATCH / 2);
}
