//! What a recording says, in plain structs.

use super::bytes::index;
use crate::layout;
use std::ffi::OsString;
use std::path::PathBuf;

/// What a process recorded.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// When the recording began, in nanoseconds of `CLOCK_MONOTONIC`.
    pub started: u64,
    /// The same moment on `CLOCK_REALTIME`.
    pub started_realtime: u64,
    /// The end of the process. If the process was killed: when the command saw that it was gone. If that is not known, or the
    /// process still runs: the last sign of life.
    pub ended: u64,
    /// Whether the process has ended in good order.
    pub complete: bool,
    /// The executable.
    pub executable: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The lock behind mutexes.
    pub mutex: String,
    /// The lock behind rwlocks.
    pub rwlock: String,
    /// Whether the recording began at a fork.
    pub forked: bool,
    /// Whether it began while the process ran already.
    pub late: bool,
    /// Threads that used locks.
    pub threads: Vec<Thread>,
    /// What objects are grouped into. Indices elsewhere point into this list.
    pub classes: Vec<Class>,
    /// Who waited because of whom.
    pub pairs: Vec<Pair>,
    /// The same of waits for a mutex after a wait for a condition: [`Counters::relocks`] of each class.
    pub relocks: Vec<Pair>,
    /// How long holders held locks, by their stacks.
    pub holds: Vec<Hold>,
    /// Return addresses, innermost first. The first stack is empty: no stack.
    pub stacks: Vec<Vec<u64>>,
    /// Single waits.
    pub events: Vec<Event>,
    /// Files that were mapped as code.
    pub modules: Vec<Module>,
    /// Records that the file had no room for: the section's name, and how many.
    pub dropped: Vec<(&'static str, u64)>,
    /// Stacks that were unwound.
    pub unwound: u64,
    /// Stacks that a thread found in its cache.
    pub cached: u64,
    /// Time spent unwinding.
    pub unwinding_nanos: u64,
    /// Waits whose cause is not known.
    pub unaccounted: u64,
    /// Children that the process forked and that could not make a file. Nothing of them and of their children is recorded.
    pub lost: u64,
    /// Bytes of storage that the file occupies.
    pub bytes: u64,
}

impl Recording {
    /// Sets the end of the process, if that is later than what the file says. Threads that have not ended before end with it.
    pub fn ends_at(&mut self, end: u64) {
        self.ended = self.ended.max(end);
        for thread in self.threads.iter_mut().filter(|thread| thread.lives) {
            thread.ended = self.ended;
        }
    }
}

/// What a class or object is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// See [`layout::kind::MUTEX`].
    Mutex,
    /// See [`layout::kind::RWLOCK`].
    RwLock,
    /// See [`layout::kind::SPIN`].
    Spin,
    /// See [`layout::kind::CONDVAR`].
    Condvar,
    /// See [`layout::kind::SEMAPHORE`].
    Semaphore,
    /// See [`layout::kind::BARRIER`].
    Barrier,
}

impl Kind {
    pub(crate) fn new(number: u32) -> Option<Self> {
        Some(match number {
            layout::kind::MUTEX => Self::Mutex,
            layout::kind::RWLOCK => Self::RwLock,
            layout::kind::SPIN => Self::Spin,
            layout::kind::CONDVAR => Self::Condvar,
            layout::kind::SEMAPHORE => Self::Semaphore,
            layout::kind::BARRIER => Self::Barrier,
            _ => return None,
        })
    }

    /// Whether threads acquire and release it.
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Mutex | Self::RwLock | Self::Spin)
    }
}

/// See [`layout::Counters`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counters {
    pub acquisitions: u64,
    pub reads: u64,
    pub failed: u64,
    pub contended: u64,
    pub wait_nanos: u64,
    pub wait_max: u64,
    pub timeouts: u64,
    pub hold_nanos: u64,
    pub hold_samples: u64,
    pub hold_max: u64,
    pub relocks: u64,
    pub relock_nanos: u64,
    pub most_waiting: u64,
    pub read_nanos: u64,
    pub read_samples: u64,
    pub most_readers: u64,
    pub timed_nanos: u64,
    pub spun_nanos: u64,
    pub successions: u64,
    pub owner_changes: u64,
    pub cpu_changes: u64,
    pub node_changes: u64,
}

impl Counters {
    /// Adds what another object has.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.acquisitions, other.acquisitions),
            (&mut self.reads, other.reads),
            (&mut self.failed, other.failed),
            (&mut self.contended, other.contended),
            (&mut self.wait_nanos, other.wait_nanos),
            (&mut self.timeouts, other.timeouts),
            (&mut self.hold_nanos, other.hold_nanos),
            (&mut self.hold_samples, other.hold_samples),
            (&mut self.relocks, other.relocks),
            (&mut self.relock_nanos, other.relock_nanos),
            (&mut self.read_nanos, other.read_nanos),
            (&mut self.read_samples, other.read_samples),
            (&mut self.timed_nanos, other.timed_nanos),
            (&mut self.spun_nanos, other.spun_nanos),
            (&mut self.successions, other.successions),
            (&mut self.owner_changes, other.owner_changes),
            (&mut self.cpu_changes, other.cpu_changes),
            (&mut self.node_changes, other.node_changes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        let maxima = [
            (&mut self.wait_max, other.wait_max),
            (&mut self.hold_max, other.hold_max),
            (&mut self.most_waiting, other.most_waiting),
            (&mut self.most_readers, other.most_readers),
        ];
        for (most, other) in maxima {
            *most = other.max(*most);
        }
    }

    pub(super) fn add_wait(&mut self, nanos: u64) {
        self.contended = self.contended.saturating_add(1);
        self.wait_nanos = self.wait_nanos.saturating_add(nanos);
        self.wait_max = self.wait_max.max(nanos);
    }
}

/// Objects that were first used at the same place.
#[derive(Clone, Debug)]
pub struct Class {
    /// What they are.
    pub kind: Kind,
    /// The stack of the first use: an index into [`Recording::stacks`], 0 if it is not known.
    pub birth: usize,
    /// How many objects the class has had.
    pub instances: u64,
    /// The address, if the only object lies in a module's data; else 0.
    pub address: u64,
    /// The name that the program has given to the objects; empty if it has given none.
    pub name: String,
    /// Whether these are locks of `latchwork.h`, which no lock of the preload library serves.
    pub own: bool,
    /// The totals of all objects, also of those that are gone.
    pub counters: Counters,
    /// How many waits lie in each bucket of [`histogram`](crate::histogram); empty if that is not known.
    pub waits: Vec<u64>,
    /// How many holds lie in each bucket.
    pub holds: Vec<u64>,
    /// The totals of the objects that are alive.
    pub objects: Vec<Counters>,
}

impl Class {
    /// One without objects, of which nothing is known.
    pub fn new(kind: Kind) -> Self {
        Class {
            kind,
            birth: 0,
            instances: 0,
            address: 0,
            name: String::new(),
            own: false,
            counters: Counters::default(),
            waits: Vec::new(),
            holds: Vec::new(),
            objects: Vec::new(),
        }
    }
}

/// Why threads waited.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// All reasons together.
    Whole,
    /// No thread held the lock.
    Handover,
    /// Holders that the recorder does not distinguish.
    Others,
    /// There is no known holder.
    Unknown,
    /// A holder that had not released the lock when the thread gave up, and would have said then where it acquired the lock.
    StillHeld,
    /// A thread that acquired the lock at this stack held it.
    Holder(usize),
}

impl Cause {
    pub(super) fn new(number: u32, stacks: &[Vec<u64>]) -> Option<Self> {
        Some(match number {
            layout::cause::WHOLE => Self::Whole,
            layout::cause::HANDOVER => Self::Handover,
            layout::cause::OTHERS => Self::Others,
            layout::cause::UNKNOWN => Self::Unknown,
            layout::cause::STILL_HELD => Self::StillHeld,
            stack => Self::Holder(index(stack, stacks)?),
        })
    }
}

/// Waits for a class at one stack for one reason: an estimate, if the class has many short waits. The pairs with
/// [`Cause::Whole`] add up to the class's waiting, and the others of a waiter to the waiter's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// An index into [`Recording::classes`].
    pub class: usize,
    /// An index into [`Recording::stacks`].
    pub waiter: usize,
    /// The reason.
    pub cause: Cause,
    /// Waits in which the reason had a part.
    pub waits: u64,
    /// The sum of the parts.
    pub nanos: u64,
    /// The standard error of `nanos`: in 95 of 100 recordings, the truth is less than twice that away. 0: all waits were looked
    /// at.
    pub error_nanos: u64,
}

/// Holds of a class by threads that acquired it at one stack: those that met contention, and a sample of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// An index into [`Recording::classes`].
    pub class: usize,
    /// An index into [`Recording::stacks`]; 0 if the stack is not known.
    pub holder: usize,
    /// For reading.
    pub read: bool,
    /// How many acquisitions this stands for.
    pub count: u64,
    /// The sum of their lengths.
    pub nanos: u64,
}

/// One wait.
#[derive(Clone, Debug)]
pub struct Event {
    /// An index into [`Recording::classes`].
    pub class: usize,
    /// An index into [`Recording::threads`].
    pub thread: usize,
    /// An index into [`Recording::stacks`].
    pub waiter: usize,
    /// The reason for most of it.
    pub cause: Cause,
    /// When it began.
    pub start: u64,
    /// How long it took.
    pub nanos: u64,
    /// How much waiting it stands for.
    pub stands_for: u64,
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// The kernel's number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// When it was started, or the recording began.
    pub started: u64,
    /// When it ended: with the process, if it [`lives`](Self::lives).
    pub ended: u64,
    /// Whether it had not ended when the process ended, or when the recording was read.
    pub lives: bool,
    /// When it was last seen in a call that read the clock.
    pub seen: u64,
    /// Waits for locks.
    pub waits: u64,
    /// How long they took.
    pub wait_nanos: u64,
    /// Waits for conditions and semaphores.
    pub sleeps: u64,
    /// How long they took.
    pub sleep_nanos: u64,
    /// The wait that had not ended when the recording was read.
    pub waiting: Option<Waiting>,
}

/// A wait that had not ended.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// An index into [`Recording::classes`].
    pub class: usize,
    /// An index into [`Recording::stacks`].
    pub stack: usize,
    /// When it began.
    pub since: u64,
    /// The kernel's number of the thread that held the lock when the process ended, or, if it was killed, when the wait began; 0: not
    /// known.
    pub held_by: u32,
    /// The threads that held the lock when the recording was read, as far as their tables say that: indices into [`Recording::threads`]. Of
    /// a mutex at most one.
    pub holders: Vec<usize>,
}

/// A file that was mapped as code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path in the program's file system.
    pub path: PathBuf,
    /// Of the program's file, not of what lies there today. Empty if it has none.
    pub build_id: Vec<u8>,
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// What to subtract from an address to get the address in the file.
    pub bias: u64,
}

impl Module {
    /// The name that users see.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}
