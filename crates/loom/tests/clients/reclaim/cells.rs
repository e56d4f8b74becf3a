//! Clients of the safe interfaces of reclamation: the cell and the typed pointer, whose users write no `unsafe`.

use super::{bounded, check};
use crate::machine::{Loom, Mistake};
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::typed::{Atomic, Owned};
use latchwork::reclaim::{Reader, Reclaim};
use loom::cell::UnsafeCell;
use std::sync::Arc;

/// A value of the safe cell: a read is one of its number, and dropping it a write, so that loom sees them
/// overlap.
struct Value {
    number: UnsafeCell<u32>,
    dropped: Arc<std::sync::atomic::AtomicU32>,
}

// SAFETY: loom checks how the number is used.
unsafe impl Sync for Value {}
// SAFETY: a value has nothing of its thread's.
unsafe impl Send for Value {}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: if a thread still reads the number, loom reports that.
        self.number.with_mut(|number| unsafe { *number = 0 });
        self.dropped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The safe cell, in a domain that lives as long as it.
pub(super) struct Cell {
    cell: std::mem::ManuallyDrop<latchwork::reclaim::Rcu<Value, RcuDomain<Loom>>>,
    domain: *mut RcuDomain<Loom>,
    dropped: Arc<std::sync::atomic::AtomicU32>,
}

impl Drop for Cell {
    fn drop(&mut self) {
        // SAFETY: once, the cell first; the threads are gone.
        unsafe {
            std::mem::ManuallyDrop::drop(&mut self.cell);
            drop(Box::from_raw(self.domain));
        }
    }
}

// SAFETY: the domain is shared, and freed with the cell.
unsafe impl Sync for Cell {}
// SAFETY: the last thread frees both, after the others are joined.
unsafe impl Send for Cell {}

fn value(number: u32, dropped: &Arc<std::sync::atomic::AtomicU32>) -> Value {
    Value { number: UnsafeCell::new(number), dropped: dropped.clone() }
}

pub(super) fn start_cell() -> Cell {
    let dropped = Arc::default();
    let domain = Box::into_raw(Box::new(RcuDomain::<Loom>::new_in()));
    // SAFETY: freed after the cell.
    let cell = latchwork::reclaim::Rcu::new_in(value(1, &dropped), unsafe { &*domain });
    Cell { cell: std::mem::ManuallyDrop::new(cell), domain, dropped }
}

fn number(value: &Value) -> u32 {
    // SAFETY: only read.
    value.number.with(|number| unsafe { *number })
}

pub(super) fn cell_reads(shared: &Cell) {
    // SAFETY: the threads are joined before it is freed.
    let reader = unsafe { &*shared.domain }.reader();
    let guard = reader.enter();
    assert_ne!(number(shared.cell.read(&guard)), 0, "a reader saw a value that was dropped");
}

pub(super) fn cell_replaces(shared: &Cell) {
    shared.cell.replace(value(2, &shared.dropped));
    // SAFETY: the threads are joined before the domain is freed.
    unsafe { &*shared.domain }.barrier();
}

/// Twice as much as it was, plus one.
fn cell_updates(shared: &Cell) {
    shared.cell.update(|old| value(2 * number(old) + 1, &shared.dropped));
    // SAFETY: the threads are joined before the domain is freed.
    unsafe { &*shared.domain }.barrier();
}

/// Everything has been dropped but the last value.
fn end_cell(shared: &Cell) {
    let last = {
        // SAFETY: the domain is freed after this.
        let reader = unsafe { &*shared.domain }.reader();
        let guard = reader.enter();
        number(shared.cell.read(&guard))
    };
    // Two updates are both seen; a replacement comes before or after an update.
    assert!([2, 5, 7].contains(&last), "an update was lost: {last}");
    let made = Arc::strong_count(&shared.dropped) as u32 - 1;
    assert_eq!(made, 1, "values that were replaced are not dropped");
}

#[test]
fn cell() {
    check("cell", bounded(2), start_cell, &[cell_replaces, cell_reads], end_cell);
    check("cell", bounded(1), start_cell, &[cell_updates, cell_updates], end_cell);
    check("cell", bounded(1), start_cell, &[cell_updates, cell_replaces], end_cell);
    // With a preemption more, two threads that update take two minutes of processor time.
    check("cell", bounded(0), start_cell, &[cell_updates, cell_updates, cell_reads], end_cell);
    check("cell", bounded(0), start_cell, &[cell_updates, cell_replaces, cell_reads], end_cell);
}

/// A typed pointer: the value is that of the cell's tests.
struct Typed {
    domain: RcuDomain<Loom>,
    place: Atomic<Value, RcuDomain<Loom>>,
    dropped: Arc<std::sync::atomic::AtomicU32>,
}

fn start_typed() -> Typed {
    let dropped = Arc::default();
    let place = Atomic::new_in(Some(Owned::new(value(0, &dropped))));
    Typed { domain: RcuDomain::new_in(), place, dropped }
}

fn typed_reads(this: &Typed) {
    let guard = this.domain.enter();
    this.place.load(&guard).as_ref().map(number);
}

fn typed_swaps(this: &Typed) {
    drop(this.place.swap(Some(Owned::new(value(1, &this.dropped))), &this.domain));
    this.domain.barrier();
}

fn typed_exchanges(this: &Typed) {
    let guard = this.domain.enter();
    let (mut seen, mut new) = (this.place.load(&guard), Some(Owned::new(value(2, &this.dropped))));
    let removed = loop {
        match this.place.compare_exchange(seen, new, &this.domain, &guard) {
            Ok(removed) => break removed,
            Err(unchanged) => (seen, new) = (unchanged.current, unchanged.new),
        }
    };
    removed.as_deref().map(number);
}

fn end_typed(this: &Typed) {
    this.place.store(None, &this.domain);
    this.domain.barrier();
}

#[test]
fn typed() {
    check("typed", bounded(2), start_typed, &[typed_swaps, typed_reads], end_typed);
    check("typed", bounded(1), start_typed, &[typed_swaps, typed_exchanges, typed_reads], end_typed);
    use Mistake::*;
    for mistake in [SkipsReader, NoHeavyFence, NoLightFence, RelaxedRelease, RelaxedAcquire] {
        crate::report("typed", || {
            let model = bounded(2).with_mistake(mistake);
            let failure = model.check_fails(start_typed, &[typed_swaps, typed_reads], |_| ());
            format!("{mistake:?}: {failure}")
        });
    }
}
