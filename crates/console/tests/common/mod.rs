//! What the tests of the commands share. A test binary includes this file by its path, and says in `COMMAND` which command
//! it tests.

// Not every test binary uses all of this.
#![allow(dead_code)]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command that was just built. Ctrl-C ends it, also where the tests run in the background of a
/// shell that ignores it.
pub fn latchwork() -> Command {
    let mut command = Command::new(crate::COMMAND);
    let heed = || {
        // SAFETY: may be called between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the closure calls nothing else.
    unsafe { command.pre_exec(heed) };
    command
}

/// A run of it.
pub fn output(arguments: &[&str]) -> Output {
    latchwork().args(arguments).output().expect("the command runs")
}

/// Its stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Its stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An empty directory of the test's own.
pub fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the directory can be made");
    path
}

/// A C program, or whatever else the arguments tell the compiler to make. The workspace needs a C compiler anyway.
pub fn compile(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    compile_with("cc", directory, name, source, arguments).expect("there is a C compiler")
}

/// The same by another compiler. `None`: it is not there.
pub fn compile_with(
    compiler: &str,
    directory: &Path,
    name: &str,
    source: &str,
    arguments: &[&str],
) -> Option<PathBuf> {
    let (file, made) = (directory.join(format!("{name}.c")), directory.join(name));
    std::fs::write(&file, source).expect("the directory can be written");
    let mut command = Command::new(compiler);
    let output = command.arg(&file).args(arguments).arg("-o").arg(&made).output().ok()?;
    assert!(output.status.success(), "{compiler} {name}: {}", stderr(&output));
    Some(made)
}

/// How many running processes have `mark` in their command line.
pub fn alive(mark: &str) -> usize {
    processes(|command_line| command_line.contains(mark))
}

/// How many running processes have such a command line, in which words end in zero bytes.
pub fn processes(such: impl Fn(&str) -> bool) -> usize {
    let is_such = |entry: std::fs::DirEntry| {
        let text = std::fs::read(entry.path().join("cmdline"));
        text.is_ok_and(|text| such(&String::from_utf8_lossy(&text)))
    };
    std::fs::read_dir("/proc").unwrap().flatten().map(is_such).filter(|is_such| *is_such).count()
}
