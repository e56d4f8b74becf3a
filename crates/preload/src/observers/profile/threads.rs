//! What a thread has for itself: a record, a table of counters, and memory that is not in the file.
//!
//! A thread gets these at its first call, without allocating. It does not say when it ends: a new thread looks whether two of
//! the threads before it are still alive, and takes over what a dead one had. So there are about as many tables as threads
//! alive at one time.
//!
//! A table has room for 64 objects. A thread that uses many more gets an extension with room for 4,096: otherwise it would
//! spend its time on moving counts from its table to the objects' records, which other threads write to as well.

use super::fast::{self, FREE, LONG_WAY};
use super::file::{MOST_THREADS, append, record};
use super::live;
use super::objects::{self, Found};
use super::sampling::{RATES, Rate};
use super::stack::Cache;
use crate::state::memory::keeping_errno;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use latchwork::machine::native::tls::thread_local_word;
use latchwork::machine::{Machine, Native};
use latchwork_recording::layout::*;

/// A thread's entry for an object, and the object's record if it has one.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) entry: &'static Entry,
    pub(super) object: Option<&'static Object>,
}

/// Of the objects that a thread uses, so many first ones have the first hold times measured: many threads use few locks, rarely,
/// and for long. A program that makes locks all the time would measure all holds.
const MOST_KNOWN: u32 = 128;

/// A thread that has moved out so many entries to make room gets an extension of its table.
const CROWDED: u32 = 256;

/// What a thread has outside of the file.
#[repr(C)]
pub(super) struct Local {
    /// Whether the thread is in a call of the layer, and not in a wait. See [`live`].
    pub(super) inside: AtomicBool,
    /// The number of the thread's entries less one.
    pub(super) mask: AtomicU32,
    /// The session that the other fields belong to; 0: they are not complete.
    pub(super) session: u64,
    /// In the table or in its extension. Other threads read them.
    pub(super) entries: AtomicPtr<Entry>,
    /// Acquisitions until the next measured hold time.
    pub(super) countdown: u32,
    /// Locks whose release has something to record, and [`NOTED`]. While it is not 0, each unlock call goes the long way.
    pub(super) attention: u32,
    /// So many of the next acquisitions take the short way also while threads wait. See [`has_paid`](Self::has_paid).
    pub(super) free_calls: u32,
    /// For how many acquisitions the one behind these pays: the logarithm to base 2.
    pub(super) pay_weight: u8,
    /// The thread's number in [`HOMES`].
    home: u32,
    /// Hold times measured by chance.
    pub(super) measured: u32,
    /// Entries that were moved out to make room, and those that were made.
    moved_out: u32,
    /// See `moved_out`.
    occupied: u32,
    pub(super) table: &'static Table,
    pub(super) thread: &'static Thread,
    pub(super) thread_index: u32,
    /// Acquisitions that met contention, and calls that waited; both wrap around.
    pub(super) contended: u32,
    /// See `contended`.
    pub(super) waits: u32,
    /// Before this time, the thread does not look for readers in other threads' tables.
    pub(super) next_look: u64,
    pub(super) random: u64,
    /// The mutex that the thread will take again after it waited for a condition variable; 0: none.
    pub(super) relocks: usize,
    /// Waiting that the thread has had since its last event, in nanoseconds.
    pub(super) since_event: u64,
    /// The address of the object for which it waits; 0: it does not wait for a lock. Other threads read it.
    pub(super) waits_for: AtomicUsize,
    pub(super) rates: [Rate; RATES],
    pub(super) stacks: Cache,
}

/// In [`Local::attention`]: the thread has noted a wait.
pub(super) const NOTED: u32 = 1 << 31;

thread_local_word! {
    /// The thread's [`Local`], with 1 added to its address: one test tells it from the others. Null until the thread has
    /// one; [`denied`] if it gets none.
    pub(super) Current: *mut Local = "profile_thread"
}

/// In place of a thread's [`Local`]: it gets none in this session.
fn denied(session: u64) -> *mut Local {
    core::ptr::without_provenance_mut((session as usize) << 1)
}

fn is_local(word: *mut Local) -> bool {
    word.addr() & 1 != 0
}

/// The calling thread's, if `word`, which is the value of [`Current`], says that it has one. It may belong to an earlier
/// session.
#[inline(always)]
pub(super) fn known(word: *mut Local) -> Option<&'static mut Local> {
    // SAFETY: the memory stays mapped, and only this thread uses it: a signal handler of the thread may, too, and each
    // user leaves the fields usable between any two steps.
    is_local(word).then(|| unsafe { &mut *word.wrapping_byte_sub(1) })
}

/// The calling thread's, while it is in a call of the layer. The recording stays mapped until this is dropped.
pub(super) struct Inside {
    local: &'static mut Local,
    /// Whether a signal handler has interrupted another call of the layer.
    outer: bool,
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        self.local.inside.store(self.outer, Release); // (B) pairs with the load in `are_outside`
    }
}

impl Inside {
    /// Before the thread waits: the recording may be unmapped from here on. Returns what [`come_back`](Self::come_back) needs.
    pub(super) fn leave(&self) -> u64 {
        let session = self.local.session;
        self.local.inside.store(self.outer, Release); // (B)
        session
    }

    /// After the wait. `false`: the recording has ended meanwhile, and the thread must touch no record of it.
    pub(super) fn come_back(&self, session: u64) -> bool {
        self.local.inside.store(true, Relaxed);
        Native::light_fence(); // (C)
        live::session() == session
    }
}

impl core::ops::Deref for Inside {
    type Target = Local;

    #[inline(always)]
    fn deref(&self) -> &Local {
        self.local
    }
}

impl core::ops::DerefMut for Inside {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Local {
        self.local
    }
}

/// The calling thread's. `None`: nothing is recorded, or the thread gets none.
#[inline(always)]
pub(super) fn current() -> Option<Inside> {
    let local = Current::get();
    match come_in(local) {
        None => enter(local),
        inside => inside,
    }
}

/// The calling thread's, if it has one in this session.
#[inline(always)]
fn come_in(word: *mut Local) -> Option<Inside> {
    let local = known(word)?;
    let outer = local.inside.load(Relaxed);
    local.inside.store(true, Relaxed);
    Native::light_fence(); // (C) pairs with the heavy fence in `are_outside`
    if local.session == live::session() {
        return Some(Inside { local, outer });
    }
    local.inside.store(outer, Release); // (B)
    None
}

#[cold]
#[inline(never)]
fn enter(word: *mut Local) -> Option<Inside> {
    let session = live::session();
    if session == 0 || word == denied(session) {
        return None;
    }
    if known(word).is_some_and(|local| local.inside.load(Relaxed)) {
        // The thread has interrupted itself in a call of an earlier session.
        return None;
    }
    // A signal handler of this thread finds the thread denied meanwhile.
    Current::set(denied(session));
    MAKING.fetch_add(1, SeqCst); // (C)
    let made = if live::session() == session { keeping_errno(|| make(word, session)) } else { null_mut() };
    MAKING.fetch_sub(1, Release); // (B)
    if made.is_null() {
        if live::session() != session {
            // The next session is another matter.
            Current::set(word);
        }
        return None;
    }
    Current::set(made.wrapping_byte_add(1));
    // SAFETY: as in `known`. `make` has set `inside`.
    Some(Inside { local: unsafe { &mut *made }, outer: false })
}

/// Threads that are about to become known to the recording.
static MAKING: AtomicU32 = AtomicU32::new(0);

/// Whether no thread is in a call of the layer. The session has ended, so none will come in.
pub(super) fn are_outside() -> bool {
    // (C) pairs with the light fence in `come_in`: either that thread sees that the session has ended, or it is seen here.
    fence(SeqCst);
    if !Native::heavy_fence() || MAKING.load(Acquire) != 0 {
        return false; // (B)
    }
    HOMES[..(USED.load(Relaxed) as usize).min(MOST_THREADS)].iter().all(|place| {
        let local = place.local.load(Acquire);
        // SAFETY: the memory stays mapped, and `inside` is atomic.
        local.is_null() || unsafe { !(*local).inside.load(Acquire) } || is_gone(place.tid.load(Relaxed))
    })
}

/// Memory and a table, which serve one thread after another.
struct Home {
    /// The thread's number; [`VACANT`] or [`CLAIMED`].
    tid: AtomicU32,
    local: AtomicPtr<Local>,
}
const VACANT: u32 = 0;
const CLAIMED: u32 = u32::MAX;
static HOMES: [Home; MOST_THREADS] =
    [const { Home { tid: AtomicU32::new(VACANT), local: AtomicPtr::new(null_mut()) } }; MOST_THREADS];
/// How many have been used, and where the next search begins.
static USED: AtomicU32 = AtomicU32::new(0);
static SEARCH: AtomicU32 = AtomicU32::new(0);

pub(super) fn tid() -> u32 {
    // SAFETY: the call takes nothing and always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Whether the thread that had a place is no more.
fn is_gone(tid: u32) -> bool {
    // SAFETY: system calls without pointers. Signal 0 is not sent.
    tid == VACANT
        || tid != CLAIMED
            && unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) != 0
                    && *libc::__errno_location() == libc::ESRCH
            }
}

/// Takes a place that no living thread has.
fn claim() -> Option<usize> {
    let take = |index: usize, old| {
        // (A) the place is as the last thread left it.
        HOMES[index].tid.compare_exchange(old, CLAIMED, Acquire, Relaxed).is_ok().then_some(index)
    };
    loop {
        let used = USED.load(Relaxed).min(MOST_THREADS as u32);
        for _ in 0..2.min(used) {
            let index = (SEARCH.fetch_add(1, Relaxed) % used) as usize;
            let old = HOMES[index].tid.load(Relaxed);
            if is_gone(old)
                && let Some(index) = take(index, old)
            {
                return Some(index);
            }
        }
        let index = if used < MOST_THREADS as u32 { USED.fetch_add(1, Relaxed) } else { used };
        if index as usize >= MOST_THREADS {
            return None;
        }
        // Another thread may have found the place vacant in its search.
        if let Some(index) = take(index as usize, VACANT) {
            return Some(index);
        }
    }
}

/// Makes the calling thread known to the session. `word` names what it had in an earlier one, if any.
fn make(word: *mut Local, session: u64) -> *mut Local {
    let (index, mut local) = match known(word) {
        Some(local) => (local.home as usize, core::ptr::from_mut(local)),
        None => {
            let Some(index) = claim() else { return null_mut() };
            (index, HOMES[index].local.load(Relaxed))
        }
    };
    let place = &HOMES[index];
    let vacate = || {
        place.tid.store(VACANT, Release); // (A)
        null_mut()
    };
    if local.is_null() {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which replaces nothing.
        let memory = unsafe { libc::mmap(null_mut(), size_of::<Local>(), protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return vacate();
        }
        local = memory.cast();
        place.local.store(local, Release);
    }
    // SAFETY: the place is the calling thread's. Zero bytes, as the kernel gives them, say that nothing else is complete.
    let of_this_session = unsafe { (*local).session == session };
    let table: &'static Table = if of_this_session {
        // The thread before is gone.
        // SAFETY: all fields belong to this session.
        let before = unsafe { &*local };
        for place in 0..before.size() {
            let entry = before.entry_at(place);
            entry.open.store(0, Relaxed);
            flush(entry);
        }
        super::waits::settle_late(before.thread, before.table);
        before.table.tallies.iter().for_each(super::tallies::flush);
        // It may have been cancelled while it waited.
        before.thread.waits_for.store(0, Relaxed);
        before.table
    } else {
        let Some(table) = append::<Table>(1) else { return vacate() };
        record(table)
    };
    // SAFETY: as above.
    unsafe { (&raw mut (*local).session).write(0) };
    let Some(thread_index) = append::<Thread>(1) else { return vacate() };
    let tid = tid();
    let thread = record::<Thread>(thread_index);
    let now = super::now();
    thread.tid.store(tid, Relaxed);
    thread.started.store(now, Relaxed);
    thread.seen.store(now, Relaxed);
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    thread.name.iter().zip(name).for_each(|(to, byte)| to.store(byte, Relaxed));
    thread.state.store(READY, Release);
    // SAFETY: the memory has the size and is the calling thread's. Zero bytes are an empty cache, which is too large for the
    // stack.
    unsafe {
        (&raw mut (*local).inside).write(AtomicBool::new(true));
        (&raw mut (*local).home).write(index as u32);
        (&raw mut (*local).table).write(table);
        (&raw mut (*local).thread).write(thread);
        (&raw mut (*local).thread_index).write(thread_index);
        (&raw mut (*local).random).write(super::index::mix(u64::from(tid) ^ now) | 1);
        (&raw mut (*local).relocks).write(0);
        (&raw mut (*local).since_event).write(0);
        (&raw mut (*local).contended).write(0);
        (&raw mut (*local).waits).write(0);
        (&raw mut (*local).next_look).write(0);
        if !of_this_session {
            (*local).has(&table.entries);
        }
        (&raw mut (*local).attention).write(0);
        (&raw mut (*local).free_calls).write(0);
        (&raw mut (*local).pay_weight).write(0);
        (&raw mut (*local).waits_for).write(AtomicUsize::new(0));
        (&raw mut (*local).rates).write_bytes(0, 1);
        (&raw mut (*local).measured).write(0);
        (&raw mut (*local).moved_out).write(0);
        (&raw mut (*local).occupied).write(0);
        (&raw mut (*local).stacks).write_bytes(0, 1);
        // As if the thread had come between two measurements: the smaller of two distances is distributed as the rest of one.
        let mean = 1 << super::HOLD_PERIODS[0];
        let rest = (*local).around(mean).min((*local).around(mean));
        (&raw mut (*local).countdown).write(rest);
        (&raw mut (*local).session).write(session);
    }
    place.tid.store(tid, Release); // (A)
    Native::notice_exit();
    local
}

/// Runs when a thread exits. Destructors that run later may make lock calls: these are counted all the same.
pub(super) fn exits() {
    if let Some(local) = come_in(Current::get()) {
        local.thread.ended.store(super::now(), Relaxed);
    }
}

/// How many threads hold the rwlock at this address for reading.
pub(super) fn readers(address: usize) -> usize {
    count(|entries, mask, _| {
        // (D) pairs with the stores in `has`: the entries are as many as this mask says, or more.
        let mask = mask.load(Acquire);
        let entries = entries.load(Acquire);
        // A thread that is being made known has none yet.
        !entries.is_null()
            && fast::places(address, mask).iter().any(|place| {
                // SAFETY: the thread has an entry at each of its places, and the memory of tables stays mapped.
                let entry = unsafe { &*entries.add(*place) };
                matches!(entry.depth.load(Relaxed), READING | FREE)
                    && entry.address.load(Relaxed) == address as u64
            })
    })
}

/// How many threads wait for the lock at this address.
pub(super) fn waiting(address: usize) -> usize {
    count(|_, _, waits_for| waits_for.load(Relaxed) == address)
}

/// How many threads there are of which something is true.
fn count(is: impl Fn(&AtomicPtr<Entry>, &AtomicU32, &AtomicUsize) -> bool) -> usize {
    let has = |place: &&Home| {
        let local = place.local.load(Acquire);
        // SAFETY: the memory stays mapped, and what is lent of it here is atomic.
        !local.is_null() && unsafe { is(&(*local).entries, &(*local).mask, &(*local).waits_for) }
    };
    HOMES[..(USED.load(Relaxed) as usize).min(MOST_THREADS)].iter().filter(has).count()
}

/// In a forked child, which has one thread, before it has a file of its own.
pub(super) fn forget() {
    let used = (USED.swap(0, Relaxed) as usize).min(MOST_THREADS);
    MAKING.store(0, Relaxed);
    for place in &HOMES[..used] {
        place.tid.store(VACANT, Relaxed);
        let local = place.local.swap(null_mut(), Relaxed);
        if !local.is_null() {
            // SAFETY: `make` mapped it, and the thread that used it is not in this process, or is this one, which forgets it.
            keeping_errno(|| unsafe { libc::munmap(local.cast(), size_of::<Local>()) });
        }
    }
    Current::set(null_mut());
}

impl Local {
    /// The session that the thread is in.
    pub(super) fn session(&self) -> u64 {
        self.session
    }

    /// A number from 1 to `2 * mean - 1`, each as likely.
    pub(super) fn around(&mut self, mean: u32) -> u32 {
        self.random() % (2 * mean - 1) + 1
    }

    /// `true` once in so many times, by chance.
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.random().is_multiple_of(times)
    }

    fn random(&mut self) -> u32 {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }

    /// How many entries the thread has.
    fn size(&self) -> usize {
        self.mask.load(Relaxed) as usize + 1
    }

    /// The thread's entries from here on, as many as a power of two.
    fn has(&mut self, entries: &'static [Entry]) {
        self.entries.store(entries.as_ptr().cast_mut(), Release);
        self.mask.store(entries.len() as u32 - 1, Release); // (D)
    }

    /// The thread's entry for the object, if it is valid for the object that is there now.
    #[inline(always)]
    fn valid(&self, address: usize) -> Option<Place> {
        let entry = self.entry_of(address)?;
        let object = entry.object.load(Relaxed);
        if object == NONE {
            return Some(Place { entry, object: None });
        }
        let object = record::<Object>(object);
        let same = object.serial.load(Relaxed) as u8 == entry.serial.load(Relaxed)
            && object.address.load(Relaxed) == address as u64;
        same.then_some(Place { entry, object: Some(object) })
    }

    /// The thread's entry for the object, which is valid for the object that is there now. `None`: there is no room.
    #[inline(always)]
    pub(super) fn place(&mut self, kind: u32, address: usize) -> Option<Place> {
        match self.valid(address) {
            None => self.make_place(kind, address),
            place => place,
        }
    }

    #[cold]
    #[inline(never)]
    fn make_place(&mut self, kind: u32, address: usize) -> Option<Place> {
        let found = objects::find_or_make(kind, address, || super::stack::capture(self))?;
        Some(self.occupy(address, found))
    }

    /// The thread's entry for an object that has been used before.
    #[inline(always)]
    pub(super) fn known_place(&mut self, kind: u32, address: usize) -> Option<Place> {
        match self.valid(address) {
            None => self.find_place(kind, address),
            place => place,
        }
    }

    #[cold]
    #[inline(never)]
    fn find_place(&mut self, kind: u32, address: usize) -> Option<Place> {
        let found = objects::find(kind, address)?;
        Some(self.occupy(address, found))
    }

    /// As [`place`](Self::place), without the object.
    pub(super) fn entry(&mut self, kind: u32, address: usize) -> Option<&'static Entry> {
        Some(self.place(kind, address)?.entry)
    }

    /// Gives an object an entry.
    fn occupy(&mut self, address: usize, found: Found) -> Place {
        let mut index = self.choose(address);
        let before = self.entry_at(index).address.load(Relaxed);
        if before != 0 && before != address as u64 {
            self.moved_out += 1;
            if self.moved_out >= CROWDED && self.extend() {
                index = self.choose(address);
            }
        }
        let entry = self.entry_at(index);
        self.empty(entry);
        entry.object.store(found.object, Relaxed);
        entry.class.store(found.class, Relaxed);
        entry.serial.store(found.serial as u8, Relaxed);
        entry.held_since.store(0, Relaxed);
        entry.site.store(0, Relaxed);
        // The thread may have acquired the lock before the session: then it is not known where.
        entry.caller.store(0, Relaxed);
        entry.slot.store(0, Relaxed);
        entry.weight.store(0, Relaxed);
        entry.hot.store(0, Relaxed);
        let object = (found.object != NONE).then(|| record::<Object>(found.object));
        let is_early = self.occupied < MOST_KNOWN;
        self.occupied = self.occupied.saturating_add(1);
        entry.depth.store(0, Relaxed);
        entry.first.store(if is_early { super::HOLD_FIRST } else { 0 }, Relaxed);
        entry.filter.store(LONG_WAY, Relaxed);
        entry.address.store(address as u64, Release);
        Place { entry, object }
    }

    /// The place for an object that has none, or whose entry is not valid any more.
    fn choose(&self, address: usize) -> usize {
        let address = address as u64;
        let [first, second] = fast::places(address as usize, self.mask.load(Relaxed));
        let object = |place: usize| self.entry_at(place).address.load(Relaxed);
        // An entry whose lock the thread holds stays, if it can.
        let is_busy = |place: usize| self.entry_at(place).open.load(Relaxed) != 0;
        let is_second = object(second) == address
            || object(first) != address && (object(second) == 0 || object(first) != 0 && is_busy(first));
        if is_second { second } else { first }
    }

    /// Adds what an entry counts to the object, and frees the entry.
    pub(super) fn empty(&mut self, entry: &Entry) {
        self.close(entry);
        entry.filter.store(LONG_WAY, Relaxed);
        flush(entry);
    }

    /// Gives the thread more entries. `false`: it has them, or there is no room.
    #[cold]
    fn extend(&mut self) -> bool {
        self.moved_out = 0;
        if self.size() != ENTRIES {
            return false;
        }
        let Some(more) = append::<More>(1) else { return false };
        (0..ENTRIES).for_each(|place| self.empty(self.entry_at(place)));
        self.has(&record::<More>(more).entries);
        true
    }
}

/// Adds the reads that the entry counts to the object, when they have become many.
pub(super) fn flush_reads(entry: &Entry) {
    if entry.reads.load(Relaxed) > u32::MAX / 2 && is_valid(entry) {
        let (object, class) = (entry.object.load(Relaxed), entry.class.load(Relaxed));
        let counters = match object {
            NONE => &record::<Class>(class).counters,
            _ => &record::<Object>(object).counters,
        };
        counters.reads.fetch_add(u64::from(entry.reads.swap(0, Relaxed)), Relaxed);
    }
}

/// Whether the entry's object is still there.
#[inline(always)]
fn is_valid(entry: &Entry) -> bool {
    let object = entry.object.load(Relaxed);
    if object == NONE {
        return true;
    }
    let object = record::<Object>(object);
    object.serial.load(Relaxed) as u8 == entry.serial.load(Relaxed)
        && object.address.load(Relaxed) == entry.address.load(Relaxed)
}

/// Adds what the entry counts to the object, and frees the entry.
pub(super) fn flush(entry: &Entry) {
    if entry.address.load(Relaxed) == 0 {
        return;
    }
    let class = entry.class.load(Relaxed);
    let object = entry.object.load(Relaxed);
    let to = if object != NONE && is_valid(entry) {
        &record::<Object>(object).counters
    } else {
        &record::<Class>(class).counters
    };
    let add = |to: &AtomicU64, from: u64| {
        if from != 0 {
            to.fetch_add(from, Relaxed);
        }
    };
    add(&to.acquisitions, entry.acquisitions.swap(0, Relaxed));
    add(&to.reads, u64::from(entry.reads.swap(0, Relaxed)));
    add(&to.failed, u64::from(entry.failed.swap(0, Relaxed)));
    entry.address.store(0, Relaxed);
}
