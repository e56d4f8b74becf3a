//! Typed pointers: [`Atomic`], [`Owned`], [`Shared`] and [`Removed`].
//!
//! Source: the vocabulary is crossbeam-epoch's. What differs: an [`Atomic`] owns what it points to, and each object is
//! linked in one place. Therefore reading is safe, and so is replacing: what an exchange takes out of its place is a
//! [`Removed`] object of the caller's alone, which is retired when it is dropped.
//!
//! | state of an object | who has it | the next state |
//! |---|---|---|
//! | owned | an [`Owned`] | linked, when a thread puts it into an [`Atomic`]; or dropped with its owner |
//! | linked | one [`Atomic`]; readers may have a [`Shared`] | removed, by the one exchange that takes it out; or dropped with the [`Atomic`], which no reader borrows then |
//! | removed | a [`Removed`]; readers may still have a [`Shared`] | retired, when the [`Removed`] is dropped |
//!
//! A list links one object in two places for a moment. Its code calls `unsafe` methods ([`Atomic::store_shared`]), and
//! promises that an object is retired only when no link leads to it.
//!
//! What pairs with what: (A) a thread links an object (release), and a reader loads the pointer (acquire). So the reader
//! sees what the first thread wrote to the object.
//!
//! Size: an [`Atomic`] is 8 bytes, an object 24 bytes more than its value.

use super::node::Node;
use super::strategy::{Guard, GuardOf, Reclaim, Sections};
use crate::machine::{Machine, Word};
use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::*;

/// The bits of a pointer that a program may use for a tag: nodes are aligned to 8 bytes at least.
pub(super) const TAGS: usize = align_of::<super::Header>() - 1;

/// The pointer with this tag.
#[inline(always)]
fn tagged<T>(node: *mut Node<T>, tag: usize) -> *mut Node<T> {
    node.map_addr(|address| address & !TAGS | tag & TAGS)
}

/// A pointer that threads share, to an object that it owns, or null. In its low bits is a tag of three bits.
///
/// `D` is the strategy: guards of another one do not compile. (Guards of another domain of the type cover this one:
/// [`Covering`].)
///
/// ```
/// use latchwork::machine::Native;
/// use latchwork::reclaim::rcu::RcuDomain;
/// use latchwork::reclaim::typed::{Atomic, Owned};
///
/// static DOMAIN: RcuDomain<Native> = RcuDomain::new();
///
/// let route = Atomic::<u32>::new(7);
/// let guard = DOMAIN.enter();
/// let seen = route.load(&guard);
/// let removed = route.swap(Some(Owned::new(8)), &DOMAIN).unwrap();
/// assert_eq!((seen.as_ref(), *removed), (Some(&7), 7)); // not reclaimed while the section lasts
/// drop(removed);
/// assert_eq!(route.load(&guard).as_ref(), Some(&8));
/// ```
///
/// What was read does not outlive its section, nor the pointer:
///
/// ```compile_fail,E0505
/// # use latchwork::reclaim::{rcu::global, typed::Atomic};
/// let route = Atomic::<u32>::new(7);
/// let guard = global().enter();
/// let seen = route.load(&guard);
/// drop(guard);
/// assert_eq!(seen.as_ref(), Some(&7));
/// ```
///
/// ```compile_fail,E0505
/// # use latchwork::reclaim::{rcu::global, typed::Atomic};
/// let guard = global().enter();
/// let route = Atomic::<u32>::new(7);
/// let seen = route.load(&guard);
/// drop(route);
/// assert_eq!(seen.as_ref(), Some(&7));
/// ```
///
/// A guard of another strategy is a type error, and so is a domain of another one:
///
/// ```compile_fail,E0308
/// # use latchwork::machine::Native;
/// # use latchwork::reclaim::{epoch::EpochDomain, typed::Atomic};
/// let route = Atomic::<u32>::new(7);
/// route.load(&EpochDomain::<Native>::new().enter());
/// ```
///
/// ```compile_fail,E0308
/// # use latchwork::machine::Native;
/// # use latchwork::reclaim::{epoch::EpochDomain, typed::Atomic};
/// let route = Atomic::<u32>::new(7);
/// route.swap(None, &EpochDomain::<Native>::new());
/// ```
///
/// Values that cannot be dropped in another thread are refused:
///
/// ```compile_fail,E0277
/// # use latchwork::reclaim::typed::Atomic;
/// let shared = Atomic::<std::rc::Rc<u32>>::null();
/// ```
pub struct Atomic<T: Send + Sync + 'static, D: Reclaim = super::rcu::RcuDomain<crate::machine::Native>> {
    link: Link<T, D>,
    domain: PhantomData<fn() -> D>,
    /// It owns an object.
    owns: PhantomData<Node<T>>,
}

type Link<T, D> = <<D as Reclaim>::Machine as Machine>::Ptr<Node<T>>;

/// An object that no other thread has.
///
/// ```
/// use latchwork::reclaim::typed::Owned;
///
/// let mut number = Owned::new(7);
/// *number += 1;
/// assert_eq!(number.into_inner(), 8);
/// ```
pub struct Owned<T: Send + Sync + 'static> {
    /// With its tag.
    node: NonNull<Node<T>>,
    owns: PhantomData<Node<T>>,
}

/// A pointer to an object, or null, that was read in the section of a guard. It stays valid until the guard ends.
pub struct Shared<'g, T, D> {
    /// With its tag.
    node: *mut Node<T>,
    section: PhantomData<&'g T>,
    domain: PhantomData<fn() -> D>,
}

/// An object that this thread has removed from where it was linked. Readers may still have it. It is retired when this is
/// dropped.
///
/// It does not let anyone write to the object:
///
/// ```compile_fail,E0594
/// # use latchwork::reclaim::{rcu::global, typed::Atomic};
/// let route = Atomic::<u32>::new(7);
/// let mut removed = route.swap(None, global()).unwrap();
/// *removed = 8;
/// ```
#[must_use = "an object that was removed is retired at once if this is dropped"]
pub struct Removed<'d, T: Send + Sync + 'static, D: Reclaim> {
    /// Without a tag.
    node: NonNull<Node<T>>,
    domain: &'d D,
}

/// What [`Atomic::compare_exchange`] returns if it did nothing.
pub struct Unchanged<'g, T: Send + Sync + 'static, D> {
    /// What stands there.
    pub current: Shared<'g, T, D>,
    /// What was to be put there.
    pub new: Option<Owned<T>>,
}

// SAFETY: an `Owned` owns its value, as a box does.
unsafe impl<T: Send + Sync + 'static> Send for Owned<T> {}
// SAFETY: a shared reference to an `Owned` only leads to a shared reference to its value, which is `Sync`.
unsafe impl<T: Send + Sync + 'static> Sync for Owned<T> {}
// SAFETY: the object is `Send` and `Sync`, and domains are.
unsafe impl<T: Send + Sync + 'static, D: Reclaim> Send for Removed<'_, T, D> {}
// SAFETY: a shared reference to it only leads to a shared reference to the object, which is `Sync`.
unsafe impl<T: Send + Sync + 'static, D: Reclaim> Sync for Removed<'_, T, D> {}

impl<T: Send + Sync + 'static> Owned<T> {
    /// An object, in a box.
    pub fn new(value: T) -> Self {
        let node = NonNull::new(Node::make(value)).expect("a box is not null");
        Owned { node, owns: PhantomData }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        // SAFETY: made by `Node::make`, and this has it alone.
        unsafe { Node::into_value(tagged(self.into_node(), 0)) }
    }

    /// The tag that goes with the pointer where it is linked: 0 to 7.
    pub fn tag(&self) -> usize {
        self.node.as_ptr().addr() & TAGS
    }

    /// The same with another tag, of which the lowest three bits count.
    pub fn with_tag(self, tag: usize) -> Self {
        let node = tagged(self.into_node(), tag);
        // SAFETY: the tag is in the low bits of a pointer that is not null.
        Owned { node: unsafe { NonNull::new_unchecked(node) }, owns: PhantomData }
    }

    /// With its tag; the caller has it then.
    fn into_node(self) -> *mut Node<T> {
        ManuallyDrop::new(self).node.as_ptr()
    }

    /// With its tag, and about to be linked.
    fn into_new<D: Reclaim>(mut self) -> *mut Node<T> {
        self.note_new::<D>();
        self.into_node()
    }

    /// Tells the strategy that the object is new: no reader has found it so far.
    fn note_new<D: Reclaim>(&mut self) {
        // SAFETY: made by `Node::make`, and this has it alone.
        D::note_new(unsafe { &mut *tagged(self.node.as_ptr(), 0) });
    }
}

impl<T: Send + Sync + 'static> Deref for Owned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: made by `Node::make`, and this has it alone.
        unsafe { &(*tagged(self.node.as_ptr(), 0)).value }
    }
}

impl<T: Send + Sync + 'static> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: made by `Node::make`, and this has it alone.
        unsafe { &mut (*tagged(self.node.as_ptr(), 0)).value }
    }
}

impl<T: Send + Sync + 'static> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by `Node::make`, and this has it alone.
        drop(unsafe { Box::from_raw(tagged(self.node.as_ptr(), 0)) });
    }
}

impl<T, D> Copy for Shared<'_, T, D> {}

impl<T, D> Clone for Shared<'_, T, D> {
    fn clone(&self) -> Self {
        *self
    }
}

/// The same object with the same tag.
impl<T, D> PartialEq for Shared<'_, T, D> {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.node, other.node)
    }
}

impl<T, D> Eq for Shared<'_, T, D> {}

impl<'g, T, D> Shared<'g, T, D> {
    fn new(node: *mut Node<T>) -> Self {
        Shared { node, section: PhantomData, domain: PhantomData }
    }

    /// No object, with the tag 0.
    pub fn null() -> Self {
        Shared::new(null_mut())
    }

    /// Whether there is no object.
    #[inline(always)]
    pub fn is_null(&self) -> bool {
        self.node.addr() & !TAGS == 0
    }

    /// The object, if there is one.
    #[inline(always)]
    pub fn as_ref(&self) -> Option<&'g T> {
        // SAFETY: null, or read in a section that lasts for `'g`, from a place that links only objects that are alive.
        unsafe { tagged(self.node, 0).as_ref() }.map(|node| &node.value)
    }

    /// The tag: 0 to 7.
    pub fn tag(&self) -> usize {
        self.node.addr() & TAGS
    }

    /// The same with another tag, of which the lowest three bits count.
    pub fn with_tag(&self, tag: usize) -> Self {
        Shared::new(tagged(self.node, tag))
    }
}

impl<T: fmt::Debug, D> fmt::Debug for Shared<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.as_ref()).field(&self.tag()).finish()
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owned").field(&**self).field(&self.tag()).finish()
    }
}

impl<T: Send + Sync + fmt::Debug + 'static, D> fmt::Debug for Unchanged<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unchanged").field("current", &self.current).field("new", &self.new).finish()
    }
}

impl<'d, T: Send + Sync + 'static, D: Reclaim> Removed<'d, T, D> {
    /// # Safety
    ///
    /// The caller has removed the node, and has it alone but for readers with guards that cover `domain`.
    pub(super) unsafe fn new(node: *mut Node<T>, domain: &'d D) -> Option<Self> {
        NonNull::new(tagged(node, 0)).map(|node| Removed { node, domain })
    }
}

impl<T: Send + Sync + 'static, D: Reclaim> Deref for Removed<'_, T, D> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the object is not retired before this is dropped.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T: Send + Sync + fmt::Debug + 'static, D: Reclaim> fmt::Debug for Removed<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Removed").field(&**self).finish()
    }
}

impl<T: Send + Sync + 'static, D: Reclaim> Drop for Removed<'_, T, D> {
    fn drop(&mut self) {
        // SAFETY: removed, and this has it alone but for readers whose guards cover the domain (`new`). `Node::make` made
        // it.
        unsafe { self.domain.retire(self.node.as_ptr()) };
    }
}

impl<T: Send + Sync + 'static> Atomic<T> {
    /// No object, in a constant.
    ///
    /// ```
    /// use latchwork::reclaim::typed::Atomic;
    ///
    /// static ROUTE: Atomic<u32> = Atomic::null();
    /// assert!(ROUTE.is_null());
    /// ```
    pub const fn null() -> Self {
        let link = core::sync::atomic::AtomicPtr::new(null_mut());
        Atomic { link, domain: PhantomData, owns: PhantomData }
    }

    /// An object of general-purpose RCU.
    pub fn new(value: T) -> Self {
        Self::new_in(Some(Owned::new(value)))
    }
}

impl<T: Send + Sync + 'static, D: Reclaim> Atomic<T, D> {
    /// An object, or none, of any strategy, on any machine.
    pub fn new_in(object: Option<Owned<T>>) -> Self {
        let link = Link::<T, D>::new(object.map_or(null_mut(), Owned::into_new::<D>));
        Atomic { link, domain: PhantomData, owns: PhantomData }
    }

    /// Whether there is no object.
    pub fn is_null(&self) -> bool {
        self.link.load(Relaxed).addr() & !TAGS == 0
    }

    /// The word, for the strategies.
    pub(super) fn link(&self) -> &Link<T, D> {
        &self.link
    }

    /// Puts another object here, or none, and returns the one that was here. That one is retired in `domain` when it is
    /// dropped.
    pub fn swap<'d>(&self, new: Option<Owned<T>>, domain: &'d D) -> Option<Removed<'d, T, D>>
    where
        D: Covering,
    {
        let new = new.map_or(null_mut(), Owned::into_new::<D>);
        // (A). SAFETY: this exchange has removed the object; readers have guards of this type, which cover all its domains
        // (`Covering`).
        unsafe { Removed::new(self.link.swap(new, AcqRel), domain) }
    }

    /// Puts another object here, or none, and retires the one that was here.
    pub fn store(&self, new: Option<Owned<T>>, domain: &D)
    where
        D: Covering,
    {
        drop(self.swap(new, domain));
    }

    /// The value, for a thread that has this alone.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: null, or made by `Node::make`. No other thread has this, and so no reader has the object.
        unsafe { tagged(self.link.load(Acquire), 0).as_mut() }.map(|node| &mut node.value)
    }

    /// The object, which is owned by the caller then.
    pub fn into_owned(self) -> Option<Owned<T>> {
        let node = NonNull::new(tagged(ManuallyDrop::new(self).link.load(Acquire), 0))?;
        Some(Owned { node, owns: PhantomData })
    }
}

/// A strategy of which each guard covers every domain of the type, because its readers are the process's. Counted references
/// are not: their guards cover their own domain.
///
/// # Safety
///
/// [`covers`](Reclaim::covers) is always `true`.
pub unsafe trait Covering: Reclaim {}

// SAFETY: sections are the process's (`Domain::covers`).
unsafe impl<M: crate::machine::Records, F: super::domain::Flavour> Covering for super::domain::Domain<M, F> {}
// SAFETY: hazard pointers are the process's (`HazardDomain::covers`).
unsafe impl<M: crate::machine::Records> Covering for super::hazard::HazardDomain<M> {}

// SAFETY: intervals are the process's (`IntervalDomain::covers`).
unsafe impl<M: crate::machine::Records, const SHIFT: u32> Covering
    for super::interval::IntervalDomain<M, SHIFT>
{
}

impl<T: Send + Sync + 'static, D: Sections + Covering> Atomic<T, D> {
    /// What stands here, in a section of the caller's. Ordering: acquire.
    #[inline(always)]
    pub fn load<'g>(&'g self, guard: &'g GuardOf<'_, '_, D>) -> Shared<'g, T, D> {
        Shared::new(guard.protect(0, &self.link)) // (A)
    }

    /// Puts `new` here if `current` stands here, with its tag. Returns what was removed by that, which is retired in
    /// `domain` when it is dropped. Ordering: acquire and release.
    ///
    /// ```
    /// use latchwork::reclaim::rcu::global;
    /// use latchwork::reclaim::typed::{Atomic, Owned};
    ///
    /// let highest = Atomic::<u32>::new(7);
    /// let raise = |to: u32| {
    ///     let guard = global().enter();
    ///     let (mut seen, mut new) = (highest.load(&guard), Some(Owned::new(to)));
    ///     while seen.as_ref() < Some(&to) {
    ///         match highest.compare_exchange(seen, new, global(), &guard) {
    ///             Ok(_) => return true,
    ///             Err(unchanged) => (seen, new) = (unchanged.current, unchanged.new),
    ///         }
    ///     }
    ///     false
    /// };
    /// assert!(raise(8) && !raise(5));
    /// assert_eq!(highest.into_owned().map(Owned::into_inner), Some(8));
    /// ```
    pub fn compare_exchange<'g, 'd>(
        &'g self,
        current: Shared<'g, T, D>,
        mut new: Option<Owned<T>>,
        domain: &'d D,
        guard: &'g GuardOf<'_, '_, D>,
    ) -> Result<Option<Removed<'d, T, D>>, Unchanged<'g, T, D>> {
        new.as_mut().map(Owned::note_new::<D>);
        let node = new.as_ref().map_or(null_mut(), |new| new.node.as_ptr());
        // (A) for both results.
        match self.link.compare_exchange(current.node, node, AcqRel, Acquire) {
            Ok(old) => {
                core::mem::forget(new); // it is linked
                // SAFETY: as in `swap`.
                Ok(unsafe { Removed::new(old, domain) })
            }
            Err(now) => Err(Unchanged { current: self.seen(now, guard), new }),
        }
    }

    /// Gives the pointer another tag if `current` stands here, with its tag. The object stays linked. Returns what stands
    /// here then.
    pub fn compare_exchange_tag<'g>(
        &'g self,
        current: Shared<'g, T, D>,
        tag: usize,
        guard: &'g GuardOf<'_, '_, D>,
    ) -> Result<Shared<'g, T, D>, Shared<'g, T, D>> {
        let new = tagged(current.node, tag);
        let result = self.link.compare_exchange(current.node, new, AcqRel, Acquire);
        result.map(|_| Shared::new(new)).map_err(|now| self.seen(now, guard))
    }

    /// What an exchange has found here, or what stands here since: protected while the guard's section lasts.
    fn seen<'g>(&'g self, now: *mut Node<T>, guard: &'g GuardOf<'_, '_, D>) -> Shared<'g, T, D> {
        Shared::new(D::protect_seen(guard, now, &self.link))
    }

    /// Puts a pointer here to an object that is linked in another place, or null. The previous pointer is forgotten.
    /// Ordering: release.
    ///
    /// For structures like lists, in which two places lead to an object for a moment. Such a place is a
    /// `ManuallyDrop<Atomic<T>>`, if it does not own what it leads to.
    ///
    /// # Safety
    ///
    /// - The object is not retired or dropped while a section that begins later can follow this pointer.
    /// - What this pointer led to, if anything, does not become unreachable by this, unless the caller retires it.
    pub unsafe fn store_shared(&self, new: Shared<'_, T, D>) {
        self.link.store(new.node, Release); // (A)
    }

    /// [`store_shared`](Atomic::store_shared) if `current` stands here, with its tag. `Err`: what stands here.
    ///
    /// # Safety
    ///
    /// As [`store_shared`](Atomic::store_shared).
    pub unsafe fn compare_exchange_shared<'g>(
        &'g self,
        current: Shared<'g, T, D>,
        new: Shared<'g, T, D>,
        guard: &'g GuardOf<'_, '_, D>,
    ) -> Result<(), Shared<'g, T, D>> {
        // (A) for both results.
        let result = self.link.compare_exchange(current.node, new.node, AcqRel, Acquire);
        result.map(drop).map_err(|now| self.seen(now, guard))
    }
}

impl<T: Send + Sync + 'static, D: Reclaim> Shared<'_, T, D> {
    /// Retires the object when the result is dropped. `None` if there is no object.
    ///
    /// # Safety
    ///
    /// The object has been removed: no link leads to it, and no other thread retires or drops it.
    pub unsafe fn defer_destroy(self, domain: &D) -> Option<Removed<'_, T, D>>
    where
        D: Covering,
    {
        // SAFETY: the caller's promise; guards of the type cover the domain (`Covering`).
        unsafe { Removed::new(self.node, domain) }
    }
}

impl<T: Send + Sync + 'static, D: Reclaim> Drop for Atomic<T, D> {
    /// Drops the object at once: no reader borrows this.
    fn drop(&mut self) {
        let node = tagged(self.link.load(Acquire), 0);
        if !node.is_null() {
            // SAFETY: made by `Node::make`, and this owns it. A reader that has it borrows this, or has found this in an
            // object that is reclaimed, in a section that is over.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}

impl<T: Send + Sync + 'static, D: Reclaim> fmt::Debug for Atomic<T, D> {
    /// Shows no object: that would take a section.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomic").field("is_null", &self.is_null()).finish_non_exhaustive()
    }
}
