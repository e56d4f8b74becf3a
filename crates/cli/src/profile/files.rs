//! The files that a run recorded, one for each process.

use latchwork_console::failure::{Failure, Result};
use latchwork_console::output::say;
use latchwork_console::signals::WithoutSigpipe;
use latchwork_recording::reader::{Error, Recording};
use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, process};

/// The directory of a run's recordings. Dropping it removes the directory, unless it is to be kept.
pub struct Recordings {
    path: PathBuf,
    keep: bool,
    /// Dropped after the directory was removed.
    _pipe: WithoutSigpipe,
}

impl Recordings {
    /// Makes the directory: `keep`, or one that nobody else can look into.
    pub fn new(keep: Option<&Path>) -> Result<Self> {
        match keep {
            Some(path) => Self::kept(path),
            None => Self::temporary(),
        }
    }

    fn kept(path: &Path) -> Result<Self> {
        let fail = |why: &dyn std::fmt::Display| Failure::usage(format!("--keep {}: {why}", path.display()));
        match DirBuilder::new().recursive(true).mode(0o755).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(fail(&error)),
            _ => {}
        }
        // Absolute, because the program may change its directory.
        let absolute = path.canonicalize().map_err(|error| fail(&error))?;
        let mut entries = fs::read_dir(&absolute).map_err(|error| fail(&error))?;
        if entries.next().is_some() {
            return Err(fail(
                &"is not empty; name a new directory, because files of two runs would be taken for one",
            ));
        }
        Ok(Self { path: absolute, keep: true, _pipe: WithoutSigpipe::new() })
    }

    fn temporary() -> Result<Self> {
        let parent = env::temp_dir();
        let fail = |error| {
            let parent = parent.display();
            Failure::new(format!(
                "{parent}: {error}; set TMPDIR to a directory for the recording, or use --keep"
            ))
        };
        let absolute = parent.canonicalize().map_err(fail)?;
        let pipe = WithoutSigpipe::new();
        for number in 0.. {
            let path = absolute.join(format!("latchwork-profile-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, keep: false, _pipe: pipe }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(fail(error)),
            }
        }
        unreachable!("the loop has no end")
    }

    /// Where the files are to be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if something was lost, and the disk is full: what was recorded would be taken for the whole.
    pub fn check_room(&self, lost: bool) -> Result<()> {
        if !lost || !is_full(&self.path) {
            return Ok(());
        }
        let (directory, hint) = match self.path.parent() {
            Some(parent) if !self.keep => (parent, "set TMPDIR to a directory with more room"),
            _ => (&*self.path, "--keep a directory with more room"),
        };
        Err(Failure::new(format!(
            "{}: the disk is full, so not all was recorded, and there is no result; {hint}",
            directory.display()
        )))
    }
}

/// Whether there was no room for threads, or for the locks that a thread used. Their lock calls are missing.
pub fn is_lossy(recordings: &[Recording]) -> bool {
    recordings.iter().flat_map(|recording| &recording.dropped).any(|(what, _)| LOSSY.contains(what))
}

/// Whether recordings cannot be read, or are [lossy](is_lossy).
pub fn is_lost(found: &Result<Vec<Recording>>) -> bool {
    found.as_ref().map_or(true, |recordings| is_lossy(recordings))
}

/// Names of [`Recording::dropped`] for that.
pub const LOSSY: [&str; 2] = ["threads", "tables"];

/// The recorder asks for so many bytes of the disk at once. With less, it gets no more.
const STEP: u64 = 64 << 10;

/// Whether the file system of this directory has no room for more of a recording.
pub fn is_full(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return false };
    // SAFETY: plain data, for which zeroes are a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated string and room for the answer.
    let known = unsafe { libc::statvfs(path.as_ptr(), &mut found) } == 0;
    // A file system without a limit, such as ramfs, says that it has no blocks.
    known && found.f_blocks > 0 && found.f_bavail.saturating_mul(found.f_frsize) < STEP
}

impl Drop for Recordings {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed stays; the report matters more.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Reads all recordings in a directory, or the one file that is named.
pub fn read(path: &Path) -> Result<Vec<Recording>> {
    let fail = |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", path.display()));
    if path.is_file() {
        return Ok(vec![Recording::read(path).map_err(|error| fail(&error))?]);
    }
    let mut recordings = Vec::new();
    let mut refused = None;
    for entry in fs::read_dir(path).map_err(|error| fail(&error))? {
        let file = entry.map_err(|error| fail(&error))?.path();
        match Recording::read(&file) {
            Ok(recording) => recordings.push(recording),
            // A program that was killed before it used a lock leaves an empty file.
            Err(Error::NotARecording) => {}
            Err(error) => refused = Some(Failure::new(format!("{}: {error}", file.display()))),
        }
    }
    match refused {
        Some(failure) if recordings.is_empty() => Err(failure),
        Some(failure) => {
            say(&format!("latchwork: warning: {}", failure.message));
            Ok(recordings)
        }
        None if recordings.is_empty() => Err(fail(
            &"there is no recording in it; only dynamically linked programs that use glibc are recorded, and none that \
              --only or --not leaves out",
        )),
        None => Ok(recordings),
    }
}
