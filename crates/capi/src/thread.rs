//! The words of the calling thread that the headers use (`struct lw_thread`), and what happens to them when it exits.
//!
//! The words point to the thread's record and row, which the library gives to another thread when this one exits. So, before
//! that, the hook for exits sets the pointer to the record to null, and that to the row to a row that stands for none. If
//! destructors that run later read again, a slow path sets them anew.
//!
//! A thread may exit inside of a section, or with a read lock, and end it in such a later destructor. Then it keeps the
//! record, which no other thread gets any more. The row is not given to another thread as long as a slot is filled, and
//! `left` says where to find it. If such a destructor takes a read lock, the thread gets another row, which it may leave behind in
//! the same way. glibc runs four rounds of destructors, so there are at most four such rows.

use crate::hazard::slots::Spare;
use latchwork::Mutex;
use latchwork::machine::record::{Clocks, NESTING};
use latchwork::machine::{Machine, Native, ReaderRow, Record, Records};
use latchwork::reclaim::qsbr::QsbrReader;
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, Release};

type OwnRecord = Record<Native>;
type Row = ReaderRow<Native>;
/// The thread's reader of quiescent-state-based RCU; `None` while it is offline.
pub(crate) type Reader = Option<QsbrReader<'static, Native>>;

/// `struct lw_thread`.
#[repr(C)]
pub(crate) struct Thread {
    pub record: *const OwnRecord,
    clocks: *const Clocks<Native>,
    pub row: *const Row,
    pub reader: *mut Reader,
    /// Rows that the thread has left behind, with locks that it still reads.
    left: *mut Left,
    /// Whether the thread keeps the record after it has given it back.
    keeps: bool,
    /// Whether the thread runs a callback and was online when the callback began.
    interrupted: bool,
    /// Hazard pointers that the thread has destroyed, and uses again.
    pub hazards: Spare,
}

/// A row that its thread has left behind, with a lock that the thread still reads; in a box. The rows of a thread are linked here
/// and not in themselves: in the child of a fork, a row may get another owner.
struct Left {
    row: &'static Row,
    next: *mut Left,
}

/// The first slot of a row that stands for none: `LW_NO_ROW_`. No lock has this address.
const NO_ROW: usize = 1;

const _: () = {
    assert!(offset_of!(Thread, clocks) == 8 && offset_of!(Thread, row) == 16 && size_of::<Thread>() == 64);
    assert!(offset_of!(OwnRecord, section) == 0 && offset_of!(OwnRecord, online) == 8);
    assert!(offset_of!(OwnRecord, pinned) == 16);
    assert!(offset_of!(Clocks<Native>, grace) == 0 && offset_of!(Clocks<Native>, epoch) == 128);
    assert!(offset_of!(Row, slots) == 0 && offset_of!(Row, unbiased) == 72);
};

unsafe extern "C" {
    #[allow(improper_ctypes, reason = "to C, the words are addresses")]
    fn lw_thread_address() -> *mut Thread;
    /// Tells ThreadSanitizer, if the program has it, that what was released at the address happens before.
    pub(crate) safe fn lw_tsan_acquire(address: *mut ());
    safe fn lw_has_tsan() -> bool;
    /// The row that stands for none.
    safe fn lw_no_row() -> *const Row;
    /// Tells ThreadSanitizer, if the program has it, that what was done before is released at the address.
    pub(crate) safe fn lw_tsan_release(address: *mut ());
    /// Until the call with `false`, ThreadSanitizer, if the program has it, does not look at what the calling thread reads and writes.
    pub(crate) safe fn lw_tsan_ignore(ignore: bool);
}

/// Gets a record or a row. ThreadSanitizer takes the mapping of a page of them for a write, which must come before their
/// owners' writes: so threads do this one after the other, in a program that has it.
fn ordered<T>(get: impl FnOnce() -> T) -> T {
    static ORDER: Mutex<()> = Mutex::new(());
    let _ordered = lw_has_tsan().then(|| ORDER.lock());
    lw_tsan_acquire((&raw const ORDER).cast_mut().cast());
    let got = get();
    lw_tsan_release((&raw const ORDER).cast_mut().cast());
    got
}

/// The calling thread's words.
pub(crate) fn own() -> *mut Thread {
    // SAFETY: the function returns the address of a thread-local variable.
    unsafe { lw_thread_address() }
}

/// The calling thread's record, which the headers use from now on.
pub(crate) fn record() -> &'static OwnRecord {
    let own = own();
    // SAFETY: the words are the thread's own; a record is never unmapped. The headers write to the record as `reclaim` does.
    unsafe {
        if (*own).record.is_null() {
            (*own).record = ordered(|| Native::record());
            (*own).clocks = Native::clocks();
            notice_exit();
        }
        &*(*own).record
    }
}

/// The row of the thread with these words, if it has one.
///
/// # Safety
///
/// The words are the calling thread's own.
unsafe fn own_row(own: *mut Thread) -> Option<&'static Row> {
    // SAFETY: the words are the thread's own. The pointer is to a row, or to slots like a row's that stand for none; neither is
    // ever unmapped. These slots are not the same ones everywhere: each copy of this library in the process has its own. So the
    // first slot's value tells.
    unsafe {
        let first: &AtomicUsize = &*(*own).row.cast();
        (first.load(Relaxed) != NO_ROW).then(|| &*(*own).row)
    }
}

/// Has the headers use the calling thread's row from now on.
pub(crate) fn use_row() {
    let own = own();
    // SAFETY: the words are the thread's own. The headers write to the row as BRAVO does.
    unsafe {
        if own_row(own).is_none() {
            (*own).row = ordered(|| Native::reader_row()).map_or(lw_no_row(), |row| row);
            notice_exit();
        }
    }
}

/// Empties a slot that holds `lock` in a row that the thread has left behind. Returns whether there was one.
pub(crate) fn leave_left_row(lock: usize) -> bool {
    let own = own();
    // SAFETY: the words are the thread's own, and so are the boxes.
    let mut link = unsafe { &raw mut (*own).left };
    // SAFETY: as above; each link is null or leads to a box.
    while let Some(&Left { row, next }) = unsafe { (*link).as_ref() } {
        let filled = || row.slots.iter().filter(|slot| slot.load(Relaxed) != 0);
        if let Some(slot) = filled().find(|slot| slot.load(Relaxed) == lock) {
            if filled().count() == 1 {
                // Before the store: another thread gets the row once no slot is filled.
                // SAFETY: `link` leads to this box, and nothing else does.
                drop(unsafe { Box::from_raw(link.replace(next)) });
            }
            slot.store(0, Release);
            return true;
        }
        // SAFETY: the box is there.
        link = unsafe { &raw mut (**link).next };
    }
    false
}

/// Runs a callback of the program.
#[inline]
pub(crate) fn run_callback(callback: impl FnOnce()) {
    let own = own();
    // SAFETY: the words are the thread's own; the pointer is null, or to what a box made. A callback that unwinds ends the
    // process.
    let before = unsafe {
        let online = (*own).reader.as_ref().is_some_and(Option::is_some);
        (&raw mut (*own).interrupted).replace(online)
    };
    callback();
    // SAFETY: the words are the thread's own.
    unsafe { (*own).interrupted = before };
}

/// The calling thread's reader of quiescent-state-based RCU, if the thread has been online, for the function `name`. After
/// that function, the thread keeps no reference to what it has read before.
///
/// A callback that runs in a thread that is online knows nothing of the references of the code that it interrupts. So there
/// this ends the process.
pub(crate) fn reader_at_rest(name: &str) -> Option<&'static mut Reader> {
    let own = own();
    // SAFETY: the words are the thread's own.
    let interrupted = unsafe { (*own).interrupted };
    assert!(
        !interrupted,
        "{name} in a callback that runs in a thread that is online: the thread may still read what this would have \
         reclaimed. Use lw_qsbr_call in its place, or have callbacks run where the thread is offline"
    );
    // SAFETY: the pointer is null, or to what a box made. The caller is done with the reference before the next one is made.
    unsafe { (*own).reader.as_mut() }
}

/// Where ThreadSanitizer is told that sections have ended: the clocks.
pub(crate) fn clocks() -> *mut Clocks<Native> {
    // SAFETY: only the address is used.
    core::ptr::from_ref(unsafe { Native::clocks() }).cast_mut()
}

pub(crate) fn notice_exit() {
    Native::set_exit(at_exit);
    // Without a key the exit is not noticed, but then the library gives nothing to another thread either.
    Native::notice_exit();
}

/// Runs when a thread exits, before the library gives the thread's record and row to others; and again if destructors that run
/// later use them. So what stands in the record and in the row is the thread's own. Later it may be another thread's.
fn at_exit() {
    let own = own();
    // SAFETY: the words are the thread's own; records and rows are never unmapped; the reader was made by a box.
    unsafe {
        if !(*own).reader.is_null() {
            drop(Box::from_raw((*own).reader));
            (*own).reader = null_mut();
        }
        (*own).hazards.give_back();
        if let Some(record) = (*own).record.as_ref() {
            let reads =
                [&record.section, &record.pinned].iter().any(|word| word.load(Relaxed) & NESTING != 0);
            let keepers = record.keepers.load(Relaxed);
            if reads && !(*own).keeps {
                // No other thread gets the record while it is in use; this keeps it so after the section.
                record.keepers.store(keepers + 1, Relaxed);
                (*own).keeps = true;
            } else if !reads {
                if (*own).keeps {
                    record.keepers.store(keepers - 1, Release);
                    (*own).keeps = false;
                }
                (*own).record = null();
            }
        }
        if let Some(row) = own_row(own) {
            (*own).row = lw_no_row();
            if !row.is_empty() {
                (*own).left = Box::into_raw(Box::new(Left { row, next: (*own).left }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hazard::slots::while_locked;
    use latchwork::machine::record::STEP;
    use std::ffi::c_void;
    use std::ptr::without_provenance_mut;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Acquire};
    use std::thread::{scope, sleep, spawn};
    use std::time::{Duration, Instant};

    unsafe extern "C" {
        safe fn lw_hazard_make() -> *mut c_void;
        fn lw_hazard_destroy(hazard: *mut c_void);
    }

    static KEY: AtomicU32 = AtomicU32::new(0);
    /// The record of the thread that exits, and the one that it uses after `at_exit`.
    static FIRST: AtomicUsize = AtomicUsize::new(0);
    static USED: AtomicUsize = AtomicUsize::new(1);
    /// Lets the thread exit.
    static EXIT: AtomicBool = AtomicBool::new(false);

    fn wait_for(done: impl Fn() -> bool) {
        while !done() {
            sleep(Duration::from_micros(100));
        }
    }

    /// Runs in three rounds of destructors, and so also after `at_exit`, whichever key comes first.
    unsafe extern "C" fn late(round: *mut c_void) {
        // SAFETY: the key is the test's, and the words are the thread's own.
        unsafe {
            if round.addr() < 3 {
                libc::pthread_setspecific(KEY.load(Relaxed), without_provenance_mut(round.addr() + 1));
            }
            USED.store((*own()).record.addr(), Relaxed);
        }
    }

    /// The exit stops in `at_exit`, which gives hazard pointers back. Other threads get records and begin sections meanwhile.
    #[test]
    fn an_exiting_thread_does_not_take_anothers_section_for_its_own() {
        let mut key = 0;
        // SAFETY: `key` is valid.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(late)) }, 0);
        KEY.store(key, Relaxed);
        let exiting = spawn(|| {
            // SAFETY: the hazard pointer is destroyed once; the key is the test's.
            unsafe {
                lw_hazard_destroy(lw_hazard_make());
                libc::pthread_setspecific(KEY.load(Relaxed), without_provenance_mut(1));
            }
            FIRST.store(core::ptr::from_ref(record()).addr(), Release);
            wait_for(|| EXIT.load(Acquire));
        });
        wait_for(|| FIRST.load(Acquire) != 0);
        let (looked, found, over) = (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
        // Reads until the end in the record of the thread that exits, if it gets it.
        let look = || {
            let mine = record();
            if core::ptr::from_ref(mine).addr() == FIRST.load(Relaxed) {
                mine.section.store(STEP | 1, Release);
                found.store(true, Release);
                wait_for(|| over.load(Acquire));
                mine.section.store(0, Release);
            }
            looked.fetch_add(1, Release);
        };
        scope(|scope| {
            while_locked(|| {
                EXIT.store(true, Release);
                let start = Instant::now();
                // No thread may get the record now, so this looks for a while only.
                for round in 1.. {
                    if found.load(Acquire) || start.elapsed() > Duration::from_millis(200) {
                        break;
                    }
                    scope.spawn(look);
                    wait_for(|| found.load(Acquire) || looked.load(Acquire) == round);
                }
            });
            exiting.join().unwrap();
            over.store(true, Release);
        });
        assert_eq!(USED.load(Relaxed), 0, "the thread still uses a record that it has given back");
    }

    /// Not even if both read the same lock: each empties slots of its own.
    #[test]
    fn a_thread_does_not_empty_the_slots_of_the_next_owner_of_the_row_that_it_has_left() {
        let body = || {
            // SAFETY: the words and the row are the thread's own, and it reads no lock. No lock has these addresses.
            let row = unsafe {
                let row = Native::reader_row().unwrap();
                (*own()).left = Box::into_raw(Box::new(Left { row, next: null_mut() }));
                row
            };
            let fill = |slot: usize, lock| row.slots[slot].store(lock, Relaxed);
            fill(1, 8);
            fill(2, 16);
            assert!(leave_left_row(8) && !leave_left_row(8) && leave_left_row(16));
            fill(1, 8); // the next owner
            assert!(!leave_left_row(8));
            fill(1, 0);
        };
        spawn(body).join().unwrap();
    }

    /// A thread that exits in a section keeps its record until the section has ended, and no longer.
    #[test]
    fn an_exiting_thread_keeps_its_record_while_it_reads() {
        let body = || {
            let mine = record();
            // SAFETY: the words are the thread's own.
            let has_record = || unsafe { !(*own()).record.is_null() };
            mine.section.store(STEP | 1, Release);
            for _ in 0..2 {
                at_exit();
                assert!(has_record() && mine.keepers.load(Relaxed) == 1);
            }
            mine.section.store(0, Release);
            at_exit();
            assert!(!has_record() && mine.keepers.load(Relaxed) == 0);
        };
        spawn(body).join().unwrap();
    }

    /// The end of a callback in a callback does not end the outer one.
    #[test]
    fn callbacks_nest() {
        unsafe extern "C" {
            safe fn lw_qsbr_online();
            safe fn lw_qsbr_offline();
        }
        let body = || {
            // SAFETY: the words are the thread's own.
            let is_interrupted = || unsafe { (*own()).interrupted };
            lw_qsbr_online();
            run_callback(|| {
                run_callback(|| assert!(is_interrupted()));
                assert!(is_interrupted());
            });
            assert!(!is_interrupted());
            lw_qsbr_offline();
        };
        spawn(body).join().unwrap();
    }
}
