//! Tests of the lists of garbage, and of what a forked child finds in them.

use super::super::forks::in_a_child;
use super::super::header::note;
use super::*;
use core::sync::atomic::{AtomicBool, AtomicUsize};

unsafe extern "C-unwind" fn free(header: *mut Header) {
    // SAFETY: the test made a box.
    drop(unsafe { Box::from_raw(header) });
}

/// An object for a list.
pub(in super::super) fn retired() -> *mut Header {
    let header = Box::into_raw(Box::new(Header::new()));
    // SAFETY: the header is valid and this thread's alone.
    unsafe { note(header, 24, free) };
    header
}

/// Reclaims everything.
fn reclaim(backlog: &Backlog<Native>) {
    let collecting = backlog.lock();
    collecting.steal(Steal::All);
    collecting.list().take(|| 0);
    // SAFETY: no thread uses the objects.
    unsafe { collecting.list().reclaim() };
}

/// A thread is about to push onto the shared stack at the fork, and is not there in the child. What it has added to the
/// amount does not count there, and what threads of the child push meanwhile does.
#[test]
fn a_child_counts_what_is_on_the_stack() {
    let backlog = &Backlog::<Native>::new();
    record::own::<Native>(); // so that forks are noticed
    backlog.push_shared(retired());
    let lost = 2 << 32 | 1;
    backlog.stack.amount.fetch_add(lost, Relaxed);
    let counts = || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| assert!(backlog.push_shared(retired()) > 0)));
            }
            (0..100).for_each(|_| assert!(backlog.lock().steal(Steal::All)));
        });
        let all = backlog.garbage().objects == 4001;
        reclaim(backlog);
        all && backlog.is_clean()
    };
    assert!(in_a_child(counts));
    backlog.stack.amount.fetch_sub(lost, Relaxed);
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// In the child, all objects of the central list count: those that wait, and those that have come in since.
#[test]
fn a_child_counts_what_is_in_the_central_list() {
    let backlog = &Backlog::<Native>::new();
    record::own::<Native>(); // so that forks are noticed
    for waits in [true, false] {
        backlog.push_shared(retired());
        let collecting = backlog.lock();
        collecting.steal(Steal::All);
        assert!(!waits || collecting.list().take(|| 0));
    }
    assert!(in_a_child(|| {
        drop(backlog.lock());
        backlog.garbage().objects == 2
    }));
    // SAFETY: no thread uses the objects.
    unsafe { backlog.lock().list().reclaim() };
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// Large tables, and what they stand for, may have more bytes than a list counts: none of them counts as an object.
#[test]
fn bytes_that_do_not_fit_count_as_no_objects() {
    const LARGE: u64 = 40;
    let large = || {
        let header = retired();
        // SAFETY: the header is valid and this thread's alone.
        unsafe { note(header, u32::MAX, free) };
        header
    };
    let backlog = &Backlog::<Native>::new();
    let check = |objects| {
        let garbage = backlog.garbage();
        assert_eq!(garbage.objects, objects);
        assert!(garbage.bytes >= 60 << 30, "{}", garbage.bytes);
    };
    (0..LARGE).for_each(|_| _ = backlog.push(large(), 1 << 31));
    check(LARGE);
    (0..LARGE).for_each(|_| _ = backlog.push_shared(large()));
    check(2 * LARGE);
    let collecting = backlog.lock();
    collecting.steal(Steal::All);
    check(2 * LARGE);
    assert_eq!(u64::from(collecting.list().count()), 2 * LARGE);
    drop(collecting);
    reclaim(backlog);
    assert_eq!(backlog.garbage(), Garbage::default());
    assert!(backlog.is_clean());
}

/// As a collector leaves it that a fork has not taken along.
#[test]
fn a_list_that_was_left_stopped_is_set_free() {
    let backlog = &Backlog::<Native>::new();
    _ = backlog.push(retired(), 1 << 31);
    backlog.mine().expect("no other thread collects").stop();
    assert!(backlog.mine().is_none());
    backlog.lock().steal(Steal::Old);
    assert!(backlog.mine().is_some());
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// A thread that is preempted while it has its list costs the collector no heavy fence, unless the collector waits for it.
#[test]
fn a_list_that_is_busy_for_long_costs_no_heavy_fence() {
    if !Native::prepare_fences() {
        return;
    }
    let backlog = &Backlog::<Native>::new();
    // Where the fence is refused, to steal fails only if a fence is needed.
    let needs_a_fence = |which| {
        let steals = || {
            crate::machine::alone::refuse(libc::SYS_membarrier, None);
            !backlog.lock().steal(which)
        };
        std::thread::scope(|scope| scope.spawn(steals).join().unwrap())
    };
    let mine = backlog.mine().expect("no other thread collects");
    mine.put(retired(), 1);
    assert_eq!([Steal::Old, Steal::Free].map(needs_a_fence), [false; 2], "while it is busy");
    drop(mine);
    assert_eq!([Steal::Old, Steal::Free, Steal::All].map(needs_a_fence), [true; 3]);
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// A thread whose list is stopped reclaims as often as others.
#[test]
fn a_batch_on_the_shared_stack_is_full() {
    let backlog = &Backlog::<Native>::new();
    backlog.list(record::own::<Native>().number.load(Relaxed)).expect("it has a number").stop();
    let full = (0..2 * LARGEST_BATCH).filter(|_| backlog.push(retired(), 1 << 31) == Due::Full).count();
    assert_eq!(full, 2);
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// A thread that retires few objects looks at the clock with each of them, and one that has just filled a batch with each 64th.
#[test]
fn looks_are_rare_after_a_full_batch() {
    let backlog = &Backlog::<Native>::new();
    backlog.never_soon();
    let next = || backlog.mine().expect("no other thread collects").next_look();
    _ = backlog.push(retired(), 1 << 31);
    assert_eq!(next(), 2);
    let full = |count| (0..count).filter(|_| backlog.push(retired(), 1 << 31) == Due::Full).count();
    assert_eq!(full(LARGEST_BATCH - 1), 1);
    reclaim(backlog);
    _ = backlog.push(retired(), 1 << 31);
    assert_eq!(next(), super::super::due::LOOK);
    assert_eq!(full(LARGEST_BATCH - 1), 1);
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// What comes in counts, also when a part of it has been reclaimed.
#[test]
fn a_list_counts_what_is_left() {
    let list = List::<Native>::new();
    let objects = [1, 2, 3].map(|stamp| {
        let object = retired();
        // SAFETY: the object is this thread's alone.
        unsafe { (*object).set_stamp(stamp) };
        list.put(object, 1);
        object
    });
    // SAFETY: no thread uses the objects.
    unsafe { list.reclaim_if(|header| !core::ptr::eq(header, objects[1])) };
    assert_eq!((list.count(), list.amount().objects()), (1, 1));
    list.take(|| 0);
    // SAFETY: as above.
    unsafe { list.reclaim() };
    assert!(list.is_empty());
}

#[test]
fn garbage_is_as_old_as_its_oldest_object_and_batches_shrink_with_the_lists() {
    let backlog = &Backlog::<Native>::new();
    backlog.set_limit(Limit { objects: 512, bytes: u64::MAX });
    assert_eq!(backlog.batch.load(Relaxed), batch(512, 1));
    let now = Native::now(Clock::Monotonic);
    for number in 1..=8 {
        let list = backlog.list(number).expect("there are lists for millions of threads");
        list.put(retired(), if number == 2 { 1 } else { now });
    }
    assert!(backlog.garbage().oldest_nanos >= now - 1);
    backlog.adapt(0);
    assert_eq!(backlog.batch.load(Relaxed), batch(512, 8));
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// Whenever another thread asks, no object is older than its list.
#[test]
fn no_object_is_older_than_its_list() {
    let begin = Native::now(Clock::Monotonic);
    let lists: &Vec<_> = &(0..100_000).map(|_| List::<Native>::new()).collect();
    let (at, over) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    let oldest = std::thread::scope(|scope| {
        scope.spawn(|| {
            for (number, list) in lists.iter().enumerate() {
                at.store(number, Relaxed);
                list.push_first(retired(), || ());
                list.take(|| 0);
                // SAFETY: no thread uses the object.
                unsafe { list.reclaim() };
            }
            over.store(true, Relaxed);
        });
        let mut oldest = u64::MAX;
        while !over.load(Relaxed) {
            oldest = lists[at.load(Relaxed)].oldest().unwrap_or(u64::MAX).min(oldest);
        }
        oldest
    });
    assert!(oldest >= begin, "{oldest}");
}

#[test]
fn the_oldest_object_says_how_old_a_list_is() {
    let list = List::<Native>::new();
    for (since, oldest) in [(100, 100), (50, 50), (70, 50)] {
        list.put(retired(), since);
        assert_eq!(list.oldest(), Some(oldest));
    }
    assert!(list.take(|| 0));
    list.put(retired(), 200);
    assert_eq!(list.oldest(), Some(50));
    for _ in 0..2 {
        // SAFETY: no thread uses the objects.
        unsafe { list.reclaim() };
        list.take(|| 0);
    }
    assert!(list.is_empty());
}

/// A fork may come between any two stores of a thread that retires. In the child, no list has more objects than it says:
/// else the amount would wrap around when they are reclaimed.
#[test]
fn a_child_has_no_object_that_does_not_count() {
    let backlog = &Backlog::<Native>::new();
    let over = &AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                for _ in 0..500 {
                    _ = backlog.push(retired(), 1 << 31);
                }
                let mine = backlog.mine().expect("no other thread collects");
                mine.take(|| 0);
                // SAFETY: no thread uses the objects.
                unsafe { mine.reclaim() };
            }
        });
        let wrong = (0..100).filter(|_| !in_a_child(|| backlog.lists().all(List::is_counted))).count();
        over.store(true, Relaxed);
        wrong
    });
    assert_eq!(wrong, 0);
}

/// Two batches for each list stay below the limit, or, with many lists, one for each of some tens.
#[test]
fn batches_share_the_limit() {
    assert_eq!([0, 1, 2, 4, 8, 100].map(|lists| batch(512, lists)), [256, 256, 128, 64, 32, 16]);
    assert_eq!([1, 8, 100].map(|lists| batch(100_000, lists)), [LARGEST_BATCH; 3]);
    assert_eq!(batch(0, 1), 16);
    for limit in [512, 1000, 10_000, 20_000, 1 << 20] {
        for lists in 1..=16 {
            assert!(u64::from(batch(limit, lists)) * 2 * lists <= limit);
        }
        assert!(u64::from(batch(limit, 1000)) <= (limit / 32).max(16));
    }
}

/// Each record has a list of its own; a record without a number has none.
#[test]
fn each_number_has_a_place_of_its_own() {
    let places: Vec<_> = (1..1000).map(locate).collect();
    let all: Vec<_> =
        (0..).flat_map(|chunk| (0..length(chunk)).map(move |at| (chunk, at))).take(999).collect();
    assert_eq!(places, all);
    assert_eq!(locate((1 << CHUNKS) - 1), (CHUNKS - 1, length(CHUNKS - 1) - 1));
    let backlog = Backlog::<Native>::new();
    assert!(backlog.list(1).is_some() && backlog.made(0).is_none());
    assert!(locate(0).0 >= CHUNKS && locate(1 << CHUNKS).0 == CHUNKS);
}

/// Objects that are not small fill a batch with each 32nd of the limit on bytes, and small ones with the caller's number of objects.
#[test]
fn bytes_and_the_caller_bound_a_batch() {
    let backlog = &Backlog::<Native>::new();
    backlog.never_soon();
    backlog.set_limit(Limit { objects: u64::MAX, bytes: 32 * 16 * SMALL as u64 });
    let full = |bytes, most| {
        let retire = |_: &u32| {
            let object = retired();
            // SAFETY: the header is valid and this thread's alone.
            unsafe { note(object, bytes, free) };
            backlog.push(object, most) == Due::Full
        };
        let full = (0..64).filter(retire).count();
        reclaim(backlog);
        full
    };
    assert_eq!(full(4 * SMALL as u32, 1 << 31), 64 / 4);
    assert_eq!(full(24, 16), 64 / 16);
    assert!(backlog.is_clean());
}

/// The first object of a thread makes the batches smaller, for one more list.
#[test]
fn a_new_list_makes_batches_smaller() {
    let backlog = &Backlog::<Native>::new();
    backlog.set_limit(Limit { objects: 512, bytes: u64::MAX });
    let other = record::own::<Native>().number.load(Relaxed) + 1;
    backlog.list(other).expect("there are lists for millions of threads").put(retired(), 1);
    _ = backlog.push(retired(), 1 << 31);
    assert_eq!(backlog.batch.load(Relaxed), batch(512, 2));
    reclaim(backlog);
    assert!(backlog.is_clean());
}

/// A destructor that retires has its thread's list a second time. Afterwards the thread still has it.
#[test]
fn a_list_that_is_used_twice_stays_busy() {
    let backlog = &Backlog::<Native>::new();
    let outer = backlog.mine().expect("no other thread collects");
    drop(backlog.mine().expect("no other thread collects"));
    assert!(is_busy(&outer));
    drop(outer);
    assert!(!backlog.is_reclaiming());
}
