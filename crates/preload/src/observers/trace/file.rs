//! The mapped file of a raw trace. The crate `latchwork-recording` has its layout.
//!
//! As in the recorder of profiles, the file is sparse, and a thread asks the kernel for the pages of a record before it writes
//! there for the first time: if the disk is full, the record is dropped, and the process does not die of SIGBUS. The
//! descriptor is closed as soon as the file is mapped, because programs close descriptors that they do not know.

use super::super::clocks::both;
use super::stream;
use crate::observers::mapped::Place;
use crate::state::kernel;
use crate::state::line::Line;
use crate::state::memory::quietly;
use crate::state::program::PAGE;
use crate::state::wiped::TRACES;
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use latchwork_recording::trace::*;
use libc::c_int;

/// The mapping; null while nothing is recorded.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Where the mapping is, or was in the parent.
static PLACE: Place = Place::new();
/// How many units the file may have.
static CAPACITY: AtomicUsize = AtomicUsize::new(0);
/// The directory, which ends in zeroes. It is a copy, because servers write their process title over the environment.
static DIRECTORY: [AtomicU8; libc::PATH_MAX as usize] = [const { AtomicU8::new(0) }; _];

/// Remembers where files are to be, and how many bytes of events each may have.
pub(super) fn prepare(directory: &[u8], bytes: usize) {
    for (to, from) in DIRECTORY[..DIRECTORY.len() - 1].iter().zip(directory.iter().chain(&[0])) {
        to.store(*from, Relaxed);
    }
    CAPACITY.store((bytes / UNIT).clamp(MOST_UNITS as usize, 256 << 20), Relaxed);
}

/// The directory that is remembered.
pub(super) fn directory() -> impl Iterator<Item = u8> {
    DIRECTORY.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0)
}

/// Whether this process has a file.
#[inline(always)]
pub(super) fn is_open() -> bool {
    TRACES.load(Relaxed) != 0
}

/// Whether the file that is mapped is that of the parent: this process is a child that has none yet.
pub(super) fn is_of_parent() -> bool {
    !is_open() && is_mapped()
}

/// Whether a file is mapped.
pub(super) fn is_mapped() -> bool {
    !BASE.load(Relaxed).is_null()
}

/// The header. Only while a file is mapped.
pub(super) fn header() -> &'static Header {
    // SAFETY: the callers run only while a file is mapped, which begins with the header and stays mapped.
    unsafe { &*BASE.load(Relaxed).cast() }
}

/// The thread with this index, which [`new_thread`] has returned.
pub(super) fn thread(index: u32) -> &'static Thread {
    // SAFETY: as in `at`: the index is below `THREADS`.
    unsafe { &*at(THREADS_AT, index) }
}

/// The object with this index, which [`new_object`] has returned.
#[inline(always)]
pub(super) fn object(index: u32) -> &'static Object {
    // SAFETY: as in `at`: the index is below `OBJECTS`.
    unsafe { &*at(OBJECTS_AT, index) }
}

/// The module with this index, which [`new_module`] has returned, or which is below the header's number of modules.
pub(super) fn module(index: u32) -> &'static Module {
    // SAFETY: as in `at`: the index is below `MODULES`.
    unsafe { &*at(MODULES_AT, index) }
}

/// The chunk with this index, which [`new_chunk`] has returned.
pub(super) fn chunk(index: u32) -> &'static Chunk {
    // SAFETY: as in `at`: the index is below the capacity, and a unit begins with this record.
    unsafe { &*unit(index).cast() }
}

/// The events of the chunk with this index, which [`new_chunk`] has returned for so many units.
pub(super) fn events(index: u32, units: u32) -> &'static [[AtomicU64; 2]] {
    // SAFETY: the events follow the record, and the chunk's units lie in the mapping. Zero bytes are a value of them.
    unsafe { core::slice::from_raw_parts(unit(index).add(size_of::<Chunk>()).cast(), events_of(units)) }
}

fn unit(index: u32) -> *const u8 {
    BASE.load(Relaxed).wrapping_add(UNITS_AT + index as usize * UNIT)
}

/// Whether no thread has a chunk yet.
pub(super) fn has_no_chunk() -> bool {
    header().units.load(Relaxed) == 0
}

/// The record with this index of the array at `start`. It lies in the mapping if the index is below the array's capacity. All
/// its fields are atomics, for which zero bytes are a value.
fn at<T>(start: usize, index: u32) -> *const T {
    BASE.load(Relaxed).wrapping_add(start + index as usize * size_of::<T>()).cast()
}

pub(super) fn new_thread() -> Option<u32> {
    append(&header().threads, 1, THREADS, |index| record::<Thread>(THREADS_AT, index))
}

pub(super) fn new_object() -> Option<u32> {
    append(&header().objects, 1, OBJECTS, |index| record::<Object>(OBJECTS_AT, index))
}

pub(super) fn new_module() -> Option<u32> {
    append(&header().modules, 1, MODULES, |index| record::<Module>(MODULES_AT, index))
}

/// A chunk of so many units: the index of the first one.
pub(super) fn new_chunk(units: u32) -> Option<u32> {
    let bytes = units as usize * UNIT;
    let place = |index| (UNITS_AT + index as usize * UNIT, bytes);
    let index = append(&header().units, units, CAPACITY.load(Relaxed), place)?;
    chunk(index).units.store(units, Relaxed);
    Some(index)
}

/// Where the record with this index of the array at `start` lies, and its bytes.
fn record<T>(start: usize, index: u32) -> (usize, usize) {
    (start + index as usize * size_of::<T>(), size_of::<T>())
}

/// Takes new places of zero bytes, and returns the index of the first. `None`: there is no room. `place` says where they lie.
fn append(
    count: &AtomicU32,
    places: u32,
    capacity: usize,
    place: impl FnOnce(u32) -> (usize, usize),
) -> Option<u32> {
    // The count must not wrap.
    if count.load(Relaxed) as usize >= capacity {
        return None;
    }
    let index = count.fetch_add(places, Relaxed);
    if index as usize + places as usize > capacity {
        return None;
    }
    let (first, bytes) = place(index);
    let (begin, end) = (first & !(PAGE - 1), (first + bytes).next_multiple_of(PAGE));
    let base = BASE.load(Relaxed);
    // The range lies in the mapping.
    quietly(|| kernel::populate(base.wrapping_add(begin).cast(), end - begin)).then_some(index)
}

/// What the header says of the process.
pub(super) struct About<'a> {
    pub(super) mutex: &'a [u8],
    pub(super) rwlock: &'a [u8],
    pub(super) forked: bool,
    pub(super) long: u64,
}

/// Makes a file for this process, `PID.N.trace`, and maps it. An error says what failed.
pub(super) fn open(about: &About) -> Result<(), &'static str> {
    quietly(|| {
        stream::prepare()?;
        let file = create()?;
        let limited = "the limit on the size of files (ulimit -f) is too low; use a smaller --size";
        let narrow = "the limit on memory (ulimit -v) leaves no room for a trace of this --size";
        let base = PLACE.map(file, length(CAPACITY.load(Relaxed)), limited, narrow);
        kernel::close(file);
        describe(base?, about);
        BASE.store(base?, Relaxed);
        TRACES.store(1, Relaxed);
        Ok(())
    })
}

/// Gives the mapping of the parent back, in a forked child, which has one thread. Empty memory takes its place.
pub(super) fn forget() {
    TRACES.store(0, Relaxed);
    BASE.store(null_mut(), Relaxed);
    // SAFETY: the caller's file was mapped with this length, and no other thread exists that could use it.
    quietly(|| unsafe { PLACE.clear(length(CAPACITY.load(Relaxed))) });
}

fn create() -> Result<c_int, &'static str> {
    for attempt in 0..1000 {
        let mut path = Line::new();
        directory().for_each(|byte| path.bytes(&[byte]));
        // SAFETY: `getpid` takes nothing and always succeeds.
        let _ = write!(path, "/{}.{attempt}.trace\0", unsafe { libc::getpid() });
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the path ends in a zero byte.
        unsafe {
            let file = kernel::open(path.as_bytes().as_ptr().cast(), flags, 0o600);
            if file >= 0 {
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
    // SAFETY: the mapping begins with the header, whose page is there. No other thread uses it before `BASE` is set.
    unsafe {
        let header: *mut Header = base.cast();
        (*header).pid = libc::getpid() as u32;
        (*header).forked = u32::from(about.forked);
        let started = both(stream::ticks);
        ((*header).started_ticks, (*header).started) = (started.ticks, started.nanos);
        (*header).long = about.long;
        (*header).unit_capacity = CAPACITY.load(Relaxed) as u32;
        let copy = |to: &mut [u8], from: &[u8]| {
            let length = from.len().min(to.len() - 1);
            to[..length].copy_from_slice(&from[..length]);
        };
        copy(&mut (*header).mutex, about.mutex);
        copy(&mut (*header).rwlock, about.rwlock);
        let path = &raw mut (*header).executable;
        // The last byte stays zero.
        libc::readlink(c"/proc/thread-self/exe".as_ptr(), path.cast(), size_of_val(&*path) - 1);
        (*header).magic.store(MAGIC, Release);
    }
}
