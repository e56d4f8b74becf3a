//! What a thread has for itself: a record, a table of counters, and memory that is not in the file.
//!
//! A thread gets these at its first call, without allocating, and leaves them to a later thread ([`homes`]).
//!
//! A table has room for 64 objects. A thread that uses many more gets an extension with room for 4,096: otherwise it would
//! spend its time on moving counts from its table to the objects' records, which other threads write to as well.

use super::chance::Chance;
use super::entries;
use super::file::{append, header, record};
use super::homes::{self, Home, Shared};
use super::objects::{self, Found, Spare};
use super::sampling::Rates;
use super::stack::Cache;
use super::{at_once, clock, filter, modules, pending, session, sleeps, tallies};
use crate::state::kernel;
use crate::state::memory::quietly;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::*, fence};
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

/// Of a thread's uncontended acquisitions, one in so many has its hold time measured, the logarithm to base 2: until
/// [`MOST_MEASURED`] are, and then. A measurement takes some 200 ns, so in the end that is less than half a nanosecond for each
/// call.
pub(super) const HOLD_PERIODS: [u8; 2] = [6, 9];
/// See [`HOLD_PERIODS`]: the means of one thread are right to 3% by then, if holds differ by as much as they are long.
pub(super) const MOST_MEASURED: u32 = 1024;
/// So many of a thread's first acquisitions of an object have it measured, too: many locks are used rarely, and for long.
const HOLD_FIRST: u8 = 8;

/// A thread that has moved out so many entries to make room gets an extension of its table.
const CROWDED: u32 = 256;

/// What a thread has outside of the file. The first fields are those of uncontended calls, in one cache line.
#[repr(C, align(64))]
pub(super) struct Local {
    /// Other threads may read it.
    pub(super) shared: Shared,
    /// Acquisitions until the next measured hold time. It is never 0.
    pub(super) countdown: u32,
    /// Locks whose release has something to record, and [`NOTED`]. While it is not 0, each unlock call goes the long way.
    pub(super) attention: u32,
    /// So many of the next acquisitions take the short way also while threads wait. See [`has_paid`](Self::has_paid).
    pub(super) free_calls: u32,
    /// The thread's number, as glibc knows it.
    pub(super) tid: u32,
    /// For how many acquisitions the one behind these pays: the logarithm to base 2.
    pub(super) pay_weight: u8,
    /// The thread's number in [`homes`].
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
    /// The first acquisitions that met contention: how many, up to a few.
    pub(super) contended: u32,
    /// Later ones, until the next owner shall compare itself with this thread.
    pub(super) until_mark: u32,
    /// Calls that waited and were looked at closely.
    pub(super) waits: u32,
    /// Before this time, the thread does not look for readers in other threads' tables.
    pub(super) next_look: u64,
    pub(super) chance: Chance,
    /// The mutex that the thread will take again after it waited for a condition variable; 0: none.
    pub(super) relocks: usize,
    /// For how long it has waited for that mutex, in nanoseconds, since its last wait for a condition variable began.
    pub(super) relock_nanos: u64,
    /// The address of the lock for which it has waited, if that wait was only counted, and is not settled; else 0.
    pub(super) waited_for: usize,
    /// Waiting that the thread has had since its last event, in nanoseconds.
    pub(super) since_event: u64,
    pub(super) rates: Rates,
    spare: Spare,
    pub(super) module: modules::Last,
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
        self.local.shared.inside.store(self.outer, Release); // (B) pairs with the load in `are_outside`
    }
}

impl Inside {
    /// The thread's spare records, if this call is not one of a signal handler that may have interrupted another use of them.
    #[inline(always)]
    pub(super) fn spare(&mut self) -> Option<&mut Spare> {
        (!self.outer).then_some(&mut self.local.spare)
    }

    /// Before the thread waits: the recording may be unmapped from here on. Returns what [`come_back`](Self::come_back) needs.
    pub(super) fn leave(&self) -> u64 {
        let session = self.local.session();
        self.local.shared.inside.store(self.outer, Release); // (B)
        session
    }

    /// After the wait. `false`: the recording has ended meanwhile, and the thread must touch no record of it.
    pub(super) fn come_back(&self, session: u64) -> bool {
        self.local.shared.inside.store(true, Relaxed);
        Native::light_fence(); // (C)
        session::number() == session
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

/// Whether the calling thread has made no call of the layer in this session, or in any.
#[inline(always)]
pub(super) fn is_new() -> bool {
    known(Current::get()).is_none_or(|local| local.session() != session::number())
}

/// The calling thread's, if it has one in this session.
#[inline(always)]
fn come_in(word: *mut Local) -> Option<Inside> {
    let local = known(word)?;
    let outer = local.shared.inside.load(Relaxed);
    local.shared.inside.store(true, Relaxed);
    Native::light_fence(); // (C) pairs with the heavy fence in `are_outside`
    if local.session() == session::number() {
        return Some(Inside { local, outer });
    }
    local.shared.inside.store(outer, Release); // (B)
    None
}

#[cold]
#[inline(never)]
fn enter(mut word: *mut Local) -> Option<Inside> {
    if known(word).is_some_and(|local| local.shared.inside.load(Relaxed)) {
        // The thread has interrupted itself in a call of an earlier session.
        return None;
    }
    if session::is_of_parent() && (word.is_null() || is_local(word)) {
        super::after_fork();
        word = Current::get();
    }
    let session = session::number();
    if session == 0 || word == denied(session) {
        return None;
    }
    // A signal handler of this thread finds the thread denied meanwhile.
    Current::set(denied(session));
    MAKING.fetch_add(1, SeqCst); // (C)
    let made = if session::number() == session { quietly(|| make(word, session)) } else { null_mut() };
    MAKING.fetch_sub(1, Release); // (B)
    if made.is_null() {
        if session::number() != session {
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
    homes::all().iter().all(Home::is_outside)
}

/// Makes the calling thread known to the session. `word` names what it had in an earlier one, if any.
fn make(word: *mut Local, session: u64) -> *mut Local {
    let (index, mut local) = match known(word) {
        Some(local) => (local.home as usize, core::ptr::from_mut(local)),
        None => {
            let Some(index) = homes::claim() else { return null_mut() };
            (index, Home::at(index).memory.load(Relaxed).cast::<Local>())
        }
    };
    let home = Home::at(index);
    let is_new = local.is_null();
    let vacate = || {
        home.vacate();
        null_mut()
    };
    if is_new {
        // SAFETY: a new mapping, which replaces nothing.
        let memory = unsafe { kernel::map(null_mut(), size_of::<Local>(), 0, None) };
        if memory == libc::MAP_FAILED {
            return vacate();
        }
        local = memory.cast();
        home.memory.store(local.cast(), Release);
    }
    // SAFETY: the place is the calling thread's. Zero bytes, as the kernel gives them, say that nothing else is complete.
    let of_this_session = unsafe { (*local).session() == session };
    let mut inherited = None;
    if of_this_session {
        // The thread before is gone.
        // SAFETY: all fields belong to this session.
        let before = unsafe { &*local };
        // It may have been cancelled while it waited.
        before.thread.waits_for.store(0, Relaxed);
        inherited = Some(before);
    }
    // The table of a thread that has ended with a lock stays as it is, as long as there is room: others may wait for the lock.
    let left = inherited.filter(|before| before.holds_any());
    let new = if inherited.is_none() || left.is_some() { append::<Table>(1) } else { None };
    let (table, tables): (&'static Table, u32) = match (new, inherited) {
        (Some(table), _) => (record(table), table + 1),
        (None, Some(before)) => {
            before.settle();
            (before.table, before.thread.pending.tables.load(Relaxed))
        }
        (None, None) => return vacate(),
    };
    // SAFETY: as above.
    unsafe { (*local).shared.session.store(0, Relaxed) };
    let Some(thread_index) = append::<Thread>(1) else { return vacate() };
    let tid = homes::tid();
    let thread = record::<Thread>(thread_index);
    let now = clock::now();
    thread.tid.store(tid, Relaxed);
    thread.started.store(clock::thread_start(now).max(header().started), Relaxed);
    thread.seen.store(now, Relaxed);
    thread.pending.tables.store(tables, Relaxed);
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    thread.name.iter().zip(name).for_each(|(to, byte)| to.store(byte, Relaxed));
    thread.state.store(READY, Release);
    // SAFETY: the memory has the size and is the calling thread's. Zero bytes are an empty cache, which is too large for the
    // stack.
    unsafe {
        (*local).shared.inside.store(true, Relaxed);
        (&raw mut (*local).home).write(index as u32);
        (&raw mut (*local).tid).write(at_once::number());
        (&raw mut (*local).table).write(table);
        (&raw mut (*local).thread).write(thread);
        (&raw mut (*local).thread_index).write(thread_index);
        (&raw mut (*local).chance).write(Chance::new(super::index::mix(u64::from(tid) ^ now)));
        (&raw mut (*local).relocks).write(0);
        (&raw mut (*local).relock_nanos).write(0);
        (&raw mut (*local).waited_for).write(0);
        (&raw mut (*local).since_event).write(0);
        (&raw mut (*local).contended).write(0);
        (&raw mut (*local).until_mark).write(0);
        (&raw mut (*local).waits).write(0);
        (&raw mut (*local).next_look).write(0);
        if new.is_some() {
            (*local).shared.entries.set(&table.entries);
        }
        if !of_this_session {
            (&raw mut (*local).spare).write_bytes(0, 1);
        }
        (&raw mut (*local).module).write_bytes(0, 1);
        (&raw mut (*local).attention).write(0);
        (&raw mut (*local).free_calls).write(0);
        (&raw mut (*local).pay_weight).write(0);
        (*local).shared.waits_for.store(0, Relaxed);
        (*local).shared.thread.store(core::ptr::from_ref(thread).cast_mut(), Relaxed);
        (&raw mut (*local).rates).write_bytes(0, 1);
        (&raw mut (*local).measured).write(0);
        (&raw mut (*local).moved_out).write(0);
        (&raw mut (*local).occupied).write(0);
        if !is_new {
            (&raw mut (*local).stacks).write_bytes(0, 1);
        }
        (*local).stacks.begin();
        // As if the thread had come between two measurements: the smaller of two distances is distributed as the rest of one.
        let mean = 1 << HOLD_PERIODS[0];
        let chance = &mut (*local).chance;
        let rest = chance.around(mean).min(chance.around(mean));
        (&raw mut (*local).countdown).write(rest);
        (*local).shared.session.store(session, Release); // (F) pairs with the load in `homes::count`
    }
    home.occupy();
    Native::notice_exit();
    local
}

/// Runs when a thread exits. Destructors that run later may make lock calls: these are counted all the same.
pub(super) fn exits() {
    if let Some(local) = come_in(Current::get()) {
        local.thread.ended.store(clock::now(), Relaxed);
    }
}

/// In a forked child, which has one thread, before it has a file of its own.
pub(super) fn forget() {
    MAKING.store(0, Relaxed);
    // A signal handler may have forked. When it returns, the call that it has interrupted uses this thread's memory.
    let own = Current::get();
    let memory = if is_local(own) { own.wrapping_byte_sub(1).cast() } else { null_mut() };
    homes::forget(memory, |memory| {
        // SAFETY: `make` mapped it, and the thread that used it is not in this process.
        quietly(|| unsafe { kernel::unmap(memory.cast(), size_of::<Local>()) });
    });
    match known(own) {
        Some(own) => own.home = 0,
        None => Current::set(null_mut()),
    }
}

impl Local {
    /// The session that the thread is in.
    #[inline(always)]
    pub(super) fn session(&self) -> u64 {
        // SAFETY: only the calling thread writes it. An ordinary load can be a part of a comparison.
        unsafe { *self.shared.session.as_ptr() }
    }

    /// The thread's entry for the object, if it is valid for the object that is there now.
    #[inline(always)]
    fn valid(&self, address: usize) -> Option<Place> {
        let entry = self.shared.entries.of(address)?;
        let object = entry.object.load(Relaxed);
        if object == NONE {
            return Some(Place { entry, object: None });
        }
        let object = record::<Object>(object);
        entries::is_of(entry, object).then_some(Place { entry, object: Some(object) })
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
        let found = objects::find_or_make(kind, address, &mut self.module, || self.stacks.capture_birth())?;
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
        let mut entry = self.shared.entries.choose(address);
        let before = entry.address.load(Relaxed);
        if before != 0 && before != address as u64 {
            self.moved_out += 1;
            if self.moved_out >= CROWDED && self.extend() {
                entry = self.shared.entries.choose(address);
            }
        }
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
        entry.first.store(if is_early { HOLD_FIRST } else { 0 }, Relaxed);
        entries::slow_down(entry);
        entry.address.store(address as u64, Release);
        Place { entry, object }
    }

    /// Gives an object an entry that was made just now. If no holds are to be measured, its first use takes the short way.
    /// `filter`: the number of the filter before the object was made.
    pub(super) fn expect(&mut self, address: usize, found: Found, filter: u32, recursive: bool) {
        let entry = self.occupy(address, found).entry;
        if entry.first.load(Relaxed) == 0 && filter & filter::WATCHED == 0 {
            entry.filter.store(filter::expected(filter, recursive), Relaxed);
        }
    }

    /// Adds what an entry counts to the object, and frees the entry.
    pub(super) fn empty(&mut self, entry: &Entry) {
        self.close(entry);
        entries::slow_down(entry);
        entries::flush(entry);
    }

    /// The release of the lock has something to record.
    #[inline(always)]
    pub(super) fn open(&mut self, entry: &Entry) {
        if entry.open.load(Relaxed) == 0 {
            entry.open.store(1, Relaxed);
            self.attention += 1;
        }
    }

    /// It no longer has.
    #[inline(always)]
    pub(super) fn close(&mut self, entry: &Entry) {
        if entry.open.load(Relaxed) != 0 {
            entry.open.store(0, Relaxed);
            self.attention -= 1;
        }
    }

    /// Whether the thread, which has ended, held a lock then, as far as its table says that.
    fn holds_any(&self) -> bool {
        let noted = !sleeps::glibc_serves();
        let entries = &self.shared.entries;
        (0..entries.size()).map(|place| entries.at(place)).any(|entry| {
            entry.depth.load(Relaxed) != 0
                && entry.address.load(Relaxed) != 0
                && match record::<Class>(entry.class.load(Relaxed)).kind.load(Relaxed) {
                    kind if kind::is_rwlock(kind) => true,
                    kind::MUTEX | kind::SPIN => noted && entries::holds(entry),
                    kind => kind & kind::OWN != 0 && entries::holds(entry),
                }
        })
    }

    /// Adds all that the thread, which has ended, has counted to the records.
    fn settle(&self) {
        for place in 0..self.shared.entries.size() {
            let entry = self.shared.entries.at(place);
            entry.open.store(0, Relaxed);
            entries::flush(entry);
        }
        pending::settle(self.thread, self.table);
        self.table.tallies.iter().for_each(tallies::flush);
    }

    /// Gives the thread more entries. `false`: it has them, or there is no room.
    #[cold]
    fn extend(&mut self) -> bool {
        self.moved_out = 0;
        if self.shared.entries.size() != ENTRIES {
            return false;
        }
        let Some(more) = append::<More>(1) else { return false };
        (0..ENTRIES).for_each(|place| self.empty(self.shared.entries.at(place)));
        self.shared.entries.set(&record::<More>(more).entries);
        self.thread.pending.tables.fetch_or((more + 1) << u16::BITS, Relaxed);
        true
    }
}
