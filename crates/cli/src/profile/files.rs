//! The files that a run recorded, one for each process.

use super::units::count;
use crate::config::elf::hex;
use latchwork_console::ending::Temporary;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::user;
use latchwork_console::output::{say, shell_word};
use latchwork_console::signals::WithoutSigpipe;
use latchwork_recording::reader::{self, Error, Recording};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, process};

/// The directory of a run's recordings. Dropping it removes the directory, unless it is to be kept.
pub struct Recordings {
    path: PathBuf,
    /// The directory to remove, which is or has the one of the recordings, locked. `None`: it is to be kept.
    temporary: Option<(PathBuf, File, Temporary)>,
    /// The directory to be kept, locked.
    _claim: Option<File>,
    /// Dropped after the directory was removed.
    _pipe: WithoutSigpipe,
}

impl Recordings {
    /// Makes the directory: `keep`, or one that nobody else can look into.
    ///
    /// A server that root starts may go on as another user, and its processes make files, too. So root's directory is open to
    /// all users who know its name, as `/tmp` is: they can add files, but see and remove only their own. Its name is random, and
    /// it lies in a directory that they cannot list.
    pub fn new(keep: Option<&Path>) -> Result<Self> {
        match keep {
            Some(path) => Self::kept(path),
            None => Self::temporary("set TMPDIR to a directory for the recording, or use --keep"),
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
        // Another command may have found it empty as well, a moment ago.
        let claim = lock(&absolute).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                fail(&"another command keeps its recording there; name a directory of its own")
            }
            _ => fail(&error),
        })?;
        let mut entries = fs::read_dir(&absolute).map_err(|error| fail(&error))?;
        if entries.next().is_some() {
            return Err(fail(
                &"is not empty; name a new directory, because files of two runs would be taken for one",
            ));
        }
        Ok(Self { path: absolute, temporary: None, _claim: Some(claim), _pipe: WithoutSigpipe::new() })
    }

    /// Makes a directory for something else than a recording. `hint` is advice for the case that none can be made.
    pub fn temporary(hint: &str) -> Result<Self> {
        let parent = temporary_directory();
        let fail = |error| {
            let parent = parent.display();
            Failure::new(format!("{parent}: {error}; {hint}"))
        };
        let absolute = parent.canonicalize().map_err(fail)?;
        let pipe = WithoutSigpipe::new();
        check_descriptors()?;
        remove_abandoned(&absolute);
        for number in 0.. {
            let path = absolute.join(format!("{TEMPORARY}{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let lock = lock(&path).map_err(fail)?;
                    let ending = Temporary::new(&path);
                    let temporary = Some((path.clone(), lock, ending));
                    let mut made = Self { path, temporary, _claim: None, _pipe: pipe };
                    if user() == 0 {
                        made.path = open_to_all(&made.path).map_err(fail)?;
                    }
                    return Ok(made);
                }
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

    /// Keeps the recording, because `failure` has kept the command from writing what it makes of it. The failure's message then
    /// also says where the recording is, and that `command` goes on from there.
    pub fn keep(mut self, mut failure: Failure, command: &str) -> Failure {
        if let Some((temporary, _lock, _ending)) = self.temporary.take() {
            // Under its name of before, the next command would remove it.
            let inner = self.path.strip_prefix(&temporary).unwrap_or(Path::new("")).to_owned();
            let name = temporary.file_name().unwrap_or_default().to_string_lossy();
            let kept = temporary.with_file_name(name.replacen(TEMPORARY, KEPT, 1));
            let moved = !kept.exists() && fs::rename(&temporary, &kept).is_ok();
            let top = if moved { kept } else { temporary };
            self.path = if inner.as_os_str().is_empty() { top } else { top.join(inner) };
        }
        let path = shell_word(&self.path.to_string_lossy());
        failure.message += &format!("\nThe recording is kept. To go on: latchwork {command} {path} -o FILE");
        failure
    }

    /// Fails if something was lost, and the disk is full: what was recorded would be taken for the whole.
    pub fn check_room(&self, lost: bool) -> Result<()> {
        if !lost || !is_full(&self.path) {
            return Ok(());
        }
        let parent = self.temporary.as_ref().and_then(|(path, ..)| path.parent());
        let (directory, hint) = match parent {
            Some(parent) => (parent, "set TMPDIR to a directory with more room"),
            _ => (&*self.path, "--keep a directory with more room"),
        };
        Err(Failure::new(format!(
            "{}: the disk is full, so not all was recorded, and there is no result; {hint}",
            directory.display()
        )))
    }
}

/// So many files more are open at most while a directory is filled, read and removed.
const DESCRIPTORS: usize = 8;

/// Fails if so many files cannot be opened. With fewer the directory would stay: to remove it takes descriptors.
fn check_descriptors() -> Result<()> {
    let opened: io::Result<Vec<File>> = (0..DESCRIPTORS).map(|_| File::open("/")).collect();
    let failed = |error| {
        Failure::new(format!(
            "{error}: latchwork opens up to {DESCRIPTORS} files more. Raise the limit on open files (ulimit -n)"
        ))
    };
    opened.map(drop).map_err(failed)
}

/// `TMPDIR`, or `/tmp` where that is unset or empty.
pub fn temporary_directory() -> PathBuf {
    env::var_os("TMPDIR").filter(|path| !path.is_empty()).map_or_else(|| "/tmp".into(), PathBuf::from)
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
    // A file system without a limit, such as ramfs, says that it has no blocks.
    file_system(directory)
        .is_some_and(|found| found.f_blocks > 0 && found.f_bavail.saturating_mul(found.f_frsize) < STEP)
}

/// What the kernel says of the file system that holds `path`.
pub fn file_system(path: &Path) -> Option<libc::statvfs> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: plain data, for which zeroes are a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated string and room for the answer.
    (unsafe { libc::statvfs(path.as_ptr(), &mut found) } == 0).then_some(found)
}

impl Drop for Recordings {
    fn drop(&mut self) {
        if let Some((path, ..)) = &self.temporary {
            // What cannot be removed stays; the report matters more.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// How the name of a temporary directory begins. The number of its process follows, and a number of its own.
const TEMPORARY: &str = "latchwork-profile-";
/// The same of one that was kept, because its result could not be written.
const KEPT: &str = "latchwork-kept-";

/// Locks a directory until the file is dropped, or the process has ended.
fn lock(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
        // A file system without locks: nobody else gets one there either.
        Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// Removes the directories that killed commands (SIGKILL) of this user have left. That of a command that runs stays: it is
/// locked, and its process exists. (The lock is for processes that this one cannot see, in another container.)
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process =
            name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)?.split_once('-')?.0.parse().ok());
        let Some(process) = process.filter(|process: &i32| *process > 0) else { continue };
        // SAFETY: a system call without memory. Signal 0 is not sent.
        let exists = unsafe { libc::kill(process, 0) } == 0
            || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
        let is_own = entry.metadata().is_ok_and(|about| about.is_dir() && about.uid() == user());
        if is_own && !exists && lock(&entry.path()).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a directory in this one that all users can add files to if they know its name.
fn open_to_all(directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join(hex(&random::<16>()?));
    DirBuilder::new().mode(0o700).create(&path)?;
    // The umask applies to the making of a directory only.
    fs::set_permissions(&path, Permissions::from_mode(0o1733))?;
    fs::set_permissions(directory, Permissions::from_mode(0o711))?;
    Ok(path)
}

/// So many random bytes.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut random = [0; N];
    // SAFETY: room for so many bytes.
    let found = unsafe { libc::getrandom(random.as_mut_ptr().cast(), N, 0) };
    if found == N as isize { Ok(random) } else { Err(io::Error::last_os_error()) }
}

/// How many forked processes could not make a recording of their own. Their children are not counted.
pub fn lost(recordings: &[Recording]) -> u64 {
    recordings.iter().fold(0, |sum, recording| sum.saturating_add(recording.lost))
}

/// So many [`lost`] processes, and why, for a sentence.
pub fn lost_text(lost: u64) -> String {
    let (processes, it, has, its) = match lost {
        1 => ("a process".into(), "it", "has", "its"),
        _ => (format!("{} processes", count(lost)), "they", "have", "their"),
    };
    format!(
        "{processes} that the program forked, because {it} could not write a recording; perhaps {it} {has} become another \
         user, or {has} changed {its} root directory"
    )
}

/// The regular files in a directory. Other users may have put anything there.
pub fn regular(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Opens one of them to read. Between the listing and this call another user may have put a link or a FIFO in its place: no link is
/// followed, and no FIFO is waited for.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_to(OpenOptions::new().read(true), path)
}

fn open_regular_to(how: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = how.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is no regular file")) }
}

/// A path to an open directory, whatever its name leads to now.
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Reads one of them.
pub fn read_regular(path: &Path) -> std::result::Result<Recording, Error> {
    Recording::read_from(&open_regular(path)?)
}

/// Writes into the recordings of a directory when processes were gone that did not write their ends themselves. One that executed
/// another program ended when the next recording of its number began. A file that cannot be written ends with its last sign of
/// life.
pub fn note_gone(directory: &Path, gone: &HashMap<u32, u64>) {
    let files = regular(directory).unwrap_or_default();
    let found: Vec<_> = files.iter().filter_map(|file| Some((file, read_regular(file).ok()?))).collect();
    for (file, recording) in found.iter().filter(|(_, recording)| !recording.complete) {
        let later = |(_, other): &&(&PathBuf, Recording)| {
            other.pid == recording.pid && other.started > recording.started
        };
        let next = found.iter().filter(later).map(|(_, other)| other.started).min();
        let end = next.or_else(|| gone.get(&recording.pid).copied());
        if let Some(end) = end.filter(|end| *end > recording.ended) {
            let _ = open_regular_to(OpenOptions::new().write(true), file)
                .and_then(|file| reader::note_gone(&file, end));
        }
    }
}

/// Reads all recordings in a directory, or the one file that is named.
pub fn read(path: &Path) -> Result<Vec<Recording>> {
    let fail = |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", path.display()));
    if path.is_file() {
        return Ok(vec![Recording::read(path).map_err(|error| fail(&error))?]);
    }
    read_all(path).map_err(|failure| fail(&format!("there is no recording in it: {}", failure.message)))
}

/// The same of a directory that the user names. Nothing was run, so no message of a process stands above.
pub fn read_kept(path: &Path) -> Result<Vec<Recording>> {
    read(path).map_err(|failure| match failure.message.ends_with(BEGUN) {
        true => Failure::new(format!(
            "{}: there is no recording in it: its files are none (`latchwork profile --keep DIR` makes some), or of processes that \
             were killed at their start",
            path.display()
        )),
        false => failure,
    })
}

/// Reads all recordings in a directory, which may be gone when the user reads the failure.
pub fn read_all(directory: &Path) -> Result<Vec<Recording>> {
    let mut recordings = Vec::new();
    let mut refused = None;
    let mut is_begun = false;
    for file in regular(directory).map_err(|error| Failure::new(error.to_string()))? {
        match read_regular(&file) {
            Ok(recording) => recordings.push(recording),
            // A process that was killed at its start leaves an empty file, or one that could not map it.
            Err(Error::NotARecording) => is_begun = true,
            Err(error) => {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                refused = Some(Failure::new(format!("{name}: {error}")));
            }
        }
    }
    match refused {
        Some(failure) if recordings.is_empty() => Err(failure),
        Some(failure) => {
            say(&format!("latchwork: warning: {}", failure.message));
            Ok(recordings)
        }
        None if recordings.is_empty() && is_begun => Err(Failure::new(BEGUN)),
        None if recordings.is_empty() => Err(Failure::new(
            "only dynamically linked programs that use glibc are recorded, and none that \
             --only or --not leaves out",
        )),
        None => Ok(recordings),
    }
}

/// Why there is no recording, if there are files that are none.
pub const BEGUN: &str = "no process that began a recording could go on with it: a message above says why, or each was killed at its \
                         start";
