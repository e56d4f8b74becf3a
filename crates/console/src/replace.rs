//! Writing a result file without losing the file of before.
//!
//! The new content is written into a file beside the old one, which then gets the old one's name. If the disk is full, or the
//! process is killed, the old file is there, whole.
//!
//! Three kinds of files are written in place:
//!
//! - what is no regular file (a pipe, a terminal);
//! - a file that is named by a link in `/proc` (`/dev/stdout`), because another process has that file open;
//! - a file that cannot be replaced, because this user may make no file in its directory, or may not give the new file the old one's owner.

use crate::ending::Temporary;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// Symbolic links that are followed one after the other. Linux follows as many.
const LINKS: u32 = 40;

/// What a path stands for.
enum Target {
    /// The file at this path, which is no link, or none yet.
    File(PathBuf, Option<Metadata>),
    /// Something else than a regular file, or an open file of another process.
    Other,
}

/// Replaces the file at `path` by what `content` writes. If that fails, the file of before is still there.
pub(crate) fn replace(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let (target, before) = match target(path)? {
        Target::File(target, before) => (target, before),
        Target::Other => return fill(OpenOptions::new().write(true).truncate(true).open(path)?, content),
    };
    let fragment = match Fragment::beside(&target) {
        Ok(fragment) => Some(fragment),
        Err(error) if before.is_some() && is_forbidden(&error) => None,
        Err(error) => return Err(error),
    };
    let Some(fragment) = fragment.filter(|fragment| fragment.belongs_as(before.as_ref())) else {
        return fill(OpenOptions::new().write(true).truncate(true).open(&target)?, content);
    };
    fill(&fragment.file, content)?;
    match fs::rename(&fragment.path, &target) {
        // Of another user in a directory like /tmp, or mounted.
        Err(error) if before.is_some() && is_forbidden(&error) => {
            let to = OpenOptions::new().write(true).truncate(true).open(&target)?;
            io::copy(&mut File::open(&fragment.path)?, &mut &to).map(|_| ())
        }
        renamed => renamed,
    }
}

/// Fails if the file cannot be written: asks the file system, which knows more than the file's mode says.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match target(path)? {
        Target::File(target, None) => Fragment::beside(&target).map(|_| ()),
        _ => Ok(()),
    }
}

/// The regular file that this path stands for, whether it is there or not.
pub(crate) fn file(path: &Path) -> Option<PathBuf> {
    match target(path) {
        Ok(Target::File(file, _)) => Some(file),
        _ => None,
    }
}

/// Whether this user may not do that here, but may perhaps write the file that is there.
fn is_forbidden(error: &io::Error) -> bool {
    use ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

fn fill(file: impl Write, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    content(&mut out)?;
    out.flush()
}

fn target(path: &Path) -> io::Result<Target> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(ErrorKind::IsADirectory.into());
    }
    let mut path = path.to_owned();
    for _ in 0..=LINKS {
        let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = parent.canonicalize()?;
        let whole = parent.join(name);
        match fs::symlink_metadata(&whole) {
            Ok(_) if parent.starts_with("/proc") => return Ok(Target::Other),
            Ok(found) if found.is_symlink() => path = parent.join(fs::read_link(&whole)?),
            Ok(found) if found.is_file() => return Ok(Target::File(whole, Some(found))),
            Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(_) => return Ok(Target::Other),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Err(_) if parent.is_dir() => return Ok(Target::File(whole, None)),
            Err(_) => return Err(ErrorKind::NotADirectory.into()),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// A file that is not complete. Dropping it removes it, unless it was renamed.
struct Fragment {
    path: PathBuf,
    file: File,
    /// Dropped after the file was removed.
    _temporary: Temporary,
}

impl Fragment {
    fn beside(target: &Path) -> io::Result<Self> {
        for number in 0.. {
            let name = format!(".latchwork-{}-{number}", std::process::id());
            let path = target.with_file_name(name);
            let made = OpenOptions::new().write(true).create_new(true).open(&path);
            match made {
                Ok(file) => return Ok(Self { _temporary: Temporary::new(&path), path, file }),
                // Of a process with the same number, on another machine or in a container.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop has no end")
    }

    /// Gives the file the owner and mode of the one of before. `false`: that is refused.
    fn belongs_as(&self, before: Option<&Metadata>) -> bool {
        let Some(before) = before else { return true };
        let Ok(own) = self.file.metadata() else { return false };
        let is_same = (own.uid(), own.gid()) == (before.uid(), before.gid());
        (is_same || fchown(&self.file, Some(before.uid()), Some(before.gid())).is_ok())
            && self.file.set_permissions(before.permissions()).is_ok()
    }
}

impl Drop for Fragment {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("latchwork-replace-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    fn write(path: &Path, text: &str) -> io::Result<()> {
        replace(path, |out| out.write_all(text.as_bytes()))
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string());
        let mut names: Vec<_> = names.map(Result::unwrap).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failure_leaves_the_file_of_before() {
        let directory = scratch("failure");
        let file = directory.join("file");
        let fails = |out: &mut dyn Write| {
            out.write_all(&[b'x'; 100_000])?;
            Err(ErrorKind::StorageFull.into())
        };
        assert!(replace(&file, fails).is_err());
        assert_eq!(names(&directory), [""; 0]);
        write(&file, "before").unwrap();
        assert!(replace(&file, fails).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        assert_eq!(names(&directory), ["file"]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn mode_and_links_stay() {
        let directory = scratch("links");
        let (file, link, dangling) =
            (directory.join("file"), directory.join("link"), directory.join("dangling"));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        symlink("new", &dangling).unwrap();
        write(&link, "after").unwrap();
        write(&dangling, "made").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
        assert!(link.is_symlink() && dangling.is_symlink());
        assert_eq!(fs::read_to_string(directory.join("new")).unwrap(), "made");
        assert_eq!(names(&directory), ["dangling", "file", "link", "new"]);
        symlink("circle", directory.join("circle")).unwrap();
        assert!(write(&directory.join("circle"), "").is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_no_regular_file_is_written_where_it_is() {
        assert_eq!(write(Path::new("/dev/full"), "text").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        write(Path::new("/dev/null"), "text").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().mode() & libc::S_IFMT == libc::S_IFCHR);
        let directory = scratch("open");
        let file = File::create(directory.join("file")).unwrap();
        use std::os::fd::AsRawFd;
        write(Path::new(&format!("/dev/fd/{}", file.as_raw_fd())), "text").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_cannot_be_made_is_found_out_beforehand() {
        let directory = scratch("check");
        let file = directory.join("file");
        fs::write(&file, "").unwrap();
        for path in [file.join("x"), directory.clone(), directory.join("new/"), "/proc/x".into()] {
            assert!(check(&path).is_err(), "{}", path.display());
        }
        check(&directory.join("new")).unwrap();
        check(&file).unwrap();
        assert_eq!(names(&directory), ["file"]);
        fs::remove_dir_all(directory).unwrap();
    }
}
