//! A hash table that grows while it is read.
//!
//! The hash divides the table into *shards* (`shards`). Each shard has a lock for its updates, and buckets (`lines`), and
//! grows by itself, so growing keeps few updates out, and not for long. A shard that has many elements, or at whose lock
//! threads meet, is split in two. Readers are in an RCU section and lock nothing. To grow a shard, a thread holds the
//! shard's lock, makes larger buckets that name the same elements, and publishes them. Readers of the old buckets go on
//! undisturbed: no thread changes the old buckets any more, and they name what was there when the readers began.
//!
//! Elements (`elements`) have no links. Where elements are in chains, a larger table needs a second link in each element, as
//! in Xu's resizing of 2010 (McKenney, "Is Parallel Programming Hard", section 10.4). Or it needs a grace period for each
//! step in which it unzips a chain: Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming", USENIX ATC 2011. Both put off growing while a reader stays in the previous table.
//!
//! State of an element: put -> in a slot (of `lines`), and in those of larger buckets -> removed -> retired.
//!
//! State of buckets: made -> published (D) -> replaced (larger ones, or two halves, are published) -> retired.
//!
//! What pairs with what: (A), (B) and (C) are in `lines` and `elements`, (D) in `shards`.
//!
//! Size: an element is as large as key and value; 8 to 16 bytes for its share of the buckets; 144 bytes for each shard, and
//! 500 for the table. An update writes to the lines of the shard's lock, the bucket and the element. A lookup reads an entry
//! of the directory, the bucket, and the element if it is there.
//! Atomics: none for a lookup; those of the shard's lock for an update, and two to six for each 21 removals (for each
//! removal, if elements have a destructor).
//! Progress: lookups are wait-free. Updates wait for other updates of their shard, one of which may be growing it.

use super::elements::{Batch, Elements};
use super::lines::{Line, Lines, Place, SLOTS};
use super::shards::{Held, Shards, after};
use crate::locks::mutex::RawMutex;
use crate::machine::{Machine, Records};
use crate::reclaim::rcu::{RcuDomain, RcuGuard};
use crate::reclaim::{Header, Retire};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};
use core::mem::{ManuallyDrop, needs_drop};
use core::ptr::NonNull;
use equivalent::Equivalent;

/// An element.
pub struct Node<K, V> {
    /// Its key.
    pub key: K,
    /// Its value.
    pub value: V,
}

/// Elements for each bucket at which the shard gets twice as many buckets: as many as memory and caches gain by. With 9, one bucket in 8
/// needs a spare line, and there are as many.
const FILL: usize = SLOTS * 3 / 4;

/// Buckets at which a shard is split instead of growing: moving its 36,864 elements takes about a millisecond, in which its
/// updaters wait.
const LARGE: usize = 4096;

/// Batches that a thread retires before it reclaims: as many elements (1344) as are worth a heavy fence, and no more than
/// stay in the cache until they are used again.
const BATCHES: u32 = 64;

/// The buckets of a shard that have been replaced.
#[repr(C)]
struct Outgrown<M: Machine> {
    header: Header,
    word: *mut Line<M>,
    /// The next of those that are to be retired.
    next: *mut Outgrown<M>,
}

// SAFETY: they are freed by one thread, and no other thread uses them then.
unsafe impl<M: Machine> Send for Outgrown<M> {}

// SAFETY: `repr(C)`, and the header comes first.
unsafe impl<M: Machine> Retire for Outgrown<M> {}

impl<M: Machine> Drop for Outgrown<M> {
    fn drop(&mut self) {
        // SAFETY: the buckets have been replaced, and no reader is left.
        unsafe { Lines::from_word(self.word).free() };
    }
}

/// How many shards a table has: in the beginning, and at most; powers of two.
#[derive(Copy, Clone, Debug)]
pub struct Count {
    /// In the beginning.
    pub first: usize,
    /// At most.
    pub most: usize,
}

/// What becomes of an element.
pub enum Change<V> {
    /// It stays as it is, or is still not there.
    Keep,
    /// It is replaced, or inserted.
    Set(V),
    /// It is removed.
    Remove,
}

/// What a table consists of, for statistics.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Shards, each of which has a lock for its updates.
    pub shards: usize,
    /// Buckets of all shards.
    pub buckets: usize,
    /// Spare lines that are in use, because a bucket had more than 12 elements.
    pub spare: usize,
    /// Elements that the fullest shard has.
    pub fullest: usize,
    /// Bytes of the table and its elements, without what keys and values own, and without removed elements.
    pub bytes: usize,
}

type Memory<L, K, V> = Elements<L, Node<K, V>>;

/// The table. See the [module documentation](self).
pub struct Growing<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    shards: Shards<L, Node<K, V>>,
    elements: NonNull<Memory<L, K, V>>,
    hasher: S,
    domain: &'static RcuDomain<L::Machine>,
}

// SAFETY: keys and values are `Send` and `Sync`, and the table owns its elements.
unsafe impl<L: RawMutex<Machine: Records>, K: Send + Sync, V: Send + Sync, S: Send> Send
    for Growing<L, K, V, S>
{
}
// SAFETY: shared use gives out shared references to keys and values, which are `Sync`; updates are under locks.
unsafe impl<L: RawMutex<Machine: Records>, K: Send + Sync, V: Send + Sync, S: Sync> Sync
    for Growing<L, K, V, S>
{
}

/// Where an element is, and the element.
type Found<'m, M, K, V> = Option<(Place<'m, M>, NonNull<Node<K, V>>)>;

/// A key, whose shard is locked until this is dropped: no other thread changes its element meanwhile.
pub struct Slot<'m, L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    table: &'m Growing<L, K, V, S>,
    held: ManuallyDrop<Held<'m, L, Node<K, V>>>,
    /// The buckets of the key's shard.
    lines: Lines<'m, L::Machine>,
    hash: u64,
    /// The element, and where it is.
    found: Found<'m, L::Machine, K, V>,
    garbage: Garbage<L, Node<K, V>>,
    /// Whether the shard says that this thread is busy ([`lock_around`](Growing::lock_around)).
    busy: bool,
}

/// What is to be retired after the lock has been released, because that may drop other keys and values. Two words that are
/// passed by value: so an update that has no garbage keeps them in registers.
struct Garbage<L: RawMutex, T: Send + Sync + 'static> {
    /// A chain of full batches.
    batches: *mut Batch<L, T>,
    /// A chain of buckets that have been replaced.
    outgrown: *mut Outgrown<L::Machine>,
}

impl<L: RawMutex, T: Send + Sync + 'static> Copy for Garbage<L, T> {}
impl<L: RawMutex, T: Send + Sync + 'static> Clone for Garbage<L, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Garbage<L, T> {
    /// These buckets, or none if the pointer is null.
    #[inline(always)]
    fn new(outgrown: *mut Outgrown<L::Machine>) -> Self {
        Garbage { batches: core::ptr::null_mut(), outgrown }
    }

    #[inline(always)]
    fn is_empty(self) -> bool {
        self.batches.is_null() && self.outgrown.is_null()
    }

    /// Adds a batch, unless it is null.
    #[inline(always)]
    fn add(&mut self, batch: *mut Batch<L, T>) {
        if !batch.is_null() {
            // SAFETY: a full batch is this thread's alone until it is retired.
            self.batches = unsafe { Batch::chain(batch, self.batches) };
        }
    }

    /// Adds buckets.
    fn add_outgrown(&mut self, outgrown: *mut Outgrown<L::Machine>) {
        // SAFETY: replaced buckets are this thread's alone until they are retired.
        unsafe { (*outgrown).next = self.outgrown };
        self.outgrown = outgrown;
    }

    /// Takes a batch.
    fn next_batch(&mut self) -> Option<*mut Batch<L, T>> {
        let batch = self.batches;
        (!batch.is_null()).then(|| {
            // SAFETY: a full batch is this thread's alone until it is retired.
            self.batches = unsafe { Batch::unchain(batch) };
            batch
        })
    }

    /// Takes replaced buckets.
    fn next_outgrown(&mut self) -> Option<*mut Outgrown<L::Machine>> {
        let outgrown = self.outgrown;
        (!outgrown.is_null()).then(|| {
            // SAFETY: replaced buckets are this thread's alone until they are retired.
            self.outgrown = unsafe { (*outgrown).next };
            outgrown
        })
    }
}

impl<L, K, V, S> Growing<L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A table with room for `capacity` elements, if they spread evenly.
    ///
    /// # Panics
    ///
    /// If the numbers of shards are no powers of two, and if `capacity` elements are more than addresses can tell apart.
    pub fn new(domain: &'static RcuDomain<L::Machine>, shards: Count, capacity: usize, hasher: S) -> Self {
        let Count { first, most } = shards;
        assert!(first.is_power_of_two() && most.is_power_of_two() && first <= most, "{shards:?}");
        Self::check(capacity);
        let wanted = capacity.div_ceil(LARGE * FILL).next_power_of_two().clamp(first, most);
        let buckets = capacity.div_ceil(wanted * FILL).next_power_of_two();
        let shards = Shards::new(wanted.ilog2(), most.ilog2(), buckets);
        let elements = NonNull::from(Box::leak(Elements::new()));
        Growing { shards, elements, hasher, domain }
    }

    fn check(capacity: usize) {
        let bytes = capacity.div_ceil(FILL).checked_mul(size_of::<Line<L::Machine>>());
        assert!(bytes.is_some_and(|bytes| bytes <= isize::MAX as usize), "capacity overflow");
    }

    /// Begins a section of the calling thread.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, L::Machine> {
        self.domain.enter()
    }

    #[inline(always)]
    fn elements(&self) -> &Memory<L, K, V> {
        // SAFETY: the elements are freed after the table (`Elements::close`).
        unsafe { self.elements.as_ref() }
    }

    /// An element that was found in a slot.
    #[inline(always)]
    fn node<'g>(&'g self, _: &'g RcuGuard<'_, L::Machine>, number: u32) -> &'g Node<K, V> {
        // SAFETY: an element is retired after it has left its slot, so the section protects it.
        unsafe { &*self.elements().at(number) }
    }

    /// All buckets. All elements that are there during the whole section are in one of them, once; and perhaps some that
    /// come or go meanwhile.
    fn lines<'g>(
        &'g self,
        _: &'g RcuGuard<'_, L::Machine>,
    ) -> impl Iterator<Item = Lines<'g, L::Machine>> + use<'g, L, K, V, S> {
        // SAFETY: the section lasts for `'g`.
        unsafe { self.shards.all_lines() }
    }

    /// All elements that are there during the whole section, each once, and perhaps some that come or go meanwhile.
    pub fn iter<'g>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
    ) -> impl Iterator<Item = &'g Node<K, V>> + use<'g, L, K, V, S> {
        self.lines(guard).flat_map(|lines| lines.elements()).map(move |number| self.node(guard, number))
    }

    /// [`iter`](Growing::iter) in parts of at most `lines` lines, for several threads. All of them end before the section.
    #[cfg(feature = "rayon")]
    pub(super) fn parts<'g>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
        lines: usize,
    ) -> Vec<(Lines<'g, L::Machine>, core::ops::Range<usize>)> {
        let parts = |all: Lines<'g, _>| {
            (0..all.lines()).step_by(lines).map(move |at| (all, at..all.lines().min(at + lines)))
        };
        self.lines(guard).flat_map(parts).collect()
    }

    /// The elements of one of the [`parts`](Growing::parts).
    #[cfg(feature = "rayon")]
    pub(super) fn part<'g>(
        &'g self,
        lines: Lines<'g, L::Machine>,
        range: core::ops::Range<usize>,
    ) -> impl Iterator<Item = &'g Node<K, V>> + use<'g, L, K, V, S> {
        // SAFETY: an element is retired after it has left its slot, so the section in which the parts were made protects
        // it. That section lasts for `'g`, in whichever thread.
        lines.elements_of(range).map(move |number| unsafe { &*self.elements().at(number) })
    }

    /// How many elements there were, a moment ago.
    pub fn count(&self) -> usize {
        self.shards.count()
    }

    /// How many elements there is room for, if they spread evenly.
    pub fn capacity(&self) -> usize {
        self.lines(&self.enter()).map(|lines| lines.buckets() * FILL).sum()
    }

    /// What the table consists of. Locks each shard for a moment.
    pub fn parts_list(&self) -> Parts {
        let mut parts = Parts { bytes: self.shards.bytes() + self.elements().bytes(), ..Parts::default() };
        self.shards.each(|mut held| {
            parts.shards += 1;
            parts.buckets += held.lines().buckets();
            parts.spare += held.own().spare;
            parts.fullest = parts.fullest.max(held.count());
        });
        parts
    }

    /// The hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// To be called before an update that retires inside of a section. If the calling thread is in no section, this
    /// waits while there is too much garbage.
    #[inline]
    pub fn throttle(&self) {
        self.domain.throttle_if_pressed();
    }

    /// Retires what has been removed. The caller holds no lock.
    #[inline(always)]
    fn retire(&self, garbage: Garbage<L, Node<K, V>>) {
        if !garbage.is_empty() {
            self.retire_some(garbage);
        }
    }

    #[inline(never)]
    fn retire_some(&self, mut garbage: Garbage<L, Node<K, V>>) {
        let first = garbage.next_batch();
        match first {
            Some(only) if garbage.is_empty() => self.retire_batch(only),
            first => {
                garbage.add(first.unwrap_or(core::ptr::null_mut()));
                self.retire_all(garbage);
            }
        }
    }

    fn retire_batch(&self, batch: *mut Batch<L, Node<K, V>>) {
        let every = if needs_drop::<Node<K, V>>() { u32::MAX } else { BATCHES };
        // SAFETY: the elements have left their slots; readers protect elements with sections of RCU.
        unsafe { self.domain.retire_in_batches(batch, every) };
    }

    #[cold]
    #[inline(never)]
    fn retire_all(&self, garbage: Garbage<L, Node<K, V>>) {
        /// What is left if a destructor panics that one of the first has run: it is retired, and reclaimed later.
        struct Rest<'a, L: RawMutex<Machine: Records>, T: Send + Sync + 'static>(
            &'a RcuDomain<L::Machine>,
            Garbage<L, T>,
        );
        impl<L: RawMutex<Machine: Records>, T: Send + Sync + 'static> Drop for Rest<'_, L, T> {
            fn drop(&mut self) {
                while let Some(batch) = self.1.next_batch() {
                    // SAFETY: as in `retire_batch`.
                    unsafe { self.0.retire_for_later(batch) };
                }
                while let Some(outgrown) = self.1.next_outgrown() {
                    // SAFETY: the buckets have been replaced, so sections that begin now find others.
                    unsafe { self.0.retire_for_later(outgrown) };
                }
            }
        }
        let mut rest = Rest(self.domain, garbage);
        while let Some(batch) = rest.1.next_batch() {
            self.retire_batch(batch);
        }
        while let Some(outgrown) = rest.1.next_outgrown() {
            // SAFETY: the buckets are this thread's until they are retired.
            let lines = unsafe { Lines::<L::Machine>::from_word((*outgrown).word) }.lines();
            // SAFETY: as in `Rest`.
            unsafe { self.domain.retire_sized(outgrown, lines * size_of::<Line<L::Machine>>()) };
        }
        core::mem::forget(rest);
    }

    /// Removes all elements of all shards, one shard after the other. Each element that was there before the call is
    /// removed, and perhaps some that come meanwhile. Memory for removed elements is used again meanwhile.
    pub fn clear(&self) {
        self.shards.each(|mut held| {
            if held.count() == 0 {
                return;
            }
            let new = Lines::make(held.lines().buckets(), held.lines().depth());
            let old = self.shards.replace(&mut held, new, 0);
            held.set_count(0);
            let mut garbage = Garbage::new(Outgrown::new(old));
            let removed = old.elements();
            // SAFETY: the elements were in slots, and no thread finds them in the new buckets. This thread holds the lock.
            unsafe {
                self.elements().remove_all(&mut held.own().numbers, removed, |batch| garbage.add(batch))
            };
            drop(held);
            self.retire(garbage);
        });
    }

    /// Takes all elements out of their slots. Each is to be taken, or is leaked.
    pub(super) fn detach(&mut self) -> Vec<u32> {
        let guard = self.domain.enter();
        let places = self.lines(&guard).flat_map(|lines| lines.places_of(0..lines.lines()));
        places.inspect(Place::clear).map(|place| place.element).collect()
    }

    /// Takes an element that [`detach`](Growing::detach) has taken out of its slot.
    ///
    /// # Safety
    ///
    /// `detach` of this table returned the number, which is taken once.
    pub(super) unsafe fn take(&mut self, number: u32) -> Node<K, V> {
        // SAFETY: the element was in a slot, and no thread finds it any more. The caller has the table alone, so no reader
        // has the element.
        unsafe { self.elements().at(number).read() }
    }
}

impl<M: Machine> Outgrown<M> {
    fn new(lines: Lines<'_, M>) -> *mut Self {
        let (header, word) = (Header::new(), lines.into_word());
        Box::into_raw(Box::new(Outgrown { header, word, next: core::ptr::null_mut() }))
    }
}

/// Buckets that are not published yet, and freed if a hasher panics.
struct New<'a, M: Machine>(Lines<'a, M>);

impl<M: Machine> Drop for New<'_, M> {
    fn drop(&mut self) {
        // SAFETY: no other thread has them.
        unsafe { self.0.free() };
    }
}

impl<'a, M: Machine> New<'a, M> {
    fn publish(self) -> Lines<'a, M> {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl<L, K, V, S> Growing<L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// The hash of a key. Always inlined: the standard library's hasher takes two thirds of the time if the compiler knows
    /// how long the key is. Nothing here uses `hash_one`: it is not inlined, and a `BuildHasher` may have one with other results.
    #[inline(always)]
    #[allow(clippy::manual_hash_one)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        // Each loop runs once, and is gone from the machine code. They are for LLVM's inliner, which takes a call in two loops
        // for a frequent one and allows it 525 units of code, in place of 325. `DefaultHasher::write` has 410 for an integer.
        for _ in 0..1 {
            for _ in 0..1 {
                key.hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// The element with this key.
    #[inline]
    pub fn find<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
        key: &Q,
    ) -> Option<&'g Node<K, V>> {
        let hash = self.hash(key);
        let mut found = None;
        // SAFETY: the section lasts for `'g`.
        unsafe { self.shards.lines(hash) }.find(hash, |number| {
            let node = self.node(guard, number);
            found = Some(node);
            key.equivalent(&node.key)
        })?;
        found
    }

    /// Locks the shard of a key, and looks the key up. Waits for the other updates of the shard. Until the slot is dropped,
    /// the calling thread must not update the table. Always inlined, because then an update has the slot in registers.
    #[inline(always)]
    pub fn lock<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Slot<'_, L, K, V, S> {
        let hash = self.hash(key);
        let mut held = self.shards.lock(hash);
        let mut garbage = Garbage::new(core::ptr::null_mut());
        if held.is_hot() {
            // SAFETY: `held` is not used meanwhile.
            garbage = Garbage::new(self.split_hot(&mut *unsafe { held.copy() }, hash));
        }
        // SAFETY: the slot holds the lock, and finds the buckets anew when it has replaced them.
        let lines = unsafe { held.lines_now() };
        let mut slot = Slot {
            table: self,
            held: ManuallyDrop::new(held),
            lines,
            hash,
            found: None,
            garbage,
            busy: false,
        };
        let mut found = None;
        let place = lines.find(hash, |number| {
            // SAFETY: the number was found in a slot under the lock.
            let node = unsafe { self.elements().at(number) };
            // SAFETY: elements are in allocated memory.
            found = Some(unsafe { NonNull::new_unchecked(node) });
            // SAFETY: the element is retired by a thread that holds the lock.
            key.equivalent(unsafe { &(*node).key })
        });
        slot.found = place.zip(found);
        slot
    }

    /// [`lock`](Growing::lock) by a thread that runs functions of the program before the slot is dropped. If they update a key of the
    /// same shard, that update panics; else it would wait for its own thread.
    #[inline(always)]
    pub fn lock_around<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Slot<'_, L, K, V, S> {
        let mut slot = self.lock(key);
        slot.busy = true;
        slot.held.set_busy(true);
        slot
    }

    /// Splits a shard at whose lock threads meet, if it may be split. Returns the buckets that have been replaced, or null.
    #[cold]
    #[inline(never)]
    fn split_hot(&self, held: &mut Held<'_, L, Node<K, V>>, hash: u64) -> *mut Outgrown<L::Machine> {
        held.cool();
        let (depth, buckets) = (held.lines().depth(), held.lines().buckets());
        if depth < self.shards.deepest() {
            self.split(held, hash, (buckets / 2).max(1))
        } else {
            core::ptr::null_mut()
        }
    }

    /// Makes room for more elements in a shard. Returns the buckets that have been replaced.
    #[cold]
    #[inline(never)]
    fn grow(&self, held: &mut Held<'_, L, Node<K, V>>, hash: u64) -> *mut Outgrown<L::Machine> {
        let (depth, buckets) = (held.lines().depth(), held.lines().buckets());
        if buckets >= LARGE && depth < self.shards.deepest() {
            self.split(held, hash, buckets)
        } else {
            self.resize(held, buckets * 2)
        }
    }

    fn hash_of(&self, number: u32) -> u64 {
        // SAFETY: the caller holds the lock of the shard in whose buckets it has found the number.
        self.hash(unsafe { &(*self.elements().at(number)).key })
    }

    /// Gives a shard other buckets, at least `buckets` of them, with the same elements. Returns those before.
    fn resize(&self, held: &mut Held<'_, L, Node<K, V>>, mut buckets: usize) -> *mut Outgrown<L::Machine> {
        let old = held.lines();
        let (new, spare) = loop {
            let (new, mut spare) = (New(Lines::make(buckets, old.depth())), 0);
            if old.elements().all(|number| new.0.insert(self.hash_of(number), number, &mut spare)) {
                // SAFETY: not freed before they are replaced; the lock is held until they are published.
                break (unsafe { Lines::from_word(new.publish().into_word()) }, spare);
            }
            buckets *= 2;
        };
        Outgrown::new(self.shards.replace(held, new, spare))
    }

    /// Splits a shard in two, with at least `buckets` buckets each. The shard that is held keeps the half with `hash`.
    /// Returns the buckets before.
    fn split(
        &self,
        held: &mut Held<'_, L, Node<K, V>>,
        hash: u64,
        buckets: usize,
    ) -> *mut Outgrown<L::Machine> {
        let old = held.lines();
        let mut sizes = [buckets; 2];
        let halves = loop {
            let mut halves = sizes.map(|buckets| (New(Lines::make(buckets, old.depth() + 1)), 0, 0));
            let fits = old.elements().all(|number| {
                let hash = self.hash_of(number);
                let half = (hash >> old.depth() & 1) as usize;
                let (lines, count, spare) = &mut halves[half];
                *count += 1;
                let fits = lines.0.insert(hash, number, spare);
                sizes[half] <<= usize::from(!fits);
                fits
            });
            if fits {
                break halves.map(|(new, count, spare)| {
                    // SAFETY: not freed before they are replaced; the lock is held until they are published.
                    (unsafe { Lines::from_word(new.publish().into_word()) }, count, spare)
                });
            }
        };
        Outgrown::new(self.shards.split(held, hash, halves))
    }

    /// Makes room for `capacity` elements, if they spread evenly. With `shrink`, for no more than that.
    ///
    /// # Panics
    ///
    /// If `capacity` elements are more than addresses can tell apart.
    pub fn fit(&self, capacity: usize, shrink: bool) {
        Self::check(capacity);
        self.shards.each(|mut held| {
            let (depth, buckets) = (held.lines().depth(), held.lines().buckets());
            let share = capacity.div_ceil(1 << depth).max(held.count());
            let wanted = share.div_ceil(FILL).next_power_of_two();
            let outgrown = if wanted > buckets || (shrink && wanted < buckets) {
                self.resize(&mut held, wanted)
            } else {
                core::ptr::null_mut()
            };
            drop(held);
            self.retire(Garbage::new(outgrown));
        });
    }

    /// Splits the shard of a key in two, if it may be split. The shard keeps the half of the key.
    pub fn split_of<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        let mut slot = self.lock(key);
        let outgrown = self.split_hot(&mut slot.held, slot.hash);
        if !outgrown.is_null() {
            slot.replaced(outgrown);
        }
    }

    /// Splits every shard in two that may be split.
    pub fn split_all(&self) {
        self.shards.each(|mut held| {
            let hash = held.prefix();
            let garbage = Garbage::new(self.split_hot(&mut held, hash));
            drop(held);
            self.retire(garbage);
        });
    }

    /// The elements of one bucket, in a section of their own; and where the next bucket begins. The first one begins at 0.
    /// A walk that goes on there meets all elements that are there the whole time, each once, also if the table grows or
    /// shrinks between its sections.
    pub fn bucket<'g>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
        begin: u64,
    ) -> (impl Iterator<Item = &'g Node<K, V>> + use<'g, L, K, V, S>, Option<u64>) {
        // SAFETY: the section lasts for `'g`.
        let lines = unsafe { self.shards.lines(begin) };
        let bits = lines.depth() + lines.buckets().ilog2();
        let bucket = (begin >> lines.depth()) as usize & (lines.buckets() - 1);
        // If the table has shrunk, the bucket begins before `begin`, with elements that the walk has met.
        let met = begin >> bits != 0;
        let new =
            move |node: &&Node<K, V>| !met || self.hash(&node.key).reverse_bits() >= begin.reverse_bits();
        let elements = lines.elements_in(bucket).map(|number| self.node(guard, number));
        (elements.filter(new), after(begin, bits))
    }

    /// Removes an element that was found in a section, unless it has been removed or replaced since.
    pub fn remove_found(&self, guard: &RcuGuard<'_, L::Machine>, node: &Node<K, V>) -> bool {
        let _ = guard;
        let mut slot = self.lock(&node.key);
        let same = slot.node().is_some_and(|found| core::ptr::eq(found, node));
        if same {
            slot.remove();
        }
        same
    }
}

impl<'m, L, K, V, S> Slot<'m, L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// The shard has other buckets now than these.
    fn replaced(&mut self, outgrown: *mut Outgrown<L::Machine>) {
        self.garbage.add_outgrown(outgrown);
        // (The place of the key's element was in the buckets before.)
        self.found = None;
        // SAFETY: the slot holds the lock.
        self.lines = unsafe { self.held.lines_now() };
    }

    /// The element with the key.
    #[inline(always)]
    pub fn node(&self) -> Option<&Node<K, V>> {
        // SAFETY: this thread holds the lock, so no thread has removed the element that was found.
        self.found.as_ref().map(|(_, node)| unsafe { node.as_ref() })
    }

    /// Where the element with the key is.
    pub fn as_ptr(&self) -> Option<NonNull<Node<K, V>>> {
        self.found.as_ref().map(|(_, node)| *node)
    }

    /// The element with the key, to be used after the slot has been dropped, as long as the section and the table last:
    ///
    /// ```compile_fail,E0505
    /// # use latchwork::locks::mutex::tas::RawTas;
    /// # use latchwork::machine::Native;
    /// # use latchwork::map::growing::{Count, Growing};
    /// # use latchwork::reclaim::rcu::global;
    /// # use std::hash::RandomState;
    /// # type Table = Growing<RawTas<Native>, u32, String, RandomState>;
    /// let guard = global().enter();
    /// let table = Table::new(global(), Count { first: 1, most: 1 }, 0, RandomState::new());
    /// table.lock(&1).set(1, "one".into());
    /// let node = table.lock(&1).protected(&guard);
    /// drop(table);
    /// assert_eq!(node.unwrap().value, "one");
    /// ```
    #[inline(always)]
    pub fn protected<'g>(&self, _: &'g RcuGuard<'_, L::Machine>) -> Option<&'g Node<K, V>>
    where
        'm: 'g,
    {
        // SAFETY: the element has not been removed yet, so the section protects it. The table outlives the reference, because
        // `'m` is how long it is borrowed.
        self.found.as_ref().map(|(_, node)| unsafe { node.as_ref() })
    }

    /// Removes the element with the key, if there is one.
    #[inline]
    pub fn remove(&mut self) {
        let Some((place, _)) = self.found.take() else { return };
        place.clear();
        self.held.set_count(self.held.count() - 1);
        // SAFETY: the element has just left its slot.
        let batch = unsafe { self.table.elements().remove(&mut self.held.own().numbers, place.element) };
        self.garbage.add(batch);
    }
}

impl<'m, L, K, V, S> Slot<'m, L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of the key that the slot is of. Replaces the previous element, if any.
    #[inline]
    pub fn set(&mut self, key: K, value: V) {
        let (elements, node) = (self.table.elements(), Node { key, value });
        let place = match self.found.take() {
            Some((mut place, _)) => {
                let numbers = &mut self.held.own().numbers;
                let number = elements.put(numbers, node);
                place.replace(number);
                // SAFETY: the element has just left its slot.
                let batch =
                    unsafe { elements.remove(numbers, core::mem::replace(&mut place.element, number)) };
                self.garbage.add(batch);
                place
            }
            None => {
                let (vacancy, count) = loop {
                    let (lines, count) = (self.lines, self.held.count());
                    if count < lines.buckets() * FILL
                        && let Some(vacancy) = lines.vacancy(self.hash, &mut self.held.own().spare)
                    {
                        break (vacancy, count);
                    }
                    // SAFETY: `held` is not used meanwhile.
                    let outgrown = self.table.grow(&mut *unsafe { self.held.copy() }, self.hash);
                    self.replaced(outgrown);
                };
                let number = elements.put(&mut self.held.own().numbers, node);
                self.held.set_count(count + 1);
                vacancy.fill(number)
            }
        };
        // SAFETY: the number is in use.
        let node = unsafe { NonNull::new_unchecked(elements.at(place.element)) };
        self.found = Some((place, node));
    }
}

impl<L, K, V, S> Drop for Slot<'_, L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    #[inline(always)]
    fn drop(&mut self) {
        if self.busy {
            self.held.set_busy(false);
        }
        // SAFETY: it is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.held) };
        self.table.retire(self.garbage);
    }
}

impl<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop
    for Growing<L, K, V, S>
{
    fn drop(&mut self) {
        let (mut lines, mut numbers) = (Vec::new(), Vec::new());
        self.shards.take_apart(|buckets, in_hand| {
            lines.push(buckets);
            numbers.push(in_hand);
        });
        /// Frees the buckets, also if a destructor of an element panics.
        struct Freed<M: Machine>(Vec<Lines<'static, M>>);
        impl<M: Machine> Drop for Freed<M> {
            fn drop(&mut self) {
                // SAFETY: the table ends, so no thread uses its buckets.
                self.0.drain(..).for_each(|lines| unsafe { lines.free() });
            }
        }
        let lines = Freed(lines);
        let left = lines.0.iter().flat_map(|lines| lines.elements());
        // SAFETY: the elements are from `Elements::new`, and the buckets name those that have not been removed. No thread
        // uses the table.
        unsafe { Elements::close(self.elements.as_ptr(), left, numbers.into_iter()) };
    }
}
