//! The threads' rows of slots, a list that only grows.
//!
//! A thread finds its row through a thread-local word. Rows come from `mmap`, a page at a time, and
//! are linked before anybody uses them; a thread that exits gives its row back through a
//! `pthread_key` destructor, or leaves it behind if something is still in it: then the next thread
//! that looks for a row and finds that one empty gets it.

use super::super::ReaderRow;
use super::Native;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

type Row = ReaderRow<Native>;

/// Rows made at a time: one page.
const PAGE: usize = 4096 / size_of::<Row>();

/// [`Row::taken`]: nobody's, somebody's, or left behind by a thread that exited.
const FREE: u32 = 0;
const OWNED: u32 = 1;
const LEFT: u32 = 2;

/// The newest row.
static ROWS: AtomicPtr<Row> = AtomicPtr::new(null_mut());
/// The `pthread_key` plus one; 0 while there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

#[cfg(target_arch = "x86_64")]
mod tls {
    //! As in `pool`: the initial-exec model.
    core::arch::global_asm!(
        ".pushsection .tbss.__latchwork_reader_row,\"awT\",@nobits",
        ".weak __latchwork_reader_row",
        ".hidden __latchwork_reader_row",
        ".type __latchwork_reader_row, @object",
        ".size __latchwork_reader_row, 8",
        ".balign 8",
        "__latchwork_reader_row:",
        ".zero 8",
        ".popsection",
    );

    /// The calling thread's row, or null.
    #[inline(always)]
    pub(super) fn get() -> *mut super::Row {
        let row: *mut super::Row;
        // SAFETY: the symbol above is thread-local and defined in this link unit.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_reader_row@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) row,
                options(nostack, readonly, preserves_flags),
            );
        }
        row
    }

    #[inline]
    pub(super) fn set(row: *mut super::Row) {
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_reader_row@GOTTPOFF]",
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) row,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tls {
    extern crate std;
    use core::cell::Cell;

    std::thread_local! {
        static ROW: Cell<*mut super::Row> = const { Cell::new(core::ptr::null_mut()) };
    }

    #[inline]
    pub(super) fn get() -> *mut super::Row {
        ROW.with(Cell::get)
    }

    #[inline]
    pub(super) fn set(row: *mut super::Row) {
        ROW.with(|cell| cell.set(row));
    }
}

/// Creates the key. Early, so that it is among the first 32, which need no allocation.
pub(super) fn init() {
    if KEY.load(Acquire) == 0 {
        let mut key = 0;
        // SAFETY: `key` is valid for writes and the destructor is a plain function.
        if unsafe { libc::pthread_key_create(&mut key, Some(thread_exit)) } != 0 {
            return; // no keys left: rows of threads that exit are then not reused
        }
        if KEY.compare_exchange(0, key + 1, AcqRel, Relaxed).is_err() {
            // SAFETY: created above, used by nobody.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
}

/// The calling thread's row.
#[inline(always)]
pub(super) fn own() -> &'static Row {
    let row = tls::get();
    if row.is_null() {
        return take();
    }
    // SAFETY: rows are never unmapped.
    unsafe { &*row }
}

/// The newest row; the others are linked behind it.
pub(super) fn newest() -> Option<&'static Row> {
    // (A) pairs with the linking in `map`. SAFETY: rows are never unmapped.
    unsafe { ROWS.load(Acquire).as_ref() }
}

/// An empty row for a thread that has none.
#[cold]
#[inline(never)]
fn take() -> &'static Row {
    let mut row = ROWS.load(Acquire); // (A)
    let found = loop {
        // SAFETY: rows are never unmapped.
        let Some(this) = (unsafe { row.as_ref() }) else { break map() };
        let taken = this.taken.load(Relaxed);
        // (B) pairs with the release in `thread_exit`. A row that was left behind stays empty once
        // it is: only an owner fills slots.
        if (taken == FREE || taken == LEFT && this.is_empty())
            && this.taken.compare_exchange(taken, OWNED, Acquire, Relaxed).is_ok()
        {
            break this;
        }
        row = this.next.load(Acquire); // (A)
    };
    tls::set(found.as_ptr());
    init();
    if let Some(key) = KEY.load(Acquire).checked_sub(1) {
        // SAFETY: the key exists; any non-null value makes the destructor run.
        unsafe { libc::pthread_setspecific(key, found.as_ptr().cast()) };
    }
    found
}

/// A page of new rows, the first of which is the caller's.
fn map() -> &'static Row {
    // SAFETY: an anonymous private mapping, checked below; `errno` is restored because lock calls
    // must not disturb it.
    let page: *mut Row = unsafe {
        let errno = *libc::__errno_location();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(null_mut(), PAGE * size_of::<Row>(), protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            // A lock call has no way to report this, and going on would break exclusion.
            libc::abort();
        }
        *libc::__errno_location() = errno;
        page.cast()
    };
    // SAFETY: the page is ours and large enough, and zero is an empty row.
    unsafe {
        (*page).taken.store(OWNED, Relaxed);
        for i in 1..PAGE {
            (*page.add(i)).next.store(page.add(i - 1), Relaxed);
        }
        let mut newest = ROWS.load(Relaxed);
        loop {
            (*page).next.store(newest, Relaxed);
            // (A) the rows are empty and linked. They are so before their owners use them, so a
            // writer that finds a slot's bias off too late also finds its row.
            match ROWS.compare_exchange(newest, page.add(PAGE - 1), Release, Relaxed) {
                Ok(_) => return &*page,
                Err(now) => newest = now,
            }
        }
    }
}

/// Runs when a thread exits; again, if later destructors take read locks.
extern "C" fn thread_exit(row: *mut libc::c_void) {
    tls::set(null_mut());
    // SAFETY: the value was set by `take` on this very thread; rows are never unmapped.
    let row = unsafe { &*row.cast::<Row>() };
    // (B) the next owner comes after this one.
    row.taken.store(if row.is_empty() { FREE } else { LEFT }, Release);
}

/// In a forked child: empties all rows, and takes those of other threads from them. A child counts for
/// itself.
pub(super) fn after_fork() {
    let mine = tls::get();
    let mut row = ROWS.load(Acquire);
    // SAFETY: rows are never unmapped.
    while let Some(this) = unsafe { row.as_ref() } {
        for slot in &this.slots {
            if slot.load(Relaxed) != 0 {
                slot.store(0, Relaxed);
            }
        }
        for counter in &this.counts {
            if counter.load(Relaxed) != 0 {
                counter.store(0, Relaxed);
            }
        }
        if row != mine && this.taken.load(Relaxed) != FREE {
            this.taken.store(FREE, Relaxed);
        }
        row = this.next.load(Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn threads_have_rows_of_their_own_and_leave_them_to_others() {
        let mut seen = HashSet::new();
        for _ in 0..50 {
            let barrier = &std::sync::Barrier::new(8);
            let rows: HashSet<usize> = std::thread::scope(|scope| {
                let threads: std::vec::Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            let row = own();
                            assert!(core::ptr::eq(row, own()) && row.is_empty());
                            barrier.wait();
                            row.as_ptr().addr()
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(rows.len(), 8, "two threads share a row");
            seen.extend(rows);
        }
        assert!(seen.len() < 200, "rows of threads that exited are not reused: {}", seen.len());
    }

    /// What a thread leaves in its row when it exits stays visible, and its row stays its.
    #[test]
    fn a_row_in_use_outlives_its_thread() {
        let slot = std::thread::spawn(|| {
            own().slots[0].store(0x1230, Release);
            &own().slots[0]
        })
        .join()
        .unwrap();
        let visible =
            || !newest().unwrap().all_rows(|row| row.slots.iter().all(|slot| slot.load(Acquire) != 0x1230));
        for _ in 0..50 {
            std::thread::spawn(move || assert!(!core::ptr::eq(slot, &own().slots[0]))).join().unwrap();
        }
        assert!(visible());
        slot.store(0, Release);
        assert!(!visible());
    }
}
