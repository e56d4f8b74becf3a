//! The program to run: where it is, and whether the library can be preloaded into it.

pub mod elf;
mod linker;

use crate::profile::files::file_system;
use latchwork_console::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, Result};
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Finds the file that `execvp` would run.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    let shown = Path::new(name).display();
    let not_executable = |path: &Path| Failure {
        status: NOT_EXECUTABLE,
        message: format!("{} cannot be executed: {}", path.display(), why_not_executable(path)),
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Ok(_) if is_executable(&path) => missing_interpreter(&path).map_or(Ok(path), Err),
            Ok(_) => Err(not_executable(&path)),
            // As env(1): what cannot be looked for is not known to be missing.
            Err(error) => {
                let status = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
                Err(Failure { status, message: format!("{shown}: {error}") })
            }
        };
    }
    let search = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut unusable = None;
    if !name.is_empty() {
        for directory in env::split_paths(&search) {
            let path = directory.join(name);
            if is_executable(&path) {
                match missing_interpreter(&path) {
                    None => return Ok(path),
                    Some(failure) => _ = unusable.get_or_insert(failure),
                }
            } else if path.is_file() {
                unusable.get_or_insert_with(|| not_executable(&path));
            }
        }
    }
    if let Some(failure) = unusable {
        return Err(failure);
    }
    let hint =
        if Path::new(name).is_file() { format!(" (there is one here: ./{shown})") } else { String::new() };
    Err(Failure { status: NOT_FOUND, message: format!("no program {shown:?} in PATH{hint}") })
}

/// The program's file, for what compares it with the files that a command writes.
pub fn named(command: &[OsString]) -> Option<(&'static str, PathBuf)> {
    Some(("PROG", find(command.first()?).ok()?))
}

/// The failure for a program that is there, but what the kernel would start for it is not: the interpreter of a script, or the
/// dynamic linker. (The kernel's own error says that the program is not there.)
fn missing_interpreter(path: &Path) -> Option<Failure> {
    let (what, missing) = missing(path, 0)?;
    let missing = missing.to_string_lossy().escape_debug().to_string();
    Some(Failure {
        status: NOT_FOUND,
        message: format!("{} cannot be executed: its {what} {missing} is missing", path.display()),
    })
}

fn missing(path: &Path, depth: u32) -> Option<(&'static str, PathBuf)> {
    let is_missing = |path: &Path| fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let file = File::open(path).ok()?;
    if let Some(interpreter) = interpreter(&file) {
        if is_missing(&interpreter) {
            return Some(("interpreter", interpreter));
        }
        return (depth < SCRIPTS).then(|| missing(&interpreter, depth + 1))?;
    }
    match elf::linkage(&file)? {
        // `obstacle` says more about musl.
        elf::Linkage::Dynamic(linker) if is_missing(&linker) && !is_named(&linker, &[MUSL]) => {
            Some(("dynamic linker", linker))
        }
        _ => None,
    }
}

/// Linux follows a handful of interpreters that are scripts themselves.
const SCRIPTS: u32 = 4;
/// How the name of musl's dynamic linker begins.
const MUSL: &str = "ld-musl";
/// How the names of glibc's begin.
const LINKERS: [&str; 4] = ["ld-linux", "ld-2.", "ld64.so", "ld.so"];

/// The interpreter that a script names.
fn interpreter(file: &File) -> Option<PathBuf> {
    let mut start = [0; 256];
    let length = file.read_at(&mut start, 0).ok()?;
    let line = start[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let blank = |byte: &u8| b" \t".contains(byte);
    let interpreter = line.split(blank).find(|word| !word.is_empty())?;
    Some(OsStr::from_bytes(interpreter).into())
}

fn is_executable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a terminated string.
    path.is_file() && unsafe { libc::access(name.as_ptr(), libc::X_OK) } == 0
}

fn why_not_executable(path: &Path) -> String {
    if path.is_dir() {
        "it is a directory".into()
    } else {
        format!("permission denied (chmod +x {} if it is a program)", path.display())
    }
}

/// Why the library is not loaded into a program, what happens instead, and what the user can do about it.
#[derive(Debug, PartialEq)]
pub enum Obstacle {
    /// The program runs without the library.
    RunsWithout(String),
    /// The program does not start.
    DoesNotStart(String),
}

impl Obstacle {
    fn of_interpreter(self, interpreter: &Path) -> Self {
        let with = |why| format!("of its interpreter {}: {why}", interpreter.display());
        match self {
            Self::RunsWithout(why) => Self::RunsWithout(with(why)),
            Self::DoesNotStart(why) => Self::DoesNotStart(with(why)),
        }
    }
}

/// What keeps `library` out of the program at `path`, if anything does. This process must have no other thread.
pub fn obstacle(path: &Path, library: &Path) -> Option<Obstacle> {
    obstacle_in_content(path, library, 0)
}

/// The dynamic linker ignores `LD_PRELOAD`, and removes it from the environment, when a program gains
/// privileges by being started.
fn privileged(path: &Path) -> Option<Obstacle> {
    const AS_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    let found = fs::metadata(path).ok()?;
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: these calls take no pointer.
    let (user, group, gains_none) =
        unsafe { (libc::getuid(), libc::getgid(), libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) };
    if gains_none || file_system(path).is_some_and(|found| found.f_flag & libc::ST_NOSUID != 0) {
        return None;
    }
    // SAFETY: terminated strings; a size of 0 asks only for the attribute's length.
    let capabilities =
        unsafe { libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    let (privilege, instead) = if found.mode() & libc::S_ISUID != 0 && found.uid() != user {
        (
            "is setuid",
            format!(
                "start latchwork as user {0}, as in `sudo -u '#{0}' latchwork run -- ./server`",
                found.uid()
            ),
        )
    } else if found.mode() & AS_GROUP == AS_GROUP && found.gid() != group {
        ("is setgid", format!("start latchwork with group {}, as `sg` does", found.gid()))
    } else if capabilities > 0 && user != 0 {
        ("has file capabilities", "start latchwork as root, or a copy of the program without them".into())
    } else {
        return None;
    };
    Some(Obstacle::RunsWithout(format!(
        "it {privilege}, so the dynamic linker preloads nothing into it, nor into the programs that it starts; \
         {instead}"
    )))
}

fn obstacle_in_content(path: &Path, library: &Path, depth: u32) -> Option<Obstacle> {
    // A program that this user may run but not read is of interest only if it is privileged.
    let Ok(file) = File::open(path) else { return privileged(path) };
    if let Some(interpreter) = interpreter(&file) {
        let found = (depth < SCRIPTS).then(|| obstacle_in_content(&interpreter, library, depth + 1))??;
        return Some(found.of_interpreter(&interpreter));
    }
    let linkage = elf::linkage(&file)?;
    if let Some(found) = privileged(path) {
        return Some(found);
    }
    match linkage {
        elf::Linkage::OtherProcessor => Some(Obstacle::RunsWithout(
            "it is built for another kind of processor than the preload library (32-bit programs are not served), and its \
             dynamic linker ignores the library"
                .into(),
        )),
        // The dynamic linker itself, which loads the program that its arguments name.
        elf::Linkage::Static if is_named(path, &LINKERS) => None,
        elf::Linkage::Static => Some(Obstacle::RunsWithout(
            "it is statically linked, so there is no dynamic linker to preload the library; dynamically linked \
             programs that it starts do get the library. Link it dynamically to replace its locks"
                .into(),
        )),
        elf::Linkage::Dynamic(linker) if is_named(&linker, &[MUSL]) => Some(Obstacle::DoesNotStart(
            "it uses the musl C library, whose dynamic linker cannot load the preload library, which needs glibc, \
             and would end the program with status 127; build the program for glibc, or run it without latchwork"
                .into(),
        )),
        elf::Linkage::Dynamic(linker) if is_named(&linker, &LINKERS) => {
            linker::obstacle(&linker, path, library)
        }
        elf::Linkage::Dynamic(_) => None,
    }
}

/// The runtime of the sanitizer (AddressSanitizer and the like) that the program is built with. It must come first
/// among the libraries: it ends a program where another one does, and does not see the locks that this one serves.
pub fn sanitizer(path: &Path) -> Option<String> {
    elf::sanitizer(&File::open(path).ok()?)
}

fn is_named(path: &Path, names: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    names.iter().any(|start| name.starts_with(start.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find(OsStr::new("no-such-program")).unwrap_err().status, 127);
        assert_eq!(find(OsStr::new("/no/such/program")).unwrap_err().status, 127);
        assert_eq!(find(OsStr::new("/etc/passwd")).unwrap_err().status, 126);
        assert_eq!(find(OsStr::new("/etc")).unwrap_err().status, 126);
        assert_eq!(find(OsStr::new("")).unwrap_err().status, 127);
    }
}
