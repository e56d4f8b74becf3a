//! Reclamation: when may an object be freed that was removed from a shared structure, if readers take no locks?
//!
//! Readers read inside of *sections*. A thread that removes an object *retires* it instead of freeing it. The object is
//! reclaimed when no reader can have a reference to it any more. Each strategy is one file:
//!
//! | | readers pay | garbage is bounded by |
//! |---|---|---|
//! | [`qsbr`] | nothing per section; a quiescent state every now and then | back-pressure, in quiescent states |
//! | [`rcu`], [`epoch`] | a few plain instructions per section | back-pressure, outside of sections |
//! | [`interval`] | the same, and a load and a comparison per pointer | one and a half times what there was when a reader stopped, and three batches per retiring thread |
//! | [`hazard`] | a store and a second look per pointer | a number of objects, whatever readers do |
//! | [`counted`] | two atomic instructions on a shared line per pointer | what readers hold |
//!
//! A structure is written with [typed pointers](typed), which are safe:
//!
//! ```
//! use latchwork::reclaim::rcu::global;
//! use latchwork::reclaim::typed::{Atomic, Owned};
//!
//! let gateway = Atomic::<u32>::new(7);
//! let guard = global().enter();
//! let seen = gateway.load(&guard);
//! gateway.store(Some(Owned::new(8)), global()); // retires the old one
//! assert_eq!(seen.as_ref(), Some(&7)); // which is not reclaimed before the section is over
//! ```
//!
//! Or it is written over [`Reclaim`], with pointers and headers of its own, and then works with every strategy:
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
//! Retiring an object may run the destructors of *other* objects, which any thread may have retired: the thread that
//! fills a batch reclaims it inside of [`retire`](Reclaim::retire). So do [`collect`](Reclaim::collect),
//! [`throttle`](Reclaim::throttle), [`barrier`](Reclaim::barrier), a quiescent state, [`Rcu::replace`],
//! [`Rcu::update`], and every update of a map. A thread that holds a lock when it calls one of these waits for itself
//! if such a destructor takes the same lock. Therefore:
//!
//! - call them after the lock has been released: remove the object under the lock, and retire it then, as
//!   [`RcuMap`](crate::map::RcuMap) does with the locks of its own;
//! - or let no destructor of a retired object take a lock that is held around such a call;
//! - or have one thread reclaim for all ([`Domain::serve`](domain::Domain::serve)). Other threads then reclaim rarely,
//!   but may still do so.
//!
//! Destructors may retire, and wait for grace periods ([`synchronize`](domain::Domain::synchronize)). They must not wait for
//! reclamation: [`barrier`](Reclaim::barrier) panics there. A destructor
//! that panics does so in the thread that reclaims. Its object counts as reclaimed, and the others stay retired.
//! A destructor must not fork a child that goes on to retire or reclaim: the child would take the list, of which its own thread
//! is reclaiming the objects, for free.
//!
//! [`Rcu`] is a safe layer over all this: a value that many threads read and few replace.
//!
//! A program does not register its threads. A thread gets its [`Record`](crate::machine::Record) when it first reads, and
//! gives it back when it exits, unless it is in a section then. The one thread of a forked child is in the sections in which it
//! was before the fork.
//!
//! This part of the library uses `alloc`, for the objects that are retired: they are boxes unless their type says
//! otherwise ([`Retire::reclaim`]). Retiring allocates nothing but the lists of a domain, once.
//!
//! # The files
//!
//! Each line needs only the lines below it.
//!
//! | files | |
//! |---|---|
//! | `cell`, `with_serde` | [`Rcu`], the safe cell; it and `RcuOption` with the crate `serde` |
//! | [`typed`], `node` | pointers with types: safe structures over any strategy with sections |
//! | [`rcu`], [`qsbr`], [`epoch`], [`interval`], [`hazard`], [`counted`] | the strategies |
//! | [`section`] | the reading side of RCU and epochs |
//! | [`domain`]; `sieve` | the writing side of RCU and epochs; of hazard pointers and counts |
//! | [`grace`], `tree` | grace periods of RCU, and how readers of QSBR vouch for each other |
//! | `ordered` | objects that remember when they were retired, for C++'s `rcu_barrier` in a section |
//! | `backlog`, `list`, `gate`, `due` | the garbage: a list for each thread, the lock of the thread that collects, and when a thread reclaims |
//! | [`stall`], `pointer` | the function that is told of stalls; hazard pointers that belong to no thread |
//! | `strategy`, `header`, `garbage`, `pace`, `watch` | what a strategy is, what an object carries, and what waiting takes |

mod backlog;
mod cell;
pub mod counted;
pub mod domain;
#[doc(hidden)]
pub mod due;
pub mod epoch;
mod garbage;
mod gate;
pub mod grace;
pub mod hazard;
mod header;
pub mod interval;
mod list;
mod node;
mod ordered;
mod pace;
mod pointer;
pub mod qsbr;
pub mod rcu;
pub mod section;
mod sieve;
pub mod stall;
mod strategies;
mod strategy;
mod tree;
pub mod typed;
mod watch;
#[cfg(feature = "serde")]
mod with_serde;

/// A shared cell takes and gives values of one type, as a shared pointer does:
///
/// ```compile_fail,E0308
/// # use latchwork::reclaim::Rcu;
/// fn of_longer(cell: &Rcu<for<'a> fn(&'a u8)>) -> &Rcu<fn(&'static u8)> {
///     cell
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use latchwork::reclaim::typed::Atomic;
/// fn of_longer(place: &Atomic<for<'a> fn(&'a u8)>) -> &Atomic<fn(&'static u8)> {
///     place
/// }
/// ```
#[cfg(doctest)]
struct Invariant;

#[cfg(test)]
mod corners;
#[cfg(test)]
mod forks;
#[cfg(test)]
mod intervals;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod structures;
#[cfg(test)]
mod tests;

pub use crate::machine::record::{Records, SLOTS, Stall};
pub use cell::{Rcu, RcuArc, RcuOption, Ref};
pub use domain::{AtLimit, Cookie};
pub use garbage::{Garbage, Limit};
pub use header::{Header, ReclaimFn, Retire};
pub use pace::Pace;
pub use strategies::STRATEGIES;
pub use strategy::{GracePeriod, Guard, GuardOf, Info, Reader, Reclaim, Sections};
