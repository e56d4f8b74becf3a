//! Lock and unlock calls: what is recorded in which.
//!
//! An uncontended call goes the short way ([`fast`](super::fast)) if there is nothing to record but its number. The others go
//! through [`acquire`](super::acquire) and [`release`](super::release).
//!
//! | | what is recorded | where the thread pays for it |
//! |---|---|---|
//! | acquired at once | the number of calls; for some, how long the lock is held | before the attempt |
//! | waited | the length of the wait; how long the lock is held | before the wait; one reading of the clock behind it and one before the release; the rest after the release |
//! | waited, and is looked at closely ([`sampling`](super::sampling)) | also the stack, and the holders | as above, and the account ([`account`](super::account)) behind the wait |
//! | holds while a thread waits that looks closely | its stack, its part in the wait | its stack before the attempt if a thread waits by then, else before the release |

use super::entries;
use super::filter;
use crate::state::abi::*;
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::*;
use libc::c_int;

/// In [`Entry::hot`]: so many acquisitions after one that was contended capture their stack: before the call, so that nobody
/// waits for it. Others do that when they release the lock, if threads wait by then. The bits above are the logarithm of the
/// number of sections for which the present one pays.
pub(super) const HOT: u8 = 3;

/// Whether a lock call acquired the lock. EOWNERDEAD: it acquired a robust mutex; the former holder has died.
pub(super) fn got(result: c_int) -> bool {
    result == 0 || result == libc::EOWNERDEAD
}

/// An object and what is asked of it. It has two fields, so that it is passed in registers.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) address: usize,
    /// The kind of object, and [`READ`].
    what: u32,
}

/// In [`Call`]: for reading.
const READ: u32 = 1 << 31;

/// Where the program made the call. The functions of `callers.c` know.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// The return address; 0: it is not known.
    pub(super) caller: usize,
    /// Where the return address lay.
    pub(super) slot: usize,
}

impl Call {
    #[inline(always)]
    pub(super) fn new(kind: u32, address: usize, read: bool) -> Self {
        Call { address, what: kind | if read { READ } else { 0 } }
    }

    /// Exposes the address: the recorder asks the mutex whether it is recursive.
    #[inline(always)]
    pub(super) fn of_mutex(m: *mut Mutex) -> Self {
        Self::new(kind::MUTEX, m.expose_provenance(), false)
    }

    #[inline(always)]
    pub(super) fn kind(self) -> u32 {
        self.what & !READ
    }

    #[inline(always)]
    pub(super) fn is_read(self) -> bool {
        self.what & READ != 0
    }

    /// What [`Entry::depth`] is after the first acquisition.
    #[inline(always)]
    pub(super) fn depth(self) -> u8 {
        if self.is_read() { READING } else { 1 }
    }

    /// Whether the object is a recursive mutex. A mutex of `latchwork.h` never is, and has another kind.
    ///
    /// # Safety
    ///
    /// The object is live.
    #[inline(always)]
    pub(super) unsafe fn is_recursive(self) -> bool {
        // SAFETY: the caller says that the object is live.
        unsafe { self.mutex() }.is_some_and(|mutex| mutex.kind.load(Relaxed) & 3 == RECURSIVE)
    }

    /// Whether the object is a recursive mutex that the calling thread, which holds it, has locked more than once.
    ///
    /// # Safety
    ///
    /// The object is live.
    #[inline(always)]
    pub(super) unsafe fn is_nested(self) -> bool {
        // SAFETY: the caller says that the object is live.
        unsafe { self.is_recursive() && self.mutex().is_some_and(Mutex::is_nested) }
    }

    /// # Safety
    ///
    /// The object is live.
    #[inline(always)]
    unsafe fn mutex<'a>(self) -> Option<&'a Mutex> {
        // SAFETY: an object of this kind is a mutex, and the caller says that it is live.
        (self.kind() == kind::MUTEX)
            .then(|| unsafe { &*core::ptr::with_exposed_provenance::<Mutex>(self.address) })
    }
}

/// Whether threads wait for the object that look closely at their wait.
#[inline(always)]
pub(super) fn is_waited_for(object: Option<&Object>, call: Call) -> bool {
    filter::is_watched(call.address) && object.is_some_and(|object| object.waiting.load(Relaxed) != 0)
}

/// The next acquisitions capture their stack before the call.
pub(super) fn heat(entry: &Entry) {
    entry.hot.store(HOT, Relaxed);
    entries::slow_down(entry);
}

/// A stack, or what stands for one that could not be captured.
pub(super) fn known(site: u32) -> u32 {
    if site == 0 { cause::UNKNOWN } else { site }
}
