//! The program to run: where it is, and whether a library can be preloaded into it.

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, Result};
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
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
            Ok(_) if is_executable(&path) => Ok(path),
            Ok(_) => Err(not_executable(&path)),
            Err(error) => Err(Failure { status: NOT_FOUND, message: format!("{shown}: {error}") }),
        };
    }
    let search = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut unusable = None;
    if !name.is_empty() {
        for directory in env::split_paths(&search) {
            let path = directory.join(name);
            if is_executable(&path) {
                return Ok(path);
            }
            if path.is_file() {
                unusable.get_or_insert(path);
            }
        }
    }
    if let Some(path) = unusable {
        return Err(not_executable(&path));
    }
    let hint =
        if Path::new(name).is_file() { format!(" (there is one here: ./{shown})") } else { String::new() };
    Err(Failure { status: NOT_FOUND, message: format!("no program {shown:?} in PATH{hint}") })
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

/// Why a library cannot be preloaded into this program, if there is a reason.
pub fn obstacle(path: &Path) -> Option<String> {
    privileged(path).or_else(|| obstacle_in_content(path, 0))
}

/// The dynamic linker ignores `LD_PRELOAD` when a program gains privileges by being started.
fn privileged(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    // SAFETY: cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    if found.mode() & libc::S_ISUID != 0 && found.uid() != user {
        return Some("it is setuid, so the dynamic linker preloads nothing into it".into());
    }
    if found.mode() & libc::S_ISGID != 0 && found.gid() != group {
        return Some("it is setgid, so the dynamic linker preloads nothing into it".into());
    }
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: terminated strings; a size of 0 asks only for the attribute's length.
    let capabilities =
        unsafe { libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    (capabilities > 0 && user != 0)
        .then(|| "it has file capabilities, so the dynamic linker preloads nothing into it".into())
}

fn obstacle_in_content(path: &Path, depth: u32) -> Option<String> {
    let file = File::open(path).ok()?;
    let mut start = [0; 256];
    let length = file.read_at(&mut start, 0).ok()?;
    let start = &start[..length];
    if let Some(line) = start.strip_prefix(b"#!") {
        let interpreter = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
        let interpreter = interpreter.split(|byte| b" \t".contains(byte)).next()?;
        let interpreter = Path::new(OsStr::from_bytes(interpreter));
        // Linux follows a handful of interpreters that are scripts themselves.
        let found = (depth < 4).then(|| obstacle_in_content(interpreter, depth + 1))??;
        return Some(format!("its interpreter {} is unsuitable: {found}", interpreter.display()));
    }
    elf_obstacle(&file, start)
}

fn elf_obstacle(file: &File, header: &[u8]) -> Option<String> {
    const CLASS_64: u8 = 2;
    const PT_INTERP: u32 = 3;
    if header.len() < 64 || !header.starts_with(b"\x7fELF") {
        return None;
    }
    let u16_at = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let own = own_machine()?;
    if header[4] != CLASS_64 || u16_at(18) != own {
        return Some("it is built for another kind of processor than the preload library".into());
    }
    let table = u64::from_ne_bytes(header[32..40].try_into().expect("8 bytes"));
    let (entry_size, entries) = (u16_at(54), u16_at(56));
    for index in 0..entries {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table + u64::from(index) * u64::from(entry_size)).ok()?;
        if u32::from_ne_bytes(entry[..4].try_into().expect("4 bytes")) != PT_INTERP {
            continue;
        }
        let field = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
        let mut interpreter = vec![0; usize::try_from(field(32)).ok()?.min(4096)];
        file.read_exact_at(&mut interpreter, field(8)).ok()?;
        let interpreter = String::from_utf8_lossy(&interpreter);
        return interpreter
            .contains("musl")
            .then(|| "it uses the musl C library; the preload library needs glibc".into());
    }
    Some("it is statically linked, so there is no dynamic linker to preload anything".into())
}

/// `e_machine` of this process.
fn own_machine() -> Option<u16> {
    let mut header = [0; 20];
    File::open("/proc/self/exe").ok()?.read_exact_at(&mut header, 0).ok()?;
    Some(u16::from_ne_bytes([header[18], header[19]]))
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

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        assert_eq!(obstacle(Path::new("/bin/sh")), None);
        assert_eq!(obstacle(&env::current_exe().unwrap()), None);
    }

    #[test]
    fn a_program_without_an_interpreter_is_static() {
        // This program's header alone, with its table of segments emptied.
        let mut header = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        header[56..58].copy_from_slice(&[0, 0]);
        let path = env::temp_dir().join(format!("latchwork-static-{}", std::process::id()));
        fs::write(&path, &header).unwrap();
        assert!(obstacle(&path).unwrap().contains("statically linked"));
        header[18] ^= 1;
        fs::write(&path, &header).unwrap();
        assert!(obstacle(&path).unwrap().contains("processor"));
        let script = path.with_extension("sh");
        fs::write(&script, format!("#! {} -x\n", path.display())).unwrap();
        assert!(obstacle(&script).unwrap().contains("interpreter"));
        fs::remove_file(path).unwrap();
        fs::remove_file(script).unwrap();
    }
}
