//! The program while it is recorded. It runs as it would without latchwork: with the same standard streams, in the same
//! process group. This process only waits for it, and passes on the signals that were meant for it.

use crate::leftovers::{self, Daemon};
use crate::live::now;
use crate::program::{self, Obstacle};
use crate::run::{self, Locks, Programs};
use latchwork_console::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, Result};
use latchwork_console::output::say;
use latchwork_console::signals::{block, disposition, sigpipe_for_children};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::mem::zeroed;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Signals that users and supervisors send to a program.
const PASSED_ON: [i32; 7] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

/// What a program that gets no library does, for the warning, where the program is to be recorded.
pub const NOT_RECORDED: &str = "cannot be recorded";

/// The variables with which a program has the library, under the locks that `locks` says for its file. Warns if the program
/// itself does not get the library, which the programs that it starts may get; `without` says what it does then.
pub fn environment(
    command: &[OsString],
    programs: &Programs,
    locks: impl FnOnce(&Path) -> Result<Locks>,
    without: &str,
) -> Result<Vec<(&'static str, OsString)>> {
    let path = program::find(&command[0])?;
    let Locks { choice, by_place } = locks(&path)?;
    let library = crate::library::path()?;
    let shown = Path::new(&command[0]).display();
    match program::obstacle(&path, &library) {
        None => {}
        Some(Obstacle::RunsWithout(why)) => {
            say(&format!("latchwork: warning: {shown} {without}: {why}"));
        }
        Some(Obstacle::DoesNotStart(why)) => return Err(run::cannot_start(&shown, &why)),
    }
    let mut environment = run::environment(&choice, &library, program::sanitizer(&path).as_deref());
    environment.push(("LATCHWORK_LOCKS", by_place));
    environment.extend(programs.environment());
    Ok(environment)
}

/// The failure of a program that ended with `status`, and of which there is no recording. `rest` is the rest of the sentence.
pub fn not_recorded(command: &[OsString], status: i32, rest: &str) -> Failure {
    let shown = Path::new(&command[0]).display();
    Failure {
        status: if status == 0 { 1 } else { u8::try_from(status).unwrap_or(1) },
        message: format!("{shown} ended with status {status}{rest}"),
    }
}

/// What the recording of a program does not have that went on in the background, which `command` has made. `what`: the report,
/// or the trace.
pub fn background(daemons: &[Daemon], command: &str, what: &str) -> String {
    format!(
        "{}: what it does from now on is not in the {what}. If the program only starts a server, {}",
        leftovers::text(daemons),
        leftovers::in_the_foreground(command)
    )
}

/// Where the program's standard output goes.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Stdout {
    /// Where this process's goes.
    Own,
    /// To standard error: this process's own standard output is for a result.
    Stderr,
}

/// How a program ended.
pub struct Ended {
    /// Its exit status, or 128 and the signal that killed it, as shells say it.
    pub status: i32,
    /// That signal.
    pub killed_by: Option<i32>,
    /// The processes that it left running.
    pub left: Vec<Daemon>,
    /// When this process saw that processes were gone, by their numbers, on `CLOCK_MONOTONIC`. For those that were left running:
    /// when it stopped looking.
    pub gone: HashMap<u32, u64>,
}

/// Runs the program to its end.
pub fn run(command: &[OsString], environment: &[(&'static str, OsString)], stdout: Stdout) -> Result<Ended> {
    let mut gone = HashMap::new();
    let signals = Signals::block();
    leftovers::adopt();
    let process = start(command, environment, stdout, &signals)?;
    loop {
        let (signal, by_terminal) = signals.next();
        if signal == libc::SIGCHLD {
            if let Some((status, killed_by)) = ended(process, &mut gone) {
                // SAFETY: a system call that takes nothing. The program has the group of this process.
                leftovers::settle(unsafe { libc::getpgrp() });
                let left = leftovers::running();
                gone.extend(left.iter().map(|daemon| (daemon.process.cast_unsigned(), now())));
                return Ok(Ended { status, killed_by, left, gone });
            }
        } else if !by_terminal {
            // The terminal sends Ctrl-C to the program as well. A signal that is sent to this process alone is meant for the program.
            // SAFETY: a signal to a child that was not waited for yet.
            unsafe { libc::kill(process, signal) };
        }
    }
}

fn start(
    command: &[OsString],
    environment: &[(&'static str, OsString)],
    stdout: Stdout,
    signals: &Signals,
) -> Result<i32> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    for name in crate::run::VARIABLES {
        child.env_remove(name);
    }
    child.envs(environment.iter().map(|(name, value)| (name, value)));
    let (mask, pipe, on_child) = (signals.before, sigpipe_for_children(), signals.on_child);
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe {
        child.pre_exec(move || {
            // std sets this one to its default, and the program shall find it as this process did.
            libc::signal(libc::SIGPIPE, pipe);
            libc::sigaction(libc::SIGCHLD, &on_child, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            if stdout == Stdout::Stderr && libc::dup2(2, 1) < 0 {
                // There is no standard error.
                libc::close(1);
            }
            Ok(())
        })
    };
    let child = child.spawn().map_err(|error| {
        let status = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
        Failure { status, message: format!("{}: {error}", Path::new(&command[0]).display()) }
    })?;
    // The handle does nothing when it is dropped; `ended` waits.
    Ok(i32::try_from(child.id()).expect("a process id"))
}

/// The program's exit status, and the signal that killed it, if it has ended. Waits also for the orphans that have ended, and notes when.
fn ended(process: i32, gone: &mut HashMap<u32, u64>) -> Option<(i32, Option<i32>)> {
    let mut status = 0;
    // SAFETY: room for the status.
    let wait = |status: &mut i32| unsafe { libc::waitpid(-1, status, libc::WNOHANG) };
    loop {
        let found = wait(&mut status);
        if found <= 0 {
            return None;
        }
        gone.insert(found.cast_unsigned(), now());
        if found == process {
            break;
        }
    }
    let killed_by = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    Some((killed_by.map_or_else(|| libc::WEXITSTATUS(status), |signal| 128 + signal), killed_by))
}

/// Signals that this process waits for. They stay blocked as long as it lives.
struct Signals {
    waited_for: libc::sigset_t,
    before: libc::sigset_t,
    on_child: libc::sigaction,
}

impl Signals {
    fn block() -> Self {
        let on_child = disposition(libc::SIGCHLD);
        // Where it is ignored, the kernel forgets a child's status.
        // SAFETY: a system call with plain arguments.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // What was ignored before (nohup, a script's `&`) the program finds ignored. It may install a handler all the same, so these
        // signals are passed on too: the kernel keeps a blocked signal even if it is ignored.
        let (waited_for, before) = block(&[&PASSED_ON[..], &[libc::SIGCHLD]].concat());
        Self { waited_for, before, on_child }
    }

    /// The next signal, and whether a key on the terminal caused it.
    fn next(&self) -> (i32, bool) {
        loop {
            // SAFETY: plain data, for which zeroes are a value; the call writes it.
            let mut info: libc::siginfo_t = unsafe { zeroed() };
            // SAFETY: a set of signals, and room for the answer.
            let signal = unsafe { libc::sigwaitinfo(&self.waited_for, &mut info) };
            if signal > 0 {
                return (signal, info.si_code > 0);
            }
            assert_eq!(
                Error::last_os_error().kind(),
                ErrorKind::Interrupted,
                "sigwaitinfo fails for no other reason"
            );
        }
    }
}
