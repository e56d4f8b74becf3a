//! Which memory a process shares with others, such as its parent or its child.
//!
//! A mutex that was not initialised as process-shared may still lie in memory that parent and child share. POSIX leaves its
//! use by both undefined; under glibc it works as long as no thread waits. Such a mutex is the parent's as much as the
//! child's, so neither may repair it.
//!
//! The kernel lists the mappings. A process reads the list at its first repair, and keeps it: reading it takes far longer
//! than a repair. It reads the list again after a fork, and when it finds an object that only a child can have used. So
//! one case remains undetected: the process maps shared memory after its first repair, and an ancestor has used an object
//! there.

use super::kernel;
use super::memory::quietly;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Shared mappings that are remembered; further ones count as private. Few programs have more than ten.
const MOST: usize = 64;

/// The first address of each mapping, and the first address behind it.
static RANGES: [[AtomicUsize; 2]; MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; MOST];
/// How many there are, or [`UNREAD`].
static COUNT: AtomicUsize = AtomicUsize::new(UNREAD);
const UNREAD: usize = usize::MAX;

/// The next question reads the list again. Only a forked child calls this before it has a second thread, or the thread
/// that holds the lock of the repairs.
pub(crate) fn forget() {
    COUNT.store(UNREAD, Relaxed);
}

/// Whether the address was in shared memory when the list was read. One thread calls this at a time: the one that holds the
/// lock of the repairs.
pub(crate) fn is_shared(address: usize) -> bool {
    if COUNT.load(Relaxed) == UNREAD {
        let mut count = 0;
        each_shared(c"/proc/thread-self/maps", |start, end| {
            if let Some([first, last]) = RANGES.get(count) {
                first.store(start, Relaxed);
                last.store(end, Relaxed);
                count += 1;
            }
        });
        COUNT.store(count, Relaxed);
    }
    RANGES[..COUNT.load(Relaxed)].iter().any(|[start, end]| {
        let range = start.load(Relaxed)..end.load(Relaxed);
        range.contains(&address)
    })
}

/// The part of a line of the list that is needed: `START-END rwxs`.
#[derive(Default)]
struct Line {
    /// START and END, as far as they have been read.
    numbers: [usize; 2],
    /// 0 within START, 1 within END, 2 behind them.
    field: usize,
    /// Bytes read behind END.
    column: usize,
    shared: bool,
}

impl Line {
    fn read(&mut self, byte: u8) {
        match (self.field, byte) {
            (0, b'-') | (1, b' ') => self.field += 1,
            (0 | 1, _) => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0) as usize;
                self.numbers[self.field] = self.numbers[self.field] << 4 | digit;
            }
            (2, _) => {
                self.shared |= self.column == 3 && byte == b's';
                self.column += 1;
            }
            _ => {}
        }
    }
}

/// Calls `found` for each shared mapping. This runs within a lock call, so it allocates nothing.
fn each_shared(path: &CStr, mut found: impl FnMut(usize, usize)) {
    quietly(|| {
        // SAFETY: the path is a string.
        let file = unsafe { kernel::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) };
        if file < 0 {
            return;
        }
        let mut text = [0_u8; 4096];
        let mut line = Line::default();
        while let length @ 1.. = kernel::read(file, &mut text) {
            for byte in &text[..length] {
                if *byte != b'\n' {
                    line.read(*byte);
                    continue;
                }
                if line.shared {
                    found(line.numbers[0], line.numbers[1]);
                }
                line = Line::default();
            }
        }
        kernel::close(file);
    });
}
