//! Statistics, for `LATCHWORK_STATS`: what the report says, and where it goes.
//!
//! The families count in [`counters`]. This prints everything when the process exits: to stderr or, with
//! `LATCHWORK_STATS=json:PATH`, as one line of JSON appended to PATH.

use crate::state::choice::{self, Choice};
use crate::state::counters::{self, FAMILIES, Family, REASONS};
use crate::state::kernel;
use crate::state::line::Line;
use crate::state::stderr;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::count::Counts;
use latchwork::machine::{Deadline, Machine, Native};
use latchwork::registry::{Visitor, visit};
use libc::c_int;

/// The families, in the order of the report, and how it names them.
const NAMES: [(Family, &str); FAMILIES] = [
    (Family::Mutex, "mutex"),
    (Family::RwLock, "rwlock"),
    (Family::Cond, "condvar"),
    (Family::Spin, "spin"),
    (Family::Sem, "semaphore"),
];

/// The reasons, in the order of [`Reason`](counters::Reason): the name in JSON, and what the text calls the objects.
const REASON_NAMES: [(&str, &str); REASONS] = [
    ("mutex_robust", "robust mutexes"),
    ("mutex_priority", "priority-inheriting or -protected mutexes"),
    ("mutex_shared", "process-shared mutexes"),
    ("rwlock_shared", "process-shared rwlocks"),
    ("condvar_shared", "process-shared condition variables"),
    ("semaphore_shared", "process-shared semaphores"),
    ("spin_shared", "process-shared spin locks"),
    ("rwlock_prefers_writers", "rwlocks that ask for preference of writers"),
    ("mutex_choice", "mutexes that the choice of locks leaves to it"),
    ("rwlock_choice", "rwlocks that the choice of locks leaves to it"),
];

/// Whether the report goes to `PATH`, as JSON, or to stderr, as text.
static TO_FILE: AtomicBool = AtomicBool::new(false);
/// The file's name, which ends in zeroes. It is a copy, because servers write their process title over the environment. The
/// kernel refuses a name that fills `PATH_MAX`, so a longer one may be cut off here.
static PATH: [AtomicU8; libc::PATH_MAX as usize + 1] = [const { AtomicU8::new(0) }; _];
/// The open file, or -1. It stays open from the start, because a process may give up the right to open it: it becomes
/// another user, changes its root directory, or installs a filter of system calls.
static KEPT: AtomicI32 = AtomicI32::new(-1);
/// The device and inode of the file that `KEPT` stands for.
static KEPT_FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The name of a lock in use, as pointer and length.
struct Name(AtomicPtr<u8>, AtomicUsize);
/// Those of mutexes, rwlocks and spin locks.
static SERVES: [Name; 3] = [const { Name(AtomicPtr::new(core::ptr::null_mut()), AtomicUsize::new(0)) }; 3];

impl Name {
    fn set(&self, name: &'static str) {
        self.0.store(name.as_ptr().cast_mut(), Relaxed);
        self.1.store(name.len(), Relaxed);
    }

    fn get(&self) -> Option<&'static str> {
        let start = self.0.load(Relaxed);
        if start.is_null() {
            return None;
        }
        // SAFETY: `set` stored the pointer and the length of one `&'static str`, before there was another thread.
        Some(unsafe {
            core::str::from_utf8_unchecked(core::slice::from_raw_parts(start, self.1.load(Relaxed)))
        })
    }
}

/// The lock called `name` serves mutexes, rwlocks or spin locks.
pub(crate) fn name(family: Family, name: &'static str) {
    match family {
        Family::RwLock => SERVES[1].set(name),
        Family::Spin => SERVES[2].set(name),
        _ => SERVES[0].set(name),
    }
}

/// The lock that serves a family.
fn served_by(family: Family) -> Option<&'static str> {
    match family {
        Family::Mutex => SERVES[0].get(),
        Family::RwLock => SERVES[1].get(),
        Family::Spin => SERVES[2].get(),
        Family::Sem => SERVES[0].get().map(|_| "semaphore"),
        Family::Cond => SERVES[0].get().map(|_| "futex"),
    }
}

/// Takes the value of `LATCHWORK_STATS`; returns whether to count.
pub(crate) fn configure(value: Option<&'static [u8]>) -> bool {
    let Some(value) = value.filter(|value| *value != b"0") else { return false };
    if let Some(path) = value.strip_prefix(b"json:") {
        for (to, from) in PATH[..PATH.len() - 1].iter().zip(path) {
            to.store(*from, Relaxed);
        }
        TO_FILE.store(true, Relaxed);
        keep();
    }
    counters::set(true);
    true
}

fn open() -> c_int {
    // Where others may write, the path may be their symbolic link; and `exit` must not wait for ever for the reader of a pipe.
    let safe = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: `PATH` has the layout of bytes, no thread writes it after `configure`, and its last byte is zero.
    unsafe {
        kernel::open(PATH.as_ptr().cast(), libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | safe, 0o666)
    }
}

/// Opens the file for `KEPT`.
fn keep() {
    let file = open();
    let kept = kernel::duplicate(file, stderr::KEPT_FROM);
    kernel::close(file);
    if let Some(found) = identity(kept) {
        KEPT_FILE.iter().zip(found).for_each(|(to, from)| to.store(from, Relaxed));
        KEPT.store(kept, Relaxed);
    }
}

/// `KEPT`, if the program has neither closed it nor removed its file.
fn kept() -> Option<c_int> {
    let kept = KEPT.load(Relaxed);
    (identity(kept)? == [0, 1].map(|part| KEPT_FILE[part].load(Relaxed))).then_some(kept)
}

/// The device and inode of an open file that still has a name.
fn identity(file: c_int) -> Option<[u64; 2]> {
    kernel::status(file).filter(|found| found.st_nlink > 0).as_ref().map(stderr::identity)
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = report;

extern "C" fn report() {
    // A process that forks and exits in the child prints once for each of the two processes, but none prints twice.
    if !counters::set(false) {
        return;
    }
    if !TO_FILE.load(Relaxed) {
        stderr::write(text().as_bytes());
        return;
    }
    let written = match kept() {
        Some(kept) => append(&json(), kept),
        None => {
            let file = open();
            if file < 0 {
                // SAFETY: the C library says where the calling thread's `errno` is.
                return match unsafe { *libc::__errno_location() } {
                    libc::ELOOP => complain(format_args!("it is a symbolic link; name the file itself")),
                    error => complain(format_args!(
                        "error {error}; name a file that the program's user may write to"
                    )),
                };
            }
            let written = append(&json(), file);
            kernel::close(file);
            written
        }
    };
    match written {
        Ok(()) => {}
        Err(libc::ENOSPC | libc::EDQUOT) => complain(format_args!("there is no room for them")),
        Err(libc::EFBIG) => complain(format_args!("the limit on the size of files (ulimit -f) is too low")),
        Err(libc::EPIPE | libc::EAGAIN) => complain(format_args!("no process reads what is written there")),
        Err(error) => complain(format_args!("error {error}")),
    }
}

/// Writes the line whole or not at all, if the file is a regular one: a part of it would become one line with that of the next
/// process.
fn append(line: &Line, file: c_int) -> Result<(), c_int> {
    let is_regular = |found: &libc::stat| found.st_mode & libc::S_IFMT == libc::S_IFREG;
    let Some(_turn) = kernel::status(file).filter(is_regular).and_then(|_| Turn::take(file)) else {
        return line.write_to(file);
    };
    let before = kernel::status(file).map(|found| found.st_size);
    let written = line.write_to(file);
    if let (Err(_), Some(before)) = (written, before) {
        kernel::cut(file, before);
    }
    written
}

/// The right to append to the file, which processes have one after the other: a lock of the kernel's on its first byte. (The kernel's
/// other kinds of locks belong to the open file, which a forked child has in common with its parent.)
struct Turn(c_int);

impl Turn {
    /// How long a process waits for its turn: nanoseconds. The process that has it may be stopped.
    const PATIENCE: u64 = 1_000_000_000;
    /// Nanoseconds between two attempts.
    const PAUSE: u64 = 100_000;

    /// `None`: it takes too long, or the file system has no such locks.
    fn take(file: c_int) -> Option<Self> {
        let deadline = Deadline::after::<Native>(Self::PATIENCE);
        loop {
            match kernel::lock_file(file, libc::F_WRLCK as i16) {
                Ok(()) => return Some(Turn(file)),
                Err(libc::EAGAIN | libc::EACCES) if !deadline.passed::<Native>() => Native::doze(Self::PAUSE),
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = kernel::lock_file(self.0, libc::F_UNLCK as i16);
    }
}

/// Says on stderr why the file has no statistics.
fn complain(why: core::fmt::Arguments) {
    let mut out = Line::new();
    out.bytes(b"latchwork: cannot write statistics to ");
    for byte in PATH.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0) {
        out.bytes(&[byte]);
    }
    let _ = writeln!(out, ": {why}");
    stderr::write(out.as_bytes());
}

/// How readers of `lock` got in, if the lock counts that.
fn readers(family: Family, lock: &str) -> Option<Counts> {
    (family == Family::RwLock && lock.starts_with("bravo-")).then(Counts::of_process)
}

/// Calls `each` with every lock that was chosen for objects of the family, and how many objects.
fn chosen(family: Family, each: impl FnMut(&str, u64)) {
    struct Chosen<F> {
        family: Family,
        position: usize,
        each: F,
    }
    impl<F: FnMut(&str, u64)> Chosen<F> {
        fn see(&mut self, family: Family, name: &str) {
            if self.family == family {
                self.report(name, Choice::registered(self.position));
                self.position += 1;
            }
        }

        fn report(&mut self, name: &str, choice: Choice) {
            let objects = choice::objects(self.family, choice.number());
            if objects != 0 {
                (self.each)(name, objects);
            }
        }
    }
    impl<F: FnMut(&str, u64)> Visitor<Native> for Chosen<F> {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            self.see(Family::Mutex, L::INFO.name);
        }
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            self.see(Family::RwLock, R::INFO.name);
        }
    }
    if !choice::is_on() || !matches!(family, Family::Mutex | Family::RwLock) {
        return;
    }
    let mut chosen = Chosen { family, position: 0, each };
    visit(&mut chosen);
    chosen.report("glibc", Choice::GLIBC);
}

fn text() -> Line {
    let mut out = Line::new();
    // SAFETY: `getpid` takes nothing and always succeeds.
    let pid = unsafe { libc::getpid() };
    if [Family::Mutex, Family::RwLock].into_iter().all(|family| served_by(family).is_none()) {
        let _ = writeln!(out, "latchwork[{pid}]: mutex, rwlock: glibc's own, which are not counted");
    }
    for (family, name) in NAMES {
        let Some(lock) = served_by(family) else { continue };
        let [objects, calls, contended] = counters::of(family);
        let last = if family == Family::Cond { "waits" } else { "contended" };
        let _ = writeln!(
            out,
            "latchwork[{pid}]: {name} ({lock}): {objects} objects, {calls} calls, {contended} {last}"
        );
        chosen(family, |lock, objects| {
            let _ = writeln!(out, "latchwork[{pid}]: {name}: {lock} was chosen for {objects} objects");
        });
        if let Some(Counts { fast, unbiased, collisions, in_vain, revocations, revoking }) =
            readers(family, lock)
        {
            let _ = writeln!(
                out,
                "latchwork[{pid}]: {name} readers: {fast} fast, {} slow ({unbiased} without bias, {collisions} \
                 without a free slot), {in_vain} slots filled in vain; {revocations} revocations in {} us",
                unbiased + collisions,
                revoking / 1000
            );
        }
    }
    for (reason, (_, name)) in REASON_NAMES.iter().enumerate() {
        let [objects, calls] = counters::to_glibc(reason);
        if objects + calls != 0 {
            let _ = writeln!(out, "latchwork[{pid}]: to glibc: {objects} {name}, {calls} calls");
        }
    }
    out
}

fn json() -> Line {
    let mut out = Line::new();
    // SAFETY: `getpid` takes nothing and always succeeds.
    let _ = write!(out, "{{\"pid\":{}", unsafe { libc::getpid() });
    for (family, name) in NAMES {
        let Some(lock) = served_by(family) else { continue };
        let [objects, calls, contended] = counters::of(family);
        let _ = write!(
            out,
            ",\"{name}\":{{\"lock\":\"{lock}\",\"objects\":{objects},\"calls\":{calls},\
             \"contended\":{contended}"
        );
        if let Some(Counts { fast, unbiased, collisions, in_vain, revocations, revoking }) =
            readers(family, lock)
        {
            let _ = write!(
                out,
                ",\"readers\":{{\"fast\":{fast},\"unbiased\":{unbiased},\"collisions\":{collisions},\
                 \"in_vain\":{in_vain},\"revocations\":{revocations},\"revoking_ns\":{revoking}}}"
            );
        }
        let mut separator = ",\"chosen\":{";
        chosen(family, |lock, objects| {
            let _ = write!(out, "{separator}\"{lock}\":{objects}");
            separator = ",";
        });
        out.bytes(if separator == "," { b"}}" } else { b"}" });
    }
    let _ = write!(out, ",\"to_glibc\":{{");
    for (reason, (name, _)) in REASON_NAMES.iter().enumerate() {
        let comma = if reason == 0 { "" } else { "," };
        let [objects, calls] = counters::to_glibc(reason);
        let _ = write!(out, "{comma}\"{name}\":{{\"objects\":{objects},\"calls\":{calls}}}");
    }
    let _ = writeln!(out, "}}}}");
    out
}
