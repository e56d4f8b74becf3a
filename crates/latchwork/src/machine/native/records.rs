//! The threads' records for reclamation, a list that only grows.
//!
//! As with `rows`: a thread finds its record through a thread-local word, records come from `mmap`, a
//! page at a time, and are linked before anybody uses them; a thread that exits gives its record back,
//! or leaves it behind if it reads something still. The child of a fork keeps the record of the thread
//! that forked, and empties the others.

use super::super::record::{Clocks, FENCED, Record, Records};
use super::{Machine, Native};
use crate::reclaim::Stall;
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

type Own = Record<Native>;

/// Records made at a time: one page.
const PAGE: usize = 4096 / size_of::<Own>();

/// [`Record::taken`]: nobody's, somebody's, or left behind by a thread that exited.
const FREE: u32 = 0;
const OWNED: u32 = 1;
const LEFT: u32 = 2;

/// The newest record.
static RECORDS: AtomicPtr<Own> = AtomicPtr::new(null_mut());
/// The `pthread_key` plus one; 0 while there is none.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Forks on the way to this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static CLOCKS: Clocks<Native> = Clocks::native();

#[cfg(target_arch = "x86_64")]
mod tls {
    //! As in `pool`: the initial-exec model.
    core::arch::global_asm!(
        ".pushsection .tbss.__latchwork_record,\"awT\",@nobits",
        ".weak __latchwork_record",
        ".hidden __latchwork_record",
        ".type __latchwork_record, @object",
        ".size __latchwork_record, 8",
        ".balign 8",
        "__latchwork_record:",
        ".zero 8",
        ".popsection",
    );

    /// The calling thread's record, or null.
    #[inline(always)]
    pub(super) fn get() -> *mut super::Own {
        let record: *mut super::Own;
        // SAFETY: the symbol above is thread-local and defined in this link unit.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_record@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) record,
                options(nostack, readonly, preserves_flags),
            );
        }
        record
    }

    #[inline]
    pub(super) fn set(record: *mut super::Own) {
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_record@GOTTPOFF]",
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) record,
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
        static RECORD: Cell<*mut super::Own> = const { Cell::new(core::ptr::null_mut()) };
    }

    #[inline]
    pub(super) fn get() -> *mut super::Own {
        RECORD.with(Cell::get)
    }

    #[inline]
    pub(super) fn set(record: *mut super::Own) {
        RECORD.with(|cell| cell.set(record));
    }
}

// SAFETY: a record is owned by who set `taken` to OWNED, and linked in `map` before that; the mapping
// stays; a new owner looks whether it is idle.
unsafe impl Records for Native {
    #[inline(always)]
    fn record() -> &'static Own {
        let record = tls::get();
        if record.is_null() {
            return take();
        }
        // SAFETY: records are never unmapped.
        unsafe { &*record }
    }

    #[inline]
    fn records() -> Option<&'static Own> {
        // (A) pairs with the linking in `map`. SAFETY: records are never unmapped.
        unsafe { RECORDS.load(Acquire).as_ref() }
    }

    #[inline(always)]
    fn clocks() -> &'static Clocks<Native> {
        &CLOCKS
    }

    #[inline]
    fn generation() -> u32 {
        GENERATION.load(Relaxed)
    }

    /// One line on stderr, in one piece.
    #[cold]
    fn report_stall(stall: Stall) {
        let mut line = Line { text: [0; 160], length: 0 };
        let Stall { thread, nanos } = stall;
        let (pid, seconds) = (process(), nanos / 1_000_000_000);
        let _ = writeln!(
            line,
            "latchwork: process {pid}, thread {thread} has held up a grace period for {seconds} s"
        );
        // SAFETY: the buffer is valid for its length.
        unsafe { libc::write(2, line.text.as_ptr().cast(), line.length) };
    }
}

fn process() -> i32 {
    // SAFETY: no arguments, no memory.
    unsafe { libc::getpid() }
}

/// A line of text without allocation; what is too long is cut off.
struct Line {
    text: [u8; 160],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = &mut self.text[self.length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}

/// Creates the key, and has the child of a fork told, once.
fn init() {
    if KEY.load(Acquire) == 0 {
        let mut key = 0;
        // SAFETY: `key` is valid for writes and the destructor is a plain function.
        if unsafe { libc::pthread_key_create(&mut key, Some(thread_exit)) } != 0 {
            return; // no keys left: records of threads that exit are then not reused
        }
        // Before anybody relies on it; that it may be there twice does no harm.
        // SAFETY: `after_fork` is a plain function that does nothing a forked child must not do.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
        if KEY.compare_exchange(0, key + 1, AcqRel, Relaxed).is_err() {
            // SAFETY: created above, used by nobody.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
}

/// An idle record for a thread that has none.
#[cold]
#[inline(never)]
fn take() -> &'static Own {
    init(); // first: a fork while the fences are being prepared must be noticed
    let fenced = if Native::prepare_fences() { 0 } else { FENCED };
    let free = Native::records().and_then(|newest| {
        newest.all().find(|record| {
            let taken = record.taken.load(Relaxed);
            // (B) pairs with the release in `thread_exit`. One that was left behind is idle once and
            // for all when it is: only an owner begins to read.
            (taken == FREE || taken == LEFT && record.is_idle())
                && record.taken.compare_exchange(taken, OWNED, Acquire, Relaxed).is_ok()
        })
    });
    let found = free.unwrap_or_else(map);
    for word in [&found.section, &found.online, &found.pinned] {
        word.store(fenced, Relaxed);
    }
    // SAFETY: no arguments, no memory.
    found.thread.store(unsafe { libc::gettid() } as u32, Relaxed);
    tls::set(found.as_ptr());
    if let Some(key) = KEY.load(Acquire).checked_sub(1) {
        // SAFETY: the key exists; any non-null value makes the destructor run.
        unsafe { libc::pthread_setspecific(key, found.as_ptr().cast()) };
    }
    found
}

/// A page of new records, the first of which is the caller's.
fn map() -> &'static Own {
    // SAFETY: an anonymous private mapping, checked below; zero is an idle record.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(null_mut(), PAGE * size_of::<Own>(), protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            // A reader has no way to report this, and going on would be use after free.
            libc::abort();
        }
        let page: *mut Own = page.cast();
        (*page).taken.store(OWNED, Relaxed);
        for i in 1..PAGE {
            (*page.add(i)).next.store(page.add(i - 1), Relaxed);
        }
        let mut newest = RECORDS.load(Relaxed);
        loop {
            (*page).next.store(newest, Relaxed);
            // (A) the records are idle and linked. They are so before their owners begin to read: a
            // grace period that does not find the record is one that the reader need not be waited for in.
            match RECORDS.compare_exchange(newest, page.add(PAGE - 1), Release, Relaxed) {
                Ok(_) => return &*page,
                Err(now) => newest = now,
            }
        }
    }
}

/// Runs when a thread exits; again, if later destructors read.
extern "C" fn thread_exit(record: *mut libc::c_void) {
    tls::set(null_mut());
    // SAFETY: the value was set by `take` on this very thread; records are never unmapped.
    let record: &'static Own = unsafe { &*record.cast::<Own>() };
    // (B) the next owner comes after this one.
    record.taken.store(if record.is_idle() { FREE } else { LEFT }, Release);
}

/// In a forked child: takes the other threads' records from them.
extern "C" fn after_fork() {
    super::fence::after_fork();
    let generation = GENERATION.load(Relaxed);
    GENERATION.store((generation + 1) % (1 << 30), Relaxed);
    let mine = tls::get();
    for record in Native::records().into_iter().flat_map(Record::all) {
        if record.as_ptr() == mine {
            // SAFETY: no arguments, no memory.
            record.thread.store(unsafe { libc::gettid() } as u32, Relaxed);
        } else if record.taken.load(Relaxed) != FREE {
            record.reset();
            record.taken.store(FREE, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    #[test]
    fn threads_have_records_of_their_own_and_leave_them_to_others() {
        let mut seen = HashSet::new();
        for _ in 0..50 {
            let barrier = &std::sync::Barrier::new(8);
            let records: HashSet<usize> = std::thread::scope(|scope| {
                let body = || {
                    let record = Native::record();
                    assert!(core::ptr::eq(record, Native::record()) && record.is_idle());
                    barrier.wait();
                    record.as_ptr().addr()
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(body)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(records.len(), 8, "two threads share a record");
            seen.extend(records);
        }
        assert!(seen.len() < 200, "records of threads that exited are not reused: {}", seen.len());
    }

    /// A thread that exits inside of a section is inside for ever, and its record stays its.
    #[test]
    fn a_record_in_use_outlives_its_thread() {
        let left = std::thread::spawn(|| {
            let record = Native::record();
            record.section.store(1, Release);
            record
        })
        .join()
        .unwrap();
        for _ in 0..50 {
            std::thread::spawn(move || assert!(!core::ptr::eq(left, Native::record()))).join().unwrap();
        }
        left.section.store(0, Release);
    }

    #[test]
    fn a_fork_takes_along_one_thread() {
        let (inside, left) = (&std::sync::Barrier::new(2), &std::sync::Barrier::new(2));
        let status = std::thread::scope(|scope| {
            scope.spawn(|| {
                Native::record().section.store(1, Release);
                inside.wait();
                left.wait();
                Native::record().section.store(0, Release);
            });
            inside.wait();
            let (mine, generation) = (Native::record(), Native::generation());
            mine.online.store(1, Relaxed);
            // SAFETY: the child only looks at words and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let kept = mine.online.load(Relaxed) == 1 && core::ptr::eq(mine, Native::record());
                let mut others = Native::records().unwrap().all().filter(|r| !core::ptr::eq(*r, mine));
                let ok = kept && others.all(Record::is_idle);
                let ok = ok && Native::generation() != generation;
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!ok)) };
            }
            mine.online.store(0, Relaxed);
            let mut status = -1;
            // SAFETY: the child is ours and `status` valid.
            unsafe { libc::waitpid(child, &mut status, 0) };
            left.wait();
            status
        });
        assert_eq!(status, 0);
    }
}
