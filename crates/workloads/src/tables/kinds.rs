//! Every kind of table, by name.

use super::bucket_lock::BucketLocked;
use super::locked::{Global, Ideal, Locked, PerBucket};
use super::michael::Michael;
use super::readers::{Readers, Reference, Section};
use super::table::Table;
use super::type_stable::TypeStable;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Machine, Records};
use latchwork::reclaim::Reclaim;
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::registry;

/// Called with each kind of table.
pub trait Visitor<M: Machine> {
    /// Called with one kind.
    fn table<T: Table<Machine = M>>(&mut self);
}

/// Shows every kind of table to `visitor`. A table under a lock has the name of the lock: a reader-writer lock is one for
/// the whole table, a mutex is one of many, one in each bucket.
pub fn visit<M: Records>(visitor: &mut impl Visitor<M>) {
    struct Locks<'a, V>(&'a mut V);
    impl<M: Records, V: Visitor<M>> registry::Visitor<M> for Locks<'_, V> {
        fn mutex<L: RawMutex<Machine = M>>(&mut self) {
            self.0.table::<Locked<PerBucket<L>>>();
        }
        fn rwlock<R: RawRwLock<Machine = M>>(&mut self) {
            self.0.table::<Locked<Global<R>>>();
        }
    }
    visitor.table::<Locked<Ideal<M>>>();
    both::<M, QsbrDomain<M>, Section>(visitor);
    both::<M, RcuDomain<M>, Section>(visitor);
    both::<M, EpochDomain<M>, Section>(visitor);
    both::<M, HazardDomain<M>, Reference>(visitor);
    both::<M, HazardDomain<M, true>, Reference>(visitor);
    both::<M, CountedDomain<M>, Reference>(visitor);
    visitor.table::<TypeStable<M>>();
    registry::visit(&mut Locks(visitor));
}

/// Shows both tables over a strategy.
fn both<M: Records, D: Reclaim<Machine = M>, R: Readers<D>>(visitor: &mut impl Visitor<M>) {
    visitor.table::<BucketLocked<D, R>>();
    visitor.table::<Michael<D, R>>();
}
