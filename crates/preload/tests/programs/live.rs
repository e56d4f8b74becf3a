//! Recording is switched on and off in a process that runs (`LATCHWORK_LIVE`). The observer here speaks the protocol of
//! `latchwork_recording::control`, as `latchwork profile --pid` does.

use crate::{Setting, WATCHDOG, compile, default_mutex, scratch};
use latchwork_recording::control::{self, Control, answer, request};
use latchwork_recording::layout::VERSION;
use latchwork_recording::reader::{Class, Kind, Recording};
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

/// One who has a process recorded.
struct Observer {
    pid: u32,
    number: u64,
    directory: PathBuf,
    control: *mut Control,
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Observer {
    fn new(pid: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let in_tmp = if fs::metadata("/dev/shm").is_ok() { 0 } else { control::IN_TMP };
        let number = u64::from(std::process::id()) << 20 | NEXT.fetch_add(1, Relaxed) | in_tmp;
        let mut path = String::new();
        control::directory(number, &mut path).unwrap();
        let directory = PathBuf::from(path);
        let _ = fs::remove_dir_all(&directory);
        DirBuilder::new().mode(0o700).create(&directory).unwrap();
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600);
        let mut file = file.open(directory.join(control::FILE)).unwrap();
        let mut bytes = vec![0; size_of::<Control>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Control, magic), &control::MAGIC.to_ne_bytes());
        put(offset_of!(Control, version), &VERSION.to_ne_bytes());
        put(offset_of!(Control, observer), &std::process::id().to_ne_bytes());
        file.write_all(&bytes).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (length, shared) = (size_of::<Control>(), libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that is as long.
        let control =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, shared, file.as_raw_fd(), 0) };
        assert_ne!(control, libc::MAP_FAILED);
        Observer { pid, number, directory, control: control.cast() }
    }

    fn control(&self) -> &Control {
        // SAFETY: it stays mapped; what both processes write is atomic.
        unsafe { &*self.control }
    }

    /// Sends the signal to some thread of the process.
    fn knock(&self) {
        let mut info = [0_u64; 16];
        info[0] = u64::from(control::SIGNAL as u32);
        info[1] = u64::from(libc::SI_QUEUE as u32);
        info[3] = self.number;
        // SAFETY: a structure with the length of the kernel's.
        unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, self.pid, control::SIGNAL, info.as_ptr()) };
    }

    /// Asks until there is an answer other than BUSY.
    fn ask(&self, what: u32) -> u32 {
        let begin = Instant::now();
        let control = self.control();
        loop {
            let question = control.question.load(Relaxed) + 1;
            // Longer than `control::AHEAD`: this observer does not move it on, and may be stopped for a while.
            control.deadline.store(now() + WATCHDOG.as_nanos() as u64, Relaxed);
            control.request.store(what, Relaxed);
            control.question.store(question, Release);
            let mut knocked = Instant::now();
            self.knock();
            while control.answered.load(Acquire) != question {
                assert!(begin.elapsed() < WATCHDOG, "process {} does not answer", self.pid);
                if knocked.elapsed() > Duration::from_millis(50) {
                    self.knock();
                    knocked = Instant::now();
                }
                thread::sleep(Duration::from_micros(50));
            }
            match control.answer.load(Relaxed) {
                answer::BUSY => assert!(begin.elapsed() < WATCHDOG, "process {} stays busy", self.pid),
                other => return other,
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn on(&self) {
        assert_eq!(self.ask(request::ON), answer::ON);
    }

    /// The recording of the process that was asked, which ends.
    fn off(&self) -> Recording {
        assert_eq!(self.ask(request::OFF), answer::OFF);
        let recording = self.read().expect("a recording");
        for file in fs::read_dir(&self.directory).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some() {
                fs::remove_file(file).unwrap();
            }
        }
        assert!(recording.complete);
        recording
    }

    /// Returns when a thread waits for a lock.
    fn until_one_waits(&self) {
        let begin = Instant::now();
        while !self.read().unwrap().threads.iter().any(|thread| thread.waiting.is_some()) {
            assert!(begin.elapsed() < WATCHDOG, "no thread waits");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn read(&self) -> Option<Recording> {
        let mut files = fs::read_dir(&self.directory).ok()?.map(|file| file.unwrap().path());
        let own = files.find(|file| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(&format!("{}.", self.pid)) && name.ends_with(".recording")
        });
        Recording::read(&own?).ok()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.control().deadline.store(0, Relaxed);
        // SAFETY: `new` has mapped it.
        unsafe { libc::munmap(self.control.cast(), size_of::<Control>()) };
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// `live.c` in one of its modes.
struct Program(Child);

impl Program {
    fn start(setting: &Setting, mode: &str) -> Option<Self> {
        Self::start_with(setting, mode, |command| command)
    }

    /// As [`start`](Self::start), with more settings.
    fn start_with(
        setting: &Setting,
        mode: &str,
        more: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Option<Self> {
        // Tests run at the same time, so each compiles its own.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("live-{}", NEXT.fetch_add(1, Relaxed));
        let program = compile("live.c", &name, &[])?;
        let mut command: Command = setting.command(&program);
        let child = command.arg(mode).env("LATCHWORK_LIVE", "1").env_remove("LATCHWORK_PROFILE");
        let child = more(child).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut program = Program(child);
        program.hear();
        Some(program)
    }

    fn observe(&self) -> Observer {
        Observer::new(self.0.id())
    }

    /// Reads one answer.
    fn hear(&mut self) {
        let mut answer = [0; 3];
        self.0.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ok\n");
    }

    /// Has it do these steps.
    fn steps(&mut self, steps: &str) {
        for step in steps.bytes() {
            self.0.stdin.as_mut().unwrap().write_all(&[step]).unwrap();
            self.hear();
        }
    }

    /// Ends it.
    fn end(mut self) {
        drop(self.0.stdin.take());
        let begin = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < WATCHDOG, "it hangs");
            thread::sleep(Duration::from_millis(2));
        }
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mutexes(recording: &Recording) -> impl Iterator<Item = &Class> {
    recording.classes.iter().filter(|class| class.kind == Kind::Mutex)
}

/// No figure can be longer than the recording.
fn check_lengths(recording: &Recording) {
    let whole = recording.ended - recording.started;
    for class in &recording.classes {
        let counters = &class.counters;
        assert!(counters.wait_max <= whole && counters.hold_max <= whole, "{whole} ns: {class:?}");
        assert!(
            counters.contended <= counters.acquisitions + counters.timeouts + counters.reads,
            "{class:?}"
        );
    }
    for thread in &recording.threads {
        assert!(thread.wait_nanos <= whole && thread.sleep_nanos <= whole, "{whole} ns: {thread:?}");
    }
}

/// A hundred times a second, while threads use all families of locks and the process forks.
#[test]
fn switching_under_torture() {
    for (mutex, rwlock) in [
        ("glibc", "glibc"),
        (default_mutex(), "bravo-2d-shfl-rw"),
        ("mcs", "pf-q"),
        (default_mutex(), "bravo-2d-glibc"),
    ] {
        let Some(program) = Program::start(&Setting::new(mutex, rwlock), "torture") else { return };
        let observer = program.observe();
        let mut calls = 0;
        for round in 0..60 {
            observer.on();
            // Sometimes for long enough to record something, and sometimes for as short as possible.
            thread::sleep(Duration::from_millis(if round % 4 == 0 { 0 } else { 7 }));
            let recording = observer.off();
            check_lengths(&recording);
            calls += recording.classes.iter().map(|class| class.counters.acquisitions).sum::<u64>();
            thread::sleep(Duration::from_millis(3));
        }
        assert!(calls > 0, "{mutex}, {rwlock}: nothing was recorded");
        program.end();
    }
}

/// Locks that are held, and threads that wait, when the recording is switched on and off.
#[test]
fn the_state_at_the_moment_of_switching() {
    for mutex in ["glibc", default_mutex(), "mcs"] {
        let Some(mut program) = Program::start(&Setting::new(mutex, "glibc"), "steps") else { return };
        let observer = program.observe();

        // Both mutexes are held when the recording begins, the recursive one twice.
        program.steps("lrr");
        observer.on();
        program.steps("swsuRRj");
        let recording = observer.off();
        check_lengths(&recording);
        // The waiting thread's acquisition alone was seen from its beginning.
        assert_eq!(mutexes(&recording).map(|class| class.counters.acquisitions).sum::<u64>(), 1, "{mutex}");
        let measured = mutexes(&recording).map(|class| class.counters.hold_samples).sum::<u64>();
        assert!(measured <= 1, "{mutex}: {measured} holds");

        // It is held when the recording ends, and when the next one begins.
        observer.on();
        program.steps("l");
        let recording = observer.off();
        check_lengths(&recording);
        assert_eq!(mutexes(&recording).map(|class| class.counters.hold_samples).sum::<u64>(), 0, "{mutex}");
        program.steps("s");
        observer.on();
        program.steps("ulu");
        let recording = observer.off();
        check_lengths(&recording);
        let totals = mutexes(&recording).map(|class| &class.counters);
        let totals: Vec<_> = totals.map(|counters| (counters.acquisitions, counters.hold_samples)).collect();
        assert_eq!(totals, [(1, 1)], "{mutex}");

        // A thread waits when the recording ends.
        program.steps("l");
        observer.on();
        program.steps("w");
        observer.until_one_waits();
        let recording = observer.off();
        assert!(recording.threads.iter().any(|thread| thread.waiting.is_some()));
        assert_eq!(mutexes(&recording).map(|class| class.counters.contended).sum::<u64>(), 0, "{mutex}");
        program.steps("uj");
        // Its wait began in another recording, and is in no later one.
        observer.on();
        program.steps("lu");
        let recording = observer.off();
        assert_eq!(mutexes(&recording).map(|class| class.counters.acquisitions).sum::<u64>(), 1, "{mutex}");
        program.end();
    }
}

/// The checks see the same of a program whether it is recorded or not.
#[test]
fn a_program_that_is_checked() {
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-q")] {
        // What the program does before, during and after the recording, and how many inversions that has.
        for (before, during, after, inversions) in [
            // No mistake, with locks held as the recording is switched, and threads that wait.
            ("lr", "rRRulwsujlrRupPaAbAaxsAjc", "ulu", 0),
            ("", "lrRurluR", "", 1),
            ("lrRu", "rluR", "", 1),
            ("", "rcuR", "lrRu", 1),
            ("", "lbAubluA", "", 1),
            ("", "laAualuA", "", 1),
            ("", "lpPupluP", "", 1),
            ("", "fgGFgfFG", "", 1),
            ("fg", "GF", "", 0),
            // A call that only tries is no half of an inversion.
            ("", "lrRurtuR", "", 0),
        ] {
            let what = format!("{mutex}, {rwlock}: {before}, {during}, {after}");
            let Some((mut program, reports)) = checked(mutex, rwlock) else { return };
            let observer = program.observe();
            program.steps(before);
            observer.on();
            program.steps(during);
            let recording = observer.off();
            program.steps(after);
            program.end();
            let reports = fs::read_to_string(reports).unwrap();
            assert_eq!(reports.matches("latchwork[").count(), inversions, "{what}: {reports}");
            assert_eq!(reports.matches("lock-order inversion").count(), inversions, "{what}: {reports}");
            let calls = mutexes(&recording).map(|class| class.counters.acquisitions).sum::<u64>();
            let locks = during.bytes().filter(|step| b"lcrtwfg".contains(step)).count();
            assert_eq!(calls, locks as u64, "{what}");
            let contended = mutexes(&recording).map(|class| class.counters.contended).sum::<u64>();
            assert_eq!(contended, during.matches('w').count() as u64, "{what}");
        }

        // A call that waits for ever for what its thread holds.
        let Some((mut program, reports)) = checked(mutex, rwlock) else { return };
        let observer = program.observe();
        observer.on();
        program.steps("l");
        program.0.stdin.as_mut().unwrap().write_all(b"l").unwrap();
        let begin = Instant::now();
        while !fs::read_to_string(&reports).unwrap().contains("self-deadlock") {
            assert!(begin.elapsed() < WATCHDOG, "{mutex}, {rwlock}: no report");
            thread::sleep(Duration::from_millis(1));
        }
        drop(program);
        let reports = fs::read_to_string(reports).unwrap();
        assert_eq!(reports.matches("self-deadlock").count(), 1, "{mutex}, {rwlock}: {reports}");
    }
}

/// A program in its steps that is checked, and the file that the reports go to.
fn checked(mutex: &'static str, rwlock: &'static str) -> Option<(Program, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let reports = scratch().join(format!("live-reports-{}", NEXT.fetch_add(1, Relaxed)));
    let file = File::create(&reports).unwrap();
    let program = Program::start_with(&Setting::new(mutex, rwlock), "steps", |command| {
        command.env("LATCHWORK_CHECK", "1").stderr(file)
    });
    program.map(|program| (program, reports))
}

/// A thread that has read in an earlier recording, and is idle now, is no reader of this one.
#[test]
fn readers_of_an_earlier_recording() {
    for rwlock in ["glibc", "bravo-2d-shfl-rw"] {
        let Some(mut program) = Program::start(&Setting::new("glibc", rwlock), "steps") else { return };
        let observer = program.observe();
        observer.on();
        program.steps("i");
        check_lengths(&observer.off());
        observer.on();
        // The main thread reads, and a writer waits for it.
        program.steps("ax");
        observer.until_one_waits();
        program.steps("Aj");
        let recording = observer.off();
        let most = recording.classes.iter().map(|class| class.counters.most_readers).max();
        assert_eq!(most, Some(1), "{rwlock}");
        program.end();
    }
}

#[test]
fn one_observer_at_a_time() {
    let Some(mut program) = Program::start(&Setting::new(default_mutex(), "glibc"), "steps") else { return };
    let (first, second) = (program.observe(), program.observe());
    first.on();
    assert_eq!(second.ask(request::ON), answer::TAKEN);
    assert_eq!(second.control().detail.load(Relaxed), std::process::id());
    // It cannot switch the other's recording off.
    assert_eq!(second.ask(request::OFF), answer::OFF);
    program.steps("lu");
    let recording = first.off();
    assert_eq!(mutexes(&recording).map(|class| class.counters.acquisitions).sum::<u64>(), 1);
    second.on();
    second.off();
    program.end();
}

/// An observer that was killed says nothing any more: the process notices, removes its files, and can be observed again.
#[test]
fn an_observer_that_is_gone() {
    let Some(mut program) = Program::start(&Setting::new(default_mutex(), "glibc"), "steps") else { return };
    let observer = program.observe();
    observer.on();
    observer.control().deadline.store(1, Relaxed);
    // The first acquisitions of a mutex look at the clock.
    program.steps("lulu");
    assert!(!observer.directory.exists());
    let next = program.observe();
    next.on();
    program.steps("lu");
    let recording = next.off();
    assert_eq!(mutexes(&recording).map(|class| class.counters.acquisitions).sum::<u64>(), 1);
    program.end();
}

/// A process that is killed leaves what it has recorded.
#[test]
fn the_process_is_killed() {
    let Some(mut program) = Program::start(&Setting::new("glibc", "glibc"), "steps") else { return };
    let observer = program.observe();
    observer.on();
    program.steps("lulu");
    program.0.kill().unwrap();
    program.0.wait().unwrap();
    let recording = observer.read().unwrap();
    assert!(!recording.complete);
    assert_eq!(mutexes(&recording).map(|class| class.counters.acquisitions).sum::<u64>(), 2);
}
