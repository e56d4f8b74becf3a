//! Recording a process that runs already.

use super::files::Recordings;
use crate::live::stuck::Stuck;
use crate::live::{Session, Signals};
use latchwork_console::failure::Result;
use latchwork_console::output::{say, shell_word};
use latchwork_recording::reader::Recording;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time between two looks at whether the process has executed another program.
const GLANCE: Duration = Duration::from_secs(1);

/// A number of seconds, from a thousandth on.
pub fn seconds(text: &str) -> std::result::Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time >= Duration::from_millis(1))
        .ok_or_else(|| "must be a number of seconds from 0.001 to 1e19".into())
}

/// The number of a process. People give the name at first.
pub fn pid(text: &str) -> std::result::Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number != 0);
    number.ok_or_else(|| match text.parse::<i128>() {
        Ok(_) => "there is no process of this number".into(),
        Err(_) => format!("a process is given by its number: $(pidof {})", shell_word(text)),
    })
}

/// What is known of a process that ran already.
#[derive(Default)]
pub struct Attached {
    pub recordings: Vec<Recording>,
    /// How many of its threads sleep in a futex at the end.
    pub asleep: usize,
    /// What is known of the waits that began before the recording.
    pub stuck: Stuck,
}

/// Records the process for so long, or until it ends, or until Ctrl-C.
pub fn record(pid: u32, time: Option<Duration>, keep: Option<&Path>) -> Result<Attached> {
    let kept = keep.map(|path| Recordings::new(Some(path))).transpose()?;
    let signals = Signals::block()?;
    let mut session = Session::new(pid)?;
    session.on()?;
    let until = time.map_or_else(|| "until Ctrl-C".into(), |time| format!("for {} s", time.as_secs_f64()));
    say(&format!("latchwork: recording process {pid} ({}) {until}", session.program()));
    // A time that lies beyond the clock's end never comes.
    let end = time.and_then(|time| Instant::now().checked_add(time));
    loop {
        let left = end.map_or(GLANCE, |end| end.saturating_duration_since(Instant::now()).min(GLANCE));
        // A wait ends up to a millisecond early.
        let [ended] = signals.wait([session.descriptor()], left + Duration::from_millis(1));
        if ended || signals.come().is_some() || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        if let Err(failure) = session.follow(true) {
            say(&format!("latchwork: warning: {}", failure.message));
            break;
        }
    }
    let asleep = session.asleep();
    if let Err(failure) = session.off() {
        say(&format!("latchwork: warning: what its last calls counted may be missing: {}", failure.message));
    }
    let recordings = session.read()?;
    if let Some(kept) = &kept {
        session.copy_to(kept.path())?;
    }
    Ok(Attached { recordings, asleep, stuck: session.stuck().clone() })
}
