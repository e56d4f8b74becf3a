//! The processes in which locks are tortured, as the command sees them.

use super::child::Message;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::signals::Signals;
use latchwork_torture::{Failed, Progress, Report};
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// One process.
pub struct Job {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long it may say nothing.
    pub silence: Duration,
}

/// How it ended.
pub enum End {
    /// With a report; early, if a signal asked for that.
    Done(Box<Report>, Option<i32>),
    /// It was asked twice, or did not listen.
    Killed(i32),
}

/// Between two looks for signals.
const LOOK: Duration = Duration::from_millis(100);
/// How long a process may take to end when asked to: its lock has to let every thread go.
const LEAVING: Duration = Duration::from_secs(20);

/// Runs it to its end.
pub fn run(job: &Job, signals: &Signals, mut tell: impl FnMut(&Progress)) -> Result<End> {
    let own = std::env::current_exe().map_err(|error| Failure::new(format!("/proc/self/exe: {error}")))?;
    // A process group of its own: Ctrl-C at the terminal signals only this process, which asks the child to end.
    let child = Command::new(&own)
        .args(&job.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = Running(child.map_err(|error| Failure::new(format!("{}: {error}", own.display())))?);
    let lines = listen(&mut child.0);
    let mut asked = None;
    let mut silent = Duration::ZERO;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(Message::Round(progress)) => {
                silent = Duration::ZERO;
                tell(&progress);
            }
            Ok(Message::Done(report) | Message::Twin(true, report)) => {
                return Ok(End::Done(report.into(), asked));
            }
            Ok(Message::Twin(false, mut report)) => {
                let what = report.failed.map_or("it was not caught".into(), |failed| {
                    format!("caught, but not for its mistake: {}", failed.what)
                });
                report.failed = Some(crash(what));
                return Ok(End::Done(report.into(), asked));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.0.wait().map_err(|error| Failure::new(format!("wait: {error}")))?;
                return Ok(End::Done(report_of(crash(death(status))), asked));
            }
            Err(RecvTimeoutError::Timeout) => silent += LOOK,
        }
        if let Some(signal) = signals.take() {
            if asked.is_some() {
                return Ok(End::Killed(signal));
            }
            asked = Some(signal);
            silent = Duration::ZERO;
            drop(child.0.stdin.take()); // ends it in good order
        }
        match asked {
            Some(signal) if silent > LEAVING => return Ok(End::Killed(signal)),
            None if silent > job.silence => {
                let what = format!("its process said nothing for {} s, and was killed", silent.as_secs());
                return Ok(End::Done(report_of(crash(what)), None));
            }
            _ => (),
        }
    }
}

/// Killed when dropped: nothing is left behind.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // A process that has said its last may have threads that spin for ever.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listen(child: &mut Child) -> Receiver<Message> {
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(std::result::Result::ok) {
            let Ok(message) = serde_json::from_str(&line) else { continue };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

fn death(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGSEGV) => "its process died of an invalid memory access (SIGSEGV)".into(),
        Some(signal) => format!("its process died of signal {signal}"),
        None => format!("its process ended without a word ({status})"),
    }
}

fn crash(what: String) -> Failed {
    Failed { scenario: String::new(), machine: String::new(), round_seed: 0, what, state: Vec::new() }
}

fn report_of(failed: Failed) -> Box<Report> {
    Box::new(Report { failed: Some(failed), ..Report::default() })
}
