//! The pages of an ordered map: sorted arrays that never change once a reader can find them.
//!
//! A leaf has pointers to elements. An inner page has its children, the first element below each, and how many elements there
//! are up to the end of each. A page is allocated with exactly the bytes that its entries need.
//!
//! State of a page: draft (entries on the stack of the updating thread) -> made -> linked, when the root above it is published
//! -> replaced -> retired -> freed. The pages that one update has replaced are retired as one object, with the element that
//! the update has removed. So elements need no header.
//!
//! Size: 64 bytes for a page, 8 for each entry of a leaf, 24 for each entry of an inner page.

use super::growing::Node;
use crate::reclaim::Header;
use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Entries of a page at most. A lookup compares as often whatever it is; an update copies a page of each height.
pub const MOST: usize = 32;

/// What goes with a page that was replaced.
enum Removed<K, V> {
    Nothing,
    Element(NonNull<Node<K, V>>),
    /// All pages and elements below this page.
    All,
}

impl<K, V> Copy for Removed<K, V> {}
impl<K, V> Clone for Removed<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

/// The beginning of a page; its entries come after it.
#[repr(C)]
pub struct Head<K, V> {
    header: Header,
    /// Once it has been replaced: another page that the same update has replaced. Readers do not look at this, and not at
    /// the next.
    also: Cell<Option<NonNull<Head<K, V>>>>,
    removed: Cell<Removed<K, V>>,
    /// 0: a leaf.
    height: u32,
    /// How many entries.
    len: u32,
}

// SAFETY: a page goes with the elements below it, which are `Send`.
unsafe impl<K: Send, V: Send> Send for Head<K, V> {}
// SAFETY: readers look at what never changes. The cells are those of the thread that replaces the page, under the lock of the
// tree's updates, and then of the thread that reclaims it.
unsafe impl<K: Sync, V: Sync> Sync for Head<K, V> {}

/// A child of an inner page.
struct Child<K, V> {
    page: NonNull<Head<K, V>>,
    /// How many elements are in this child and in those before.
    end: usize,
}

/// An entry of a page that is being made.
pub struct Entry<K, V> {
    /// The first element below the entry; in a leaf, the element.
    pub first: NonNull<Node<K, V>>,
    /// In an inner page: the child.
    pub page: Option<NonNull<Head<K, V>>>,
    /// How many elements are below the entry.
    pub count: usize,
}

impl<K, V> Copy for Entry<K, V> {}
impl<K, V> Clone for Entry<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

/// A page that is not freed for `'g`.
pub struct Page<'g, K, V> {
    head: NonNull<Head<K, V>>,
    section: PhantomData<&'g Node<K, V>>,
}

impl<K, V> Copy for Page<'_, K, V> {}
impl<K, V> Clone for Page<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

// SAFETY: a page is as a shared reference to its elements. What readers look at does not change.
unsafe impl<K: Sync, V: Sync> Send for Page<'_, K, V> {}
// SAFETY: its methods read what does not change, and give out shared references to elements.
unsafe impl<K: Sync, V: Sync> Sync for Page<'_, K, V> {}

impl<'g, K, V> Page<'g, K, V> {
    /// # Safety
    ///
    /// The page is not freed for `'g`.
    pub unsafe fn new(head: NonNull<Head<K, V>>) -> Self {
        Page { head, section: PhantomData }
    }

    /// How many levels of pages are below this one.
    pub fn height(self) -> u32 {
        // SAFETY: the page is not freed for `'g`, and this never changes.
        unsafe { (*self.head.as_ptr()).height }
    }

    /// The first element below each entry. In a leaf, its elements.
    #[inline(always)]
    pub fn firsts(self) -> &'g [NonNull<Node<K, V>>] {
        // SAFETY: `make` has written so many entries behind the head. They are not freed for `'g`, and never change.
        unsafe {
            let len = (*self.head.as_ptr()).len as usize;
            core::slice::from_raw_parts(self.head.add(1).cast().as_ptr(), len)
        }
    }

    fn children(self) -> &'g [Child<K, V>] {
        let firsts = self.firsts();
        let count = if self.height() == 0 { 0 } else { firsts.len() };
        // SAFETY: in an inner page, `make` has written a child for each entry behind the first elements. As `firsts`.
        unsafe {
            let behind = self.head.add(1).cast::<NonNull<Node<K, V>>>().add(firsts.len());
            core::slice::from_raw_parts(behind.cast().as_ptr(), count)
        }
    }

    /// The element that an entry begins with.
    #[inline(always)]
    pub fn first(self, at: usize) -> &'g Node<K, V> {
        // SAFETY: an element is freed after the pages in which it is, and they are not freed for `'g`.
        unsafe { self.firsts()[at].as_ref() }
    }

    /// A child of an inner page.
    #[inline(always)]
    pub fn child(self, at: usize) -> Self {
        // SAFETY: a child is freed after the pages in which it is.
        unsafe { Page::new(self.children()[at].page) }
    }

    /// How many elements are before an entry.
    pub fn before(self, at: usize) -> usize {
        match at.checked_sub(1) {
            Some(last) if self.height() > 0 => self.children()[last].end,
            _ => at,
        }
    }

    /// How many elements there are in this page and below it.
    pub fn count(self) -> usize {
        self.before(self.firsts().len())
    }

    /// The leaf in which the `rank`-th element is, and its place there. There are more elements than `rank`.
    pub fn leaf(mut self, mut rank: usize) -> (&'g [NonNull<Node<K, V>>], usize) {
        while self.height() > 0 {
            let at = self.children().partition_point(|child| child.end <= rank);
            rank -= self.before(at);
            self = self.child(at);
        }
        (self.firsts(), rank)
    }

    fn entry(self, at: usize) -> Entry<K, V> {
        let page = self.children().get(at).map(|child| child.page);
        Entry { first: self.firsts()[at], page, count: self.before(at + 1) - self.before(at) }
    }

    /// Bytes of the page.
    pub fn bytes(self) -> usize {
        Self::layout(self.height(), self.firsts().len()).size()
    }

    fn layout(height: u32, len: usize) -> Layout {
        let children = if height == 0 { 0 } else { len };
        let firsts = Layout::array::<NonNull<Node<K, V>>>(len).expect("a page is small");
        let children = Layout::array::<Child<K, V>>(children).expect("a page is small");
        let (head, at) = Layout::new::<Head<K, V>>().extend(firsts).expect("a page is small");
        debug_assert_eq!(at, size_of::<Head<K, V>>());
        let (all, at) = head.extend(children).expect("a page is small");
        debug_assert_eq!(at, head.size());
        all
    }

    /// Makes a page, and returns the entry for it.
    pub fn make(height: u32, entries: &[Entry<K, V>]) -> Entry<K, V> {
        let layout = Self::layout(height, entries.len());
        // SAFETY: the layout's size is not 0.
        let Some(head) = NonNull::new(unsafe { alloc(layout) }.cast::<Head<K, V>>()) else {
            handle_alloc_error(layout)
        };
        let (also, removed) = (Cell::new(None), Cell::new(Removed::Nothing));
        let mut count = 0;
        // SAFETY: the layout has room for the head and, behind it, for what is written.
        unsafe {
            head.write(Head { header: Header::new(), also, removed, height, len: entries.len() as u32 });
            let firsts = head.add(1).cast::<NonNull<Node<K, V>>>();
            let children = firsts.add(entries.len()).cast::<Child<K, V>>();
            for (at, entry) in entries.iter().enumerate() {
                count += entry.count;
                firsts.add(at).write(entry.first);
                if let Some(page) = entry.page {
                    children.add(at).write(Child { page, end: count });
                }
            }
        }
        Entry { first: entries[0].first, page: Some(head), count }
    }

    /// # Safety
    ///
    /// The page is from `make`, no thread uses it, and it is freed once.
    unsafe fn free(head: NonNull<Head<K, V>>) {
        // SAFETY: the caller has the page alone.
        let layout = unsafe { Self::layout((*head.as_ptr()).height, (*head.as_ptr()).len as usize) };
        // SAFETY: `make` has allocated it with this layout.
        unsafe { dealloc(head.as_ptr().cast(), layout) };
    }
}

/// The entries of a page that is being made.
pub struct Draft<K, V> {
    len: usize,
    entries: [MaybeUninit<Entry<K, V>>; 2 * MOST],
}

impl<K, V> Draft<K, V> {
    /// No entries.
    pub fn new() -> Self {
        Draft { len: 0, entries: [const { MaybeUninit::uninit() }; 2 * MOST] }
    }

    /// Adds an entry.
    #[inline]
    pub fn push(&mut self, entry: Entry<K, V>) {
        self.entries[self.len].write(entry);
        self.len += 1;
    }

    /// Adds entries of a page.
    #[inline]
    pub fn copy(&mut self, page: Page<'_, K, V>, entries: core::ops::Range<usize>) {
        entries.for_each(|at| self.push(page.entry(at)));
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry<K, V>] {
        // SAFETY: `push` has written the first `len` entries.
        unsafe { core::slice::from_raw_parts(self.entries.as_ptr().cast(), self.len) }
    }

    /// Makes no page, one or two, and adds the entries for them to `above`.
    pub fn make(&self, height: u32, most: usize, above: &mut Self) {
        let entries = self.entries();
        let (left, right) = entries.split_at(if entries.len() > most { entries.len() / 2 } else { 0 });
        for part in [left, right].into_iter().filter(|part| !part.is_empty()) {
            above.push(Page::make(height, part));
        }
    }
}

/// Pages that an update has replaced, and the element that it has removed. They are to be retired as one object: the first.
pub struct Replaced<K, V> {
    first: Option<NonNull<Head<K, V>>>,
    bytes: usize,
}

impl<K, V> Replaced<K, V> {
    /// Nothing.
    pub fn new() -> Self {
        Replaced { first: None, bytes: 0 }
    }

    /// Adds a page that leaves the tree with this update. The caller holds the lock of the tree's updates.
    pub fn add(&mut self, page: Page<'_, K, V>) {
        self.bytes += page.bytes();
        // SAFETY: the page is not freed now. Only the thread that replaces it uses this field, and then the thread that
        // reclaims it.
        unsafe { (*page.head.as_ptr()).also.set(self.first.replace(page.head)) };
    }

    fn set(&mut self, removed: Removed<K, V>, bytes: usize) {
        let first = self.first.expect("an update that removes replaces a page");
        self.bytes += bytes;
        // SAFETY: as in `add`.
        unsafe { (*first.as_ptr()).removed.set(removed) };
    }

    /// Adds the element that leaves the tree with this update, after the pages.
    pub fn element(&mut self, element: NonNull<Node<K, V>>) {
        self.set(Removed::Element(element), size_of::<Node<K, V>>());
    }

    /// Adds all that is below the root, which was added.
    pub fn everything(&mut self, count: usize) {
        self.set(Removed::All, count.saturating_mul(size_of::<Node<K, V>>() + size_of::<usize>()));
    }

    /// What is to be retired, with its bytes.
    pub fn take(&mut self) -> Option<(*mut Header, u32)> {
        let bytes = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        self.first.take().map(|first| (first.as_ptr().cast(), bytes))
    }
}

/// Frees what an update has replaced, and drops what it has removed.
///
/// # Safety
///
/// The header is from [`Replaced::take`], no thread uses what it stands for, and this is called once.
pub unsafe extern "C-unwind" fn reclaim<K, V>(header: *mut Header) {
    let mut next = NonNull::new(header.cast::<Head<K, V>>());
    // SAFETY: the header is that of the first page.
    let removed = next.map(|first| unsafe { (*first.as_ptr()).removed.get() });
    if let (Some(root), Some(Removed::All)) = (next, removed) {
        // SAFETY: the root was replaced alone, with all that is below it. No thread uses any of it.
        return drop(unsafe { Drain::new(Some(root)) });
    }
    while let Some(page) = next {
        // SAFETY: no thread uses the page, and each is in one chain once.
        unsafe {
            next = (*page.as_ptr()).also.get();
            Page::free(page);
        }
    }
    if let Some(Removed::Element(element)) = removed {
        // SAFETY: `Box::into_raw` made it, and it was removed once. No thread uses it.
        drop(unsafe { Box::from_raw(element.as_ptr()) });
    }
}

/// Takes a tree apart that no thread uses: gives out its elements in order, and frees its pages.
pub struct Drain<K, V> {
    /// The pages on the way to the next element, and the next entry of each.
    path: Vec<(NonNull<Head<K, V>>, usize)>,
}

// SAFETY: it owns the elements and the pages.
unsafe impl<K: Send, V: Send> Send for Drain<K, V> {}
// SAFETY: a shared reference to it gives access to nothing.
unsafe impl<K: Sync, V: Sync> Sync for Drain<K, V> {}

impl<K, V> Drain<K, V> {
    /// # Safety
    ///
    /// The tree with this root is the caller's alone.
    pub unsafe fn new(root: Option<NonNull<Head<K, V>>>) -> Self {
        Drain { path: root.map(|root| (root, 0)).into_iter().collect() }
    }

    /// How many elements are left.
    pub fn len(&self) -> usize {
        // SAFETY: pages on the path have not been freed. (Of their children, those before the next entry have; the counts of
        // those that are left stand in the page.)
        let left = self.path.iter().map(|(head, at)| (unsafe { Page::<K, V>::new(*head) }, *at));
        left.map(|(page, at)| page.count() - page.before(at)).sum()
    }
}

impl<K, V> Iterator for Drain<K, V> {
    type Item = Box<Node<K, V>>;

    fn next(&mut self) -> Option<Box<Node<K, V>>> {
        loop {
            let (head, at) = self.path.last_mut()?;
            // SAFETY: pages on the path have not been freed.
            let page = unsafe { Page::<K, V>::new(*head) };
            if *at == page.firsts().len() {
                self.path.pop();
                // SAFETY: the page has left the path, so it is freed once.
                unsafe { Page::free(page.head) };
                continue;
            }
            *at += 1;
            let at = *at - 1;
            if page.height() == 0 {
                // SAFETY: `Box::into_raw` made it, and it is in one leaf of the tree, once.
                return Some(unsafe { Box::from_raw(page.firsts()[at].as_ptr()) });
            }
            self.path.push((page.children()[at].page, 0));
        }
    }
}

impl<K, V> Drop for Drain<K, V> {
    /// Goes on if a destructor of an element panics. (A second panic ends the process.)
    fn drop(&mut self) {
        struct Rest<'a, K, V>(&'a mut Drain<K, V>);
        impl<K, V> Drop for Rest<'_, K, V> {
            fn drop(&mut self) {
                self.0.for_each(drop);
            }
        }
        Rest(self).0.for_each(drop);
    }
}
