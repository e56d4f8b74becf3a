//! The mapped file: made at the start and after a fork, filled record by record.
//!
//! The file has its full length from the start, but it is sparse. Before a thread writes to a part of a section for the first
//! time, it asks the kernel for the pages of that part ([`back`]). If the disk is full, the kernel refuses, and the record is
//! dropped and counted; without that request the process would die of SIGBUS.
//!
//! The descriptor is closed as soon as the file is mapped. Programs close descriptors that they do not know, and open others
//! under the same number.

use crate::observers::mapped::Place;
use crate::state::kernel;
use crate::state::memory::quietly;
use crate::state::program::PAGE;
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering::*};
use latchwork::machine::{Clock, Machine, Native};
use latchwork_recording::control;
use latchwork_recording::layout::*;
use libc::c_int;

/// A record of a section.
pub(super) trait Record {
    const SECTION: usize;
}
macro_rules! records {
    ($($record:ty: $section:ident, $capacity:expr;)*) => {
        $(impl Record for $record {
            const SECTION: usize = $section;
        })*
        /// Bytes of a record and number of records, of each section.
        const SIZES: [(usize, usize); SECTIONS] = {
            let mut sizes = [(0, 0); SECTIONS];
            $(sizes[$section] = (size_of::<$record>(), $capacity);)*
            sizes
        };
    };
}

/// The most threads with a table at one time. A table has 5 KiB.
pub(super) const MOST_THREADS: usize = 16 << 10;

/// The most threads with an extension of their table at one time.
const MOST_EXTENDED: usize = 128;

records! {
    Thread: THREADS, 64 << 10;
    Table: TABLES, MOST_THREADS;
    // With the tables, the objects are what takes memory: 128 Ki of them are 48 MiB.
    Object: OBJECTS, 128 << 10;
    Class: CLASSES, 32 << 10;
    Pair: PAIRS, 128 << 10;
    // An entry has the number of a stack in 16 bits.
    Stack: STACKS, 1 << u16::BITS;
    // 7.5 KiB each.
    Histogram: HISTOGRAMS, 4 << 10;
    Event: EVENTS, 64 << 10;
    Module: MODULES, 4 << 10;
    AtomicU8: TEXT, 1 << 20;
    // 256 KiB each.
    More: MORE, MOST_EXTENDED;
}

/// Where each section begins; the last number is the length of the file.
const OFFSETS: [usize; SECTIONS + 1] = {
    let mut offsets = [PAGE; SECTIONS + 1];
    let mut section = 0;
    while section < SECTIONS {
        let (size, capacity) = SIZES[section];
        offsets[section + 1] = (offsets[section] + size * capacity).next_multiple_of(PAGE);
        section += 1;
    }
    offsets
};

/// How much of a section the kernel is asked for at once. It is one page the first time: many forked children need no more.
const STEP: usize = 64 << 10;

/// The mapping; null while nothing is recorded.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Of each section, the bytes that the kernel has been asked for.
static BACKED: [AtomicU32; SECTIONS] = [const { AtomicU32::new(0) }; SECTIONS];
/// In place of a number of bytes: the kernel has refused, or is about to be asked by no one any more.
const REFUSED: u32 = u32::MAX;

/// The directory, which ends in zeroes. It is a copy, because servers write their process title over the environment.
static DIRECTORY: [AtomicU8; libc::PATH_MAX as usize] = [const { AtomicU8::new(0) }; _];

/// Whether something is recorded.
pub(super) fn is_open() -> bool {
    !BASE.load(Relaxed).is_null()
}

/// The header of the file. Only while the file is open.
pub(super) fn header() -> &'static Header {
    // SAFETY: the callers run only while a file is mapped, and the mapping begins with the header. It is unmapped when no
    // thread is in a call of the layer (`live`), and in a forked child, which has no other thread.
    unsafe { &*BASE.load(Relaxed).cast::<Header>() }
}

/// The record with this index, which is below the section's capacity.
#[inline(always)]
pub(super) fn record<T: Record>(index: u32) -> &'static T {
    let (size, capacity) = SIZES[T::SECTION];
    debug_assert!((index as usize) < capacity);
    let index = (index as usize).min(capacity - 1);
    // SAFETY: a file is mapped, as in `header`. The section lies in the mapping and has `capacity` records, all of whose fields are atomics; zero bytes are
    // a value of each.
    unsafe { &*BASE.load(Relaxed).add(OFFSETS[T::SECTION] + index * size).cast::<T>() }
}

/// Takes `count` new records in a row, of zero bytes, and returns the index of the first. `None`: there is no room.
pub(super) fn append<T: Record>(count: u32) -> Option<u32> {
    let (size, capacity) = SIZES[T::SECTION];
    let section = &header().sections[T::SECTION];
    // The count must not wrap.
    let first = if section.count.load(Relaxed) as usize >= capacity {
        capacity as u32
    } else {
        section.count.fetch_add(count, Relaxed)
    };
    let end = first as usize + count as usize;
    if end > capacity || !back(T::SECTION, end * size) {
        section.dropped.fetch_add(1, Relaxed);
        return None;
    }
    Some(first)
}

/// Whether a section has no more room.
pub(super) fn is_full<T: Record>() -> bool {
    header().sections[T::SECTION].count.load(Relaxed) as usize >= SIZES[T::SECTION].1
        || BACKED[T::SECTION].load(Relaxed) == REFUSED
}

/// Asks the kernel for the first `end` bytes of a section. `false`: it refused.
fn back(section: usize, end: usize) -> bool {
    let backed = BACKED[section].load(Relaxed);
    if end <= backed as usize && backed != REFUSED {
        return true;
    }
    backed != REFUSED && back_more(section, backed as usize, end)
}

#[cold]
fn back_more(section: usize, backed: usize, end: usize) -> bool {
    let length = OFFSETS[section + 1] - OFFSETS[section];
    let end = end.next_multiple_of(if backed == 0 { PAGE } else { STEP }).min(length);
    let base = BASE.load(Relaxed);
    // The range lies in the section, which lies in the mapping.
    let start = base.wrapping_add(OFFSETS[section] + backed);
    if !quietly(|| kernel::populate(start.cast(), end - backed)) {
        BACKED[section].store(REFUSED, Relaxed);
        return false;
    }
    BACKED[section].fetch_max(end as u32, Relaxed);
    true
}

/// Adds text. No text if there is no room.
pub(super) fn text(bytes: &[u8]) -> Text {
    let length = bytes.len() as u32;
    if length == 0 {
        return Text::default();
    }
    let Some(start) = append::<AtomicU8>(length) else { return Text::default() };
    for (index, byte) in (start..).zip(bytes) {
        record::<AtomicU8>(index).store(*byte, Relaxed);
    }
    Text { start, length }
}

/// What the header says of the process.
pub(super) struct About<'a> {
    pub(super) mutex: &'a [u8],
    pub(super) rwlock: &'a [u8],
    pub(super) hold_period: u32,
    pub(super) began: u32,
}

/// Remembers the directory.
pub(super) fn set_directory(directory: &[u8]) {
    for (to, from) in DIRECTORY[..DIRECTORY.len() - 1].iter().zip(directory.iter().chain(&[0])) {
        to.store(*from, Relaxed);
    }
}

/// The directory that is remembered.
pub(super) fn directory() -> impl Iterator<Item = u8> {
    DIRECTORY.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0)
}

/// Removes the directory of an observer that is gone, with its control file and the recording of this process. Files of other
/// processes keep the directory there.
pub(super) fn remove(number: u64) {
    let remove = |name: &mut dyn FnMut(&mut Path), flags| {
        let mut path = Path::new();
        let _ = control::directory(number, &mut path);
        name(&mut path);
        let _ = path.write_char('\0');
        // SAFETY: the path ends in a zero byte.
        unsafe { libc::unlinkat(libc::AT_FDCWD, path.as_bytes().as_ptr().cast(), flags) };
    };
    let pid = header().pid;
    for attempt in 0..=FILE_NUMBER.load(Relaxed) {
        remove(&mut |path| _ = write!(path, "/{pid}.{attempt}.recording"), 0);
    }
    if header().began != began::FORK {
        remove(&mut |path| _ = write!(path, "/{}", control::FILE), 0);
    }
    remove(&mut |_| {}, libc::AT_REMOVEDIR);
}

/// Of the present file: the N in its name.
static FILE_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Makes a file for this process in the directory and maps it. An error says what failed.
pub(super) fn open(about: &About) -> Result<(), &'static str> {
    quietly(|| {
        let file = create()?;
        let limited = "the limit on the size of files (ulimit -f) is below 288 MiB";
        let narrow = "the limit on memory (ulimit -v) leaves less than the 288 MiB that a recording maps";
        let base = PLACE.map(file, OFFSETS[SECTIONS], limited, narrow);
        kernel::close(file);
        let base = base?;
        BACKED.iter().for_each(|backed| backed.store(0, Relaxed));
        BASE.store(base, Relaxed);
        describe(base, about);
        Ok(())
    })
}

/// Where the mapping is. See [`fast`](super::fast) for who relies on it.
static PLACE: Place = Place::new();

/// Gives the file back. Empty memory takes its place. No thread is in a call of the layer, except on the short way.
pub(super) fn close() {
    let base = BASE.swap(null_mut(), Relaxed);
    if !base.is_null() {
        // SAFETY: it was mapped with this length. The callers see to it that no thread uses a record. A thread on the short way may
        // write to a table.
        quietly(|| unsafe { PLACE.clear(OFFSETS[SECTIONS]) });
    }
}

/// A short path. A signal handler may have little room on its stack, so there is not a whole [`Line`](crate::state::line::Line).
pub(super) struct Path {
    bytes: [u8; 96],
    length: usize,
}

impl Path {
    pub(super) fn new() -> Self {
        Path { bytes: [0; _], length: 0 }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Room for a path or for what the kernel says of the process, for the same reason. The thread that opens a file uses it: when
/// the process starts, in a forked child, or with the right to switch.
struct Scratch(core::cell::UnsafeCell<[u8; SCRATCH]>);
const SCRATCH: usize = libc::PATH_MAX as usize + 64;
// SAFETY: one thread at a time opens a file.
unsafe impl Sync for Scratch {}
static BUFFER: Scratch = Scratch(core::cell::UnsafeCell::new([0; _]));

/// A new file, `PID.N.recording`: a process that executes another program keeps its number.
fn create() -> Result<c_int, &'static str> {
    for attempt in 0..1000 {
        // SAFETY: as `Scratch` says.
        let path = unsafe { &mut *BUFFER.0.get() };
        let length = directory().zip(path.iter_mut()).map(|(from, to)| *to = from).count();
        let mut name = Path::new();
        // SAFETY: `getpid` takes nothing and always succeeds.
        let _ = write!(name, "/{}.{attempt}.recording\0", unsafe { libc::getpid() });
        path[length..length + name.length].copy_from_slice(name.as_bytes());
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the path ends in a zero byte.
        unsafe {
            let file = kernel::open(path.as_ptr().cast(), flags, 0o600);
            if file >= 0 {
                FILE_NUMBER.store(attempt, Relaxed);
                return Ok(file);
            }
            if *libc::__errno_location() != libc::EEXIST {
                break;
            }
        }
    }
    Err("cannot create a file there")
}

/// Fills the header.
fn describe(base: *mut u8, about: &About) {
    let header: *mut Header = base.cast();
    // SAFETY: the mapping begins with the header, whose page is there. No other thread uses it before the session begins. The
    // buffer is used as `Scratch` says.
    unsafe {
        (*header).version = VERSION;
        (*header).header_size = size_of::<Header>() as u32;
        (*header).pid = libc::getpid() as u32;
        (*header).parent = libc::getppid() as u32;
        (*header).started = super::clock::now();
        (*header).started_realtime = Native::now(Clock::Realtime);
        (*header).hold_period = about.hold_period;
        (*header).began = about.began;
        for section in 0..SECTIONS {
            let entry = &raw mut (*header).sections[section];
            (*entry).offset = OFFSETS[section] as u64;
            (*entry).record_size = SIZES[section].0 as u32;
            (*entry).capacity = SIZES[section].1 as u32;
        }
        // The first record of these two stands for none.
        append::<Stack>(1);
        append::<Histogram>(1);
        (*header).mutex = text(about.mutex);
        (*header).rwlock = text(about.rwlock);
        let buffer = &mut *BUFFER.0.get();
        let length =
            libc::readlink(c"/proc/thread-self/exe".as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
                .max(0);
        (*header).executable = text(&buffer[..length as usize]);
        let file = kernel::open(c"/proc/thread-self/cmdline".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
        if file >= 0 {
            let length = kernel::read(file, buffer);
            kernel::close(file);
            (*header).arguments = text(&buffer[..length]);
        }
        (*header).magic.store(MAGIC, Release);
    }
}
