//! A hash table that grows while it is read.
//!
//! The hash divides the table into *shards*. Each shard has a lock for its updates, elements (`elements`), and buckets
//! (`lines`). Each shard grows by itself, so growing keeps few updates out, and not for long. Readers are in an RCU section
//! and lock nothing. To grow a shard, a thread holds the shard's lock, makes larger buckets that name the same elements,
//! and publishes them. Readers of the old buckets go on undisturbed: no thread changes the old buckets any more, and they
//! name what was there when the readers began.
//!
//! Elements have no links. Where elements are in chains, a larger table needs a second link in each element, as in Xu's
//! resizing of 2010 (McKenney, "Is Parallel Programming Hard", section 10.4). Or it needs a grace period for each step in
//! which it unzips a chain: Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash Tables via Relativistic
//! Programming", USENIX ATC 2011. Both put off growing while a reader stays in the previous table.
//!
//! State of an element: put -> in a slot (of `lines`), and in those of larger buckets -> removed -> retired.
//!
//! State of buckets: made -> published (D) -> replaced (larger ones are published) -> retired.
//!
//! What pairs with what: (D) a thread publishes buckets (release), and readers and updates load them (acquire). (A), (B)
//! and (C) are in `lines` and `elements`.
//!
//! Size: an element is as large as key and value; 9 to 18 bytes for its share of the buckets; 400 bytes per shard.
//! An update writes to the lines of the shard's lock, the bucket, the element, and what the element was or will be retired
//! with. A lookup reads the bucket and the element alone.
//! Atomics: none for a lookup; those of the shard's lock for an update; for a removal one more when the element's number
//! comes back, and one when it is used again.
//! Progress: lookups are wait-free. Updates wait for other updates of their shard, one of which may be growing it.

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

/// Elements for each bucket at which the shard gets twice as many buckets. With more, too many buckets would need a spare
/// line.
const FILL: usize = SLOTS * 2 / 3;

/// The buckets of a shard.
#[repr(C)]
struct Buckets<M: Machine> {
    header: Header,
    lines: Lines<M>,
}

// SAFETY: `repr(C)`, and the header comes first.
unsafe impl<M: Machine> Retire for Buckets<M> {}

/// A part of the table: what readers need, which changes only when the shard grows.
struct Shard<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    buckets: <L::Machine as Machine>::Ptr<Buckets<L::Machine>>,
    elements: *mut Elements<L, Node<K, V>>,
}

// SAFETY: the shard owns its buckets and elements, which are `Send` and `Sync`.
unsafe impl<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> Send for Shard<L, K, V> {}
// SAFETY: the shard owns its buckets and elements, which are `Send` and `Sync`.
unsafe impl<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> Sync for Shard<L, K, V> {}

/// An element, and its slot.
type Found<'g, M, K, V> = Option<(Place<'g, M>, &'g Node<K, V>)>;

/// An element before and after a change.
pub struct Changed<'g, K, V> {
    /// The element before; none if the key was not there.
    pub before: Option<&'g Node<K, V>>,
    /// The element after; none if the key is not there now.
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
        // SAFETY: the elements are freed after the shard (`Elements::close`).
        unsafe { &*self.elements }
    }

    /// The buckets, as sections find them.
    #[inline(always)]
    fn lines<'g>(&self, _: &'g RcuGuard<'_, L::Machine>) -> &'g Lines<L::Machine> {
        // (D) pairs with the exchange in `resize`. SAFETY: buckets are retired after others have been published, so the
        // section protects those that it finds.
        unsafe { &(*self.buckets.load(Acquire)).lines }
    }

    /// An element that was found in a slot.
    #[inline(always)]
    fn node<'g>(&'g self, _: &'g RcuGuard<'_, L::Machine>, number: u32) -> &'g Node<K, V> {
        // SAFETY: an element is retired after it has left its slot, so the section protects it.
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
    /// A table with `shards` shards, a power of two, and room for `capacity` elements, if they spread evenly.
    pub fn new(domain: &'static RcuDomain<L::Machine>, shards: usize, capacity: usize, hasher: S) -> Self {
        assert!(shards.is_power_of_two());
        let buckets = capacity.div_ceil(shards * FILL).next_power_of_two();
        Growing { shards: Array::new(shards, |_| Shard::new(buckets, shards.ilog2())), hasher, domain }
    }

    /// Begins a section of the calling thread.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, L::Machine> {
        self.domain.enter()
    }

    #[inline(always)]
    fn shard(&self, hash: u64) -> &Shard<L, K, V> {
        // SAFETY: there are one or more shards, a power of two (`new`).
        unsafe { self.shards.masked(hash) }
    }

    /// All elements that are there during the whole section, and perhaps some that come or go meanwhile.
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

    /// To be called before an update, which retires inside of a section. If the calling thread is in no section, this
    /// waits while there is too much garbage.
    #[inline]
    pub fn throttle(&self) {
        self.domain.throttle_if_pressed();
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

    /// Sets, keeps or removes the value of a key, as `change` says. `change` runs under the shard's lock. Returns the
    /// element before and the one after.
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
            // SAFETY: called under the lock, once the element has left its slot.
            let remove = |place: Place<'_, _>| unsafe { shard.elements().remove(place.element) };
            match change(before.map(|node| &node.value)) {
                Change::Keep => (Changed { before, after: before }, None),
                Change::Remove => {
                    let cleared = place.inspect(|place| Self::clear(shard, place));
                    (Changed { before, after: None }, cleared.map(remove))
                }
                Change::Set(value) => {
                    // SAFETY: this thread holds the lock.
                    let number = unsafe { shard.elements().put(Node { key, value }) };
                    match &place {
                        Some(place) => place.replace(number),
                        None => self.insert(guard, shard, hash, number, &mut outgrown),
                    }
                    (Changed { before, after: Some(shard.node(guard, number)) }, place.map(remove))
                }
            }
        });
        // After the lock was released, because this may drop other keys and values.
        // SAFETY: the element has just left its slot; readers protect elements with sections of RCU.
        removed.inspect(|removed| unsafe { self.domain.retire(*removed) });
        // SAFETY: the buckets have been replaced, so sections that begin now find others.
        outgrown.into_iter().for_each(|buckets| unsafe { self.domain.retire(buckets) });
        changed
    }

    /// Removes the element with this key of which `wanted` returns `true`.
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
            // SAFETY: this thread holds the lock, and the element has left its slot.
            Some((node, unsafe { shard.elements().remove(place.element) }))
        })?;
        // SAFETY: the element has left its slot; readers protect elements with sections of RCU.
        unsafe { self.domain.retire(removed) };
        Some(node)
    }

    /// Empties a slot. The caller holds the shard's lock.
    fn clear(shard: &Shard<L, K, V>, place: &Place<'_, L::Machine>) {
        place.clear();
        shard.elements().count.store(shard.elements().count.load(Relaxed) - 1, Relaxed);
    }

    /// Puts an element into a slot, and grows the shard if that is full. The caller holds the shard's lock.
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

    /// Gives a shard other buckets, at least `buckets` of them, with the same elements. Returns the previous ones. The
    /// caller holds the shard's lock.
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
        // (D) A thread that sees the new buckets sees what is in them.
        shard.buckets.swap(new, Release)
    }

    /// Makes room for `capacity` elements, if they spread evenly. With `shrink`, for no more than that.
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
            // SAFETY: the buckets have been replaced, so sections that begin now find others.
            outgrown.inspect(|buckets| unsafe { self.domain.retire(*buckets) });
        }
    }
}

impl<L: RawMutex, K: Send + Sync + 'static, V: Send + Sync + 'static> Drop for Shard<L, K, V> {
    fn drop(&mut self) {
        // SAFETY: the table is dropped, so no thread uses the shard. `Buckets::new` made a box.
        let buckets = unsafe { Box::from_raw(self.buckets.load(Acquire)) };
        // SAFETY: no thread uses the shard. The elements are from `Elements::new`, and the buckets name those that have not
        // been removed.
        unsafe { Elements::close(self.elements, buckets.lines.elements()) };
    }
}

/// Runs `section` while the calling thread holds `lock`; releases it also if `section` panics.
#[inline(always)]
fn under<L: RawMutex, T>(lock: &L, section: impl FnOnce() -> T) -> T {
    struct Held<'a, L: RawMutex>(&'a L, L::Token);
    impl<L: RawMutex> Drop for Held<'_, L> {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: the token is that of the acquisition below, and this is dropped once.
            unsafe { self.0.unlock(self.1) }
        }
    }
    let _held = Held(lock, lock.lock());
    section()
}
