//! Statistics, for `LATCHWORK_STATS`.
//!
//! Counters are only touched by functions compiled for it, so without statistics they cost nothing.
//! They are spread over cache lines by thread. Everything is printed when the process exits, to
//! stderr or, with `LATCHWORK_STATS=json:PATH`, as one line of JSON appended to PATH.

use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use latchwork::locks::rwlock::bravo::count::Counts;
use latchwork::machine::{Machine, Native};
use libc::c_int;

/// Families that are served.
pub(crate) const MUTEX: usize = 0;
pub(crate) const RWLOCK: usize = 1;
pub(crate) const COND: usize = 2;
pub(crate) const SPIN: usize = 3;
pub(crate) const SEM: usize = 4;
const FAMILIES: [&str; 5] = ["mutex", "rwlock", "condvar", "spin", "semaphore"];

/// Why an object went to glibc.
pub(crate) const ROBUST: usize = 0;
pub(crate) const PRIORITY: usize = 1;
pub(crate) const MUTEX_SHARED: usize = 2;
pub(crate) const RWLOCK_SHARED: usize = 3;
pub(crate) const COND_SHARED: usize = 4;
pub(crate) const SEM_SHARED: usize = 5;
pub(crate) const SPIN_SHARED: usize = 6;
pub(crate) const RWLOCK_WRITERS: usize = 7;
const REASONS: [(&str, &str); 8] = [
    ("mutex_robust", "robust mutexes"),
    ("mutex_priority", "priority-inheriting or -protected mutexes"),
    ("mutex_shared", "process-shared mutexes"),
    ("rwlock_shared", "process-shared rwlocks"),
    ("condvar_shared", "process-shared condition variables"),
    ("semaphore_shared", "process-shared semaphores"),
    ("spin_shared", "process-shared spin locks"),
    ("rwlock_prefers_writers", "rwlocks that ask for preference of writers"),
];

/// Counters of a family: objects, calls, contended calls.
const OBJECTS: usize = 0;
const CALLS: usize = 1;
const CONTENDED: usize = 2;
const PER_FAMILY: usize = 3;
const FOREIGN: usize = FAMILIES.len() * PER_FAMILY;
const COUNTERS: usize = FOREIGN + REASONS.len() * 2;

/// Sets of counters, shared by threads whose ids have the same hash.
const SHARDS: usize = 32;

#[repr(align(128))]
struct Shard([AtomicU64; COUNTERS]);
static SHARD: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; COUNTERS]) }; SHARDS];

static ON: AtomicBool = AtomicBool::new(false);
/// Whether the report goes to `PATH`, as JSON, or to stderr, as text.
static TO_FILE: AtomicBool = AtomicBool::new(false);
/// The file's name, which ends in zeroes. It is copied because servers write their process title over the
/// environment. The kernel refuses a name that fills `PATH_MAX`, so a longer one may be cut off here.
static PATH: [AtomicU8; libc::PATH_MAX as usize + 1] = [const { AtomicU8::new(0) }; _];
/// The file since the process started, or -1: a process may give up the right to open it (another user, another
/// root directory, a filter of system calls).
static KEPT: AtomicI32 = AtomicI32::new(-1);
/// The device and inode of the file that `KEPT` stands for.
static KEPT_FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The least number that `KEPT` may have: programs expect the low ones for their own files.
const KEPT_FROM: c_int = 500;

/// The names of the locks in use, as pointer and length.
struct Name(AtomicPtr<u8>, AtomicUsize);
static NAMES: [Name; 3] = [const { Name(AtomicPtr::new(core::ptr::null_mut()), AtomicUsize::new(0)) }; 3];

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
        // SAFETY: both come from one `&'static str`.
        Some(unsafe {
            core::str::from_utf8_unchecked(core::slice::from_raw_parts(start, self.1.load(Relaxed)))
        })
    }
}

pub(crate) fn name_mutex(name: &'static str) {
    NAMES[0].set(name);
}

pub(crate) fn name_rwlock(name: &'static str) {
    NAMES[1].set(name);
}

pub(crate) fn name_spin(name: &'static str) {
    NAMES[2].set(name);
}

/// Reads `LATCHWORK_STATS`; returns whether to count.
pub(crate) fn configure(value: Option<&'static [u8]>) -> bool {
    let Some(value) = value.filter(|value| *value != b"0") else { return false };
    if let Some(path) = value.strip_prefix(b"json:") {
        for (to, from) in PATH[..PATH.len() - 1].iter().zip(path) {
            to.store(*from, Relaxed);
        }
        TO_FILE.store(true, Relaxed);
        keep();
    }
    ON.store(true, Relaxed);
    true
}

fn open() -> c_int {
    // In a directory where others may write, the path may be their symbolic link; an `exit` must not wait for
    // the reader of a pipe either.
    let safe = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: `PATH` has the layout of bytes, nobody writes to it after `configure`, and its last byte is zero.
    unsafe { libc::open(PATH.as_ptr().cast(), libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | safe, 0o666) }
}

/// Opens the file for `KEPT`.
fn keep() {
    let file = open();
    // SAFETY: system calls on a descriptor of ours; one that is -1 is refused.
    let kept = unsafe {
        let kept = libc::fcntl(file, libc::F_DUPFD_CLOEXEC, KEPT_FROM);
        libc::close(file);
        kept
    };
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
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for the answer, for which zeroes are a value; a descriptor that is none is refused.
    let found = unsafe { (libc::fstat(file, found.as_mut_ptr()) == 0).then(|| found.assume_init())? };
    (found.st_nlink > 0).then_some([found.st_dev, found.st_ino])
}

/// Whether statistics are on, for code that is not compiled twice.
pub(crate) fn on() -> bool {
    ON.load(Relaxed)
}

fn bump(counter: usize) {
    // Stacks, and the control blocks in them, lie megabytes apart: mix before taking the top bits.
    let hash = (Native::thread_id() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
    SHARD[hash as usize % SHARDS].0[counter].fetch_add(1, Relaxed);
}

/// An object of ours was made, or seen for the first time.
pub(crate) fn object(family: usize) {
    bump(family * PER_FAMILY + OBJECTS);
}

/// A lock call (of a condition variable: a wait or a notification) was served.
pub(crate) fn call(family: usize) {
    bump(family * PER_FAMILY + CALLS);
}

/// A lock call did not get the lock at the first attempt (of a condition variable: a wait).
pub(crate) fn contended(family: usize) {
    bump(family * PER_FAMILY + CONTENDED);
}

/// An object was made that is glibc's.
pub(crate) fn foreign_object(reason: usize) {
    bump(FOREIGN + reason * 2);
}

/// A lock call went to glibc.
pub(crate) fn foreign_call(reason: usize) {
    bump(FOREIGN + reason * 2 + 1);
}

/// A forked child counts for itself.
pub(crate) fn after_fork() {
    if on() {
        for shard in &SHARD {
            for counter in &shard.0 {
                counter.store(0, Relaxed);
            }
        }
    }
}

fn sum(counter: usize) -> u64 {
    SHARD.iter().map(|shard| shard.0[counter].load(Relaxed)).sum()
}

/// The lock that serves a family.
fn served_by(family: usize) -> Option<&'static str> {
    match family {
        MUTEX => NAMES[0].get(),
        RWLOCK => NAMES[1].get(),
        SPIN => NAMES[2].get(),
        SEM => NAMES[0].get().map(|_| "semaphore"),
        _ => NAMES[0].get().map(|_| "futex"),
    }
}

/// A text that is written whole, from the stack: `exit` may be called by anybody, anywhere.
pub(crate) struct Line {
    bytes: [u8; 4096],
    length: usize,
}

impl Line {
    pub(crate) fn new() -> Self {
        Line { bytes: [0; 4096], length: 0 }
    }

    /// Appends what fits.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let room = self.bytes.len() - self.length;
        let taken = bytes.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
    }

    pub(crate) fn write_to(&self, file: c_int) {
        // SAFETY: the bytes are initialised. There is nobody to tell if it fails.
        unsafe { libc::write(file, self.bytes.as_ptr().cast(), self.length) };
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = report;

extern "C" fn report() {
    // A process that forks and exits in the child prints once each; nobody prints twice.
    if !ON.swap(false, Relaxed) {
        return;
    }
    if !TO_FILE.load(Relaxed) {
        text().write_to(libc::STDERR_FILENO);
        return;
    }
    if let Some(kept) = kept() {
        return json().write_to(kept);
    }
    let file = open();
    if file < 0 {
        let mut out = Line::new();
        out.bytes(b"latchwork: cannot write statistics to ");
        for byte in PATH.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0) {
            out.bytes(&[byte]);
        }
        // SAFETY: always valid.
        let _ = match unsafe { *libc::__errno_location() } {
            libc::ELOOP => writeln!(out, ": it is a symbolic link; name the file itself"),
            error => writeln!(out, ": error {error}; name a file that the program's user may write to"),
        };
        return out.write_to(libc::STDERR_FILENO);
    }
    json().write_to(file);
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(file) };
}

/// How readers of `lock` got in, if that is one that counts it.
fn readers(family: usize, lock: &str) -> Option<Counts> {
    (family == RWLOCK && lock.starts_with("bravo-")).then(Counts::of_process)
}

fn text() -> Line {
    let mut out = Line::new();
    // SAFETY: always succeeds.
    let pid = unsafe { libc::getpid() };
    for (family, name) in FAMILIES.iter().enumerate() {
        let Some(lock) = served_by(family) else { continue };
        let [objects, calls, contended] =
            [OBJECTS, CALLS, CONTENDED].map(|counter| sum(family * PER_FAMILY + counter));
        let last = if family == COND { "waits" } else { "contended" };
        let _ = writeln!(
            out,
            "latchwork[{pid}]: {name} ({lock}): {objects} objects, {calls} calls, {contended} {last}"
        );
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
    for (reason, (_, name)) in REASONS.iter().enumerate() {
        let (objects, calls) = (sum(FOREIGN + reason * 2), sum(FOREIGN + reason * 2 + 1));
        if objects + calls != 0 {
            let _ = writeln!(out, "latchwork[{pid}]: to glibc: {objects} {name}, {calls} calls");
        }
    }
    out
}

fn json() -> Line {
    let mut out = Line::new();
    // SAFETY: always succeeds.
    let _ = write!(out, "{{\"pid\":{}", unsafe { libc::getpid() });
    for (family, name) in FAMILIES.iter().enumerate() {
        let Some(lock) = served_by(family) else { continue };
        let [objects, calls, contended] =
            [OBJECTS, CALLS, CONTENDED].map(|counter| sum(family * PER_FAMILY + counter));
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
        out.bytes(b"}");
    }
    let _ = write!(out, ",\"to_glibc\":{{");
    for (reason, (name, _)) in REASONS.iter().enumerate() {
        let comma = if reason == 0 { "" } else { "," };
        let (objects, calls) = (sum(FOREIGN + reason * 2), sum(FOREIGN + reason * 2 + 1));
        let _ = write!(out, "{comma}\"{name}\":{{\"objects\":{objects},\"calls\":{calls}}}");
    }
    let _ = writeln!(out, "}}}}");
    out
}
