//! What a program prints while it is measured.

use std::cell::Cell;
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// Bytes of a program's output that are kept: its end.
const KEPT: u64 = 16 << 20;

/// A file in memory for stdout and stderr. It vanishes with its descriptor, and no thread of this process has to read
/// it while the program is measured.
pub struct Output {
    file: File,
    /// Bytes at the start of the file without memory, because `drop_start` gave it back.
    dropped: Cell<u64>,
}

impl Output {
    pub fn new() -> Result<Self, Error> {
        // SAFETY: a terminated string; no other code has the descriptor.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"latchwork-output".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(Error::last_os_error());
            }
            // stdout and stderr, and descriptors that are opened through /proc, never write over each other.
            libc::fcntl(descriptor, libc::F_SETFL, libc::O_APPEND);
            File::from_raw_fd(descriptor)
        };
        Ok(Self { file, dropped: Cell::new(0) })
    }

    /// For a program's stdout or stderr.
    pub fn writer(&self) -> Result<Stdio, Error> {
        self.file.try_clone().map(Stdio::from)
    }

    /// Bytes that were printed until now.
    pub fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    /// Gives back the memory of output that will not be looked at.
    pub fn drop_start(&self) {
        let dropped = self.dropped.get();
        let start = self.length().saturating_sub(KEPT) & !4095;
        if start > dropped + KEPT {
            let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (offset, size) = (dropped.cast_signed(), (start - dropped).cast_signed());
            // SAFETY: plain arguments. If the call fails, the memory merely stays.
            unsafe { libc::fallocate(self.file.as_raw_fd(), flags, offset, size) };
            self.dropped.set(start);
        }
    }

    /// The end of what was printed.
    pub fn text(&self) -> String {
        let length = self.length();
        let start = length.saturating_sub(KEPT);
        let mut bytes = vec![0; usize::try_from(length - start).expect("bounded")];
        if self.file.read_exact_at(&mut bytes, start).is_err() {
            bytes.clear();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
