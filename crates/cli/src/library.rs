//! Where the preload library is. The command carries the library, and writes it to a file that the dynamic linker can
//! load.

use crate::profile::files::{file_system, temporary_directory};
use clap::Args;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::user;
use latchwork_console::output;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use std::{env, io};

/// Names a library to use instead of the one that the command carries.
pub const OVERRIDE: &str = "LATCHWORK_PRELOAD_PATH";

static CARRIED: &[u8] = include_bytes!(env!("LATCHWORK_PRELOAD_BUILT"));
const FILE_NAME: &str = concat!("liblatchwork_preload-", env!("LATCHWORK_PRELOAD_HASH"), ".so");

/// Where a package of the system installs the library.
const INSTALLED: &str = "/usr/lib/latchwork/liblatchwork_preload.so";

/// Options of `latchwork library`.
#[derive(Args)]
pub struct Options {
    /// The file, which is replaced if it is there
    file: PathBuf,
}

/// Writes the library to a file, whatever is installed and wherever programs would find it.
pub fn write(options: &Options) -> Result<()> {
    let path = &options.file;
    // The file is replaced, not changed: programs may run with it.
    output::write_or_print(path, CARRIED)
        .map_err(|error| Failure::new(format!("{}: {}", path.display(), output::reason(&error))))
}

/// The library's path. Where no package of the system has installed the library, this function writes it first.
///
/// The name holds a hash of the content, so that two versions of the command do not get into each
/// other's way, and a program that still runs keeps its library.
pub fn path() -> Result<PathBuf> {
    if let Some(path) = env::var_os(OVERRIDE).filter(|path| !path.is_empty()) {
        return overridden(Path::new(&path));
    }
    if is_installed(Path::new(INSTALLED)) {
        return Ok(INSTALLED.into());
    }
    let mut tried = String::new();
    let temporary = temporary_directory();
    for directory in directories(&temporary) {
        // Programs that miss their temporary directory would find one that other users cannot use.
        let placed = match directory.parent() {
            Some(parent) if parent == temporary && !parent.is_dir() => {
                Err("there is no such temporary directory".into())
            }
            _ => place(&directory),
        };
        match placed {
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
    let path = path.canonicalize().map_err(|error| {
        fail(&format!(
            "{error}; name a copy of the library, or unset the variable to use the one that latchwork carries"
        ))
    })?;
    if let Some(why) = unsuitable(&path) {
        return Err(fail(&why));
    }
    if !is_ours(&fs::read(&path).map_err(|error| fail(&error))?) {
        return Err(fail(&"is no library of latchwork's, so the program would run under glibc's locks"));
    }
    Ok(path)
}

/// Whether a file with this content is a preload library of latchwork's, of whatever version: it has the name of the variable that
/// chooses the lock.
fn is_ours(content: &[u8]) -> bool {
    const NAME: &[u8] = b"LATCHWORK_MUTEX";
    content.windows(NAME.len()).any(|part| part == NAME)
}

fn directories(temporary: &Path) -> Vec<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let chosen = absolute("XDG_CACHE_HOME");
    let home = absolute("HOME").map(|home| home.join(".cache"));
    let user = user();
    // Only root's programs change their user while they run, and the new user cannot search root's home.
    let system = Some(PathBuf::from("/var/cache")).filter(|cache| user == 0 && cache.is_dir());
    let caches = if chosen.is_some() { [chosen, None] } else { [system, home] };
    let temporary = temporary.join(format!("latchwork-{user}"));
    caches.into_iter().flatten().map(|cache| cache.join("latchwork")).chain([temporary]).collect()
}

/// Makes sure that `directory` holds the library, that every user can read it there, and that no other user can
/// change it.
fn place(directory: &Path) -> std::result::Result<PathBuf, String> {
    let text = |error: io::Error| output::reason(&error);
    // Nothing is made where it would be refused.
    if let Some(above) = directory.ancestors().skip(1).find(|above| above.exists()) {
        check_above(&above.canonicalize().map_err(text)?.join("x"))?;
    }
    if let Some(parent) = directory.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(text)?;
    }
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(text(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(directory).map_err(text)?;
    if !found.is_dir() {
        return Err("not a directory".into());
    }
    check_ours(&found)?;
    // From here on a symbolic link above the directory is followed no more.
    let directory = directory.canonicalize().map_err(text)?;
    check_above(&directory)?;
    if let Some(why) = unsuitable(&directory) {
        return Err(why);
    }
    // Whatever the umask was when the directory was made.
    if found.mode() & 0o7777 != 0o755 {
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).map_err(text)?;
    }
    let path = directory.join(FILE_NAME);
    let lock = File::open(&directory).map_err(text)?;
    // Until the library is marked as used, no other command removes it. (Where the file system has no locks, that can go wrong in
    // the moment between the look at a library and its removal.)
    let _ = lock.lock_shared();
    if is_there(&path) {
        // Nor is anything removed where this is refused.
        let _ = mark_used(&path);
    } else {
        put(&directory, &path).map_err(text)?;
    }
    drop(lock);
    remove_unused(&directory);
    Ok(path)
}

/// How long the library of another version of the command stays after its last use. A program that runs, and may start others with the
/// library, counts as a use.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

fn mark_used(path: &Path) -> io::Result<()> {
    let now = SystemTime::now();
    File::open(path)?.set_times(FileTimes::new().set_accessed(now).set_modified(now))
}

/// Removes what other versions of the command have put into this directory, and no command and no program has used for long.
fn remove_unused(directory: &Path) {
    let Ok(lock) = File::open(directory) else { return };
    // Another command marks its library as used, or removes what is to be removed.
    if lock.try_lock().is_err() {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        // `put` has left those that begin with a dot, if it was killed.
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_old_version =
            name.trim_start_matches('.').starts_with(&format!("{NAME}-")) && name != FILE_NAME;
        let last_use = entry.metadata().ok().filter(fs::Metadata::is_file).map(|found| {
            let times = [found.modified(), found.accessed()];
            times.into_iter().flatten().max().unwrap_or(SystemTime::UNIX_EPOCH)
        });
        if !is_old_version || last_use.is_none_or(|last| last.elapsed().is_ok_and(|since| since < KEPT)) {
            continue;
        }
        let path = entry.path();
        // What cannot be removed or marked stays.
        let _ = if is_mapped(&path) { mark_used(&path) } else { fs::remove_file(&path) };
    }
}

/// Whether a process that this user can look into has mapped this file. It would go on without the file, but not a program that
/// it starts.
fn is_mapped(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("maps")).ok())
        .any(|maps| maps.split(|byte| *byte == b'\n').any(|line| line.ends_with(path)))
}

/// Whether the library is there, byte for byte as the command carries it, and only the system's user can change it. A
/// command and a library of different versions may be installed for a moment, or side by side.
fn is_installed(path: &Path) -> bool {
    let of_system = |found: fs::Metadata| found.uid() == 0 && found.mode() & 0o022 == 0;
    fs::metadata(path).is_ok_and(of_system)
        && path.parent().is_some_and(|parent| fs::metadata(parent).is_ok_and(of_system))
        && fs::read(path).is_ok_and(|content| content == CARRIED)
}

fn check_ours(found: &fs::Metadata) -> std::result::Result<(), String> {
    let user = user();
    if found.uid() != user {
        return Err(format!("belongs to user {}, not to {user}", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        return Err(format!("others may write to it (mode {:o})", found.mode() & 0o7777));
    }
    Ok(())
}

/// Makes sure that no other user can put another directory in the place of this one. The directories above it must
/// belong to this user or to the system. Where other users may write to one, it must be sticky, so that they cannot
/// rename what belongs to this user. A group counts as others, unless it is the user's own: it has the user's number and is the
/// process's.
fn check_above(directory: &Path) -> std::result::Result<(), String> {
    // SAFETY: it takes no pointer and cannot fail.
    let (user, group) = (user(), unsafe { libc::getegid() });
    // In a user namespace the system's user may have another number than 0.
    let system = fs::metadata("/").map_or(0, |root| root.uid());
    for above in directory.ancestors().skip(1) {
        let found = fs::metadata(above).map_err(|error| format!("{}: {error}", above.display()))?;
        let is_own = found.gid() == 0 || found.gid() == group && group == user;
        let by_group = found.mode() & 0o020 != 0 && !is_own;
        let by_all = found.mode() & 0o002 != 0;
        let sticky = found.mode() & libc::S_ISVTX != 0;
        if ![user, 0, system].contains(&found.uid()) || (by_group || by_all) && !sticky {
            let (owner, mode) = (found.uid(), found.mode() & 0o7777);
            return Err(format!(
                "others may replace it: {} has user {owner}, mode {mode:o}",
                above.display()
            ));
        }
    }
    Ok(())
}

/// Why the dynamic linker could not load a library from here, if it could not.
fn unsuitable(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    if let Some(byte) = bytes.iter().find(|byte| b" :$".contains(byte)) {
        return Some(format!("LD_PRELOAD cannot hold a path with {:?} in it", char::from(*byte)));
    }
    (file_system(path)?.f_flag & libc::ST_NOEXEC != 0).then(|| "mounted noexec".into())
}

/// Whether the file is ours and byte for byte what the command carries.
fn is_there(path: &Path) -> bool {
    let check = || -> io::Result<bool> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let found = file.metadata()?;
        let readable = found.mode() & 0o444 == 0o444;
        if !found.is_file() || !readable || check_ours(&found).is_err() || found.len() != CARRIED.len() as u64
        {
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
        // Whatever the umask is.
        file.set_permissions(Permissions::from_mode(0o644))?;
        fs::rename(&part, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// How the file name of a preload library of latchwork's begins.
pub const NAME: &str = "liblatchwork_preload";

/// What this process found in `LD_PRELOAD`, without libraries of latchwork's. Those are there if another command, or a service, has
/// started this process, and its choice of locks is not the one of the programs that this process starts. `None`: nothing.
pub fn preloaded_by_user() -> Option<OsString> {
    static FOUND: OnceLock<Option<OsString>> = OnceLock::new();
    FOUND.get_or_init(|| without_ours(&env::var_os("LD_PRELOAD")?)).clone()
}

/// The file that names the libraries of all programs of the system, if it names one of latchwork's.
pub fn preloaded_by_system() -> Option<&'static Path> {
    let file = Path::new("/etc/ld.so.preload");
    let content = fs::read(file).ok()?;
    entries(&content).any(is_our_file).then_some(file)
}

fn without_ours(before: &OsStr) -> Option<OsString> {
    let before = before.as_bytes();
    if !entries(before).any(is_our_file) {
        return (!before.is_empty()).then(|| OsStr::from_bytes(before).to_owned());
    }
    let others: Vec<&OsStr> =
        entries(before).filter(|entry| !is_our_file(entry)).map(OsStr::from_bytes).collect();
    (!others.is_empty()).then(|| others.join(OsStr::new(":")))
}

/// The entries of `LD_PRELOAD` or `/etc/ld.so.preload`.
fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| b": \t\n".contains(byte)).filter(|entry| !entry.is_empty())
}

fn is_our_file(entry: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(entry));
    let named = path.file_name().is_some_and(|name| name.as_bytes().starts_with(NAME.as_bytes()));
    named || path.is_file() && fs::read(path).is_ok_and(|content| is_ours(&content))
}

/// The value of `LD_PRELOAD` that puts `library` before what the user already preloads, and behind the runtime of a sanitizer.
///
/// libfaketime stays first as well. It shifts the deadlines of condition variables and hands them on to the next library: if
/// `library` came first, it would get deadlines of another clock.
pub fn preloading(sanitizer: Option<&str>, library: &Path, before: Option<&OsStr>) -> OsString {
    let before = before.unwrap_or_default();
    let entries = || entries(before.as_bytes());
    let first = || entries().filter(|entry| shifts_time(entry)).map(OsStr::from_bytes);
    let mut value: Vec<&OsStr> = sanitizer.map(OsStr::new).into_iter().chain(first()).collect();
    value.push(library.as_os_str());
    if first().next().is_some() {
        value.extend(entries().filter(|entry| !shifts_time(entry)).map(OsStr::from_bytes));
    } else if !before.is_empty() {
        value.push(before);
    }
    value.join(OsStr::new(":"))
}

/// Whether an entry of `LD_PRELOAD` is libfaketime (`libfaketimeMT.so.1`).
fn shifts_time(entry: &[u8]) -> bool {
    entry.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"libfaketime"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

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
    fn unused_libraries_of_other_versions_are_removed() {
        let directory = scratch("unused");
        let own = place(&directory).unwrap();
        let age = |path: &Path, days: u64| {
            let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
            let times = FileTimes::new().set_accessed(then).set_modified(then);
            File::open(path).unwrap().set_times(times).unwrap();
        };
        let make = |name: &str, days| {
            let path = directory.join(name);
            fs::write(&path, "library").unwrap();
            age(&path, days);
            path
        };
        let old = make("liblatchwork_preload-0123456789abcdef.so", 31);
        let part = make(".liblatchwork_preload-0123456789abcdef.so.77", 31);
        let recent = make("liblatchwork_preload-00000000deadbeef.so", 29);
        let foreign = make("notes", 400);
        let used = make("liblatchwork_preload-1111111111111111.so", 400);
        let mapped = File::open(&used).unwrap();
        // SAFETY: a new mapping of a file, which nothing reads.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), 1, libc::PROT_READ, libc::MAP_PRIVATE, mapped.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        [&own, &used].into_iter().for_each(|path| age(path, 400));
        place(&directory).unwrap();
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(at, 1) };
        assert!(!old.exists() && !part.exists());
        assert!(recent.exists() && foreign.exists());
        // Both count as used from now on.
        for path in [own, used] {
            assert!(fs::metadata(&path).unwrap().modified().unwrap().elapsed().unwrap() < KEPT, "{path:?}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_library_is_known_by_its_content() {
        assert!(is_ours(CARRIED));
        assert!(!is_ours(b"LATCHWORK_RWLOCK LLATCHWORK_MUTE"));
        assert!(is_ours(b"LLATCHWORK_MUTEX"));
    }

    #[test]
    fn an_installed_library_is_taken_if_it_is_the_commands() {
        let directory = scratch("installed");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("liblatchwork_preload.so");
        assert!(!is_installed(&path));
        fs::write(&path, CARRIED).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let root = user() == 0;
        assert_eq!(is_installed(&path), root, "only the files of root are the system's");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(!is_installed(&path));
        fs::write(&path, b"of another version").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(!is_installed(&path));
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
    fn every_user_can_read_it_and_nobody_else_replace_it() {
        let directory = scratch("modes");
        let cache = directory.join("latchwork");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        fs::create_dir_all(&cache).unwrap();
        // As earlier versions left them, or a umask that gives others nothing.
        fs::set_permissions(&cache, Permissions::from_mode(0o700)).unwrap();
        let path = place(&cache).unwrap();
        assert_eq!((mode(&cache), mode(&path)), (0o755, 0o644));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(mode(&place(&cache).unwrap()), 0o644);
        for (above, allowed) in [(0o777, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(&directory, Permissions::from_mode(above)).unwrap();
            let placed = place(&cache);
            assert_eq!(placed.is_ok(), allowed, "{above:o}: {placed:?}");
            assert!(allowed || placed.unwrap_err().contains("others may replace it"));
        }
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
    fn our_libraries_are_taken_out() {
        let without = |list: &str| without_ours(OsStr::new(list));
        assert_eq!(without(""), None);
        assert_eq!(without("/x/liblatchwork_preload-0123.so"), None);
        assert_eq!(without("b.so /x/liblatchwork_preload.so:c.so"), Some("b.so:c.so".into()));
        assert_eq!(without("b.so  c.so:"), Some("b.so  c.so:".into()));
        // Under another name.
        let directory = scratch("others");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("locks.so"), CARRIED).unwrap();
        assert_eq!(without(directory.join("locks.so").to_str().unwrap()), None);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_was_preloaded_stays() {
        let ours = Path::new("/a.so");
        assert_eq!(preloading(None, ours, None), "/a.so");
        assert_eq!(preloading(None, ours, Some(OsStr::new(""))), "/a.so");
        assert_eq!(preloading(None, ours, Some(OsStr::new("b.so c.so"))), "/a.so:b.so c.so");
        assert_eq!(preloading(Some("r.so"), ours, Some(OsStr::new("b.so"))), "r.so:/a.so:b.so");
        let shifted = Some(OsStr::new("b.so:/lib/libfaketimeMT.so.1 c.so"));
        assert_eq!(preloading(None, ours, shifted), "/lib/libfaketimeMT.so.1:/a.so:b.so:c.so");
        assert_eq!(preloading(Some("r.so"), ours, shifted), "r.so:/lib/libfaketimeMT.so.1:/a.so:b.so:c.so");
    }
}
