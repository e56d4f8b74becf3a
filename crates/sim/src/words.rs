//! Words of simulated memory.
//!
//! A word is as large as a real one, and its cache line follows from its address. Its value is an
//! atomic only so that sharing a word between OS threads would be no undefined behaviour; within a
//! simulation one thread runs at a time.

use crate::lines::Kind;
use crate::simulation::{access, after, before, changed};
use latchwork::machine::{Arith, Word};
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// What a store of this ordering is: a sequentially consistent one is an exchange, as on x86-64.
#[inline]
fn store_kind(order: Ordering) -> Kind {
    if order == SeqCst { Kind::Rmw } else { Kind::Store }
}

/// The address by which the simulator knows a word.
#[inline]
fn address<T>(word: &T) -> usize {
    std::ptr::from_ref(word).addr()
}

macro_rules! word {
    ($(#[$doc:meta])* $name:ident $(<$p:ident>)?, $atomic:ty, $t:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name $(<$p: Send + Sync + 'static>)? ($atomic);

        impl $(<$p: Send + Sync + 'static>)? $name $(<$p>)? {
            /// Replaces the value, within one access.
            #[inline]
            fn replace(&self, order: Ordering, with: impl FnOnce($t) -> $t) -> $t {
                before(order);
                access(address(self), Kind::Rmw);
                let old = self.0.load(Relaxed);
                let new = with(old);
                self.0.store(new, Relaxed);
                changed(new != old);
                after(order);
                old
            }
        }

        impl $(<$p: Send + Sync + 'static>)? Word<$t> for $name $(<$p>)? {
            fn new(value: $t) -> Self {
                $name(<$atomic>::new(value))
            }
            #[inline]
            fn load(&self, _: Ordering) -> $t {
                access(address(self), Kind::Read);
                self.0.load(Relaxed)
            }
            #[inline]
            fn store(&self, value: $t, order: Ordering) {
                before(order);
                access(address(self), store_kind(order));
                changed(self.0.load(Relaxed) != value);
                self.0.store(value, Relaxed);
            }
            #[inline]
            fn swap(&self, value: $t, order: Ordering) -> $t {
                self.replace(order, |_| value)
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $t,
                new: $t,
                ok: Ordering,
                err: Ordering,
            ) -> Result<$t, $t> {
                before(ok);
                let old = self.replace(Relaxed, |old| if old == current { new } else { old });
                after(if old == current { ok } else { err });
                if old == current { Ok(old) } else { Err(old) }
            }
        }
    };
}

macro_rules! arith {
    ($name:ident, $t:ty) => {
        impl Arith<$t> for $name {
            #[inline]
            fn fetch_add(&self, value: $t, order: Ordering) -> $t {
                self.replace(order, |old| old.wrapping_add(value))
            }
            #[inline]
            fn fetch_sub(&self, value: $t, order: Ordering) -> $t {
                self.replace(order, |old| old.wrapping_sub(value))
            }
            #[inline]
            fn fetch_or(&self, value: $t, order: Ordering) -> $t {
                self.replace(order, |old| old | value)
            }
            #[inline]
            fn fetch_and(&self, value: $t, order: Ordering) -> $t {
                self.replace(order, |old| old & value)
            }
        }
    };
}

every_word!(word, arith);
