//! One run of the program: started, waited for, measured, and ended with everything it started.

use super::leftovers::{self, Daemon};
use latchwork_console::signals::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io::Error;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// As much of a program's output as is kept: its end.
const KEPT_OUTPUT: u64 = 16 << 20;
/// How often a running child is looked at for other reasons than its end.
const GLANCE: Duration = Duration::from_millis(500);

/// What to start.
pub struct Launch<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Variables to set beside those of this process.
    pub environment: &'a [(&'static str, OsString)],
    /// A file for standard input; without one the program reads nothing.
    pub input: Option<&'a File>,
    /// How long it may take.
    pub timeout: Option<Duration>,
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
    /// The most memory that one of them had resident, in bytes.
    pub memory: u64,
    /// Context switches because a thread waited.
    pub voluntary: u64,
    /// Context switches because a thread's time was up.
    pub involuntary: u64,
}

/// How a run ended.
pub enum End {
    /// By itself, with status 0.
    Good(Cost, String),
    /// Otherwise: why, and its output.
    Bad(String, String),
    /// By a signal to us.
    Interrupted(i32),
}

/// Runs the program once; also returns what it left running in the background, which has ended by then. An error
/// means that it could not be started, or that something could not be ended.
pub fn run(launch: &Launch, signals: &Signals) -> Result<(End, Vec<Daemon>), String> {
    let output = Output::new().map_err(|error| format!("memfd_create: {error}"))?;
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
        // A group of its own, so that a timeout or Ctrl-C reaches all that the program started.
        .process_group(0);
    for name in ["LATCHWORK_MUTEX", "LATCHWORK_RWLOCK", "LATCHWORK_STATS", "LATCHWORK_CHECK"] {
        command.env_remove(name);
    }
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    let mask = signals.mask_before();
    // SAFETY: only system calls that are safe between fork and exec. That there is a `pre_exec` also
    // makes std fork instead of vfork: under vfork the kernel counts the memory of *this* process
    // into the child's peak.
    unsafe {
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            // Should this process be killed outright, the program must not go on for ever.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    let start = Instant::now();
    let child = command.spawn().map_err(|error| format!("{}: {error}", launch.command[0].display()))?;
    let process = libc::pid_t::try_from(child.id()).expect("a process id");
    let wait = wait(process, start, launch.timeout, signals, &output);
    let wall = start.elapsed();
    if let Ok(Wait::Ended) = wait {
        leftovers::settle(process);
    }
    // The child is dead or about to be, and not yet reaped, so that its group's number is its own.
    // SAFETY: a signal to a group that we made.
    unsafe { libc::kill(-process, libc::SIGKILL) };
    let (status, usage) = reap(process);
    let (daemons, asked) = leftovers::end(process, signals)?;
    let seconds = wall.as_secs_f64();
    let wait = asked.map_or(wait?, Wait::Interrupted);
    let end = match wait {
        Wait::Interrupted(signal) => End::Interrupted(signal),
        Wait::TimedOut => End::Bad(format!("timed out after {seconds:.1} s"), output.text()),
        Wait::Ended if libc::WIFSIGNALED(status) => {
            End::Bad(format!("killed by signal {}", signal_name(libc::WTERMSIG(status))), output.text())
        }
        Wait::Ended if libc::WEXITSTATUS(status) != 0 => {
            End::Bad(format!("exit status {}", libc::WEXITSTATUS(status)), output.text())
        }
        Wait::Ended => End::Good(Cost { wall, ..cost(&usage) }, output.text()),
    };
    Ok((end, daemons))
}

enum Wait {
    Ended,
    TimedOut,
    Interrupted(i32),
}

fn wait(
    process: libc::pid_t,
    start: Instant,
    timeout: Option<Duration>,
    signals: &Signals,
    output: &Output,
) -> Result<Wait, String> {
    // SAFETY: a system call with plain arguments; the descriptor that it returns is ours.
    let descriptor = unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, process, 0);
        if descriptor < 0 {
            return Err(format!("pidfd_open: {} (it needs Linux 5.3)", Error::last_os_error()));
        }
        OwnedFd::from_raw_fd(i32::try_from(descriptor).expect("a descriptor"))
    };
    let watch = |descriptor| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let mut dropped = 0;
    loop {
        let left = match timeout.map(|timeout| timeout.saturating_sub(start.elapsed())) {
            Some(Duration::ZERO) => return Ok(Wait::TimedOut),
            Some(left) => left.min(GLANCE),
            None => GLANCE,
        };
        let mut polled = [watch(descriptor.as_raw_fd()), watch(signals.descriptor())];
        // One more, so that the last millisecond is not spent polling with a timeout of zero.
        let milliseconds = i32::try_from(left.as_millis()).expect("at most a glance") + 1;
        // SAFETY: an array of two.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, milliseconds) };
        if polled[0].revents != 0 {
            return Ok(Wait::Ended);
        }
        if let Some(signal) = signals.take() {
            return Ok(Wait::Interrupted(signal));
        }
        output.drop_start(&mut dropped);
    }
}

/// Waits for the program.
fn reap(process: libc::pid_t) -> (i32, libc::rusage) {
    let mut status = 0;
    let mut usage = MaybeUninit::zeroed();
    // SAFETY: room for both answers. The child exists, is ours, and ends; nothing but a signal
    // handler, of which there is none, could interrupt the wait.
    unsafe {
        libc::wait4(process, &mut status, 0, usage.as_mut_ptr());
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
    use std::io::Seek;
    let mut file = file.try_clone()?;
    file.rewind()?;
    Ok(file)
}

/// Where a program's output goes: memory that vanishes with its descriptor, and needs nobody to read
/// while the program is measured.
struct Output(File);

impl Output {
    fn new() -> Result<Self, Error> {
        // SAFETY: a terminated string; the descriptor is ours.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"latchwork-output".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(Error::last_os_error());
            }
            // stdout and stderr, and what opens them anew, never write over each other.
            libc::fcntl(descriptor, libc::F_SETFL, libc::O_APPEND);
            File::from_raw_fd(descriptor)
        };
        Ok(Self(file))
    }

    fn writer(&self) -> Result<Stdio, Error> {
        self.0.try_clone().map(Stdio::from)
    }

    /// Gives back the memory of output that will not be looked at.
    fn drop_start(&self, dropped: &mut u64) {
        let length = self.0.metadata().map_or(0, |found| found.len());
        let start = length.saturating_sub(KEPT_OUTPUT) & !4095;
        if start > *dropped + KEPT_OUTPUT {
            let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (offset, size) = (dropped.cast_signed(), (start - *dropped).cast_signed());
            // SAFETY: plain arguments. Should it fail, the memory merely stays.
            unsafe { libc::fallocate(self.0.as_raw_fd(), flags, offset, size) };
            *dropped = start;
        }
    }

    fn text(&self) -> String {
        let length = self.0.metadata().map_or(0, |found| found.len());
        let start = length.saturating_sub(KEPT_OUTPUT);
        let mut bytes = vec![0; usize::try_from(length - start).expect("bounded")];
        if self.0.read_exact_at(&mut bytes, start).is_err() {
            bytes.clear();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
