//! An array that begins at the beginning of a pair of cache lines.
//!
//! So which of its elements share a cache line does not depend on where the allocator puts the array. That would differ
//! from run to run, and a simulation with the same seed has to give the same result.
//!
//! The laboratory's hash tables use this array too; it is no part of what applications use.

use alloc::alloc::{alloc, dealloc, handle_alloc_error};
use core::alloc::Layout;
use core::ops::Deref;
use core::ptr::NonNull;

/// Alignment in bytes: processors fetch cache lines in pairs.
const ALIGN: usize = 128;

/// A fixed number of elements.
pub struct Array<T> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: an array owns its elements, as a boxed slice does.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: a shared array gives out shared references to its elements, as a boxed slice does.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    fn layout(len: usize) -> Layout {
        let layout = Layout::array::<T>(len).and_then(|layout| layout.align_to(ALIGN));
        layout.expect("less than half of the address space")
    }

    /// `len` elements, each made by `new` from its index.
    pub fn new(len: usize, mut new: impl FnMut(usize) -> T) -> Self {
        let layout = Self::layout(len);
        let first = if layout.size() == 0 {
            NonNull::dangling()
        } else {
            // SAFETY: the layout's size is not 0.
            let memory = unsafe { alloc(layout) };
            NonNull::new(memory.cast::<T>()).unwrap_or_else(|| handle_alloc_error(layout))
        };
        for at in 0..len {
            // SAFETY: `at` is within the allocation, which is aligned for `T`.
            unsafe { first.add(at).write(new(at)) };
        }
        Array { first, len }
    }

    /// The element at the index that is in the lower bits of `at`, in an array whose length is a power of two.
    ///
    /// # Safety
    ///
    /// The array is not empty.
    #[inline(always)]
    pub unsafe fn masked(&self, at: u64) -> &T {
        // SAFETY: the index is at most the highest one, and the array is not empty, says the caller.
        unsafe { self.get_unchecked(at as usize & (self.len - 1)) }
    }

    /// A pointer to the first element. The caller owns the array from now on ([`from_first`](Array::from_first)).
    pub fn into_first(self) -> *mut T {
        core::mem::ManuallyDrop::new(self).first.as_ptr()
    }

    /// Makes the array again.
    ///
    /// # Safety
    ///
    /// `first` is from [`into_first`](Array::into_first) of an array with `len` elements, and is given back once.
    pub unsafe fn from_first(first: *mut T, len: usize) -> Self {
        // SAFETY: `into_first` returns no null pointer.
        Array { first: unsafe { NonNull::new_unchecked(first) }, len }
    }

    /// A pointer to an element, valid as long as the array.
    pub fn pointer(&self, at: usize) -> *mut T {
        assert!(at < self.len);
        // SAFETY: `at` is within the allocation, as was checked.
        unsafe { self.first.add(at).as_ptr() }
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` wrote all elements, and they are borrowed as the array is.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: `new` allocated and wrote them, with this length; the array is dropped, so they are not borrowed.
        unsafe {
            core::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len).drop_in_place();
            let layout = Self::layout(self.len);
            if layout.size() > 0 {
                dealloc(self.first.as_ptr().cast(), layout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn elements_lie_one_after_the_other_and_are_dropped_once() {
        let counted = Arc::new(());
        let array = Array::new(20, |at| (at, counted.clone()));
        assert_eq!(array.as_ptr().addr() % ALIGN, 0);
        assert!(array.iter().enumerate().all(|(at, element)| element.0 == at));
        assert_eq!(array.pointer(7).cast_const(), &raw const array[7]);
        // SAFETY: it is not empty.
        assert_eq!(unsafe { array.masked(16 + 3) }.0, 19);
        assert_eq!(Arc::strong_count(&counted), 21);
        drop(array);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
