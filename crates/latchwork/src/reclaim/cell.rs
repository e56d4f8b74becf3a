//! A value that is read without locking, and replaced as a whole: [`Rcu`].

use super::header::{Header, Retire};
use super::rcu::{RcuDomain, RcuGuard, global};
use super::strategy::{GracePeriod, Guard, GuardOf, Reader, Reclaim};
use crate::machine::{Machine, Native, Word};
use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::Ordering::*;

/// One value that the cell has had.
#[repr(C)]
struct Version<T> {
    header: Header,
    value: T,
}

// SAFETY: `repr(C)`, and the header comes first; `Version::make` makes it as a box.
unsafe impl<T: Send + Sync + 'static> Retire for Version<T> {}

impl<T> Version<T> {
    fn make(value: T) -> *mut Self {
        Box::into_raw(Box::new(Version { header: Header::new(), value }))
    }
}

type Link<T, D> = <<D as Reclaim>::Machine as Machine>::Ptr<Version<T>>;

/// A value that many threads read and few replace (read, copy, update).
///
/// Reading is a load in a section of the reader's. A thread that replaces the value retires the old one. The old value is
/// dropped when no reader has it any more, by any thread.
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

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A cell in the domain of the process.
    pub fn new(value: T) -> Self {
        Rcu::new_in(value, global())
    }

    /// The value, in a section of its own.
    #[inline]
    pub fn get(&self) -> Ref<'_, T> {
        let guard = self.domain.enter();
        let version = guard.protect(0, &self.current);
        Ref { version, _guard: guard, cell: PhantomData }
    }
}

impl<T: Send + Sync + 'static, D: GracePeriod> Rcu<T, D> {
    /// A cell in a domain.
    pub fn new_in(value: T, domain: &'static D) -> Self {
        Rcu { current: Link::<T, D>::new(Version::make(value)), domain }
    }

    /// The value, in a section of the caller's.
    #[inline(always)]
    pub fn read<'g>(&'g self, guard: &'g GuardOf<'_, '_, D>) -> &'g T {
        // SAFETY: `current` always leads to a version. What is read in a section is not reclaimed before the section ends,
        // and sections of this strategy cover all its domains (`GracePeriod`). The cell is borrowed, so it is not dropped.
        unsafe { &(*guard.protect(0, &self.current)).value }
    }

    /// Replaces the value. The old one is dropped when no thread reads it any more.
    ///
    /// This may drop other values that were retired in the domain
    /// ([destructors and locks](super#destructors-and-locks)). Outside of sections it may wait, while too many old values
    /// wait to be dropped.
    pub fn replace(&self, value: T) {
        let old = self.current.swap(Version::make(value), AcqRel);
        // SAFETY: this exchange, and no other, has removed the version, which `Version::make` made.
        unsafe { self.domain.retire(old) };
    }

    /// Replaces the value by one that `make` makes from it. If another thread replaces the value meanwhile, `make` runs
    /// again, on the new value.
    pub fn update(&self, mut make: impl FnMut(&T) -> T) {
        let reader = self.domain.reader();
        let guard = reader.enter();
        let mut old = guard.protect(0, &self.current);
        loop {
            // SAFETY: read in the section of `guard`, which is not over; the cell is borrowed.
            let new = Version::make(make(unsafe { &(*old).value }));
            // A version at this address is the same version: the section keeps it from being reclaimed, so the address is
            // not used again.
            match self.current.compare_exchange(old, new, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => {
                    // SAFETY: `make` made it as a box, and no other thread has it.
                    drop(unsafe { Box::from_raw(new) });
                    old = now;
                }
            }
        }
        drop(guard);
        drop(reader);
        // SAFETY: the exchange above, and no other, has removed the version, which `Version::make` made.
        unsafe { self.domain.retire(old) };
    }
}

impl<T: Send + Sync + 'static, D: GracePeriod> Drop for Rcu<T, D> {
    fn drop(&mut self) {
        // SAFETY: readers borrow the cell, so none is left. The last version is a box that was never retired.
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

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// What [`Rcu::get`] returns: the value, and the section in which it was read.
pub struct Ref<'a, T: Send + Sync + 'static> {
    version: *mut Version<T>,
    _guard: RcuGuard<'a, Native>,
    cell: PhantomData<&'a T>,
}

impl<T: Send + Sync + 'static> Deref for Ref<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: read in the section of `_guard`, which is not over; the cell is borrowed.
        unsafe { &(*self.version).value }
    }
}
