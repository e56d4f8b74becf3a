//! Under valgrind's memcheck: readers of every strategy, and of the map, touch nothing that was freed, and nothing is lost
//! at the end of the process. Memcheck catches a domain that reclaims at once.
//!
//! (Helgrind and DRD are of no use here: they take an atomic store for a store like any other, and each handover through
//! one for a race.)

use latchwork::machine::{Machine, Native};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::{RcuDomain, RcuGuard, global};
use latchwork::reclaim::{Garbage, Guard, Header, Info, Rcu, Reader, Reclaim, Retire};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::Ordering::*;

/// What the child of [`memcheck`] is to do.
const SUBJECT: &str = "LATCHWORK_MEMCHECK";
/// What valgrind exits with if there was an error.
const CAUGHT: i32 = 99;

#[repr(C)]
struct Object {
    header: Header,
    owned: Vec<u8>,
}
// SAFETY: `repr(C)`, the header first.
unsafe impl Retire for Object {}

/// Reclaims at once, even if threads read.
struct Broken(RcuDomain<Native>);

// SAFETY: none: memcheck has to catch this.
unsafe impl Reclaim for Broken {
    type Machine = Native;
    type Reader<'d> = <RcuDomain<Native> as Reclaim>::Reader<'d>;
    const INFO: Info = <RcuDomain<Native> as Reclaim>::INFO;

    fn new_in() -> Self {
        Broken(RcuDomain::new_in())
    }
    fn reader(&self) -> Self::Reader<'_> {
        self.0.reader()
    }
    fn covers<'r, 'd>(&self, _: &RcuGuard<'r, Native>) -> bool
    where
        Self::Reader<'d>: 'r,
    {
        true
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: none: memcheck has to catch this.
        unsafe { T::reclaim(object) };
    }
    fn collect(&self) {}
    fn barrier(&self) {}
    fn garbage(&self) -> Garbage {
        Garbage::default()
    }
}

/// Threads read, retire and exit. They still read what they have retired.
fn churn<D: Reclaim<Machine = Native>>() {
    let domain = D::new_in();
    let make = || Box::into_raw(Box::new(Object { header: Header::new(), owned: vec![7; 40] }));
    let root = <Native as Machine>::Ptr::new(make());
    let all_there = Barrier::new(4);
    let body = || {
        all_there.wait();
        for _ in 0..150 {
            let mut reader = domain.reader();
            let guards: [_; 3] = std::array::from_fn(|_| reader.enter());
            let object = guards[2].protect(1, &root);
            let old = root.swap(make(), AcqRel);
            // SAFETY: this thread's exchange has removed it.
            unsafe { domain.retire(old) };
            // SAFETY: the guard protects it.
            assert_eq!(unsafe { &*object }.owned[39], 7);
            drop(guards);
            reader.quiescent();
        }
    };
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(body)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
    domain.barrier();
    drop(domain);
    // SAFETY: the threads are gone.
    drop(unsafe { Box::from_raw(root.load(Acquire)) });
}

/// The safe layer: a cell, a table that grows and shrinks while it is read, and a tree.
fn safely() {
    use latchwork::map::{RcuMap, RcuTreeMap};
    let (cell, map, tree) = (Rcu::new(vec![0u8; 40]), RcuMap::new(), RcuTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (cell, map, tree) = (&cell, &map, &tree);
            scope.spawn(move || {
                for key in 0..150u64 {
                    cell.update(|old| old.clone());
                    map.insert(key << 2 | thread, vec![key; 3]);
                    assert_eq!(map.get(&(key << 2 | thread)).map(|value| value[2]), Some(key));
                    tree.insert(key << 2 | thread, vec![key; 3]);
                    // Another thread may have popped it.
                    assert!(tree.get(&(key << 2 | thread)).is_none_or(|value| value[2] == key));
                    assert!(tree.range(key..=key + 3).all(|value| value.len() == 3));
                    assert_eq!(cell.get().len(), 40);
                    if key % 2 == 0 {
                        map.remove(&(key << 2 | thread));
                        tree.pop_first();
                    }
                }
            });
        }
    });
    map.shrink_to_fit();
    drop((cell, map, tree));
    global().barrier();
}

/// Not a test of its own: the program that runs under valgrind.
#[test]
#[ignore = "run by `memcheck`"]
fn subject() {
    match std::env::var(SUBJECT).as_deref() {
        Ok("strategies") => {
            churn::<RcuDomain<Native>>();
            churn::<QsbrDomain<Native>>();
            churn::<EpochDomain<Native>>();
            churn::<HazardDomain<Native>>();
            churn::<IntervalDomain<Native>>();
            churn::<CountedDomain<Native>>();
            safely();
        }
        Ok("broken") => churn::<Broken>(),
        // SAFETY: eight bytes, which are not freed.
        Ok("leaky") => drop(std::hint::black_box(unsafe { libc::malloc(8) })),
        _ => (),
    }
}

/// Runs a subject under memcheck. Returns its exit status, and what it printed.
fn memcheck(subject: &str) -> (Option<i32>, String) {
    let output = Command::new("valgrind")
        .args(["--leak-check=full", "--errors-for-leak-kinds=definite", "--fair-sched=yes"])
        .arg(format!("--error-exitcode={CAUGHT}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "memcheck::subject", "--ignored", "--test-threads=1"])
        .env(SUBJECT, subject)
        .env("RUST_BACKTRACE", "0")
        .output();
    let output = output.expect("valgrind runs; where it is missing: sudo apt-get install valgrind");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &text)
}

#[test]
fn nothing_is_read_that_was_freed_and_nothing_is_lost() {
    let (status, said) = memcheck("strategies");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("1 passed") && said.contains("ERROR SUMMARY: 0 errors"), "{said}");
}

#[test]
fn who_reclaims_too_early_is_caught() {
    let (status, said) = memcheck("broken");
    assert_eq!(status, Some(CAUGHT), "{said}");
    assert!(said.contains("Invalid read"), "{said}");
}

#[test]
fn a_leak_is_caught() {
    let (status, said) = memcheck("leaky");
    assert_eq!(status, Some(CAUGHT), "{said}");
    assert!(said.contains("definitely lost: 8 bytes"), "{said}");
}
