//! The storage of a queue node, and the views through which the algorithms name its fields.
//!
//! All queue locks take their nodes from one place: the machine's pool ([`Machine::acquire_node`]), its waiting array
//! or the waiter's stack. A node is therefore plain storage: two links and five words in one cache line. Each algorithm
//! declares, in its own file, a view with [`node_view!`](crate::machine::node_view) that gives the links and words that
//! it uses a name and a meaning. A view is a reference to the storage; it costs no instruction.

use super::{Machine, Native, Word};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// The storage of one queue node: 64 bytes, one cache line, so that each waiter spins on a line of its own.
///
/// The algorithms give its parts a meaning with [`node_view!`](crate::machine::node_view). A node that lies in the
/// machine's pool belongs to the pool, which uses the first link.
#[repr(C, align(64))]
pub struct QNode<M: Machine> {
    /// Pointers to other nodes.
    pub links: [M::Ptr<QNode<M>>; 2],
    /// Words, each of which a thread can park on.
    pub words: [M::U32; 5],
}

impl<M: Machine> QNode<M> {
    /// A node whose links are null and whose words are 0.
    pub fn new() -> Self {
        M::note_node();
        QNode {
            links: core::array::from_fn(|_| M::Ptr::new(null_mut())),
            words: core::array::from_fn(|_| M::U32::new(0)),
        }
    }

    /// The node's address, as it is stored in links and tail words.
    pub fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }
}

impl QNode<Native> {
    /// [`new`](Self::new) in a constant. It does not count as a node that a waiter uses.
    pub(crate) const fn zeroed() -> Self {
        QNode { links: [const { AtomicPtr::new(null_mut()) }; 2], words: [const { AtomicU32::new(0) }; 5] }
    }
}

impl<M: Machine> Default for QNode<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Declares a view of [`QNode`](crate::machine::QNode): the fields of one algorithm's node, by their names in that
/// algorithm.
///
/// ```
/// use latchwork::machine::{Machine, Native, QNode, Word, node_view};
/// use std::sync::atomic::Ordering::Relaxed;
///
/// node_view! {
///     /// A waiter's node in this lock.
///     struct Node {
///         /// The waiter behind this one.
///         next: links[0],
///         /// 0: waits. 1: has the lock.
///         status: words[0],
///     }
/// }
///
/// let storage = QNode::<Native>::new();
/// let node = Node(&storage);
/// node.status().store(1, Relaxed);
/// assert!(node.next().load(Relaxed).is_null());
/// ```
///
/// The view is a `Copy` tuple struct over `&QNode<M>`. Each field becomes a method that returns the word. `at` makes a
/// view from a pointer that was stored in a link or a tail, and `as_ptr` gives that pointer.
#[macro_export]
#[doc(hidden)]
macro_rules! __node_view {
    ($(#[$doc:meta])* $vis:vis struct $name:ident {
        $($(#[$about:meta])* $field:ident: $part:ident[$index:literal],)*
    }) => {
        $(#[$doc])*
        $vis struct $name<'a, M: $crate::machine::Machine>($vis &'a $crate::machine::QNode<M>);

        impl<M: $crate::machine::Machine> Copy for $name<'_, M> {}

        impl<M: $crate::machine::Machine> Clone for $name<'_, M> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        /// Whether they are the same node.
        impl<M: $crate::machine::Machine> PartialEq for $name<'_, M> {
            fn eq(&self, other: &Self) -> bool {
                core::ptr::eq(self.0, other.0)
            }
        }

        #[allow(dead_code)]
        impl<'a, M: $crate::machine::Machine> $name<'a, M> {
            /// The node at an address.
            ///
            /// # Safety
            ///
            /// A node is there, and stays for `'a`.
            #[inline(always)]
            $vis unsafe fn at(node: *mut $crate::machine::QNode<M>) -> Self {
                // SAFETY: the caller promises that a node is there for `'a`.
                $name(unsafe { &*node })
            }

            /// The node's address, as it is stored in links and tail words.
            #[inline(always)]
            $vis fn as_ptr(self) -> *mut $crate::machine::QNode<M> {
                self.0.as_ptr()
            }

            $($crate::__node_view!(@field $(#[$about])* $vis $field $part $index);)*
        }
    };
    (@field $(#[$about:meta])* $vis:vis $field:ident links $index:literal) => {
        $(#[$about])*
        #[inline(always)]
        $vis fn $field(self) -> &'a M::Ptr<$crate::machine::QNode<M>> {
            &self.0.links[$index]
        }
    };
    (@field $(#[$about:meta])* $vis:vis $field:ident words $index:literal) => {
        $(#[$about])*
        #[inline(always)]
        $vis fn $field(self) -> &'a M::U32 {
            &self.0.words[$index]
        }
    };
}

#[doc(inline)]
pub use crate::__node_view as node_view;
