//! What a strategy of reclamation is ([`Reclaim`]), and what its readers have ([`Reader`], [`Guard`]).

use super::garbage::{Garbage, Limit};
use super::header::{Header, Retire};
use crate::machine::Machine;
use crate::machine::record::Records;
use alloc::boxed::Box;

/// The guard of a domain of type `D`.
pub type GuardOf<'r, 'd, D> = <<D as Reclaim>::Reader<'d> as Reader>::Guard<'r>;

/// A strategy: a domain of objects that are retired together.
///
/// A structure holds a domain or refers to one; a thread that uses it makes a [`Reader`] (once), and reads
/// while it has a [`Guard`] (one per operation).
///
/// # Safety
///
/// - A retired object is reclaimed once at most, and not while a guard protects it that [covers](Reclaim::covers) the
///   domain.
/// - The guards of its [`reader`](Reclaim::reader) cover the domain.
pub unsafe trait Reclaim: Send + Sync + Sized + 'static {
    /// The machine it runs on.
    type Machine: Records;
    /// See [`reader`](Reclaim::reader).
    type Reader<'d>: Reader<Machine = Self::Machine>
    where
        Self: 'd;
    /// Its description.
    const INFO: Info;

    /// A domain without garbage, on any machine.
    fn new_in() -> Self;

    /// The calling thread as one that reads.
    fn reader(&self) -> Self::Reader<'_>;

    /// Whether this domain does not reclaim what the guard protects. True of the guards of the domain's own
    /// [`reader`](Reclaim::reader). With RCU, epochs and hazard pointers it is true of every guard of the type, because
    /// readers are the process's; asking costs nothing then. A guard of [`counted`](super::counted) covers its own domain
    /// alone.
    fn covers<'r, 'd>(&self, guard: &GuardOf<'r, 'd, Self>) -> bool
    where
        Self::Reader<'d>: 'r;

    /// Notes that an object is new. To be called when it is made, before other threads can find it. It serves strategies
    /// that compare when an object was made with when readers read ([`interval`](super::interval)); an object that was not
    /// noted counts as older than all readers. The other strategies do nothing here.
    fn note_new<T: Retire>(object: &mut T) {
        let _ = object;
    }

    /// Has an object reclaimed when no thread uses it any more; any thread may be the one that reclaims it. Now and then
    /// this takes the reclamation a step on, which runs destructors of [this and other objects](super#destructors-and-locks).
    /// Outside of sections it waits while there is more garbage than the [`Limit`].
    ///
    /// # Safety
    ///
    /// - The object has been removed: a section that begins now does not find it, and one that has found it has protected
    ///   it ([`Guard::protect`]) with a guard that [covers](Reclaim::covers) this domain.
    /// - The object is retired once, and no thread writes to its [`Header`](super::Header).
    /// - [`Retire::reclaim`] may be called for it: unless that is overridden, the object came from
    ///   [`Box::into_raw`](alloc::boxed::Box::into_raw).
    unsafe fn retire<T: Retire>(&self, object: *mut T);

    /// Waits while there is more garbage than the limit. For threads that retire only inside of sections; to be called
    /// outside.
    fn throttle(&self) {}

    /// Sets how much garbage there may be before a thread that retires has to wait. Strategies with a bound of their own
    /// do nothing here.
    fn set_limit(&self, limit: Limit) {
        let _ = limit;
    }

    /// Reclaims what can be reclaimed without waiting.
    fn collect(&self);

    /// Waits until everything that was retired before is reclaimed.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own, where it may wait for ever, and in the destructor of a retired object. A
    /// thread that has a quiescent-state-based reader is in a section, unless the reader is [`offline`](Reader::offline).
    fn barrier(&self);

    /// How much garbage there is.
    fn garbage(&self) -> Garbage;
}

/// A strategy whose guards protect however many objects until they end; a guard of hazard pointers has [`SLOTS`](super::SLOTS).
///
/// # Safety
///
/// What [`protect`](Guard::protect) and [`protect_seen`](Sections::protect_seen) return is protected until the guard ends, in
/// whichever slot.
pub unsafe trait Sections: Reclaim {
    /// [`protect`](Guard::protect) for a caller that has just found `seen` in `from`, with an exchange that acquired. Returns
    /// a pointer that stood there then or later.
    #[inline(always)]
    fn protect_seen<T: Send + Sync + 'static>(
        guard: &GuardOf<'_, '_, Self>,
        seen: *mut T,
        from: &<Self::Machine as Machine>::Ptr<T>,
    ) -> *mut T {
        let _ = (guard, from);
        seen
    }
}

// SAFETY: whatever is read in a section is protected until its end (`GracePeriod`).
unsafe impl<D: GracePeriod> Sections for D {}

/// A strategy that can say when all sections are over; hazard pointers cannot.
///
/// # Safety
///
/// Whatever is read in a section is protected until its end, in however many slots, and a guard of any domain of the
/// type [covers](Reclaim::covers) this one.
pub unsafe trait GracePeriod: Reclaim {
    /// Waits until every section that runs now is over.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own, where it would wait for ever. A thread that has a quiescent-state-based
    /// reader is in a section, unless the reader is [`offline`](Reader::offline).
    fn synchronize(&self);

    /// Has `work` done when every section that runs now is over, by any thread. As [`retire`](Reclaim::retire) does, this
    /// may do other work that was deferred before, and may wait while there is too much of it. Allocates.
    ///
    /// ```
    /// use latchwork::reclaim::{GracePeriod, rcu::global};
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    ///
    /// static DONE: AtomicBool = AtomicBool::new(false);
    ///
    /// let guard = global().enter();
    /// global().defer(|| DONE.store(true, Relaxed));
    /// assert!(!DONE.load(Relaxed)); // not while this section lasts
    /// drop(guard);
    /// global().barrier();
    /// assert!(DONE.load(Relaxed));
    /// ```
    fn defer(&self, work: impl FnOnce() + Send + 'static) {
        // SAFETY: no other thread has the object, which is made by a box.
        unsafe { self.retire(Deferred::make(work)) };
    }

    /// Has `finish` called with the object when no thread uses it any more. The object needs no [`Header`](super::Header)
    /// and may be of any type: the header is allocated beside it, together with `finish`.
    ///
    /// ```
    /// use latchwork::reclaim::{GracePeriod, rcu::global};
    ///
    /// let route = Box::into_raw(Box::new([7, 8]));
    /// // SAFETY: no other thread has it, and it was made by a box.
    /// unsafe { global().retire_with(route, |route| drop(Box::from_raw(route))) };
    /// global().barrier();
    /// ```
    ///
    /// # Safety
    ///
    /// - The object has been removed, as [`retire`](Reclaim::retire) says.
    /// - `finish` may be called with the object, in any thread.
    unsafe fn retire_with<T: 'static>(&self, object: *mut T, finish: impl FnOnce(*mut T) + Send + 'static) {
        let object = Sent(object);
        self.defer(move || finish(object.pointer()));
    }
}

/// Work that is done when the object is reclaimed.
#[repr(C)]
struct Deferred<F> {
    header: Header,
    work: F,
}

// SAFETY: `repr(C)`, and the header comes first. `make` makes it as a box, which `reclaim` takes apart.
unsafe impl<F: FnOnce() + Send + 'static> Retire for Deferred<F> {
    unsafe fn reclaim(this: *mut Self) {
        // SAFETY: made by a box, and no other thread uses it, says the caller.
        let Deferred { work, .. } = *unsafe { Box::from_raw(this) };
        work();
    }
}

impl<F: FnOnce() + Send + 'static> Deferred<F> {
    fn make(work: F) -> *mut Self {
        Box::into_raw(Box::new(Deferred { header: Header::new(), work }))
    }
}

/// A pointer that its caller has promised may be used by any thread ([`GracePeriod::retire_with`]).
struct Sent<T>(*mut T);

// SAFETY: promised by the caller of `retire_with`.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    /// (A closure that named the field would capture the field alone.)
    fn pointer(self) -> *mut T {
        self.0
    }
}

/// A thread that reads. It stays in its thread.
pub trait Reader {
    /// The machine it runs on.
    type Machine: Machine;
    /// A section.
    type Guard<'r>: Guard<Machine = Self::Machine>
    where
        Self: 'r;

    /// Begins a section, which ends when the guard is dropped. Sections nest.
    fn enter(&self) -> Self::Guard<'_>;

    /// As [`enter`](Reader::enter) if that takes no call; `None` if it does. For a caller that has another way to go then:
    /// a call that is never made still has the compiler keep registers on the stack, which costs more than the section.
    #[inline(always)]
    fn try_enter(&self) -> Option<Self::Guard<'_>> {
        Some(self.enter())
    }

    /// Announces a quiescent state: this thread keeps no reference to anything that it has read. Quiescent-state-based
    /// strategies wait for that. While there is too much garbage, this waits. To be called between operations, every now
    /// and then.
    #[inline(always)]
    fn quiescent(&mut self) {}

    /// Does something that may take long; no thread waits for this one meanwhile.
    #[inline(always)]
    fn offline<R>(&mut self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// A section.
///
/// # Safety
///
/// What [`protect`](Guard::protect) returns is not reclaimed while it is protected, if it is retired in a domain that
/// the guard [covers](Reclaim::covers).
pub unsafe trait Guard {
    /// The machine it runs on.
    type Machine: Machine;

    /// Reads a pointer to an object that may be retired meanwhile, in a domain that the guard [covers](Reclaim::covers).
    /// The object is not reclaimed until the guard is dropped. With hazard pointers, which have
    /// [`SLOTS`](super::SLOTS) per guard, the object is protected until `slot` protects another one or is cleared; the
    /// other strategies protect everything that is read in the section. So a caller must not keep a reference to the
    /// object while it gives the guard to code that it does not trust. Ordering: acquire.
    ///
    /// The pointer may carry marks in its low bits, or (except for [`counted`](super::counted)) point into the middle of
    /// the object. It must be read from a place where the object is still linked at that time: a structure with marks
    /// looks at the marks of the object that the word belongs to.
    fn protect<T: Send + Sync + 'static>(
        &self,
        slot: usize,
        from: &<Self::Machine as Machine>::Ptr<T>,
    ) -> *mut T;
}

/// What `latchwork` and the docs say about a strategy.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The name that a user types.
    pub name: &'static str,
    /// One line: what it is.
    pub summary: &'static str,
    /// What a section with one pointer costs a reader, besides following the pointer.
    pub reader: &'static str,
    /// How many atomic read-modify-writes that is.
    pub atomics: u32,
    /// What the garbage is bounded by.
    pub bound: &'static str,
    /// Paper and section.
    pub source: &'static str,
}
