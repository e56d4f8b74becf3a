//! Every kind of table, by name.

use super::bucket_lock::{BucketLocked, PerReference, Readers, Reference, Section, SectionWide};
use super::michael::Michael;
use super::type_stable::TypeStable;
use super::{Table, locked};
use crate::locks::mutex::RawMutex;
use crate::locks::rwlock::RawRwLock;
use crate::machine::{Machine, Records};
use crate::reclaim::Reclaim;
use crate::reclaim::counted::CountedDomain;
use crate::reclaim::epoch::EpochDomain;
use crate::reclaim::hazard::HazardDomain;
use crate::reclaim::qsbr::QsbrDomain;
use crate::reclaim::rcu::RcuDomain;
use crate::registry;

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

/// Called with each kind of table.
pub trait Visitor<M: Machine> {
    /// One of them.
    fn table<T: Table<Machine = M>>(&mut self);
}

/// Shows every kind of table to `visitor`. Those under a lock are called as the lock is: a reader-writer
/// lock is one for the whole table, a mutex one of many, one in each bucket.
pub fn visit<M: Records>(visitor: &mut impl Visitor<M>) {
    struct Locks<'a, V>(&'a mut V);
    impl<M: Records, V: Visitor<M>> registry::Visitor<M> for Locks<'_, V> {
        fn mutex<L: RawMutex<Machine = M>>(&mut self) {
            self.0.table::<locked::Locked<locked::PerBucket<L>>>();
        }
        fn rwlock<R: RawRwLock<Machine = M>>(&mut self) {
            self.0.table::<locked::Locked<locked::Global<R>>>();
        }
    }
    visitor.table::<locked::Locked<locked::Ideal<M>>>();
    both::<M, QsbrDomain<M>, Section>(visitor);
    both::<M, RcuDomain<M>, Section>(visitor);
    both::<M, EpochDomain<M>, Section>(visitor);
    both::<M, HazardDomain<M>, Reference>(visitor);
    both::<M, HazardDomain<M, true>, Reference>(visitor);
    both::<M, CountedDomain<M>, Reference>(visitor);
    visitor.table::<TypeStable<M>>();
    registry::visit(&mut Locks(visitor));
}

impl<M: Records, const FULL_FENCE: bool> PerReference for HazardDomain<M, FULL_FENCE> {
    const LOCKED: &'static str = if FULL_FENCE { "hpbr-l-fence" } else { "hpbr-l" };
    const LOCK_FREE: &'static str = if FULL_FENCE { "hpbr-nbs-fence" } else { "hpbr-nbs" };
}

impl<M: Records> PerReference for CountedDomain<M> {
    const LOCKED: &'static str = "counted-l";
    const LOCK_FREE: &'static str = "counted-nbs";
}

/// Both tables over a strategy.
fn both<M: Records, D: Reclaim<Machine = M>, R: Readers<D>>(visitor: &mut impl Visitor<M>) {
    visitor.table::<BucketLocked<D, R>>();
    visitor.table::<Michael<D, R>>();
}
