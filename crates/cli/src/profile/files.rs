//! The files that a run recorded, one for each process.

use latchwork_console::failure::{Failure, Result};
use latchwork_console::output::say;
use latchwork_console::signals::WithoutSigpipe;
use latchwork_recording::reader::{Error, Recording};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
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
