//! What a program prints while it is measured.

use std::fs::File;
use std::io::{Error, PipeReader, PipeWriter, Read, pipe};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes of a program's output that are kept: its end.
const KEPT: u64 = 16 << 20;
/// Bytes that the pipe holds. Where the kernel refuses so many, it holds 64 KiB.
const ROOM: libc::c_int = 1 << 20;
/// The thread that empties the pipe rests so long after each look, so that a program that prints a line at a time does not wake it for
/// each line. A pipe of 1 MiB holds what a program prints meanwhile at 1 GB/s.
const REST: Duration = Duration::from_millis(1);

/// A pipe for stdout and stderr, which a thread empties into a file in memory. The program cannot reach the file: one that opens
/// `/dev/stderr` to write (`> /dev/stderr`) would empty it.
pub struct Output {
    /// Keeps the pipe open, so that the thread ends after this and after all processes that have the pipe.
    writer: PipeWriter,
    collected: Arc<Mutex<Collected>>,
}

/// What has come through the pipe.
struct Collected {
    pipe: PipeReader,
    file: File,
    length: u64,
    /// Bytes at the start of the file without memory, because `drop_start` gave it back.
    dropped: u64,
}

impl Output {
    pub fn new() -> Result<Self, Error> {
        let (reader, writer) = pipe()?;
        // SAFETY: system calls with plain arguments on a descriptor that is open. If the first one fails, the pipe is smaller; the
        // mode lets a server open /dev/stderr after it has become another user.
        unsafe {
            libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM);
            libc::fchmod(reader.as_raw_fd(), 0o666);
            if libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) < 0 {
                return Err(Error::last_os_error());
            }
        }
        // SAFETY: a terminated string; no other code has the descriptor.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"latchwork-output".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(Error::last_os_error());
            }
            File::from_raw_fd(descriptor)
        };
        let readable = reader.as_raw_fd();
        let collected = Collected { pipe: reader, file, length: 0, dropped: 0 };
        let collected = Arc::new(Mutex::new(collected));
        let thread = Arc::clone(&collected);
        thread::Builder::new().spawn(move || {
            // The thread owns a share of what has the descriptor, so that it stays open.
            while wait_for(readable) && lock(&thread).drain() {
                thread::sleep(REST);
            }
        })?;
        Ok(Self { writer, collected })
    }

    /// For a program's stdout or stderr.
    pub fn writer(&self) -> Result<Stdio, Error> {
        self.writer.try_clone().map(Stdio::from)
    }

    /// Bytes that were printed until now.
    pub fn length(&self) -> u64 {
        let mut collected = lock(&self.collected);
        collected.drain();
        collected.length
    }

    /// The end of what was printed.
    pub fn text(&self) -> String {
        let mut collected = lock(&self.collected);
        collected.drain();
        let start = collected.length.saturating_sub(KEPT);
        let mut bytes = vec![0; usize::try_from(collected.length - start).expect("bounded")];
        if collected.file.read_exact_at(&mut bytes, start).is_err() {
            bytes.clear();
        }
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

fn lock(collected: &Mutex<Collected>) -> MutexGuard<'_, Collected> {
    collected.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until there is something in the pipe, or no process can write to it any more.
fn wait_for(pipe: i32) -> bool {
    let mut polled = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor. No signal handler could interrupt the call: there is none.
    unsafe { libc::poll(&mut polled, 1, -1) == 1 }
}

impl Collected {
    /// Takes what is in the pipe. Whether there may be more later.
    fn drain(&mut self) -> bool {
        let mut piece = [0; 64 << 10];
        // Not for ever, however fast the program prints: what has been printed before this call fits into the pipe.
        for _ in 0..=ROOM as usize / piece.len() {
            match self.pipe.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => {
                    // Where memory is short, the output has a hole.
                    let _ = self.file.write_all_at(&piece[..length], self.length);
                    self.length += length as u64;
                }
                Err(_) => break,
            }
        }
        self.drop_start();
        true
    }

    /// Gives back the memory of output that will not be looked at.
    fn drop_start(&mut self) {
        let dropped = self.dropped;
        let start = self.length.saturating_sub(KEPT) & !4095;
        if start > dropped + KEPT {
            let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (offset, size) = (dropped.cast_signed(), (start - dropped).cast_signed());
            // SAFETY: plain arguments. If the call fails, the memory merely stays.
            unsafe { libc::fallocate(self.file.as_raw_fd(), flags, offset, size) };
            self.dropped = start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn of_shell(script: &str) -> Output {
        let output = Output::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdout(output.writer().unwrap()).stderr(output.writer().unwrap());
        assert!(command.status().unwrap().success());
        output
    }

    /// A shell script's `> /dev/stderr` opens what is there anew.
    #[test]
    fn a_stream_that_is_opened_anew_loses_nothing() {
        let output = of_shell("echo one; echo two > /dev/stderr; echo three; echo four > /dev/stdout");
        assert_eq!(output.text(), "one\ntwo\nthree\nfour\n");
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let output = of_shell("head -c 40000000 /dev/zero; echo the end");
        let text = output.text();
        assert_eq!((output.length(), text.len() as u64), (40_000_008, KEPT));
        assert!(text.ends_with("\0the end\n"));
    }
}
