//! Clients of BRAVO: its parts in compositions that are not in the registry, its rows of slots, and twins with
//! mistakes that other implementations are known to have made.

use crate::machine::{Loom, Mistake, Model, exit_thread, fails};
use crate::rwlock::{
    Shared, for_each_rwlock, free_after, has_rows, reads, tries_read, warm, works_after, writes, writes_until,
};
use latchwork::locks::mutex::{Info, ttas::RawTtas};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::bias::Guard;
use latchwork::locks::rwlock::bravo::publish::Owned;
use latchwork::locks::rwlock::bravo::revoke::{Holding, Passing, Spins};
use latchwork::locks::rwlock::bravo::table::{Hashed, Sector, Table, Twice};
use latchwork::locks::rwlock::bravo::{Columns, Filled, RawBravo, ReadToken, Rows};
use latchwork::locks::rwlock::exclusive::Exclusive;
use latchwork::locks::rwlock::pf_t::RawPfT;
use latchwork::machine::{Machine, Word};
use latchwork::registry::{self, Visitor};
use std::sync::atomic::Ordering::*;

/// BRAVO made of other parts, most of which are not in the registry: slots in other places, a writer that
/// spins, readers that pass it. Over a lock that spins, since what is below is the same.
#[test]
fn compositions() {
    type Made<P, V> = RawBravo<Loom, RawPfT<Loom>, P, Guard, V>;
    fn check<R: RawRwLock<Machine = Loom>>(name: &str) {
        crate::report(name, || {
            Model::new(3).check((Shared::<R>::new, warm::<R>), &[reads, writes], free_after::<R, 1>)
        });
        crate::report(name, || {
            Model::new(1).check((Shared::<R>::new, warm::<R>), &[reads, reads, writes], free_after::<R, 1>)
        });
        for mistake in [Mistake::BlindScan, Mistake::RelaxedRelease, Mistake::RelaxedAcquire] {
            crate::report(name, || {
                Model::new(2).with_mistake(mistake).check_fails(
                    (Shared::<R>::new, warm::<R>),
                    &[reads, writes],
                    free_after::<R, 1>,
                )
            });
        }
    }
    fn check_passing<R: RawRwLock<Machine = Loom>>(name: &str) {
        check::<R>(name);
        // Two writers revoke, one of which may hold the lock; and readers that bias it again.
        crate::report(name, || {
            Model::new(2).check((Shared::<R>::new, warm::<R>), &[writes, writes], free_after::<R, 2>)
        });
        crate::report(name, || {
            Model::new(1).check((Shared::<R>::new, warm::<R>), &[writes, reads, writes], free_after::<R, 2>)
        });
        crate::report(name, || {
            Model::new(1).with_clock().check(
                (Shared::<R>::new, warm::<R>),
                &[reads, writes_until],
                works_after,
            )
        });
    }
    check::<Columns<Loom, RawPfT<Loom>>>("bravo, columns");
    check::<RawBravo<Loom, RawPfT<Loom>, Table<Twice>>>("bravo, two probes");
    check::<RawBravo<Loom, RawPfT<Loom>, Table<Sector>>>("bravo, sectors");
    check::<Made<Hashed, Holding<Spins>>>("bravo, spinning");
    check_passing::<Made<Hashed, Passing<Spins>>>("bravo, passing");
    check_passing::<Made<Owned, Passing>>("bravo, rows, passing");
}

/// BRAVO over a mutex, which is not in the registry: two readers, in the table and in the mutex, and a
/// writer.
#[test]
fn over_a_mutex() {
    type R = RawBravo<Loom, Exclusive<RawTtas<Loom>>>;
    crate::report(R::INFO.name, || {
        Model::exhaustive().check((Shared::<R>::new, warm::<R>), &[reads, writes], free_after::<R, 1>)
    });
    crate::report(R::INFO.name, || {
        Model::new(2).with_reader_slots(1).check(
            (Shared::<R>::new, warm::<R>),
            &[reads, reads, writes],
            free_after::<R, 1>,
        )
    });
}

/// Two threads that have not read yet get rows while a writer scans: they are seen, or see that the
/// bias is off. At most 1 preemption (more of them with one such thread, above). Over a lock that spins:
/// the steps are the same, and there are fewer below.
#[test]
fn growth_against_a_scan() {
    type R = Rows<Loom, RawPfT<Loom>>;
    crate::report(R::INFO.name, || {
        Model::new(1).check((Shared::<R>::new, warm::<R>), &[writes, reads, reads], free_after::<R, 1>)
    });
}

/// Seeded: a reader does not order its slot before its second look at the bias.
#[test]
fn finds_publication_without_a_fence() {
    for_each_rwlock!(R if has_rows::<R>() => Model::new(2)
        .with_mistake(Mistake::NoLightFence)
        .check_fails((Shared::<R>::new, warm::<R>), &[reads, writes], free_after::<R, 1>));
}

/// Seeded: a revoking writer does without the heavy fence.
#[test]
fn finds_revocation_without_a_fence() {
    for_each_rwlock!(R if has_rows::<R>() => Model::new(2)
        .with_mistake(Mistake::NoHeavyFence)
        .check_fails((Shared::<R>::new, warm::<R>), &[reads, writes], free_after::<R, 1>));
}

/// Seeded: a new row is used before it is marked as taken.
#[test]
fn finds_row_that_is_not_taken() {
    for_each_rwlock!(R if has_rows::<R>() => Model::new(2)
        .with_mistake(Mistake::UntakenRow)
        .check_fails((Shared::<R>::new, warm::<R>), &[writes, reads], free_after::<R, 1>));
}

/// Reads in a thread that exits meanwhile; another thread, which may get its row, reads as well and
/// then leaves for the one that is gone.
fn reads_and_exits<R: RawRwLock>(shared: &Shared<R>) {
    let token = shared.lock.read();
    exit_thread();
    tries_read(shared);
    shared.finish_read(token);
}

/// A thread exits with its slot in use; up to 3 preemptions.
#[test]
fn exit_with_a_slot_in_use() {
    for_each_rwlock!(R if has_rows::<R>() => Model::new(3).check(
        (Shared::<R>::new, warm::<R>),
        &[writes, reads_and_exits],
        free_after::<R, 1>
    ));
}

/// Seeded: a thread that exits gives back its row with a slot in use, and the writer does not wait for its reader.
#[test]
fn finds_row_that_is_given_back_in_use() {
    for_each_rwlock!(R if has_rows::<R>() => Model::new(2)
        .with_mistake(Mistake::EarlyReturn)
        .check_fails((Shared::<R>::new, warm::<R>), &[writes, reads_and_exits], free_after::<R, 1>));
}

/// A biased lock and another, whose readers all share one slot of the table.
type Two<R> = (Shared<R>, Shared<R>);

fn two<R: RawRwLock>() -> Two<R> {
    (Shared::new(), Shared::new())
}

fn warm_both<R: RawRwLock>((one, other): &Two<R>) {
    warm(one);
    warm(other);
}

fn reads_one<R: RawRwLock>((one, _): &Two<R>) {
    reads(one);
}

fn reads_other<R: RawRwLock>((_, other): &Two<R>) {
    reads(other);
}

fn writes_one<R: RawRwLock>((one, _): &Two<R>) {
    writes(one);
}

fn both_work_after<R: RawRwLock>((one, other): &Two<R>) {
    works_after(one);
    works_after(other);
}

/// Readers of two locks collide, and each ends what it began, while one of the locks is written; at most
/// 2 preemptions.
fn collide<R: RawRwLock<Machine = Loom>>(model: Model) -> impl std::fmt::Display {
    model.with_reader_slots(1).check(
        (two::<R>, warm_both::<R>),
        &[reads_one, reads_other, writes_one],
        both_work_after::<R>,
    )
}

#[test]
fn readers_of_two_locks_collide() {
    crate::report("bravo-pf-t", || collide::<RawBravo<Loom, RawPfT<Loom>>>(Model::new(2)));
    crate::report("bravo, two probes", || {
        collide::<RawBravo<Loom, RawPfT<Loom>, Table<Twice>>>(Model::new(1))
    });
}

/// Listing 1 with its bias on from the start, or with a mistake.
struct Twin<const FLAW: u8> {
    lock: RawPfT<Loom>,
    biased: <Loom as Machine>::U32,
}

const SOUND: u8 = 0;
/// An attempt to read that fills its slot, finds the bias gone and fails, without emptying the slot.
const LEAKS: u8 = 1;
/// A reader that unlocks looks at its slot, and takes one that is in use for its own. It may be another reader's.
const GUESSES: u8 = 2;

type Slot = <Loom as Machine>::Usize;

impl<const FLAW: u8> Twin<FLAW> {
    fn slot() -> &'static Slot {
        // SAFETY: slots are filled and emptied as in BRAVO, but for the flaw.
        let table = unsafe { Loom::visible_readers() };
        &table[Loom::thread_id() % table.len()]
    }

    fn fill(&self) -> Option<&'static Slot> {
        let (slot, me) = (Self::slot(), std::ptr::from_ref(self).addr());
        (self.biased.load(Relaxed) == 1 && slot.compare_exchange(0, me, SeqCst, Relaxed).is_ok())
            .then_some(slot)
    }

    fn stays(&self) -> bool {
        self.biased.load(SeqCst) == 1
    }
}

// SAFETY: listing 1; but for the mistakes, which are here to be found.
unsafe impl<const FLAW: u8> RawRwLock for Twin<FLAW> {
    type Machine = Loom;
    type Read = ReadToken<Slot, ()>;
    type Write = ();
    type Counted = Self;
    const INFO: Info = RawPfT::<Loom>::INFO;

    fn new_in() -> Self {
        Twin { lock: RawPfT::new_in(), biased: Word::new(1) }
    }

    fn read(&self) -> Self::Read {
        match self.fill() {
            Some(slot) if self.stays() => return ReadToken::Fast(Filled::new(slot)),
            Some(slot) => slot.store(0, Release),
            None => (),
        }
        self.lock.read();
        ReadToken::Slow(())
    }

    fn try_read(&self) -> Option<Self::Read> {
        match self.fill() {
            Some(slot) if self.stays() => return Some(ReadToken::Fast(Filled::new(slot))),
            Some(_) if FLAW == LEAKS => return None,
            Some(slot) => slot.store(0, Release),
            None => (),
        }
        self.lock.try_read().map(ReadToken::Slow)
    }

    unsafe fn unlock_read(&self, token: Self::Read) {
        match token {
            ReadToken::Slow(()) if FLAW == GUESSES && Self::slot().load(Relaxed) != 0 => {
                Self::slot().store(0, Release);
            }
            // SAFETY: this ends the acquisition.
            ReadToken::Fast(filled) => unsafe { filled.slot() }.store(0, Release),
            // SAFETY: the token is the underlying acquisition's.
            ReadToken::Slow(()) => unsafe { self.lock.unlock_read(()) },
        }
    }

    fn write(&self) {
        self.lock.write();
        if self.stays() {
            let me = std::ptr::from_ref(self).addr();
            self.biased.store(0, SeqCst);
            // SAFETY: it only reads them.
            for slot in unsafe { Loom::visible_readers() } {
                if slot.load(SeqCst) == me {
                    Loom::spin_until(slot, Acquire, |reader| reader != me);
                }
            }
        }
    }

    fn try_write(&self) -> Option<()> {
        self.lock.try_write()?;
        let me = std::ptr::from_ref(self).addr();
        if self.stays() {
            self.biased.store(0, SeqCst);
            // SAFETY: it only reads them.
            if unsafe { Loom::visible_readers() }.iter().any(|slot| slot.load(SeqCst) == me) {
                self.biased.store(1, Release);
                // SAFETY: acquired above.
                unsafe { self.lock.unlock_write(()) };
                return None;
            }
        }
        Some(())
    }

    unsafe fn unlock_write(&self, (): ()) {
        // SAFETY: the caller has acquired the underlying lock for writing.
        unsafe { self.lock.unlock_write(()) };
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.lock.is_write_locked()
    }
}

/// An attempt to read while the bias goes, as in `attempts` for all locks; at most 3 preemptions.
fn tries_while_the_bias_goes<R: RawRwLock<Machine = Loom>>() -> impl std::fmt::Display {
    Model::new(3).check(Shared::<R>::new, &[tries_read, writes], works_after)
}

#[test]
fn finds_an_attempt_that_leaks_its_slot() {
    crate::report("sound twin", tries_while_the_bias_goes::<Twin<SOUND>>);
    crate::report("leaking twin", || fails(tries_while_the_bias_goes::<Twin<LEAKS>>));
}

#[test]
fn finds_an_unlock_that_takes_anothers_slot() {
    crate::report("sound twin", || collide::<Twin<SOUND>>(Model::new(2)));
    crate::report("guessing twin", || fails(|| collide::<Twin<GUESSES>>(Model::new(2))));
}
