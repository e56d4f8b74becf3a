//! Waiting for time to pass, for Ctrl-C and for the end of a process, whichever comes first.

use latchwork_console::failure::Result;
use latchwork_console::signals;
use std::time::Duration;

/// Signals that end what this process does. They are blocked as long as this lives.
pub struct Signals(signals::Signals);

impl Signals {
    /// Blocks the signals, in this thread and in those that it will start. One that is ignored (nohup, a job in the background of a
    /// script) stays ignored.
    pub fn block() -> Result<Self> {
        Ok(Self(signals::Signals::watch()?))
    }

    /// Waits for one of the descriptors, for a signal or for this long. Says which descriptor is readable.
    pub fn wait<const N: usize>(&self, descriptors: [i32; N], time: Duration) -> [bool; N] {
        let mut polled: Vec<_> = descriptors
            .into_iter()
            .chain([self.0.descriptor()])
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
            .collect();
        let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: so many descriptors.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
        std::array::from_fn(|index| polled[index].revents != 0)
    }

    /// The signal that has come, if one has.
    pub fn come(&self) -> Option<i32> {
        self.0.take()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the mask that `watch` has found.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0.mask_before(), std::ptr::null_mut()) };
    }
}
