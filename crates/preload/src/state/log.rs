//! A file to which the processes of a program append lines.

use super::kernel;
use super::line::Line;
use super::stderr;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering::*};
use latchwork::machine::{Deadline, Machine, Native};
use libc::c_int;

pub(crate) struct Log {
    /// What the lines are, for complaints.
    what: &'static str,
    /// Whether there is a path.
    asked_for: AtomicBool,
    /// The file's name, which ends in zeroes. It is a copy, because servers write their process title over the environment. The
    /// kernel refuses a name that fills `PATH_MAX`, so a longer one may be cut off here.
    path: [AtomicU8; libc::PATH_MAX as usize + 1],
    /// The open file, or -1. It stays open from the start, because a process may give up the right to open it: it becomes
    /// another user, changes its root directory, or installs a filter of system calls.
    kept: AtomicI32,
    /// The device and inode of the file that `kept` stands for.
    kept_file: [AtomicU64; 2],
}

impl Log {
    pub(crate) const fn new(what: &'static str) -> Self {
        Log {
            what,
            asked_for: AtomicBool::new(false),
            path: [const { AtomicU8::new(0) }; _],
            kept: AtomicI32::new(-1),
            kept_file: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Lines go to this file. To be called once, before there is another thread.
    pub(crate) fn begin(&self, path: &[u8]) {
        for (to, from) in self.path[..self.path.len() - 1].iter().zip(path) {
            to.store(*from, Relaxed);
        }
        self.asked_for.store(true, Relaxed);
        let file = self.open();
        let kept = kernel::duplicate(file, stderr::KEPT_FROM);
        kernel::close(file);
        if let Some(found) = identity(kept) {
            self.kept_file.iter().zip(found).for_each(|(to, from)| to.store(from, Relaxed));
            self.kept.store(kept, Relaxed);
        }
    }

    pub(crate) fn is_asked_for(&self) -> bool {
        self.asked_for.load(Relaxed)
    }

    fn open(&self) -> c_int {
        // Where others may write, the path may be their symbolic link; and `exit` must not wait for ever for the reader of a pipe.
        let safe = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path has the layout of bytes, no thread writes it after `begin`, and its last byte is zero.
        unsafe {
            let path = self.path.as_ptr().cast();
            kernel::open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | safe, 0o666)
        }
    }

    /// The file of `kept`, if the program has neither closed it nor removed its file.
    fn kept(&self) -> Option<c_int> {
        let kept = self.kept.load(Relaxed);
        (identity(kept)? == [0, 1].map(|part| self.kept_file[part].load(Relaxed))).then_some(kept)
    }

    /// Appends a line, which ends in a newline, or says on stderr why it cannot.
    pub(crate) fn append(&self, line: &[u8]) {
        let written = match self.kept() {
            Some(kept) => append(line, kept),
            None => {
                let file = self.open();
                if file < 0 {
                    // SAFETY: the C library says where the calling thread's `errno` is.
                    return match unsafe { *libc::__errno_location() } {
                        libc::ELOOP => {
                            self.complain(format_args!("it is a symbolic link; name the file itself"));
                        }
                        error => self.complain(format_args!(
                            "error {error}; name a file that the program's user may write to"
                        )),
                    };
                }
                let written = append(line, file);
                kernel::close(file);
                written
            }
        };
        match written {
            Ok(()) => {}
            Err(libc::ENOSPC | libc::EDQUOT) => self.complain(format_args!("there is no room for them")),
            Err(libc::EFBIG) => {
                self.complain(format_args!("the limit on the size of files (ulimit -f) is too low"));
            }
            Err(libc::EPIPE | libc::EAGAIN) => {
                self.complain(format_args!("no process reads what is written there"));
            }
            Err(error) => self.complain(format_args!("error {error}")),
        }
    }

    /// Says on stderr why the file does not have the lines.
    fn complain(&self, why: core::fmt::Arguments) {
        let mut out = Line::new();
        let _ = write!(out, "latchwork: cannot write {} to ", self.what);
        for byte in self.path.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0) {
            out.bytes(&[byte]);
        }
        let _ = writeln!(out, ": {why}");
        stderr::write(out.as_bytes());
    }
}

/// The device and inode of an open file that still has a name.
fn identity(file: c_int) -> Option<[u64; 2]> {
    kernel::status(file).filter(|found| found.st_nlink > 0).as_ref().map(stderr::identity)
}

/// Writes the line whole or not at all, if the file is a regular one: a part of it would become one line with that of the next
/// process.
fn append(line: &[u8], file: c_int) -> Result<(), c_int> {
    let is_regular = |found: &libc::stat| found.st_mode & libc::S_IFMT == libc::S_IFREG;
    let Some(_turn) = kernel::status(file).filter(is_regular).and_then(|_| Turn::take(file)) else {
        return latchwork_check::write(file, line);
    };
    let before = kernel::status(file).map(|found| found.st_size);
    let written = latchwork_check::write(file, line);
    if let (Err(_), Some(before)) = (written, before) {
        kernel::cut(file, before);
    }
    written
}

/// The right to append to the file, which processes have one after the other: a lock of the kernel's on its first byte. (The kernel's
/// other kinds of locks belong to the open file, which a forked child has in common with its parent.)
struct Turn(c_int);

impl Turn {
    /// How long a process waits for its turn: nanoseconds. The process that has it may be stopped.
    const PATIENCE: u64 = 1_000_000_000;
    /// Nanoseconds between two attempts.
    const PAUSE: u64 = 100_000;

    /// `None`: it takes too long, or the file system has no such locks.
    fn take(file: c_int) -> Option<Self> {
        let deadline = Deadline::after::<Native>(Self::PATIENCE);
        loop {
            match kernel::lock_file(file, libc::F_WRLCK as i16) {
                Ok(()) => return Some(Turn(file)),
                Err(libc::EAGAIN | libc::EACCES) if !deadline.passed::<Native>() => Native::doze(Self::PAUSE),
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = kernel::lock_file(self.0, libc::F_UNLCK as i16);
    }
}
