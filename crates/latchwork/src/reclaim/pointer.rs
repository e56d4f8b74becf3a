//! Hazard pointers that a program owns one by one: [`HazardPointer`].
//!
//! Source: Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", TPDS 2004; the interface as in P2530
//! (C++26). What pairs with what is described at [`hazard`](super::hazard).
//!
//! A guard of [`hazard`](super::hazard) uses the slots of its thread. A [`HazardPointer`] has a slot of its own instead,
//! in pages that belong to the process and are never freed. So it may move to another thread, and outlive the thread that
//! made it. Scans look at the slots that have an owner.
//!
//! State of a slot: free -> owned (`new_in`) -> free (`drop`). A free slot holds 0.
//!
//! Size: 64 bytes per slot; a page has 32. Atomics: 1 to make one, 1 to drop it, none per protection.

use super::hazard::HazardDomain;
use super::typed::{Atomic, TAGS};
use crate::machine::record::{self, Hazard, Records};
use crate::machine::{Group, Native, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

type Page<M> = Group<M, Hazard<M>>;

/// Slots in a page.
const SLOTS: u32 = crate::machine::group::GROUP as u32;

/// The newest page; the others are linked behind it.
fn newest<M: Records>() -> Option<&'static Page<M>> {
    // Acquire: pairs with the exchange in `map`. SAFETY: null or a page, and pages are never freed.
    unsafe { record::clocks::<M>().hazards.load(Acquire).as_ref() }
}

/// The slots that have an owner, for a scan that has issued the heavy fence.
pub(super) fn addresses<M: Records>() -> impl Iterator<Item = &'static M::Usize> {
    newest::<M>().into_iter().flat_map(Group::owned).map(|hazard| &hazard.address)
}

/// Makes a page, and takes its first slot.
#[cold]
fn map<M: Records>() -> &'static Hazard<M> {
    // The model checker makes a page for each execution, of one slot.
    let slots: Vec<_> = (0..M::patience(SLOTS)).map(|_| Hazard::new()).collect();
    let slots: &'static [Hazard<M>] = Box::leak(slots.into_boxed_slice());
    let page: &'static Page<M> = Box::leak(Box::new(Group::new(slots, 1, None)));
    slots.iter().for_each(|slot| slot.page.store(page.as_ptr(), Relaxed));
    let head = &record::clocks::<M>().hazards;
    let mut before = head.load(Acquire);
    loop {
        // SAFETY: null or a page, and pages are never freed.
        page.link(unsafe { before.as_ref() });
        // Publishes the page and its slots before the first of them is used: a scan that does not find the page after its
        // heavy fence need not know what the owners of its slots do.
        // (The acquires add nothing: `link` does not look into the page before, and the exchange continues its release.)
        match head.compare_exchange(before, page.as_ptr(), AcqRel, Acquire) {
            Ok(_) => return &slots[0],
            Err(now) => before = now,
        }
    }
}

/// A hazard pointer: it protects one object at a time, of any [`HazardDomain`](super::hazard::HazardDomain) without full
/// fences.
///
/// It belongs to no thread: it can be sent to another one, and what it protects stays protected on the way. A program may
/// have as many as memory allows. Making one takes a free slot, and allocates only when all slots are in use.
///
/// In the child of a fork, the hazard pointers of other threads stay what they were: what they protect is not reclaimed,
/// and [`barrier`](super::Reclaim::barrier) waits for ever if such an object is retired.
///
/// ```
/// use latchwork::machine::Native;
/// use latchwork::reclaim::hazard::{HazardDomain, HazardPointer};
/// use latchwork::reclaim::{Header, Reclaim, Retire};
/// use std::sync::atomic::{AtomicPtr, Ordering::AcqRel};
///
/// #[repr(C)]
/// struct Route {
///     header: Header,
///     gateway: u32,
/// }
/// // SAFETY: `repr(C)`, and the header comes first.
/// unsafe impl Retire for Route {}
///
/// let domain = HazardDomain::<Native>::new_in();
/// let route = AtomicPtr::new(Box::into_raw(Box::new(Route { header: Header::new(), gateway: 7 })));
/// let mut hazard = HazardPointer::new();
/// let seen = hazard.protect_raw(&route);
/// // SAFETY: removed by this exchange, and by no other; readers protect it.
/// unsafe { domain.retire(route.swap(std::ptr::null_mut(), AcqRel)) };
/// std::thread::spawn(move || {
///     let seen = hazard.protected().cast::<Route>();
///     // SAFETY: the hazard pointer protects it since before it was removed.
///     assert_eq!(unsafe { (*seen).gateway }, 7);
/// })
/// .join()
/// .unwrap();
/// # assert!(!seen.is_null());
/// domain.barrier();
/// assert_eq!(domain.garbage().objects, 0);
/// ```
#[repr(transparent)]
pub struct HazardPointer<M: Records = Native> {
    /// Owned by this, and written by no other thread.
    slot: NonNull<Hazard<M>>,
    machine: PhantomData<M>,
}

// SAFETY: the slot belongs to the process and not to a thread. Who has the hazard pointer has the slot, and `Send` orders
// what two owners do.
unsafe impl<M: Records> Send for HazardPointer<M> {}
// SAFETY: a shared reference only allows to read the slot.
unsafe impl<M: Records> Sync for HazardPointer<M> {}

impl HazardPointer {
    /// A hazard pointer that protects nothing.
    pub fn new() -> Self {
        Self::new_in()
    }
}

impl<M: Records> HazardPointer<M> {
    /// A hazard pointer that protects nothing, on any machine.
    pub fn new_in() -> Self {
        // The light fence of a thread that has no record must be a fence as well.
        M::prepare_fences();
        let free = newest::<M>().into_iter().flat_map(Group::groups).find_map(Group::take);
        let slot = free.unwrap_or_else(map::<M>);
        HazardPointer { slot: NonNull::from(slot), machine: PhantomData }
    }

    fn slot(&self) -> &'static Hazard<M> {
        // SAFETY: slots are never freed.
        unsafe { self.slot.as_ref() }
    }

    /// The object that `from` leads to, protected until this protects another one, is reset, or is dropped.
    ///
    /// ```
    /// use latchwork::machine::Native;
    /// use latchwork::reclaim::hazard::{HazardDomain, HazardPointer};
    /// use latchwork::reclaim::typed::{Atomic, Owned};
    ///
    /// static DOMAIN: HazardDomain<Native> = HazardDomain::new();
    ///
    /// let route = Atomic::new_in(Some(Owned::new(7)));
    /// let mut hazard = HazardPointer::new();
    /// let seen = hazard.protect(&route);
    /// route.store(Some(Owned::new(8)), &DOMAIN);
    /// assert_eq!(seen, Some(&7));
    /// assert_eq!(hazard.protect(&route), Some(&8));
    /// ```
    ///
    /// What was protected is not used after the next protection:
    ///
    /// ```compile_fail,E0499
    /// # use latchwork::machine::Native;
    /// # use latchwork::reclaim::hazard::{HazardDomain, HazardPointer};
    /// # use latchwork::reclaim::typed::{Atomic, Owned};
    /// let route = Atomic::<u32, HazardDomain<Native>>::new_in(Some(Owned::new(7)));
    /// let mut hazard = HazardPointer::new();
    /// let first = hazard.protect(&route);
    /// let second = hazard.protect(&route);
    /// assert_eq!(first, second);
    /// ```
    ///
    /// Nor can a hazard pointer read what another strategy reclaims:
    ///
    /// ```compile_fail,E0308
    /// # use latchwork::reclaim::{hazard::HazardPointer, typed::Atomic};
    /// let route = Atomic::<u32>::new(7);
    /// HazardPointer::new().protect(&route);
    /// ```
    #[inline]
    pub fn protect<'h, T: Send + Sync + 'static>(
        &'h mut self,
        from: &'h Atomic<T, HazardDomain<M>>,
    ) -> Option<&'h T> {
        let node = self.protect_raw(from.link());
        // SAFETY: null, or protected while `'h` lasts, in which this is borrowed. It is retired in a domain that looks at
        // this, or dropped with `from`, which is borrowed as well. The tag is taken off.
        unsafe { node.map_addr(|address| address & !TAGS).as_ref() }.map(|node| &node.value)
    }

    /// Reads a pointer and protects what it points to, until this protects something else, is reset, or is dropped. The
    /// pointer may be null, carry marks in its low bits, and point into the middle of the object. It must be read from a
    /// place where the object is still linked at that time ([`Guard::protect`](super::Guard::protect)). Ordering: acquire.
    #[inline]
    pub fn protect_raw<T: Send + Sync + 'static>(&mut self, from: &M::Ptr<T>) -> *mut T {
        let mut pointer = from.load(Relaxed);
        loop {
            match self.try_protect_raw(pointer, from) {
                Ok(()) => return pointer,
                Err(now) => pointer = now,
            }
        }
    }

    /// Protects what `pointer` points to, if `pointer` still stands in `from` after that. Otherwise it protects nothing, and
    /// returns what stands there. Ordering: acquire.
    #[inline]
    pub fn try_protect_raw<T: Send + Sync + 'static>(
        &mut self,
        pointer: *mut T,
        from: &M::Ptr<T>,
    ) -> Result<(), *mut T> {
        self.set_raw(pointer);
        // (A) pairs with the fence of a scan: the scan sees the slot, or this thread sees that the object was removed.
        M::light_fence();
        let now = from.load(Acquire);
        if now == pointer {
            return Ok(());
        }
        self.reset();
        Err(now)
    }

    /// Protects what `pointer` points to, if it is not removed before the call returns: for an object that is protected in
    /// another way now, or is not shared yet. Ends the protection of what was protected before.
    #[inline]
    pub fn set_raw<T>(&mut self, pointer: *const T) {
        // (E) what was done with the previous object happens before what a scan does that sees this.
        self.slot().address.store(pointer.expose_provenance(), Release);
    }

    /// Ends the protection.
    #[inline]
    pub fn reset(&mut self) {
        self.slot().address.store(0, Release); // (E)
    }

    /// The address that is protected, or null.
    pub fn protected(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.slot().address.load(Relaxed))
    }

    /// The word that holds the protected address: for a face in another language, whose fast path is its own.
    ///
    /// # Safety
    ///
    /// While this protects something, nothing but this type's methods or the equivalent of
    /// [`try_protect_raw`](Self::try_protect_raw) writes to the word, and only while no other thread uses this.
    pub unsafe fn word(&self) -> &'static M::Usize {
        &self.slot().address
    }
}

impl<M: Records> Drop for HazardPointer<M> {
    fn drop(&mut self) {
        self.reset();
        let slot = self.slot();
        // SAFETY: set when the page was made, and never freed.
        unsafe { &*slot.page.load(Relaxed) }.give_back(slot);
    }
}

impl Default for HazardPointer {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Records> fmt::Debug for HazardPointer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HazardPointer").field(&self.protected()).finish()
    }
}
