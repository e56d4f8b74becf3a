//! Whether a process of the program has used a lock of latchwork's, or, under `latchwork check`, a lock that is checked.
//!
//! The preload library says so in a file of two bytes, which the variable `LATCHWORK_USED` names: see `state::used` in
//! `crates/preload`. Without that, the verdict could be about a lock that no process had.

use crate::library;
use crate::profile::files::Recordings;
use crate::run::Programs;
use crate::unseen::OTHER_LOCKS;
use latchwork_console::failure::{Failure, Result};
use std::fs::{File, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The file.
pub struct Used {
    path: PathBuf,
    file: File,
    /// Dropped last: it has the file.
    _directory: Recordings,
}

impl Used {
    /// Makes it.
    pub fn new() -> Result<Self> {
        let directory = Recordings::temporary("set TMPDIR to a directory for a small file")?;
        let path = directory.path().join("used");
        let make = || {
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            // A server that root starts may go on as another user.
            fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            Ok(file)
        };
        let file = make().map_err(|error| failure(&path, &error))?;
        let used = Self { path, file, _directory: directory };
        used.clear()?;
        Ok(used)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Forgets what was before the next run.
    pub fn clear(&self) -> Result<()> {
        self.file.write_all_at(&[0, 0], 0).map_err(|error| failure(&self.path, &error))
    }

    /// Why no process has used a lock since then, if none has.
    pub fn why_not(&self, programs: &Programs) -> Result<Option<String>> {
        let without = without(programs);
        Ok(match self.marks()? {
            [_, true] => None,
            [false, false] => Some(format!("no process of the program got the lock: each {without}")),
            [true, false] => Some(format!(
                "no process of the program used the lock: those that got it call no pthread functions of this kind \
                 ({OTHER_LOCKS}); or one that does {without}"
            )),
        })
    }

    /// Why `latchwork check` has seen no lock call, if it has seen none.
    pub fn why_nothing_was_checked(&self, programs: &Programs) -> Result<Option<String>> {
        let [_, is_used] = self.marks()?;
        Ok((!is_used).then(|| {
            format!(
                "no process of the program called a lock that can be checked ({OTHER_LOCKS}); or one that does {}",
                without(programs)
            )
        }))
    }

    /// Whether a process had the library, and whether one used a lock.
    fn marks(&self) -> Result<[bool; 2]> {
        let mut marks = [0; 2];
        self.file.read_exact_at(&mut marks, 0).map_err(|error| failure(&self.path, &error))?;
        Ok(marks.map(|mark| mark != 0))
    }
}

/// Why a process has no library.
fn without(programs: &Programs) -> String {
    let left_out = if programs.is_all() { "" } else { "is left out by --only or --not, " };
    let other_version = if env::var_os(library::OVERRIDE).is_some_and(|path| !path.is_empty()) {
        format!("; or {} names the library of another version", library::OVERRIDE)
    } else {
        String::new()
    };
    format!(
        "is statically linked, is built for another processor, {left_out}has other privileges, or was executed without the \
         environment{other_version}"
    )
}

fn failure(path: &Path, error: &Error) -> Failure {
    if error.kind() == ErrorKind::StorageFull {
        let why = "the disk is full; set TMPDIR to a directory with more room";
        return Failure::new(format!("{}: {why}", path.display()));
    }
    Failure::new(format!("{}: {error}", path.display()))
}
