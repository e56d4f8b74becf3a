//! The memory of threads, one after the other, and what other threads may read of it.
//!
//! A thread does not say when it ends: a new thread looks whether two of the threads before it are still alive, and takes
//! over what a dead one had. So there are about as many homes as threads alive at one time.

use super::entries::Entries;
use super::file::MOST_THREADS;
use super::session;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use latchwork_recording::layout::Thread;

/// The part of a thread's memory that other threads may read. It stays mapped.
#[repr(C)]
pub(super) struct Shared {
    pub(super) entries: Entries,
    /// The session that the entries and all else that the thread has belong to; 0: they are not complete.
    pub(super) session: AtomicU64,
    /// The address of the object for which the thread waits; 0: it does not wait for a lock.
    pub(super) waits_for: AtomicUsize,
    /// The record of the thread in the file of the session.
    pub(super) thread: AtomicPtr<Thread>,
    /// Whether the thread is in a call of the layer, and not in a wait. See [`live`](super::live).
    pub(super) inside: AtomicBool,
}

/// Memory and a table, which serve one thread after another.
pub(super) struct Home {
    /// The thread's number; [`VACANT`] or [`CLAIMED`].
    tid: AtomicU32,
    /// The start of the thread's memory; null: there is none yet.
    pub(super) memory: AtomicPtr<Shared>,
}
const VACANT: u32 = 0;
const CLAIMED: u32 = u32::MAX;
static HOMES: [Home; MOST_THREADS] =
    [const { Home { tid: AtomicU32::new(VACANT), memory: AtomicPtr::new(null_mut()) } }; MOST_THREADS];
/// How many have been used, and where the next search begins.
static USED: AtomicU32 = AtomicU32::new(0);
static SEARCH: AtomicU32 = AtomicU32::new(0);

impl Home {
    /// The home with this number, which [`claim`] has returned.
    pub(super) fn at(index: usize) -> &'static Self {
        &HOMES[index]
    }

    /// The thread with this number lives here; [`VACANT`]: none does.
    fn set(&self, tid: u32) {
        self.tid.store(tid, Release); // (A)
    }

    /// The calling thread lives here.
    pub(super) fn occupy(&self) {
        self.set(tid());
    }

    /// No thread lives here.
    pub(super) fn vacate(&self) {
        self.set(VACANT);
    }

    /// What other threads may read of the thread that lives here, or lived here last.
    fn shared(&self) -> Option<&'static Shared> {
        let memory = self.memory.load(Acquire);
        // SAFETY: the memory stays mapped, and all of this part is atomic.
        (!memory.is_null()).then(|| unsafe { &*memory })
    }

    /// Whether the thread that lives here is no more, or is not inside.
    pub(super) fn is_outside(&self) -> bool {
        // (B) pairs with the store at the end of a call.
        self.shared().is_none_or(|shared| !shared.inside.load(Acquire)) || is_gone(self.tid.load(Relaxed))
    }
}

/// All homes that have been used.
pub(super) fn all() -> &'static [Home] {
    &HOMES[..(USED.load(Relaxed) as usize).min(MOST_THREADS)]
}

/// The calling thread's number in the system.
pub(super) fn tid() -> u32 {
    // SAFETY: the call takes nothing and always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Whether the thread that had a home is no more.
fn is_gone(tid: u32) -> bool {
    // SAFETY: system calls without pointers. Signal 0 is not sent.
    tid == VACANT
        || tid != CLAIMED
            && unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) != 0
                    && *libc::__errno_location() == libc::ESRCH
            }
}

/// Takes a home in which no living thread is, and returns its number.
pub(super) fn claim() -> Option<usize> {
    let take = |index: usize, old| {
        // (A) the home is as the last thread left it.
        HOMES[index].tid.compare_exchange(old, CLAIMED, Acquire, Relaxed).is_ok().then_some(index)
    };
    loop {
        let used = USED.load(Relaxed).min(MOST_THREADS as u32);
        for _ in 0..2.min(used) {
            let index = (SEARCH.fetch_add(1, Relaxed) % used) as usize;
            let old = HOMES[index].tid.load(Relaxed);
            if is_gone(old)
                && let Some(index) = take(index, old)
            {
                return Some(index);
            }
        }
        let index = if used < MOST_THREADS as u32 { USED.fetch_add(1, Relaxed) } else { used };
        if index as usize >= MOST_THREADS {
            return None;
        }
        // Another thread may have found the home vacant in its search.
        if let Some(index) = take(index as usize, VACANT) {
            return Some(index);
        }
    }
}

/// How many threads hold the rwlock at this address for reading.
pub(super) fn readers(address: usize) -> usize {
    count(|shared| shared.entries.has_reader(address))
}

/// How many threads wait for the lock at this address.
pub(super) fn waiting(address: usize) -> usize {
    count(|shared| shared.waits_for.load(Relaxed) == address)
}

/// Calls `each` with the address of the lock for which a thread waits, and the thread's record, for each thread that waits.
pub(super) fn each_waiting(mut each: impl FnMut(usize, &Thread)) {
    let session = session::number();
    for shared in all().iter().filter_map(Home::shared) {
        let address = shared.waits_for.load(Relaxed);
        // (F) pairs with the store in `make`: the record is that of the session.
        if shared.session.load(Acquire) == session && address != 0 {
            // SAFETY: `make` has stored a record of this session's file, which stays mapped while the session lasts.
            each(address, unsafe { &*shared.thread.load(Relaxed) });
        }
    }
}

/// How many threads there are of which something is true. A thread that has made no call in this session does not count: its
/// entries lie where another thread may have its own now.
fn count(is: impl Fn(&Shared) -> bool) -> usize {
    let session = session::number();
    // (F) pairs with the store in `make`: the entries are those of the session.
    let counts = |shared: &Shared| shared.session.load(Acquire) == session && is(shared);
    all().iter().filter(|home| home.shared().is_some_and(counts)).count()
}

/// In a forked child, which has one thread: there are no homes, and `unmap` unmaps what each had. If the thread has memory, which is
/// `own`, then its home is the first one.
pub(super) fn forget(own: *mut Shared, unmap: impl Fn(*mut Shared)) {
    let used = (USED.swap(0, Relaxed) as usize).min(MOST_THREADS);
    for home in &HOMES[..used] {
        home.tid.store(VACANT, Relaxed);
        let memory = home.memory.swap(null_mut(), Relaxed);
        if !memory.is_null() && memory != own {
            unmap(memory);
        }
    }
    if !own.is_null() {
        USED.store(1, Relaxed);
        HOMES[0].memory.store(own, Relaxed);
        HOMES[0].occupy();
    }
}
