//! What a strategy of reclamation is ([`Reclaim`]), and what its readers have ([`Reader`], [`Guard`]).

use super::garbage::{Garbage, Limit};
use super::header::Retire;
use crate::machine::Machine;
use crate::machine::record::Records;

/// The guard of a domain of type `D`.
pub type GuardOf<'r, 'd, D> = <<D as Reclaim>::Reader<'d> as Reader>::Guard<'r>;

/// A strategy: a domain of objects that are retired together.
///
/// A structure holds a domain or refers to one; a thread that uses it makes a [`Reader`] (once), and reads
/// while it has a [`Guard`] (one per operation).
///
/// # Safety
///
/// - An object that was retired is reclaimed once at most, and not while a guard protects it that
///   [covers](Reclaim::covers) the domain.
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

    /// The calling thread, as one that reads.
    fn reader(&self) -> Self::Reader<'_>;

    /// Whether what this guard protects is not reclaimed by this domain. True of the guards of its own
    /// [`reader`](Reclaim::reader). Where the readers are the process's, as with RCU, epochs and hazard pointers, it is
    /// true of every guard of the type, and costs nothing to ask. A [`counted`] guard covers its own domain alone.
    fn covers<'r, 'd>(&self, guard: &GuardOf<'r, 'd, Self>) -> bool
    where
        Self::Reader<'d>: 'r;

    /// Reclaims an object when nobody uses it any more, in whatever thread. Now and then this takes the
    /// reclamation a step on, which runs destructors of [other objects](super#destructors-and-locks); outside of
    /// sections it waits while there is more garbage than the [`Limit`].
    ///
    /// # Safety
    ///
    /// - The object has been removed: a section that begins now does not find it, and one that has
    ///   found it has protected it ([`Guard::protect`]) with a guard that [covers](Reclaim::covers) this domain.
    /// - It is retired once, and nobody writes to its [`Header`].
    /// - [`Retire::reclaim`] may be called for it: it came from [`Box::into_raw`](alloc::boxed::Box::into_raw), if
    ///   that is not overridden.
    unsafe fn retire<T: Retire>(&self, object: *mut T);

    /// Waits while there is more garbage than the limit: for threads that retire only inside of sections.
    /// To be called outside.
    fn throttle(&self) {}

    /// How much garbage there may be before who retires has to wait. Strategies with a bound of their own
    /// do not need it.
    fn set_limit(&self, limit: Limit) {
        let _ = limit;
    }

    /// Reclaims what can be reclaimed without waiting.
    fn collect(&self);

    /// Waits until everything that was retired before is reclaimed.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own, where it may wait for ever, and in the destructor of a retired
    /// object. A thread that has a quiescent-state-based reader is in a section, unless it is
    /// [`offline`](Reader::offline).
    fn barrier(&self);

    /// How much garbage there is.
    fn garbage(&self) -> Garbage;
}

/// A strategy that can tell when all sections are over; hazard pointers cannot.
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
    /// Inside of a section of the caller's own, where it would wait for ever. A thread that has a
    /// quiescent-state-based reader is in one, unless it is [`offline`](Reader::offline).
    fn synchronize(&self);
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

    /// As [`enter`](Reader::enter), if that takes no call; `None`: it does. For who has another way to go then:
    /// a call, even if it is never made, has the caller keep its registers on the stack, which costs more than the
    /// section.
    #[inline(always)]
    fn try_enter(&self) -> Option<Self::Guard<'_>> {
        Some(self.enter())
    }

    /// Says that this thread has nothing of what it has read; that is what quiescent-state-based strategies
    /// wait for. Where there is too much garbage, this waits until there is less. To be called between
    /// operations, every now and then.
    #[inline(always)]
    fn quiescent(&mut self) {}

    /// Does something that may take long, during which nobody waits for this thread.
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

    /// Reads a pointer to an object that may be retired meanwhile, in a domain that the guard
    /// [covers](Reclaim::covers); it is not reclaimed until the guard is
    /// dropped, or until `slot` protects another or is cleared (for hazard pointers, which have [`SLOTS`] per guard; the
    /// others protect everything that is read in the section). So no reference to it may be kept while code that is
    /// not trusted has the guard. Ordering: acquire.
    ///
    /// The pointer may carry marks in its low bits, or (except for [`counted`]) point into the middle of the
    /// object. It must be
    /// read from where the object is still linked when it is read: a structure with marks looks at those
    /// of the object that the word belongs to.
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
    /// What a section with one pointer costs a reader, besides following it.
    pub reader: &'static str,
    /// Of that, atomic read-modify-writes.
    pub atomics: u32,
    /// What the garbage is bounded by.
    pub bound: &'static str,
    /// Paper and section.
    pub source: &'static str,
}
