//! The raw trace of `latchwork record`: what the preload library writes while the program runs.
//!
//! `latchwork record` turns it into the file that users keep (the module `trace_file`). The library and the command
//! are of one version, because the command carries the library; so this layout may change at any time.
//!
//! The file begins with a [`Header`] in a page of its own. Four arrays follow: [`Thread`]s, [`Object`]s, [`Module`]s, and
//! [`Chunk`]s of [`Event`]s of one [`UNIT`] or several. Each begins at a fixed place. The file is sparse: the kernel gives it storage where something is
//! written.
//!
//! # Times
//!
//! An event has the ticks of the recorder's clock since the thread's event before it ([`Event::gap`]), and how long the call
//! itself waited ([`Event::wait`]). The sum of both over the events of a thread is the time since [`Thread::started`]. The clock
//! is the processor's time-stamp counter where that runs at one rate, else `CLOCK_MONOTONIC`. The header has two moments on the
//! recorder's clock and on `CLOCK_MONOTONIC`, from which a reader computes the length of a tick.
//!
//! # CPU time
//!
//! Reading a thread's own clock (`CLOCK_THREAD_CPUTIME_ID`) is a system call of 100 to 300 ns, which is too much for each event.
//! The recorder reads it only after a gap or a wait of at least [`Header::long`] ticks, and writes it down as a [`op::CLOCK`]
//! event. A thread that leaves its processor and comes back takes at least some microseconds, so the time off the processor
//! between two such events is known, and lies within the one long gap or in the long waits before it. See
//! the module `trace_raw` for how the reader divides it.
//!
//! # What the recorder does in between
//!
//! A new [`Chunk`] takes some microseconds, because the kernel must find memory for it. A thread makes its next chunk after it
//! has released a lock, before it needs it, so that no other thread waits for a lock meanwhile. An [`op::COST`] event has the time.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first eight bytes of a raw trace.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LWTRACE2");

/// What happened: the highest 4 bits of [`Event::what`]. The other 28 bits are the index of an [`Object`], if nothing else is said.
pub mod op {
    /// The thread acquired the lock, alone. [`Event::more`](super::Event::more) is 1 for a recursive mutex.
    pub const ACQUIRE: u32 = 1;
    /// The thread acquired the lock for reading.
    pub const READ: u32 = 2;
    /// The thread released the lock. `gap` is the time until it began to, and `wait` how long the call took: it may have woken
    /// other threads.
    pub const RELEASE: u32 = 3;
    /// An attempt did not get the lock, or a call gave up at its deadline. `wait` is how long it took. Of a condition variable
    /// with `wait` 0: the [`SLEEP`] that is the thread's last event of this object ended at its deadline.
    pub const FAILED: u32 = 4;
    /// The thread waited for something to happen: a condition, a unit of a semaphore, a barrier. `wait` is how long. Of a barrier,
    /// [`Event::more`](super::Event::more) is 1 for the thread that the barrier has chosen (`PTHREAD_BARRIER_SERIAL_THREAD`).
    pub const SLEEP: u32 = 5;
    /// The thread caused something for which threads wait: it signalled a condition or posted a semaphore. `gap` and `wait` are as
    /// those of [`RELEASE`].
    pub const WAKE: u32 = 6;
    /// The thread woke all threads that wait for a condition.
    pub const WAKE_ALL: u32 = 7;
    /// The thread's CPU time and its context switches: see [`clock`](super::clock).
    pub const CLOCK: u32 = 8;
    /// The thread has exited.
    pub const EXIT: u32 = 9;
    /// The thread acquired the lock, alone, by a call that does not wait. As [`ACQUIRE`].
    pub const TRY: u32 = 10;
    /// The recorder did something for itself. `wait` is how long; the time lies in the gap of the thread's next event.
    pub const COST: u32 = 11;
    /// The thread created another one. In place of an object: the index of that [`Thread`](super::Thread). `gap` and `wait` are as
    /// those of [`RELEASE`].
    pub const CREATE: u32 = 12;
    /// The thread waited for the end of another one. In place of an object: see [`join`](super::join). `wait` is how long.
    pub const JOIN: u32 = 13;
}

/// The content of [`op::CLOCK`]. [`Event::wait`] has the low 32 bits of the thread's CPU time in nanoseconds. [`Event::more`] has
/// the next 16 bits, the low 8 bits of the number of voluntary context switches, and those of involuntary ones.
pub mod clock {
    /// [`Event::more`](super::Event::more).
    pub fn pack(nanos: u64, voluntary: u64, involuntary: u64) -> u32 {
        (nanos >> 32) as u32 & 0xffff | (voluntary as u32 & 0xff) << 16 | (involuntary as u32) << 24
    }

    /// The CPU time, and the two numbers of switches.
    pub fn unpack(wait: u32, more: u32) -> (u64, u8, u8) {
        (u64::from(wait) | u64::from(more & 0xffff) << 32, (more >> 16) as u8, (more >> 24) as u8)
    }
}

/// Which thread is meant by [`op::JOIN`]: its `pthread_t`, the low part in place of an object and the rest in [`Event::more`]. 0: the
/// call gave up at its deadline.
pub mod join {
    use super::{NO_OBJECT, OBJECT_BITS};

    /// A `pthread_t` is the address of a structure, so its lowest bits are zeroes.
    const ZEROES: u32 = 4;

    /// The number in place of an object, and [`Event::more`](super::Event::more).
    pub fn pack(handle: u64) -> (u32, u32) {
        let bits = handle >> ZEROES;
        (bits as u32 & NO_OBJECT, (bits >> OBJECT_BITS) as u32)
    }

    /// What [`pack`] has packed.
    pub fn unpack(object: u32, more: u32) -> u64 {
        (u64::from(object) | u64::from(more) << OBJECT_BITS) << ZEROES
    }
}

/// Bits of [`Event::what`] that name the object.
pub const OBJECT_BITS: u32 = 28;
/// In place of an object's index: there is none.
pub const NO_OBJECT: u32 = (1 << OBJECT_BITS) - 1;

/// One event: 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The operation and the object.
    pub what: u32,
    /// Ticks since the end of the thread's event before, [`pack`]ed.
    pub gap: u32,
    /// Ticks that the call waited, [`pack`]ed. 0: it did not wait. See also [`op::RELEASE`].
    pub wait: u32,
    /// See [`op::ACQUIRE`], [`op::CLOCK`], [`op::SLEEP`] and [`op::JOIN`]. Otherwise 0.
    pub more: u32,
}

/// A number of ticks in 32 bits. From 2^31 on in units of 1024 ticks; at most 2^41.
#[inline(always)]
pub fn pack(ticks: u64) -> u32 {
    if ticks < 1 << 31 { ticks as u32 } else { (ticks >> 10).min((1 << 31) - 1) as u32 | 1 << 31 }
}

/// What [`pack`] has packed, rounded down to the unit.
pub fn unpack(packed: u32) -> u64 {
    if packed >> 31 == 0 { packed.into() } else { u64::from(packed & !(1 << 31)) << 10 }
}

/// The start of the file. The recorder writes `magic` last.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The process.
    pub pid: u32,
    /// 1: the trace was begun in a forked child.
    pub forked: u32,
    /// When the recording began: ticks.
    pub started_ticks: u64,
    /// The same moment: nanoseconds of `CLOCK_MONOTONIC`.
    pub started: u64,
    /// When the process ended; 0 if it has not, or was killed.
    pub ended_ticks: AtomicU64,
    /// The same moment on `CLOCK_MONOTONIC`.
    pub ended: AtomicU64,
    /// Ticks of a gap or a wait from which on the thread's CPU time is read.
    pub long: u64,
    /// Ticks from an acquisition to the release if the program does nothing in between, on the recording machine.
    pub empty_hold: AtomicU32,
    /// Ticks from the end of a release to the next acquisition if the program does nothing in between.
    pub empty_gap: AtomicU32,
    /// Ticks that a release takes which wakes no other thread.
    pub empty_release: AtomicU32,
    /// Records in use. Each may exceed its capacity: take the smaller of the two.
    pub threads: AtomicU32,
    /// See `threads`.
    pub objects: AtomicU32,
    /// See `threads`.
    pub modules: AtomicU32,
    /// See `threads`.
    pub units: AtomicU32,
    /// How many units the file has room for.
    pub unit_capacity: u32,
    /// Ticks that one [`op::CLOCK`] event takes. They lie in the gap of the thread's next event.
    pub clock_cost: AtomicU32,
    /// Events of threads, or of objects, that there was no record for.
    pub unknown: AtomicU64,
    /// Children that this process forked and that could not make a file. Nothing of them and of their children is recorded.
    pub lost: AtomicU64,
    /// The locks that serve, each with a zero behind it.
    pub mutex: [u8; 48],
    /// See `mutex`.
    pub rwlock: [u8; 48],
    /// The path of the executable, with a zero behind it.
    pub executable: [u8; 1024],
}

/// The most threads of a trace.
pub const THREADS: usize = 256 << 10;
/// The most locks, condition variables and semaphores.
pub const OBJECTS: usize = 64 << 10;
/// The most modules.
pub const MODULES: usize = 512;

/// Return addresses of a stack.
pub const FRAMES: usize = 24;

/// A thread that has used a lock, or that a recorded thread has created.
#[repr(C)]
pub struct Thread {
    /// 1 if the record is complete.
    pub state: AtomicU32,
    /// The thread's number.
    pub tid: AtomicU32,
    /// When its first event began: ticks.
    pub started: AtomicU64,
    /// The first unit of its first chunk, plus one; 0: it has none.
    pub first: AtomicU32,
    /// Return addresses in use of `frames`.
    pub depth: AtomicU32,
    /// Events that there was no room for.
    pub dropped: AtomicU64,
    /// [`Module::replaced`] of the last module that took the place of another one before the stack was captured; 0: none had.
    pub replaced: AtomicU32,
    /// For alignment.
    pub spare: u32,
    /// Its `pthread_t`. Another thread may have the same when this one has been joined.
    pub handle: AtomicU64,
    /// The stack of its first call: return addresses, the innermost first. Of a thread that makes no call: the address of its
    /// function, plus one.
    pub frames: [AtomicU64; FRAMES],
}

/// A lock, a condition variable, a semaphore or a barrier.
#[repr(C)]
pub struct Object {
    /// 1 if the record is complete.
    pub state: AtomicU32,
    /// One of [`kind`](crate::layout::kind). With [`GONE`] if the library that has it was unloaded. See also [`REMADE`].
    pub kind: AtomicU32,
    /// Where it lies.
    pub address: AtomicU64,
    /// 1: within a module's data.
    pub is_static: AtomicU32,
    /// Return addresses in use of `frames`.
    pub depth: AtomicU32,
    /// As [`Thread::replaced`].
    pub replaced: AtomicU32,
    /// Of a barrier, how many threads it takes. 0: not known. [`SHARED`]: threads of other processes may come, too.
    pub parties: AtomicU32,
    /// Where it was initialised, or else first used: return addresses, the innermost first.
    pub frames: [AtomicU64; FRAMES],
}

/// In [`Object::parties`].
pub const SHARED: u32 = u32::MAX;

/// In [`Object::kind`]: another object may lie at the address now.
pub const GONE: u32 = 1 << 31;
/// In [`Object::kind`]: a barrier for another number of threads lies at the address now. It may come back.
pub const REMADE: u32 = 1 << 30;

/// A file that is mapped as code or as data.
#[repr(C)]
pub struct Module {
    /// 1 if the record is complete.
    pub state: AtomicU32,
    /// Bytes of the build id.
    pub build_id_length: AtomicU32,
    /// The first address that belongs to the module.
    pub start: AtomicU64,
    /// The first address behind it.
    pub end: AtomicU64,
    /// What to subtract from an address in memory to have the address in the file.
    pub bias: AtomicU64,
    /// How many modules had taken the place of another one, which was unloaded before, when this record was made; this one is
    /// among them.
    pub replaced: AtomicU32,
    /// For alignment.
    pub spare: u32,
    /// The build id.
    pub build_id: [AtomicU8; 32],
    /// The path, with a zero behind it; empty for the program itself.
    pub path: [AtomicU8; 960],
}

/// The room for events is given out in units of so many bytes.
pub const UNIT: usize = 1 << 10;
/// The units of the largest chunks. A thread's first chunk has one, and each further one twice as many as the one before, up to this
/// number: so short threads need little room.
pub const MOST_UNITS: u32 = 16;

/// How many events a chunk of so many units has.
pub const fn events_of(units: u32) -> usize {
    (units as usize * UNIT - size_of::<Chunk>()) / size_of::<Event>()
}

/// The start of a chunk, which has events of one thread. They follow, each as two words of 64 bits: `what` and `gap`, `wait` and `more`;
/// the first of each pair in the low half.
#[repr(C)]
pub struct Chunk {
    /// The first unit of the thread's next chunk, plus one; 0: there is none yet.
    pub next: AtomicU32,
    /// Events in use.
    pub used: AtomicU32,
    /// The thread's index, plus one.
    pub thread: AtomicU32,
    /// How many units it has.
    pub units: AtomicU32,
}

const PAGE: usize = 4096;
/// Where the threads begin, in bytes from the start of the file.
pub const THREADS_AT: usize = PAGE;
/// Where the objects begin.
pub const OBJECTS_AT: usize = after(THREADS_AT, size_of::<Thread>() * THREADS);
/// Where the modules begin.
pub const MODULES_AT: usize = after(OBJECTS_AT, size_of::<Object>() * OBJECTS);
/// Where the units begin.
pub const UNITS_AT: usize = after(MODULES_AT, size_of::<Module>() * MODULES);

const fn after(start: usize, bytes: usize) -> usize {
    (start + bytes).next_multiple_of(PAGE)
}

/// The length of a file with room for so many units.
pub const fn length(units: usize) -> usize {
    (UNITS_AT + units * UNIT).next_multiple_of(PAGE)
}

const _: () = assert!(size_of::<Header>() <= PAGE);
const _: () = assert!(size_of::<Chunk>() == 16 && size_of::<Event>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_ticks_are_close() {
        for ticks in [0, 1, (1 << 31) - 1, 1 << 31, (1 << 35) + 12345, (1 << 41) - 1024] {
            let found = unpack(pack(ticks));
            assert!(found <= ticks && ticks - found < 1024, "{ticks}: {found}");
        }
        assert_eq!(unpack(pack(u64::MAX)), (1 << 41) - 1024);
    }

    #[test]
    fn handles_of_threads_fit() {
        for handle in [0, 0x10, 0x7fff_ffff_ffc0, 0x00ff_ffff_ffff_fff0] {
            let (object, more) = join::pack(handle);
            assert_eq!(join::unpack(object, more), handle);
            assert!(object <= NO_OBJECT);
        }
    }
}
