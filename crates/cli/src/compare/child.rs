//! A program that is started, watched, measured and ended together with everything that it started.

use super::output::Output;
use crate::leftovers::{self, Daemon};
use crate::library;
use crate::live::process::descriptor_of;
use latchwork_console::signals::Signals;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Error, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time between two looks at a running program.
const GLANCE: Duration = Duration::from_millis(500);

/// What to start.
pub struct Launch<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Variables to set beside those of this process.
    pub environment: &'a [(&'static str, OsString)],
    /// A file for standard input; without one the program reads nothing.
    pub input: Option<&'a File>,
}

/// What a run cost.
#[derive(Copy, Clone, Debug)]
pub struct Cost {
    /// From start to end.
    pub wall: Duration,
    /// CPU time in the program and the children that it waited for.
    pub user: Duration,
    /// CPU time that the kernel spent for them.
    pub system: Duration,
    /// Peak resident memory, in bytes, of the process among them that had most.
    pub memory: u64,
    /// Context switches because a thread waited.
    pub voluntary: u64,
    /// Context switches because a thread's time was up.
    pub involuntary: u64,
}

/// How a run ended.
pub enum End {
    /// By itself, as it should.
    Good(Cost, String),
    /// Otherwise: why, and its output.
    Bad(String, String),
    /// By a signal to this process.
    Interrupted(i32),
}

/// What one run gave.
pub struct Run {
    pub end: End,
    /// What the program left running in the background, which has ended by then.
    pub daemons: Vec<Daemon>,
    /// Whether a server had to be killed because it did not stop when it was asked to.
    pub killed: bool,
}

/// Runs a program once. An error means that the program could not be started, or that something could not be ended.
///
/// With `any_status` the program may exit with another status than 0. What it left running is killed after `stop_timeout`.
pub fn run(
    launch: &Launch,
    timeout: Option<Duration>,
    stop_timeout: Duration,
    any_status: bool,
    signals: &Signals,
) -> Result<Run, String> {
    let program = Program::start(launch, signals)?;
    let event = watch(&[&program], signals, timeout.map(|timeout| program.start + timeout));
    let wall = program.start.elapsed();
    if let Event::Ended(_) = event {
        leftovers::settle(program.process);
    }
    let ended = program.end();
    let (daemons, asked) = leftovers::end(&[ended.group], stop_timeout, signals)?;
    let end = match asked.map_or(event, Event::Interrupted) {
        Event::Interrupted(signal) => End::Interrupted(signal),
        Event::TimedOut => End::Bad(timed_out(wall), ended.output),
        Event::WaitsForTerminal(_) => End::Bad(format!("it {WAITS_FOR_TERMINAL}"), ended.output),
        Event::Ended(_) => match ended.failure(any_status) {
            Some(why) => End::Bad(why, ended.output),
            None => End::Good(Cost { wall, ..ended.cost }, ended.output),
        },
    };
    Ok(Run { end, daemons, killed: false })
}

/// Why a run failed that stopped at the terminal.
pub const WAITS_FOR_TERMINAL: &str = "waits for the terminal, which it cannot have here: let it ask for nothing (for a password of \
                                      sudo, run `sudo -v` before)";

/// Why a run failed that took too long.
pub fn timed_out(wall: Duration) -> String {
    format!("timed out after {:.1} s", wall.as_secs_f64())
}

/// A running program in a process group of its own. Dropping it kills the group.
pub struct Program {
    process: libc::pid_t,
    /// Readable when the process has ended.
    descriptor: OwnedFd,
    /// What the program prints.
    pub output: Output,
    /// When it was started.
    pub start: Instant,
    reaped: bool,
}

/// A program that has ended.
pub struct Ended {
    /// The number of its process group.
    pub group: libc::pid_t,
    /// What it cost, but for the wall time.
    pub cost: Cost,
    /// What it printed.
    pub output: String,
    status: i32,
}

impl Program {
    /// Starts it.
    pub fn start(launch: &Launch, signals: &Signals) -> Result<Self, String> {
        let output = Output::new().map_err(|error| format!("cannot read what a program prints: {error}"))?;
        let text = |error: Error| error.to_string();
        let mut command = Command::new(&launch.command[0]);
        command
            .args(&launch.command[1..])
            .stdin(match launch.input {
                Some(file) => Stdio::from(rewound(file).map_err(text)?),
                None => Stdio::null(),
            })
            .stdout(output.writer().map_err(text)?)
            .stderr(output.writer().map_err(text)?)
            // A timeout or Ctrl-C reaches all that the program started through this group.
            .process_group(0);
        for name in crate::run::VARIABLES {
            command.env_remove(name);
        }
        // Without the library, unless `environment` has it.
        match library::preloaded_by_user() {
            Some(others) => command.env("LD_PRELOAD", others),
            None => command.env_remove("LD_PRELOAD"),
        };
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        let mask = signals.mask_before();
        // SAFETY: only system calls that are safe between fork and exec. A `pre_exec` also makes std use fork in
        // place of vfork: under vfork the kernel counts the memory of *this* process into the child's peak.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                leftovers::as_before();
                // If this process is killed outright, the program must not go on for ever.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let start = Instant::now();
        let child = command.spawn().map_err(|error| format!("{}: {error}", launch.command[0].display()))?;
        let process = libc::pid_t::try_from(child.id()).expect("a process id");
        let descriptor = descriptor_of(child.id()).map_err(|error| {
            // SAFETY: a signal to the group of a child that was not waited for, so that the number is still the group's.
            unsafe { libc::kill(-process, libc::SIGKILL) };
            reap(process);
            format!("pidfd_open: {error} (it needs Linux 5.3)")
        })?;
        Ok(Self { process, descriptor, output, start, reaped: false })
    }

    /// Sends a signal to the process group.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to the group of a child that was not waited for, so that the number is still the group's.
        unsafe { libc::kill(-self.process, signal) };
    }

    /// Waits a moment for processes that are about to leave the program's group, after the program itself has ended.
    pub fn settle(&self) {
        leftovers::settle(self.process);
    }

    /// Whether the kernel is ending the process: each of its threads exits or has exited.
    pub fn is_exiting(&self) -> bool {
        // PF_EXITING of the kernel's `task_struct`. In proc(5) the flags are field 9, and the state behind the name is field 3.
        const EXITING: u32 = 4;
        let exits = |stat: String| {
            let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(9 - 3)?.parse().ok());
            flags.is_some_and(|flags: u32| flags & EXITING != 0)
        };
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.process)) else { return false };
        // A thread that is gone meanwhile has no file.
        threads.flatten().all(|thread| fs::read_to_string(thread.path().join("stat")).map_or(true, exits))
    }

    fn waits_for_terminal(&self) -> bool {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: room for the answer, in which zeroes are a value. The fields that are read are those of a child's answer.
        unsafe {
            let found = libc::waitid(libc::P_PID, self.process.cast_unsigned(), info.as_mut_ptr(), options);
            let info = info.assume_init();
            found == 0
                && info.si_pid() == self.process
                && [libc::SIGTTIN, libc::SIGTTOU].contains(&info.si_status())
        }
    }

    /// Kills the process group and waits for the program.
    pub fn end(mut self) -> Ended {
        let (status, usage) = self.kill();
        Ended { group: self.process, cost: cost(&usage), output: self.output.text(), status }
    }

    fn kill(&mut self) -> (i32, libc::rusage) {
        self.signal(libc::SIGKILL);
        self.reaped = true;
        reap(self.process)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
        }
    }
}

impl Ended {
    /// How the program ended, if that is a failure. With `any_status` every exit status is as good as 0.
    pub fn failure(&self, any_status: bool) -> Option<String> {
        let good = libc::WIFEXITED(self.status) && (any_status || libc::WEXITSTATUS(self.status) == 0);
        (!good).then(|| self.manner())
    }

    /// Whether a server that has ended by itself did so by a failure. A load may ask its server to end as its last action.
    pub fn crashed(&self, any_status: bool) -> bool {
        let polite = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        if libc::WIFSIGNALED(self.status) {
            return !polite.contains(&libc::WTERMSIG(self.status));
        }
        let status = libc::WEXITSTATUS(self.status);
        !any_status && status != 0 && !polite.contains(&(status - 128))
    }

    /// `exit status 1`, or `killed by signal 11 (Segmentation fault)`.
    pub fn manner(&self) -> String {
        if libc::WIFSIGNALED(self.status) {
            format!("killed by signal {}", signal_name(libc::WTERMSIG(self.status)))
        } else {
            format!("exit status {}", libc::WEXITSTATUS(self.status))
        }
    }
}

/// What ended a wait.
pub enum Event {
    /// The program at this index has ended.
    Ended(usize),
    /// The program at this index reads from the terminal or sets it. Its process group is in the background there, so the kernel has
    /// stopped it, for ever.
    WaitsForTerminal(usize),
    /// The time is up.
    TimedOut,
    /// A signal asks this process to end.
    Interrupted(i32),
}

/// Waits until one of the programs has ended or waits for the terminal, until the time is up, or for a signal. Of several programs that have
/// ended, it returns the first.
pub fn watch(programs: &[&Program], signals: &Signals, until: Option<Instant>) -> Event {
    let watch = |descriptor| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    loop {
        let left = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return Event::TimedOut,
            Some(left) => left.min(GLANCE),
            None => GLANCE,
        };
        let mut polled: Vec<_> =
            programs.iter().map(|program| watch(program.descriptor.as_raw_fd())).collect();
        polled.push(watch(signals.descriptor()));
        // One more, so that the last millisecond is not spent polling with a timeout of zero.
        let milliseconds = i32::try_from(left.as_millis()).expect("at most a glance") + 1;
        // SAFETY: the array and its length.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
        if let Some(index) = polled[..programs.len()].iter().position(|polled| polled.revents != 0) {
            return Event::Ended(index);
        }
        if let Some(signal) = signals.take() {
            return Event::Interrupted(signal);
        }
        if let Some(index) = programs.iter().position(|program| program.waits_for_terminal()) {
            return Event::WaitsForTerminal(index);
        }
    }
}

/// Waits for a program that has ended or was killed.
fn reap(process: libc::pid_t) -> (i32, libc::rusage) {
    let mut status = 0;
    let mut usage = MaybeUninit::zeroed();
    // SAFETY: room for both answers. The child exists, belongs to this process, and ends. No signal handler could
    // interrupt the wait: there is none.
    unsafe {
        let found = libc::wait4(process, &mut status, 0, usage.as_mut_ptr());
        assert_eq!(found, process, "the child is there: {}", Error::last_os_error());
        (status, usage.assume_init())
    }
}

fn cost(usage: &libc::rusage) -> Cost {
    let time = |value: libc::timeval| {
        Duration::new(value.tv_sec.cast_unsigned(), value.tv_usec.cast_unsigned() as u32 * 1000)
    };
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Cost {
        wall: Duration::ZERO,
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        memory: count(usage.ru_maxrss) * 1024,
        voluntary: count(usage.ru_nvcsw),
        involuntary: count(usage.ru_nivcsw),
    }
}

fn signal_name(signal: i32) -> String {
    // SAFETY: strsignal takes any number, and what it returns is read before the next call.
    let name = unsafe { std::ffi::CStr::from_ptr(libc::strsignal(signal)) };
    format!("{signal} ({})", name.to_string_lossy())
}

/// The same open file from its start again. Programs read it one after another.
fn rewound(file: &File) -> Result<File, Error> {
    let mut file = file.try_clone()?;
    file.rewind()?;
    Ok(file)
}
