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

/// A value, which is written to after it is made: loom takes a cell's creation for a part of the thread's previous step.
fn value(number: u32, dropped: &Arc<std::sync::atomic::AtomicU32>) -> Value {
    let value = Value { number: UnsafeCell::new(0), dropped: dropped.clone() };
    // SAFETY: no other thread has it.
    value.number.with_mut(|this| unsafe { *this = number });
    value
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

/// Looks at the value that it has removed, which another thread may have made.
fn cell_swaps(shared: &Cell) {
    let old = shared.cell.swap(value(2, &shared.dropped));
    assert_ne!(number(&old), 0, "a value that was dropped");
    drop(old);
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
    check("cell", bounded(1), start_cell, &[cell_swaps, cell_swaps], end_cell);
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

/// A place whose object gets the tag 1, or makes room for another one, after the note was written.
struct Noted {
    typed: Typed,
    note: UnsafeCell<bool>,
}

// SAFETY: loom checks how the note is used.
unsafe impl Sync for Noted {}

fn start_noted() -> Noted {
    Noted { typed: start_typed(), note: UnsafeCell::new(false) }
}

/// The ways to change a place, and to see that it was changed.
const WAYS: [fn(&Noted); 5] = [tells::<0>, tells::<1>, tells::<2>, tells::<3>, tells::<4>];
const LOOKS: [fn(&Noted); 7] = [sees::<0>, sees::<1>, sees::<2>, sees::<3>, sees::<4>, sees::<5>, sees::<6>];

fn tells<const WAY: u32>(this: &Noted) {
    let Typed { domain, place, dropped } = &this.typed;
    // SAFETY: no other thread looks at the note before the place changes.
    this.note.with_mut(|note| unsafe { *note = true });
    let guard = domain.enter();
    let seen = place.load(&guard);
    let new = || Some(Owned::new(value(2, dropped)).with_tag(1));
    match WAY {
        0 => drop(place.swap(new(), domain)),
        1 => drop(place.compare_exchange(seen, new(), domain, &guard).ok()),
        2 => drop(place.compare_exchange_tag(seen, 1, &guard)),
        // SAFETY: the object is linked there alone, before and after.
        3 => unsafe { place.store_shared(seen.with_tag(1)) },
        // SAFETY: the object is linked there alone, before and after.
        _ => drop(unsafe { place.compare_exchange_shared(seen, seen.with_tag(1), &guard) }),
    }
}

fn sees<const WAY: u32>(this: &Noted) {
    let Typed { domain, place, .. } = &this.typed;
    let guard = domain.enter();
    let changed = place.load(&guard).with_tag(1);
    let other = changed.with_tag(2);
    let sees = match WAY {
        0 => place.load(&guard).tag() == 1,
        1 => place.compare_exchange(changed, None, domain, &guard).is_ok(),
        2 => place.compare_exchange(other, None, domain, &guard).is_err_and(|now| now.current.tag() == 1),
        3 => place.compare_exchange_tag(changed, 2, &guard).is_ok(),
        4 => place.compare_exchange_tag(other, 0, &guard).is_err_and(|now| now.tag() == 1),
        // SAFETY: the object is linked there alone, before and after.
        5 => unsafe { place.compare_exchange_shared(changed, changed, &guard) }.is_ok(),
        // SAFETY: the object is linked there alone, before and after.
        _ => unsafe { place.compare_exchange_shared(other, other, &guard) }.is_err_and(|now| now.tag() == 1),
    };
    if sees {
        // SAFETY: only read.
        this.note.with(|note| assert!(unsafe { *note }));
    }
}

/// Every way to change a place releases, and every way to see the change acquires.
#[test]
fn typed_orders() {
    for way in WAYS {
        check("typed", bounded(1), start_noted, &[way, sees::<0>], |this| end_typed(&this.typed));
    }
    for look in LOOKS {
        check("typed", bounded(1), start_noted, &[tells::<2>, look], |this| end_typed(&this.typed));
    }
}
