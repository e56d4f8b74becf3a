//! The words of the Linux machine are the core atomics.

use super::super::{Arith, Word};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

macro_rules! word {
    ($atomic:ty, $t:ty) => {
        impl Word<$t> for $atomic {
            #[inline(always)]
            fn new(value: $t) -> Self {
                <$atomic>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $t {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $t, order: Ordering) {
                self.store(value, order)
            }
            #[inline(always)]
            fn swap(&self, value: $t, order: Ordering) -> $t {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(&self, current: $t, new: $t, ok: Ordering, err: Ordering) -> Result<$t, $t> {
                self.compare_exchange(current, new, ok, err)
            }
        }
    };
}

macro_rules! arith {
    ($atomic:ty, $t:ty) => {
        word!($atomic, $t);
        impl Arith<$t> for $atomic {
            #[inline(always)]
            fn fetch_add(&self, value: $t, order: Ordering) -> $t {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $t, order: Ordering) -> $t {
                self.fetch_sub(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $t, order: Ordering) -> $t {
                self.fetch_or(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $t, order: Ordering) -> $t {
                self.fetch_and(value, order)
            }
        }
    };
}

word!(AtomicU8, u8);
arith!(AtomicU32, u32);
arith!(AtomicU64, u64);
arith!(AtomicUsize, usize);

impl<T: Send + Sync + 'static> Word<*mut T> for AtomicPtr<T> {
    #[inline(always)]
    fn new(value: *mut T) -> Self {
        AtomicPtr::new(value)
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> *mut T {
        self.load(order)
    }
    #[inline(always)]
    fn store(&self, value: *mut T, order: Ordering) {
        self.store(value, order)
    }
    #[inline(always)]
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.swap(value, order)
    }
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        ok: Ordering,
        err: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.compare_exchange(current, new, ok, err)
    }
}
