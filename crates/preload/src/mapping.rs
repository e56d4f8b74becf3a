//! Which memory a forked child shares with its parent.
//!
//! A mutex that is not process-shared but lies in memory that is (POSIX leaves its use by two processes undefined; with
//! glibc it works while nobody waits) is the parent's as much as the child's: the child must not repair it. The kernel
//! lists the mappings; a child reads the list once, at its first repair.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Shared mappings that are remembered; the rest is taken for private.
const MOST: usize = 64;

/// Where each begins, and where it ends.
static RANGES: [[AtomicUsize; 2]; MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(UNREAD);
const UNREAD: usize = usize::MAX;

/// In a forked child, which has mappings of its own from now on.
pub(crate) fn after_fork() {
    COUNT.store(UNREAD, Relaxed);
}

/// Whether the address was in shared memory when the child repaired its first object. For one thread at a time.
pub(crate) fn is_shared(address: usize) -> bool {
    if COUNT.load(Relaxed) == UNREAD {
        let mut count = 0;
        each_shared(c"/proc/self/maps", |start, end| {
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

/// A line of the list as far as it matters: `START-END rwxs`.
#[derive(Default)]
struct Line {
    /// Numbers that have been read.
    numbers: [usize; 2],
    /// The number that is being read, then the fields after both.
    field: usize,
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

/// Calls `found` for each shared mapping. Nothing is allocated, and `errno` stays: a lock call is the caller.
fn each_shared(path: &CStr, mut found: impl FnMut(usize, usize)) {
    // SAFETY: the path is a string, the buffer valid for its length, and the descriptor this function's own.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mut text = [0_u8; 4096];
        let mut line = Line::default();
        if file < 0 {
            *errno = saved;
            return;
        }
        loop {
            let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
            let Ok(length @ 1..) = usize::try_from(length) else { break };
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
        libc::close(file);
        *errno = saved;
    }
}
