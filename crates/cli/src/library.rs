//! Where the preload library is: the command carries it, and puts it where the dynamic linker can
//! load it.

use crate::failure::{Failure, Result};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, io};

/// Names a library to use instead of the one that the command carries.
pub const OVERRIDE: &str = "LATCHWORK_PRELOAD_PATH";

static CARRIED: &[u8] = include_bytes!(env!("LATCHWORK_PRELOAD_BUILT"));
const FILE_NAME: &str = concat!("liblatchwork_preload-", env!("LATCHWORK_PRELOAD_HASH"), ".so");

/// The library's path, put there first if need be.
///
/// The name holds a hash of the content, so that two versions of the command do not get into each
/// other's way, and a program that still runs keeps its library.
pub fn path() -> Result<PathBuf> {
    if let Some(path) = env::var_os(OVERRIDE).filter(|path| !path.is_empty()) {
        return overridden(Path::new(&path));
    }
    let mut tried = String::new();
    for directory in directories() {
        match place(&directory) {
            Ok(path) => return Ok(path),
            Err(why) => tried += &format!("\n  {}: {why}", directory.display()),
        }
    }
    Err(Failure::new(format!(
        "found no directory for the preload library:{tried}\nset XDG_CACHE_HOME to a directory of yours, or \
         {OVERRIDE} to a copy of the library"
    )))
}

fn overridden(path: &Path) -> Result<PathBuf> {
    let fail = |why: &dyn std::fmt::Display| Failure::new(format!("{OVERRIDE}={}: {why}", path.display()));
    let path = path.canonicalize().map_err(|error| fail(&error))?;
    if let Some(why) = unsuitable(&path) {
        return Err(fail(&why));
    }
    Ok(path)
}

fn directories() -> Vec<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    // SAFETY: cannot fail.
    let user = unsafe { libc::geteuid() };
    let private = env::temp_dir().join(format!("latchwork-{user}"));
    cache.map(|cache| cache.join("latchwork")).into_iter().chain([private]).collect()
}

/// Makes sure that `directory` holds the library, and that nobody else can change it there.
fn place(directory: &Path) -> std::result::Result<PathBuf, String> {
    let text = |error: io::Error| error.to_string();
    // 0700 for what is made here: in a temporary directory anybody could look in otherwise.
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(text)?;
    let found = fs::symlink_metadata(directory).map_err(text)?;
    if !found.is_dir() {
        return Err("not a directory".into());
    }
    check_ours(&found)?;
    if let Some(why) = unsuitable(directory) {
        return Err(why);
    }
    let path = directory.join(FILE_NAME);
    if !is_there(&path) {
        put(directory, &path).map_err(text)?;
    }
    Ok(path)
}

fn check_ours(found: &fs::Metadata) -> std::result::Result<(), String> {
    // SAFETY: cannot fail.
    let user = unsafe { libc::geteuid() };
    if found.uid() != user {
        return Err(format!("belongs to user {}, not to {user}", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        return Err(format!("others may write to it (mode {:o})", found.mode() & 0o7777));
    }
    Ok(())
}

/// Why the dynamic linker could not load a library from here, if it could not.
fn unsuitable(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    if let Some(byte) = bytes.iter().find(|byte| b" :$".contains(byte)) {
        return Some(format!("LD_PRELOAD cannot hold a path with {:?} in it", char::from(*byte)));
    }
    let name = CString::new(bytes).ok()?;
    // SAFETY: plain data, for which zeroes are a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated string and room for the answer.
    let result = unsafe { libc::statvfs(name.as_ptr(), &mut found) };
    (result == 0 && found.f_flag & libc::ST_NOEXEC != 0).then(|| "mounted noexec".into())
}

/// Whether the file is ours and byte for byte what the command carries.
fn is_there(path: &Path) -> bool {
    let check = || -> io::Result<bool> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() || check_ours(&found).is_err() || found.len() != CARRIED.len() as u64 {
            return Ok(false);
        }
        let mut content = Vec::with_capacity(CARRIED.len());
        file.read_to_end(&mut content)?;
        Ok(content == CARRIED)
    };
    check().unwrap_or(false)
}

fn put(directory: &Path, path: &Path) -> io::Result<()> {
    // Renamed into place, so that no other latchwork ever loads half of it.
    let part = directory.join(format!(".{FILE_NAME}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&part)?;
        file.write_all(CARRIED)?;
        fs::rename(&part, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// The value of `LD_PRELOAD` that puts `library` before what the user already preloads.
pub fn preloading(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("latchwork-library-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn is_put_once_and_put_again_when_changed() {
        let directory = scratch("put");
        let path = place(&directory).unwrap();
        assert_eq!(fs::read(&path).unwrap(), CARRIED);
        let made = fs::metadata(&path).unwrap().ino();
        assert_eq!(fs::metadata(place(&directory).unwrap()).unwrap().ino(), made);

        fs::write(&path, b"something else").unwrap();
        place(&directory).unwrap();
        assert_eq!(fs::read(&path).unwrap(), CARRIED);

        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        place(&directory).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let directory = scratch("open");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(place(&directory).unwrap_err().contains("others may write"));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_path_that_ld_preload_cannot_hold_is_refused() {
        let directory = scratch("with space");
        assert!(place(&directory).unwrap_err().contains("' '"));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_manual_says_which_glibc_the_library_needs() {
        let needed = format!("glibc {}", crate::program::elf::needed_glibc(CARRIED).unwrap());
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in ["README.md", "docs/cli.md"] {
            let text = fs::read_to_string(workspace.join(file)).unwrap();
            assert!(text.contains(&needed), "{file} does not say that the library needs {needed}");
        }
    }

    #[test]
    fn what_was_preloaded_stays() {
        let ours = Path::new("/a.so");
        assert_eq!(preloading(ours, None), "/a.so");
        assert_eq!(preloading(ours, Some(OsStr::new(""))), "/a.so");
        assert_eq!(preloading(ours, Some(OsStr::new("b.so c.so"))), "/a.so:b.so c.so");
    }
}
