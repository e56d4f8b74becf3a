//! Words of the exploring machine.
//!
//! A word knows whether it is alive, so an access to the memory of a destroyed lock is caught. Within an exploration one
//! thread runs at a time; the value is an atomic only so that sharing a word between OS threads is no undefined behaviour.

use super::engine::inside;
use super::place::{ALIVE, DEAD, Place};
use super::{Mistake, trace};
use latchwork::machine::{Arith, Word};
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// A value as the engine keeps it.
trait Bits: Copy {
    fn to_bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! bits {
    ($($t:ty),*) => {$(
        impl Bits for $t {
            #[inline(always)]
            fn to_bits(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $t
            }
        }
    )*};
}
bits!(u8, u32, u64, usize);

impl<T> Bits for *mut T {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        self.expose_provenance() as u64
    }
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        std::ptr::with_exposed_provenance_mut(bits as usize)
    }
}

/// A read-modify-write, as a value.
#[derive(Copy, Clone)]
enum Change {
    /// A sequentially consistent store.
    Store(u64),
    Swap(u64),
    CompareExchange {
        current: u64,
        new: u64,
    },
    Add(u64),
    Sub(u64),
    Or(u64),
    And(u64),
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::Store(_) => "store, sequentially consistent",
            Change::Swap(_) => "swap",
            Change::CompareExchange { .. } => "compare_exchange",
            Change::Add(_) => "fetch_add",
            Change::Sub(_) => "fetch_sub",
            Change::Or(_) => "fetch_or",
            Change::And(_) => "fetch_and",
        }
    }

    /// What the word at `place` has after it.
    fn apply(self, place: Place, old: u64) -> u64 {
        match self {
            Change::Store(value) | Change::Swap(value) => value,
            Change::CompareExchange { current, new } => {
                if old == current {
                    new
                } else {
                    old
                }
            }
            Change::Add(value) => place.truncate(old.wrapping_add(value)),
            Change::Sub(value) => place.truncate(old.wrapping_sub(value)),
            Change::Or(value) => old | value,
            Change::And(value) => old & value,
        }
    }
}

// The three kinds of access. Each is compiled once, and called from every access in every lock: with their bodies in
// place, the locks take three times as long to compile.

/// A load: one step. It looks into the thread's own store buffer first.
#[inline(never)]
fn load(place: Place) -> u64 {
    let Some(engine) = inside() else { return place.value() };
    engine.point();
    engine.touch(place, "load");
    let value = engine.with(|s| s.load(place));
    trace!(engine, place, "load", Some(value), None);
    value
}

/// A store: one step. Its value may stay in the thread's store buffer. `looked`: see [`release_if`].
#[inline(never)]
fn store(place: Place, bits: u64, order: Ordering, looked: Option<u32>) {
    let Some(engine) = inside() else { return place.set(bits) };
    if engine.with(|s| s.loses(place, bits, order)) {
        return;
    }
    match order {
        Ordering::SeqCst => {
            replace(place, Change::Store(bits));
            return;
        }
        Ordering::Relaxed => engine.point(),
        _ => engine.mark(),
    }
    engine.touch(place, "store");
    let buffered = engine.with(|s| s.store(place, bits, looked));
    trace!(engine, place, if buffered { "store (buffered)" } else { "store" }, None, Some(bits));
}

/// A read-modify-write: one step, with an empty store buffer. Returns the value before it.
#[inline(never)]
fn replace(place: Place, change: Change) -> u64 {
    let Some(engine) = inside() else {
        let old = place.value();
        place.set(change.apply(place, old));
        return old;
    };
    engine.mark();
    engine.touch(place, change.name());
    let (old, new) = engine.with(|s| {
        s.drain(s.running);
        let old = place.value();
        let new = change.apply(place, old);
        s.write(place, new);
        (old, new)
    });
    trace!(engine, place, change.name(), Some(old), Some(new));
    old
}

/// [`Machine::release_if`](latchwork::machine::Machine::release_if), in the steps of a native machine, after the look at the queue. The
/// engine knows the step of the last look, to tell whether the release is torn.
pub(super) fn release_if(is_empty: bool, word: &U32, expected: u32) -> bool {
    let held = is_empty || word.load(Ordering::Relaxed) == expected;
    if held {
        store(word.place(), 0, Ordering::Release, inside().map(|engine| engine.with(|s| s.step)));
    }
    held
}

/// Whether the machine says, by mistake, that it has exchanged null for null.
fn is_seen_cleared(current: u64, new: u64) -> bool {
    current == 0
        && new == 0
        && inside().is_some_and(|engine| engine.with(|s| s.mistake) == Mistake::SeenCleared)
}

macro_rules! word {
    ($(#[$doc:meta])* $name:ident $(<$p:ident>)?, $atomic:ty, $t:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name $(<$p: Send + Sync + 'static>)? {
            value: $atomic,
            alive: AtomicU32,
        }

        impl $(<$p: Send + Sync + 'static>)? $name $(<$p>)? {
            #[inline(always)]
            pub(super) fn place(&self) -> Place {
                Place::new((&raw const self.value).addr(), size_of::<$t>() as u8, &raw const self.alive)
            }
        }

        impl $(<$p: Send + Sync + 'static>)? Drop for $name $(<$p>)? {
            fn drop(&mut self) {
                if let Some(engine) = inside() {
                    engine.with(|s| s.forget(self.place().address));
                }
                self.alive.store(DEAD, Relaxed);
            }
        }

        impl $(<$p: Send + Sync + 'static>)? Word<$t> for $name $(<$p>)? {
            #[inline]
            fn new(value: $t) -> Self {
                $name { value: <$atomic>::new(value), alive: AtomicU32::new(ALIVE) }
            }

            #[inline]
            fn load(&self, _: Ordering) -> $t {
                Bits::from_bits(load(self.place()))
            }

            #[inline]
            fn store(&self, value: $t, order: Ordering) {
                store(self.place(), value.to_bits(), order, None);
            }

            #[inline]
            fn swap(&self, value: $t, _: Ordering) -> $t {
                Bits::from_bits(replace(self.place(), Change::Swap(value.to_bits())))
            }

            #[inline]
            fn compare_exchange(&self, current: $t, new: $t, _: Ordering, _: Ordering) -> Result<$t, $t> {
                let (wanted, new) = (current.to_bits(), new.to_bits());
                if size_of::<$t>() == 8 && is_seen_cleared(wanted, new) {
                    return Ok(current);
                }
                let old = replace(self.place(), Change::CompareExchange { current: wanted, new });
                if old == wanted { Ok(Bits::from_bits(old)) } else { Err(Bits::from_bits(old)) }
            }
        }
    };
}

macro_rules! arith {
    ($name:ident, $t:ty) => {
        impl Arith<$t> for $name {
            #[inline]
            fn fetch_add(&self, value: $t, _: Ordering) -> $t {
                Bits::from_bits(replace(self.place(), Change::Add(value.to_bits())))
            }
            #[inline]
            fn fetch_sub(&self, value: $t, _: Ordering) -> $t {
                Bits::from_bits(replace(self.place(), Change::Sub(value.to_bits())))
            }
            #[inline]
            fn fetch_or(&self, value: $t, _: Ordering) -> $t {
                Bits::from_bits(replace(self.place(), Change::Or(value.to_bits())))
            }
            #[inline]
            fn fetch_and(&self, value: $t, _: Ordering) -> $t {
                Bits::from_bits(replace(self.place(), Change::And(value.to_bits())))
            }
        }
    };
}

every_word!(word, arith);
