//! A value with the header that retiring it takes.

use super::header::{Header, Retire};
use alloc::boxed::Box;

/// A value in a box, with a header before it.
#[repr(C)]
pub(super) struct Node<T> {
    header: Header,
    pub(super) value: T,
}

// SAFETY: `repr(C)`, and the header comes first; `Node::make` makes it as a box.
unsafe impl<T: Send + Sync + 'static> Retire for Node<T> {}

impl<T> Node<T> {
    pub(super) fn make(value: T) -> *mut Self {
        Box::into_raw(Box::new(Node { header: Header::new(), value }))
    }

    /// Takes the value out.
    ///
    /// # Safety
    ///
    /// The node was made by [`make`](Node::make) and never retired, and nothing else uses it.
    pub(super) unsafe fn into_value(node: *mut Self) -> T {
        // SAFETY: made by a box, and no other thread has it, says the caller.
        unsafe { Box::from_raw(node) }.value
    }
}
