//! Memory for the elements of a map, as dense as it can be: reading an element is a lookup's second cache miss.
//!
//! Elements have numbers. They lie in chunks, of which each is twice as large as the one before, with nothing beside
//! them. A shard takes fresh numbers in [`RUN`]s, so that shards seldom meet at the counter.
//!
//! What removed elements need to wait for their readers is a [`Batch`]: a retired object that names several elements. The
//! shard fills it under its lock, and the thread that fills it up retires it. When the elements have been reclaimed, their
//! batch goes back to the shard, into its [`Lane`], with the elements' numbers in it. So a map whose size stays the same
//! allocates nothing, an update pays a fraction of what retiring an object costs, and updates of different shards share no
//! word. (With one list for the whole map, under a lock, updates did not scale, however many shards there were.)
//!
//! A shard whose lane is empty looks into the first lane, which is that of the shard that the map began with: it may have got
//! back the numbers of elements whose keys have moved to other shards.
//!
//! Elements with a destructor are retired one by one, because programs may wait for the destructor
//! ([`barrier`](crate::reclaim::Reclaim::barrier)). Elements without one cannot tell when they are reclaimed.
//!
//! State of a number: fresh -> in a shard's run -> in use (`put`) -> in a shard's open batch (`remove`) -> retired with it
//! -> returned (the thread that reclaims) -> in a shard's free batch (`refill`) -> in use (`put`).
//!
//! State of a batch: open -> full, and retired -> returned -> free -> blank, when its last number is in use again -> open.
//!
//! At the end, `close` counts the batches that were returned. The thread that reclaims the last of the others frees the
//! memory.
//!
//! What pairs with what: (A) a reclaiming thread pushes a batch onto `returned` (release), and `refill` or `close` takes
//! the list (acquire). (B) `close` adds the number of missing ones to `owed`, and each reclaiming thread after that
//! subtracts one, with read-modify-writes: the thread that makes it 0 comes after all others. (C) a thread publishes a
//! chunk (release), and threads that put elements into it load it (acquire). (D) a thread links a lane (release), and
//! threads that look for it load the link (acquire).
//!
//! Size: 256 bytes, and the chunks; a lane has 64 bytes; a batch has 64 bytes, or 128 if elements have no destructor.

use super::array::Array;
use crate::locks::mutex::RawMutex;
use crate::machine::{Arith, Machine, Word};
use crate::reclaim::{Header, Retire};
use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::mem::{MaybeUninit, needs_drop, offset_of};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Fresh numbers that a shard takes at a time, and elements in the first chunk; a power of two.
pub const RUN: u32 = 8;
/// Chunks: enough for all numbers of 32 bits.
const CHUNKS: usize = (32 - RUN.ilog2()) as usize;

/// Removed elements, which are retired together. Its memory is longer than this type: see [`layout`](Batch::layout).
#[repr(C, align(64))]
pub struct Batch<L: RawMutex, T: Send + Sync + 'static> {
    header: Header,
    /// Where it goes back to.
    lane: *const Lane<L, T>,
    /// The next of its list.
    next: *mut Batch<L, T>,
    /// How many numbers are here.
    count: u32,
    /// The first of the numbers.
    numbers: [MaybeUninit<u32>; 5],
}

// SAFETY: its lane is freed after it has come back. A thread that has it has the elements with it, which are `Send`.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Batch<L, T> {}
// SAFETY: one thread at a time uses it: the holder of a lock, or the thread that retires and reclaims.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Batch<L, T> {}

type Usize<L> = <<L as RawMutex>::Machine as Machine>::Usize;
type Ptr<L, T> = <<L as RawMutex>::Machine as Machine>::Ptr<T>;

/// The memory.
#[repr(align(64))]
pub struct Elements<L: RawMutex, T: Send + Sync + 'static> {
    /// The first number that was never given out.
    fresh: Usize<L>,
    /// The first lane. The others are linked behind it.
    lanes: Ptr<L, Lane<L, T>>,
    /// After `close`: how many batches have not come back.
    owed: Usize<L>,
    chunks: [Ptr<L, T>; CHUNKS],
}

/// Where the batches of a shard come back to. It is freed with the memory of the elements, and so after the shard.
#[repr(align(64))]
pub struct Lane<L: RawMutex, T: Send + Sync + 'static> {
    /// The list of those batches whose elements have been reclaimed, the last one first; or [`closed`].
    returned: Ptr<L, Batch<L, T>>,
    /// Where the elements are.
    home: *const Elements<L, T>,
    /// The next lane.
    next: Ptr<L, Lane<L, T>>,
}

// SAFETY: its words may be used by any thread; `home` is freed after all batches have come back.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Lane<L, T> {}
// SAFETY: as above.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Lane<L, T> {}

/// The numbers that a shard has in hand, guarded by the shard's lock.
pub struct Numbers<L: RawMutex, T: Send + Sync + 'static> {
    /// Fresh ones: the next, and the end of the run.
    run: [u32; 2],
    /// Batches of reclaimed ones: a list.
    free: *mut Batch<L, T>,
    /// The batch of those that have been removed last, or null.
    open: *mut Batch<L, T>,
    /// Batches without a number: a list.
    blank: *mut Batch<L, T>,
    /// Where its batches come back to; null until it needs a batch.
    lane: *const Lane<L, T>,
    /// How many batches have been handed over to be retired, less those that have been used up after that. (Below 0, and
    /// so wrapped around, if the shard has used up those of the first lane.)
    sent: usize,
    owned: PhantomData<T>,
}
// SAFETY: batches are `Send`.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Numbers<L, T> {}

/// Stands in each `returned` once the map has ended.
fn closed<T>() -> *mut T {
    core::ptr::without_provenance_mut(1)
}

/// The chunk of a number, and the index there.
#[inline(always)]
fn locate(number: u32) -> (usize, usize) {
    let at = number + RUN;
    let chunk = at.ilog2();
    ((chunk - RUN.ilog2()) as usize, (at ^ (1 << chunk)) as usize)
}

/// Elements in a chunk.
fn length(chunk: usize) -> usize {
    (RUN as usize) << chunk
}

impl<L: RawMutex, T: Send + Sync + 'static> Batch<L, T> {
    /// Whether each removed element is retired at once.
    const EAGER: bool = needs_drop::<T>();
    /// Bytes of a batch. If elements are retired one by one, a smaller one serves.
    const SIZE: usize = if Self::EAGER { 64 } else { 128 };
    /// Numbers that a batch has room for.
    const ROOM: u32 = ((Self::SIZE - offset_of!(Self, numbers)) / size_of::<u32>()) as u32;

    const LAYOUT: Layout = match Layout::from_size_align(Self::SIZE, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("64 is a power of two"),
    };

    /// An empty batch. To be given to [`free`](Batch::free) in the end.
    fn make(lane: *const Lane<L, T>) -> *mut Self {
        // SAFETY: the layout's size is not 0.
        let this = unsafe { alloc(Self::LAYOUT) }.cast::<Self>();
        if this.is_null() {
            handle_alloc_error(Self::LAYOUT);
        }
        let numbers = [MaybeUninit::uninit(); 5];
        // SAFETY: just allocated, with at least as many bytes as the type has.
        unsafe { this.write(Batch { header: Header::new(), lane, next: null_mut(), count: 0, numbers }) };
        this
    }

    /// Puts a full batch before others that are to be retired.
    ///
    /// # Safety
    ///
    /// The batch is the caller's alone.
    pub unsafe fn chain(this: *mut Self, others: *mut Self) -> *mut Self {
        // SAFETY: the batch is the caller's alone.
        unsafe { (*this).next = others };
        this
    }

    /// Takes the first batch off its chain, which is not empty; returns the others.
    ///
    /// # Safety
    ///
    /// The batch is the caller's alone.
    pub unsafe fn unchain(this: *mut Self) -> *mut Self {
        // SAFETY: the batch is the caller's alone.
        unsafe { core::mem::replace(&mut (*this).next, null_mut()) }
    }

    /// Frees a batch.
    ///
    /// # Safety
    ///
    /// `this` is from `make`, and no thread uses it.
    unsafe fn free(this: *mut Self) {
        // SAFETY: `make` allocated it with this layout.
        unsafe { dealloc(this.cast(), Self::LAYOUT) };
    }

    /// Where the number at an index is.
    ///
    /// # Safety
    ///
    /// `this` is from `make`, and has not been freed; `at` is below `ROOM`.
    #[inline(always)]
    unsafe fn number(this: *mut Self, at: u32) -> *mut u32 {
        // SAFETY: the batch has memory for `ROOM` numbers.
        unsafe { (&raw mut (*this).numbers).cast::<u32>().add(at as usize) }
    }

    /// Adds a number. Returns whether the batch is full with it.
    ///
    /// # Safety
    ///
    /// The batch is the caller's alone, and not full.
    #[inline(always)]
    unsafe fn push(this: *mut Self, number: u32) -> bool {
        // SAFETY: the batch is the caller's alone, and not full.
        unsafe {
            let count = (*this).count;
            Self::number(this, count).write(number);
            (*this).count = count + 1;
            count + 1 == Self::ROOM
        }
    }

    /// Frees a list; returns how long it was.
    ///
    /// # Safety
    ///
    /// No other thread uses the list, whose entries are from `make`.
    unsafe fn free_all(mut list: *mut Self) -> usize {
        let mut count = 0;
        while !list.is_null() {
            // SAFETY: the entry is the caller's alone, and leaves the list.
            let next = unsafe { (*list).next };
            // SAFETY: the entry has left the list, so it is freed once.
            unsafe { Self::free(list) };
            list = next;
            count += 1;
        }
        count
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Numbers<L, T> {
    /// Of a new shard.
    pub fn new() -> Self {
        let (free, open, blank) = (null_mut(), null_mut(), null_mut());
        Numbers { run: [0, 0], free, open, blank, lane: null(), sent: 0, owned: PhantomData }
    }

    /// Where the shard's batches come back to.
    fn lane(&mut self, home: &Elements<L, T>) -> *const Lane<L, T> {
        if self.lane.is_null() {
            self.lane = home.make_lane();
        }
        self.lane
    }

    /// An empty batch.
    fn batch(&mut self, home: &Elements<L, T>) -> *mut Batch<L, T> {
        let (lane, blank) = (self.lane(home), self.blank);
        if blank.is_null() {
            return Batch::make(lane);
        }
        // SAFETY: a batch of the list is the lock holder's, and not freed before `close`.
        unsafe {
            self.blank = (*blank).next;
            blank.write(Batch {
                header: Header::new(),
                lane,
                next: null_mut(),
                count: 0,
                numbers: [MaybeUninit::uninit(); 5],
            });
        }
        blank
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Elements<L, T> {
    /// No elements. To be given to [`close`](Elements::close) in the end.
    pub fn new() -> Box<Self> {
        Box::new(Elements {
            fresh: Word::new(0),
            lanes: Word::new(null_mut()),
            owed: Word::new(0),
            chunks: core::array::from_fn(|_| Word::new(null_mut())),
        })
    }

    /// Where an element is.
    ///
    /// # Safety
    ///
    /// The number is in use, or was: it came from [`put`](Elements::put).
    #[inline(always)]
    pub unsafe fn at(&self, number: u32) -> *mut T {
        // SAFETY: `refill` gives out no number so large. (So the compiler need not ask whether the sum in `locate` is 0.)
        unsafe { core::hint::assert_unchecked(number < u32::MAX - RUN) };
        let (chunk, at) = locate(number);
        // SAFETY: `put` gives out numbers below the end of the last chunk. Relaxed: the thread that put the element has
        // seen the chunk, and published the number after that.
        let first = unsafe { self.chunks.get_unchecked(chunk) }.load(Relaxed);
        first.wrapping_add(at)
    }

    /// Adds an element. The numbers are those of a shard whose lock the caller holds.
    #[inline]
    pub fn put(&self, numbers: &mut Numbers<L, T>, element: T) -> u32 {
        let number = self.number(numbers);
        // SAFETY: the number is fresh, or its element has been reclaimed: no other thread uses it.
        unsafe { self.at(number).write(element) };
        number
    }

    /// A number for a new element.
    #[inline]
    fn number(&self, numbers: &mut Numbers<L, T>) -> u32 {
        loop {
            // SAFETY: null, or a batch of the shard's, which is not freed before `close`.
            if let Some(free) = unsafe { numbers.free.as_mut() } {
                free.count -= 1;
                // SAFETY: there were more than `count` numbers in the batch, which are initialised.
                let number = unsafe { *Batch::number(numbers.free, free.count) };
                if free.count == 0 {
                    let next = core::mem::replace(&mut free.next, numbers.blank);
                    numbers.blank = core::mem::replace(&mut numbers.free, next);
                    numbers.sent = numbers.sent.wrapping_sub(1);
                } else {
                    // The next insertion finds its memory in the cache.
                    L::Machine::prefetch(|| {
                        // SAFETY: as above; and the number was in use.
                        unsafe { self.at(*Batch::number(numbers.free, free.count - 1)) }.cast_const()
                    });
                }
                return number;
            }
            if !self.refill(numbers) {
                let number = numbers.run[0];
                numbers.run[0] += 1;
                return number;
            }
        }
    }

    /// Gives a shard the numbers that have come back. If there are none, gives it fresh ones and returns `false`.
    #[cold]
    fn refill(&self, numbers: &mut Numbers<L, T>) -> bool {
        // (D) pairs with the exchange in `make_lane`.
        let lanes = [numbers.lane, self.lanes.load(Acquire).cast_const()];
        // SAFETY: null, or a lane, which is freed after `close`.
        for lane in lanes.into_iter().filter_map(|lane| unsafe { lane.as_ref() }) {
            if !lane.returned.load(Relaxed).is_null() {
                // (A) pairs with the exchange in `give_back`.
                numbers.free = lane.returned.swap(null_mut(), Acquire);
                if !numbers.free.is_null() {
                    return true;
                }
            }
        }
        if numbers.run[0] == numbers.run[1] {
            let first = self.fresh.fetch_add(RUN as usize, Relaxed);
            assert!(first < (u32::MAX - 2 * RUN) as usize, "more than 4 billion elements in a map");
            let (chunk, _) = locate(first as u32);
            // (C) pairs with the exchange in `grow`: what this thread publishes comes after the chunk.
            if self.chunks[chunk].load(Acquire).is_null() {
                self.grow(chunk);
            }
            numbers.run = [first as u32, first as u32 + RUN];
        }
        false
    }

    /// Makes a lane.
    #[cold]
    fn make_lane(&self) -> *const Lane<L, T> {
        let (returned, home) = (Word::new(null_mut()), core::ptr::from_ref(self));
        let lane = Box::into_raw(Box::new(Lane { returned, home, next: Word::new(null_mut()) }));
        // (D) pairs with the loads of the links. SAFETY: lanes are freed after `close`, and the new one has not been linked.
        unsafe {
            if self.lanes.load(Relaxed).is_null()
                && self.lanes.compare_exchange(null_mut(), lane, AcqRel, Acquire).is_ok()
            {
                return lane;
            }
            let link = &(*self.lanes.load(Acquire)).next;
            let mut second = link.load(Acquire);
            loop {
                (*lane).next.store(second, Relaxed);
                match link.compare_exchange(second, lane, AcqRel, Acquire) {
                    Ok(_) => return lane,
                    Err(now) => second = now,
                }
            }
        }
    }

    /// All lanes.
    fn all_lanes(&self) -> impl Iterator<Item = *mut Lane<L, T>> + use<L, T> {
        // (D) pairs with the exchanges in `make_lane`.
        let mut next = self.lanes.load(Acquire);
        core::iter::from_fn(move || {
            // SAFETY: null, or a lane, which is freed after `close`, with all others at once.
            let lane = unsafe { next.as_ref() }?;
            // (D) as above.
            Some(core::mem::replace(&mut next, lane.next.load(Acquire)))
        })
    }

    /// Makes a chunk.
    #[cold]
    fn grow(&self, chunk: usize) {
        let memory = Array::<MaybeUninit<T>>::new(length(chunk), |_| MaybeUninit::uninit()).into_first();
        // (C) pairs with the load in `refill`.
        if self.chunks[chunk].compare_exchange(null_mut(), memory.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: made above with this length, and no other thread has it.
            drop(unsafe { Array::from_first(memory, length(chunk)) });
        }
    }

    /// Removes an element. Returns the batch to be retired, if one is full. The numbers are those of a shard whose lock the
    /// caller holds.
    ///
    /// # Safety
    ///
    /// The number is in use, and no thread finds the element any more.
    #[inline]
    pub unsafe fn remove(&self, numbers: &mut Numbers<L, T>, number: u32) -> *mut Batch<L, T> {
        if numbers.open.is_null() {
            numbers.open = numbers.batch(self);
        }
        // SAFETY: the open batch is the lock holder's, and not full.
        if unsafe { Batch::push(numbers.open, number) } || Batch::<L, T>::EAGER {
            Self::seal(numbers)
        } else {
            null_mut()
        }
    }

    /// The open batch, which is to be retired, or null.
    #[inline]
    fn seal(numbers: &mut Numbers<L, T>) -> *mut Batch<L, T> {
        let open = core::mem::replace(&mut numbers.open, null_mut());
        numbers.sent = numbers.sent.wrapping_add(usize::from(!open.is_null()));
        open
    }

    /// Removes many elements. Calls `retire` with batches to be retired.
    ///
    /// # Safety
    ///
    /// The numbers are in use, and no thread finds the elements any more. The caller holds the lock of the shard whose
    /// `numbers` these are, or has them alone.
    pub unsafe fn remove_all(
        &self,
        numbers: &mut Numbers<L, T>,
        removed: impl Iterator<Item = u32>,
        mut retire: impl FnMut(*mut Batch<L, T>),
    ) {
        let mut open: *mut Batch<L, T> = null_mut();
        for number in removed {
            if open.is_null() {
                open = numbers.batch(self);
            }
            // SAFETY: the open batch is this thread's, and not full.
            if unsafe { Batch::push(open, number) } {
                numbers.sent = numbers.sent.wrapping_add(1);
                retire(core::mem::replace(&mut open, null_mut()));
            }
        }
        if !open.is_null() {
            numbers.sent = numbers.sent.wrapping_add(1);
            retire(open);
        }
    }

    /// Bytes of the memory for elements, with that for batches left out.
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().enumerate().filter(|(_, first)| !first.load(Relaxed).is_null());
        let lanes = self.all_lanes().count() * size_of::<Lane<L, T>>();
        size_of::<Self>() + lanes + chunks.map(|(chunk, _)| length(chunk) * size_of::<T>()).sum::<usize>()
    }

    /// Drops the elements that `left` names. Frees the memory, or has the thread do so that returns the last batch; also if a
    /// destructor panics. (A second panic ends the process.)
    ///
    /// # Safety
    ///
    /// `this` is from `new`, and no thread uses it but those that reclaim. `left` names the elements that have not been
    /// removed. `shards` are the numbers of all shards.
    pub unsafe fn close(
        this: *mut Self,
        left: impl Iterator<Item = u32>,
        shards: impl Iterator<Item = Numbers<L, T>>,
    ) {
        struct Closing<L: RawMutex, T: Send + Sync + 'static, I: Iterator<Item = Numbers<L, T>>>(
            *mut Elements<L, T>,
            I,
        );
        impl<L: RawMutex, T: Send + Sync + 'static, I: Iterator<Item = Numbers<L, T>>> Drop for Closing<L, T, I> {
            fn drop(&mut self) {
                // SAFETY: the caller of `close` promises it, and the elements that were left have been dropped.
                unsafe { Elements::settle(self.0, &mut self.1) };
            }
        }
        /// The elements that have not been dropped yet.
        struct Left<'a, L: RawMutex, T: Send + Sync + 'static, I: Iterator<Item = u32>>(
            &'a Elements<L, T>,
            I,
        );
        impl<L: RawMutex, T: Send + Sync + 'static, I: Iterator<Item = u32>> Drop for Left<'_, L, T, I> {
            fn drop(&mut self) {
                // SAFETY: these elements are in use, and no thread finds them any more, says the caller of `close`.
                self.1.by_ref().for_each(|number| unsafe { self.0.at(number).drop_in_place() });
            }
        }
        let closing = Closing(this, shards);
        if needs_drop::<T>() {
            // SAFETY: the elements are freed after that: by `closing`, or by a reclaiming thread after the addition there.
            let mut left = Left(unsafe { &*closing.0 }, left);
            // SAFETY: as in `Left`, which drops those after one whose destructor has panicked.
            left.1.by_ref().for_each(|number| unsafe { left.0.at(number).drop_in_place() });
        }
    }

    /// Frees the memory, or has the thread do so that returns the last batch.
    ///
    /// # Safety
    ///
    /// As [`close`](Elements::close). All elements have been dropped or removed.
    unsafe fn settle(this: *mut Self, shards: &mut dyn Iterator<Item = Numbers<L, T>>) {
        let (elements, owed) = {
            // SAFETY: it is freed below, or by a reclaiming thread after the addition (B) below.
            let elements = unsafe { &*this };
            let mut owed = 0usize;
            for numbers in shards {
                owed = owed.wrapping_add(numbers.sent);
                // SAFETY: no other thread uses what a shard has in hand. The elements of an open batch have no destructor.
                unsafe {
                    owed = owed.wrapping_sub(Batch::free_all(numbers.free));
                    if !numbers.open.is_null() {
                        Batch::free(numbers.open);
                    }
                    Batch::free_all(numbers.blank);
                }
            }
            for lane in elements.all_lanes() {
                // (A) pairs with the exchange in `give_back`. SAFETY: lanes are freed with the elements.
                let returned = unsafe { (*lane).returned.swap(closed(), AcqRel) };
                // SAFETY: no thread uses these batches since the exchange.
                owed = owed.wrapping_sub(unsafe { Batch::free_all(returned) });
            }
            (elements, owed)
        };
        // (B) pairs with the subtraction in `give_back`: the thread that makes the sum 0 comes last. (The word may have been
        // below 0, if some have come back since the exchange.)
        if elements.owed.fetch_add(owed, AcqRel).wrapping_add(owed) == 0 {
            // SAFETY: it is a box, and every batch has come back, so no other thread uses it.
            drop(unsafe { Box::from_raw(this) });
        }
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Drop for Elements<L, T> {
    fn drop(&mut self) {
        for lane in self.all_lanes() {
            // SAFETY: `make_lane` made a box, each lane is linked once, and all batches have come back. `all_lanes` has gone on to
            // the next lane already.
            drop(unsafe { Box::from_raw(lane) });
        }
        for (chunk, first) in self.chunks.iter().enumerate() {
            let first = first.load(Relaxed).cast::<MaybeUninit<T>>();
            if !first.is_null() {
                // SAFETY: `grow` made the array with this length.
                drop(unsafe { Array::from_first(first, length(chunk)) });
            }
        }
    }
}

// SAFETY: `repr(C)`, and the header comes first.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Retire for Batch<L, T> {
    const BYTES: usize = {
        let elements = if Self::EAGER { 1 } else { Self::ROOM as usize };
        let bytes = Self::SIZE + elements * size_of::<T>();
        if bytes < u32::MAX as usize { bytes } else { u32::MAX as usize }
    };

    unsafe fn reclaim(this: *mut Self) {
        /// The elements of a batch that have not been dropped. Gives the batch back when they have.
        struct Rest<L: RawMutex, T: Send + Sync + 'static>(*mut Batch<L, T>, u32);
        impl<L: RawMutex, T: Send + Sync + 'static> Rest<L, T> {
            fn drop_elements(&mut self) {
                // SAFETY: the batch is this thread's until it is given back. Its lane and its home are freed after that.
                let home = unsafe { &*(*(*self.0).lane).home };
                while self.1 > 0 {
                    self.1 -= 1;
                    // SAFETY: the number is one of the batch's. No thread uses the element any more.
                    unsafe { home.at(*Batch::number(self.0, self.1)).drop_in_place() };
                }
            }
        }
        impl<L: RawMutex, T: Send + Sync + 'static> Drop for Rest<L, T> {
            fn drop(&mut self) {
                // After a panic of a destructor, the elements that are left. (A second panic ends the process.)
                self.drop_elements();
                // SAFETY: the elements have been dropped.
                unsafe { Elements::give_back(self.0) };
            }
        }
        // SAFETY: no other thread uses the batch, says the caller.
        let count = unsafe { (*this).count };
        let mut rest = Rest(this, if needs_drop::<T>() { count } else { 0 });
        rest.drop_elements();
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Elements<L, T> {
    /// Gives a batch back to its home.
    ///
    /// # Safety
    ///
    /// The batch was retired, its elements have been dropped, and this is called once after that.
    unsafe fn give_back(this: *mut Batch<L, T>) {
        // SAFETY: no other thread uses it until it is pushed. Its lane is freed after it has come back.
        let (batch, lane) = unsafe { (&mut *this, &*(*this).lane) };
        let mut first = lane.returned.load(Acquire);
        while first != closed() {
            batch.next = first;
            // (A) pairs with the exchanges in `refill` and `close`: the elements' readers come before their numbers are used
            // again.
            match lane.returned.compare_exchange(first, this, Release, Acquire) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
        let home = lane.home.cast_mut();
        // SAFETY: it is from `make`, and no other thread uses it.
        unsafe { Batch::free(this) };
        // (B) pairs with the addition in `close`. SAFETY: this one has not come back, so its home has not been freed.
        if unsafe { &*home }.owed.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: it is a box; every batch has come back, and `close` is over, so no other thread uses it.
            drop(unsafe { Box::from_raw(home) });
        }
    }
}
