//! An ordered map in which readers lock nothing, and see the map as it was at one moment.
//!
//! Source: Clements, Kaashoek and Zeldovich, "Scalable Address Spaces Using RCU Balanced Trees", ASPLOS 2012 (BONSAI). The
//! nodes of that tree never change: an update copies the path from the root to its key, and publishes the new root with one
//! store. Updates take turns under a lock. Two things differ. This is a B+-tree (`pages`), because the path of a binary tree
//! has four times as many nodes to copy. And every update copies the whole path, also where BONSAI changes a pointer in
//! place. Therefore each root is a map that no thread changes any more.
//!
//! The other candidate was a skip list with a lock in each node (Herlihy, Lev, Luchangco and Shavit, "A Simple Optimistic
//! Skiplist Algorithm", SIROCCO 2007). Its updates lock the neighbours of a key only, so updates of different keys do not wait
//! for each other; here they do. In return, every walk and range is of one moment here, and `len` is exact. An element needs
//! no links, no lock and no header, and is found by its rank. No reader meets an element that is being removed.
//!
//! State of an element: in a box -> in a leaf -> removed -> retired, with the pages that led to it.
//!
//! What pairs with what: (A) an updating thread stores a root (release), and readers load it (acquire). So they see the pages
//! and elements below it, and its update is counted. (B) The thread counts its update (release), and a walk that copies loads the
//! count (acquire). So the walk finds the root of that update, or the one before it, or a later one.
//!
//! Size: an element is a box with key and value, and 12 bytes for its share of the pages (8 in its leaf); 128 bytes for the
//! tree. An update allocates a page of each height, and retires those that it replaces as one object.
//! Atomics: none for a lookup; those of the lock for an update, none for each retired object.
//! Progress: lookups and walks are wait-free. Updates wait for each other.

use super::growing::Node;
use super::pages::{Draft, Drain, Entry, Head, MOST, Page, Replaced, reclaim};
use crate::locks::mutex::RawMutex;
use crate::machine::{Machine, Records, Word};
use crate::reclaim::rcu::{RcuDomain, RcuGuard};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Bound, RangeBounds};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use equivalent::Comparable;

/// Entries of a page of a tree that is made from sorted elements: some room is left, so that the next updates split no page.
const FILL: usize = MOST * 3 / 4;

/// Levels of a tree at most: each has twice as many pages as the one above, or more.
const LEVELS: usize = 32;

/// The lock of the updates. It is on a line of its own, so that readers of the root do not meet the updates that wait.
#[repr(align(64))]
struct Lock<L: RawMutex> {
    raw: L,
    /// The thread that holds the lock, or 0. Closures of an update, and comparisons, may update the map by mistake.
    holder: <L::Machine as Machine>::Usize,
}

/// The tree. Its pages have `WIDTH` entries at most: 4 to 32. See the [module documentation](self).
pub struct Tree<L, K, V, const WIDTH: usize = MOST>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    root: <L::Machine as Machine>::Ptr<Head<K, V>>,
    /// Updates of single elements: counted just before their roots are stored.
    updates: <L::Machine as Machine>::Usize,
    domain: &'static RcuDomain<L::Machine>,
    lock: Lock<L>,
    owns: PhantomData<Node<K, V>>,
}

// SAFETY: keys and values are `Send` and `Sync`, and the tree owns its elements.
unsafe impl<L: RawMutex<Machine: Records>, K: Send + Sync, V: Send + Sync, const W: usize> Send
    for Tree<L, K, V, W>
{
}
// SAFETY: shared use gives out shared references to keys and values, which are `Sync`; updates are under the lock.
unsafe impl<L: RawMutex<Machine: Records>, K: Send + Sync, V: Send + Sync, const W: usize> Sync
    for Tree<L, K, V, W>
{
}

/// Where a key is in a page: its place, or where it belongs.
type Place = Result<usize, usize>;

/// Where a key is in a page. Whatever the comparison says, the place is within the page.
#[inline]
fn locate<K, V, Q: Comparable<K> + ?Sized>(page: Page<'_, K, V>, key: &Q) -> Place {
    // SAFETY: an element is freed after the pages in which it is.
    let compare = |first: &NonNull<Node<K, V>>| key.compare(unsafe { &first.as_ref().key }).reverse();
    page.firsts().binary_search_by(compare)
}

/// The map as it is at one moment.
pub struct Snapshot<'g, K, V> {
    root: Option<Page<'g, K, V>>,
}

impl<K, V> Copy for Snapshot<'_, K, V> {}
impl<K, V> Clone for Snapshot<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'g, K, V> Snapshot<'g, K, V> {
    /// Its pages.
    #[cfg(test)]
    pub(super) fn root(self) -> Option<Page<'g, K, V>> {
        self.root
    }

    /// How many elements there are.
    pub fn count(self) -> usize {
        self.root.map_or(0, Page::count)
    }

    /// The element with this key.
    pub fn find<Q: Comparable<K> + ?Sized>(self, key: &Q) -> Option<&'g Node<K, V>> {
        let mut page = self.root?;
        loop {
            match locate(page, key) {
                Ok(at) => return Some(page.first(at)),
                Err(at) if page.height() > 0 && at > 0 => page = page.child(at - 1),
                Err(_) => return None,
            }
        }
    }

    /// How many elements are before `key`; with `through`, up to it and with it.
    pub fn rank<Q: Comparable<K> + ?Sized>(self, key: &Q, through: bool) -> usize {
        let (mut next, mut rank) = (self.root, 0);
        while let Some(page) = next {
            match locate(page, key) {
                Ok(at) => return rank + page.before(at) + usize::from(through),
                Err(at) if page.height() > 0 && at > 0 => {
                    rank += page.before(at - 1);
                    next = Some(page.child(at - 1));
                }
                Err(at) => return rank + at,
            }
        }
        rank
    }

    /// The element with so many before it.
    pub fn at(self, rank: usize) -> Option<&'g Node<K, V>> {
        self.walk(rank, rank.saturating_add(1)).next()
    }

    /// The elements of these ranks, in order.
    pub fn walk(self, begin: usize, end: usize) -> Walk<'g, K, V> {
        let end = end.min(self.count());
        let root = self.root.filter(|_| begin < end);
        Walk { root, begin: begin.min(end), end, front: [].iter(), back: [].iter() }
    }

    /// The elements with keys in a range, in order.
    pub fn range<Q: Comparable<K> + ?Sized>(self, range: &impl RangeBounds<Q>) -> Walk<'g, K, V> {
        let begin = match range.start_bound() {
            Bound::Included(key) => self.rank(key, false),
            Bound::Excluded(key) => self.rank(key, true),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(key) => self.rank(key, true),
            Bound::Excluded(key) => self.rank(key, false),
            Bound::Unbounded => self.count(),
        };
        self.walk(begin, end)
    }
}

/// Elements in order, from either end.
pub struct Walk<'g, K, V> {
    root: Option<Page<'g, K, V>>,
    /// The ranks of those that are left.
    begin: usize,
    end: usize,
    /// What is left of the leaf of the next element, and of the last; or empty.
    front: core::slice::Iter<'g, NonNull<Node<K, V>>>,
    back: core::slice::Iter<'g, NonNull<Node<K, V>>>,
}

// SAFETY: it gives out shared references to elements, and its slices are of pages that do not change.
unsafe impl<K: Sync, V: Sync> Send for Walk<'_, K, V> {}
// SAFETY: a shared reference to it leads to shared references to elements.
unsafe impl<K: Sync, V: Sync> Sync for Walk<'_, K, V> {}

impl<K, V> Clone for Walk<'_, K, V> {
    fn clone(&self) -> Self {
        let (front, back) = (self.front.clone(), self.back.clone());
        Walk { root: self.root, begin: self.begin, end: self.end, front, back }
    }
}

impl<'g, K, V> Iterator for Walk<'g, K, V> {
    type Item = &'g Node<K, V>;

    #[inline]
    fn next(&mut self) -> Option<&'g Node<K, V>> {
        if self.begin == self.end {
            return None;
        }
        if self.front.len() == 0 {
            let (leaf, at) = self.root?.leaf(self.begin);
            self.front = leaf[at..].iter();
        }
        self.begin += 1;
        // SAFETY: an element is freed after the pages in which it is, and they are not freed for `'g`.
        self.front.next().map(|node| unsafe { node.as_ref() })
    }

    fn nth(&mut self, skipped: usize) -> Option<&'g Node<K, V>> {
        self.begin += skipped.min(self.end - self.begin);
        self.front = [].iter();
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.begin, Some(self.end - self.begin))
    }
}

impl<'g, K, V> DoubleEndedIterator for Walk<'g, K, V> {
    fn next_back(&mut self) -> Option<&'g Node<K, V>> {
        if self.begin == self.end {
            return None;
        }
        if self.back.len() == 0 {
            let (leaf, at) = self.root?.leaf(self.end - 1);
            self.back = leaf[..=at].iter();
        }
        self.end -= 1;
        // SAFETY: as in `next`.
        self.back.next_back().map(|node| unsafe { node.as_ref() })
    }
}

impl<K, V> ExactSizeIterator for Walk<'_, K, V> {}
impl<K, V> core::iter::FusedIterator for Walk<'_, K, V> {}

/// An element, or the place where it belongs. The calling thread holds the lock until this is dropped; what was replaced is
/// retired after that.
pub struct Slot<'t, L, K, V, const WIDTH: usize>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    tree: &'t Tree<L, K, V, WIDTH>,
    token: ManuallyDrop<L::Token>,
    /// The pages on the way from the root to the leaf, and the entry of each.
    path: [Option<(Page<'t, K, V>, usize)>; LEVELS],
    levels: usize,
    /// The element; if there is none, it belongs into the last page of the path.
    found: Option<NonNull<Node<K, V>>>,
    replaced: Replaced<K, V>,
    /// The lock is released by the thread that has taken it.
    alone: PhantomData<*mut ()>,
}

impl<L, K, V, const WIDTH: usize> Tree<L, K, V, WIDTH>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Pages with fewer entries are merged with a neighbour.
    const LEAST: usize = if WIDTH / 4 > 2 { WIDTH / 4 } else { 2 };

    /// No elements.
    pub fn new(domain: &'static RcuDomain<L::Machine>) -> Self {
        const { assert!(4 <= WIDTH && WIDTH <= MOST, "pages of 4 to 32 entries") };
        Tree {
            root: Word::new(null_mut()),
            updates: Word::new(0),
            domain,
            lock: Lock { raw: L::new_in(), holder: Word::new(0) },
            owns: PhantomData,
        }
    }

    /// Begins a section of the calling thread.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, L::Machine> {
        self.domain.enter()
    }

    /// The map as it is now.
    #[inline(always)]
    pub fn snapshot<'g>(&'g self, _: &'g RcuGuard<'_, L::Machine>) -> Snapshot<'g, K, V> {
        // SAFETY: what a root leads to is retired after it was replaced, so the section protects it. (A) pairs with the
        // stores of the root.
        Snapshot { root: NonNull::new(self.root.load(Acquire)).map(|root| unsafe { Page::new(root) }) }
    }

    /// The number of updates of single elements so far, wrapping around. The last one's root may not be stored yet.
    pub fn updates(&self) -> usize {
        self.updates.load(Acquire) // (B)
    }

    /// To be called before an update that retires inside of a section. If the calling thread is in no section, this waits
    /// while there is too much garbage.
    pub fn throttle(&self) {
        self.domain.throttle_if_pressed();
    }

    /// Locks the map for other updates, and looks the key up. An update of the map by the calling thread panics until the slot is
    /// dropped.
    pub fn lock<Q: Comparable<K> + ?Sized>(&self, key: &Q) -> Slot<'_, L, K, V, WIDTH> {
        self.lock_where(|page| locate(page, key))
    }

    /// Locks the map for other updates, and takes the first element, or the last.
    pub fn lock_end(&self, last: bool) -> Slot<'_, L, K, V, WIDTH> {
        self.lock_where(|page| Ok(if last { page.firsts().len() - 1 } else { 0 }))
    }

    fn lock_where(&self, locate: impl Fn(Page<'_, K, V>) -> Place) -> Slot<'_, L, K, V, WIDTH> {
        let token = self.lock.raw.try_lock().unwrap_or_else(|| self.wait());
        self.lock.holder.store(L::Machine::thread_id(), Relaxed);
        let (token, path) = (ManuallyDrop::new(token), [None; LEVELS]);
        let (found, replaced) = (None, Replaced::new());
        let mut slot = Slot { tree: self, token, path, levels: 0, found, replaced, alone: PhantomData };
        // Relaxed: only a thread that holds the lock stores roots. SAFETY: such a thread is also the one that retires pages.
        let mut next = NonNull::new(self.root.load(Relaxed)).map(|root| unsafe { Page::new(root) });
        while let Some(page) = next {
            let place = locate(page);
            let inner = page.height() > 0;
            // A key before the first one belongs into the first child.
            let at = place.unwrap_or_else(|at| at - usize::from(inner && at > 0));
            slot.path[slot.levels] = Some((page, at));
            slot.levels += 1;
            slot.found = place.ok().filter(|_| !inner).map(|at| page.firsts()[at]);
            next = inner.then(|| page.child(at));
        }
        slot
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> L::Token {
        // No other thread stores this thread's number, so it is there only if this thread holds the lock.
        let own = self.lock.holder.load(Relaxed) == L::Machine::thread_id();
        assert!(!own, "a map is updated by a closure of one of its updates, or by a comparison in one");
        self.lock.raw.lock()
    }

    /// Removes an element that was found in a section, unless it has been removed or replaced since.
    pub fn remove_found(&self, guard: &RcuGuard<'_, L::Machine>, node: &Node<K, V>) -> bool
    where
        K: Ord,
    {
        let _ = guard;
        let slot = self.lock(&node.key);
        let same = slot.node().is_some_and(|found| core::ptr::eq(found, node));
        if same {
            slot.remove();
        }
        same
    }

    /// Removes all elements at once.
    pub fn clear(&self) {
        let mut slot = self.lock_where(|_| Err(0));
        if let Some((root, _)) = slot.path[0] {
            self.root.store(null_mut(), Release); // (A)
            slot.replaced.add(root);
            slot.replaced.everything(root.count());
        }
    }

    /// Replaces all elements by these, which are sorted, each key once.
    pub fn fill(&mut self, elements: Vec<Box<Node<K, V>>>) {
        drop(self.drain());
        let fill = FILL.min(WIDTH);
        let leaf = |node| Entry { first: NonNull::from(Box::leak(node)), page: None, count: 1 };
        let mut entries: Vec<Entry<K, V>> = elements.into_iter().map(leaf).collect();
        let mut height = 0;
        while entries.len() > 1 || (height == 0 && !entries.is_empty()) {
            // As many pages as it takes, with as many entries each: at least two.
            let pages = entries.len().div_ceil(fill);
            let share = |page: usize| page * entries.len() / pages;
            entries =
                (0..pages).map(|page| Page::make(height, &entries[share(page)..share(page + 1)])).collect();
            height += 1;
        }
        let root = entries.first().and_then(|root| root.page);
        self.root.store(root.map_or(null_mut(), NonNull::as_ptr), Release); // (A)
    }

    /// Takes all elements out, in order.
    pub fn drain(&mut self) -> Drain<K, V> {
        let root = NonNull::new(self.root.load(Acquire));
        self.root.store(null_mut(), Relaxed);
        // SAFETY: the caller has the tree alone, and no reader borrows it.
        unsafe { Drain::new(root) }
    }
}

impl<'t, L, K, V, const WIDTH: usize> Slot<'t, L, K, V, WIDTH>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// The element.
    pub fn node(&self) -> Option<&Node<K, V>> {
        // SAFETY: this thread holds the lock, so no thread has removed the element.
        self.found.map(|node| unsafe { node.as_ref() })
    }

    /// The element, to be used after the slot has been dropped, as long as the section and the tree last.
    pub fn protected<'g>(&self, _: &'g RcuGuard<'_, L::Machine>) -> Option<&'g Node<K, V>>
    where
        't: 'g,
    {
        // SAFETY: the element has not been removed yet, so the section protects it. The tree outlives the reference, because
        // `'t` is how long it is borrowed.
        self.found.map(|node| unsafe { node.as_ref() })
    }

    /// Puts an element here, in place of the one that is here.
    pub fn set(self, node: Box<Node<K, V>>) {
        let first = NonNull::from(Box::leak(node));
        self.change(Some(Entry { first, page: None, count: 1 }));
    }

    /// Removes the element, if there is one.
    pub fn remove(self) {
        if self.found.is_some() {
            self.change(None);
        }
    }

    /// Copies the path with another entry in its leaf, or one less, and publishes it. No code of the program's runs here.
    fn change(mut self, new: Option<Entry<K, V>>) {
        let mut draft = Draft::new();
        let mut level = self.levels;
        if let Some((leaf, at)) = level.checked_sub(1).and_then(|last| self.path[last]) {
            draft.copy(leaf, 0..at);
            new.into_iter().for_each(|new| draft.push(new));
            draft.copy(leaf, at + usize::from(self.found.is_some())..leaf.firsts().len());
        } else {
            new.into_iter().for_each(|new| draft.push(new));
        }
        let mut height = 0;
        while let Some((page, _)) = level.checked_sub(1).and_then(|last| self.path[last]) {
            self.replaced.add(page);
            level -= 1;
            let mut above = Draft::new();
            if let Some((parent, at)) = level.checked_sub(1).and_then(|last| self.path[last]) {
                let (mut begin, mut end, len) = (at, at + 1, parent.firsts().len());
                if draft.entries().len() < Tree::<L, K, V, WIDTH>::LEAST && len > 1 {
                    let neighbour = if end < len { end } else { at - 1 };
                    (begin, end) = (begin.min(neighbour), end.max(neighbour + 1));
                    draft = self.merged(draft, parent.child(neighbour), neighbour < at);
                }
                above.copy(parent, 0..begin);
                draft.make(height, WIDTH, &mut above);
                above.copy(parent, end..len);
                draft = above;
                height += 1;
            }
        }
        // `draft` is the root's. A root with one child gives way to the child.
        while draft.entries().len() > 1 || (height == 0 && draft.entries().len() == 1) {
            let mut above = Draft::new();
            draft.make(height, WIDTH, &mut above);
            (draft, height) = (above, height + 1);
        }
        let root = draft.entries().first().and_then(|root| root.page);
        self.tree.updates.store(self.tree.updates.load(Relaxed).wrapping_add(1), Release); // (B)
        self.tree.root.store(root.map_or(null_mut(), NonNull::as_ptr), Release); // (A)
        if let Some(found) = self.found {
            self.replaced.element(found);
        }
    }

    /// The entries of a page with few, and of its neighbour, which is replaced as well.
    #[cold]
    fn merged(&mut self, few: Draft<K, V>, neighbour: Page<'t, K, V>, before: bool) -> Draft<K, V> {
        let (mut both, all) = (Draft::new(), 0..neighbour.firsts().len());
        if before {
            both.copy(neighbour, all.clone());
        }
        few.entries().iter().for_each(|entry| both.push(*entry));
        if !before {
            both.copy(neighbour, all);
        }
        self.replaced.add(neighbour);
        both
    }
}

impl<L, K, V, const WIDTH: usize> Drop for Slot<'_, L, K, V, WIDTH>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.tree.lock.holder.store(0, Relaxed);
        // SAFETY: the token is that of the acquisition in `lock_where`, and is used once.
        unsafe { self.tree.lock.raw.unlock(ManuallyDrop::take(&mut self.token)) };
        if let Some((header, bytes)) = self.replaced.take() {
            // SAFETY: the pages and the element were reachable from the root that this thread has replaced, and from no
            // later one. Readers have sections of RCU. The function is that of such a chain.
            unsafe { self.tree.domain.retire_raw(header, bytes, reclaim::<K, V>) };
        }
    }
}

impl<L, K, V, const WIDTH: usize> Drop for Tree<L, K, V, WIDTH>
where
    L: RawMutex<Machine: Records>,
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn drop(&mut self) {
        drop(self.drain());
    }
}
