//! How readers get from one element of a chain to the next, while others remove elements: in a section that protects
//! whatever they meet ([`Section`]), or with one protected reference after the other ([`Reference`]).
//!
//! The link of an element that has been removed may carry a mark, its lowest bit. Readers that protect single
//! references need it: without it, a reader could step from a removed element to one that has been reclaimed.

use super::lock_place::{Beside, BucketLock, InHead};
use super::node::{Node, Step, is_marked, look, step};
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
/// With a guard that covers a domain of type `D`, `look` looks at no element that has been reclaimed.
pub unsafe trait Readers<D: Reclaim>: Send + Sync + 'static {
    /// The description of the table with a lock in each bucket.
    const LOCKED: Info;
    /// The description of the table without locks ([`michael`](super::michael)).
    const LOCK_FREE: Info;
    /// The lock of a bucket, for updaters of the table with a lock in each bucket.
    type Lock: BucketLock<D::Machine>;
    /// Whether an updater has to mark the link of an element that it removes.
    const MARKS: bool;
    /// Whether the domain says how many elements wait.
    const COUNTS: bool;
    /// The value of `key`, in a table with a lock in each bucket. `None`: the reader has met an element that an updater is
    /// taking out of the chain.
    ///
    /// # Safety
    ///
    /// The chain is a table's: its links lead to nodes. When a node is removed, its link is marked first, if
    /// [`MARKS`](Readers::MARKS); the node is retired only then, in a domain of type `D` that the guard covers.
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed>;
}

/// A strategy under which a section protects everything that is read in it, from one link to the next.
///
/// # Safety
///
/// A guard protects every object that is read under it, in however many slots. (That is not true of hazard pointers.)
pub unsafe trait SectionWide: Reclaim {
    /// What the table with a lock in each bucket is called.
    const LOCKED: &'static str;
    /// What the table without locks is called.
    const LOCK_FREE: &'static str;
    /// Whether `garbage` says how many objects wait. Other libraries do not say.
    const COUNTS: bool = true;
    /// Where the lock of a bucket lies.
    type Lock: BucketLock<Self::Machine>;
}

/// A strategy under which each reference is protected by itself.
pub trait PerReference: Reclaim {
    /// What the table with a lock in each bucket is called.
    const LOCKED: &'static str;
    /// What the table without locks is called.
    const LOCK_FREE: &'static str;
    /// Whether `garbage` says how many objects wait. Other libraries do not say.
    const COUNTS: bool = true;
}

const fn info(name: &'static str, summary: &'static str, source: &'static str) -> Info {
    Info { name, summary, source, concurrent: true, blocking: true }
}

const LOCKED: &str = "McKenney, Hart and Walpole 2005, section 4";
const LOCK_FREE: &str = "Michael 2002; McKenney, Hart and Walpole 2005, section 4";

/// Readers in a section that protects everything they meet.
pub struct Section;

// SAFETY: a section protects everything that was in a chain when the section began (`SectionWide`).
unsafe impl<D: SectionWide> Readers<D> for Section {
    const LOCKED: Info = info(D::LOCKED, "updaters lock the bucket; readers are in a section", LOCKED);
    const LOCK_FREE: Info =
        info(D::LOCK_FREE, "Michael's lock-free lists; every thread is in a section", LOCK_FREE);
    type Lock = D::Lock;
    const MARKS: bool = false;
    const COUNTS: bool = D::COUNTS;

    #[inline(always)]
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed> {
        // (A) pairs with the stores of links (`lock_place`), here and below.
        let first = D::Lock::first(guard.protect(0, head));
        // SAFETY: links lead to nodes, says the caller, and carry no marks, because `MARKS` is false.
        unsafe { look::<D::Machine>(first, key, mask, |link| guard.protect(0, link)) }.map(Some)
    }
}

/// Readers that protect one reference after the other.
pub struct Reference;

// SAFETY: protecting a reference reads the link again. If the link still leads there and carries no mark, the element that
// holds the link had not been removed, so neither had the one that it leads to.
unsafe impl<D: PerReference> Readers<D> for Reference {
    const LOCKED: Info =
        info(D::LOCKED, "updaters lock the bucket; readers protect each element they look at", LOCKED);
    const LOCK_FREE: Info = info(
        D::LOCK_FREE,
        "Michael's lock-free lists; every thread protects each element that it looks at",
        LOCK_FREE,
    );
    type Lock = Beside<D::Machine>;
    const MARKS: bool = true;
    const COUNTS: bool = D::COUNTS;

    #[inline(always)]
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed> {
        // (A), (B) pair with the stores in `insert` and `remove`. SAFETY: links lead to nodes, which are marked before they
        // are retired, because `MARKS` is true; the guard covers the domain, says the caller.
        unsafe { look_between_marks(guard, head, key, mask, false) }
    }
}

// SAFETY: a section of RCU protects everything that is read in it.
unsafe impl<M: Records> SectionWide for RcuDomain<M> {
    const LOCKED: &'static str = "rcu-l";
    const LOCK_FREE: &'static str = "rcu-nbs";
    type Lock = InHead;
}

// SAFETY: nothing that an online thread has read is reclaimed before its next quiescent state.
unsafe impl<M: Records> SectionWide for QsbrDomain<M> {
    const LOCKED: &'static str = "qsbr-l";
    const LOCK_FREE: &'static str = "qsbr-nbs";
    type Lock = Beside<M>;
}

// SAFETY: a section of epochs protects everything that is read in it.
unsafe impl<M: Records> SectionWide for EpochDomain<M> {
    const LOCKED: &'static str = "epoch-l";
    const LOCK_FREE: &'static str = "epoch-nbs";
    type Lock = Beside<M>;
}

impl<M: Records, const FULL_FENCE: bool> PerReference for HazardDomain<M, FULL_FENCE> {
    const LOCKED: &'static str = if FULL_FENCE { "hpbr-l-fence" } else { "hpbr-l" };
    const LOCK_FREE: &'static str = if FULL_FENCE { "hpbr-nbs-fence" } else { "hpbr-nbs" };
}

impl<M: Records> PerReference for CountedDomain<M> {
    const LOCKED: &'static str = "counted-l";
    const LOCK_FREE: &'static str = "counted-nbs";
}

/// Looks `key` up in a chain whose links may carry marks, one protected element after the other. `None`: an element on the
/// way is being removed. With `ask`, also if the element with the key itself is.
///
/// # Safety
///
/// The chain is a table's: its links lead to nodes. When a node is removed, its link is marked first, and the node is
/// retired only then, in a domain that the guard covers.
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
        // Pairs with the threads that insert and remove: the element that holds `link` was in the chain, and so was the
        // one that it leads to.
        let node = guard.protect(slot, link);
        if is_marked(node) {
            return Ok(None);
        }
        // SAFETY: the guard covers the domain, and protects the node. The link carried no mark after that, so the node was
        // in the chain.
        let Some(fields) = (unsafe { node.as_ref() }) else { return Ok(Some(None)) };
        if let Step::End(hit) = step(fields.key.load(Relaxed), key, mask)? {
            // An element that has been removed may still be in the chain.
            if ask && hit && is_marked(fields.next.load(Acquire)) {
                return Ok(None);
            }
            return Ok(Some(hit.then(|| fields.value.load(Relaxed))));
        }
        // The other slot still protects the element that `link` is in.
        (link, slot) = (&fields.next, slot ^ 1);
    }
}
