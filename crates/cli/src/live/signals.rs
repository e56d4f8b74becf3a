//! Waiting for time to pass, for Ctrl-C and for the end of a process, whichever comes first.

use latchwork_console::signals;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

/// Signals that end what this process does. They are blocked as long as this lives.
pub struct Signals {
    file: File,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals, in this thread and in those that it will start. One that is ignored (nohup, a job in the background of a
    /// script) stays ignored.
    pub fn block() -> std::io::Result<Self> {
        let (set, before) = signals::block(&signals::ENDING);
        // SAFETY: the set is complete; no other code has the descriptor.
        unsafe {
            let file = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if file < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(Self { file: File::from_raw_fd(file), before })
        }
    }

    /// Waits for one of the descriptors, for a signal or for this long. Says which descriptor is readable.
    pub fn wait<const N: usize>(&self, descriptors: [i32; N], time: Duration) -> [bool; N] {
        let mut polled: Vec<_> = descriptors
            .into_iter()
            .chain([self.file.as_raw_fd()])
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
            .collect();
        let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: so many descriptors.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
        std::array::from_fn(|index| polled[index].revents != 0)
    }

    /// The signal that has come, if one has.
    pub fn come(&mut self) -> Option<i32> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        self.file.read_exact(&mut info).ok()?;
        Some(i32::from_ne_bytes(info[..4].try_into().expect("4 bytes")))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the mask that `block` has found.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
