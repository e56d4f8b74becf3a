//! Words that are 0 in a forked child, also in one that no fork handler runs in: after `_Fork`, or a raw `fork` or `clone`.
//!
//! They lie in a page that the kernel empties in a child (`MADV_WIPEONFORK`, from Linux 4.14 on). A call that looks at such a
//! word anyway finds out without cost that it runs in a child. A child that shares its parent's memory (`vfork`) finds what its
//! parent has.

use super::kernel;
use super::program::PAGE;
use core::sync::atomic::AtomicU64;

/// A page of its own: the kernel maps this part of the data without a file, as the advice needs it.
#[repr(C, align(4096))]
struct Page([AtomicU64; PAGE / size_of::<AtomicU64>()]);
static WORDS: Page = Page([const { AtomicU64::new(0) }; _]);

/// The number of the present session of the recorder of profiles.
pub(crate) static SESSION: &AtomicU64 = &WORDS.0[0];
/// Whether the recorder of traces has a file.
pub(crate) static TRACES: &AtomicU64 = &WORDS.0[1];

/// From now on the words are 0 in each new child. An older kernel refuses, and they stay.
pub(crate) fn prepare() {
    kernel::wipe_in_children(core::ptr::from_ref(&WORDS).cast_mut().cast(), size_of::<Page>());
}
