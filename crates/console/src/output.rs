//! Files and streams that results are written to.

use crate::failure::{Failure, Result};
use crate::replace;
use crate::signals;
use std::ffi::CString;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether standard input, output and error were closed when this process started.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Notes which standard streams are closed, and keeps other files from getting their numbers: what is printed would be written into
/// those. Programs that this process starts find the streams closed.
pub fn reserve_streams() {
    for (number, closed) in CLOSED.iter().enumerate() {
        // SAFETY: system calls with a number and a string that ends. The kernel gives the lowest number that is free.
        unsafe {
            if libc::fcntl(number as i32, libc::F_GETFD) < 0 {
                closed.store(true, Relaxed);
                libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
            }
        }
    }
}

/// Fails if standard output is closed, where [`reserve_streams`] has looked.
pub fn check_stdout() -> Result<()> {
    if CLOSED[1].load(Relaxed) { Err(Failure::usage("standard output is closed")) } else { Ok(()) }
}

/// Fails if two of the options `written` name one file, or one of them what is read: the second result would replace the first, or what
/// the user has. Both may name what is no regular file, such as `/dev/null`.
pub fn check_distinct<'a>(
    written: impl IntoIterator<Item = (&'static str, &'a Path)>,
    read: impl IntoIterator<Item = (&'static str, impl AsRef<Path>)>,
) -> Result<()> {
    let read = read.into_iter().filter_map(|(what, path)| Some((what, replace::file(path.as_ref())?)));
    let mut files: Vec<_> = read.collect();
    for (option, path) in written.into_iter().filter(|(_, path)| *path != Path::new("-")) {
        let Some(file) = replace::file(path) else { continue };
        if let Some((first, _)) = files.iter().find(|(_, other)| *other == file) {
            return Err(Failure::usage(format!("{first} and {option} both name {}", path.display())));
        }
        files.push((option, file));
    }
    Ok(())
}

/// Fails if one of the files `written` for results can certainly not be written, if two are standard output, or as
/// [`check_distinct`].
pub fn check_results<'a>(
    written: impl IntoIterator<Item = (&'static str, &'a Path)> + Clone,
    read: impl IntoIterator<Item = (&'static str, impl AsRef<Path>)>,
) -> Result<()> {
    let mut printed = None;
    for (option, path) in written.clone() {
        check(option, path)?;
        if path == Path::new("-")
            && let Some(other) = printed.replace(option)
        {
            return Err(Failure::usage(format!(
                "{other} and {option} cannot both be printed: name a file for one"
            )));
        }
    }
    check_distinct(written, read)
}

/// Fails if `path`, the value of `option`, can certainly not be written. The commands ask before they measure, so that
/// minutes of measuring do not end in "permission denied". `-` is standard output.
pub fn check(option: &str, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return check_stdout();
    }
    // That option has defaults.
    let other = if option == "--output" { "; name another file with -o FILE" } else { "" };
    let fail = |why: String| Err(Failure::usage(format!("{option} {}: {why}{other}", path.display())));
    if path.is_dir() {
        return fail("is a directory".into());
    }
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return fail("has a zero byte".into());
    };
    // SAFETY: a terminated string.
    if path.exists() && unsafe { libc::access(name.as_ptr(), libc::W_OK) } != 0 {
        return fail(format!("cannot be written: {}", io::Error::last_os_error()));
    }
    replace::check(path).or_else(|error| fail(format!("cannot be written: {error}")))
}

/// The same where standard output does not do: it is the program's, which runs meanwhile.
pub fn check_file(option: &str, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        let why = "it is not printed, because standard output is the program's; name a file (./- for one of this name)";
        return Err(Failure::usage(format!("{option} -: {why}")));
    }
    check(option, path)
}

/// Writes `text` to `path`, the value of `option`. If that fails, the file of before is still there.
pub fn write(option: &str, path: &Path, text: &str) -> Result<()> {
    write_with(option, path, |out| out.write_all(text.as_bytes()))
}

/// The same with what `content` writes.
pub fn write_with(
    option: &str,
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    replace::replace(path, content).map_err(|error| not_written(option, path, &error))
}

/// Writes `content` to `path`, or prints it if that is `-`.
pub fn write_or_print(path: &Path, content: &[u8]) -> io::Result<()> {
    if path == Path::new("-") {
        return print_all(content);
    }
    replace::replace(path, |out| out.write_all(content))
}

/// Prints `text`, and writes `json` to `path`, the value of `--json`, if there is one. If that is `-`, prints `json` in place of the
/// text.
pub fn report(
    path: Option<&Path>,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> String,
) -> Result<()> {
    if path == Some(Path::new("-")) {
        return print(&json());
    }
    print(&text())?;
    path.map_or(Ok(()), |path| write("--json", path, &json()))
}

/// The failure to write `path`, the value of `option`, where `-` is standard output.
pub fn not_written(option: &str, path: &Path, error: &io::Error) -> Failure {
    if path == Path::new("-") {
        return not_printed("standard output", error);
    }
    Failure::new(format!("{option} {}: {}", path.display(), reason(error)))
}

/// Why a file cannot be written, and what to do about it if the error does not say that.
pub fn reason(error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::EFBIG) {
        return format!("{error}; raise the limit on the size of files (ulimit -f)");
    }
    error.to_string()
}

/// A word of a command that the user may type: in quotation marks if the shell would read something else.
pub fn shell_word(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./=:,@%+".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Prints on standard output, all of it.
pub fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// The same with bytes that may be no text.
pub fn print_bytes(bytes: &[u8]) -> Result<()> {
    print_all(bytes).map_err(|error| not_printed("standard output", &error))
}

fn print_all(bytes: &[u8]) -> io::Result<()> {
    if CLOSED[1].load(Relaxed) {
        // The standard library takes what is written there for written.
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    // What the buffer keeps would be written when the process exits, where no one learns of an error.
    out.flush()
}

/// Prints a result on standard error.
pub fn print_to_stderr(text: &str) -> Result<()> {
    io::stderr().write_all(text.as_bytes()).map_err(|error| not_printed("standard error", &error))
}

/// Tells the user something in a line on standard error. If it cannot be written, the command goes on: unlike `eprintln!`,
/// this does not panic.
pub fn say(line: &str) {
    // One call, so that other processes print nothing into the line.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn not_printed(stream: &str, error: &io::Error) -> Failure {
    if error.kind() == ErrorKind::BrokenPipe && signals::sigpipe_waits() {
        return Failure::reader_gone();
    }
    Failure::new(format!("{stream}: {}", reason(error)))
}
