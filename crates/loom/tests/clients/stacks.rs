//! loom's threads have the stacks that they had in the last execution: `crates/loom/generator` keeps them.

use crate::machine::Model;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Where each thread has a local variable, in whichever execution.
static PLACES: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Two threads have two stacks, however often they run.
#[test]
fn used_again() {
    fn adds(sum: &AtomicUsize) {
        let local = sum.fetch_add(1, Relaxed);
        PLACES.lock().expect("no thread panics").insert((&raw const local).addr());
    }
    for _ in 0..3 {
        Model::exhaustive().check(|| AtomicUsize::new(0), &[adds, adds], |_| ());
    }
    let places = PLACES.lock().expect("no thread panics");
    assert_eq!(places.len(), 2, "{places:x?}");
}
