//! The processes that a program leaves running when it ends: found, and ended before the next run if there is one.
//!
//! `latchwork` is a *child subreaper* here: when one of its descendants ends, the kernel makes the children of that
//! descendant children of `latchwork`. That includes processes that have left the program's process group, as a
//! server does that goes into the background.

use latchwork_console::signals::Signals;
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a process may take to leave the program's group after the program has ended. One that calls daemon(3)
/// takes some microseconds, or its turn on a busy machine.
const SETTLES: Duration = Duration::from_millis(500);
/// How long the kernel has to end what SIGKILL was sent to.
const FORCED: Duration = Duration::from_secs(10);
/// How often the processes are looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// A process that the program left running when it ended.
#[derive(Debug)]
pub struct Daemon {
    /// As `ps` shows it.
    pub name: String,
    /// Its number.
    pub process: libc::pid_t,
}

/// Whether SIGCHLD was ignored when this process started.
static IGNORED: AtomicBool = AtomicBool::new(false);
/// Children that this process had already: a shell may have started them before it became this process. Number and start.
static EARLIER: OnceLock<Vec<(libc::pid_t, u64)>> = OnceLock::new();

/// Makes this process adopt orphans, and learn how its children end.
pub fn adopt() {
    EARLIER.get_or_init(|| all_children().map(|child| (child.process, child.started)).collect());
    // SAFETY: plain arguments. Should prctl fail, orphans outside the program's group stay unknown. Where SIGCHLD is ignored,
    // the kernel forgets how a child ended and what it cost.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_IGN {
            IGNORED.store(true, Relaxed);
        }
    }
}

/// In a child before it executes a program: the program finds SIGCHLD as this process found it.
pub fn as_before() {
    if IGNORED.load(Relaxed) {
        // SAFETY: a system call with plain arguments, which is safe between fork and exec.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    }
}

/// What a recorded program left running when it ended. A process may become a daemon long after that, so those count
/// that are still in the program's process group.
pub fn running() -> Vec<Daemon> {
    children().map(|child| Daemon { name: child.name, process: child.process }).collect()
}

/// Says that the program left these processes.
pub fn text(daemons: &[Daemon]) -> String {
    let names = daemons.iter().map(|Daemon { name, process }| format!("{name} (process {process})"));
    format!("the program left {} running in the background", names.collect::<Vec<_>>().join(", "))
}

/// Advice about a program that only starts a server, for this command.
pub fn in_the_foreground(command: &str) -> String {
    format!(
        "{command} the server in the foreground (there is often an option for it, such as -f, -F, -D or --foreground)"
    )
}

/// Waits a moment, until nothing but the ended program itself is in its process group: most processes that are left there
/// end at once, or leave the group.
pub fn settle(program: libc::pid_t) {
    let begin = Instant::now();
    while begin.elapsed() < SETTLES && children().any(|child| child.group == program) {
        sleep(Duration::from_millis(1));
    }
}

/// Ends all children of this process but those that it had at its start, after the programs were waited for and their groups killed: those outside the
/// groups with SIGTERM, and with SIGKILL if they take longer than `stop_timeout` or if a signal asks this process to end
/// meanwhile. Returns those outside the groups, and the signal.
pub fn end(
    groups: &[libc::pid_t],
    stop_timeout: Duration,
    signals: &Signals,
) -> Result<(Vec<Daemon>, Option<i32>), String> {
    let mut asked = None;
    let mut daemons: Vec<Daemon> = Vec::new();
    let begin = Instant::now();
    let mut forced: Option<Instant> = None;
    while wait_for_ended() && (EARLIER.get().is_none_or(Vec::is_empty) || children().next().is_some()) {
        for child in children().filter(|child| !groups.contains(&child.group)) {
            if daemons.iter().all(|daemon| daemon.process != child.process) {
                signal(child.process, libc::SIGTERM);
                // One that is stopped does not see SIGTERM before it continues.
                signal(child.process, libc::SIGCONT);
                daemons.push(Daemon { name: child.name, process: child.process });
            }
        }
        asked = asked.or_else(|| signals.take());
        if forced.is_none() && (begin.elapsed() > stop_timeout || asked.is_some()) {
            forced = Some(Instant::now());
        }
        if let Some(forced) = forced {
            // Again and again: the children of a killed process become children of this one.
            let left: Vec<_> = children().inspect(|child| signal(child.process, libc::SIGKILL)).collect();
            if forced.elapsed() > FORCED {
                let left = left.iter().map(|child| format!("{} (process {})", child.name, child.process));
                let left = left.collect::<Vec<_>>().join(", ");
                return Err(format!(
                    "the program left {left} running, which cannot be ended: end it by hand"
                ));
            }
        }
        sleep(GLANCE);
    }
    Ok((daemons, asked))
}

/// Waits for the children that have ended; whether there are others.
fn wait_for_ended() -> bool {
    loop {
        // SAFETY: no status is asked for.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            0 => return true,
            -1 => return false,
            _ => {}
        }
    }
}

fn signal(child: libc::pid_t, signal: i32) {
    // SAFETY: a signal to a child that was not waited for, so that the number is still its own.
    unsafe { libc::kill(child, signal) };
}

struct Child {
    process: libc::pid_t,
    group: libc::pid_t,
    name: String,
    /// When it was started, in the kernel's clock ticks since boot. A number may be given again.
    started: u64,
}

/// The children of this process that have not ended, but for those that it had at its start.
fn children() -> impl Iterator<Item = Child> {
    let earlier = EARLIER.get().map_or(&[][..], Vec::as_slice);
    all_children().filter(|child| !earlier.contains(&(child.process, child.started)))
}

fn all_children() -> impl Iterator<Item = Child> {
    let own = libc::pid_t::try_from(std::process::id()).expect("a process id");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read(entry.path().join("stat")).ok()?;
        let (parent, child) = parse(process, &String::from_utf8_lossy(&stat))?;
        (parent == own).then_some(child)
    })
}

/// A running process and its parent, from `/proc/PROCESS/stat`: `PROCESS (NAME) STATE PARENT GROUP ...`, where the
/// name may hold anything.
fn parse(process: libc::pid_t, stat: &str) -> Option<(libc::pid_t, Child)> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let ended = ["Z", "X"].contains(&fields.next()?);
    let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    // The start is field 22 of proc(5), the number of threads field 20, and the group is field 5.
    let (threads, started) = (fields.nth(14)?, fields.nth(1)?.parse().ok()?);
    // The state is that of the first thread, which may have ended before the others.
    let ended = ended && threads.parse::<u32>().is_ok_and(|threads| threads <= 1);
    (!ended).then(|| (parent, Child { process, group, name: name.to_owned(), started }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let rest = "5 6 7 0 -1 8 9 10 11 12 13 14 15 16 20 0 1 0 1234 23";
        let (parent, child) = parse(7, &format!("7 (a) (b) S {rest}")).unwrap();
        assert_eq!((parent, child.process, child.group, child.name.as_str()), (5, 7, 6, "a) (b"));
        assert_eq!(child.started, 1234);
        assert!(parse(7, &format!("7 (a) Z {rest}")).is_none());
        // The first thread of two.
        assert!(parse(7, &format!("7 (a) Z {}", rest.replace(" 0 1 0 ", " 0 2 0 "))).is_some());
        assert!(parse(7, "").is_none());
    }
}
