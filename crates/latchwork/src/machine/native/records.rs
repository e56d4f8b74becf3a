//! The threads' records for reclamation, in a [`Roll`]. A thread that exits inside of a section leaves its record behind.
//! The child of a fork keeps the record of the thread that forked, and makes the others idle.

use super::super::record::{Clocks, Record, Records, Stall};
use super::exit::Hook;
use super::roll::Roll;
use super::{Group, Machine, Native};
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

type Own = Record<Native>;

static RECORDS: Roll<Own> = Roll::new();
/// How many forks lie between the first process and this one, modulo 2^30.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static CLOCKS: Clocks<Native> = Clocks::native();

crate::thread_local_word!(
    /// The calling thread's record, or null.
    Local: *mut Own = "record"
);

// SAFETY: `Roll` gives each record one owner at a time, links groups before it gives out their records, never unmaps them,
// and lets a record that was left behind be adopted only when it is idle. `take` numbers records.
unsafe impl Records for Native {
    #[inline(always)]
    unsafe fn record() -> &'static Own {
        let record = Local::get();
        if record.is_null() {
            return take();
        }
        // SAFETY: records are never unmapped.
        unsafe { &*record }
    }

    #[inline(always)]
    unsafe fn record_if_any() -> Option<&'static Own> {
        // SAFETY: null, or a record, which is never unmapped.
        unsafe { Local::get().as_ref() }
    }

    #[inline]
    unsafe fn records() -> Option<&'static Group<Native, Own>> {
        RECORDS.newest()
    }

    #[inline(always)]
    unsafe fn clocks() -> &'static Clocks<Native> {
        &CLOCKS
    }

    #[inline]
    fn generation() -> u32 {
        GENERATION.load(Relaxed)
    }

    /// Writes one line to stderr, in one piece.
    #[cold]
    fn report_stall(stall: Stall) {
        let mut line = Line { text: [0; 400], length: 0 };
        let Stall { thread, nanos, origin } = stall;
        let (pid, seconds) = (process(), nanos / 1_000_000_000);
        let _ = match thread {
            0 => write!(
                line,
                "latchwork: process {pid}: a grace period has not ended for {seconds} s, because membarrier is refused"
            ),
            _ => write!(
                line,
                "latchwork: process {pid}, thread {thread} has held up a grace period for {seconds} s"
            ),
        };
        let _ = origin.map_or(Ok(()), |origin| write!(line, ", in a section that began at {origin}"));
        let _ = line.write_char('\n');
        // SAFETY: the buffer is valid for its length.
        unsafe { libc::write(2, line.text.as_ptr().cast(), line.length) };
    }
}

fn process() -> i32 {
    // SAFETY: the call takes no arguments and touches no memory.
    unsafe { libc::getpid() }
}

/// A line of text, without allocation; text that is too long is cut off.
struct Line {
    text: [u8; 400],
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

/// Whether `after_fork` runs in the child of a fork.
static AT_FORK: AtomicBool = AtomicBool::new(false);

/// Has `call` register a handler, unless that has been done. It fails if there is no memory: then the next thread that gets its
/// record tries again. A child that is forked meanwhile waits for the sections of threads that it does not have, for ever: it
/// reclaims nothing too early. (Two threads may both call it, which does no harm.)
fn register(done: &AtomicBool, call: impl FnOnce() -> i32) {
    if !done.load(Relaxed) && call() == 0 {
        done.store(true, Relaxed);
    }
}

/// Gets a record for a thread that has none.
#[cold]
#[inline(never)]
fn take() -> &'static Own {
    // Before any thread relies on `after_fork`.
    // SAFETY: `after_fork` stores to words, which a forked child may do.
    register(&AT_FORK, || unsafe { libc::pthread_atfork(None, None, Some(after_fork)) });
    Hook::RECORDS.create(thread_exit);
    Native::prepare_fences();
    let found = RECORDS.take();
    // Release: what the owner before did in its last section happens before what a thread does that sees these stores: a
    // leader may see them and not the end of that section, pair (E) of `rcu`. Readers of QSBR issue full fences in any case.
    // A leader that issues a full fence and no heavy one may miss that the record is taken: so the first section begins with
    // a full fence.
    for (word, value) in found.first_words() {
        word.store(value, Release);
    }
    if found.number.load(Relaxed) == 0 {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        found.number.store(NUMBERS.fetch_add(1, Relaxed) + 1, Relaxed);
    }
    // SAFETY: the call takes no arguments and touches no memory.
    found.thread.store(unsafe { libc::gettid() } as u32, Relaxed);
    Local::set(found.as_ptr());
    Hook::RECORDS.set();
    found
}

/// Runs when a thread exits, and once more if destructors that run later read.
fn thread_exit() {
    // SAFETY: null, or a record, which is never unmapped.
    let Some(record) = (unsafe { Local::get().as_ref() }) else { return };
    // A thread that is in a section, or has a reader, keeps its record for the destructors that run later: with another
    // record, it would wait for its own section. This runs again after them, as often as the C library allows (four times).
    if record.is_idle() || !Hook::RECORDS.set() {
        Local::set(null_mut());
        RECORDS.give_back(record);
    }
}

/// Runs in a forked child: takes the records of all other threads from them.
extern "C" fn after_fork() {
    let generation = GENERATION.load(Relaxed);
    GENERATION.store((generation + 1) % (1 << 30), Relaxed);
    // SAFETY: null, or a record, which is never unmapped.
    if let Some(mine) = unsafe { Local::get().as_ref() } {
        // SAFETY: the call takes no arguments and touches no memory.
        mine.thread.store(unsafe { libc::gettid() } as u32, Relaxed);
    }
    RECORDS.forget_others(Local::get(), Record::reset);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::record;
    use std::collections::HashSet;
    use std::vec::Vec;

    #[test]
    fn threads_have_records_of_their_own_and_leave_them_to_others() {
        let mut seen = HashSet::new();
        for _ in 0..50 {
            let barrier = &std::sync::Barrier::new(8);
            let records: HashSet<usize> = std::thread::scope(|scope| {
                let body = || {
                    let record = record::own::<Native>();
                    assert!(core::ptr::eq(record, record::own::<Native>()) && record.is_idle());
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

    #[test]
    fn a_handler_that_was_not_registered_is_registered_by_the_next_thread() {
        let (done, calls) = (AtomicBool::new(false), core::cell::Cell::new(0));
        for result in [libc::ENOMEM, libc::ENOMEM, 0, 0] {
            register(&done, || {
                calls.set(calls.get() + 1);
                result
            });
        }
        assert_eq!(calls.get(), 3);
    }

    /// So that the library can tell whether the thread reads, before another thread gets the record and reads.
    #[test]
    fn a_thread_has_its_record_while_the_librarys_hook_runs() {
        static FOUND: AtomicU32 = AtomicU32::new(0);
        Native::set_exit(|| {
            let record = record::own_if_any::<Native>();
            FOUND.store(record.map_or(0, |record| record.number.load(Relaxed)), Relaxed);
        });
        let exits = || {
            assert!(Native::notice_exit());
            record::own::<Native>().number.load(Relaxed)
        };
        let number = std::thread::spawn(exits).join().unwrap();
        assert_eq!(FOUND.load(Relaxed), number);
    }

    /// A thread that exits inside of a section is inside for ever, and its record stays its.
    #[test]
    fn a_record_in_use_outlives_its_thread() {
        let left = std::thread::spawn(|| {
            let record = record::own::<Native>();
            record.section.store(1, Release);
            record
        })
        .join()
        .unwrap();
        for _ in 0..50 {
            std::thread::spawn(move || assert!(!core::ptr::eq(left, record::own::<Native>())))
                .join()
                .unwrap();
        }
        left.section.store(0, Release);
    }

    #[test]
    fn a_fork_takes_along_one_thread() {
        let (inside, left) = (&std::sync::Barrier::new(2), &std::sync::Barrier::new(2));
        let other = &std::sync::OnceLock::new();
        let status = std::thread::scope(|scope| {
            scope.spawn(|| {
                let record = record::own::<Native>();
                let set = |value: u32| {
                    for word in [&record.section, &record.online, &record.pinned] {
                        word.store(value.into(), Release);
                    }
                    record.keepers.store(value, Release);
                    record.hazards.groups[1].used.store(value as usize, Release);
                };
                set(1);
                assert!(other.set(record).is_ok());
                inside.wait();
                left.wait();
                set(0);
            });
            inside.wait();
            let (mine, generation) = (record::own::<Native>(), Native::generation());
            mine.online.store(1, Relaxed);
            // SAFETY: the child only looks at words and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let kept = mine.online.load(Relaxed) == 1 && core::ptr::eq(mine, record::own::<Native>());
                let mut others =
                    record::groups::<Native>().unwrap().owned().filter(|r| !core::ptr::eq(*r, mine));
                let ok = kept && others.all(Record::is_idle) && other.get().is_some_and(|r| r.is_idle());
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
