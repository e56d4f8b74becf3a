//! How readers get from one element of a chain to the next, while others remove elements: in a section that protects
//! whatever they meet ([`Section`]), or with one protected reference after the other ([`Reference`]).
//!
//! The link of an element that has been removed may carry a mark, its lowest bit. Readers that protect single
//! references need it: without it, a reader could step from a removed element to one that has been reclaimed.

use super::node::{Node, Step, look, step};
use super::table::{Info, Reclaimed};
use latchwork::machine::{Machine, Records, Word};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{Guard, Reclaim};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// How readers get from one element to the next.
///
/// # Safety
///
/// With a domain of type `D`, an element that `look` looks at has not been reclaimed.
pub unsafe trait Readers<D: Reclaim>: Send + Sync + 'static {
    /// What is said about the table with a lock in each bucket.
    const LOCKED: Info;
    /// What is said about the table without locks ([`michael`](super::michael)).
    const LOCK_FREE: Info;
    /// Whether the link of an element that is removed has to say so.
    const MARKS: bool;
    /// The value of `key`, with a lock in each bucket. `None`: an updater is about to take an element on the way out
    /// of the chain.
    ///
    /// # Safety
    ///
    /// The chain is a table's: its links lead to nodes, which are marked when they are removed if
    /// [`MARKS`](Readers::MARKS) says so, and retired only then, in a domain of type `D` that the guard covers.
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed>;
}

/// A strategy under which a section protects all that is read in it, from one link to the next.
///
/// # Safety
///
/// What the name says; hazard pointers are none.
pub unsafe trait SectionWide: Reclaim {
    /// What the table with a lock in each bucket is called.
    const LOCKED: &'static str;
    /// What the table without locks is called.
    const LOCK_FREE: &'static str;
}

/// A strategy under which each reference is protected by itself.
pub trait PerReference: Reclaim {
    /// What the table with a lock in each bucket is called.
    const LOCKED: &'static str;
    /// What the table without locks is called.
    const LOCK_FREE: &'static str;
}

const fn info(name: &'static str, summary: &'static str, source: &'static str) -> Info {
    Info { name, summary, source, concurrent: true, blocking: true }
}

const LOCKED: &str = "McKenney, Hart and Walpole 2005, section 4";
const LOCK_FREE: &str = "Michael 2002; McKenney, Hart and Walpole 2005, section 4";

/// Readers in a section that protects whatever they meet.
pub struct Section;

// SAFETY: a section protects all that was in a chain when it began.
unsafe impl<D: SectionWide> Readers<D> for Section {
    const LOCKED: Info = info(D::LOCKED, "updaters lock the bucket; readers are in a section", LOCKED);
    const LOCK_FREE: Info =
        info(D::LOCK_FREE, "Michael's lock-free lists; everybody is in a section", LOCK_FREE);
    const MARKS: bool = false;

    #[inline(always)]
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed> {
        // (A) pairs with the store in `insert`. SAFETY: `MARKS` is false; the caller says that links lead to nodes.
        unsafe { look::<D::Machine>(head, key, mask, |link| guard.protect(0, link)) }.map(Some)
    }
}

/// Readers that protect one reference after the other.
pub struct Reference;

// SAFETY: protecting a reference reads the link again. If it still leads there and carries no mark, the
// element that it is in had not been removed, so neither had the one that it leads to.
unsafe impl<D: PerReference> Readers<D> for Reference {
    const LOCKED: Info =
        info(D::LOCKED, "updaters lock the bucket; readers protect each element they look at", LOCKED);
    const LOCK_FREE: Info = info(
        D::LOCK_FREE,
        "Michael's lock-free lists; everybody protects each element they look at",
        LOCK_FREE,
    );
    const MARKS: bool = true;

    #[inline(always)]
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed> {
        // (A), (B) pair with the stores in `insert` and `remove`. SAFETY: as the caller says; `MARKS` is true.
        unsafe { look_between_marks(guard, head, key, mask, false) }
    }
}

// SAFETY: it says so.
unsafe impl<M: Records> SectionWide for RcuDomain<M> {
    const LOCKED: &'static str = "rcu-l";
    const LOCK_FREE: &'static str = "rcu-nbs";
}

// SAFETY: it says so.
unsafe impl<M: Records> SectionWide for QsbrDomain<M> {
    const LOCKED: &'static str = "qsbr-l";
    const LOCK_FREE: &'static str = "qsbr-nbs";
}

// SAFETY: it says so.
unsafe impl<M: Records> SectionWide for EpochDomain<M> {
    const LOCKED: &'static str = "epoch-l";
    const LOCK_FREE: &'static str = "epoch-nbs";
}

impl<M: Records, const FULL_FENCE: bool> PerReference for HazardDomain<M, FULL_FENCE> {
    const LOCKED: &'static str = if FULL_FENCE { "hpbr-l-fence" } else { "hpbr-l" };
    const LOCK_FREE: &'static str = if FULL_FENCE { "hpbr-nbs-fence" } else { "hpbr-nbs" };
}

impl<M: Records> PerReference for CountedDomain<M> {
    const LOCKED: &'static str = "counted-l";
    const LOCK_FREE: &'static str = "counted-nbs";
}

/// Looks `key` up in a chain whose links carry marks, one protected element after the other. `None`: an element on
/// the way is being removed. Whether the one that is looked for is, is asked with `ask`.
///
/// # Safety
///
/// The chain is a table's: its links lead to nodes, which are marked when they are removed, and retired only then, in
/// a domain that the guard covers.
#[inline(always)]
pub unsafe fn look_between_marks<M: Machine>(
    guard: &impl Guard<Machine = M>,
    head: &M::Ptr<Node<M>>,
    key: u64,
    mask: u64,
    ask: bool,
) -> Result<Option<Option<u64>>, Reclaimed> {
    let (mut link, mut slot) = (head, 0);
    loop {
        // Pairs with those who insert and remove: what `link` is in was in the chain, and so is what it leads to.
        let node = guard.protect(slot, link);
        if is_marked(node) {
            return Ok(None);
        }
        // SAFETY: protected by a guard that covers the domain. The link carried no mark after that, so the node was in
        // the chain.
        let Some(fields) = (unsafe { node.as_ref() }) else { return Ok(Some(None)) };
        if let Step::End(hit) = step(fields.key.load(Relaxed), key, mask)? {
            // One that has been removed may still be in the chain.
            if ask && hit && is_marked(fields.next.load(Acquire)) {
                return Ok(None);
            }
            return Ok(Some(hit.then(|| fields.value.load(Relaxed))));
        }
        // The other slot still protects the element that `link` is in.
        (link, slot) = (&fields.next, slot ^ 1);
    }
}

/// A link with the lowest bit set: the node that it is in has been removed.
#[inline(always)]
pub fn marked<T>(link: *mut T) -> *mut T {
    link.map_addr(|address| address | 1)
}

/// Whether it is set.
#[inline(always)]
pub fn is_marked<T>(link: *mut T) -> bool {
    link.addr() & 1 != 0
}

/// Without it.
#[inline(always)]
pub fn unmarked<T>(link: *mut T) -> *mut T {
    link.map_addr(|address| address & !1)
}
