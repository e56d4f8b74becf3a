//! What all threads share on a machine, for the algorithms of this library.
//!
//! The functions of [`Machine`] and [`Records`] that give it out are unsafe, because memory safety rests on what is
//! written to it. Here they are safe, for callers within this library: `reclaim` writes to records and clocks as
//! `grace`, `epoch`, `hazard` and `section` describe; `bravo` alone writes to slots, and each waiter of `twa` and
//! `qspinlock` to places in the waiting array.

use super::{Machine, QNode, ReaderRow};

#[inline(always)]
pub(crate) fn visible_readers<M: Machine>() -> &'static [M::Usize] {
    // SAFETY: for callers within this library; see above.
    unsafe { M::visible_readers() }
}

#[inline(always)]
pub(crate) fn waiting_array<M: Machine>() -> &'static [QNode<M>] {
    // SAFETY: for callers within this library; see above.
    unsafe { M::waiting_array() }
}

#[inline(always)]
pub(crate) fn reader_row<M: Machine>() -> Option<&'static ReaderRow<M>> {
    // SAFETY: for callers within this library; see above.
    unsafe { M::reader_row() }
}

#[inline(always)]
pub(crate) fn reader_rows<M: Machine>() -> Option<&'static ReaderRow<M>> {
    // SAFETY: for callers within this library; see above.
    unsafe { M::reader_rows() }
}
