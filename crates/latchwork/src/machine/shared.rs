//! What all threads share on a machine, for the locks of this library.
//!
//! The functions of [`Machine`] that give it out are unsafe, because memory safety rests on what is written to it. These
//! functions are safe, and visible within the library alone: `bravo` alone writes to slots and rows, and each waiter of
//! `twa` and `qspinlock` writes to its place in the waiting array.

use super::{Group, Machine, QNode, ReaderRow};

#[inline(always)]
pub(crate) fn visible_readers<M: Machine>() -> &'static [M::Usize] {
    // SAFETY: within this library, `bravo` alone writes to the table, as it describes.
    unsafe { M::visible_readers() }
}

#[inline(always)]
pub(crate) fn waiting_array<M: Machine>() -> &'static [QNode<M>] {
    // SAFETY: within this library, waiters of `twa` and `qspinlock` alone write to it, as it describes.
    unsafe { M::waiting_array() }
}

#[inline(always)]
pub(crate) fn reader_row<M: Machine>() -> Option<&'static ReaderRow<M>> {
    // SAFETY: within this library, `bravo` alone writes to rows, as it describes.
    unsafe { M::reader_row() }
}

#[inline(always)]
pub(crate) fn reader_rows<M: Machine>() -> Option<&'static Group<M, ReaderRow<M>>> {
    // SAFETY: within this library, `bravo` alone writes to rows, as it describes.
    unsafe { M::reader_rows() }
}
