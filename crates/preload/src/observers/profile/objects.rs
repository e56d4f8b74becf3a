//! Objects and classes.
//!
//! An object has a record from its first use, or its `init` call, until its `destroy` call. Then its counters are added to
//! its class and the record serves another object. If the program frees an object without a `destroy` call, the record stays,
//! and the recorder takes the next object of the same kind at that address for the same object. Objects in the data of a library go
//! with the library ([`retire_unloaded`]).
//!
//! If there is no record left, an object's calls are counted in its class only.

use super::file::{append, header, is_full, record};
use super::filter;
use super::index::{Index, mix};
use super::modules;
use core::sync::atomic::{AtomicU64, Ordering::*};
use latchwork_recording::layout::*;

static BY_ADDRESS: Index<{ 256 << 10 }> = Index::new();
static CLASSES_BY_BIRTH: Index<{ 64 << 10 }> = Index::new();

/// Records that are free again: a stack, linked through [`Object::class`]. Low half: the first record's index plus one.
/// High half: a number that each change increases, so that a change in between is noticed.
static FREE: AtomicU64 = AtomicU64::new(0);

/// The records of an object.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// [`NONE`]: there was no record left.
    pub(super) object: u32,
    pub(super) serial: u32,
    pub(super) class: u32,
}

/// Free records that a thread keeps for the next objects that it makes. Programs that make and destroy objects all the time would
/// contend for [`FREE`]. Zero bytes are none.
pub(super) struct Spare {
    indexes: [u32; SPARE],
    count: usize,
}

/// A thread keeps so many records.
const SPARE: usize = 16;

impl Spare {
    fn take(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        Some(self.indexes[self.count])
    }

    /// `false`: there is no room.
    fn give(&mut self, index: u32) -> bool {
        let Some(place) = self.indexes.get_mut(self.count) else { return false };
        *place = index;
        self.count += 1;
        true
    }
}

fn hash(address: usize) -> u64 {
    mix(address as u64 >> 2)
}

fn lookup(address: usize) -> Option<u32> {
    BY_ADDRESS.find(hash(address), |index| is_at(index, address))
}

fn is_at(index: u32, address: usize) -> bool {
    record::<Object>(index).address.load(Relaxed) == address as u64
}

/// The records of an object that has been used before.
pub(super) fn find(kind: u32, address: usize) -> Option<Found> {
    found(kind, lookup(address)?)
}

/// Those with this index, if the object is of this kind.
fn found(kind: u32, object: u32) -> Option<Found> {
    let found = record::<Object>(object);
    let class = found.class.load(Relaxed);
    let alike = record::<Class>(class).kind.load(Relaxed) == kind;
    alike.then(|| Found { object, serial: found.serial.load(Relaxed), class })
}

/// The records of an object. `birth` captures the stack if this is the object's first use. `last` is the calling thread's.
pub(super) fn find_or_make(
    kind: u32,
    address: usize,
    last: &mut modules::Last,
    birth: impl FnOnce() -> u32,
) -> Option<Found> {
    if let Some(index) = lookup(address) {
        if let Some(found) = found(kind, index) {
            return Some(found);
        }
        // Another kind of object was here before. Only that one is retired: another thread may have made the new one.
        retire_record(address, index, None);
    }
    let module = last.replaced_at(address);
    make(kind, address, module, birth(), None)
}

/// The records of an object that has none. `module` is what [`modules::Last::replaced_at`] said before the stack `birth` was captured: so
/// the stack knows the module that the object lies in. `spare`: the calling thread's, if no other call uses it.
pub(super) fn make(
    kind: u32,
    address: usize,
    module: Option<u16>,
    birth: u32,
    spare: Option<&mut Spare>,
) -> Option<Found> {
    let class = class_of(kind, birth, address, module)?;
    let make = || {
        let index = spare.and_then(Spare::take).or_else(take_free).or_else(|| append::<Object>(1))?;
        let object = record::<Object>(index);
        clear(object);
        object.class.store(class, Relaxed);
        object.address.store(address as u64, Relaxed);
        record::<Class>(class).instances.fetch_add(1, Relaxed);
        object.state.store(READY, Release);
        Some(index)
    };
    let discard = |index| {
        let object = record::<Object>(index);
        object.state.store(0, Relaxed);
        object.address.store(0, Relaxed);
        record::<Class>(class).instances.fetch_sub(1, Relaxed);
        give_free(index, object);
    };
    let object = BY_ADDRESS.insert(hash(address), |index| is_at(index, address), make, discard);
    Some(match object {
        // Another time there may be room in the table.
        None if !is_full::<Object>() => return None,
        None => Found { object: NONE, serial: 0, class },
        Some(object) => {
            let found = record::<Object>(object);
            Found { object, serial: found.serial.load(Relaxed), class: found.class.load(Relaxed) }
        }
    })
}

/// The class of objects of this kind that are first used at this stack.
fn class_of(kind: u32, birth: u32, address: usize, module: Option<u16>) -> Option<u32> {
    let name = latchwork_check::name_of(address);
    let address = if module.is_some() { address as u64 } else { 0 };
    // Whether the class is not that of an object of another module, which lay here before this one.
    let is_of_module = |class: &Class| {
        let first = class.birth.load(Relaxed);
        first == 0 || Some(record::<Stack>(first).replaced.load(Relaxed)) >= module
    };
    let is = |index| {
        let class = record::<Class>(index);
        class.kind.load(Relaxed) == kind
            && class.address.load(Relaxed) == address
            && if address != 0 { is_of_module(class) } else { class.birth.load(Relaxed) == birth }
            && match &name {
                None => class.name[0].load(Relaxed) == 0,
                Some(name) => class.name.iter().zip(name).all(|(is, byte)| is.load(Relaxed) == *byte),
            }
    };
    let make = || {
        let index = append::<Class>(1)?;
        let class = record::<Class>(index);
        class.kind.store(kind, Relaxed);
        class.birth.store(birth, Relaxed);
        class.address.store(address, Relaxed);
        class.name.iter().zip(name.iter().flatten()).for_each(|(to, byte)| to.store(*byte, Relaxed));
        class.state.store(READY, Release);
        Some(index)
    };
    let mut key = u64::from(kind) ^ if address != 0 { address } else { u64::from(birth) << 8 };
    if let Some(name) = &name {
        key = name.iter().fold(key, |key, byte| mix(key ^ u64::from(*byte)));
    }
    CLASSES_BY_BIRTH
        .find_or_insert(mix(key), is, make, |index| record::<Class>(index).state.store(0, Relaxed))
}

/// The object at this address is gone. `spare`: as in [`make`].
pub(super) fn retire(address: usize, spare: Option<&mut Spare>) {
    if let Some(index) = lookup(address) {
        retire_record(address, index, spare);
    }
}

/// The object at this address will be another one of another class. An object that was not used has never been one of its class.
pub(super) fn forget(address: usize, spare: Option<&mut Spare>) {
    if let Some(index) = lookup(address) {
        let object = record::<Object>(index);
        if object.counters.acquisitions.load(Relaxed) == 0 && object.counters.contended.load(Relaxed) == 0 {
            record::<Class>(object.class.load(Relaxed)).instances.fetch_sub(1, Relaxed);
        }
        retire_record(address, index, spare);
    }
}

/// Calls `retire` with each object in the data of a library that is not loaded any more.
pub(super) fn retire_unloaded(mut retire: impl FnMut(usize)) {
    let classes = header().sections[CLASSES].count.load(Relaxed);
    for index in BY_ADDRESS.indexes() {
        let object = record::<Object>(index);
        let address = object.address.load(Relaxed) as usize;
        // Another thread may retire the object meanwhile: then its class may be any number.
        let class = object.class.load(Relaxed);
        let is_static =
            class < classes && record::<Class>(class).address.load(Relaxed) == address as u64 && address != 0;
        if is_static && !modules::is_loaded(address) {
            retire(address);
        }
    }
}

fn retire_record(address: usize, index: u32, spare: Option<&mut Spare>) {
    if !BY_ADDRESS.remove(hash(address), index) {
        return;
    }
    let object = record::<Object>(index);
    object.state.store(0, Relaxed);
    // Threads that know the record by its serial number now count for the class. This thread has removed the record from the
    // index, so no other one retires it.
    object.serial.store(object.serial.load(Relaxed).wrapping_add(1), Relaxed);
    filter::gone(address);
    if object.last.load(Relaxed) != 0 && object.last.swap(0, Relaxed) != 0 {
        filter::unwatch(address);
    }
    object.address.store(0, Relaxed);
    if object.used.load(Relaxed) != 0 {
        object.used.store(0, Relaxed);
        merge(&object.counters, &record::<Class>(object.class.load(Relaxed)).counters);
        object.holders.iter().for_each(|holder| holder.store(0, Relaxed));
        object.holder_nanos.iter().for_each(|nanos| nanos.store(0, Relaxed));
        object.recent.iter().for_each(|recent| recent.store(0, Relaxed));
    }
    if !spare.is_some_and(|spare| spare.give(index)) {
        give_free(index, object);
    }
}

/// Adds the counters of an object to those of its class.
fn merge(from: &Counters, to: &Counters) {
    macro_rules! each {
        ($($sum:ident)* , $($most:ident)*) => {
            // Most are 0: an exchange would take longer than a look.
            $(if from.$sum.load(Relaxed) != 0 {
                to.$sum.fetch_add(from.$sum.swap(0, Relaxed), Relaxed);
            })*
            $(if from.$most.load(Relaxed) != 0 {
                to.$most.fetch_max(from.$most.swap(0, Relaxed), Relaxed);
            })*
        };
    }
    each!(acquisitions reads failed contended wait_nanos timeouts hold_nanos hold_samples relocks relock_nanos
        read_nanos read_samples timed_nanos spun_nanos successions owner_changes cpu_changes node_changes,
        wait_max hold_max most_waiting most_readers);
}

fn clear(object: &Object) {
    object.waiting.store(0, Relaxed);
    object.first_waiter.store(0, Relaxed);
    object.account.store(0, Relaxed);
    object.holder.store(0, Relaxed);
    object.charged_until.store(0, Relaxed);
    object.first_holder.store(0, Relaxed);
    object.uncharged.store(0, Relaxed);
    object.late.store(0, Relaxed);
    object.last.store(0, Relaxed);
}

fn give_free(index: u32, object: &Object) {
    let mut head = FREE.load(Relaxed);
    loop {
        object.class.store(head as u32, Relaxed);
        let new = (head >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
        // (A) pairs with the load in `take_free`: the link is seen.
        match FREE.compare_exchange_weak(head, new, Release, Relaxed) {
            Ok(_) => return,
            Err(other) => head = other,
        }
    }
}

fn take_free() -> Option<u32> {
    let mut head = FREE.load(Acquire); // (A)
    loop {
        let index = (head as u32).checked_sub(1)?;
        let next = record::<Object>(index).class.load(Relaxed);
        let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
        match FREE.compare_exchange_weak(head, new, Acquire, Acquire) {
            Ok(_) => return Some(index),
            Err(other) => head = other,
        }
    }
}

/// The counters of an object, or of its class if the object is gone.
pub(super) fn counters(object: u32, serial: u32, class: u32) -> &'static Counters {
    if object != NONE {
        let found = record::<Object>(object);
        if found.serial.load(Relaxed) == serial && found.state.load(Relaxed) == READY {
            return sums(found);
        }
    }
    &record::<Class>(class).counters
}

/// The counters of an object, for a thread that adds to them. Most objects that live shortly have no sums of their own, and are
/// made and destroyed without a look at the cache lines of these.
#[inline(always)]
pub(super) fn sums(object: &Object) -> &Counters {
    use_all(object);
    &object.counters
}

/// The calling thread is about to write to the object's counters or to its account.
#[inline(always)]
pub(super) fn use_all(object: &Object) {
    if object.used.load(Relaxed) == 0 {
        object.used.store(1, Relaxed);
    }
}

/// Asks the processor for what it takes to find the object at this address.
#[inline(always)]
pub(super) fn prefetch(address: usize) {
    BY_ADDRESS.prefetch(hash(address));
}

/// The histogram with the index in `place`; makes one if there is none. `None`: there is no room.
pub(super) fn histogram(place: &core::sync::atomic::AtomicU32) -> Option<&'static Histogram> {
    let mut index = place.load(Relaxed);
    if index == 0 {
        index = append::<Histogram>(1)?;
        if let Err(other) = place.compare_exchange(0, index, Relaxed, Relaxed) {
            index = other;
        }
    }
    Some(record(index))
}

/// Forgets all objects. In a forked child, which has one thread.
pub(super) fn clear_all() {
    BY_ADDRESS.clear();
    CLASSES_BY_BIRTH.clear();
    FREE.store(0, Relaxed);
}
