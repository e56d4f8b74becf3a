//! Clients of the sequence lock.

use crate::machine::{Loom, Mistake, Model, one_fewer_daily};
use latchwork::locks::mutex::{RawMutex, ttas::RawTtas};
use latchwork::locks::seqlock::{RawSeqLock, SeqLock};
use latchwork::registry::{self, Visitor};

type Pair<L> = SeqLock<L, 2>;

fn copies<L: RawMutex>(pair: &Pair<L>) {
    if let Some([a, b]) = pair.try_read() {
        assert_eq!(a, b);
    }
}

/// Until it has a copy, if need be with the writers kept out.
fn reads<L: RawMutex>(pair: &Pair<L>) {
    let [a, b] = pair.read();
    assert_eq!(a, b);
}

fn reads_twice<L: RawMutex>(pair: &Pair<L>) {
    let [before, _] = pair.read();
    let [after, _] = pair.read();
    assert!(before <= after, "it went back in time");
}

fn changes<L: RawMutex>(pair: &Pair<L>) {
    pair.write(|[a, b]| (*a, *b) = (*a + 1, *b + 1));
}

fn changes_twice<L: RawMutex>(pair: &Pair<L>) {
    changes(pair);
    changes(pair);
}

fn changes_and_looks<L: RawMutex>(pair: &Pair<L>) {
    let own = pair.write(|[a, b]| {
        (*a, *b) = (*a + 1, *b + 1);
        *a
    });
    assert!(pair.read()[0] >= own, "its own change is not there");
}

fn written<L: RawMutex, const TIMES: usize>(pair: &Pair<L>) {
    assert_eq!(pair.try_read(), Some([TIMES; 2]));
}

macro_rules! for_each_seqlock {
    ($l:ident => $client:expr) => {{
        struct Each;
        impl Visitor<Loom> for Each {
            fn seqlock<$l: RawMutex<Machine = Loom>>(&mut self) {
                crate::report(RawSeqLock::<$l>::INFO.name, || $client);
            }
        }
        registry::visit(&mut Each);
    }};
}

/// The smallest mutex for writers: the others have clients of their own.
type Small = RawTtas<Loom>;

fn check(model: Model, threads: &[fn(&Pair<Small>)], after: fn(&Pair<Small>)) {
    crate::report("seqlock", || model.check(Pair::<Small>::new_in, threads, after));
}

// Writers come first: of a client whose first thread only loads, loom explores one execution.

/// A copy is of one moment; every interleaving under the smallest mutex.
#[test]
fn copies_of_one_moment() {
    for_each_seqlock!(L => Model::new(2).check(Pair::<L>::new_in, &[changes, copies], written::<L, 1>));
    check(Model::exhaustive(), &[changes, copies], written::<Small, 1>);
}

/// A writer outpaces a reader, which then keeps it out.
#[test]
fn copies_in_vain() {
    for_each_seqlock!(L => Model::new(1).check(Pair::<L>::new_in, &[changes, reads], written::<L, 1>));
    check(Model::new(2), &[changes_twice, reads], written::<Small, 2>);
}

#[test]
fn two_writers_and_a_reader() {
    check(Model::new(2), &[changes, changes, copies], written::<Small, 2>);
    check(Model::new(1), &[changes, changes, reads], written::<Small, 2>);
}

#[test]
fn nobody_goes_back_in_time() {
    check(Model::new(one_fewer_daily(2)), &[changes_twice, reads_twice], written::<Small, 2>);
    check(Model::new(2), &[changes_and_looks, changes_and_looks], written::<Small, 2>);
}

/// Seeded: the loads, or the stores, of the number (A), or of the words (B), are not ordered.
#[test]
fn finds_relaxed_copies_and_changes() {
    const MISTAKES: [Mistake; 6] = [
        Mistake::RelaxedAcquire,
        Mistake::RelaxedRelease,
        Mistake::RelaxedLoadOf(size_of::<u32>()),
        Mistake::RelaxedStoreOf(size_of::<u32>()),
        Mistake::RelaxedLoadOf(size_of::<usize>()),
        Mistake::RelaxedStoreOf(size_of::<usize>()),
    ];
    for_each_seqlock!(L => MISTAKES
        .map(|mistake| {
            let model = Model::new(1).with_mistake(mistake);
            model.check_fails(Pair::<L>::new_in, &[changes, copies], |_| ()).to_string()
        })
        .join(", "));
}
