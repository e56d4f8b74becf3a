//! Objects that are retired without a head of their own: the head is in a box.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// A function of the program that ends an object's life.
pub(crate) type ReclaimObject = unsafe extern "C" fn(*mut c_void);

/// A head, and the object that it stands for.
#[repr(C)]
pub(crate) struct Boxed<H> {
    head: MaybeUninit<H>,
    object: *mut c_void,
    reclaim: ReclaimObject,
}

impl<H> Boxed<H> {
    /// A new box: the address of its head, which the caller writes. `None`: there is no memory.
    pub(crate) fn allocate(object: *mut c_void, reclaim: ReclaimObject) -> Option<*mut H> {
        // SAFETY: the layout is not empty, and the memory has room for the box.
        unsafe {
            let place: *mut Self = alloc(Layout::new::<Self>()).cast();
            if place.is_null() {
                return None;
            }
            place.write(Boxed { head: MaybeUninit::uninit(), object, reclaim });
            Some(place.cast())
        }
    }

    /// The callback of the head: frees the box, and calls the program's function.
    ///
    /// # Safety
    ///
    /// `head` is of [`allocate`](Boxed::allocate), and this is called once.
    pub(crate) unsafe extern "C" fn reclaim(head: *mut H) {
        let place: *mut Self = head.cast();
        // SAFETY: the caller's `head` is the first field of a box.
        unsafe {
            let Boxed { object, reclaim, .. } = place.read();
            dealloc(place.cast(), Layout::new::<Self>());
            reclaim(object);
        }
    }
}
