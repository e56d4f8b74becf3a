//! What the tests of the commands share. A test binary includes this file by its path, and says in `COMMAND` which command
//! it tests.

// Not every test binary uses all of this.
#![allow(dead_code)]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

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

/// The same for programs that lock nothing themselves, such as shells: each process that it starts locks a mutex. `compare`
/// refuses to judge a lock that no process uses.
pub fn latchwork_of_locking_programs() -> Command {
    let mut command = latchwork();
    command.env("LD_PRELOAD", locking_library());
    command
}

/// A library that locks a mutex in its constructor.
pub fn locking_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = "#include <pthread.h>\n\
            static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n\
            __attribute__((constructor)) static void use(void) {\n\
                pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); }";
        // A static value is not dropped: the library stays for all tests.
        static DIRECTORY: OnceLock<Scratch> = OnceLock::new();
        compile(
            DIRECTORY.get_or_init(|| scratch("locking")),
            "locking.so",
            source,
            &["-shared", "-fPIC", "-pthread"],
        )
    })
}

/// A run of it.
pub fn output(arguments: &[&str]) -> Output {
    latchwork().args(arguments).output().expect("the command runs")
}

/// The output of a command that must not hang.
pub fn in_time(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
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
pub fn scratch(name: &str) -> Scratch {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the directory can be made");
    Scratch(path)
}

/// A directory that goes when the test ends. After a failure it stays.
pub struct Scratch(PathBuf);

impl std::ops::Deref for Scratch {
    type Target = PathBuf;
    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

impl<T: ?Sized> AsRef<T> for Scratch
where
    PathBuf: AsRef<T>,
{
    fn as_ref(&self) -> &T {
        self.0.as_ref()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
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

/// Starts the command under a limit (`libc::RLIMIT_STACK`, ...).
pub fn limit(command: &mut Command, what: libc::__rlimit_resource_t, most: u64) {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: may be called between fork and exec; the structure is valid.
        unsafe { libc::setrlimit(what, &limit) };
        Ok(())
    };
    // SAFETY: the closure calls nothing else.
    unsafe { command.pre_exec(limit) };
}

/// A number of seconds to sleep for, which no other process sleeps for: `kind` tells the tests of a process apart. It is so
/// long that it stands in no other command line by chance.
pub fn mark(kind: u32) -> String {
    format!("{kind}0{:08}", std::process::id())
}

/// Calls `attempt` with 0.5, 2, 8, 32 and 128 seconds until it returns something. What must happen before a time is over
/// may take that long on a busy machine.
pub fn with_growing_time<T>(attempt: impl FnMut(&str) -> Option<T>) -> T {
    ["0.5", "2", "8", "32", "128"].into_iter().find_map(attempt).expect("it happens in time")
}

/// For programs in C and C++: `until_asleep(T)` waits until thread T of the program sleeps (for a minute at most). A thread
/// that is on its way into a lock call may take any time on a busy machine.
pub const UNTIL_ASLEEP: &str = r#"
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <stdio.h>
    #include <string.h>
    #include <unistd.h>
    static void until_asleep(int thread) {
        char path[64], text[256];
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
        for (int ms = 0; ms < 60000; ms++) {
            int file = open(path, O_RDONLY);
            long length = read(file, text, sizeof text - 1);
            close(file);
            text[length > 0 ? length : 0] = 0;
            const char *state = strrchr(text, ')');
            if (state && state[2] == 'S') return;
            usleep(1000);
        }
    }
"#;

/// Waits until a command has blocked SIGINT, which it reads itself from then on. One that comes before ends it.
pub fn until_it_watches_for_ctrl_c(command: &Child) {
    let blocked = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", command.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("the kernel says it");
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (libc::SIGINT - 1) & 1 == 1
    };
    let begin = Instant::now();
    while !blocked() {
        assert!(begin.elapsed() < Duration::from_secs(300), "the command does not watch for signals");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a signal to a child that was not yet waited for.
pub fn send(child: &Child, signal: i32) {
    // SAFETY: a system call with plain arguments.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Waits until so many running processes have `mark` in their command line. `command` has to run meanwhile.
pub fn until_alive(command: &mut Child, mark: &str, count: usize) {
    let begin = Instant::now();
    while alive(mark) < count {
        assert!(command.try_wait().unwrap().is_none(), "the command ended by itself");
        assert!(begin.elapsed() < Duration::from_secs(300), "{mark:?} does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
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
