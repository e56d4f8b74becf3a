//! A hash table that grows while it is read.
//!
//! Source: Xu, "rhashtable"-like resizing as in Linux's bridge multicast code (`br_multicast.c`, 2010), described
//! in McKenney, "Is Parallel Programming Hard", section 10.4 ("resizable hash tables"): every element has two
//! links. The buckets in use are chained through one of them; to resize, updaters are kept out, new buckets are
//! chained through the other, and the new table is published. Readers of the old one go on undisturbed: nobody
//! touches its links until they are done. Triplett, McKenney and Walpole ("Resizable, Scalable, Concurrent Hash
//! Tables via Relativistic Programming", USENIX ATC 2011) save the second link, and pay with a grace period for
//! each step in which a chain is unzipped.
//!
//! Readers are in an RCU section and lock nothing. Updaters lock a *stripe*, the one of their bucket; a resize
//! locks all stripes. Before the links of the table before can be used again, a grace period has to pass; if it
//! has not, the resize is put off: nobody waits for readers here, chains get a little longer.
//!
//! States of an element: made -> linked (A) -> unlinked -> retired; through the other link too, between (B).
//! States of a table: published (B) -> left by updaters (the next is published) -> retired.
//! Size: 48 bytes per element beside key and value; 16 to 32 for its share of the buckets; 64
//! per stripe.
//! Atomics: a lookup none; an update those of the stripe's lock, and of retiring.
//! Progress: lookups are wait-free; updates wait for updates of their stripe and for a resize.

use super::array::Array;
use crate::machine::{Arith, Machine, Records, Word};
use crate::mutex::RawMutex;
use crate::reclaim::domain::Cookie;
use crate::reclaim::rcu::{RcuDomain, RcuGuard};
use crate::reclaim::{Header, Retire};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// An element.
#[repr(C)]
pub struct Node<M: Machine, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    header: Header,
    /// The next of the chain, in tables of each parity.
    next: [M::Ptr<Node<M, K, V>>; 2],
    hash: u64,
    /// Its key.
    pub key: K,
    /// Its value.
    pub value: V,
}

// SAFETY: `repr(C)`, and the header comes first.
unsafe impl<M: Machine, K: Send + Sync + 'static, V: Send + Sync + 'static> Retire for Node<M, K, V> {}

/// Buckets.
#[repr(C)]
pub struct Buckets<M: Machine, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    header: Header,
    /// Which of the links it is chained through.
    link: usize,
    heads: Array<M::Ptr<Node<M, K, V>>>,
}

// SAFETY: as above.
unsafe impl<M: Machine, K: Send + Sync + 'static, V: Send + Sync + 'static> Retire for Buckets<M, K, V> {}

impl<M: Machine, K: Send + Sync + 'static, V: Send + Sync + 'static> Buckets<M, K, V> {
    fn new(count: usize, link: usize) -> Box<Self> {
        let heads = Array::new(count, |_| Word::new(null_mut()));
        Box::new(Buckets { header: Header::new(), link, heads })
    }

    #[inline(always)]
    fn head(&self, hash: u64) -> &M::Ptr<Node<M, K, V>> {
        &self.heads[hash as usize & (self.heads.len() - 1)]
    }

    /// The elements from `link` on, as a section or who has the stripe finds them.
    ///
    /// # Safety
    ///
    /// None of them is reclaimed while `'a` lasts.
    #[inline(always)]
    unsafe fn chain<'a>(
        &'a self,
        mut from: &'a M::Ptr<Node<M, K, V>>,
    ) -> impl Iterator<Item = &'a Node<M, K, V>> {
        core::iter::from_fn(move || {
            // (A) pairs with the stores of links. SAFETY: the caller's promise.
            let node = unsafe { from.load(Acquire).as_ref() }?;
            from = &node.next[self.link];
            Some(node)
        })
    }
}

/// A part of the buckets, for updaters.
#[repr(align(64))]
struct Stripe<L: RawMutex> {
    lock: L,
    /// Elements, and those retired since somebody last looked how many wait. Under the lock.
    count: <L::Machine as Machine>::Usize,
    retired: <L::Machine as Machine>::Usize,
}

/// A link of a chain.
type Link<M, K, V> = <M as Machine>::Ptr<Node<M, K, V>>;

/// Where an update is: a link, and the element with the key, if there is one.
type Place<'g, M, K, V> = (&'g Link<M, K, V>, Option<&'g Node<M, K, V>>);

/// An element before and after a change.
pub struct Changed<'g, M: Machine, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// Before.
    pub before: Option<&'g Node<M, K, V>>,
    /// After.
    pub after: Option<&'g Node<M, K, V>>,
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

/// Retired elements of a stripe after which its updaters look whether too many wait.
const PRESS: usize = 128;

/// The table. See the [module documentation](self).
pub struct Relativistic<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    domain: &'static RcuDomain<L::Machine>,
    buckets: <L::Machine as Machine>::Ptr<Buckets<L::Machine, K, V>>,
    stripes: Array<Stripe<L>>,
    resizing: L,
    /// When the links of the table before can be used again. Under `resizing`.
    reusable: UnsafeCell<Option<Cookie>>,
}

// SAFETY: elements are shared as `Sync` allows and dropped by any thread as `Send` allows; the cell is used under
// a lock.
unsafe impl<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static> Sync
    for Relativistic<L, K, V>
{
}
// SAFETY: as above.
unsafe impl<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static> Send
    for Relativistic<L, K, V>
{
}

/// Runs `section` with the lock.
fn locked<L: RawMutex, R>(lock: &L, section: impl FnOnce() -> R) -> R {
    struct Unlock<'a, L: RawMutex>(&'a L, L::Token);
    impl<L: RawMutex> Drop for Unlock<'_, L> {
        fn drop(&mut self) {
            // SAFETY: made with the token of an acquisition, and dropped once.
            unsafe { self.0.unlock(self.1) }
        }
    }
    let _held = Unlock(lock, lock.lock());
    section()
}

impl<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static>
    Relativistic<L, K, V>
{
    /// With `stripes` stripes and `buckets` buckets, both powers of two, no more stripes than buckets.
    pub fn new(domain: &'static RcuDomain<L::Machine>, stripes: usize, buckets: usize) -> Self {
        assert!(stripes.is_power_of_two() && buckets.is_power_of_two() && stripes <= buckets);
        let stripe = |_| Stripe { lock: L::new_in(), count: Word::new(0), retired: Word::new(0) };
        Relativistic {
            domain,
            buckets: Word::new(Box::into_raw(Buckets::new(buckets, 0))),
            stripes: Array::new(stripes, stripe),
            resizing: L::new_in(),
            reusable: UnsafeCell::new(None),
        }
    }

    /// A section of the calling thread.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, L::Machine> {
        self.domain.enter()
    }

    /// The table, as sections find it.
    #[inline(always)]
    fn current<'g>(&self, _: &'g RcuGuard<'_, L::Machine>) -> &'g Buckets<L::Machine, K, V> {
        // (B) pairs with `resize`. SAFETY: it is retired after another has been published, so the section
        // protects it.
        unsafe { &*self.buckets.load(Acquire) }
    }

    #[inline(always)]
    fn stripe(&self, hash: u64) -> &Stripe<L> {
        &self.stripes[hash as usize & (self.stripes.len() - 1)]
    }

    /// The element with this hash and key.
    #[inline]
    pub fn find<'g>(
        &self,
        guard: &'g RcuGuard<'_, L::Machine>,
        hash: u64,
        mut equal: impl FnMut(&K) -> bool,
    ) -> Option<&'g Node<L::Machine, K, V>> {
        let buckets = self.current(guard);
        // SAFETY: the section protects what is linked while it lasts.
        unsafe { buckets.chain(buckets.head(hash)) }.find(|node| node.hash == hash && equal(&node.key))
    }

    /// All elements that are there during the whole section, and perhaps some of those that are not.
    pub fn iter<'g>(
        &self,
        guard: &'g RcuGuard<'_, L::Machine>,
    ) -> impl Iterator<Item = &'g Node<L::Machine, K, V>> + use<'g, L, K, V> {
        let buckets = self.current(guard);
        // SAFETY: as above.
        buckets.heads.iter().flat_map(move |head| unsafe { buckets.chain(head) })
    }

    /// How many elements there were, a moment ago.
    pub fn count(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.count.load(Relaxed)).sum()
    }

    /// The element with this hash, and the link that leads to it or to the end of its chain. Under its stripe.
    #[inline]
    fn place(
        buckets: &Buckets<L::Machine, K, V>,
        hash: u64,
        mut equal: impl FnMut(&K) -> bool,
    ) -> Place<'_, L::Machine, K, V> {
        let mut link = buckets.head(hash);
        // SAFETY: the stripe is ours, so that nothing is removed.
        let found = unsafe { buckets.chain(link) }.find(|node| {
            let found = node.hash == hash && equal(&node.key);
            if !found {
                link = &node.next[buckets.link];
            }
            found
        });
        (link, found)
    }

    /// Sets or keeps the value of a key, as `change` says, which runs while no other update of
    /// the stripe does. Returns the element before and the one after.
    pub fn set<'g>(
        &self,
        guard: &'g RcuGuard<'_, L::Machine>,
        hash: u64,
        key: K,
        equal: impl Fn(&K, &K) -> bool,
        change: impl FnOnce(Option<&V>) -> Change<V>,
    ) -> Changed<'g, L::Machine, K, V> {
        let stripe = self.stripe(hash);
        let changed = locked(&stripe.lock, || {
            // Nobody resizes while we have a stripe.
            let buckets = self.current(guard);
            let (link, before) = Self::place(buckets, hash, |found| equal(found, &key));
            match change(before.map(|node| &node.value)) {
                Change::Keep => Changed { before, after: before },
                Change::Remove => {
                    before.inspect(|node| Self::unlink(stripe, buckets, link, node));
                    Changed { before, after: None }
                }
                Change::Set(value) => {
                    let next = before.map_or(null_mut(), |node| node.next[buckets.link].load(Relaxed));
                    let next = [0, 1].map(|at| Word::new(if at == buckets.link { next } else { null_mut() }));
                    let new = Box::into_raw(Box::new(Node { header: Header::new(), next, hash, key, value }));
                    if before.is_none() {
                        stripe.count.store(stripe.count.load(Relaxed) + 1, Relaxed);
                    }
                    // (A) pairs with the loads of links: its fields.
                    link.store(new, Release);
                    // SAFETY: it is retired only once it has been removed, later than our section began.
                    Changed { before, after: Some(unsafe { &*new }) }
                }
            }
        });
        if let Some(old) = changed.before
            && !changed.after.is_some_and(|new| core::ptr::eq(old, new))
        {
            // SAFETY: it has just left the chain, through us.
            unsafe { self.retire(stripe, old) };
        }
        changed
    }

    /// Removes the element with this hash and key.
    pub fn remove<'g>(
        &self,
        guard: &'g RcuGuard<'_, L::Machine>,
        hash: u64,
        equal: impl FnMut(&K) -> bool,
    ) -> Option<&'g Node<L::Machine, K, V>> {
        let stripe = self.stripe(hash);
        let removed = locked(&stripe.lock, || {
            let buckets = self.current(guard);
            let (link, found) = Self::place(buckets, hash, equal);
            found.inspect(|node| Self::unlink(stripe, buckets, link, node))
        })?;
        // SAFETY: it has just left the chain, through us.
        unsafe { self.retire(stripe, removed) };
        Some(removed)
    }

    /// Takes an element out of its chain.
    fn unlink(
        stripe: &Stripe<L>,
        buckets: &Buckets<L::Machine, K, V>,
        link: &Link<L::Machine, K, V>,
        node: &Node<L::Machine, K, V>,
    ) {
        // (A) what is behind it was made by others.
        link.store(node.next[buckets.link].load(Relaxed), Release);
        stripe.count.store(stripe.count.load(Relaxed) - 1, Relaxed);
    }

    /// # Safety
    ///
    /// It has just left its chain through the caller, who is in a section.
    unsafe fn retire(&self, stripe: &Stripe<L>, node: &Node<L::Machine, K, V>) {
        stripe.retired.fetch_add(1, Relaxed);
        // SAFETY: sections that have found it protect it, ours too.
        unsafe { self.domain.retire(core::ptr::from_ref(node).cast_mut()) };
    }

    /// To be called before an update, by who may be outside of sections: there it waits while too many elements
    /// wait to be reclaimed.
    #[inline]
    pub fn throttle(&self, hash: u64) {
        let stripe = self.stripe(hash);
        if stripe.retired.load(Relaxed) >= PRESS && !RcuDomain::<L::Machine>::is_inside() {
            stripe.retired.store(0, Relaxed);
            self.domain.throttle();
        }
    }

    /// To be called after an insertion: doubles the buckets if the stripe has more elements than half its buckets.
    /// Each element is a line of its own, and may be a miss; a bucket is 8 bytes.
    #[inline]
    pub fn grow(&self, hash: u64) {
        let buckets = {
            let guard = self.enter();
            self.current(&guard).heads.len()
        };
        if self.stripe(hash).count.load(Relaxed) > (buckets / self.stripes.len() / 2).max(1) {
            self.resize(buckets, buckets * 2);
        }
    }

    /// Chains the elements into `count` buckets, a power of two, if there are `from` now. `false`: there are
    /// not, or somebody else resizes, or a reader may still be in the table before.
    #[cold]
    pub fn resize(&self, from: usize, count: usize) -> bool {
        let Some(token) = self.resizing.try_lock() else { return false };
        let resized = self.resize_alone(from, count.max(self.stripes.len()));
        // SAFETY: the token is from above.
        unsafe { self.resizing.unlock(token) };
        resized
    }

    fn resize_alone(&self, from: usize, count: usize) -> bool {
        // SAFETY: the caller has `resizing`.
        let reusable = unsafe { &mut *self.reusable.get() };
        if reusable.is_some_and(|cookie| !self.domain.poll(cookie)) {
            return false;
        }
        // SAFETY: only who has `resizing` retires it.
        let old = unsafe { &*self.buckets.load(Acquire) };
        if old.heads.len() != from {
            return false;
        }
        let new = Buckets::new(count, 1 - old.link);
        let tokens: Vec<L::Token> = self.stripes.iter().map(|stripe| stripe.lock.lock()).collect();
        for head in &*old.heads {
            // SAFETY: the stripes are ours, so nothing is removed.
            for node in unsafe { old.chain(head) } {
                let head: &Link<L::Machine, K, V> = new.head(node.hash);
                node.next[new.link].store(head.load(Relaxed), Relaxed);
                head.store(core::ptr::from_ref(node).cast_mut(), Relaxed);
            }
        }
        let old = core::ptr::from_ref(old).cast_mut();
        // (B) pairs with the loads in `current`: the new chains.
        self.buckets.store(Box::into_raw(new), Release);
        *reusable = Some(self.domain.start_poll());
        for (stripe, token) in self.stripes.iter().zip(tokens) {
            // SAFETY: the token is from above.
            unsafe { stripe.lock.unlock(token) };
        }
        // SAFETY: sections that begin now find the new one.
        unsafe { self.domain.retire(old) };
        true
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        let guard = self.enter();
        self.current(&guard).heads.len()
    }
}

impl<L: RawMutex<Machine: Records>, K: Send + Sync + 'static, V: Send + Sync + 'static> Drop
    for Relativistic<L, K, V>
{
    fn drop(&mut self) {
        // SAFETY: nobody else has the table; it was made by `Box::into_raw`.
        let buckets = unsafe { Box::from_raw(self.buckets.load(Acquire)) };
        for head in &*buckets.heads {
            let mut at = head.load(Relaxed);
            while !at.is_null() {
                // SAFETY: as above; each element is in one chain.
                let node = unsafe { Box::from_raw(at) };
                at = node.next[buckets.link].load(Relaxed);
            }
        }
    }
}
