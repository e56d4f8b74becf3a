//! Reclamation: when may what was removed from a shared structure be freed, if readers take no locks?
//!
//! Readers read inside of *sections*; who removes an object *retires* it instead of freeing it, and it is
//! reclaimed when no reader can have it any more. One strategy, one file:
//!
//! | | readers pay | garbage is bounded by |
//! |---|---|---|
//! | [`qsbr`] | nothing per section; quiescent states every now and then | back-pressure, in quiescent states |
//! | [`rcu`], [`epoch`] | a few plain instructions per section | back-pressure, outside of sections |
//! | [`hazard`] | a store and a second look per pointer | a number of objects, whatever readers do |
//! | [`counted`] | two atomic instructions on a shared line per pointer | what readers hold |
//!
//! [`Reclaim`] is what a structure is written over, so that it has every strategy:
//!
//! ```
//! use latchwork::machine::{Machine, Native, Word};
//! use latchwork::reclaim::{Guard, GuardOf, Header, Reader, Reclaim, Retire, rcu::RcuDomain};
//! use std::ptr::null_mut;
//! use std::sync::atomic::Ordering::AcqRel;
//!
//! #[repr(C)]
//! struct Route {
//!     header: Header,
//!     gateway: u32,
//! }
//! // SAFETY: `repr(C)`, and the header comes first.
//! unsafe impl Retire for Route {}
//!
//! // Its fields are private: only what is below retires routes, and all of them in this domain.
//! struct Table<D: Reclaim> {
//!     domain: D,
//!     route: <D::Machine as Machine>::Ptr<Route>,
//! }
//!
//! impl<D: Reclaim> Table<D> {
//!     fn gateway(&self, guard: &GuardOf<'_, '_, D>) -> Option<u32> {
//!         assert!(self.domain.covers(guard), "a guard of another domain");
//!         let route = guard.protect(0, &self.route);
//!         // SAFETY: protected by a guard that covers the domain, in which a route is retired only after it was
//!         // removed from where it was read.
//!         unsafe { route.as_ref() }.map(|route| route.gateway)
//!     }
//!
//!     fn replace(&self, gateway: u32) {
//!         let new = Box::into_raw(Box::new(Route { header: Header::new(), gateway }));
//!         let old = self.route.swap(new, AcqRel);
//!         if !old.is_null() {
//!             // SAFETY: made by a box, removed by this exchange and by no other; readers protect it with guards
//!             // that cover the domain.
//!             unsafe { self.domain.retire(old) };
//!         }
//!     }
//! }
//!
//! let table = Table { domain: RcuDomain::<Native>::new_in(), route: Word::new(null_mut()) };
//! table.replace(7);
//! table.replace(8);
//! assert_eq!(table.gateway(&table.domain.reader().enter()), Some(8));
//! table.domain.barrier();
//! assert_eq!(table.domain.garbage().objects, 0);
//! # let last = table.route.load(std::sync::atomic::Ordering::Acquire);
//! # drop(unsafe { Box::from_raw(last) });
//! ```
//!
//! A guard protects what is retired in a domain that it [covers](Reclaim::covers), and nothing else. The type of a
//! guard ([`GuardOf`]) tells the strategies apart; within a strategy, [`covers`](Reclaim::covers) tells the domains
//! apart. A guard of another strategy is a type error:
//!
//! ```compile_fail,E0308
//! # use latchwork::machine::{Machine, Native, Word};
//! # use latchwork::reclaim::{Guard, GuardOf, Reader, Reclaim, epoch::EpochDomain, rcu::RcuDomain};
//! # struct Table<D: Reclaim> {
//! #     domain: D,
//! #     route: <D::Machine as Machine>::Ptr<u32>,
//! # }
//! # impl<D: Reclaim> Table<D> {
//! #     fn gateway(&self, guard: &GuardOf<'_, '_, D>) -> *mut u32 {
//! #         assert!(self.domain.covers(guard), "a guard of another domain");
//! #         guard.protect(0, &self.route)
//! #     }
//! # }
//! # let table = Table { domain: RcuDomain::<Native>::new_in(), route: Word::new(std::ptr::null_mut()) };
//! let other = EpochDomain::<Native>::new_in();
//! table.gateway(&other.reader().enter());
//! ```
//!
//! # Destructors and locks
//!
//! Retiring an object may run the destructors of *other* objects, which any thread may have retired. The thread that
//! fills a batch reclaims it, inside of [`retire`](Reclaim::retire). So do [`collect`](Reclaim::collect),
//! [`throttle`](Reclaim::throttle), [`barrier`](Reclaim::barrier), a quiescent state, [`Rcu::replace`],
//! [`Rcu::update`], and every update of a map. A thread that holds a lock when it calls one of these waits for itself
//! if such a destructor takes the same lock. Therefore:
//!
//! - call them after the lock has been released: remove the object under the lock, and retire it then, as
//!   [`RcuMap`](crate::map::RcuMap) does with the locks of its own;
//! - or let no destructor of a retired object take a lock that is held around such a call;
//! - or have one thread reclaim for all ([`Domain::serve`](domain::Domain::serve)). That makes it rare that others
//!   reclaim, but does not exclude it.
//!
//! Destructors may retire. They must not wait for reclamation: [`barrier`](Reclaim::barrier) panics there. A destructor
//! that panics does so in the thread that reclaims; its object counts as reclaimed, and the others stay retired.
//!
//! [`Rcu`] is the safe layer over it: a value that many read and few replace.
//!
//! Threads need not be registered: a thread gets its [`Record`](crate::machine::Record) when it first
//! reads, and gives it back when it exits. After a fork, the child has one thread, which reads what it
//! read before.
//!
//! This part of the library uses `alloc`, for the objects that are retired: they are boxes unless they
//! say otherwise ([`Retire::reclaim`]). Retiring itself allocates nothing,
//! but for the lists of a domain, once.

use crate::machine::Machine;
pub use crate::machine::record::Records;

mod backlog;
mod cell;
pub mod counted;
pub mod domain;
pub mod epoch;
mod gate;
pub mod grace;
pub mod hazard;
mod header;
mod list;
mod pace;
pub mod qsbr;
pub mod rcu;
pub mod section;
mod sieve;
pub mod tree;
mod watch;

#[cfg(test)]
mod corners;
#[cfg(test)]
mod tests;

pub use cell::{Rcu, Ref};
pub use domain::Cookie;
pub use header::{Header, Retire};
pub use pace::Pace;

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
    /// reclamation a step on, which runs destructors of [other objects](self#destructors-and-locks); outside of
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

/// Objects that one guard can protect at the same time under every strategy.
pub const SLOTS: usize = 4;

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

/// Every strategy, by what it says about itself: those that need the least of readers first.
pub const STRATEGIES: [Info; 5] = {
    use crate::machine::Native;
    [
        <qsbr::QsbrDomain<Native> as Reclaim>::INFO,
        <rcu::RcuDomain<Native> as Reclaim>::INFO,
        <epoch::EpochDomain<Native> as Reclaim>::INFO,
        <hazard::HazardDomain<Native> as Reclaim>::INFO,
        <counted::CountedDomain<Native> as Reclaim>::INFO,
    ]
};

/// Objects that were retired and are not reclaimed yet.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// How many.
    pub objects: u64,
    /// How large they are, each rounded up to 16 bytes; without what they own.
    pub bytes: u64,
    /// For how long the oldest has been waiting (at least; of those that came in together, the first's).
    pub oldest_nanos: u64,
    /// How often a thread that retires has gone on although there was more than the [`Limit`], since the domain
    /// began: a reader has stayed in its section for longer than such a thread waits
    /// ([`Domain::set_throttle_nanos`](domain::Domain::set_throttle_nanos)).
    pub overruns: u64,
}

/// How much garbage there may be before a thread that retires has to wait. The wait has a bound: where a reader never
/// leaves its section, the garbage grows beyond the limit ([`Garbage::overruns`]).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Objects.
    pub objects: u64,
    /// Bytes, as [`Garbage::bytes`] counts them.
    pub bytes: u64,
}

impl Default for Limit {
    /// 100 000 objects, 64 MiB.
    fn default() -> Self {
        Limit { objects: 100_000, bytes: 64 << 20 }
    }
}

/// A grace period that does not end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The thread that is in the way: the number by which the operating system knows it.
    pub thread: u32,
    /// For how long the grace period has been open.
    pub nanos: u64,
}
