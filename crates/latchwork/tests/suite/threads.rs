//! Which types may go to another thread, and which may be shared. A section belongs to its thread, so guards, and whatever
//! holds one, do neither.

use latchwork::machine::Native;
use latchwork::map::{self, set, *};
use latchwork::reclaim::counted::{CountedDomain, CountedGuard, CountedReader};
use latchwork::reclaim::domain::Domain;
use latchwork::reclaim::epoch::{Epoch, EpochGuard};
use latchwork::reclaim::hazard::{HazardDomain, HazardGuard, HazardPointer, HazardReader};
use latchwork::reclaim::interval::{IntervalDomain, IntervalGuard, IntervalReader};
use latchwork::reclaim::qsbr::{Qsbr, QsbrGuard, QsbrReader};
use latchwork::reclaim::rcu::{General, RcuDomain, RcuGuard};
use latchwork::reclaim::section::SectionReader;
use latchwork::reclaim::typed::{Atomic, Owned, Removed, Shared, Unchanged};
use latchwork::reclaim::{self, Cookie, Header, Rcu, RcuOption};
use std::cell::Cell;
use std::hash::RandomState;
use std::marker::PhantomData;

/// Says which of the traits a type has: the constants of its own, where there are some, come before those of the trait.
struct Of<T>(PhantomData<T>);

trait Neither {
    const SEND: bool = false;
    const SYNC: bool = false;
}
impl<T> Neither for Of<T> {}
impl<T: Send> Of<T> {
    const SEND: bool = true;
}
impl<T: Sync> Of<T> {
    const SYNC: bool = true;
}

/// Checks `Send` and `Sync` of types.
macro_rules! check {
    ($($send:literal $sync:literal: $($type:ty),*;)*) => {$($(
        assert_eq!((Of::<$type>::SEND, Of::<$type>::SYNC), ($send, $sync), stringify!($type));
    )*)*};
}

/// `Send`, and not `Sync`: as a hasher, or as an element of what belongs to one thread.
type OneAtATime = Cell<u8>;

type D = RcuDomain<Native>;
type S = RandomState;
type Slots<'a> = HazardGuard<'a, Native>;

#[test]
fn guards_stay_in_their_threads() {
    check! {
        true true: D, Domain<Native, Epoch>, Domain<Native, Qsbr>, HazardDomain<Native>, CountedDomain<Native>,
            IntervalDomain<Native>, HazardPointer, Header, Cookie;
        true true: Rcu<u8>, RcuOption<u8>, Atomic<u8>, Owned<u8>, Removed<'_, u8, D>;
        false false: RcuGuard<'_, Native>, EpochGuard<'_, Native>, QsbrGuard<'_, Native>, Slots<'_>,
            CountedGuard<'_, Native>, IntervalGuard<'_, Native>;
        false false: SectionReader<'_, Native, General>, SectionReader<'_, Native, Epoch>, QsbrReader<'_, Native>,
            HazardReader<'_, Native>, CountedReader<'_, Native>, IntervalReader<'_, Native>;
        false false: reclaim::Ref<'_, u8>, Shared<'_, u8, D>, Unchanged<'_, u8, D>;

        true true: RcuMap<u8, u8>, RcuSet<u8>, IntoIter<u8, u8, S>, set::IntoIter<u8, S>, Cloned<'_, u8, u8, S>;
        true false: RcuMap<u8, u8, OneAtATime>, RcuSet<u8, OneAtATime>, IntoIter<u8, u8, OneAtATime>;
        false false: Cloned<'_, u8, u8, OneAtATime>;
        false false: Reading<'_, u8, u8>, Iter<'_, u8, u8>, Keys<'_, u8, u8>, Values<'_, u8, u8>,
            map::Ref<'_, u8, u8>, Refs<'_, u8, u8, S>, set::SetReading<'_, u8>, set::SetRef<'_, u8>, set::Refs<'_, u8, S>;
        false false: Entry<'_, u8, u8, S>, OccupiedEntry<'_, u8, u8, S>, VacantEntry<'_, u8, u8, S>,
            Compute<'_, u8, u8, u8>, OccupiedError<'_, u8, u8>;

        true true: RcuTreeMap<u8, u8>, RcuTreeSet<u8>, TreeRange<'_, u8, u8>, TreeKeys<'_, u8, u8>,
            TreeValues<'_, u8, u8>, TreeCloned<'_, u8, u8>, TreeIntoIter<u8, u8>, TreeSetIntoIter<u8>;
        true false: TreeIntoIter<OneAtATime, u8>, TreeIntoIter<u8, OneAtATime>;
        false false: TreeRange<'_, OneAtATime, u8>, TreeRange<'_, u8, OneAtATime>;
        false false: TreeReading<'_, u8, u8>, TreeRefs<'_, u8, u8>, TreeSetReading<'_, u8>, TreeSetRefs<'_, u8>;
    }
}
