//! Safe functions of the tables with hostile arguments: whatever they are given, nothing undefined happens. They may
//! panic, refuse, or wait for a while; nothing that was freed is touched, and nothing that was never allocated.
//!
//! Run natively, and under valgrind's memcheck, which reports each access to memory that is not the program's.

use latchwork::machine::Native;
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork_workloads::tables::bucket_lock::BucketLocked;
use latchwork_workloads::tables::locked::{Guard, Ideal, Locked};
use latchwork_workloads::tables::michael::Michael;
use latchwork_workloads::tables::readers::{Reference, Section};
use latchwork_workloads::tables::{Shape, Table, Visitor, visit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

/// Whether the attempt panics; that is no harm.
fn refused(attempt: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

struct Each(Vec<&'static str>);

impl Visitor<Native> for Each {
    fn table<T: Table<Machine = Native>>(&mut self) {
        let shape = Shape { buckets: 4, elements: 40, threads: 2, waiting: 1 };
        for buckets in [0, 3, usize::MAX] {
            assert!(refused(|| drop(T::new(&Shape { buckets, ..shape }))), "{}", T::INFO.name);
        }
        let (mut one, other) = (T::new(&shape), T::new(&shape));
        {
            let mut handle = one.join(usize::MAX);
            let mut others = other.join(0);
            for key in [0, 1, 5, u64::MAX, u64::MAX - 4, 1 << 63] {
                assert_eq!(one.insert(&mut handle, key, key), Ok(true), "{}", T::INFO.name);
                assert_eq!(one.insert(&mut handle, key, 0), Ok(false));
                // SAFETY: the handle is of this table.
                let found = unsafe { (one.get(&mut handle, key), one.get(&mut handle, 2)) };
                assert_eq!(found, (Ok(Some(key)), Ok(None)));
                assert_eq!(one.remove(&mut handle, 2), Ok(false));
            }
            // With a handle of another table, which only `get` has to be promised not to be given.
            let mixes = !refused(|| {
                _ = one.insert(&mut others, 9, 9);
                _ = one.remove(&mut others, 9);
                one.quiescent(&mut others);
            });
            if !mixes {
                self.0.push(T::INFO.name);
            }
            assert_eq!(one.remove(&mut handle, 5), Ok(true));
            one.quiescent(&mut handle);
        }
        _ = one.waiting();
        let mut sum = 0u64;
        one.each(|key, value| sum = sum.wrapping_add(key ^ value));
        assert_eq!(sum, 0, "{}", T::INFO.name);
    }
}

#[test]
fn nothing_undefined_happens() {
    std::panic::set_hook(Box::new(|_| ()));
    let mut each = Each(Vec::new());
    visit(&mut each);
    each.table::<BucketLocked<RcuDomain<Native>, Section>>();
    each.table::<Michael<CountedDomain<Native>, Reference>>();
    each.table::<Locked<Ideal<Native>>>();
    // Whose guards protect nothing elsewhere, and whose updates read the chain under a guard.
    assert_eq!(each.0, ["counted-nbs", "counted-nbs"]);
    let ideal = Ideal::<Native>::new();
    let () = Ideal::<Native>::bucket();
    assert_eq!(ideal.read(&(), || 1) + ideal.write(&(), || 2), 3);
}

/// Memcheck reports no error in the test above.
#[test]
fn nothing_undefined_is_seen_by_memcheck() {
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .args(["--leak-check=no", "--fair-sched=yes", "--error-exitcode=99"])
        .arg(exe)
        .args(["--exact", "nothing_undefined_happens", "--test-threads=1"])
        .output()
        .expect("it runs; where valgrind is missing: sudo apt-get install valgrind");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let seen = ["1 passed", "ERROR SUMMARY: 0 errors"].iter().all(|line| said.contains(line));
    assert!(output.status.success() && seen, "{said}");
}
