//! Words of the exploring machine.
//!
//! A word knows whether it is alive, so an access to the memory of a destroyed lock is caught. Within an exploration one
//! thread runs at a time; the value is an atomic only so that sharing a word between OS threads is no undefined behaviour.

use super::engine::{Engine, inside};
use super::place::{ALIVE, DEAD, Place};
use super::{Mistake, trace};
use latchwork::machine::{Arith, Word};
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
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

/// The body of a read-modify-write: one step, with an empty store buffer.
#[inline]
fn replace(engine: &Engine, place: Place, name: &'static str, with: impl FnOnce(u64) -> u64) -> u64 {
    engine.mark();
    engine.touch(place, name);
    let (old, new) = engine.with(|s| {
        s.drain(s.running);
        let old = place.value();
        let new = with(old);
        s.write(place, new);
        if s.mistake == Mistake::ErasesHint {
            s.note_erased(place, old, new);
        }
        (old, new)
    });
    trace!(engine, place, name, Some(old), Some(new));
    old
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

            /// What a read-modify-write does outside of an exploration.
            fn plainly(&self, with: impl FnOnce($t) -> $t) -> $t {
                let old = self.value.load(Relaxed);
                self.value.store(with(old), Relaxed);
                old
            }

            #[inline]
            fn replace(&self, name: &'static str, with: impl FnOnce($t) -> $t) -> $t {
                let Some(engine) = inside() else { return self.plainly(with) };
                let with = |old| with(Bits::from_bits(old)).to_bits();
                Bits::from_bits(replace(engine, self.place(), name, with))
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
                let Some(engine) = inside() else { return self.value.load(Relaxed) };
                let place = self.place();
                engine.point();
                engine.touch(place, "load");
                let value = engine.with(|s| s.load(place));
                trace!(engine, place, "load", Some(value), None);
                Bits::from_bits(value)
            }

            #[inline]
            fn store(&self, value: $t, order: Ordering) {
                let Some(engine) = inside() else { return self.value.store(value, Relaxed) };
                let place = self.place();
                let bits = value.to_bits();
                if engine.with(|s| s.loses(place, bits, order)) {
                    return;
                }
                if order == SeqCst {
                    replace(engine, place, "store, sequentially consistent", |_| bits);
                    return;
                }
                match order {
                    Ordering::Relaxed => engine.point(),
                    _ => engine.mark(),
                }
                engine.touch(place, "store");
                let buffered = engine.with(|s| s.store(place, bits));
                trace!(engine, place, if buffered { "store (buffered)" } else { "store" }, None, Some(bits));
            }

            #[inline]
            fn swap(&self, value: $t, _: Ordering) -> $t {
                self.replace("swap", |_| value)
            }

            #[inline]
            fn compare_exchange(&self, current: $t, new: $t, _: Ordering, _: Ordering) -> Result<$t, $t> {
                if let Some(engine) = inside()
                    && size_of::<$t>() == 8
                    && engine.with(|s| s.mistake) == Mistake::SeenCleared
                    && current.to_bits() == 0
                    && new.to_bits() == 0
                {
                    return Ok(current);
                }
                let old = self.replace("compare_exchange", |old| if old == current { new } else { old });
                if old == current { Ok(old) } else { Err(old) }
            }
        }
    };
}

macro_rules! arith {
    ($name:ident, $t:ty) => {
        impl Arith<$t> for $name {
            #[inline]
            fn fetch_add(&self, value: $t, _: Ordering) -> $t {
                self.replace("fetch_add", |old| old.wrapping_add(value))
            }
            #[inline]
            fn fetch_sub(&self, value: $t, _: Ordering) -> $t {
                self.replace("fetch_sub", |old| old.wrapping_sub(value))
            }
            #[inline]
            fn fetch_or(&self, value: $t, _: Ordering) -> $t {
                self.replace("fetch_or", |old| old | value)
            }
            #[inline]
            fn fetch_and(&self, value: $t, _: Ordering) -> $t {
                self.replace("fetch_and", |old| old & value)
            }
        }
    };
}

every_word!(word, arith);

impl U32 {
    /// `Machine::release_dec`: a load and a store, with nothing between them but, by mistake, other threads.
    /// The store waits in the buffer like any other, so what others write until it is out is lost.
    #[inline]
    pub(super) fn release_dec(&self) -> bool {
        let Some(engine) = inside() else {
            return (self.plainly(|old| old.wrapping_sub(1)).wrapping_sub(1) as i32) < 0;
        };
        let place = self.place();
        engine.mark();
        engine.touch(place, "release_dec");
        let left = (engine.with(|s| s.load(place)) as u32).wrapping_sub(1);
        if engine.with(|s| s.mistake) == Mistake::TornDecrement {
            engine.point();
        }
        let buffered = engine.with(|s| s.store_late(place, u64::from(left)));
        let name = if buffered { "release_dec (buffered)" } else { "release_dec" };
        trace!(engine, place, name, None, Some(u64::from(left)));
        (left as i32) < 0
    }
}
