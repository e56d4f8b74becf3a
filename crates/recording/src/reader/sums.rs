//! Sums of what the file has of classes and pairs, and of what threads have not yet added to them.

use super::bytes::{get, index, u32_at, u64_at};
use super::file::Reader;
use super::model::*;
use crate::histogram;
use crate::layout::{self, HOLDERS, READY};
use std::collections::HashMap;
use std::mem::offset_of;

/// Threads, and where each record of the file is among them.
pub(super) struct Threads {
    pub(super) list: Vec<Thread>,
    pub(super) numbers: HashMap<u32, usize>,
}

/// The name in the record of a class.
fn name(record: &[u8]) -> String {
    let bytes = &record[offset_of!(layout::Class, name)..][..layout::NAME];
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).escape_debug().to_string()
}

/// Numbers and nanoseconds.
#[derive(Default)]
pub(super) struct Sums {
    /// Waits by class, waiter and cause.
    pub(super) pairs: HashMap<(usize, usize, Cause), Sum>,
    /// The same of waits for the mutex again, after a wait for a condition.
    pub(super) relocks: HashMap<(usize, usize, Cause), Sum>,
    /// Holds by class, holder, and whether for reading.
    pub(super) holds: HashMap<(usize, usize, bool), Sum>,
}

/// As in a [`layout::Pair`].
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) nanos: u64,
    pub(super) squares: u64,
}

impl Sums {
    /// Adds what a [`layout::Pair`] has. One with a stack that is not there is left out.
    pub(super) fn add(&mut self, class: usize, waiter: u32, holder: u32, more: Sum, stacks: &[Vec<u64>]) {
        let sum = match waiter {
            layout::holds::WRITE | layout::holds::READ => {
                let holder = index(holder, stacks).unwrap_or(0);
                self.holds.entry((class, holder, waiter == layout::holds::READ)).or_default()
            }
            _ => {
                let pairs = match waiter & layout::RELOCK {
                    0 => &mut self.pairs,
                    _ => &mut self.relocks,
                };
                let waiter = index(waiter & !layout::RELOCK, stacks);
                let (Some(waiter), Some(cause)) = (waiter, Cause::new(holder, stacks)) else { return };
                pairs.entry((class, waiter, cause)).or_default()
            }
        };
        sum.count = sum.count.saturating_add(more.count);
        sum.nanos = sum.nanos.saturating_add(more.nanos);
        sum.squares = sum.squares.saturating_add(more.squares);
    }
}

/// The classes while counters are added to them.
pub(super) struct Classes {
    pub(super) list: Vec<Class>,
    /// From the number in the file.
    pub(super) numbers: HashMap<u32, usize>,
    /// From the number in the file: class, number in the class, address and serial number.
    pub(super) objects: HashMap<u32, (usize, usize, u64, u32)>,
}

impl Classes {
    pub(super) fn new(reader: &Reader, stacks: &[Vec<u64>]) -> Self {
        type Of = layout::Class;
        let mut classes = Self { list: Vec::new(), numbers: HashMap::new(), objects: HashMap::new() };
        for (number, record) in reader.records(layout::CLASSES).enumerate() {
            let number_of_kind = get!(record, Of, kind, u32);
            let Some(kind) = Kind::new(number_of_kind & !layout::kind::OWN) else { continue };
            if get!(record, Of, state, u32) != READY {
                continue;
            }
            classes.numbers.insert(number as u32, classes.list.len());
            classes.list.push(Class {
                kind,
                birth: index(get!(record, Of, birth, u32), stacks).unwrap_or(0),
                instances: u64::from(get!(record, Of, instances, u32)),
                address: get!(record, Of, address, u64),
                name: name(record),
                own: number_of_kind & layout::kind::OWN != 0,
                counters: counters(record, offset_of!(Of, counters)),
                waits: reader.histogram(get!(record, Of, waits, u32)),
                holds: reader.histogram(get!(record, Of, holds, u32)),
                objects: Vec::new(),
            });
        }
        classes
    }

    pub(super) fn number(&self, number: u32) -> Option<usize> {
        self.numbers.get(&number).copied()
    }

    /// The counters of an object, which a number and a serial number name; or of its class, if that object is gone.
    pub(super) fn counters(&mut self, class: usize, (object, serial): (u32, u32)) -> &mut Counters {
        match self.objects.get(&object) {
            Some((of, number, _, found)) if (*of, *found) == (class, serial) => {
                &mut self.list[class].objects[*number]
            }
            _ => &mut self.list[class].counters,
        }
    }

    pub(super) fn add_objects(&mut self, reader: &Reader) {
        type Of = layout::Object;
        for (number, record) in reader.records(layout::OBJECTS).enumerate() {
            let Some(class) = self.number(get!(record, Of, class, u32)) else { continue };
            if get!(record, Of, state, u32) != READY {
                continue;
            }
            let objects = &mut self.list[class].objects;
            let (address, serial) = (get!(record, Of, address, u64), get!(record, Of, serial, u32));
            self.objects.insert(number as u32, (class, objects.len(), address, serial));
            objects.push(counters(record, offset_of!(Of, counters)));
        }
    }

    /// Adds what threads counted for themselves.
    pub(super) fn add_tables(&mut self, reader: &Reader) {
        type Of = layout::Entry;
        let tables = reader.records(layout::TABLES).map(|table| &table[..offset_of!(layout::Table, tallies)]);
        for entries in tables.chain(reader.records(layout::MORE)) {
            for entry in entries.chunks_exact(size_of::<Of>()) {
                let address = get!(entry, Of, address, u64);
                if address == 0 {
                    continue;
                }
                let counted = Counters {
                    acquisitions: get!(entry, Of, acquisitions, u64),
                    reads: u64::from(get!(entry, Of, reads, u32)),
                    failed: u64::from(get!(entry, Of, failed, u32)),
                    ..Counters::default()
                };
                let serial = entry[offset_of!(Of, serial)];
                let object = self.objects.get(&get!(entry, Of, object, u32));
                match object {
                    Some((class, object, found, of_object))
                        if (*found, *of_object as u8) == (address, serial) =>
                    {
                        self.list[*class].objects[*object].add(&counted);
                    }
                    _ => {
                        if let Some(class) = self.number(get!(entry, Of, class, u32)) {
                            self.list[class].counters.add(&counted);
                        }
                    }
                }
            }
        }
    }

    /// Adds the objects to their classes.
    pub(super) fn finish(mut self) -> Vec<Class> {
        for class in &mut self.list {
            class.objects.iter().for_each(|object| class.counters.add(object));
            class.instances = class.instances.max(class.objects.len() as u64);
        }
        self.list
    }
}

/// Adds the wait that a thread has not added yet.
pub(super) fn add_pending(record: &[u8], classes: &mut Classes, sums: &mut Sums, stacks: &[Vec<u64>]) {
    type Of = layout::Pending;
    let class = get!(record, Of, class, u32).checked_sub(1).and_then(|class| classes.number(class));
    let (Some(class), waiter) = (class, get!(record, Of, waiter, u32)) else { return };
    let nanos = get!(record, Of, nanos, u64);
    let object = (get!(record, Of, object, u32), get!(record, Of, serial, u32));
    classes.counters(class, object).add_wait(nanos);
    if let Some(count) = classes.list[class].waits.get_mut(histogram::bucket(nanos)) {
        *count += 1;
    }
    let weight = get!(record, Of, weight, u32);
    if weight == 0 {
        return;
    }
    let mut add = |holder, nanos: u64| {
        let count = u64::from(weight);
        let (nanos, squares) = (nanos.saturating_mul(count), layout::squares(weight, nanos));
        sums.add(class, waiter, holder, Sum { count, nanos, squares }, stacks);
    };
    add(layout::cause::WHOLE, nanos);
    let mut left = nanos;
    for part in 0..=HOLDERS {
        let holder = u32_at(record, offset_of!(Of, holders) + 4 * part);
        let length = u64_at(record, offset_of!(Of, parts) + 8 * part).min(left);
        if length == 0 {
            break;
        }
        if holder != layout::cause::WHOLE && Cause::new(holder, stacks).is_some() {
            left -= length;
            add(holder, length);
        }
    }
    if left > 0 {
        let cause = if left == nanos { layout::cause::UNKNOWN } else { layout::cause::HANDOVER };
        add(cause, left);
    }
}

fn counters(record: &[u8], at: usize) -> Counters {
    type Of = layout::Counters;
    let record = &record[at..at + size_of::<Of>()];
    Counters {
        acquisitions: get!(record, Of, acquisitions, u64),
        reads: get!(record, Of, reads, u64),
        failed: get!(record, Of, failed, u64),
        contended: get!(record, Of, contended, u64),
        wait_nanos: get!(record, Of, wait_nanos, u64),
        wait_max: get!(record, Of, wait_max, u64),
        timeouts: get!(record, Of, timeouts, u64),
        hold_nanos: get!(record, Of, hold_nanos, u64),
        hold_samples: get!(record, Of, hold_samples, u64),
        hold_max: get!(record, Of, hold_max, u64),
        relocks: get!(record, Of, relocks, u64),
        relock_nanos: get!(record, Of, relock_nanos, u64),
        most_waiting: get!(record, Of, most_waiting, u64),
        read_nanos: get!(record, Of, read_nanos, u64),
        read_samples: get!(record, Of, read_samples, u64),
        most_readers: get!(record, Of, most_readers, u64),
        timed_nanos: get!(record, Of, timed_nanos, u64),
        spun_nanos: get!(record, Of, spun_nanos, u64),
        successions: get!(record, Of, successions, u64),
        owner_changes: get!(record, Of, owner_changes, u64),
        cpu_changes: get!(record, Of, cpu_changes, u64),
        node_changes: get!(record, Of, node_changes, u64),
    }
}
