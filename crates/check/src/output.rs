//! Text that goes to a descriptor in the middle of a program that must not notice it.

use latchwork::machine::{Clock, Machine, Native};
use libc::{c_int, c_long, c_ulong, syscall};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The kernel's set of 64 signals.
type Set = [c_ulong; 8 / size_of::<c_ulong>()];

/// The signals that a write may cause: no process reads the pipe any more; the file would become longer than the limit
/// (`RLIMIT_FSIZE`). Both end the process, unless it handles them.
const CAUSED: [(c_int, c_int); 2] = [(libc::EPIPE, libc::SIGPIPE), (libc::EFBIG, libc::SIGXFSZ)];

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// How long a text waits for the reader of a full pipe, if the descriptor does not block: nanoseconds. Another thread that has a
/// report waits longer than that for its turn.
const PATIENCE: u64 = SECOND;

/// Whether the last text that waited was not read in time. The next one does not wait.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes all of `text`, for a library that puts itself under a program. The program gets no signal from it, and `errno` stays as
/// it was. This calls the kernel past the C library's functions: it is no cancellation point, and a signal handler may use it.
///
/// # Errors
///
/// The kernel's number, such as `EPIPE`. A part of the text may have been written.
pub fn write(file: c_int, text: &[u8]) -> Result<(), c_int> {
    // SAFETY: the C library says where the calling thread's `errno` is, for as long as the thread lives.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = without_signals(file, text);
        *errno = saved;
        result
    }
}

fn without_signals(file: c_int, text: &[u8]) -> Result<(), c_int> {
    let caused = CAUSED.iter().fold(0, |set, (_, signal)| set | bit(*signal));
    let (mut before, mut pending) = (Set::default(), Set::default());
    // SAFETY: the sets have the size that is passed, and the last mask is the one that the thread had.
    unsafe {
        let blocked = set_of(caused);
        syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &blocked, &mut before, size_of::<Set>());
        syscall(libc::SYS_rt_sigpending, &mut pending, size_of::<Set>());
        let result = write_all(file, text);
        // The kernel sends the signal to the thread that writes. One that was pending before is the program's.
        for (error, signal) in CAUSED {
            if result == Err(error) && pending[0] & bit(signal) == 0 {
                let (signal, now, info) = (set_of(bit(signal)), [0 as c_long; 2], std::ptr::null_mut::<u8>());
                syscall(libc::SYS_rt_sigtimedwait, &signal, info, &now, size_of::<Set>());
            }
        }
        let mask = std::ptr::null_mut::<Set>();
        syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &before, mask, size_of::<Set>());
        result
    }
}

/// A signal's bit in the first word of a set.
fn bit(signal: c_int) -> c_ulong {
    1 << (signal - 1)
}

fn set_of(bits: c_ulong) -> Set {
    let mut set = Set::default();
    set[0] = bits;
    set
}

fn write_all(file: c_int, mut text: &[u8]) -> Result<(), c_int> {
    let mut deadline = None;
    while !text.is_empty() {
        // SAFETY: the text is initialised.
        let written = unsafe { syscall(libc::SYS_write, file, text.as_ptr(), text.len()) };
        match usize::try_from(written) {
            Ok(0) => return Err(libc::EIO),
            Ok(bytes) => {
                text = &text[bytes..];
                STUCK.store(false, Relaxed);
            }
            // SAFETY: the C library says where the calling thread's `errno` is.
            Err(_) => match unsafe { *libc::__errno_location() } {
                libc::EINTR => {}
                libc::EAGAIN if wait(file, &mut deadline) => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// Waits until a descriptor that does not block has room, or a signal handler has run. `false`: that takes too long.
fn wait(file: c_int, deadline: &mut Option<u64>) -> bool {
    let now = Native::now(Clock::Monotonic);
    let left = deadline.get_or_insert(now + PATIENCE).saturating_sub(now);
    if left == 0 || STUCK.load(Relaxed) {
        STUCK.store(true, Relaxed);
        return false;
    }
    let mut asked = libc::pollfd { fd: file, events: libc::POLLOUT, revents: 0 };
    let mut left = [(left / SECOND) as c_long, (left % SECOND) as c_long];
    // SAFETY: one descriptor, and a time of at most a second in the kernel's form. The mask of signals stays.
    unsafe {
        syscall(libc::SYS_ppoll, &mut asked, 1_usize, &mut left, std::ptr::null::<Set>(), size_of::<Set>())
    };
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, pipe};
    use std::os::fd::AsRawFd;

    fn pending(signal: c_int) -> bool {
        let mut pending = Set::default();
        // SAFETY: the set has the size that is passed.
        unsafe { syscall(libc::SYS_rt_sigpending, &mut pending, size_of::<Set>()) };
        pending[0] & bit(signal) != 0
    }

    /// The mask of the calling thread, after `bits` were added to it.
    fn block(bits: c_ulong) -> Set {
        let (set, mut mask) = (set_of(bits), Set::default());
        // SAFETY: the sets have the size that is passed.
        unsafe {
            syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_BLOCK,
                &set,
                std::ptr::null::<Set>(),
                size_of::<Set>(),
            );
            syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_BLOCK,
                std::ptr::null::<Set>(),
                &mut mask,
                size_of::<Set>(),
            );
        }
        mask
    }

    /// A thread that blocks SIGPIPE, so that one that it gets stays.
    #[test]
    fn the_signal_of_a_pipe_without_a_reader() {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        // SAFETY: the C library says where the calling thread's `errno` is.
        let errno = unsafe { libc::__errno_location() };
        let write = || {
            // SAFETY: it is valid as long as this thread lives.
            unsafe { *errno = 12345 };
            assert_eq!(write(writer.as_raw_fd(), b"text"), Err(libc::EPIPE));
            // SAFETY: as above.
            assert_eq!(unsafe { *errno }, 12345);
        };
        let mask = block(bit(libc::SIGPIPE));
        write();
        assert!(!pending(libc::SIGPIPE), "the write's own signal is left");
        // SAFETY: the signal is blocked.
        unsafe { libc::raise(libc::SIGPIPE) };
        write();
        assert!(pending(libc::SIGPIPE), "the program's signal is gone");
        assert_eq!(block(0), mask);
    }

    #[test]
    fn a_full_pipe_that_does_not_block() {
        let (mut reader, writer) = pipe().expect("a pipe");
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let text = vec![b'x'; 1 << 20];
        assert_eq!(write(writer.as_raw_fd(), &text), Err(libc::EAGAIN));
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all.len())
        });
        // Until the reader has begun to read, texts that wait are given up.
        while write(writer.as_raw_fd(), b"y").is_err() {}
        assert_eq!(write(writer.as_raw_fd(), &text), Ok(()));
        drop(writer);
        assert!(reading.join().expect("it does not panic").expect("a pipe") > text.len());
    }
}
