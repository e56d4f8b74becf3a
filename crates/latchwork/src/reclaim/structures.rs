//! Tests of structures that are written with typed pointers, with hazard pointers, and with the cells.

use super::epoch::EpochDomain;
use super::hazard::{HazardDomain, HazardPointer};
use super::qsbr::QsbrDomain;
use super::rcu::{RcuDomain, global};
use super::typed::{Atomic, Covering, Owned, Shared};
use super::*;
use crate::machine::Native;
use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::*;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

/// What a value contains after it was dropped.
const POISON: usize = 0xdead;

/// A value that counts that it was dropped.
struct Value {
    number: usize,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.number = POISON;
        self.dropped.fetch_add(1, Relaxed);
    }
}

/// Two threads exchange, two read: no reader sees a value that was dropped, and each value is dropped once.
fn exchanges_are_safe<D: GracePeriod<Machine = Native> + Covering>() {
    const EACH: usize = 10_000;
    let domain = &D::new_in();
    let dropped = &Arc::new(AtomicUsize::new(0));
    let make = |number| Some(Owned::new(Value { number, dropped: dropped.clone() }));
    let place = &Atomic::<Value, D>::new_in(make(0));
    let last = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = domain.reader();
                while last.load(Relaxed) < 2 {
                    let guard = reader.enter();
                    let value = place.load(&guard).as_ref().map(|value| value.number);
                    assert!(value.is_none_or(|number| number <= 2 * EACH), "{}", D::INFO.name);
                    drop(guard);
                    reader.quiescent();
                }
            });
        }
        scope.spawn(|| {
            for number in 0..EACH {
                let old = place.swap(make(number).filter(|_| number % 7 != 0), domain);
                assert!(old.is_none_or(|old| old.number != POISON));
            }
            last.fetch_add(1, Relaxed);
        });
        scope.spawn(|| {
            let mut reader = domain.reader();
            for number in EACH..2 * EACH {
                let guard = reader.enter();
                let (mut seen, mut new) = (place.load(&guard), make(number));
                while let Err(unchanged) = place.compare_exchange(seen, new, domain, &guard) {
                    (seen, new) = (unchanged.current, unchanged.new);
                    assert!(seen.as_ref().is_none_or(|value| value.number != POISON));
                }
                drop(guard);
                reader.quiescent();
            }
            last.fetch_add(1, Relaxed);
        });
    });
    place.store(None, domain);
    domain.barrier();
    // One, and two for each number but those that were left out.
    let made = 1 + 2 * EACH;
    assert_eq!((dropped.load(Relaxed), Arc::strong_count(dropped)), (made, 1), "{}", D::INFO.name);
}

#[test]
fn exchanges() {
    exchanges_are_safe::<RcuDomain<Native>>();
    exchanges_are_safe::<EpochDomain<Native>>();
    exchanges_are_safe::<QsbrDomain<Native>>();
}

#[test]
fn tags_go_with_the_pointer() {
    let domain = RcuDomain::<Native>::new();
    let place = Atomic::<u64>::new_in(Some(Owned::new(7).with_tag(11)));
    let guard = domain.enter();
    let seen = place.load(&guard);
    assert_eq!((seen.tag(), seen.as_ref(), seen.is_null()), (3, Some(&7), false));
    let other = seen.with_tag(5);
    assert!(place.compare_exchange(other, None, &domain, &guard).is_err());
    assert_eq!(place.compare_exchange_tag(other, 1, &guard), Err(seen));
    assert_eq!(place.compare_exchange_tag(seen, 5, &guard), Ok(other));
    let removed = place.compare_exchange(other, None, &domain, &guard).unwrap();
    assert_eq!(removed.as_deref(), Some(&7));
    assert!(place.is_null() && place.load(&guard) == Shared::null());
    drop(removed);
    assert_eq!((seen.as_ref(), domain.garbage().objects), (Some(&7), 1));
    let mut place = place;
    assert_eq!(place.get_mut(), None);
    drop(guard);
    place = Atomic::new(8);
    *place.get_mut().unwrap() += 1;
    assert_eq!(place.into_owned().map(Owned::into_inner), Some(9));
}

/// Treiber's stack. A push links the top item in two places, for a moment.
struct Stack<D: GracePeriod + Covering> {
    top: ManuallyDrop<Atomic<Item<D>, D>>,
    domain: D,
}

struct Item<D: GracePeriod + Covering> {
    value: Value,
    next: ManuallyDrop<Atomic<Item<D>, D>>,
}

impl<D: GracePeriod<Machine = Native> + Covering> Stack<D> {
    fn new() -> Self {
        Stack { top: ManuallyDrop::new(Atomic::new_in(None)), domain: D::new_in() }
    }

    fn push(&self, value: Value) {
        let reader = self.domain.reader();
        let guard = reader.enter();
        let mut item = Some(Owned::new(Item { value, next: ManuallyDrop::new(Atomic::new_in(None)) }));
        loop {
            let top = self.top.load(&guard);
            let new = item.take().expect("it was not linked");
            // SAFETY: no thread sees the new item yet. It is linked only if the top is still the top.
            unsafe { new.next.store_shared(top) };
            match self.top.compare_exchange(top, Some(new), &self.domain, &guard) {
                // The previous top is linked behind the new item: it stays.
                Ok(previous) => return core::mem::forget(previous),
                Err(unchanged) => item = unchanged.new,
            }
        }
    }

    fn pop(&self) -> Option<usize> {
        let reader = self.domain.reader();
        let guard = reader.enter();
        loop {
            let top = self.top.load(&guard);
            let item = top.as_ref()?;
            let next = item.next.load(&guard);
            // SAFETY: the next item stays linked, here instead of in the item that this removes.
            if unsafe { self.top.compare_exchange_shared(top, next, &guard) }.is_ok() {
                // SAFETY: this exchange has removed it, and nothing else leads to it.
                let removed = unsafe { top.defer_destroy(&self.domain) };
                return removed.map(|item| item.value.number);
            }
        }
    }
}

fn a_stack_loses_nothing<D: GracePeriod<Machine = Native> + Covering>() {
    const EACH: usize = 5000;
    let stack = &Stack::<D>::new();
    let dropped = &Arc::new(AtomicUsize::new(0));
    let mut popped = std::thread::scope(|scope| {
        let body = |thread: usize| {
            let mut popped = Vec::new();
            for number in 0..EACH {
                stack.push(Value { number: thread * EACH + number, dropped: dropped.clone() });
                popped.extend(stack.pop().filter(|_| number % 3 > 0));
                popped.extend(stack.pop().filter(|_| number % 3 == 0));
            }
            popped
        };
        let threads = [0, 1, 2].map(|thread| scope.spawn(move || body(thread)));
        threads.map(|thread| thread.join().unwrap()).concat()
    });
    while let Some(number) = stack.pop() {
        popped.push(number);
    }
    stack.domain.barrier();
    assert_eq!((dropped.load(Relaxed), Arc::strong_count(dropped)), (3 * EACH, 1), "{}", D::INFO.name);
    popped.sort_unstable();
    assert!(
        popped.iter().all(|number| *number < 3 * EACH) && popped.windows(2).all(|pair| pair[0] < pair[1])
    );
}

#[test]
fn stacks() {
    a_stack_loses_nothing::<RcuDomain<Native>>();
    a_stack_loses_nothing::<EpochDomain<Native>>();
}

/// Hazard pointers over typed pointers.
#[test]
fn hazard_pointers_protect_what_is_typed() {
    const EACH: usize = 10_000;
    let domain = &HazardDomain::<Native>::new();
    let dropped = &Arc::new(AtomicUsize::new(0));
    let make = |number| Some(Owned::new(Value { number, dropped: dropped.clone() }).with_tag(number));
    let place = &Atomic::new_in(make(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut hazard = HazardPointer::new();
                for _ in 0..EACH {
                    let value = hazard.protect(place).expect("there always is one");
                    assert!(value.number <= EACH);
                }
            });
        }
        scope.spawn(|| (1..=EACH).for_each(|number| place.store(make(number), domain)));
    });
    place.store(None, domain);
    domain.barrier();
    assert_eq!((dropped.load(Relaxed), Arc::strong_count(dropped)), (EACH + 1, 1));
}

/// Work is deferred until the sections are over that run now; also work that defers work.
fn work_is_deferred<D: GracePeriod<Machine = Native>>() {
    let domain: &'static D = Box::leak(Box::new(D::new_in()));
    let done: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let number = Box::into_raw(Box::new(7));
    {
        let reader = domain.reader();
        let _guard = reader.enter();
        domain.defer(|| {
            done.fetch_add(1, Relaxed);
            domain.defer(|| _ = done.fetch_add(10, Relaxed));
        });
        // SAFETY: no other thread has it.
        unsafe { domain.retire_with(number, |number| _ = done.fetch_add(*Box::from_raw(number), Relaxed)) };
        domain.collect();
        assert_eq!(done.load(Relaxed), 0, "{}", D::INFO.name);
    }
    domain.barrier();
    domain.barrier();
    assert_eq!((done.load(Relaxed), domain.garbage().objects), (18, 0), "{}", D::INFO.name);
}

#[test]
fn work() {
    work_is_deferred::<RcuDomain<Native>>();
    work_is_deferred::<EpochDomain<Native>>();
    work_is_deferred::<QsbrDomain<Native>>();
}

/// The cells: what is swapped out is dropped once, and updates return what they were told to.
#[test]
fn cells() {
    static LAST: RcuOption<usize> = RcuOption::none();
    const EACH: usize = 2000;
    let counter = &Rcu::new(0);
    let mut numbers = std::thread::scope(|scope| {
        let take = || counter.update_with(|number| (number + 1, *number));
        let threads = [0, 1, 2].map(|_| scope.spawn(move || (0..EACH).map(|_| take()).collect::<Vec<_>>()));
        threads.map(|thread| thread.join().unwrap()).concat()
    });
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..3 * EACH), "two updates have returned the same number");
    assert_eq!(counter.try_update(|number| Err::<(usize, ()), _>(*number)), Err(3 * EACH));
    let dropped = Arc::new(AtomicUsize::new(0));
    let cell = Rcu::new(Value { number: 1, dropped: dropped.clone() });
    let number = Ref::map(cell.get(), |value| &value.number);
    let old = cell.swap(Value { number: 2, dropped: dropped.clone() });
    assert_eq!((*number, old.number, cell.get().number), (1, 1, 2));
    drop((number, old));
    global().barrier();
    assert_eq!((dropped.load(Relaxed), cell.into_inner().number), (1, 2));
    assert!(LAST.get().is_none() && LAST.is_none());
    std::thread::scope(|scope| {
        (0..3).for_each(|number| _ = scope.spawn(move || LAST.replace(Some(number))));
        scope.spawn(|| assert!(LAST.get().is_none_or(|last| *last < 3)));
    });
    let guard = global().enter();
    let seen = LAST.read(&guard).copied();
    assert_eq!(LAST.take().as_deref().copied(), seen);
    drop(guard);
    let shared = RcuArc::<[u8]>::new(Arc::from([1, 2]));
    let before = shared.snapshot();
    shared.replace(Arc::from([]));
    global().barrier();
    assert_eq!((&*before, Arc::strong_count(&before)), (&[1, 2][..], 1));
}
