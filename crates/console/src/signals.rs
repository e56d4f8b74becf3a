//! Ctrl-C and the other signals that ask the command to end. The command waits for them, so that it can end a run in good
//! order.

use crate::failure::{Failure, Result};
use std::fs::File;
use std::io::{Error, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The signals that ask a command to end.
pub const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// A signalfd over the signals that ask this process to end. They and SIGCONT stay blocked as long as the process lives.
pub struct Signals {
    file: File,
    before: libc::sigset_t,
    /// SIGCONT.
    continued: libc::sigset_t,
}

/// As [`block`], without the signals that are ignored.
pub fn block_unless_ignored(signals: &[i32]) -> (libc::sigset_t, libc::sigset_t) {
    let is_ignored = |signal: &i32| disposition(*signal).sa_sigaction == libc::SIG_IGN;
    block(&signals.iter().copied().filter(|signal| !is_ignored(signal)).collect::<Vec<_>>())
}

/// Blocks the signals in the calling thread and in the threads that it makes later. Returns their set, and the signal mask from
/// before.
pub fn block(signals: &[i32]) -> (libc::sigset_t, libc::sigset_t) {
    let mut set = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes the set that the other calls use; each gets room for what it writes.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        (set.assume_init(), before.assume_init())
    }
}

/// What this process does about a signal.
pub fn disposition(signal: i32) -> libc::sigaction {
    // SAFETY: plain data, for which zeroes are a value; the call writes it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action
    }
}

impl Signals {
    /// Blocks the signals in the calling thread and in the threads that it makes later. A signal that
    /// was ignored before (nohup) stays ignored.
    pub fn watch() -> Result<Self> {
        let (set, before) = block_unless_ignored(&ENDING);
        let (continued, _) = block_unless_ignored(&[libc::SIGCONT]);
        // SAFETY: the set is complete.
        let descriptor = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(Failure::new(format!("signalfd: {}", Error::last_os_error())));
        }
        // SAFETY: `signalfd` has just made the descriptor, and no other code has it.
        Ok(Self { file: unsafe { File::from_raw_fd(descriptor) }, before, continued })
    }

    /// Whether this process received SIGCONT since the last call, as it does after it was stopped (Ctrl-Z). SIGCONT continues a process
    /// also if it is blocked, and stays pending then.
    pub fn was_continued(&self) -> bool {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are valid; the call needs no room for what it may tell.
        unsafe { libc::sigtimedwait(&self.continued, std::ptr::null_mut(), &at_once) == libc::SIGCONT }
    }

    /// To poll for readability.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The signal mask from before, for children.
    pub fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// The next signal that has arrived, if there is one.
    pub fn take(&self) -> Option<i32> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.file).read_exact(&mut record).ok()?;
        // The record starts with the signal's number.
        let number = u32::from_ne_bytes(record[..4].try_into().expect("4 bytes"));
        i32::try_from(number).ok()
    }
}

/// From here on, a write beyond the limit on the size of files (`ulimit -f`) fails in this process, and does not end it by SIGXFSZ.
/// Programs that this process starts have the signal's default action: the kernel forgets handlers when a program is executed. If the
/// signal is ignored, it stays so.
pub fn survive_limit_on_files() {
    extern "C" fn nothing(_signal: i32) {}
    if disposition(libc::SIGXFSZ).sa_sigaction == libc::SIG_DFL {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGXFSZ, nothing as extern "C" fn(i32) as libc::sighandler_t) };
    }
}

/// How many [`WithoutSigpipe`] there are that have found SIGPIPE's default action.
static SIGPIPE_WAITS: AtomicUsize = AtomicUsize::new(0);

/// As long as this lives, a reader that goes away (`| head`) does not end the process at once: the write fails, and the
/// process can remove what it has made. [`failure::exit_status`](crate::failure::exit_status) then ends it by SIGPIPE.
#[derive(Debug)]
pub struct WithoutSigpipe {
    was_default: bool,
}

impl WithoutSigpipe {
    /// Ignores SIGPIPE. Children that std starts have the default action; see [`sigpipe_for_children`] for others.
    #[expect(clippy::new_without_default, reason = "it changes the process")]
    pub fn new() -> Self {
        // SAFETY: a system call with plain arguments.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let was_default = before == libc::SIG_DFL;
        SIGPIPE_WAITS.fetch_add(usize::from(was_default), Relaxed);
        Self { was_default }
    }
}

impl Drop for WithoutSigpipe {
    fn drop(&mut self) {
        if self.was_default {
            SIGPIPE_WAITS.fetch_sub(1, Relaxed);
            // SAFETY: a system call with plain arguments.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        }
    }
}

/// Whether SIGPIPE would end this process if a [`WithoutSigpipe`] did not keep it from that.
pub(crate) fn sigpipe_waits() -> bool {
    SIGPIPE_WAITS.load(Relaxed) > 0
}

/// What a program that this process starts shall do about SIGPIPE: what this process did before any [`WithoutSigpipe`].
pub fn sigpipe_for_children() -> libc::sighandler_t {
    if sigpipe_waits() {
        return libc::SIG_DFL;
    }
    disposition(libc::SIGPIPE).sa_sigaction
}

/// Sends this process a signal that ends it, without a core dump.
pub fn end_by(signal: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is read.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    by_default(signal);
}

/// Sends this process a signal, and has it do what processes do about the signal.
pub(crate) fn by_default(signal: i32) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes the set that the other calls use.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
    }
}
