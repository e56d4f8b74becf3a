//! The reader of a recording.
//!
//! [`Recording::read`] copies a file into plain structs. A file may be damaged, of another version, or written to at this
//! moment: the reader trusts no length and no index of it. A record with an index that points nowhere is left out.
//!
//! What threads have counted for themselves is added to the objects and classes here, so that users of the structs need not
//! know of it.

use crate::histogram::{self, BUCKETS};
use crate::layout::{self, FRAMES, HOLDERS, NONE, READY, SECTIONS};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest file that is read. Longer ones are no recordings.
const LONGEST: u64 = 1 << 36;

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be opened or read.
    Io(std::io::Error),
    /// The file is no recording, or the program was killed before the recording began.
    NotARecording,
    /// The file was written by another version of the preload library.
    Version(u32),
    /// A section lies outside the file, or has records of a wrong size.
    Damaged(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
            Self::NotARecording => out.write_str("is no recording of latchwork's"),
            Self::Version(found) => write!(
                out,
                "is a recording of version {found}, and this is for version {}; read it with the latchwork that made it",
                layout::VERSION
            ),
            Self::Damaged(section) => {
                write!(out, "is damaged: its section of {section} lies outside the file")
            }
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

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
    /// The end of the process. If the process was killed, or still runs: the last sign of life.
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
    /// Threads that used locks.
    pub threads: Vec<Thread>,
    /// What objects are grouped into. Indices elsewhere point into this list.
    pub classes: Vec<Class>,
    /// Who waited because of whom.
    pub pairs: Vec<Pair>,
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
    /// Bytes of storage that the file occupies.
    pub bytes: u64,
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
}

impl Kind {
    pub(crate) fn new(number: u32) -> Option<Self> {
        Some(match number {
            layout::kind::MUTEX => Self::Mutex,
            layout::kind::RWLOCK => Self::RwLock,
            layout::kind::SPIN => Self::Spin,
            layout::kind::CONDVAR => Self::Condvar,
            layout::kind::SEMAPHORE => Self::Semaphore,
            _ => return None,
        })
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

    fn add_wait(&mut self, nanos: u64) {
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
    /// The totals of all objects, also of those that are gone.
    pub counters: Counters,
    /// How many waits lie in each bucket of [`histogram`]; empty if that is not known.
    pub waits: Vec<u64>,
    /// How many holds lie in each bucket.
    pub holds: Vec<u64>,
    /// The totals of the objects that are alive.
    pub objects: Vec<Counters>,
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
    /// A thread that acquired the lock at this stack held it.
    Holder(usize),
}

impl Cause {
    fn new(number: u32, stacks: &[Vec<u64>]) -> Option<Self> {
        Some(match number {
            layout::cause::WHOLE => Self::Whole,
            layout::cause::HANDOVER => Self::Handover,
            layout::cause::OTHERS => Self::Others,
            layout::cause::UNKNOWN => Self::Unknown,
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
    /// When it first used a lock.
    pub started: u64,
    /// When it ended. If that is not known: the end of the process, or the thread's last sign of life in a process that was
    /// killed.
    pub ended: u64,
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
}

/// A file that was mapped as code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path.
    pub path: PathBuf,
    /// Its build id; empty if it has none.
    pub build_id: Vec<u8>,
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// What to subtract from an address to get the address in the file.
    pub bias: u64,
}

/// The value of a field of a record.
macro_rules! get {
    ($record:expr, $of:ty, $field:ident, u64) => {
        u64_at($record, offset_of!($of, $field))
    };
    ($record:expr, $of:ty, $field:ident, u32) => {
        u32_at($record, offset_of!($of, $field))
    };
}

impl Recording {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Reader::open(path)?.read()
    }
}

/// A file with its sections.
struct Reader {
    header: Vec<u8>,
    /// The records of each section one after the other.
    sections: Vec<Vec<u8>>,
    dropped: Vec<(&'static str, u64)>,
    bytes: u64,
}

/// The name and the size of a record of each section.
const RECORDS: [(&str, usize); SECTIONS] = [
    ("threads", size_of::<layout::Thread>()),
    ("tables", size_of::<layout::Table>()),
    ("locks", size_of::<layout::Object>()),
    ("classes", size_of::<layout::Class>()),
    ("pairs", size_of::<layout::Pair>()),
    ("stacks", size_of::<layout::Stack>()),
    ("histograms", size_of::<layout::Histogram>()),
    ("events", size_of::<layout::Event>()),
    ("modules", size_of::<layout::Module>()),
    ("text", 1),
    ("extended tables", size_of::<layout::More>()),
];

impl Reader {
    fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let size = size_of::<layout::Header>();
        if !metadata.is_file() || metadata.len() < size as u64 || metadata.len() > LONGEST {
            return Err(Error::NotARecording);
        }
        let mut header = vec![0; size];
        file.read_exact_at(&mut header, 0)?;
        if get!(&header, layout::Header, magic, u64) != layout::MAGIC {
            return Err(Error::NotARecording);
        }
        let version = get!(&header, layout::Header, version, u32);
        if version != layout::VERSION || get!(&header, layout::Header, header_size, u32) as usize != size {
            return Err(Error::Version(version));
        }
        let (mut sections, mut dropped) = (Vec::new(), Vec::new());
        for (number, (name, size)) in RECORDS.into_iter().enumerate() {
            let at = offset_of!(layout::Header, sections) + number * size_of::<layout::Section>();
            let section = &header[at..at + size_of::<layout::Section>()];
            let offset = get!(section, layout::Section, offset, u64);
            let record_size = get!(section, layout::Section, record_size, u32) as usize;
            let capacity = get!(section, layout::Section, capacity, u32);
            let count = get!(section, layout::Section, count, u32).min(capacity) as usize;
            let length = count as u64 * size as u64;
            let inside = offset.checked_add(length).is_some_and(|end| end <= metadata.len());
            if record_size != size || !inside {
                return Err(Error::Damaged(name));
            }
            let mut bytes = vec![0; count * size];
            file.read_exact_at(&mut bytes, offset)?;
            sections.push(bytes);
            let lost = get!(section, layout::Section, dropped, u32);
            if lost > 0 {
                dropped.push((name, u64::from(lost)));
            }
        }
        let bytes = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
        Ok(Self { header, sections, dropped, bytes })
    }

    /// The records of a section. Not all are in use.
    fn records(&self, section: usize) -> std::slice::ChunksExact<'_, u8> {
        self.sections[section].chunks_exact(RECORDS[section].1)
    }

    fn read(self) -> Result<Recording, Error> {
        let header = &self.header;
        let number = |offset| u64_at(header, offset);
        let (ended, started) =
            (number(offset_of!(layout::Header, ended)), number(offset_of!(layout::Header, started)));
        let mut recording = Recording {
            pid: get!(header, layout::Header, pid, u32),
            parent: get!(header, layout::Header, parent, u32),
            started,
            started_realtime: number(offset_of!(layout::Header, started_realtime)),
            ended,
            complete: ended != 0,
            executable: OsString::from_vec(self.text(offset_of!(layout::Header, executable)).to_vec()).into(),
            arguments: self.arguments(),
            mutex: lossy(self.text(offset_of!(layout::Header, mutex))),
            rwlock: lossy(self.text(offset_of!(layout::Header, rwlock))),
            forked: get!(header, layout::Header, forked, u32) == 1,
            modules: self.modules(),
            stacks: self.stacks(),
            unwound: number(offset_of!(layout::Header, unwound)),
            cached: number(offset_of!(layout::Header, cached)),
            unwinding_nanos: number(offset_of!(layout::Header, unwinding_nanos)),
            unaccounted: number(offset_of!(layout::Header, unaccounted)),
            bytes: self.bytes,
            dropped: self.dropped.clone(),
            ..Recording::default()
        };
        let mut classes = Classes::new(&self, &recording.stacks);
        classes.add_objects(&self);
        classes.add_tables(&self);
        let mut sums = self.pairs(&classes, &recording.stacks);
        self.add_tallies(&mut classes, &mut sums, &recording.stacks);
        let mut threads = self.threads(&mut classes, &mut sums, &recording.stacks);
        recording.events = self.events(&classes, &threads, &recording.stacks);
        if !recording.complete {
            let last = |thread: &Thread| thread.seen.max(thread.ended);
            recording.ended = threads.list.iter().map(last).max().unwrap_or(0).max(started);
        }
        for thread in &mut threads.list {
            if thread.ended == 0 {
                thread.ended = if recording.complete { recording.ended } else { thread.seen };
            }
        }
        recording.threads = threads.list;
        recording.classes = classes.finish();
        recording.pairs = sums
            .pairs
            .into_iter()
            .map(|((class, waiter, cause), (waits, nanos))| Pair { class, waiter, cause, waits, nanos })
            .collect();
        estimates::calibrate(&mut recording.pairs, &recording.classes);
        recording.pairs.sort_by_key(|pair| (pair.class, std::cmp::Reverse(pair.nanos), pair.waiter));
        recording.holds = sums
            .holds
            .into_iter()
            .map(|((class, holder, read), (count, nanos))| Hold { class, holder, read, count, nanos })
            .collect();
        recording.holds.sort_by_key(|hold| (hold.class, std::cmp::Reverse(hold.nanos), hold.holder));
        Ok(recording)
    }

    /// The bytes that the [`layout::Text`] at `offset` of the header names.
    fn text(&self, offset: usize) -> &[u8] {
        self.bytes_of_text(u32_at(&self.header, offset), u32_at(&self.header, offset + 4))
    }

    fn bytes_of_text(&self, start: u32, length: u32) -> &[u8] {
        let text = &self.sections[layout::TEXT];
        let end = start.saturating_add(length) as usize;
        text.get(start as usize..end).unwrap_or_default()
    }

    fn arguments(&self) -> Vec<OsString> {
        let text = self.text(offset_of!(layout::Header, arguments));
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        if text.is_empty() {
            return Vec::new();
        }
        text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
    }

    fn modules(&self) -> Vec<Module> {
        type Of = layout::Module;
        let ready = |record: &&[u8]| get!(record, Of, state, u32) == READY;
        let one = |record: &[u8]| {
            let length = (get!(record, Of, build_id_length, u32) as usize).min(32);
            let at = offset_of!(Of, build_id);
            let path = self.bytes_of_text(get!(record, Of, path, u32), get!(record, Of, path_length, u32));
            Module {
                path: OsString::from_vec(path.to_vec()).into(),
                build_id: record[at..at + length].to_vec(),
                start: get!(record, Of, start, u64),
                end: get!(record, Of, end, u64),
                bias: get!(record, Of, bias, u64),
            }
        };
        self.records(layout::MODULES).filter(ready).map(one).collect()
    }

    fn stacks(&self) -> Vec<Vec<u64>> {
        type Of = layout::Stack;
        let one = |record: &[u8]| {
            if get!(record, Of, state, u32) != READY {
                return Vec::new();
            }
            let depth = (get!(record, Of, depth, u32) as usize).min(FRAMES);
            (0..depth).map(|frame| u64_at(record, offset_of!(Of, frames) + 8 * frame)).collect()
        };
        let mut stacks: Vec<_> = self.records(layout::STACKS).map(one).collect();
        // Index 0 is there even in a file without stacks.
        if stacks.is_empty() {
            stacks.push(Vec::new());
        }
        stacks
    }

    fn pairs(&self, classes: &Classes, stacks: &[Vec<u64>]) -> Sums {
        type Of = layout::Pair;
        let mut sums = Sums::default();
        for record in self.records(layout::PAIRS) {
            let (waits, nanos) = (get!(record, Of, waits, u64), get!(record, Of, nanos, u64));
            if get!(record, Of, state, u32) == READY
                && let Some(class) = classes.number(get!(record, Of, class, u32))
            {
                let (waiter, holder) = (get!(record, Of, waiter, u32), get!(record, Of, holder, u32));
                sums.add(class, waiter, holder, (waits, nanos), stacks);
            }
        }
        sums
    }

    /// Adds what threads have summed up for themselves.
    fn add_tallies(&self, classes: &mut Classes, sums: &mut Sums, stacks: &[Vec<u64>]) {
        type Of = layout::Tally;
        for table in self.records(layout::TABLES) {
            for tally in table[offset_of!(layout::Table, tallies)..].chunks_exact(size_of::<Of>()) {
                let class = get!(tally, Of, class, u32).checked_sub(1);
                let Some(class) = class.and_then(|class| classes.number(class)) else { continue };
                let (waiter, holder) = (get!(tally, Of, waiter, u32), get!(tally, Of, holder, u32));
                let (waits, nanos) = (u64::from(get!(tally, Of, waits, u32)), get!(tally, Of, nanos, u64));
                if waiter != layout::ALL_WAITS {
                    sums.add(class, waiter, holder, (waits, nanos), stacks);
                }
                let mut counted = Counters::default();
                if matches!(waiter, layout::holds::WRITE | layout::holds::READ) {
                    (counted.hold_samples, counted.hold_nanos) = (waits, nanos);
                    if waiter == layout::holds::READ {
                        (counted.read_samples, counted.read_nanos) = (waits, nanos);
                    }
                } else if waiter == layout::ALL_WAITS {
                    (counted.contended, counted.wait_nanos) = (waits, nanos);
                } else {
                    continue;
                }
                let object = (get!(tally, Of, object, u32), get!(tally, Of, serial, u32));
                classes.counters(class, object).add(&counted);
            }
        }
    }

    fn threads(&self, classes: &mut Classes, sums: &mut Sums, stacks: &[Vec<u64>]) -> Threads {
        type Of = layout::Thread;
        let mut threads = Threads { list: Vec::new(), numbers: HashMap::new() };
        for (number, record) in self.records(layout::THREADS).enumerate() {
            if get!(record, Of, state, u32) != READY {
                continue;
            }
            let at = offset_of!(Of, name);
            let name = record[at..at + 16].split(|byte| *byte == 0).next().expect("one part");
            let waiting = || {
                Some(Waiting {
                    class: classes.number(get!(record, Of, waits_for, u32).checked_sub(1)?)?,
                    stack: index(get!(record, Of, waits_at, u32), stacks)?,
                    since: get!(record, Of, waits_since, u64),
                })
            };
            threads.numbers.insert(number as u32, threads.list.len());
            threads.list.push(Thread {
                tid: get!(record, Of, tid, u32),
                name: lossy(name),
                started: get!(record, Of, started, u64),
                ended: get!(record, Of, ended, u64),
                seen: get!(record, Of, seen, u64),
                waits: get!(record, Of, waits, u64),
                wait_nanos: get!(record, Of, wait_nanos, u64),
                sleeps: get!(record, Of, sleeps, u64),
                sleep_nanos: get!(record, Of, sleep_nanos, u64),
                waiting: waiting(),
            });
            let at = offset_of!(Of, pending);
            add_pending(&record[at..at + size_of::<layout::Pending>()], classes, sums, stacks);
        }
        threads
    }

    fn events(&self, classes: &Classes, threads: &Threads, stacks: &[Vec<u64>]) -> Vec<Event> {
        type Of = layout::Event;
        let one = |record: &[u8]| {
            Some(Event {
                class: classes.number(get!(record, Of, class, u32))?,
                thread: *threads.numbers.get(&get!(record, Of, thread, u32))?,
                waiter: index(get!(record, Of, waiter, u32), stacks)?,
                cause: Cause::new(get!(record, Of, holder, u32), stacks)?,
                start: get!(record, Of, start, u64),
                nanos: get!(record, Of, nanos, u64),
                stands_for: get!(record, Of, stands_for, u64),
            })
        };
        let ready = |record: &&[u8]| get!(record, Of, state, u32) == READY;
        let mut events: Vec<_> = self.records(layout::EVENTS).filter(ready).filter_map(one).collect();
        events.sort_by_key(|event| event.start);
        events
    }
}

/// Threads, and where each record of the file is among them.
struct Threads {
    list: Vec<Thread>,
    numbers: HashMap<u32, usize>,
}

/// Numbers and nanoseconds.
#[derive(Default)]
struct Sums {
    /// Waits by class, waiter and cause.
    pairs: HashMap<(usize, usize, Cause), (u64, u64)>,
    /// Holds by class, holder, and whether for reading.
    holds: HashMap<(usize, usize, bool), (u64, u64)>,
}

impl Sums {
    /// Adds what a [`layout::Pair`] has. One with a stack that is not there is left out.
    fn add(
        &mut self,
        class: usize,
        waiter: u32,
        holder: u32,
        (count, nanos): (u64, u64),
        stacks: &[Vec<u64>],
    ) {
        let sum = match waiter {
            layout::holds::WRITE | layout::holds::READ => {
                let holder = index(holder, stacks).unwrap_or(0);
                self.holds.entry((class, holder, waiter == layout::holds::READ)).or_default()
            }
            _ => {
                let (Some(waiter), Some(cause)) = (index(waiter, stacks), Cause::new(holder, stacks)) else {
                    return;
                };
                self.pairs.entry((class, waiter, cause)).or_default()
            }
        };
        sum.0 = sum.0.saturating_add(count);
        sum.1 = sum.1.saturating_add(nanos);
    }
}

/// The classes while counters are added to them.
struct Classes {
    list: Vec<Class>,
    /// From the number in the file.
    numbers: HashMap<u32, usize>,
    /// From the number in the file: class, number in the class, address and serial number.
    objects: HashMap<u32, (usize, usize, u64, u32)>,
}

impl Classes {
    fn new(reader: &Reader, stacks: &[Vec<u64>]) -> Self {
        type Of = layout::Class;
        let mut classes = Self { list: Vec::new(), numbers: HashMap::new(), objects: HashMap::new() };
        for (number, record) in reader.records(layout::CLASSES).enumerate() {
            let Some(kind) = Kind::new(get!(record, Of, kind, u32)) else { continue };
            if get!(record, Of, state, u32) != READY {
                continue;
            }
            classes.numbers.insert(number as u32, classes.list.len());
            classes.list.push(Class {
                kind,
                birth: index(get!(record, Of, birth, u32), stacks).unwrap_or(0),
                instances: u64::from(get!(record, Of, instances, u32)),
                address: get!(record, Of, address, u64),
                counters: counters(record, offset_of!(Of, counters)),
                waits: reader.histogram(get!(record, Of, waits, u32)),
                holds: reader.histogram(get!(record, Of, holds, u32)),
                objects: Vec::new(),
            });
        }
        classes
    }

    fn number(&self, number: u32) -> Option<usize> {
        self.numbers.get(&number).copied()
    }

    /// The counters of an object, which a number and a serial number name; or of its class, if that object is gone.
    fn counters(&mut self, class: usize, (object, serial): (u32, u32)) -> &mut Counters {
        match self.objects.get(&object) {
            Some((of, number, _, found)) if (*of, *found) == (class, serial) => {
                &mut self.list[class].objects[*number]
            }
            _ => &mut self.list[class].counters,
        }
    }

    fn add_objects(&mut self, reader: &Reader) {
        type Of = layout::Object;
        for (number, record) in reader.records(layout::OBJECTS).enumerate() {
            let Some(class) = self.number(get!(record, Of, class, u32)) else { continue };
            if get!(record, Of, state, u32) != READY {
                continue;
            }
            let objects = &mut self.list[class].objects;
            let (address, serial) = (get!(record, Of, address, u64), get!(record, Of, serial, u32));
            self.objects.insert(number as u32, (class, objects.len(), address, serial));
            objects.push(counters(record, offset_of!(Of, counters)));
        }
    }

    /// Adds what threads counted for themselves.
    fn add_tables(&mut self, reader: &Reader) {
        type Of = layout::Entry;
        let tables = reader.records(layout::TABLES).map(|table| &table[..offset_of!(layout::Table, tallies)]);
        for entries in tables.chain(reader.records(layout::MORE)) {
            for entry in entries.chunks_exact(size_of::<Of>()) {
                let address = get!(entry, Of, address, u64);
                if address == 0 {
                    continue;
                }
                let counted = Counters {
                    acquisitions: get!(entry, Of, acquisitions, u64),
                    reads: u64::from(get!(entry, Of, reads, u32)),
                    failed: u64::from(get!(entry, Of, failed, u32)),
                    ..Counters::default()
                };
                let serial = entry[offset_of!(Of, serial)];
                let object = self.objects.get(&get!(entry, Of, object, u32));
                match object {
                    Some((class, object, found, of_object))
                        if (*found, *of_object as u8) == (address, serial) =>
                    {
                        self.list[*class].objects[*object].add(&counted);
                    }
                    _ => {
                        if let Some(class) = self.number(get!(entry, Of, class, u32)) {
                            self.list[class].counters.add(&counted);
                        }
                    }
                }
            }
        }
    }

    /// Adds the objects to their classes.
    fn finish(mut self) -> Vec<Class> {
        for class in &mut self.list {
            class.objects.iter().for_each(|object| class.counters.add(object));
            class.instances = class.instances.max(class.objects.len() as u64);
        }
        self.list
    }
}

/// Adds the wait that a thread has not added yet.
fn add_pending(record: &[u8], classes: &mut Classes, sums: &mut Sums, stacks: &[Vec<u64>]) {
    type Of = layout::Pending;
    let class = get!(record, Of, class, u32).checked_sub(1).and_then(|class| classes.number(class));
    let (Some(class), waiter) = (class, get!(record, Of, waiter, u32)) else { return };
    let nanos = get!(record, Of, nanos, u64);
    let object = (get!(record, Of, object, u32), get!(record, Of, serial, u32));
    classes.counters(class, object).add_wait(nanos);
    if let Some(count) = classes.list[class].waits.get_mut(histogram::bucket(nanos)) {
        *count += 1;
    }
    let weight = u64::from(get!(record, Of, weight, u32));
    if weight == 0 {
        return;
    }
    let mut add = |holder, nanos: u64| {
        sums.add(class, waiter, holder, (weight, nanos.saturating_mul(weight)), stacks);
    };
    add(layout::cause::WHOLE, nanos);
    let mut left = nanos;
    for part in 0..=HOLDERS {
        let holder = u32_at(record, offset_of!(Of, holders) + 4 * part);
        let length = u64_at(record, offset_of!(Of, parts) + 8 * part).min(left);
        if length == 0 {
            break;
        }
        if holder != layout::cause::WHOLE && Cause::new(holder, stacks).is_some() {
            left -= length;
            add(holder, length);
        }
    }
    if left > 0 {
        let cause = if left == nanos { layout::cause::UNKNOWN } else { layout::cause::HANDOVER };
        add(cause, left);
    }
}

impl Reader {
    /// The counts of a histogram; none for number 0.
    fn histogram(&self, number: u32) -> Vec<u64> {
        let record = self.records(layout::HISTOGRAMS).nth(number as usize);
        match record {
            Some(record) if number != 0 => (0..BUCKETS).map(|bucket| u64_at(record, 8 * bucket)).collect(),
            _ => Vec::new(),
        }
    }
}

fn counters(record: &[u8], at: usize) -> Counters {
    type Of = layout::Counters;
    let record = &record[at..at + size_of::<Of>()];
    Counters {
        acquisitions: get!(record, Of, acquisitions, u64),
        reads: get!(record, Of, reads, u64),
        failed: get!(record, Of, failed, u64),
        contended: get!(record, Of, contended, u64),
        wait_nanos: get!(record, Of, wait_nanos, u64),
        wait_max: get!(record, Of, wait_max, u64),
        timeouts: get!(record, Of, timeouts, u64),
        hold_nanos: get!(record, Of, hold_nanos, u64),
        hold_samples: get!(record, Of, hold_samples, u64),
        hold_max: get!(record, Of, hold_max, u64),
        relocks: get!(record, Of, relocks, u64),
        relock_nanos: get!(record, Of, relock_nanos, u64),
        most_waiting: get!(record, Of, most_waiting, u64),
        read_nanos: get!(record, Of, read_nanos, u64),
        read_samples: get!(record, Of, read_samples, u64),
        most_readers: get!(record, Of, most_readers, u64),
        timed_nanos: get!(record, Of, timed_nanos, u64),
        spun_nanos: get!(record, Of, spun_nanos, u64),
        successions: get!(record, Of, successions, u64),
        owner_changes: get!(record, Of, owner_changes, u64),
        cpu_changes: get!(record, Of, cpu_changes, u64),
        node_changes: get!(record, Of, node_changes, u64),
    }
}

/// A stack's number, if there is such a stack.
fn index(number: u32, stacks: &[Vec<u64>]) -> Option<usize> {
    ((number as usize) < stacks.len() && number != NONE).then_some(number as usize)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

mod estimates;
#[cfg(test)]
mod tests;
