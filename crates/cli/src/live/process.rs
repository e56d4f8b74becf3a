//! The process that is observed: whether it can be, and which of its threads gets the signal.

use crate::library;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::user;
use latchwork_recording::control::SIGNAL;
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For this time, the signal goes only to a thread that is in no system call which the signal would disturb.
const CHOOSY: Duration = Duration::from_millis(500);

/// A process under latchwork's library.
pub struct Process {
    pub pid: u32,
    /// The name of its executable, at most 15 bytes.
    pub name: String,
    /// Its effective user and group.
    pub user: u32,
    pub group: u32,
    descriptor: OwnedFd,
}

/// What `/proc/N/status` says.
struct Status {
    /// The process that the thread belongs to.
    process: u32,
    name: String,
    state: char,
    threads: u32,
    user: u32,
    group: u32,
    /// Signals that are blocked, and that have a handler: bits from 0 on for signals from 1 on.
    blocked: u64,
    caught: u64,
}

impl Status {
    fn read(path: &str) -> std::io::Result<Self> {
        let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("").trim()
        };
        let number = |name: &str| field(name).split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let mask = |name: &str| u64::from_str_radix(field(name), 16).unwrap_or(0);
        Ok(Self {
            process: field("Tgid").parse().unwrap_or(0),
            // A process may call itself what it likes, and this may be root's terminal.
            name: field("Name").chars().filter(|char| !char.is_control()).collect(),
            state: field("State").chars().next().unwrap_or('?'),
            threads: field("Threads").parse().unwrap_or(0),
            user: number("Uid").unwrap_or(u32::MAX),
            group: number("Gid").unwrap_or(u32::MAX),
            blocked: mask("SigBlk"),
            caught: mask("SigCgt"),
        })
    }
}

/// Whether there is such a process that has not ended. The state is that of its first thread, which may have ended before the others.
pub fn lives(pid: u32) -> bool {
    Status::read(&format!("/proc/{pid}/status"))
        .is_ok_and(|status| !matches!(status.state, 'Z' | 'X') || status.threads > 1)
}

/// This file of the process in `/proc`; where its first thread has ended, which has no memory then, that of another thread.
fn of_a_thread(pid: u32, name: &str) -> std::io::Result<Vec<u8>> {
    let first = fs::read(format!("/proc/{pid}/{name}"));
    if first.as_ref().is_ok_and(|content| !content.is_empty()) {
        return first;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut others = threads.filter_map(|entry| fs::read(entry.path().join(name)).ok());
    others.find(|content| !content.is_empty()).map_or(first, Ok)
}

/// A descriptor of a process, which is readable when the process has ended.
pub fn descriptor_of(pid: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: a system call with plain arguments.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).expect("a descriptor")) })
}

/// Of a descriptor of a process: whether all of its threads have ended.
fn is_readable(descriptor: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, which is open.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// Whether a file in `/proc` cannot be read because its process, or thread, has ended.
fn is_gone(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn has(mask: u64) -> bool {
    mask & 1 << (SIGNAL - 1) != 0
}

impl Process {
    /// Finds the process, and checks that it can be observed.
    pub fn find(pid: u32) -> Result<Self> {
        let fail = |why: String| Err(Failure::new(format!("process {pid}{why}")));
        let gone = || Err(Failure::new(format!("there is no process {pid}")));
        // The kernel has a directory for each thread, too.
        if let Ok(Status { process, .. }) = Status::read(&format!("/proc/{pid}/status"))
            && process != pid
        {
            return Err(Failure::new(format!("{pid} is a thread of process {process}: name that process")));
        }
        let descriptor = match descriptor_of(pid) {
            Ok(descriptor) => descriptor,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => return gone(),
            Err(error) => return fail(format!(": pidfd_open: {error} (it needs Linux 5.3)")),
        };
        let status = match Status::read(&format!("/proc/{pid}/status")) {
            Ok(status) => status,
            Err(error) if is_gone(&error) => return gone(),
            Err(error) => return fail(format!(": {error}")),
        };
        if is_readable(&descriptor) {
            return fail(" has ended".into());
        }
        if user() != 0 && user() != status.user {
            return fail(format!(
                " ({}) belongs to user {}: only that user and root may observe it",
                status.name, status.user
            ));
        }
        let maps = match of_a_thread(pid, "maps") {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return fail(format!(
                    " ({}) {}",
                    status.name,
                    match user() {
                        0 => {
                            "cannot be looked into without the capability CAP_SYS_PTRACE, which this root has not over it (in a \
                             container: docker run --cap-add SYS_PTRACE)"
                        }
                        _ => {
                            "can be observed by root only, with the capability CAP_SYS_PTRACE: it has changed its user, or may be \
                             executed but not read"
                        }
                    }
                ));
            }
            maps => maps.unwrap_or_default(),
        };
        let environment = of_a_thread(pid, "environ").unwrap_or_default();
        let variable = |name: &str| {
            let find = |entry: &[u8]| {
                let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                (!value.is_empty() && value != b"0").then_some(())
            };
            environment.split(|byte| *byte == 0).any(|entry| find(entry).is_some())
        };
        let maps = String::from_utf8_lossy(&maps);
        let name = &status.name;
        let start = "start it with `latchwork run -- ...` (with glibc's locks: --mutex glibc --rwlock glibc)";
        if !maps.contains(library::NAME) && !variable("LATCHWORK_LIVE") {
            return fail(format!(" ({name}) was not started under latchwork: {start}"));
        }
        if variable("LATCHWORK_PROFILE") {
            return fail(format!(" ({name}) is recorded from its start, by latchwork profile"));
        }
        if !has(status.caught) {
            return fail(match variable("LATCHWORK_LIVE") {
                true => format!(
                    " ({name}) cannot be observed: --only or --not leaves it out, it has raised privileges, or it handles \
                     SIGURG itself"
                ),
                false => format!(" ({name}) was not started by latchwork run: {start}"),
            });
        }
        Ok(Self { pid, name: status.name, user: status.user, group: status.group, descriptor })
    }

    /// Whether it belongs to another user.
    pub fn is_foreign(&self) -> bool {
        self.user != user()
    }

    /// Its root directory.
    pub fn root(&self) -> PathBuf {
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        // The first thread may have ended before the others, and has no root directory then.
        let roots = [process].into_iter().chain(threads.map(|entry| entry.path()));
        let mut roots = roots.map(|path| path.join("root"));
        roots.find(|root| fs::metadata(root.join(".")).is_ok()).unwrap_or_else(|| "/".into())
    }

    /// Whether a signal has stopped it.
    pub fn is_stopped(&self) -> bool {
        Status::read(&format!("/proc/{}/status", self.pid)).is_ok_and(|status| status.state == 'T')
    }

    pub fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    pub fn has_ended(&self) -> bool {
        is_readable(&self.descriptor)
    }

    /// How many of its threads sleep in a futex, as waiters for locks, conditions and other threads do. 0 if the kernel does
    /// not say where threads sleep.
    pub fn asleep(&self) -> usize {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let sleeps =
            |path: &Path| fs::read_to_string(path.join("wchan")).is_ok_and(|place| place.contains("futex"));
        threads.filter(|entry| sleeps(&entry.path())).count()
    }

    /// Its memory map, if this process may read it.
    pub fn maps(&self) -> Option<String> {
        let maps = of_a_thread(self.pid, "maps").ok()?;
        Some(String::from_utf8_lossy(&maps).into_owned())
    }

    /// Whether it has another number in a container of its own.
    pub fn is_contained(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.is_none_or(|numbers| numbers.split_whitespace().count() != 1)
    }

    /// Looks up its name again, after it has executed another program.
    pub fn rename(&mut self) {
        if let Ok(status) = Status::read(&format!("/proc/{}/status", self.pid)) {
            self.name = status.name;
        }
    }

    /// Sends the signal with this value, if there is a suitable thread. `waited`: for how long there has been none, or no
    /// answer.
    pub fn knock(&self, value: u64, waited: Duration) -> Result<bool> {
        let mut threads = Vec::new();
        let fail = |error| Err(Failure::new(format!("process {}: {error}", self.pid)));
        let entries = match fs::read_dir(format!("/proc/{}/task", self.pid)) {
            Err(error) if !is_gone(&error) => return fail(error),
            entries => entries.into_iter().flatten().flatten(),
        };
        for entry in entries {
            let path = entry.path();
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let status = match Status::read(&path.join("status").to_string_lossy()) {
                Ok(status) => status,
                Err(error) if is_gone(&error) => continue,
                Err(error) => return fail(error),
            };
            if has(status.blocked) || matches!(status.state, 'Z' | 'X') {
                continue;
            }
            let sleeps_in = || fs::read_to_string(path.join("wchan")).unwrap_or_default();
            // glibc's functions go on after a signal that comes while they wait in a futex.
            let disturbs = status.state != 'R' && !sleeps_in().contains("futex");
            threads.push((disturbs, status.state != 'R', tid));
        }
        threads.sort_unstable();
        let Some((disturbs, _, tid)) = threads.first() else {
            return if self.has_ended() || waited < CHOOSY {
                Ok(false)
            } else {
                Err(Failure::new(format!("process {} blocks SIGURG in all of its threads", self.pid)))
            };
        };
        if *disturbs && waited < CHOOSY {
            return Ok(false);
        }
        self.send(*tid, value)
    }

    fn send(&self, tid: i32, value: u64) -> Result<bool> {
        /// The kernel's `siginfo_t` of a signal with a value.
        #[repr(C)]
        struct Info {
            signal: i32,
            error: i32,
            code: i32,
            alignment: i32,
            sender: u32,
            user: u32,
            value: u64,
            rest: [u64; 12],
        }
        const { assert!(size_of::<Info>() == size_of::<libc::siginfo_t>()) };
        let info = Info {
            signal: SIGNAL,
            error: 0,
            code: libc::SI_QUEUE,
            alignment: 0,
            sender: std::process::id(),
            // SAFETY: the call takes nothing and always succeeds.
            user: unsafe { libc::getuid() },
            value,
            rest: [0; 12],
        };
        // SAFETY: the structure that the call expects. The process may have ended: then the call fails, or, if its number is
        // used again, a process gets a signal that it ignores.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, self.pid, tid, SIGNAL, &raw const info) };
        if result == 0 {
            return Ok(true);
        }
        let error = Error::last_os_error();
        match error.kind() {
            ErrorKind::PermissionDenied => {
                Err(Failure::new(format!("process {}: no right to send it a signal: {error}", self.pid)))
            }
            _ => Ok(false),
        }
    }

    /// The failure for a process that does not answer.
    pub fn silent(&self) -> Failure {
        let status = Status::read(&format!("/proc/{}/status", self.pid));
        let why = match status.map(|status| status.state) {
            Ok('T' | 't') => "it is stopped (continue it with SIGCONT)",
            _ => "it may handle SIGURG itself, or its locks may be those of another version of latchwork",
        };
        Failure::new(format!("process {} ({}) does not answer: {why}", self.pid, self.name))
    }
}
