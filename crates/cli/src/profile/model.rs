//! What a profile says, in the form that all reports are made from: names in place of addresses, and classes of locks over
//! all processes.

pub use super::lengths::{Bucket, Error, Lengths};
use super::symbols::{Frame, wrappers};
use std::collections::HashMap;
use std::path::PathBuf;

/// A number in [`Profile::stacks`].
pub type StackId = usize;

/// A run of a program with everything that it started.
#[derive(Debug, Default)]
pub struct Profile {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// From the start of the first process to the end of the last.
    pub seconds: f64,
    /// Those that made a recording.
    pub processes: Vec<Process>,
    /// Of all processes.
    pub threads: Vec<Thread>,
    /// Every frame once.
    pub frames: Vec<Frame>,
    /// Every stack once, as numbers in `frames`, innermost first.
    pub stacks: Vec<Vec<usize>>,
    /// Classes of locks in order of the time waited for them.
    pub locks: Vec<Class>,
    /// Classes of condition variables in order of the time waited for them.
    pub condvars: Vec<Condition>,
    /// What profiling itself cost.
    pub overhead: Overhead,
    /// What the recording has no room for.
    pub dropped: Vec<Dropped>,
    /// Waits in the order of their beginnings, where the recording has them.
    pub waits: Vec<Wait>,
    /// Sentences about what limits this profile, for the reader.
    pub notes: Vec<String>,
    /// Whether only a part of a process's life was recorded, from one moment to another.
    pub attached: bool,
    /// A sentence about threads that waited for each other when the recording began.
    pub deadlock: Option<String>,
    /// What kept the threads waiting that waited for locks at the end.
    pub kept: Kept,
    /// Sentences about parts of the program that were not recorded. The verdict begins with them.
    pub missing: Vec<String>,
}

/// A process that was recorded.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The file name of the program.
    pub program: String,
    /// How long it was recorded.
    pub seconds: f64,
}

/// A thread of the program.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// A number in [`Profile::processes`].
    pub process: usize,
    /// As the kernel numbers it.
    pub tid: u32,
    /// The name that the program gave it.
    pub name: String,
    /// Whether it had not ended when the recording ended or was read.
    pub lives: bool,
    /// How long it was recorded.
    pub lifetime_ns: u64,
    /// Time that it waited for locks, also in a wait that had not ended.
    pub wait_ns: u64,
    /// Number of these waits that had ended.
    pub waits: u64,
    /// Time that it waited for conditions, also in a wait that had not ended.
    pub idle_ns: u64,
}

/// Which pthread object a lock is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `pthread_mutex_t`.
    #[default]
    Mutex,
    /// `pthread_rwlock_t`.
    RwLock,
    /// `pthread_spinlock_t`.
    Spin,
}

impl Kind {
    /// For scripts.
    pub fn key(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::RwLock => "rwlock",
            Self::Spin => "spin",
        }
    }

    /// For sentences.
    pub fn text(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::RwLock => "reader-writer lock",
            Self::Spin => "spin lock",
        }
    }
}

/// A place in a file of the program, which is the same in every run of that file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file.
    pub module: PathBuf,
    /// Of the file that the program ran. Empty: it has none.
    pub build_id: Vec<u8>,
    /// As the file counts addresses. Of a call: that of its last byte.
    pub address: u64,
}

/// Where locks of a class come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A static object.
    Static(Place),
    /// The calls that initialised, or else first used it, innermost first: up to the one that names the class.
    Calls(Vec<Place>),
}

/// In [`Class::served_by`]: locks of `latchwork.h`, which serve themselves.
pub const OWN: &str = "latchwork.h";

/// The locks of one site: the elements of one static variable, or those that were made or first acquired by one stack.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// What users see: the name that the program gives (`lw_name`), `cache.mutex_`, or `mutex of Cache::get (cache.cc:31)`.
    pub name: String,
    /// The same in each look at a recording, also if another class of the same name makes `name` longer.
    pub key: String,
    /// How the name was found, in a few words with the module: `static in server`, `made at ...`, `first acquired at ...`.
    pub origin: String,
    pub kind: Kind,
    /// Every place that its locks come from, each once, as far as they are known.
    pub origins: Vec<Origin>,
    /// The names of the locks that serve it: `glibc`, [`OWN`], or one of latchwork's.
    pub served_by: Vec<String>,
    /// How many locks. Each process has its own: a static lock counts once for each.
    pub instances: u64,
    /// The time waited for each lock of the class that was contended, longest first.
    pub instance_wait_ns: Vec<u64>,
    /// The part of the process whose threads waited longest.
    pub busiest: OfProcess,
    pub acquisitions: u64,
    /// Acquisitions for reading, among these.
    pub reads: u64,
    /// Acquisitions of a recursive mutex by a thread that held it already, among these. None of them is a hold of its own, or waits.
    pub nested: u64,
    /// Of [`Class::calls`], those that had to wait.
    pub contended: u64,
    /// `trylock` calls that did not get the lock.
    pub failed_tries: u64,
    pub timeouts: u64,
    /// Waits for the lock.
    pub waits: Lengths,
    /// The part of the waiting time in which no thread held the lock: it was handed over, and the waiter did not run yet.
    pub handover_ns: u64,
    /// Time to acquire the mutex again after waiting for a condition. Not part of `waits`.
    pub reacquire_ns: u64,
    /// Such acquisitions that had to wait.
    pub reacquires: u64,
    /// Where threads waited for the condition, and the place of the holder that kept the mutex from them then: the longest first.
    pub reacquire_pairs: Vec<Pair>,
    /// Holds: all that met contention, and a sample of the others.
    pub holds: Lengths,
    /// Most threads that waited at once.
    pub waiters_max: u64,
    /// Waits that had not ended when the recording was read. They are not in `contended` and `waits`.
    pub waiting: Unfinished,
    /// Most readers that were seen inside at once.
    pub readers_max: u64,
    /// Acquisitions for reading among `holds`, and how long they held the lock.
    pub read_holds: u64,
    /// See `read_holds`.
    pub read_hold_ns: u64,
    /// The length of the waits of which the CPU time was measured.
    pub timed_ns: u64,
    /// Their CPU time: the waiting thread was spinning.
    pub spun_ns: u64,
    /// So many acquisitions were compared with the one before.
    pub successions: Successions,
    /// Where threads waited, longest first.
    pub waiters: Vec<Waiter>,
    /// Because of which holders, longest first.
    pub holders: Vec<Holder>,
    /// Pairs of a place that waited and the place of the holder that it waited for, longest wait first.
    pub pairs: Vec<Pair>,
}

/// Waits that had not ended when the recording was read.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// How many threads waited.
    pub threads: u64,
    /// How long they had waited, all together.
    pub wait_ns: u64,
    /// How long the first of them had waited.
    pub longest_ns: u64,
    /// Where that thread waited.
    pub stack: StackId,
}

impl Unfinished {
    /// Adds a thread that has waited for so long at this stack.
    pub fn add(&mut self, wait_ns: u64, stack: StackId) {
        if self.threads == 0 || wait_ns > self.longest_ns {
            (self.longest_ns, self.stack) = (wait_ns, stack);
        }
        self.threads += 1;
        self.wait_ns = self.wait_ns.saturating_add(wait_ns);
    }
}

/// So many threads that waited for a lock when the recording ended, by what kept them waiting.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// They wait for each other: each for a lock that the next of them holds.
    pub in_circle: u64,
    /// For a lock that the thread itself holds.
    pub by_itself: u64,
    /// For a lock whose holder has ended.
    pub by_ended: u64,
    /// For a lock that one of the threads above holds, or one that waits for them.
    pub behind: u64,
    /// For a lock whose holder waits for no lock, or for a holder that does not.
    pub by_running: u64,
    /// The holder is not known.
    pub unknown: u64,
}

/// What one process has of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfProcess {
    pub instances: u64,
    /// Acquisitions without nested ones.
    pub holds: u64,
    pub wait_ns: u64,
    /// The time waited for the lock with the longest waiting.
    pub longest_instance_ns: u64,
}

/// Threads that waited for a lock at one place.
#[derive(Clone, Debug, Default)]
pub struct Waiter {
    pub stack: StackId,
    pub count: u64,
    pub wait_ns: u64,
    /// Of `wait_ns`, which is an estimate if there were many short waits.
    pub error_ns: Error,
}

/// Threads that acquired the lock at one place. Threads that kept no other waiting are listed too, if their holds were measured.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    pub stack: StackId,
    /// How many waits it had a part in.
    pub waits: u64,
    pub caused_wait_ns: u64,
    /// Of `caused_wait_ns`.
    pub error_ns: Error,
    /// Its holds that were measured: all that met contention, and a sample of the others.
    pub holds: u64,
    /// How long these took.
    pub hold_ns: u64,
}

impl Holder {
    /// How long it holds the lock at a time. `None`: that was not measured.
    pub fn mean_hold_ns(&self) -> Option<u64> {
        self.hold_ns.checked_div(self.holds)
    }
}

/// Acquisitions that were compared with the one before of the same lock.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Successions {
    pub compared: u64,
    /// By another thread, on another CPU, on a CPU of another NUMA node.
    pub by_thread: u64,
    pub by_cpu: u64,
    pub by_node: u64,
}

impl Class {
    /// How long threads waited for it, also in waits that had not ended.
    pub fn lost_ns(&self) -> u64 {
        self.waits.sum_ns.saturating_add(self.waiting.wait_ns)
    }

    /// Calls that asked for a lock of the class and could wait for it: those that got it, and those that gave up at a deadline.
    pub fn calls(&self) -> u64 {
        self.acquisitions.saturating_sub(self.nested).saturating_add(self.timeouts)
    }

    /// How long a thread holds a lock of the class on average, in a run of so many seconds. A few sampled holds that are very long can
    /// make the estimate larger than is possible.
    pub fn mean_hold_ns(&self, seconds: f64) -> u64 {
        let (mean, at_once) = (self.holds.mean_ns(), self.at_once());
        let holds = self.acquisitions.saturating_sub(self.nested).min(self.holds.count);
        if at_once == 0 || holds == 0 {
            return mean;
        }
        mean.min((seconds * 1e9 * at_once as f64 / holds as f64) as u64)
    }

    /// How many threads can hold the locks of the class at once: one each, or as many readers as were seen in one. 0: that is not known.
    fn at_once(&self) -> u64 {
        let of_one = if self.kind == Kind::RwLock { self.readers_max } else { 1 };
        self.instances.max(1).saturating_mul(of_one)
    }

    /// How many readers hold a lock of the class on average over so many seconds: an estimate, as `mean_hold_ns` is.
    pub fn readers_mean(&self, seconds: f64) -> f64 {
        let held_ns = self.read_hold_ns.checked_div(self.read_holds).unwrap_or(0) as f64 * self.reads as f64;
        let mean = over(held_ns, seconds);
        if self.at_once() == 0 { mean } else { mean.min(self.at_once() as f64) }
    }

    /// How many threads wait for a lock of the class on average over so many seconds.
    pub fn waiters_mean(&self, seconds: f64) -> f64 {
        over(self.lost_ns() as f64, seconds)
    }
}

/// Nanoseconds for each nanosecond of so many seconds.
fn over(nanos: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { nanos / (seconds * 1e9) } else { 0.0 }
}

/// Waits at one place because of holders that acquired at another.
#[derive(Clone, Debug)]
pub struct Pair {
    pub waiter: StackId,
    pub cause: Cause,
    pub wait_ns: u64,
    /// Of `wait_ns`.
    pub error_ns: Error,
}

/// Why a thread waited.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A thread held the lock that had acquired it at this stack.
    Holder(StackId),
    /// No thread held the lock: it had been released, and the waiter did not run yet.
    Handover,
    /// Holders that the recorder does not tell apart.
    Others,
    /// Not known.
    Unknown,
    /// A holder that had not released the lock when the thread gave up at its deadline. Where it acquired the lock is not known.
    StillHeld,
}

impl Cause {
    /// For tables.
    pub fn place(self, profile: &Profile) -> String {
        match self {
            Self::Holder(stack) => profile.place(stack),
            Self::Handover => "(handover: nobody held it)".into(),
            Self::Others => "(other holders)".into(),
            Self::Unknown => "(not known)".into(),
            Self::StillHeld => "(still held at the deadline)".into(),
        }
    }
}

/// Condition variables or semaphores of one site. Waiting for them is not counted as contention: a worker without work waits like this.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    pub name: String,
    pub origin: String,
    /// In place of a condition variable.
    pub is_semaphore: bool,
    pub instances: u64,
    pub waits: u64,
    pub wait_ns: u64,
    pub timeouts: u64,
    /// Waits that had not ended when the recording was read. They are not in `waits` and `wait_ns`.
    pub waiting: Unfinished,
    /// Signals and broadcasts, or posts.
    pub notifications: u64,
    /// Of the waits for a semaphore, those after which the same thread posted it.
    pub returned: u64,
    /// Where threads waited, longest first.
    pub waiters: Vec<Waiter>,
}

impl Condition {
    /// How long threads waited for it, also in waits that had not ended.
    pub fn idle_ns(&self) -> u64 {
        self.wait_ns.saturating_add(self.waiting.wait_ns)
    }

    /// Whether it serves as a lock: the thread that has waited for a semaphore posts it afterwards. One that waits for work leaves
    /// that to the thread that brings the work.
    pub fn is_lock(&self) -> bool {
        // Where threads end or give up, or the recorder has forgotten a wait, one in ten may lack its post. A few waits say nothing.
        self.is_semaphore && self.waits >= 10 && self.returned >= self.waits - self.waits / 10
    }

    /// For tables.
    pub fn kind(&self) -> &'static str {
        match (self.is_semaphore, self.is_lock()) {
            (false, _) => "condition",
            (true, false) => "semaphore",
            (true, true) => "semaphore as a lock",
        }
    }
}

/// What profiling cost.
#[derive(Clone, Debug, Default)]
pub struct Overhead {
    /// Lock calls that passed the recorder.
    pub calls: u64,
    /// Stacks that were unwound, in all threads.
    pub stacks: u64,
    /// CPU time for that, in all threads.
    pub unwinding_ns: u64,
    /// Bytes of the recordings.
    pub memory_bytes: u64,
}

/// What the recording has no room for.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    /// `locks`, `stacks`, ...
    pub what: String,
    pub count: u64,
}

/// One wait, for the timeline.
#[derive(Clone, Debug)]
pub struct Wait {
    /// A number in [`Profile::threads`].
    pub thread: usize,
    /// A number in [`Profile::locks`].
    pub lock: usize,
    /// Since the start of the profile.
    pub start_ns: u64,
    pub length_ns: u64,
    /// Waits are chosen by their length: this one stands for so many nanoseconds of waiting.
    pub stands_for_ns: u64,
    /// What caused most of it.
    pub cause: Cause,
    pub stack: StackId,
}

impl Profile {
    /// Time that all threads together lived.
    pub fn lifetime_ns(&self) -> u64 {
        self.threads.iter().map(|thread| thread.lifetime_ns).sum()
    }

    /// Time that all threads together waited for locks, also in waits that had not ended.
    pub fn lost_ns(&self) -> u64 {
        self.locks.iter().fold(0, |sum, class| sum.saturating_add(class.lost_ns()))
    }

    /// Time that all threads together waited for conditions, also in waits that had not ended.
    pub fn idle_ns(&self) -> u64 {
        self.condvars.iter().fold(0, |sum, condition| sum.saturating_add(condition.idle_ns()))
    }

    /// The frames of a stack, innermost first. Of one that is not known: none.
    pub fn frames_of(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> {
        self.stacks.get(stack).into_iter().flatten().map(|frame| &self.frames[*frame])
    }

    /// The frame that names a stack: the first that is no way to call the lock.
    pub fn naming(&self, stack: StackId) -> Option<&Frame> {
        let stack = self.stacks.get(stack)?;
        stack.get(wrappers::naming(stack, &self.frames)).map(|frame| &self.frames[*frame])
    }

    /// What names a stack, for tables: `Cache::evict (cache.cc:120)`.
    pub fn place(&self, stack: StackId) -> String {
        self.naming(stack).map_or_else(|| "[unknown]".into(), place)
    }

    /// Time to acquire mutexes again after waiting for conditions, of all threads together.
    pub fn reacquire_ns(&self) -> u64 {
        self.locks.iter().fold(0, |sum, class| sum.saturating_add(class.reacquire_ns))
    }

    /// The function that names a stack, for sentences.
    pub fn function(&self, stack: StackId) -> String {
        self.naming(stack).map_or_else(|| "[unknown]".into(), |frame| frame.function.clone())
    }
}

/// A frame with its line.
pub fn place(frame: &Frame) -> String {
    if frame.file.is_empty() {
        return frame.function.clone();
    }
    let file = frame.file.rsplit('/').next().expect("one part");
    match frame.line {
        0 => format!("{} ({file})", frame.function),
        line => format!("{} ({file}:{line})", frame.function),
    }
}

/// Gives every frame and every stack a number.
#[derive(Default)]
pub struct Interner {
    pub frames: Vec<Frame>,
    pub stacks: Vec<Vec<usize>>,
    frame_ids: HashMap<Frame, usize>,
    stack_ids: HashMap<Vec<usize>, StackId>,
}

impl Interner {
    /// The number of a stack, innermost frame first.
    pub fn stack(&mut self, frames: Vec<Frame>) -> StackId {
        let ids: Vec<usize> = frames.into_iter().map(|frame| self.frame(frame)).collect();
        *self.stack_ids.entry(ids).or_insert_with_key(|ids| {
            self.stacks.push(ids.clone());
            self.stacks.len() - 1
        })
    }

    fn frame(&mut self, frame: Frame) -> usize {
        *self.frame_ids.entry(frame).or_insert_with_key(|frame| {
            self.frames.push(frame.clone());
            self.frames.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most holds take 20 us, and these take 40 ms.
    fn with_long(count: u64) -> Class {
        let buckets = [(20_000, 5_426), (40_000_000, count)];
        let sum_ns = buckets.iter().map(|(length, count)| length * count).sum();
        let bucket = |(length, count)| Bucket { start: length, end: length, count };
        let count = 5_426 + count;
        let holds = Lengths { count, sum_ns, max_ns: 40_000_000, buckets: buckets.map(bucket).to_vec() };
        Class { instances: 3, acquisitions: count, holds, ..Class::default() }
    }

    #[test]
    fn a_sampled_long_hold_makes_the_mean_uncertain() {
        // One hold of 40 ms that stands for 64.
        let class = with_long(64);
        assert_eq!(class.holds.mean_ns(), 486_069);
        assert_eq!(class.holds.sampling_error_ns().0 / 1_000, 459);
        // It stands for itself: what remains is the error of the short ones.
        assert!(with_long(1).holds.sampling_error_ns().0 < 1_000);
        assert_eq!(Lengths::default().sampling_error_ns(), Error(0));
    }

    #[test]
    fn a_mutex_is_held_by_one_thread_at_a_time() {
        let mut class = with_long(128);
        assert_eq!(class.holds.mean_ns(), 941_397);
        // Three locks in a second.
        assert_eq!(class.mean_hold_ns(1.0), 3_000_000_000 / 5_554);
        assert_eq!(class.mean_hold_ns(10.0), 941_397);
        // Of a recursive mutex, ten acquisitions may be one hold.
        class.acquisitions *= 10;
        assert_eq!(class.mean_hold_ns(1.0), 3_000_000_000 / 5_554);
        class.kind = Kind::RwLock;
        assert_eq!(class.mean_hold_ns(1.0), 941_397);
    }

    #[test]
    fn readers_are_on_average_not_more_than_at_most() {
        let mut class = with_long(128);
        (class.kind, class.reads) = (Kind::RwLock, class.acquisitions);
        (class.read_holds, class.read_hold_ns) = (class.holds.count, class.holds.sum_ns);
        assert!((class.readers_mean(1.0) - 5.2285).abs() < 0.001);
        class.readers_max = 1;
        assert_eq!((class.readers_mean(1.0), class.mean_hold_ns(1.0)), (3.0, 3_000_000_000 / 5_554));
    }
}
