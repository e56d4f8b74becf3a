//! Ctrl-C during a measurement.

use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use latchwork_console::signals::Signals;
use latchwork_workloads::native::Stop;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;

/// Does `work`. The first signal asks `stop`, and the second one ends this process. Returns what `work` returned, and the signal
/// that came meanwhile: what was measured is worth nothing then.
pub fn hearing<R>(signals: &Signals, stop: &Stop, work: impl FnOnce() -> R) -> Result<(R, Option<i32>)> {
    let (done, watched) = UnixStream::pair().map_err(|error| Failure::new(format!("socketpair: {error}")))?;
    thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut first = None;
            while until_a_signal(signals, &watched) {
                if let Some(signal) = signals.take() {
                    again(first);
                    first = Some(signal);
                    stop.ask();
                }
            }
            first
        });
        let result = work();
        // Ends the watcher, which sleeps otherwise: a thread that looked from time to time would disturb what is measured.
        drop(done);
        Ok((result, watcher.join().expect("it does not panic")))
    })
}

/// Called at a signal: ends this process if there was a `first` one before it.
pub fn again(first: Option<i32>) {
    if let Some(first) = first {
        output::say("\nlatchwork-lab: ended by a second signal, without the results so far");
        std::process::exit(128 + first);
    }
}

/// Sleeps until there is a signal, or until the other end of `watched` is gone: then it returns false.
fn until_a_signal(signals: &Signals, watched: &UnixStream) -> bool {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(signals.descriptor()), entry(watched.as_raw_fd())];
    // SAFETY: the array has as many entries. An interrupted call leaves them as they are.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
    entries[1].revents == 0
}
