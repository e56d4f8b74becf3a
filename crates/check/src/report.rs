//! What was found, and what is reported of it.

use crate::description::Description;
use crate::graph::Shared;
use crate::ignored;
use crate::output;
use crate::roomy;
use crate::stack::{Object, Stack};
use latchwork::machine::{Deadline, Machine, Native};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

/// Problems that are printed; the others are only counted.
pub(crate) const MOST: u64 = 100;

static PROBLEMS: AtomicU64 = AtomicU64::new(0);
/// The thread that prints: what it locks for that is not looked at.
static REPORTING: AtomicUsize = AtomicUsize::new(0);

/// How many problems were found so far, without those that are ignored.
pub fn problems() -> u64 {
    PROBLEMS.load(Relaxed)
}

/// [`problems`] when this process was forked from one that has the preload library.
static AT_FORK: AtomicU64 = AtomicU64::new(0);

/// How many of the [`problems`] were found in this process, and not in its parent before it forked.
pub fn problems_since_fork() -> u64 {
    problems() - AT_FORK.load(Relaxed)
}

pub(crate) fn is_reporting(me: usize) -> bool {
    REPORTING.load(Relaxed) == me
}

/// One acquisition while another lock was held.
#[derive(Copy, Clone)]
pub(crate) struct Step {
    pub(crate) held: (usize, Stack),
    pub(crate) taken: (usize, Stack),
    /// Whether they were only read.
    pub(crate) shared: Shared,
}

/// A thread waits for a lock that another one holds.
#[derive(Copy, Clone)]
pub(crate) struct Wait {
    pub(crate) thread: usize,
    pub(crate) lock: usize,
    /// Whether it waits to read.
    pub(crate) shared: bool,
    pub(crate) at: Stack,
    pub(crate) holder: usize,
    /// Whether the holder reads.
    pub(crate) read: bool,
    pub(crate) held: Stack,
}

/// Threads each of which waits for the next one, and the last one for the first.
#[derive(Default)]
pub(crate) struct Circle {
    pub(crate) length: usize,
    /// The first of them.
    pub(crate) waits: [Option<Wait>; Self::MOST],
}

impl Circle {
    /// Threads that are shown.
    pub(crate) const MOST: usize = 8;
}

/// A problem, with all that is said about it.
#[allow(clippy::large_enum_variant)] // rare, and nowhere to put it
pub(crate) enum Problem {
    /// This step closes a cycle, of which these are the last and the first of the other steps.
    Inversion { now: Step, then: Step, back: Step, length: usize },
    /// Waits for what it holds.
    SelfDeadlock { lock: usize, held: Stack, here: Stack },
    /// The thread that reports it, and others, wait for each other, and will for ever. The tables have the [`Circle`].
    Deadlock,
    /// Releases what it does not hold, but another thread, or nobody.
    Stranger { lock: usize, holder: Option<(usize, Stack)>, here: Stack },
    /// Still held by this thread, which ends.
    Ended { lock: usize, held: Stack },
    /// Destroyed while a thread holds it.
    Destroyed { lock: usize, holder: (usize, Stack), here: Stack },
    /// The tables are full.
    Full(&'static str),
}

/// Problems that are looked at, if some are ignored: to look up the names takes milliseconds.
const MOST_LOOKS: u64 = 10 * MOST;
static LOOKS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn report(me: usize, problem: &Problem) {
    let counts = !matches!(problem, Problem::Full(_));
    let chooses = counts && ignored::are_some();
    if chooses {
        if LOOKS.fetch_add(1, Relaxed) >= MOST_LOOKS {
            return;
        }
    } else if counts && PROBLEMS.fetch_add(1, Relaxed) >= MOST {
        return;
    }
    if begin(me) {
        let names = !NAMELESS.load(Relaxed) && allocator_is_plain();
        let mut print = || {
            let description = Description::of(problem, names);
            if !chooses || !description.is_ignored() && PROBLEMS.fetch_add(1, Relaxed) < MOST {
                write(description.text().as_bytes());
                if let Some(write) = WRITE_JSON.get() {
                    write(description.json().as_bytes());
                }
            }
        };
        // SAFETY: this thread alone prints. The functions that call this one have switched cancellation off.
        unsafe { roomy::call(&mut print) };
        give_turn_back();
    }
}

/// Nanoseconds that a thread waits for its turn to print. It may hold a lock that the thread that prints needs for looking up names, so
/// it does not wait for ever.
const PATIENCE: u64 = 2_000_000_000;
/// Nanoseconds between two attempts.
const PAUSE: u64 = 100_000;

/// Takes the turn to print, which one thread has at a time. `false`: another thread has it for too long.
fn begin(me: usize) -> bool {
    let attempt = || REPORTING.compare_exchange(0, me, Acquire, Relaxed).is_ok();
    let mut taken = attempt();
    if !taken {
        let deadline = Deadline::after::<Native>(PATIENCE);
        while !taken && !deadline.passed::<Native>() {
            Native::doze(PAUSE);
            taken = attempt();
        }
    }
    taken
}

/// Where reports go; null: to number 2.
static WRITE: AtomicPtr<()> = AtomicPtr::new(null_mut());

pub(crate) fn write_with(write: fn(&[u8])) {
    WRITE.store(write as *mut (), Relaxed);
}

/// Where the same goes as lines of JSON, if that was asked for.
static WRITE_JSON: OnceLock<fn(&[u8])> = OnceLock::new();

/// Has each report go to `write` as well, as one line of JSON. To be called once, before there are any problems; later calls have no
/// effect.
pub fn json_with(write: fn(&[u8])) {
    let _ = WRITE_JSON.set(write);
}

fn write(text: &[u8]) {
    let write = WRITE.load(Relaxed);
    if write.is_null() {
        // There is nobody to tell if it cannot be written.
        let _ = output::write(libc::STDERR_FILENO, text);
    } else {
        // SAFETY: `write_with` stores only such functions.
        unsafe { std::mem::transmute::<*mut (), fn(&[u8])>(write)(text) };
    }
}

/// Whether names cannot be looked up: this is the child of a process that forked while another thread was looking some up, and
/// what that thread had locked stays locked here.
static NAMELESS: AtomicBool = AtomicBool::new(false);

/// Before a fork: no other thread is to print meanwhile, because it would not exist in the child, and could not give back the lock of
/// the crate that looks up names. `false`: the thread does not get the turn, because another one has it for too long, or because it
/// prints itself, and a signal handler has interrupted it.
pub(crate) fn before_fork() -> bool {
    let me = Native::thread_id();
    !is_reporting(me) && begin(me)
}

pub(crate) fn give_turn_back() {
    REPORTING.store(0, Release);
}

/// In the child: takes the turn from a thread that only the parent has.
pub(crate) fn in_child() {
    AT_FORK.store(problems(), Relaxed);
    if ![0, Native::thread_id()].contains(&REPORTING.load(Relaxed)) {
        NAMELESS.store(true, Relaxed);
        give_turn_back();
    }
}

/// Whether the allocator is the C library's, which takes no pthread lock: looking up names allocates a lot,
/// and another one's lock may be what this is about.
fn allocator_is_plain() -> bool {
    Object::of(libc::malloc as *const () as usize).is_some_and(|object| object.name().contains("libc.so"))
}
