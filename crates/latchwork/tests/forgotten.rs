//! A forgotten read guard holds up the reclamation of the whole process, and nothing else. The test has a process of its
//! own, because nothing is reclaimed in that process afterwards.

use latchwork::map::RcuMap;
use latchwork::reclaim::rcu::global;
use latchwork::reclaim::{Limit, Rcu};

/// Updates of each thread: enough for hundreds of batches above the limit.
const UPDATES: u64 = 20_000;

/// The limit of garbage, in objects.
const LIMIT: u64 = 1000;

#[test]
fn updates_go_on_when_a_guard_was_forgotten() {
    // SAFETY: ends a process that hangs.
    unsafe { libc::alarm(300) };
    global().set_limit(Limit { objects: LIMIT, bytes: u64::MAX });
    let (first, second, cell) = (RcuMap::from([(1, 1)]), RcuMap::new(), Rcu::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(first.get(&1))).join().unwrap();
        for thread in 0..2 {
            let (second, cell) = (&second, &cell);
            scope.spawn(move || {
                for update in 0..UPDATES {
                    second.insert(thread, update);
                    cell.replace(update);
                }
                second.remove(&thread);
            });
        }
    });
    assert!(second.is_empty());
    let garbage = global().garbage();
    assert!(garbage.objects > LIMIT && garbage.overruns > 0, "{garbage:?}");
}
