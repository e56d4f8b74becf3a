//! Histories of a few operations by a few threads on one key: each must be one that a map used by one thread at a time can
//! have (linearizability, decided by search, after Wing and Gong 1993).

use super::{Random, rounds};
use latchwork::map::{Compute, Operation, RcuMap, RcuTreeMap};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Operations of a thread in a history.
const OPERATIONS: u64 = 7;
const THREADS: u64 = 3;

/// What was done to the key. Each value is written once.
#[derive(Copy, Clone, Debug)]
enum What {
    Get,
    Contains,
    Insert(u64),
    Replace(u64),
    TryInsert(u64),
    Remove,
    RemoveEntry,
    RemoveOdd,
    Add(u64),
    Compute(u64),
}

/// What it returned.
type Result = Option<u64>;

#[derive(Copy, Clone, Debug)]
struct Event {
    what: What,
    result: Result,
    began: u64,
    ended: u64,
}

/// What an operation does to the value, and returns, if no other thread interferes.
fn model(what: What, value: Option<u64>) -> (Option<u64>, Result) {
    let flag = |set: bool| set.then_some(0);
    match what {
        What::Get => (value, value),
        What::Contains => (value, flag(value.is_some())),
        What::Insert(new) => (Some(new), flag(value.is_none())),
        What::Replace(new) => (Some(new), value),
        What::TryInsert(new) => (value.or(Some(new)), Some(value.unwrap_or(new))),
        What::Remove => (None, flag(value.is_some())),
        What::RemoveEntry => (None, value),
        What::RemoveOdd if value.is_some_and(|value| value % 2 == 1) => (None, value),
        What::RemoveOdd => (value, None),
        What::Add(amount) => (value.map(|value| value + amount), value.map(|value| value + amount)),
        What::Compute(new) if value.is_none() => (Some(new), Some(new)),
        What::Compute(_) => (None, value),
    }
}

/// A map of which histories are taken.
trait Map: Default + Sync {
    /// Does something to the key 1.
    fn operate(&self, what: What) -> Result;
    /// Puts 20 other keys.
    fn fill(&self, from: u64);
    /// Removes all other keys.
    fn thin(&self);
    /// Gives up room.
    fn shrink(&self) {}
}

impl Map for RcuMap<u64, u64> {
    fn operate(&self, what: What) -> Result {
        operate(self, what)
    }
    fn fill(&self, from: u64) {
        (from..from + 20).for_each(|key| _ = self.insert(key, key));
    }
    fn thin(&self) {
        self.retain(|key, _| *key == 1);
    }
    fn shrink(&self) {
        self.shrink_to_fit();
    }
}

impl Map for RcuTreeMap<u64, u64> {
    fn operate(&self, what: What) -> Result {
        let flag = |set: bool| set.then_some(0);
        match what {
            What::Get => self.get(&1).as_deref().copied(),
            What::Contains => flag(self.read().contains_key(&1)),
            What::Insert(new) => flag(self.insert(1, new)),
            What::Replace(new) => self.replace(1, new).as_deref().copied(),
            What::TryInsert(new) => {
                Some(self.try_insert(1, new).map_or_else(|error| *error.current, |new| *new))
            }
            What::Remove => flag(self.remove(&1)),
            What::RemoveEntry => self.remove_entry(&1).as_deref().copied(),
            What::RemoveOdd => self.remove_if(&1, |_, value| value % 2 == 1).as_deref().copied(),
            What::Add(amount) => {
                self.update(1, |value| value.map(|value| value + amount)).as_deref().copied()
            }
            What::Compute(new) => {
                let mut seen = None;
                let step = |found: Option<&u64>| {
                    seen = found.copied();
                    found.is_none().then_some(new)
                };
                let now = self.update(1, step).as_deref().copied();
                seen.or(now)
            }
        }
    }
    fn fill(&self, from: u64) {
        (from..from + 20).for_each(|key| _ = self.insert(key, key));
    }
    fn thin(&self) {
        self.retain(|key, _| *key == 1);
    }
}

fn operate(map: &RcuMap<u64, u64>, what: What) -> Result {
    let flag = |set: bool| set.then_some(0);
    match what {
        What::Get => map.get(&1).as_deref().copied(),
        What::Contains => flag(map.contains_key(&1)),
        What::Insert(new) => flag(map.insert(1, new)),
        What::Replace(new) => map.replace(1, new).as_deref().copied(),
        What::TryInsert(new) => Some(map.try_insert(1, new).map_or_else(|error| *error.current, |new| *new)),
        What::Remove => flag(map.remove(&1)),
        What::RemoveEntry => map.remove_entry(&1).as_deref().copied(),
        What::RemoveOdd => map.remove_if(&1, |_, value| value % 2 == 1).as_deref().copied(),
        What::Add(amount) => map.alter(&1, |value| value + amount).as_deref().copied(),
        What::Compute(new) => {
            let step = |found: Option<(&u64, &u64)>| match found {
                None => Operation::<_, ()>::Insert(new),
                Some(_) => Operation::Remove,
            };
            match map.compute(1, step) {
                Compute::Inserted(new) => Some(*new),
                Compute::Removed(old) => old.as_deref().copied(),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn chosen(random: &mut Random, fresh: u64) -> What {
    match random.below(10) {
        0 => What::Get,
        1 => What::Contains,
        2 => What::Insert(fresh),
        3 => What::Replace(fresh),
        4 => What::TryInsert(fresh),
        5 => What::Remove,
        6 => What::RemoveEntry,
        7 => What::RemoveOdd,
        8 => What::Add(1000),
        _ => What::Compute(fresh),
    }
}

/// Whether the operations, each at some moment between its beginning and its end, do in some order what was seen.
fn has_order(events: &[Event]) -> bool {
    let all = (1u64 << events.len()) - 1;
    let (mut open, mut known) = (vec![(0u64, None)], HashSet::new());
    while let Some((done, value)) = open.pop() {
        if done == all {
            return true;
        }
        if !known.insert((done, value)) {
            continue;
        }
        let left = || (0..events.len()).filter(|at| done >> at & 1 == 0);
        // Only an operation can be next that began before each of the others had ended.
        let first_end = left().map(|at| events[at].ended).min().expect("some are left");
        for at in left().filter(|at| events[*at].began <= first_end) {
            let (then, result) = model(events[at].what, value);
            if result == events[at].result {
                open.push((done | 1 << at, then));
            }
        }
    }
    false
}

fn record(clock: &AtomicU64, what: What, operate: impl FnOnce(What) -> Result) -> Event {
    let began = clock.fetch_add(1, SeqCst);
    let result = operate(what);
    Event { what, result, began, ended: clock.fetch_add(1, SeqCst) }
}

/// A history of one key, while other keys come and go and the map is resized.
fn history<M: Map>(seed: u64) -> Vec<Event> {
    let (map, clock, start) = (M::default(), AtomicU64::new(0), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        let thread = |thread: u64| {
            let (map, clock, start) = (&map, &clock, &start);
            scope.spawn(move || {
                let mut random = Random::new(seed * THREADS + thread + 1);
                start.wait();
                let each = |number| {
                    let fresh = 1 + number * THREADS + thread;
                    match random.below(6) {
                        0 => map.fill(100 * (thread + 1)),
                        1 => map.thin(),
                        2 => map.shrink(),
                        _ => (),
                    }
                    record(clock, chosen(&mut random, fresh), |what| map.operate(what))
                };
                (0..OPERATIONS).map(each).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(thread).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_history_of_a_key_has_an_order() {
    for seed in 0..rounds(400) {
        for events in [history::<RcuMap<_, _>>(seed), history::<RcuTreeMap<_, _>>(seed)] {
            assert!(has_order(&events), "round {seed}: no order explains {events:#?}");
        }
    }
}

/// Two threads that each read a value, and then write what they have made of it.
#[test]
fn a_lost_update_has_no_order() {
    let (map, clock, between) = (RcuMap::from([(1, 5)]), AtomicU64::new(0), Barrier::new(2));
    let mut events = vec![record(&clock, What::Insert(5), |_| Some(0))];
    let torn = |_| {
        let value = *map.get(&1).unwrap();
        between.wait();
        map.insert(1, value + 1000);
        Some(value + 1000)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| record(&clock, What::Add(1000), torn))).collect();
        events.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    });
    assert!(!has_order(&events), "{events:#?}");
}

/// What the search knows of time: a lookup that begins after a removal has ended does not find what was removed.
#[test]
fn a_late_lookup_has_no_order() {
    let event = |what, result, began, ended| Event { what, result, began, ended };
    let insert = event(What::Insert(5), Some(0), 0, 1);
    let remove = event(What::Remove, Some(0), 2, 4);
    assert!(has_order(&[insert, remove, event(What::Get, Some(5), 3, 5)]), "they overlap");
    assert!(!has_order(&[insert, remove, event(What::Get, Some(5), 5, 6)]));
}
