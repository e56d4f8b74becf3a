//! An array that begins with a pair of cache lines.
//!
//! Which of its elements share a line then does not depend on where the allocator put it: that would
//! differ from run to run, and a simulation with the same seed has to be the same.

use alloc::alloc::{alloc, dealloc, handle_alloc_error};
use core::alloc::Layout;
use core::ops::Deref;
use core::ptr::NonNull;

/// Processors fetch lines in pairs.
const ALIGN: usize = 128;

/// A fixed number of elements.
pub struct Array<T> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: an array owns its elements, as a boxed slice does.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above.
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
            // SAFETY: within the allocation, which is aligned for `T`.
            unsafe { first.add(at).write(new(at)) };
        }
        Array { first, len }
    }

    /// The element whose number is in the lower bits of `at`, if there is a power of two of them.
    ///
    /// # Safety
    ///
    /// The array is not empty.
    #[inline(always)]
    pub unsafe fn masked(&self, at: u64) -> &T {
        // SAFETY: no more than the highest number, which there is, says the caller.
        unsafe { self.get_unchecked(at as usize & (self.len - 1)) }
    }

    /// The first element, of an array that is nobody's any more.
    pub fn into_first(self) -> *mut T {
        core::mem::ManuallyDrop::new(self).first.as_ptr()
    }

    /// The array back.
    ///
    /// # Safety
    ///
    /// From [`into_first`](Array::into_first) of one with `len` elements; once.
    pub unsafe fn from_first(first: *mut T, len: usize) -> Self {
        // SAFETY: the caller's promise.
        Array { first: unsafe { NonNull::new_unchecked(first) }, len }
    }

    /// A pointer to an element, good for as long as the array is there.
    pub fn pointer(&self, at: usize) -> *mut T {
        assert!(at < self.len);
        // SAFETY: within the allocation.
        unsafe { self.first.add(at).as_ptr() }
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: all elements were written, and nobody has them for writing.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: allocated and filled by `new`, and used by nobody any more.
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
