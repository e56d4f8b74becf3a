//! What the tests of the command share.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The command that was just built. Ctrl-C's signal ends it even if the tests run in the background of a shell that
/// ignores the signal.
pub fn latchwork() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchwork-lab"));
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
