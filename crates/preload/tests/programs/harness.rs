//! How a program is compiled and run: the library, the locks and other settings that it runs under, and the watchdog.

use super::{build_library, recorded};
use latchwork::locks::mutex::Suspension;
use latchwork::registry::{self, Entry, Kind, PRELOADED};
use std::borrow::BorrowMut;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// How long a program may take: far longer than any takes on a busy machine.
pub(super) const WATCHDOG: Duration = Duration::from_secs(300);

pub(super) const INSTALL: &str = "apt install gcc g++ libc6-dev";

pub(super) fn manifest() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

pub(super) fn scratch() -> PathBuf {
    env!("CARGO_TARGET_TMPDIR").into()
}

/// The library as users get it. After the command was built, it is there already.
pub(super) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = build_library::Library {
            asks: &manifest(),
            version: env!("CARGO_PKG_VERSION"),
            target: env!("LATCHWORK_PRELOAD_TARGET"),
        };
        let target = scratch().with_file_name("preload-library");
        copy("in-place", &library.build(&scratch().join("library-package"), &target).0)
    })
}

/// Builds the library with its feature `out-of-place`. Without what is for speed, which takes long to compile.
pub(super) fn build_out_of_place() -> PathBuf {
    // The outer cargo holds the lock of the usual directory.
    let target = scratch().join("library");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--manifest-path"])
        .arg(manifest().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .args(["--features", "out-of-place"])
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    copy("out-of-place", &target.join("release/liblatchwork_preload.so"))
}

/// Copies a library that was built into the directory `name`.
pub(super) fn copy(name: &str, built: &Path) -> PathBuf {
    let own = scratch().join(name);
    fs::create_dir_all(&own).expect("the directory can be made");
    let copy = own.join("liblatchwork_preload.so");
    // Replaced and not rewritten: a program that a test before this one has left may still run with it.
    let _ = fs::remove_file(&copy);
    fs::copy(built, &copy).expect("the library was built");
    copy
}

/// Compiles `source`, with more arguments if need be. `None`: there is no compiler. In CI that fails the test.
pub(super) fn compile(source: &str, name: &str, more: &[&OsStr]) -> Option<PathBuf> {
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    let binary = scratch().join(name);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-pthread", "-o"]).arg(&binary);
    if source.ends_with(".cpp") {
        command.arg("-std=c++17");
    } else {
        command.arg("-std=gnu11");
    }
    command.arg(manifest().join("tests/programs").join(source)).args(more);
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{source}:\n{}", String::from_utf8_lossy(&output.stderr));
            Some(binary)
        }
        Err(error) if env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {compiler}: {error}. To run these tests: {INSTALL}");
            None
        }
        Err(error) => panic!("{compiler}: {error}. {INSTALL}"),
    }
}

/// Linker's options for a program with gaps between its segments.
pub(super) const GAPS: [&str; 2] = ["-Wl,-z,max-page-size=0x200000", "-Wl,-z,separate-code"];

/// The locks and libraries that a program runs under.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) mutex: &'static str,
    pub(super) rwlock: &'static str,
    /// Libraries to preload beside ours.
    pub(super) beside: Vec<PathBuf>,
    pub(super) stats: Option<String>,
    /// `LATCHWORK_LOCKS`.
    pub(super) locks: Option<String>,
    /// Whether the program's locks are recorded. The recording is thrown away.
    pub(super) profiled: bool,
    pub(super) library: PathBuf,
}

impl Setting {
    pub(super) fn new(mutex: &'static str, rwlock: &'static str) -> Self {
        // With this variable all programs are.
        let profiled = env::var_os("LATCHWORK_TEST_PROFILED").is_some();
        Setting {
            mutex,
            rwlock,
            beside: Vec::new(),
            stats: None,
            locks: None,
            profiled,
            library: library().into(),
        }
    }

    pub(super) fn run(&self, program: &Path) -> Output {
        let what = self.what(program);
        let mut command = self.command(program);
        if !self.profiled {
            return watch(command, &what);
        }
        let directory = recorded::directory();
        let output = watch(command.env("LATCHWORK_PROFILE", &directory), &what);
        let recorded = fs::read_dir(&directory).unwrap().count();
        fs::remove_dir_all(directory).unwrap();
        assert!(recorded > 0 || output.status.code() == Some(127), "{what}: no recording");
        output
    }

    pub(super) fn what(&self, program: &Path) -> String {
        let locks = self.locks.as_deref().unwrap_or("");
        format!("{} under mutex={} rwlock={} locks={locks}", program.display(), self.mutex, self.rwlock)
    }

    pub(super) fn command(&self, program: &Path) -> Command {
        let mut preload = self.library.as_os_str().to_owned();
        for library in &self.beside {
            preload.push(":");
            preload.push(library);
        }
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", preload);
        command.env("LATCHWORK_MUTEX", self.mutex).env("LATCHWORK_RWLOCK", self.rwlock);
        match &self.stats {
            Some(stats) => command.env("LATCHWORK_STATS", stats),
            None => command.env_remove("LATCHWORK_STATS"),
        };
        if let Some(locks) = &self.locks {
            command.env("LATCHWORK_LOCKS", locks);
        }
        command
    }

    /// Runs a program that prints "ok" and nothing else.
    pub(super) fn check(&self, program: &Path) -> Output {
        let output = self.run(program);
        let what = self.what(program);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {}\n{stderr}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{what}: stdout");
        if self.stats.is_none() {
            assert_eq!(stderr, "", "{what}: stderr");
        }
        output
    }
}

/// Runs the program to its end. The watchdog kills one that hangs, and the test fails.
pub(super) fn watch(mut command: impl BorrowMut<Command>, what: &str) -> Output {
    let command = command.borrow_mut();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    // A pipe holds 64 KiB, and what a program writes may be longer.
    let stdout = read(child.stdout.take().expect("a pipe"));
    let stderr = read(child.stderr.take().expect("a pipe"));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break status;
        }
        if begin.elapsed() > WATCHDOG {
            let stacks = Command::new("gdb")
                .args(["-q", "-batch", "-ex", "thread apply all bt", "-p", &child.id().to_string()])
                .output()
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .unwrap_or_default();
            child.kill().expect("our child");
            panic!("{what}: hangs\n{stacks}");
        }
        thread::sleep(Duration::from_millis(2));
    };
    let [stdout, stderr] = [stdout, stderr].map(|text| text.join().expect("it does not panic"));
    Output { status, stdout, stderr }
}

/// Reads a child's pipe to its end.
fn read(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).expect("our child's pipe");
        text
    })
}

/// Every lock of this kind that a program can run under.
pub(super) fn entries(kind: Kind) -> Vec<Entry> {
    let mut entries = Vec::new();
    registry::for_each(|entry| entries.push(entry));
    entries.extend(PRELOADED);
    entries.retain(|entry| entry.kind == kind);
    entries
}

pub(super) fn names(kind: Kind) -> Vec<&'static str> {
    entries(kind).into_iter().map(|entry| entry.info.name).collect()
}

pub(super) fn default_mutex() -> &'static str {
    if names(Kind::Mutex).contains(&"shfl") { "shfl" } else { "ttas" }
}

/// How many settings of a program run at once: most programs sleep most of the time.
pub(super) const AT_ONCE: usize = 4;

/// Calls `run` for each of the settings, `at_once` of them at a time.
pub(super) fn for_each_setting(settings: &[Setting], at_once: usize, run: impl Fn(&Setting) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(setting) = settings.get(next.fetch_add(1, Relaxed)) {
                    run(setting);
                }
            });
        }
    });
}

/// glibc alone, and every mutex.
pub(super) fn mutex_settings() -> Vec<Setting> {
    let ours = names(Kind::Mutex).into_iter().map(|mutex| Setting::new(mutex, "glibc"));
    [Setting::new("glibc", "glibc")].into_iter().chain(ours).collect()
}

/// glibc alone, and every rwlock with a mutex of ours and with glibc's.
pub(super) fn rwlock_settings() -> Vec<Setting> {
    let pair = |rwlock| [Setting::new(default_mutex(), rwlock), Setting::new("glibc", rwlock)];
    let ours = names(Kind::RwLock).into_iter().flat_map(pair);
    [Setting::new("glibc", "glibc")].into_iter().chain(ours).collect()
}

/// Runs a program under glibc and under every mutex.
pub(super) fn under_mutexes(program: &Path) {
    for_each_setting(&mutex_settings(), AT_ONCE, |setting| drop(setting.check(program)));
}

/// Runs a program under glibc and under one mutex: its results do not depend on the mutex.
pub(super) fn under_one_mutex(program: &Path) {
    Setting::new("glibc", "glibc").check(program);
    let mut setting = Setting::new(default_mutex(), "glibc");
    setting.check(program);
    setting.stats = Some("1".into());
    let stats = String::from_utf8(setting.check(program).stderr).unwrap();
    assert!(
        stats.contains("semaphore (semaphore):") && stats.contains("process-shared semaphore:"),
        "{stats}"
    );
}

/// Runs a program under glibc, and under every rwlock with a mutex of ours and with glibc's.
pub(super) fn under_rwlocks(program: &Path) {
    for_each_setting(&rwlock_settings(), AT_ONCE, |setting| drop(setting.check(program)));
}

/// Runs a program under glibc, and under the locks that tolerate a suspended waiter.
pub(super) fn under_tolerant_locks(program: &Path) {
    Setting::new("glibc", "glibc").check(program);
    for entry in entries(Kind::RwLock) {
        if entry.info.suspension == Suspension::Tolerates {
            Setting::new("shfl", entry.info.name).check(program);
        }
    }
}

/// What a program that installs a filter of system calls has written to stderr. `None`: this system lets it install none.
pub fn filtered(output: Output, what: &str) -> Option<String> {
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if stdout == "no filters\n" {
        eprintln!("SKIPPED: this system lets the test install no filter");
        return None;
    }
    assert!(output.status.success() && stdout == "ok\n", "{what}: {}\n{stderr}", output.status);
    Some(stderr)
}
