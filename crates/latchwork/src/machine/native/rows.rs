//! The threads' rows of slots, in a [`Roll`]. A thread that exits with something in its row leaves the row behind.

use super::exit::Hook;
use super::roll::Roll;
use super::{Group, Native, ReaderRow};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

type Row = ReaderRow<Native>;

static ROWS: Roll<Row> = Roll::new();

crate::thread_local_word!(
    /// The calling thread's row, or null.
    Local: *mut Row = "reader_row"
);

/// How far a thread's word for its row is from its thread pointer: for assembly that reads the row.
#[cfg(target_arch = "x86_64")]
pub(super) fn offset() -> isize {
    Local::offset()
}

/// Readies what happens when a thread exits.
pub(super) fn init() {
    Hook::ROWS.create(thread_exit);
}

/// The calling thread's row.
#[inline(always)]
pub(super) fn own() -> &'static Row {
    let row = Local::get();
    if row.is_null() {
        return take();
    }
    // SAFETY: rows are never unmapped.
    unsafe { &*row }
}

/// The newest group of rows; the others are linked behind it.
pub(super) fn newest() -> Option<&'static Group<Native, Row>> {
    ROWS.newest()
}

/// Gets an empty row for a thread that has none.
#[cold]
#[inline(never)]
fn take() -> &'static Row {
    let found = ROWS.take();
    Local::set(found.as_ptr());
    init();
    Hook::ROWS.set();
    found
}

/// Runs when a thread exits, and once more if destructors that run later take read locks.
fn thread_exit() {
    // SAFETY: null, or a row, which is never unmapped.
    let row = unsafe { Local::get().as_ref() };
    Local::set(null_mut());
    if let Some(row) = row {
        ROWS.give_back(row);
    }
}

/// In a forked child: empties the rows of all other threads, and takes the rows from them. The statistics begin at 0.
pub(super) fn after_fork() {
    let count_anew = |row: &Row| {
        row.counts.iter().filter(|count| count.load(Relaxed) != 0).for_each(|count| count.store(0, Relaxed));
    };
    let mine = Local::get();
    // SAFETY: null, or a row, which is never unmapped.
    unsafe { mine.as_ref() }.into_iter().for_each(count_anew);
    ROWS.forget_others(mine, |row| {
        row.slots.iter().filter(|slot| slot.load(Relaxed) != 0).for_each(|slot| slot.store(0, Relaxed));
        count_anew(row);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::alone::alone;
    use std::collections::{BTreeSet, HashSet};
    use std::sync::Mutex;

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
            || newest().unwrap().owned().any(|row| row.slots.iter().any(|slot| slot.load(Acquire) == 0x1230));
        for _ in 0..50 {
            std::thread::spawn(move || assert!(!core::ptr::eq(slot, &own().slots[0]))).join().unwrap();
        }
        assert!(visible());
        slot.store(0, Release);
        assert!(!visible());
    }

    static SEEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

    /// Takes a row, and has itself called again in so many further rounds of destructors as the value says.
    extern "C" fn take_in_destructor(value: *mut libc::c_void) {
        SEEN.lock().unwrap().insert(own().as_ptr().addr());
        let (key, rounds) = (value.addr() >> 8, value.addr() & 0xff);
        if rounds > 1 {
            // SAFETY: the test has made the key.
            unsafe {
                libc::pthread_setspecific(key as u32, core::ptr::without_provenance(key << 8 | (rounds - 1)))
            };
        }
    }

    /// How many rows 100 threads take, one after the other, in the destructor of this key in so many rounds.
    fn rows_of_destructors(key: libc::pthread_key_t, rounds: usize) -> usize {
        SEEN.lock().unwrap().clear();
        for _ in 0..100 {
            let body = move || {
                let value = core::ptr::without_provenance((key as usize) << 8 | rounds);
                // SAFETY: the key is there.
                assert_eq!(unsafe { libc::pthread_setspecific(key, value) }, 0);
            };
            std::thread::spawn(body).join().unwrap();
        }
        SEEN.lock().unwrap().len()
    }

    /// The C library runs four rounds of destructors. A row that is taken in the last one, behind this crate's own key (31), is not given
    /// back: `docs/cli.md` says so.
    #[test]
    fn rows_that_destructors_take() {
        alone("machine::native::rows::tests::rows_that_destructors_take", || {
            own();
            let mut keys = [0; 40];
            for key in &mut keys {
                // SAFETY: there is room for the key.
                assert_eq!(unsafe { libc::pthread_key_create(key, Some(take_in_destructor)) }, 0);
            }
            let (before, behind) = (keys[0], keys[39]);
            assert!(before < 31 && behind > 31);
            assert!(rows_of_destructors(before, 4) <= 2);
            assert!(rows_of_destructors(behind, 3) <= 2);
            assert_eq!(rows_of_destructors(behind, 4), 100);
        });
    }
}
