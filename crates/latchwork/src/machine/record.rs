//! What each thread tells the threads that reclaim memory ([`Record`]), and what time it is ([`Clocks`]).
//!
//! The machine gives each thread a record, and finds the records of all threads; [`reclaim`](crate::reclaim) decides
//! what the words mean. `rcu` there describes the words `section` and `grace`, `qsbr` the word `online`, `epoch` the
//! words `pinned` and `epoch`, and `hazard` the hazard pointers.

use super::group::{Entry, Group};
use super::{Machine, Word};
use core::marker::PhantomData;
use core::panic::Location;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Hazard pointers of one guard, and so the objects that one guard can protect at the same time under every strategy.
pub const SLOTS: usize = 4;

/// Groups of hazard pointers in one block. With the link to the next block and the other words of a record, they fill two
/// cache lines.
const GROUPS: usize = 2;

/// The step in which [`Clocks::grace`] and [`Clocks::epoch`] grow, and with them the time that a reader stamps its
/// section with. In the bits below it, a reader's word counts its nested sections.
pub const STEP: u64 = 1 << 16;

/// The bit of a reader's word that says that its owner issues a full fence when it begins its next section: because it has no
/// light fence, or because it *rests*, so that others need no heavy fence on its behalf. It stands next to the count of nested
/// sections, so that the beginning of a section tests both at once.
pub const NEEDS_FULL_FENCE: u64 = STEP / 2;

/// The bits of a reader's word that count nested sections.
pub const NESTING: u64 = NEEDS_FULL_FENCE - 1;

/// The bits of a reader's word that say when its section began.
pub const TIME: u64 = !(STEP - 1);

/// A grace period that does not end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The thread that is in the way, by the number that the operating system knows it by. 0: no thread; the operating system refuses
    /// `membarrier` (a seccomp filter that was installed after the first use), so that no grace period can end.
    pub thread: u32,
    /// For how many nanoseconds the grace period has been open. The section began before that.
    pub nanos: u64,
    /// Where the section began, with the feature `section-origins`.
    pub origin: Option<&'static Location<'static>>,
}

impl Stall {
    /// A stall by the owner of this record.
    pub(crate) fn by<M: Machine>(record: &Record<M>, nanos: u64) -> Self {
        Stall { thread: record.thread.load(Relaxed), nanos, origin: record.origin() }
    }
}

/// A machine on which memory can be reclaimed: every thread has a [`Record`].
///
/// # Safety
///
/// - A record belongs to one thread at a time.
/// - Its group is linked, and says that the record is taken, before the owner gets the record and until the record is
///   idle. Groups stay linked and mapped for ever.
/// - A record whose owner has exited gets a new owner only when it [is idle](Record::is_idle), after the previous owner
///   has exited.
/// - No two records have the same number, except for 0.
/// - All threads see the same clocks.
pub unsafe trait Records: Machine {
    /// The calling thread's own record. The machine prepares the asymmetric fences when a thread gets its record.
    /// `section` and `pinned` have [`NEEDS_FULL_FENCE`] set then; if the fences are not to be had, they have it for ever.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm does that they are for.
    unsafe fn record() -> &'static Record<Self>;

    /// [`record`](Self::record), if that takes no call; `None`: the thread may have no record yet.
    ///
    /// # Safety
    ///
    /// As [`record`](Self::record).
    #[inline(always)]
    unsafe fn record_if_any() -> Option<&'static Record<Self>> {
        // SAFETY: the caller promises what `record` asks.
        Some(unsafe { Self::record() })
    }

    /// The newest group of records; all others are linked behind it.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm does that they are for.
    unsafe fn records() -> Option<&'static Group<Self, Record<Self>>>;

    /// The group that a record is in, and the record's index there.
    fn place(record: &'static Record<Self>) -> Option<(&'static Group<Self, Record<Self>>, usize)> {
        let mut groups = groups::<Self>().into_iter().flat_map(Group::groups);
        groups.find_map(|group| Some((group, group.index_of(record)?)))
    }

    /// The clocks that readers stamp their sections with.
    ///
    /// # Safety
    ///
    /// Memory safety rests on these words: the caller writes to them only as the algorithm does that they are for.
    unsafe fn clocks() -> &'static Clocks<Self>;

    /// Which process this is in a line of forks: a number below 2^30 that is another in the child than in the parent. By
    /// it the child tells what a thread of the parent held, which is not there, from what a thread of its own holds.
    fn generation() -> u32 {
        0
    }

    /// Writes to stderr that a grace period does not end. Nothing in the library calls this unasked.
    fn report_stall(stall: Stall) {
        let _ = stall;
    }
}

/// The calling thread's record.
#[inline(always)]
pub(crate) fn own<M: Records>() -> &'static Record<M> {
    // SAFETY: within this library, `reclaim` alone writes to records that have an owner, as the strategy does that a word is for.
    unsafe { M::record() }
}

/// The calling thread's record, if it takes no call to find.
#[inline(always)]
pub(crate) fn own_if_any<M: Records>() -> Option<&'static Record<M>> {
    // SAFETY: as in `own`.
    unsafe { M::record_if_any() }
}

/// The newest group of records.
#[inline(always)]
pub(crate) fn groups<M: Records>() -> Option<&'static Group<M, Record<M>>> {
    // SAFETY: within this library, `reclaim` alone writes to records that have an owner, as the strategy does that a word is for.
    unsafe { M::records() }
}

/// The time that readers stamp their sections with.
#[inline(always)]
pub(crate) fn clocks<M: Records>() -> &'static Clocks<M> {
    // SAFETY: within this library, `reclaim` alone lets time advance, one step for each grace period or epoch.
    unsafe { M::clocks() }
}

/// A thread's record. Its owner alone writes to it, except for `left`, which is the machine's; other threads read it. (In the
/// child of a fork, the thread that forked makes the records of threads idle that are not there.)
#[repr(C, align(128))]
pub struct Record<M: Machine> {
    /// General-purpose RCU: the time at which the outermost section began, and how many sections are nested; 0 in the
    /// bits of [`NESTING`] outside of sections.
    pub section: M::U64,
    /// QSBR: the time of the last quiescent state, and how many readers of this thread are online. The bit [`NEEDS_FULL_FENCE`]
    /// means here that the thread vouches for others.
    pub online: M::U64,
    /// Epochs: the epoch in which the outermost section began, and how many sections are nested.
    pub pinned: M::U64,
    /// For reports: the number by which the operating system knows the owner, or 0.
    pub thread: M::U32,
    /// For the machine: whether the owner has exited and left the record behind.
    pub left: M::U32,
    /// Hazard pointers.
    pub hazards: Hazards<M>,
    /// A number that no other record has, from 1 on and without many gaps, so that a table can have an entry for each
    /// record; 0 if the record has none. The machine sets it before the record has its first owner.
    pub number: M::U32,
    /// How many readers keep the record, and may begin a section at any time ([`Reclaim::Reader`](crate::reclaim::Reclaim::Reader)).
    pub keepers: M::U32,
    /// Where the outermost section began, or null.
    #[cfg(feature = "section-origins")]
    pub(crate) origin: M::Ptr<Location<'static>>,
}

/// Keeps the calling thread's record from being given to another thread, even if the owner exits meanwhile.
///
/// A thread that reads nothing gives its record back before the last of its thread-local destructors has run. Such a destructor
/// may still have a reader. Without this type, the reader's sections would be counted in a record that another thread has by then.
pub(crate) struct Kept<M: Records> {
    record: &'static Record<M>,
    /// Not `Send`: only the owner writes to a record.
    thread: PhantomData<*mut ()>,
}

impl<M: Records> Kept<M> {
    /// The calling thread's record.
    #[inline]
    pub(crate) fn new() -> Self {
        let record = own::<M>();
        let keepers =
            record.keepers.load(Relaxed).checked_add(1).expect("4 billion readers: they are leaked");
        record.keepers.store(keepers, Relaxed);
        Kept { record, thread: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> &'static Record<M> {
        self.record
    }
}

impl<M: Records> Drop for Kept<M> {
    #[inline]
    fn drop(&mut self) {
        let keepers = &self.record.keepers;
        // Release: pairs with the load in `is_idle`. What this reader did happens before the next owner gets the record.
        keepers.store(keepers.load(Relaxed) - 1, Release);
    }
}

/// A block of hazard pointers.
#[repr(C)]
pub struct Hazards<M: Machine> {
    /// One for each guard.
    pub groups: [Slots<M>; GROUPS],
    /// The next block, once the owner has needed one; the owner makes it, and it stays.
    pub(crate) more: M::Ptr<Hazards<M>>,
}

/// The value of [`Slots::used`] while the slots are hazard pointers.
pub const POINTERS: usize = 1;

/// The value of [`Slots::used`] while the first two slots are the interval of a section of
/// [`interval`](crate::reclaim::interval).
pub const INTERVAL: usize = 2;

/// The hazard pointers of a guard; or the two ends of an interval.
#[repr(C)]
pub struct Slots<M: Machine> {
    /// Each is 0 or an address inside of the object that is protected.
    pub hazards: [M::Usize; SLOTS],
    /// [`POINTERS`] or [`INTERVAL`] while a guard has the slots. While it is 0, the slots mean nothing.
    pub used: M::Usize,
}

impl<M: Machine> Hazards<M> {
    /// A block without guards.
    pub fn new() -> Self {
        Hazards {
            groups: core::array::from_fn(|_| Slots {
                hazards: core::array::from_fn(|_| M::Usize::new(0)),
                used: M::Usize::new(0),
            }),
            more: M::Ptr::new(null_mut()),
        }
    }

    /// The groups of this block and of those behind it.
    pub fn all(&'static self) -> impl Iterator<Item = &'static Slots<M>> {
        self.blocks().flat_map(|block| &block.groups)
    }

    /// This block and those behind it.
    pub fn blocks(&'static self) -> impl Iterator<Item = &'static Self> {
        core::iter::successors(Some(self), |block| {
            // Acquire: pairs with the store in `hazard`, where the owner links a block.
            // SAFETY: the link is null, or leads to a block that its owner has leaked.
            unsafe { block.more.load(Acquire).as_ref() }
        })
    }
}

impl<M: Machine> Default for Hazards<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Record<M> {
    /// The record of a thread that reads nothing.
    pub fn new() -> Self {
        Record {
            section: M::U64::new(NEEDS_FULL_FENCE),
            online: M::U64::new(0),
            pinned: M::U64::new(NEEDS_FULL_FENCE),
            thread: M::U32::new(0),
            left: M::U32::new(0),
            hazards: Hazards::new(),
            number: M::U32::new(0),
            keepers: M::U32::new(0),
            #[cfg(feature = "section-origins")]
            origin: M::Ptr::new(null_mut()),
        }
    }

    /// Where the owner's section began, with the feature `section-origins`.
    pub(crate) fn origin(&self) -> Option<&'static Location<'static>> {
        #[cfg(feature = "section-origins")]
        // SAFETY: null, or what `note_origin` stored.
        return unsafe { self.origin.load(Relaxed).as_ref() };
        #[cfg(not(feature = "section-origins"))]
        None
    }

    /// Before the owner begins a section, whose stamp is in `word`: notes where, with the feature `section-origins`, unless
    /// the section is nested.
    #[inline(always)]
    #[cfg_attr(feature = "section-origins", track_caller)]
    pub(crate) fn note_origin(&self, word: &M::U64) {
        #[cfg(feature = "section-origins")]
        if word.load(Relaxed) & NESTING == 0 {
            self.origin.store(core::ptr::from_ref(Location::caller()).cast_mut(), Relaxed);
        }
        let _ = word;
    }

    /// The record's address, as it is stored.
    pub fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }

    /// Whether the owner reads nothing, and has no reader that could.
    pub fn is_idle(&'static self) -> bool {
        // Acquire: what this owner did happens before the next owner gets the record.
        let outside = |word: &M::U64| word.load(Acquire) & NESTING == 0;
        outside(&self.section)
            && outside(&self.online)
            && outside(&self.pinned)
            && self.keepers.load(Acquire) == 0
            && self.hazards.all().all(|group| group.used.load(Acquire) == 0)
    }

    /// The words by which the owner says that it reads, and what each holds before the owner's first section.
    pub(crate) fn first_words(&self) -> [(&M::U64, u64); 3] {
        [(&self.section, NEEDS_FULL_FENCE), (&self.pinned, NEEDS_FULL_FENCE), (&self.online, 0)]
    }

    /// Makes the record idle, as a [new](Self::new) one is: for those of threads that a fork has not taken along, and for the next
    /// simulation.
    pub fn reset(&'static self) {
        for (word, value) in self.first_words() {
            word.store(value, Relaxed);
        }
        self.keepers.store(0, Relaxed);
        for group in self.hazards.all() {
            group.used.store(0, Relaxed);
            group.hazards.iter().for_each(|slot| slot.store(0, Relaxed));
        }
    }
}

// SAFETY: a record of zero bytes is idle, and only an owner begins to read.
unsafe impl<M: Machine> Entry<M> for Record<M> {
    fn left(&self) -> &M::U32 {
        &self.left
    }

    fn is_idle(&'static self) -> bool {
        Record::is_idle(self)
    }
}

impl<M: Machine> Default for Record<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// A hazard pointer that belongs to no thread ([`HazardPointer`](crate::reclaim::hazard::HazardPointer)).
#[repr(C, align(64))]
pub struct Hazard<M: Machine> {
    /// 0 or an address inside of the object that is protected.
    pub(crate) address: M::Usize,
    /// The page that this is in.
    pub(crate) page: M::Ptr<Group<M, Hazard<M>>>,
}

impl<M: Machine> Hazard<M> {
    pub(crate) fn new() -> Self {
        Hazard { address: M::Usize::new(0), page: M::Ptr::new(null_mut()) }
    }
}

/// What time it is for readers, and what else the process has once. Clocks only grow.
#[repr(C, align(128))]
pub struct Clocks<M: Machine> {
    /// For RCU: begins at [`STEP`], and grows by that with every grace period. The lowest bit is set, so that the clock
    /// is what a reader's word holds in one section: the stamp, and 1 nested.
    pub grace: M::U64,
    /// Keeps the clocks in cache lines of their own.
    apart: [M::U64; 15],
    /// For epochs: the same, growing with every epoch.
    pub epoch: M::U64,
    further: [M::U64; 15],
    /// The time that all threads are known to have reached: one for the sections of general-purpose RCU, one for the
    /// readers of QSBR. With it, the leader of a grace period tells those of other domains what it has found.
    pub reached: [M::U64; 2],
    /// The newest page of hazard pointers that belong to no thread, or null.
    pub(crate) hazards: M::Ptr<Group<M, Hazard<M>>>,
    last: [M::U64; 13],
    /// For intervals: the current era, which a thread lets grow when it has looked at a batch.
    pub(crate) era: M::U64,
}

impl<M: Machine> Clocks<M> {
    /// The beginning of time.
    pub fn new() -> Self {
        Clocks {
            grace: M::U64::new(STEP | 1),
            apart: core::array::from_fn(|_| M::U64::new(0)),
            epoch: M::U64::new(STEP | 1),
            further: core::array::from_fn(|_| M::U64::new(0)),
            reached: core::array::from_fn(|_| M::U64::new(0)),
            hazards: M::Ptr::new(null_mut()),
            last: core::array::from_fn(|_| M::U64::new(0)),
            era: M::U64::new(STEP),
        }
    }
}

impl Clocks<super::Native> {
    /// The beginning of time, in a constant.
    pub(crate) const fn native() -> Self {
        use core::sync::atomic::{AtomicPtr, AtomicU64};
        Clocks {
            grace: AtomicU64::new(STEP | 1),
            apart: [const { AtomicU64::new(0) }; 15],
            epoch: AtomicU64::new(STEP | 1),
            further: [const { AtomicU64::new(0) }; 15],
            reached: [const { AtomicU64::new(0) }; 2],
            hazards: AtomicPtr::new(null_mut()),
            last: [const { AtomicU64::new(0) }; 13],
            era: AtomicU64::new(STEP),
        }
    }
}

impl<M: Machine> Default for Clocks<M> {
    fn default() -> Self {
        Self::new()
    }
}
