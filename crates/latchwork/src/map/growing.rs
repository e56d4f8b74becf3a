//! A hash table that grows while it is read.
//!
//! It is divided into *shards*, by the hash: each has a lock for updaters, elements (`elements.rs`), and
//! buckets (`lines.rs`) that grow by themselves, so that growing keeps few out, and not for long. Readers are
//! in an RCU section and lock nothing. To grow a shard, its updaters are kept out, larger buckets are made that
//! name the same elements, and published. Readers of the old ones go on undisturbed: nobody changes them any
//! more, and they have what was there when the reader began.
//!
//! Elements have no links. (Where they are in chains, a larger table needs a second link in each element, as in
//! Xu's resizing of 2010 (McKenney, "Is Parallel Programming Hard", section 10.4), or a grace period for each step
//! in which a chain is unzipped: Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming", USENIX ATC 2011. Both put off growing while a reader stays in the table before.)
//!
//! States of an element: put -> in a slot (of `lines`), and in those of larger buckets -> removed -> retired.
//! States of buckets: made -> published (D) -> left by updaters (the next are published) -> retired.
//! Size: an element is as large as key and value; 9 to 18 bytes for its share of the buckets; 400 per shard.
//! Lines that an update writes to: the shard's lock and what it is for, the bucket, the element, and what the element
//! was or will be retired with. A lookup reads none of them but the bucket and the element.
//! Atomics: a lookup none; an update those of the shard's lock; a removal one more, to come back, and one to be used
//! again.
//! Progress: lookups are wait-free; updates wait for updates of their shard, one of which may be growing it.

use super::array::Array;
use super::elements::Elements;
use super::lines::{Lines, Place, SLOTS};
use crate::locks::mutex::RawMutex;
use crate::machine::{Machine, Records, Word};
use crate::reclaim::rcu::{RcuDomain, RcuGuard};
use crate::reclaim::{Header, Retire};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::hash::{BuildHasher, Hash};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// An element.
pub struct Node<K, V> {
    /// Its key.
    pub key: K,
    /// Its value.
    pub value: V,
}

/// Elements for each bucket before there are twice as many buckets. With more, too many would need a spare line.
const FILL: usize = SLOTS * 2 / 3;

/// The buckets of a shard.
#[repr(C)]
struct Buckets<M: Machine> {
    header: Header,
    lines: Lines<M>,
}

// SAFETY: `repr(C)`, and the header comes first.
unsafe impl<M: Machine> Retire for Buckets<M> {}

/// A part of the table: what readers need, which changes only when it grows.
struct Shard<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    buckets: <L::Machine as Machine>::Ptr<Buckets<L::Machine>>,
    elements: *mut Elements<L, Node<K, V>>,
}

// SAFETY: elements are `Send` and `Sync`.
unsafe impl<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> Send for Shard<L, K, V> {}
// SAFETY: as above.
unsafe impl<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> Sync for Shard<L, K, V> {}

/// An element, and where it is.
type Found<'g, M, K, V> = Option<(Place<'g, M>, &'g Node<K, V>)>;

/// An element before and after a change.
pub struct Changed<'g, K, V> {
    /// Before.
    pub before: Option<&'g Node<K, V>>,
    /// After.
    pub after: Option<&'g Node<K, V>>,
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

/// The table. See the [module documentation](self).
pub struct Growing<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    shards: Array<Shard<L, K, V>>,
    hasher: S,
    domain: &'static RcuDomain<L::Machine>,
}

impl<L, K, V> Shard<L, K, V>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn new(buckets: usize, shift: u32) -> Self {
        Shard {
            buckets: Word::new(Buckets::new(Lines::new(buckets, shift))),
            elements: Box::into_raw(Elements::new()),
        }
    }

    #[inline(always)]
    fn elements(&self) -> &Elements<L, Node<K, V>> {
        // SAFETY: they are there as long as the shard.
        unsafe { &*self.elements }
    }

    /// The buckets, as sections find them.
    #[inline(always)]
    fn lines<'g>(&self, _: &'g RcuGuard<'_, L::Machine>) -> &'g Lines<L::Machine> {
        // (D) pairs with `resize`. SAFETY: they are retired after others have been published, so that the
        // section protects them.
        unsafe { &(*self.buckets.load(Acquire)).lines }
    }

    /// An element that was found in a slot.
    #[inline(always)]
    fn node<'g>(&'g self, _: &'g RcuGuard<'_, L::Machine>, number: u32) -> &'g Node<K, V> {
        // SAFETY: it is retired after it has left its slot, so that the section protects it.
        unsafe { &*self.elements().at(number) }
    }

    #[inline(always)]
    fn find<'g>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
        hash: u64,
        mut wanted: impl FnMut(&Node<K, V>) -> bool,
    ) -> Found<'g, L::Machine, K, V> {
        let mut found = None;
        let place = self.lines(guard).find(hash, |number| {
            let node = self.node(guard, number);
            found = Some(node);
            wanted(node)
        })?;
        Some((place, found?))
    }
}

impl<M: Machine> Buckets<M> {
    fn new(lines: Lines<M>) -> *mut Self {
        Box::into_raw(Box::new(Buckets { header: Header::new(), lines }))
    }
}

impl<L, K, V, S> Growing<L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// With so many shards, a power of two, and room for `capacity` elements, if they spread evenly.
    pub fn new(domain: &'static RcuDomain<L::Machine>, shards: usize, capacity: usize, hasher: S) -> Self {
        assert!(shards.is_power_of_two());
        let buckets = capacity.div_ceil(shards * FILL).next_power_of_two();
        Growing { shards: Array::new(shards, |_| Shard::new(buckets, shards.ilog2())), hasher, domain }
    }

    /// A section of the calling thread.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, L::Machine> {
        self.domain.enter()
    }

    #[inline(always)]
    fn shard(&self, hash: u64) -> &Shard<L, K, V> {
        // SAFETY: there is a power of two of them.
        unsafe { self.shards.masked(hash) }
    }

    /// All elements that are there during the whole section, and perhaps some of those that are not.
    pub fn iter<'g>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
    ) -> impl Iterator<Item = &'g Node<K, V>> + use<'g, L, K, V, S> {
        self.shards
            .iter()
            .flat_map(move |shard| shard.lines(guard).elements().map(move |number| shard.node(guard, number)))
    }

    /// How many elements there were, a moment ago.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.elements().count.load(Relaxed)).sum()
    }

    /// How many elements there is room for, if they spread evenly.
    pub fn capacity(&self) -> usize {
        let guard = self.enter();
        self.shards.iter().map(|shard| shard.lines(&guard).buckets() * FILL).sum()
    }

    /// To be called before an update, which retires inside of a section: by who is outside, it waits while too
    /// much waits to be reclaimed.
    #[inline]
    pub fn throttle(&self) {
        self.domain.heed();
    }
}

impl<L, K, V, S> Growing<L, K, V, S>
where
    L: RawMutex<Machine: Records>,
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// The element with this key.
    #[inline]
    pub fn find<'g, Q: Hash + Eq + ?Sized>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
        key: &Q,
    ) -> Option<&'g Node<K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        Some(self.shard(hash).find(guard, hash, |node| node.key.borrow() == key)?.1)
    }

    /// Sets or keeps the value of a key, as `change` says, which runs while no other update of
    /// the shard does. Returns the element before and the one after.
    pub fn set<'g>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
        key: K,
        change: impl FnOnce(Option<&V>) -> Change<V>,
    ) -> Changed<'g, K, V> {
        let hash = self.hasher.hash_one(&key);
        let (shard, mut outgrown) = (self.shard(hash), Vec::new());
        let (changed, removed) = under(&shard.elements().lock, || {
            let (place, before) = shard.find(guard, hash, |node| node.key == key).unzip();
            // SAFETY: only with the lock, and once it has left its slot.
            let remove = |place: Place<'_, _>| unsafe { shard.elements().remove(place.element) };
            match change(before.map(|node| &node.value)) {
                Change::Keep => (Changed { before, after: before }, None),
                Change::Remove => {
                    let cleared = place.inspect(|place| Self::clear(shard, place));
                    (Changed { before, after: None }, cleared.map(remove))
                }
                Change::Set(value) => {
                    // SAFETY: under the lock.
                    let number = unsafe { shard.elements().put(Node { key, value }) };
                    match &place {
                        Some(place) => place.replace(number),
                        None => self.insert(guard, shard, hash, number, &mut outgrown),
                    }
                    (Changed { before, after: Some(shard.node(guard, number)) }, place.map(remove))
                }
            }
        });
        // Without the lock: this may drop other keys and values. SAFETY: it has just left its slot.
        removed.inspect(|removed| unsafe { self.domain.retire(*removed) });
        // SAFETY: sections that begin now find others.
        outgrown.into_iter().for_each(|buckets| unsafe { self.domain.retire(buckets) });
        changed
    }

    /// Removes the element with this key for which `wanted` says so.
    pub fn remove<'g, Q: Hash + Eq + ?Sized>(
        &'g self,
        guard: &'g RcuGuard<'_, L::Machine>,
        key: &Q,
        wanted: impl FnMut(&Node<K, V>) -> bool,
    ) -> Option<&'g Node<K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash);
        let (node, removed) = under(&shard.elements().lock, || {
            let (place, node) = shard.find(guard, hash, wanted)?;
            Self::clear(shard, &place);
            // SAFETY: under the lock; it has left its slot.
            Some((node, unsafe { shard.elements().remove(place.element) }))
        })?;
        // SAFETY: as in `set`.
        unsafe { self.domain.retire(removed) };
        Some(node)
    }

    fn clear(shard: &Shard<L, K, V>, place: &Place<'_, L::Machine>) {
        place.clear();
        shard.elements().count.store(shard.elements().count.load(Relaxed) - 1, Relaxed);
    }

    /// Puts an element into a slot, and grows the shard if it has as many as it should have. Under its lock.
    #[inline]
    fn insert(
        &self,
        guard: &RcuGuard<'_, L::Machine>,
        shard: &Shard<L, K, V>,
        hash: u64,
        number: u32,
        outgrown: &mut Vec<*mut Buckets<L::Machine>>,
    ) {
        let (mut lines, count) = (shard.lines(guard), shard.elements().count.load(Relaxed));
        while count >= lines.buckets() * FILL || !lines.insert(hash, number) {
            outgrown.push(self.resize(guard, shard, lines.buckets() * 2));
            lines = shard.lines(guard);
        }
        shard.elements().count.store(count + 1, Relaxed);
    }

    /// Gives a shard other buckets, at least so many, with the same elements. Under its lock. Returns those before.
    #[cold]
    fn resize(
        &self,
        guard: &RcuGuard<'_, L::Machine>,
        shard: &Shard<L, K, V>,
        mut buckets: usize,
    ) -> *mut Buckets<L::Machine> {
        let old = shard.lines(guard);
        let new = loop {
            let new = Lines::new(buckets, self.shards.len().ilog2());
            let fits = old
                .elements()
                .all(|number| new.insert(self.hasher.hash_one(&shard.node(guard, number).key), number));
            if fits {
                break Buckets::new(new);
            }
            buckets *= 2;
        };
        // (D) Who sees them sees what is in them.
        shard.buckets.swap(new, Release)
    }

    /// Makes room for `capacity` elements, if they spread evenly; `shrink`: and for no more.
    pub fn fit(&self, capacity: usize, shrink: bool) {
        let (guard, capacity) = (self.enter(), capacity.div_ceil(self.shards.len()));
        for shard in self.shards.iter() {
            let outgrown = under(&shard.elements().lock, || {
                let wanted =
                    capacity.max(shard.elements().count.load(Relaxed)).div_ceil(FILL).next_power_of_two();
                let buckets = shard.lines(&guard).buckets();
                let resize = wanted > buckets || (shrink && wanted < buckets);
                resize.then(|| self.resize(&guard, shard, wanted))
            });
            // SAFETY: as in `set`.
            outgrown.inspect(|buckets| unsafe { self.domain.retire(*buckets) });
        }
    }
}

impl<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> Drop for Shard<L, K, V> {
    fn drop(&mut self) {
        // SAFETY: nobody else has the shard; they were made by `Box::into_raw`.
        let buckets = unsafe { Box::from_raw(self.buckets.load(Acquire)) };
        // SAFETY: as above.
        unsafe { Elements::close(self.elements, buckets.lines.elements()) };
    }
}

/// Runs `section` with the lock, which is released also if that panics.
#[inline(always)]
fn under<L: RawMutex, T>(lock: &L, section: impl FnOnce() -> T) -> T {
    struct Held<'a, L: RawMutex>(&'a L, L::Token);
    impl<L: RawMutex> Drop for Held<'_, L> {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: made with the token of an acquisition, and dropped once.
            unsafe { self.0.unlock(self.1) }
        }
    }
    let _held = Held(lock, lock.lock());
    section()
}
