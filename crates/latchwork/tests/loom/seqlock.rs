//! Clients of the sequence lock.

use crate::machine::{Loom, Mistake, Model};
use latchwork::mutex::ttas::RawTtas;
use latchwork::rwlock::seqlock::SeqLock;

type Pair = SeqLock<RawTtas<Loom>, 2>;

fn copies(pair: &Pair) {
    if let Some([a, b]) = pair.try_read() {
        assert_eq!(a, b);
    }
}

fn changes(pair: &Pair) {
    pair.write(|[a, b]| (*a, *b) = (*a + 1, *b + 1));
}

fn written<const TIMES: usize>(pair: &Pair) {
    assert_eq!(pair.read(), [TIMES; 2]);
}

// Writers come first: of a client whose first thread only loads, loom explores one execution.

/// A copy is of one moment; every interleaving.
#[test]
fn sequence() {
    crate::report("seqlock", || Model::exhaustive().check(Pair::new_in, &[changes, copies], written::<1>));
    crate::report("seqlock", || Model::new(2).check(Pair::new_in, &[changes, changes, copies], written::<2>));
}

/// Seeded: a copy's loads are not ordered, or a write's stores.
#[test]
fn finds_relaxed_copies_and_changes() {
    for mistake in [Mistake::RelaxedAcquire, Mistake::RelaxedRelease] {
        crate::report("seqlock", || {
            Model::new(1).with_mistake(mistake).check_fails(Pair::new_in, &[changes, copies], |_| ())
        });
    }
}
