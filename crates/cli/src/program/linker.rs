//! Asks a program's dynamic linker whether it would load the library, before the program is started.
//!
//! `LINKER --list PROGRAM` loads what the linker loads before the program's first instruction, with the same
//! `LD_PRELOAD`, and then says what it loaded instead of starting the program.

use super::{Obstacle, elf};
use crate::library;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What keeps `library` out of a program with glibc's dynamic linker, if anything does.
pub fn obstacle(linker: &Path, program: &Path, library: &Path) -> Option<Obstacle> {
    aside(|| ask(linker, program, library))
}

/// Answers a question in a process of its own, which leaves no trace in this one. `run` becomes the program, and the
/// kernel would count the CPU time and memory of a child that was waited for as the program's.
fn aside(question: impl FnOnce() -> Option<Obstacle>) -> Option<Obstacle> {
    const RUNS_WITHOUT: u8 = b'r';
    let (mut reader, mut writer) = io::pipe().ok()?;
    let mut answer = String::new();
    // SAFETY: this process has no other thread, so the child may do what this one may. The child ends here, and
    // the disposition of SIGCHLD that is put back is the one that was found. `waitid` takes a null pointer.
    unsafe {
        // While SIGCHLD is ignored, the kernel counts a child's CPU time and memory nowhere. Nor does it keep the
        // status of other children, which a shell may have started before it became this process.
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let childless = libc::waitid(libc::P_ALL, 0, std::ptr::null_mut(), options) < 0;
        let before = childless.then(|| libc::signal(libc::SIGCHLD, libc::SIG_IGN));
        let child = libc::fork();
        if child == 0 {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let text = match question() {
                None => String::new(),
                Some(Obstacle::RunsWithout(why)) => format!("{}{why}", char::from(RUNS_WITHOUT)),
                Some(Obstacle::DoesNotStart(why)) => format!("s{why}"),
            };
            let _ = writer.write_all(text.as_bytes());
            libc::_exit(0);
        }
        drop(writer);
        let _ = reader.read_to_string(&mut answer);
        if child > 0 {
            // Returns when the child is gone.
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        if let Some(before) = before {
            libc::signal(libc::SIGCHLD, before);
        }
    }
    let why = answer.get(1..)?.to_owned();
    Some(if answer.as_bytes()[0] == RUNS_WITHOUT {
        Obstacle::RunsWithout(why)
    } else {
        Obstacle::DoesNotStart(why)
    })
}

/// Finds no obstacle if the linker does not load the program without the library either: the program may be
/// unreadable, or miss a library of its own, and its own error is the one to show.
fn ask(linker: &Path, program: &Path, library: &Path) -> Option<Obstacle> {
    let before = library::preloaded_by_user();
    let with = list(linker, program, Some(&library::preloading(None, library, before.as_deref())))?;
    let shown = library.display();
    // The linker lists the library even if the C library lacks symbol versions that the library needs. It complains,
    // and would not start the program.
    let required_by = format!("(required by {shown})");
    let versions: Vec<_> = with.complaints.lines().filter(|line| line.ends_with(&required_by)).collect();
    let ignored = with.succeeded && versions.is_empty();
    if ignored && with.loaded.contains(&shown.to_string())
        || !list(linker, program, before.as_deref())?.succeeded
    {
        return None;
    }
    let complaints = if versions.is_empty() { with.complaints.lines().collect() } else { versions };
    let complaints: String = complaints.iter().map(|line| format!("\n  {line}")).collect();
    let linker = linker.display();
    if ignored {
        return Some(Obstacle::RunsWithout(format!(
            "its dynamic linker {linker} ignores {shown}:{complaints}"
        )));
    }
    let needs = fs::read(library).ok().and_then(|library| elf::needed_glibc(&library));
    let needs = needs.map_or_else(String::new, |version| format!(", which needs glibc {version} or newer"));
    Some(Obstacle::DoesNotStart(format!(
        "its dynamic linker {linker} cannot load {shown}{needs}:{complaints}\n\
         Build latchwork on the system that the program is built for, or run the program without latchwork"
    )))
}

struct Listed {
    succeeded: bool,
    loaded: String,
    complaints: String,
}

fn list(linker: &Path, program: &Path, preload: Option<&OsStr>) -> Option<Listed> {
    let mut command = Command::new(std::path::absolute(linker).ok()?);
    // With a slash in them: a name without is looked up in PATH, and by the linker among the libraries.
    command.arg("--list").arg(std::path::absolute(program).ok()?).stdin(Stdio::null());
    match preload {
        Some(preload) => command.env("LD_PRELOAD", preload),
        None => command.env_remove("LD_PRELOAD"),
    };
    // What changes the linker's output.
    for name in ["LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_SHOW_AUXV", "LD_VERBOSE", "LD_WARN"] {
        command.env_remove(name);
    }
    let output = command.output().ok()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some(Listed {
        succeeded: output.status.success(),
        loaded: text(output.stdout),
        complaints: text(output.stderr),
    })
}
