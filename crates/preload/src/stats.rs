//! Statistics, for `LATCHWORK_STATS`.
//!
//! Counters are only touched by functions compiled for it, so without statistics they cost nothing.
//! They are spread over cache lines by thread. Everything is printed when the process exits, to
//! stderr or, with `LATCHWORK_STATS=json:PATH`, as one line of JSON appended to PATH.

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use latchwork::machine::{Machine, Native};
use latchwork::rwlock::bravo::count::Counts;
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
/// The file for JSON; null: text to stderr.
static PATH: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static PATH_LENGTH: AtomicUsize = AtomicUsize::new(0);

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
        PATH.store(path.as_ptr().cast_mut(), Relaxed);
        PATH_LENGTH.store(path.len(), Relaxed);
    }
    ON.store(true, Relaxed);
    true
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
    let path = PATH.load(Relaxed);
    if path.is_null() {
        text().write_to(libc::STDERR_FILENO);
        return;
    }
    // SAFETY: the path is the end of an environment string, which ends in NUL; the descriptor is
    // ours.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        let file = libc::open(path.cast(), flags, 0o666);
        if file < 0 {
            let mut out = Line::new();
            out.bytes(b"latchwork: cannot write statistics to ");
            out.bytes(core::slice::from_raw_parts(path, PATH_LENGTH.load(Relaxed)));
            out.bytes(b"\n");
            return out.write_to(libc::STDERR_FILENO);
        }
        json().write_to(file);
        libc::close(file);
    }
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
