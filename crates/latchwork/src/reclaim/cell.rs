//! A value that is read without locking, and replaced as a whole: [`Rcu`].

use super::node::Node;
use super::rcu::{RcuDomain, RcuGuard, global};
use super::strategy::{GracePeriod, Guard, GuardOf, Reader, Reclaim};
use super::typed::{Atomic, Owned, Removed};
use crate::machine::{Machine, Native, Word};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

type Link<T, D> = <<D as Reclaim>::Machine as Machine>::Ptr<Node<T>>;

/// A value that many threads read and few replace (read, copy, update).
///
/// Reading is a load in a section of the reader's. A thread that replaces the value retires the old one. The old value is
/// dropped when no reader has it any more, by a thread that retires later, or that collects. If values are seldom replaced, and
/// no thread is in a section just then, [`replace`](Rcu::replace) drops the old one itself
/// ([how soon](crate::reclaim::rcu::RcuDomain)).
///
/// ```
/// use latchwork::reclaim::Rcu;
///
/// static GATEWAYS: std::sync::LazyLock<Rcu<Vec<u8>>> = std::sync::LazyLock::new(|| Rcu::new(vec![1]));
///
/// let before = GATEWAYS.get();
/// GATEWAYS.update(|list| [list.as_slice(), &[2]].concat());
/// assert_eq!(*before, [1]); // what it was when the section began
/// assert_eq!(*GATEWAYS.get(), [1, 2]);
/// ```
///
/// Many reads can share a section, whose guard they borrow; nothing that was read outlives it:
///
/// ```compile_fail,E0505
/// use latchwork::reclaim::{Rcu, rcu};
///
/// let limit = Rcu::new(7);
/// let guard = rcu::global().enter();
/// let seen = limit.read(&guard);
/// drop(guard);
/// assert_eq!(*seen, 7);
/// ```
///
/// With quiescent-state-based RCU nothing outlives a quiescent state:
///
/// ```compile_fail,E0502
/// use latchwork::machine::Native;
/// use latchwork::reclaim::{Rcu, Reader, Reclaim, qsbr::QsbrDomain};
///
/// let domain: &'static QsbrDomain<Native> = Box::leak(Box::new(QsbrDomain::new_in()));
/// let limit = Rcu::new_in(7, domain);
/// let mut reader = domain.reader();
/// let guard = reader.enter();
/// let seen = limit.read(&guard);
/// reader.quiescent();
/// assert_eq!(*seen, 7);
/// ```
///
/// Guards stay in their thread, and values that cannot be dropped in another are refused:
///
/// ```compile_fail,E0277
/// let shared = latchwork::reclaim::Rcu::new(std::rc::Rc::new(7));
/// ```
pub struct Rcu<T: Send + Sync + 'static, D: GracePeriod = RcuDomain<Native>> {
    current: Link<T, D>,
    domain: &'static D,
}

/// A cell of which a reader can take a snapshot that holds no section open ([`Rcu::snapshot`]).
///
/// ```
/// use latchwork::reclaim::RcuArc;
/// use std::sync::Arc;
///
/// let name: RcuArc<str> = RcuArc::new(Arc::from("eth0"));
/// let before = name.snapshot();
/// name.replace(Arc::from("eth1"));
/// assert_eq!((&*before, &**name.get()), ("eth0", "eth1"));
/// ```
pub type RcuArc<T> = Rcu<Arc<T>>;

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A cell in the domain of the process.
    pub fn new(value: T) -> Self {
        Rcu::new_in(value, global())
    }

    /// The value, in a section of its own.
    #[inline]
    #[cfg_attr(feature = "section-origins", track_caller)]
    pub fn get(&self) -> Ref<'_, T> {
        let guard = self.domain.enter();
        let node = guard.protect(0, &self.current);
        // SAFETY: `current` always leads to a node, which the section of `guard` protects.
        Ref::new(unsafe { &(*node).value }, guard)
    }
}

impl<T: ?Sized + Send + Sync + 'static> Rcu<Arc<T>> {
    /// The value, as a reference that holds no section open and may be kept for long. It costs an atomic instruction on
    /// the count of the value, and one when it is dropped.
    pub fn snapshot(&self) -> Arc<T> {
        Arc::clone(&self.get())
    }
}

impl<T: Send + Sync + 'static, D: GracePeriod> Rcu<T, D> {
    /// A cell in a domain.
    pub fn new_in(value: T, domain: &'static D) -> Self {
        Rcu { current: Link::<T, D>::new(Node::make(value)), domain }
    }

    /// The value, in a section of the caller's.
    #[inline(always)]
    pub fn read<'g>(&'g self, guard: &'g GuardOf<'_, '_, D>) -> &'g T {
        // SAFETY: `current` always leads to a node. What is read in a section is not reclaimed before the section ends,
        // and sections of this strategy cover all its domains (`GracePeriod`). The cell is borrowed, so it is not dropped.
        unsafe { &(*guard.protect(0, &self.current)).value }
    }

    /// Replaces the value. The old one is dropped when no thread reads it any more: now or later.
    ///
    /// This may drop other values that were retired in the domain
    /// ([destructors and locks](super#destructors-and-locks)). Outside of sections it may wait, while too many old values
    /// wait to be dropped.
    pub fn replace(&self, value: T) {
        let old = self.current.swap(Node::make(value), AcqRel);
        // SAFETY: this exchange, and no other, has removed the node, which `Node::make` made.
        unsafe { self.domain.retire(old) };
    }

    /// Replaces the value, and returns the old one. Other threads may still read that; it is retired when the result is
    /// dropped.
    ///
    /// ```
    /// let limit = latchwork::reclaim::Rcu::new(7);
    /// assert_eq!(*limit.swap(8), 7);
    /// assert_eq!(limit.into_inner(), 8);
    /// ```
    #[must_use = "an old value that is not needed is dropped by `replace`"]
    pub fn swap(&self, value: T) -> Removed<'static, T, D> {
        let old = self.current.swap(Node::make(value), AcqRel);
        // SAFETY: this exchange, and no other, has removed the node; readers have sections that cover all domains of the
        // strategy (`GracePeriod`).
        unsafe { Removed::new(old, self.domain) }.expect("a cell has a value")
    }

    /// Replaces the value by one that `make` makes from it. If another thread replaces the value meanwhile, `make` runs
    /// again, on the new value.
    pub fn update(&self, mut make: impl FnMut(&T) -> T) {
        self.update_with(|value| (make(value), ()));
    }

    /// [`update`](Rcu::update), where `make` returns a result as well. Returns the result of the call whose value is in the
    /// cell.
    ///
    /// ```
    /// let next = latchwork::reclaim::Rcu::new(7);
    /// assert_eq!(next.update_with(|number| (number + 1, *number)), 7);
    /// assert_eq!(*next.get(), 8);
    /// ```
    pub fn update_with<R>(&self, mut make: impl FnMut(&T) -> (T, R)) -> R {
        let Ok(result) = self.try_update(|value| Ok::<_, Infallible>(make(value)));
        drop(make); // as in `try_update`
        result
    }

    /// [`update_with`](Rcu::update_with), unless `make` returns an error: then the value stays, and the error is returned.
    ///
    /// ```
    /// let users = latchwork::reclaim::Rcu::new(1u32);
    /// let leave = || users.try_update(|number| Ok((number.checked_sub(1).ok_or("nobody")?, ())));
    /// assert_eq!((leave(), leave()), (Ok(()), Err("nobody")));
    /// ```
    pub fn try_update<R, E>(&self, mut make: impl FnMut(&T) -> Result<(T, R), E>) -> Result<R, E> {
        // The result, or the error, may hold a section open. So `make` is dropped before it is returned: if the destructor of
        // something in `make` panicked while a value is being returned, that value would leak (rust-lang/rust issue 47949).
        let reader = self.domain.reader();
        let guard = reader.enter();
        let mut old = guard.protect(0, &self.current);
        let (removed, result) = loop {
            // SAFETY: read in the section of `guard`, which is not over; the cell is borrowed.
            let (value, result) = match make(unsafe { &(*old).value }) {
                Ok(made) => made,
                Err(error) => {
                    drop(guard);
                    drop(reader);
                    drop(make);
                    return Err(error);
                }
            };
            let new = Node::make(value);
            // A node at this address is the same node: the section keeps it from being reclaimed, so the address is not
            // used again.
            match self.current.compare_exchange(old, new, AcqRel, Acquire) {
                // SAFETY: as in `swap`.
                Ok(old) => break (unsafe { Removed::new(old, self.domain) }, result),
                Err(now) => {
                    // SAFETY: made above, and no other thread has it.
                    drop(unsafe { Node::into_value(new) });
                    old = now;
                }
            }
        };
        drop(guard);
        drop(reader);
        drop(removed); // retires it, outside of the section
        drop(make);
        Ok(result)
    }

    /// The value, for a thread that has the cell alone.
    ///
    /// ```
    /// let mut limit = latchwork::reclaim::Rcu::new(7);
    /// *limit.get_mut() += 1;
    /// assert_eq!(*limit.get(), 8);
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: readers borrow the cell, so none is left; `current` always leads to a node.
        unsafe { &mut (*self.current.load(Acquire)).value }
    }

    /// Takes the value out of the cell.
    pub fn into_inner(self) -> T {
        let node = ManuallyDrop::new(self).current.load(Acquire);
        // SAFETY: readers borrow the cell, so none is left. The last node was never retired.
        unsafe { Node::into_value(node) }
    }
}

impl<T: Send + Sync + 'static, D: GracePeriod> Drop for Rcu<T, D> {
    fn drop(&mut self) {
        // SAFETY: readers borrow the cell, so none is left. The last node is a box that was never retired.
        drop(unsafe { Box::from_raw(self.current.load(Acquire)) });
    }
}

impl<T: Send + Sync + Default + 'static> Default for Rcu<T> {
    fn default() -> Self {
        Rcu::new(T::default())
    }
}

impl<T: Send + Sync + 'static> From<T> for Rcu<T> {
    fn from(value: T) -> Self {
        Rcu::new(value)
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rcu").field(&*self.get()).finish()
    }
}

/// A value that may be missing, of which a `static` can be made: otherwise as [`Rcu`].
///
/// ```
/// use latchwork::reclaim::RcuOption;
///
/// static CONFIGURATION: RcuOption<String> = RcuOption::none();
///
/// assert!(CONFIGURATION.get().is_none());
/// CONFIGURATION.replace(Some("verbose".into()));
/// assert_eq!(CONFIGURATION.get().as_deref().map(String::as_str), Some("verbose"));
/// assert_eq!(CONFIGURATION.take().as_deref().map(String::len), Some(7));
/// assert!(CONFIGURATION.is_none());
/// ```
pub struct RcuOption<T: Send + Sync + 'static> {
    current: Atomic<T>,
}

impl<T: Send + Sync + 'static> RcuOption<T> {
    /// No value.
    pub const fn none() -> Self {
        RcuOption { current: Atomic::null() }
    }

    /// Whether there is no value.
    pub fn is_none(&self) -> bool {
        self.current.is_null()
    }

    /// The value, in a section of its own.
    #[inline]
    #[cfg_attr(feature = "section-origins", track_caller)]
    pub fn get(&self) -> Option<Ref<'_, T>> {
        let guard = global().enter();
        let value: *const T = self.current.load(&guard).as_ref()?;
        // SAFETY: the section of `guard` protects the value.
        Some(Ref::new(unsafe { &*value }, guard))
    }

    /// The value, in a section of the caller's.
    #[inline(always)]
    pub fn read<'g>(&'g self, guard: &'g RcuGuard<'_, Native>) -> Option<&'g T> {
        self.current.load(guard).as_ref()
    }

    /// Replaces the value, or takes it away. See [`Rcu::replace`].
    pub fn replace(&self, value: Option<T>) {
        drop(self.swap(value));
    }

    /// Replaces the value, or takes it away, and returns the old one. See [`Rcu::swap`].
    pub fn swap(&self, value: Option<T>) -> Option<Removed<'static, T, RcuDomain<Native>>> {
        self.current.swap(value.map(Owned::new), global())
    }

    /// Takes the value away.
    pub fn take(&self) -> Option<Removed<'static, T, RcuDomain<Native>>> {
        self.swap(None)
    }

    /// The value, for a thread that has the cell alone.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.current.get_mut()
    }

    /// Takes the value out of the cell.
    pub fn into_inner(self) -> Option<T> {
        self.current.into_owned().map(Owned::into_inner)
    }
}

impl<T: Send + Sync + 'static> Default for RcuOption<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T: Send + Sync + 'static> From<Option<T>> for RcuOption<T> {
    fn from(value: Option<T>) -> Self {
        RcuOption { current: Atomic::new_in(value.map(Owned::new)) }
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for RcuOption<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuOption").field(&self.get()).finish()
    }
}

/// What [`Rcu::get`] returns: the value, or a part of it, and the section in which it was read.
pub struct Ref<'a, T: ?Sized> {
    value: NonNull<T>,
    guard: RcuGuard<'a, Native>,
    cell: PhantomData<&'a T>,
}

impl<'a, T: ?Sized> Ref<'a, T> {
    /// The value was read in the section of the guard.
    fn new(value: &T, guard: RcuGuard<'a, Native>) -> Self {
        Ref { value: NonNull::from(value), guard, cell: PhantomData }
    }

    /// A part of the value, in the same section.
    ///
    /// ```
    /// use latchwork::reclaim::{Rcu, Ref};
    ///
    /// let route = Rcu::new((String::from("eth0"), 7));
    /// let name: Ref<'_, str> = Ref::map(route.get(), |(name, _)| name.as_str());
    /// route.replace((String::from("eth1"), 8));
    /// assert_eq!(&*name, "eth0");
    /// ```
    pub fn map<U: ?Sized>(this: Self, part: impl FnOnce(&T) -> &U) -> Ref<'a, U> {
        let value = NonNull::from(part(&this));
        Ref { value, guard: this.guard, cell: PhantomData }
    }
}

impl<T: ?Sized> Deref for Ref<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: read in the section of `guard`, which is not over; the cell is borrowed.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
