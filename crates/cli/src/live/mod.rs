//! A live process, and the sessions in which it is recorded: `latchwork profile --pid` and `latchwork top`.
//!
//! [`process`] looks at the process in `/proc`, and sends it the signal. [`stuck`] finds threads that wait for each other
//! already. [`latchwork_recording::control`] says what the two processes tell each other.

pub mod process;
mod signals;
pub mod stuck;

use crate::profile::files::{self, path_of};
use latchwork::machine::{Clock, Machine, Native};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::user;
use latchwork_console::signals::WithoutSigpipe;
use latchwork_recording::control::{self, AHEAD, Control, answer, request};
use latchwork_recording::layout::VERSION;
use latchwork_recording::reader::Recording;
use process::Process;
pub use signals::Signals;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Error, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use stuck::Stuck;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take if it is stopped (SIGSTOP) when the recording ends: what it has recorded can be read all the same.
const STOPPED: Duration = Duration::from_secs(1);
/// How long after its end an observer may keep others out.
const TAKEN_OVER: Duration = Duration::from_nanos(AHEAD).saturating_add(Duration::from_secs(5));
/// How often the deadline is moved on. The process allows [`AHEAD`].
const HEARTBEAT: Duration = Duration::from_millis(500);

/// See [`Session::take_ended`].
const CHILDREN: usize = 16;

/// The directory in which a process records for this one. Dropping it ends the recording and removes the directory.
pub struct Session {
    process: Process,
    /// The directory, and the one that it lies in. They may lie in another root directory, that of the process, which is out
    /// of reach when the process has ended: so they stay open.
    directory: File,
    parent: File,
    name: String,
    number: u64,
    control: Arc<Mapped>,
    heart: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    recording: bool,
    /// Whether the process has not answered when it was asked to stop.
    silent: bool,
    /// What is known of the waits that began before.
    stuck: Stuck,
    /// Dropped after the directory was removed.
    _pipe: WithoutSigpipe,
}

impl Session {
    /// Finds the process, and makes a directory for its recordings. Nothing is recorded yet.
    pub fn new(pid: u32) -> Result<Self> {
        let process = Process::find(pid)?;
        let stuck = Stuck::look(&process);
        let pipe = WithoutSigpipe::new();
        let mut last = None;
        for (parent, flag) in [("dev/shm", 0), ("tmp", control::IN_TMP)] {
            let random = files::random().map_err(|error| Failure::new(format!("getrandom: {error}")))?;
            let number = u64::from_ne_bytes(random) & !control::IN_TMP | flag;
            let parent = process.root().join(parent);
            remove_abandoned(&parent);
            match Self::make(&process, &parent, number) {
                Ok((parent, directory, name, control)) => {
                    return Ok(Self {
                        process,
                        directory,
                        parent,
                        name,
                        number,
                        control: Arc::new(control),
                        heart: None,
                        stop: Arc::default(),
                        recording: false,
                        silent: false,
                        stuck,
                        _pipe: pipe,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        let error = last.expect("one was tried");
        Err(Failure::new(format!("cannot make a directory in /dev/shm or /tmp of process {pid}: {error}")))
    }

    fn make(process: &Process, parent: &Path, number: u64) -> std::io::Result<(File, File, String, Mapped)> {
        let parent = File::open(parent)?;
        let mut path = String::new();
        control::directory(number, &mut path).expect("a String");
        let name = path.rsplit('/').next().expect("one part").to_owned();
        let path = path_of(&parent).join(&name);
        DirBuilder::new().mode(0o700).create(&path)?;
        let finish = || {
            let directory = File::open(&path)?;
            // For `remove_abandoned`. Where the file system has no locks, it removes nothing.
            let _ = directory.try_lock();
            let control = Mapped::create(&path_of(&directory).join(control::FILE), process)?;
            if process.is_foreign() {
                chown(&path, Some(process.user), Some(process.group))?;
            }
            Ok((directory, control))
        };
        match finish() {
            Ok((directory, control)) => Ok((parent, directory, name, control)),
            Err(error) => {
                // Not `remove_dir_all`, which needs a descriptor: there may be none.
                let _ = fs::remove_file(path.join(control::FILE));
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// What the process is called.
    pub fn program(&self) -> &str {
        &self.process.name
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// How many of its threads sleep in a futex.
    pub fn asleep(&self) -> usize {
        self.process.asleep()
    }

    /// What is known of the waits that began before this.
    pub fn stuck(&self) -> &Stuck {
        &self.stuck
    }

    /// A descriptor that is readable once the process has ended.
    pub fn descriptor(&self) -> i32 {
        self.process.descriptor()
    }

    /// Whether the process has been asked to record.
    pub fn is_on(&self) -> bool {
        self.recording
    }

    /// Has the process record.
    pub fn on(&mut self) -> Result<()> {
        if self.recording {
            return Ok(());
        }
        self.control.move_deadline();
        self.beat()?;
        let begin = Instant::now();
        loop {
            match self.ask(request::ON)? {
                answer::ON => {
                    self.recording = true;
                    return Ok(());
                }
                // An observer that was killed: its recording ends at its deadline, and the process takes another one.
                answer::TAKEN if begin.elapsed() < TAKEN_OVER && !self.lives_observer() => {
                    thread::sleep(Duration::from_millis(100));
                }
                other => return Err(self.refused(other)),
            }
        }
    }

    /// Whether the observer that has the process is there. One in another container may not seem to be; it moves its deadline on.
    fn lives_observer(&self) -> bool {
        match self.control.get().detail.load(Relaxed) {
            0 => true,
            observer => process::lives(observer),
        }
    }

    /// Has the process stop. The recording stays until [`clear`](Self::clear), or until this is dropped.
    pub fn off(&mut self) -> Result<()> {
        if !self.recording {
            return Ok(());
        }
        self.recording = false;
        self.silent = false;
        let asked = if self.has_ended() { None } else { Some(self.ask(request::OFF)) };
        match asked {
            // BUSY: it has stopped. A thread that does not run keeps the file mapped.
            Some(Ok(answer::OFF | answer::BUSY)) => Ok(()),
            Some(Ok(other)) => Err(self.refused(other)),
            Some(Err(failure)) if !self.has_ended() => {
                self.recording = true;
                self.silent = true;
                Err(failure)
            }
            // It has ended, before or meanwhile.
            _ => {
                self.note_gone();
                Ok(())
            }
        }
    }

    /// Writes the end of a process that was killed into its recording.
    fn note_gone(&self) {
        files::note_gone(&path_of(&self.directory), &HashMap::from([(self.pid(), now())]));
    }

    /// What has been recorded until now, of the process and of those that it forked meanwhile.
    pub fn read(&self) -> Result<Vec<Recording>> {
        let pid = self.pid();
        let mut found = files::read(&path_of(&self.directory));
        if files::is_lost(&found) && files::is_full(&path_of(&self.directory)) {
            let parent = if self.number & control::IN_TMP != 0 { "/tmp" } else { "/dev/shm" };
            return Err(Failure::new(format!(
                "{parent} of process {pid} is full, so not all was recorded, and there is no result"
            )));
        }
        if let Ok(found) = &mut found
            && self.recording
            && !self.has_ended()
        {
            let (now, is_contained) = (now(), self.process.is_contained());
            for one in found.iter_mut().filter(|one| !one.complete) {
                // A process has another number in a container of its own.
                if !one.forked || is_contained || process::lives(one.pid) {
                    one.ends_at(now);
                } else {
                    // By a signal or _exit, so that it has written no end.
                    let threads = one.threads.iter_mut().filter(|thread| thread.lives);
                    threads.for_each(|thread| (thread.lives, thread.waiting) = (false, None));
                }
            }
        }
        found.map_err(|failure| {
            if self.control.is_over() {
                return Failure::new(format!(
                    "process {pid} has ended its recording, because latchwork did not run for {} s",
                    AHEAD / 1_000_000_000
                ));
            }
            Failure::new(format!("process {pid} left no recording: {}", failure.message))
        })
    }

    /// Removes the recordings of forked processes that have ended, but for the last [`CHILDREN`], and returns them. Each takes half a
    /// MiB of memory, and a server may fork one for each connection.
    pub fn take_ended(&self) -> Vec<Recording> {
        let files = files::regular(&path_of(&self.directory)).unwrap_or_default();
        if files.len() <= 2 * CHILDREN {
            return Vec::new();
        }
        let is_contained = self.process.is_contained();
        let ended = |file: PathBuf| {
            let recording = files::read_regular(&file).ok()?;
            let gone = || !is_contained && !process::lives(recording.pid);
            (recording.forked && (recording.complete || gone())).then_some((recording, file))
        };
        let mut ended: Vec<_> = files.into_iter().filter_map(ended).collect();
        ended.sort_by_key(|(recording, _)| recording.started);
        ended.truncate(ended.len().saturating_sub(CHILDREN));
        let remove = |(recording, file): (Recording, PathBuf)| {
            let _ = fs::remove_file(file);
            recording
        };
        ended.into_iter().map(remove).collect()
    }

    /// Copies the recordings to a directory.
    pub fn copy_to(&self, to: &Path) -> Result<()> {
        let copy = || {
            // The directory belongs to the user of the process, and this may be root.
            for path in files::regular(&path_of(&self.directory))? {
                let name = path.file_name().unwrap_or_default();
                if Path::new(name).extension().is_some_and(|extension| extension == "recording") {
                    copy_sparse(&files::open_regular(&path)?, &to.join(name))?;
                }
            }
            Ok(())
        };
        copy().map_err(|error: Error| Failure::new(format!("{}: {error}", to.display())))
    }

    /// Has the process record if it has executed another program since it was asked to, which ended that recording. Returns whether it
    /// has. What was recorded before stays if `keep` says so.
    pub fn follow(&mut self, keep: bool) -> Result<bool> {
        let is_mapped = || self.process.maps().is_none_or(|maps| maps.contains(&self.name));
        if !self.recording || is_mapped() || self.has_ended() {
            return Ok(false);
        }
        self.note_gone();
        if !keep {
            self.clear();
        }
        self.recording = false;
        self.process.rename();
        self.stuck = Stuck::default();
        match self.on() {
            Ok(()) => Ok(true),
            // It has ended meanwhile, which the caller notices.
            Err(_) if self.has_ended() => Ok(false),
            Err(failure) => Err(Failure::new(format!(
                "process {} has executed another program, which is not recorded: {}",
                self.pid(),
                failure.message
            ))),
        }
    }

    /// Removes the recordings.
    pub fn clear(&self) {
        for entry in fs::read_dir(path_of(&self.directory)).into_iter().flatten().flatten() {
            if entry.file_name() != control::FILE {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Knocks until the process answers.
    fn ask(&self, what: u32) -> Result<u32> {
        let begin = Instant::now();
        let control = self.control.get();
        let mut question = control.question.load(Relaxed).wrapping_add(1);
        control.request.store(what, Relaxed);
        control.question.store(question, Release); // pairs with the process's load
        let mut knocked: Option<Instant> = None;
        loop {
            if control.answered.load(Acquire) == question {
                let answer = control.answer.load(Relaxed);
                if answer != answer::BUSY || begin.elapsed() > PATIENCE {
                    return Ok(answer);
                }
                // A thread still writes to the last recording.
                thread::sleep(Duration::from_millis(2));
                question = question.wrapping_add(1);
                control.question.store(question, Release);
                knocked = None;
            }
            if self.has_ended() {
                return Err(Failure::new(format!("process {} has ended", self.pid())));
            }
            let is_stopped = || what == request::OFF && self.process.is_stopped();
            if begin.elapsed() > PATIENCE || begin.elapsed() > STOPPED && is_stopped() {
                return Err(self.process.silent());
            }
            if knocked.is_none_or(|when| when.elapsed() > Duration::from_millis(50))
                && self.process.knock(self.number, begin.elapsed())?
            {
                knocked = Some(Instant::now());
            }
            thread::sleep(Duration::from_micros(if knocked.is_some() { 100 } else { 2000 }));
        }
    }

    fn refused(&self, answer: u32) -> Failure {
        let (pid, control) = (self.pid(), self.control.get());
        let detail = control.detail.load(Relaxed);
        Failure::new(match answer {
            answer::TAKEN if detail != 0 => format!(
                "process {pid} is recorded already, by process {detail}; end that one first, or wait until it has ended"
            ),
            answer::TAKEN => format!("process {pid} is recorded from its start, by latchwork profile"),
            answer::VERSION => format!(
                "process {pid} was started by another version of latchwork: its recordings have version {detail}, and this \
                 is for version {VERSION}"
            ),
            answer::BUSY => {
                format!("process {pid} cannot begin: a thread still writes to the last recording")
            }
            _ => {
                let why: Vec<u8> =
                    control.why.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0).collect();
                format!("process {pid} cannot record: {}", String::from_utf8_lossy(&why))
            }
        })
    }

    /// Moves the deadline on from now on.
    fn beat(&mut self) -> Result<()> {
        if self.heart.is_some() {
            return Ok(());
        }
        let (control, stop) = (Arc::clone(&self.control), Arc::clone(&self.stop));
        let heart = thread::Builder::new().spawn(move || {
            while !stop.load(Relaxed) {
                thread::park_timeout(HEARTBEAT);
                control.move_deadline();
            }
        });
        let fail = |error| Failure::new(format!("cannot make a thread: {error} (ulimit -u)"));
        self.heart = Some(heart.map_err(fail)?);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The process ends the recording by itself if it does not answer.
        if !self.silent {
            let _ = self.off();
        }
        self.stop.store(true, Relaxed);
        if let Some(heart) = self.heart.take() {
            heart.thread().unpark();
            let _ = heart.join();
        }
        // Forked children stop when they next look.
        self.control.get().deadline.store(0, Relaxed);
        let _ = fs::remove_dir_all(path_of(&self.parent).join(&self.name));
    }
}

/// Copies a file, which is mostly holes, with its holes.
fn copy_sparse(from: &File, to: &Path) -> std::io::Result<()> {
    let to = File::create(to)?;
    to.set_len(from.metadata()?.len())?;
    let seek = |at: i64, what| {
        // SAFETY: a system call on an open file.
        let found = unsafe { libc::lseek(from.as_raw_fd(), at, what) };
        if found >= 0 { Ok(found) } else { Err(Error::last_os_error()) }
    };
    let mut end = 0;
    loop {
        let start = match seek(end, libc::SEEK_DATA) {
            Ok(start) => start,
            // There is no more.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
            Err(error) => return Err(error),
        };
        end = seek(start, libc::SEEK_HOLE)?;
        let mut piece = vec![0; (end - start) as usize];
        from.read_exact_at(&mut piece, start as u64)?;
        to.write_all_at(&piece, start as u64)?;
    }
}

/// Removes the directories of killed observers whose processes were killed, too: a process that lives removes the directory itself.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(control::DIRECTORY)) {
            let path = entry.path();
            if is_abandoned(&path).unwrap_or(false) {
                // That of another user stays.
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

/// Whether no observer has locked the directory, and its process has no time left for recording.
fn is_abandoned(path: &Path) -> std::io::Result<bool> {
    let directory =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)?;
    // Root's command makes the directory for the user of the process. Any user can make one, and put anything into it.
    if user() != 0 && directory.metadata()?.uid() != user() {
        return Ok(false);
    }
    if directory.try_lock().is_err() {
        return Ok(false);
    }
    // Without a control file, the observer is just making the directory.
    let control = files::open_regular(&path_of(&directory).join(control::FILE))?;
    let mut bytes = [0; 8];
    control.read_exact_at(&mut bytes, std::mem::offset_of!(Control, deadline) as u64)?;
    Ok(u64::from_ne_bytes(bytes) < now())
}

/// The mapped control file.
struct Mapped(*mut Control);

// SAFETY: what both processes write is atomic; this process does not write the rest once the file is made.
unsafe impl Send for Mapped {}
// SAFETY: several threads may read the mapping at once, and write to its atomics.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn create(path: &Path, process: &Process) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let mut bytes = vec![0; size_of::<Control>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(std::mem::offset_of!(Control, magic), &control::MAGIC.to_ne_bytes());
        put(std::mem::offset_of!(Control, version), &VERSION.to_ne_bytes());
        put(std::mem::offset_of!(Control, observer), &std::process::id().to_ne_bytes());
        file.write_all(&bytes)?;
        if process.is_foreign() {
            chown(path, Some(process.user), Some(process.group))?;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is as long.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes.len(),
                protection,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(&file),
                0,
            )
        };
        if mapped == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(Self(mapped.cast())) }
    }

    fn get(&self) -> &Control {
        // SAFETY: it is mapped as long as this lives, and page-aligned. The file keeps its length: nobody else may write to it
        // but the process, which has no reason to.
        unsafe { &*self.0 }
    }

    fn move_deadline(&self) {
        self.get().deadline.store(now() + AHEAD, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.get().deadline.load(Relaxed) < now()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `create` has mapped it.
        unsafe { libc::munmap(self.0.cast(), size_of::<Control>()) };
    }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub fn now() -> u64 {
    Native::now(Clock::Monotonic)
}
