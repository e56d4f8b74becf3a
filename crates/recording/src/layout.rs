//! The layout of the file.
//!
//! A file begins with a [`Header`]. The rest are *sections*: arrays of records of one size. The header says where each
//! section begins ([`Section`]), and how many records of it are in use. The file is sparse: it has its full length from the
//! start, but no storage behind what is in use.
//!
//! | section | record | index 0 | what it has |
//! |---|---|---|---|
//! | [`THREADS`] | [`Thread`] | a thread | each thread that used a lock, its totals, and what it waits for now |
//! | [`TABLES`] | [`Table`] | a table | what threads have counted and not yet added to an object |
//! | [`OBJECTS`] | [`Object`] | an object | each lock, condition variable and semaphore that is alive |
//! | [`CLASSES`] | [`Class`] | a class | the objects that were first used at the same place, and what was merged of those that are gone |
//! | [`PAIRS`] | [`Pair`] | a pair | who waited for a class, and because of whom |
//! | [`STACKS`] | [`Stack`] | no stack | return addresses |
//! | [`HISTOGRAMS`] | [`Histogram`] | no histogram | durations of a class |
//! | [`EVENTS`] | [`Event`] | an event | single waits, chosen in proportion to their length |
//! | [`MODULES`] | [`Module`] | a module | the files that are mapped as code |
//! | [`TEXT`] | a byte | a byte | paths and names |
//! | [`MORE`] | [`More`] | a table | what a thread that uses many locks has counted, besides its table |
//!
//! # How to read
//!
//! A *record in use* has an index below the section's count **and** `state` == [`READY`]. (A thread that is killed between
//! two stores leaves a record in another state.) An index may point anywhere if the file is damaged: check each.
//!
//! An object's totals are the sum of its own [`Counters`] and of those entries of all tables that name it:
//!
//! - An [`Entry`] (of a table, or of a record of [`MORE`]) with `address != 0` belongs to `OBJECTS[entry.object]` if that object is [`READY`] and has the same
//!   `address` and the same low byte of `serial`. Otherwise it belongs to `CLASSES[entry.class]`: the object is gone, or never had a record.
//! - A [`Tally`] with `class != 0` belongs to its object, or to its class, in the same way; and its `waits`, `nanos` and
//!   `squares` belong to the [`Pair`] that it names.
//! - A [`Pending`] wait of a thread (`class != 0`) is one that has ended, and that the thread adds to the records when it
//!   releases the lock. Add it: one wait of `nanos` to the class and to the object, and `weight` of them to the pairs.
//!
//! A class's totals are the sum of its own [`Counters`] (of objects that are gone) and those of its objects.
//!
//! # Times
//!
//! All times are nanoseconds of `CLOCK_MONOTONIC`; the header has one moment on both clocks. All durations are
//! nanoseconds.
//!
//! # Exact numbers and estimates
//!
//! The number of waits for an object and their sum are exact, and so are those of its class. The recorder finds out stacks and
//! holders of a part of the waits, which it chooses by chance; each stands for a number of waits. So the pairs of a class,
//! and its events, are unbiased estimates. Multiply the pairs of a class by one factor, so that those with [`cause::WHOLE`] add
//! up to the exact sum. The sum of their [`squares`] says how far an estimate may be from the truth.
//!
//! # Causes of a wait
//!
//! A wait is divided among the successive holders during the wait, each known by its stack. What remains is *handover*: no
//! thread held the lock. Readers of a rwlock hold it at the same time. Then each piece of the time goes to one of them: to the
//! first that leaves, as far as it held the lock.

use crate::histogram::BUCKETS;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// The first eight bytes of a file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LWRECORD");
/// The version of the layout. A reader refuses files of other versions.
pub const VERSION: u32 = 5;

/// The state of a record that is complete.
pub const READY: u32 = 1;

/// Numbers of the sections in [`Header::sections`].
pub const THREADS: usize = 0;
/// See [`THREADS`].
pub const TABLES: usize = 1;
/// See [`THREADS`].
pub const OBJECTS: usize = 2;
/// See [`THREADS`].
pub const CLASSES: usize = 3;
/// See [`THREADS`].
pub const PAIRS: usize = 4;
/// See [`THREADS`].
pub const STACKS: usize = 5;
/// See [`THREADS`].
pub const HISTOGRAMS: usize = 6;
/// See [`THREADS`].
pub const EVENTS: usize = 7;
/// See [`THREADS`].
pub const MODULES: usize = 8;
/// See [`THREADS`].
pub const TEXT: usize = 9;
/// See [`THREADS`].
pub const MORE: usize = 10;
/// How many sections there are.
pub const SECTIONS: usize = 11;

/// Where a section lies.
#[repr(C)]
pub struct Section {
    /// From the start of the file, in bytes; a multiple of 4096.
    pub offset: u64,
    /// Bytes of a record.
    pub record_size: u32,
    /// The most records that the section can have.
    pub capacity: u32,
    /// Records that are in use or being written. It may exceed `capacity`: take the smaller of the two.
    pub count: AtomicU32,
    /// Records that there was no room for.
    pub dropped: AtomicU32,
}

/// Bytes of the section [`TEXT`].
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The index of the first byte.
    pub start: u32,
    /// How many bytes. 0: there is no text.
    pub length: u32,
}

/// The start of the file. The recorder writes `magic` last.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of this struct.
    pub header_size: u32,
    /// The process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// When the recording began, on `CLOCK_MONOTONIC`.
    pub started: u64,
    /// The same moment on `CLOCK_REALTIME`.
    pub started_realtime: u64,
    /// When the process ended; 0 if it has not, or was killed: see [`Header::gone`].
    pub ended: AtomicU64,
    /// The path of the executable.
    pub executable: Text,
    /// The arguments of the process, each with a zero behind it.
    pub arguments: Text,
    /// The lock behind mutexes: its name in latchwork's registry, or `glibc`.
    pub mutex: Text,
    /// The lock behind rwlocks.
    pub rwlock: Text,
    /// Of the acquisitions that are not contended, one in so many has its hold time measured. (The first ones of a thread at
    /// an object all have.)
    pub hold_period: u32,
    /// From when on the process was recorded: see [`began`].
    pub began: u32,
    /// How much waiting one [`Event`] stands for, at the end of the recording. See there.
    pub event_period: AtomicU64,
    /// Stacks that were unwound, and those that were found in a thread's cache.
    pub unwound: AtomicU64,
    /// See [`Header::unwound`].
    pub cached: AtomicU64,
    /// Time spent unwinding.
    pub unwinding_nanos: AtomicU64,
    /// How often a thread could not write or read an object's account in time. The cause of some waits is then not known.
    pub unaccounted: AtomicU64,
    /// Children that this process forked and that could not make a file. Nothing of them and of their children is recorded.
    pub lost: AtomicU64,
    /// When the command saw that the process was gone, which it writes if `ended` is 0. 0: it did not see that; then the
    /// largest [`Thread::seen`] is the last sign of life.
    pub gone: u64,
    /// For later versions; zero.
    pub spare: [u64; 14],
    /// Where the sections are.
    pub sections: [Section; SECTIONS],
}

/// From when on a process was recorded.
pub mod began {
    /// From its start on.
    pub const START: u32 = 0;
    /// The recording was made in a forked child, and begins at the fork.
    pub const FORK: u32 = 1;
    /// The process ran already, and an observer asked for the recording.
    pub const LATE: u32 = 2;
}

/// What an object or a class is.
pub mod kind {
    /// A mutex. Each acquisition is a write.
    pub const MUTEX: u32 = 1;
    /// A reader-writer lock.
    pub const RWLOCK: u32 = 2;
    /// A spin lock.
    pub const SPIN: u32 = 3;
    /// A condition variable. `contended`, `wait_nanos` and `wait_max` are its waits, `timeouts` those that ended at the
    /// deadline, `reads` are notifications (signals and broadcasts). None of its waits is contention.
    pub const CONDVAR: u32 = 4;
    /// A semaphore. `acquisitions` are units taken, `contended` the calls that waited for one, `reads` are posts. It has no
    /// holder. `relocks`: of the waits that got a unit, those after which the same thread posted. Where that is so of nearly all, the
    /// semaphore serves as a lock.
    pub const SEMAPHORE: u32 = 5;
    /// A barrier. Only traces have them.
    pub const BARRIER: u32 = 6;
    /// Added to [`MUTEX`] or [`RWLOCK`]: a lock of `latchwork.h`, which serves itself.
    pub const OWN: u32 = 1 << 8;

    /// Whether it is a reader-writer lock.
    pub const fn is_rwlock(kind: u32) -> bool {
        kind & !OWN == RWLOCK
    }
}

/// What is counted of an object or a class.
#[repr(C)]
pub struct Counters {
    /// Successful lock calls, for reading and for writing.
    pub acquisitions: AtomicU64,
    /// Those of them that were for reading (rwlock), or that a thread made which held the recursive mutex already. See [`kind`] for
    /// condition variables and semaphores.
    pub reads: AtomicU64,
    /// Attempts (`trylock`) that did not get the lock.
    pub failed: AtomicU64,
    /// Calls that had to wait, whether or not they got the lock.
    pub contended: AtomicU64,
    /// How long these waited.
    pub wait_nanos: AtomicU64,
    /// The longest wait.
    pub wait_max: AtomicU64,
    /// Calls that gave up at their deadline. They are among `contended`.
    pub timeouts: AtomicU64,
    /// Hold times, as far as they were measured: each sampled one counts as often as it stands for. For reading and for writing.
    pub hold_nanos: AtomicU64,
    /// For how many acquisitions `hold_nanos` stands. `hold_nanos / hold_samples` is the mean.
    pub hold_samples: AtomicU64,
    /// The longest measured hold.
    pub hold_max: AtomicU64,
    /// Of a mutex: how often a thread took it again after waiting for a condition variable and had to wait for that. These
    /// calls are in no other number of this struct, but for `acquisitions`. See [`kind::SEMAPHORE`] for semaphores.
    pub relocks: AtomicU64,
    /// How long those waited. Pairs with [`RELOCK`] name the holders that caused that.
    pub relock_nanos: AtomicU64,
    /// The most threads that waited at the same time.
    pub most_waiting: AtomicU64,
    /// As `hold_nanos`, of the acquisitions for reading only.
    pub read_nanos: AtomicU64,
    /// As `hold_samples`, of the acquisitions for reading only.
    pub read_samples: AtomicU64,
    /// The most readers that were seen inside at the same time. A look at all threads' tables finds them, now and then.
    pub most_readers: AtomicU64,
    /// How long those waits were of which the CPU time was measured: a sample. Each counts as often as it stands for.
    pub timed_nanos: AtomicU64,
    /// The CPU time of those. The thread was spinning then; during the rest it slept, or waited for a CPU.
    pub spun_nanos: AtomicU64,
    /// For how many acquisitions it was found out which thread had the lock before, and where.
    pub successions: AtomicU64,
    /// For how many of those it was another thread.
    pub owner_changes: AtomicU64,
    /// For how many of those it was another CPU.
    pub cpu_changes: AtomicU64,
    /// For how many of those it was a CPU of another NUMA node.
    pub node_changes: AtomicU64,
}

/// Holders that an object distinguishes; one more is for all others together.
pub const HOLDERS: usize = 7;

/// Of the holders that have been charged for a long section without having been known before, an object keeps so many.
pub const LATE: usize = 4;

/// A lock, condition variable or semaphore.
#[repr(C, align(64))]
pub struct Object {
    /// [`READY`], or another value if the record is not in use.
    pub state: AtomicU32,
    /// Changes each time the record is used for another object.
    pub serial: AtomicU32,
    /// The address in the process.
    pub address: AtomicU64,
    /// Its class.
    pub class: AtomicU32,
    /// Threads that wait now.
    pub waiting: AtomicU32,
    /// When the first of the threads that wait now came.
    pub first_waiter: AtomicU64,
    /// Odd while a thread writes the fields from here to `late_since`.
    pub account: AtomicU32,
    /// The stack of the present holder, if it acquired the lock while threads waited; else 0.
    pub holder: AtomicU32,
    /// Up to when all time has been charged; or when the present holder acquired the lock, if it is known and later.
    pub charged_until: AtomicU64,
    /// The stack of the first holder since threads wait, if that is known.
    pub first_holder: AtomicU32,
    /// For the recorder: 0 while `holders`, `holder_nanos` and `counters` are all zero.
    pub used: AtomicU32,
    /// For the recorder: which thread acquired the lock, and where, if the next one that acquires it shall compare; else 0.
    pub last: AtomicU64,
    /// The stacks of the holders.
    pub holders: [AtomicU32; HOLDERS + 1],
    /// How long each stack held the lock while threads waited. The last sum is for all other stacks, and for those whose place was
    /// given to another stack.
    pub holder_nanos: [AtomicU64; HOLDERS + 1],
    /// For the recorder: how often each place was given to another holder.
    pub replaced: [AtomicU8; HOLDERS],
    /// For the recorder: what each holder has been charged for lately, in microseconds.
    pub recent: [AtomicU32; HOLDERS],
    /// For the recorder: how much of the time before `charged_until`, while threads waited, no reader has been charged for.
    pub uncharged: AtomicU64,
    /// For the recorder: how many holders have been charged for a section of which no waiter could know while it lasted.
    pub late: AtomicU32,
    /// For the recorder: the stacks of the last of these. Number *n* is at the index *n* modulo [`LATE`].
    pub late_holders: [AtomicU32; LATE],
    /// For the recorder: from when on each of these was charged.
    pub late_since: [AtomicU64; LATE],
    /// The totals, without what is in the tables of threads.
    pub counters: Counters,
}

/// The objects that were first used (or initialised) at one stack. An object in the data of a module has a class of its own.
#[repr(C, align(64))]
pub struct Class {
    /// [`READY`], or another value if the record is not in use.
    pub state: AtomicU32,
    /// One of [`kind`].
    pub kind: AtomicU32,
    /// The stack of the first use: its innermost frames, at most eight.
    pub birth: AtomicU32,
    /// Objects that the class has had.
    pub instances: AtomicU32,
    /// The address, if the object lies in a module's data; else 0.
    pub address: AtomicU64,
    /// The histogram of waits, or 0.
    pub waits: AtomicU32,
    /// The histogram of hold times, or 0.
    pub holds: AtomicU32,
    /// What was counted of objects that are gone, and of objects without a record.
    pub counters: Counters,
    /// The name that the program has given to its objects, with zeros behind it. All objects of a class have the same.
    pub name: [AtomicU8; NAME],
}

/// The most bytes of the name of a class.
pub const NAME: usize = 39;
// The name takes the place of padding: older files of this version have zeros there.
const _: () = assert!(size_of::<Class>() == 256);

/// In place of the holder's stack in a [`Pair`].
pub mod cause {
    /// The whole wait: the pair counts the waits and their sum.
    pub const WHOLE: u32 = 0;
    /// No thread held the lock: the time between a release and the waiter's return, in a wait of which a holder caused
    /// another part.
    pub const HANDOVER: u32 = u32::MAX;
    /// Holders beyond the number that an object distinguishes.
    pub const OTHERS: u32 = u32::MAX - 1;
    /// No holder is known for any part of the wait: it released the lock just as the thread began to wait, and did not see it;
    /// or the object has no record.
    pub const UNKNOWN: u32 = u32::MAX - 2;
    /// The thread gave up at its deadline, and the holder had not released the lock. It had acquired the lock before threads
    /// waited, so it would have said at its release where.
    pub const STILL_HELD: u32 = u32::MAX - 4;
}

/// In place of the waiter's stack in a [`Pair`]: nobody waits, and the pair has the hold times of one holder. `waits` is the
/// number of holds. They were measured because threads waited, or by chance.
pub mod holds {
    /// For writing.
    pub const WRITE: u32 = u32::MAX;
    /// For reading.
    pub const READ: u32 = u32::MAX - 1;
}

/// Added to the waiter's stack in a [`Pair`] or a [`Tally`]: the thread waited for its mutex again, after a wait for a condition
/// variable at that stack. Such a pair belongs to [`Counters::relocks`]. In older files of this version there are none.
pub const RELOCK: u32 = 1 << 30;

/// In place of the waiter's stack in a [`Tally`]: it has all waits for the object, and their exact sum. There is no such pair.
pub const ALL_WAITS: u32 = u32::MAX - 2;

/// How long threads waited for a class at one stack, because one holder held it: an estimate, from a part of the waits. See the
/// [module](self).
#[repr(C)]
pub struct Pair {
    /// [`READY`], or another value if the record is not in use.
    pub state: AtomicU32,
    /// The class.
    pub class: AtomicU32,
    /// The stack of the waiting threads, perhaps with [`RELOCK`], or one of [`holds`].
    pub waiter: AtomicU32,
    /// The stack of the holder, or one of [`cause`]. The other pairs of a waiter add up to the one with
    /// [`cause::WHOLE`]. (In a pair with [`holds`], 0 stands for holders that are not known.)
    pub holder: AtomicU32,
    /// Waits in which this holder had a part.
    pub waits: AtomicU64,
    /// The sum of those parts.
    pub nanos: AtomicU64,
    /// The sum of their [`squares`].
    pub squares: AtomicU64,
}

/// What the part `nanos` of a wait that stands for `weight` waits adds to [`Pair::squares`], in square microseconds.
///
/// A wait that stands for *w* was chosen with a probability of 1/*w*, independently of the others. The sum of *w* *x* over the
/// chosen parts *x* estimates the sum of all parts. The sum of *w* (*w* - 1) *x* squared estimates the variance of that
/// estimate (Horvitz and Thompson, 1952).
pub const fn squares(weight: u32, nanos: u64) -> u64 {
    let stands_for = nanos.saturating_mul(weight as u64);
    (stands_for / 1000).saturating_mul((stands_for - nanos) / 1000)
}

/// The most return addresses of a stack.
pub const FRAMES: usize = 30;

/// Return addresses, the innermost first. The frames of the recorder itself are left out: the first address is in the
/// function that called the pthread function.
#[repr(C)]
pub struct Stack {
    /// [`READY`], or another value if the record is not in use.
    pub state: AtomicU32,
    /// How many addresses there are.
    pub depth: AtomicU16,
    /// [`Module::replaced`] of the last module that took the place of another one before this record was made; 0: none had.
    pub replaced: AtomicU16,
    /// Identifies the stack.
    pub hash: AtomicU64,
    /// The addresses. Each is behind a call instruction: look up the symbol of the address minus 1.
    pub frames: [AtomicU64; FRAMES],
}

/// Durations: see [`crate::histogram`] for the buckets.
#[repr(C, align(64))]
pub struct Histogram {
    /// How many durations lie in each bucket.
    pub counts: [AtomicU64; BUCKETS],
}

/// One wait. The recorder chooses waits in proportion to their length: each event stands for [`Event::stands_for`]
/// nanoseconds of waiting. A wait that is longer than that is always chosen, and stands for at least itself.
#[repr(C)]
pub struct Event {
    /// [`READY`], or another value if the record is not in use.
    pub state: AtomicU32,
    /// The class.
    pub class: AtomicU32,
    /// The object, or [`NONE`].
    pub object: AtomicU32,
    /// The waiting thread: an index into [`THREADS`].
    pub thread: AtomicU32,
    /// Its stack.
    pub waiter: AtomicU32,
    /// The holder's stack with the largest part in the wait, or one of [`cause`].
    pub holder: AtomicU32,
    /// When the wait began.
    pub start: AtomicU64,
    /// How long it took.
    pub nanos: AtomicU64,
    /// See [`Event`].
    pub stands_for: AtomicU64,
}

/// In place of an index: there is no such record.
pub const NONE: u32 = u32::MAX;

/// A file that is mapped as code.
#[repr(C)]
pub struct Module {
    /// [`READY`], or another value if the record is not in use.
    pub state: AtomicU32,
    /// Bytes of the build id; 0: it has none.
    pub build_id_length: AtomicU16,
    /// How many modules had taken the place of another one, which was unloaded before, when this record was made; this one is
    /// among them.
    pub replaced: AtomicU16,
    /// The first address of the mapping.
    pub start: AtomicU64,
    /// The first address behind it.
    pub end: AtomicU64,
    /// What to subtract from an address to get the address in the file.
    pub bias: AtomicU64,
    /// The start of its path.
    pub path: AtomicU32,
    /// The length of its path.
    pub path_length: AtomicU32,
    /// The build id.
    pub build_id: [AtomicU8; 32],
}

/// A wait that has ended, and that its thread adds to the records when it releases the lock.
#[repr(C)]
pub struct Pending {
    /// The class plus one; 0: there is no pending wait. The thread stores it last.
    pub class: AtomicU32,
    /// The object, or [`NONE`]. While the thread waits for a lock and `class` is 0: the object for which it waits.
    pub object: AtomicU32,
    /// The object's serial number.
    pub serial: AtomicU32,
    /// The stack of the waiter.
    pub waiter: AtomicU32,
    /// For how many waits it stands in the pairs; 0: it is in no pair.
    pub weight: AtomicU32,
    /// Not of the wait: where the thread has its entries. Low half: the index of its [`Table`] plus one. High half: the index of its
    /// [`More`] plus one, or 0. The last thread that names a table has it. In older files of this version it is 0.
    pub tables: AtomicU32,
    /// When the wait began.
    pub start: AtomicU64,
    /// How long it took.
    pub nanos: AtomicU64,
    /// The stacks of the holders that caused it, or 0.
    pub holders: [AtomicU32; HOLDERS + 1],
    /// The part of each, up to the first that is 0. What is missing to `nanos` is [`cause::HANDOVER`], or [`cause::UNKNOWN`] if all
    /// is missing.
    pub parts: [AtomicU64; HOLDERS + 1],
}

/// A thread that has used a lock.
#[repr(C, align(64))]
pub struct Thread {
    /// [`READY`], or another value if the record is not in use.
    pub state: AtomicU32,
    /// The kernel's number of the thread.
    pub tid: AtomicU32,
    /// Its name when it first used a lock; zeroes behind it.
    pub name: [AtomicU8; 16],
    /// When it was started, or the recording began; up to 10 ms later, because the kernel counts that in ticks. If the kernel does not
    /// tell it, when the thread first used a lock.
    pub started: AtomicU64,
    /// When it was last seen in a call that read the clock.
    pub seen: AtomicU64,
    /// When it ended; 0 if it has not, or if that was not noticed.
    pub ended: AtomicU64,
    /// Waits for locks, and for how long.
    pub waits: AtomicU64,
    /// See `waits`.
    pub wait_nanos: AtomicU64,
    /// Waits for condition variables and semaphores, and for how long.
    pub sleeps: AtomicU64,
    /// See `sleeps`.
    pub sleep_nanos: AtomicU64,
    /// The class that it waits for now, plus one; 0: it does not wait.
    pub waits_for: AtomicU32,
    /// The stack at which it waits.
    pub waits_at: AtomicU32,
    /// Since when.
    pub waits_since: AtomicU64,
    /// Its last wait.
    pub pending: Pending,
    /// The kernel's number of the thread that held the lock that it waits for, when the wait began or when the process ended; 0: not known.
    /// In older files of this version it is 0.
    pub held_by: AtomicU32,
}
// The last one takes the place of padding.
const _: () = assert!(size_of::<Thread>() == 256);

/// Objects of which a thread counts calls for itself.
pub const ENTRIES: usize = 64;

/// What a thread has counted of an object, and not yet added to it. Only this thread writes it.
#[repr(C, align(64))]
pub struct Entry {
    /// The object's address; 0: the entry is free.
    pub address: AtomicU64,
    /// The object, or [`NONE`].
    pub object: AtomicU32,
    /// The class.
    pub class: AtomicU32,
    /// As in [`Counters`].
    pub acquisitions: AtomicU64,
    /// When the thread acquired the lock, if it measures how long it holds it; else 0.
    pub held_since: AtomicU64,
    /// The return address of the thread's last lock call.
    pub caller: AtomicU64,
    /// The low half of the address at which the return address lay.
    pub slot: AtomicU32,
    /// For the recorder: while a number that it keeps for the address has this value, calls have nothing to record but their
    /// number.
    pub filter: AtomicU32,
    /// As in [`Counters`].
    pub reads: AtomicU32,
    /// As in [`Counters`].
    pub failed: AtomicU32,
    /// The stack at which the thread acquired the lock, if it holds it and that is known; else 0. Stacks are few enough.
    pub site: AtomicU16,
    /// For the recorder: the logarithm to base 2 of the number of acquisitions for which the present hold time stands (low half), and the low
    /// bits of `acquisitions` when it began. While `open` is 0: those bits at the last release. See [`Entry::holds`].
    pub weight: AtomicU8,
    /// For the recorder: so many of the next acquisitions capture their stack (low half), and the logarithm of the number of
    /// sections for which the present one pays.
    pub hot: AtomicU8,
    /// For the recorder: so many of the next acquisitions have their hold time measured.
    pub first: AtomicU8,
    /// For the recorder: not 0 while the thread holds the lock, and often after its release. It is [`READING`] if that is a rwlock that
    /// the thread holds for reading.
    pub depth: AtomicU8,
    /// For the recorder: 1 while the thread holds the lock and its release has something to record.
    pub open: AtomicU8,
    /// The low byte of the object's serial number when the thread made the entry.
    pub serial: AtomicU8,
}

/// In [`Entry::depth`]: the thread holds the lock for reading.
pub const READING: u8 = u8::MAX;

impl Entry {
    /// Whether the thread holds the lock, if that is a mutex or a spin lock each release of which the recorder notes: one of `latchwork.h`,
    /// or any where latchwork serves mutexes ([`Header::mutex`]). `depth`, `open`, `weight` and `acquisitions` are the fields of the entry. (A
    /// thread holds a reader-writer lock while `depth` is not 0.)
    pub const fn holds(depth: u8, open: u8, weight: u8, acquisitions: u64) -> bool {
        depth != 0 && (open != 0 || weight >> STAMP_SHIFT != acquisitions as u8 & (u8::MAX >> STAMP_SHIFT))
    }
}

/// Where [`Entry::weight`] has the bits of `acquisitions`.
pub const STAMP_SHIFT: u32 = 4;

/// Objects of which a thread with many counts calls for itself.
pub const MORE_ENTRIES: usize = 4096;

/// The entries of a thread that uses more locks than a table has room for. Those of its table are empty then.
#[repr(C, align(64))]
pub struct More {
    /// The entries.
    pub entries: [Entry; MORE_ENTRIES],
}

/// Pairs of which a thread sums up waits and holds for itself.
pub const TALLIES: usize = 32;

/// What a thread has counted for a [`Pair`] and for an object, and not yet added to them. Only this thread writes it.
#[repr(C)]
pub struct Tally {
    /// The class plus one; 0: the tally is free.
    pub class: AtomicU32,
    /// The object, or [`NONE`].
    pub object: AtomicU32,
    /// The object's serial number.
    pub serial: AtomicU32,
    /// As in [`Pair`], or [`ALL_WAITS`].
    pub waiter: AtomicU32,
    /// As in [`Pair`].
    pub holder: AtomicU32,
    /// As in [`Pair`]. With [`ALL_WAITS`] or [`holds`], it belongs to the object, too.
    pub waits: AtomicU32,
    /// As `waits`.
    pub nanos: AtomicU64,
    /// As in [`Pair`].
    pub squares: AtomicU64,
}

/// The entries and tallies of one thread.
#[repr(C, align(64))]
pub struct Table {
    /// The entries.
    pub entries: [Entry; ENTRIES],
    /// The tallies.
    pub tallies: [Tally; TALLIES],
}

const _: () = {
    assert!(size_of::<Entry>() == 64 && size_of::<Tally>() == 40 && size_of::<Table>() == 5376);
    assert!(size_of::<Stack>() == 256 && size_of::<Object>() == 448 && size_of::<Header>() <= 4096);
    // The recorder reads these together.
    assert!(core::mem::offset_of!(Object, waiting) / 64 == core::mem::offset_of!(Object, last) / 64);
};
