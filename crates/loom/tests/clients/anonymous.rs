//! Clients of BRAVO's releases without a token, as in the kernel's `up_read`: by the thread that reads, which may have the slot
//! of another reader, and by another thread.

use crate::machine::{Loom, Model, fails};
use crate::rwlock::{Shared, free_after, reads, warm, works_after, writes};
use latchwork::locks::mutex::Info;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::table::{Anywhere, Slots};
use latchwork::locks::rwlock::bravo::{RawBravo, ReadToken};
use latchwork::locks::rwlock::pf_t::RawPfT;
use latchwork::machine::{Machine, Word};
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// BRAVO whose read tokens are lost. It counts the readers of the underlying lock.
struct Anonymous<const FLAW: u8> {
    lock: RawBravo<Loom, RawPfT<Loom>>,
    below: <Loom as Machine>::U32,
}

const SOUND: u8 = 0;
/// A release looks whether the underlying lock has readers, and ends a read there in a second step.
const TORN: u8 = 1;
/// A release empties a slot by a store. Two releases may both take the reader in it for the one that they end.
const STORES: u8 = 2;

impl<const FLAW: u8> Anonymous<FLAW> {
    fn count(&self, token: ReadToken<<Loom as Machine>::Usize, ()>) {
        if matches!(token, ReadToken::Slow(())) {
            let below = &self.below;
            while below
                .compare_exchange(below.load(Relaxed), below.load(Relaxed) + 1, Relaxed, Relaxed)
                .is_err()
            {}
        }
    }

    fn release_below(&self) -> bool {
        let mut below = self.below.load(Acquire);
        while below > 0 {
            if FLAW == TORN {
                self.below.store(below - 1, Release);
                break;
            }
            match self.below.compare_exchange(below, below - 1, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => below = now,
            }
        }
        if below > 0 {
            // SAFETY: a reader of the underlying lock was counted, unless there is a flaw.
            unsafe { self.lock.unlock_read(ReadToken::Slow(())) };
        }
        below > 0
    }
}

// SAFETY: each release ends one read acquisition; but for the mistakes, which are here to be found.
unsafe impl<const FLAW: u8> RawRwLock for Anonymous<FLAW> {
    type Machine = Loom;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = RawPfT::<Loom>::INFO;

    fn new_in() -> Self {
        Anonymous { lock: RawBravo::new_in(), below: Word::new(0) }
    }

    fn read(&self) {
        self.count(self.lock.read());
    }

    fn try_read(&self) -> Option<()> {
        self.lock.try_read().map(|token| self.count(token))
    }

    unsafe fn unlock_read(&self, (): ()) {
        if FLAW == STORES {
            // SAFETY: it is emptied to end the acquisition that it stands for, unless two threads do that at once.
            let slot = &unsafe { Loom::visible_readers() }[0];
            if slot.load(Relaxed) != 0 {
                return slot.store(0, Release);
            }
        }
        // SAFETY: the caller ends a read acquisition, and all end here.
        unsafe { self.lock.unlock_anonymous_read(|| self.release_below()) };
    }

    fn write(&self) {
        self.lock.write();
    }

    fn try_write(&self) -> Option<()> {
        self.lock.try_write()
    }

    unsafe fn unlock_write(&self, (): ()) {
        // SAFETY: the caller has acquired it.
        unsafe { self.lock.unlock_write(()) };
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.lock.is_write_locked()
    }
}

/// Two readers with one slot between them: one reads through it, the other through the underlying lock, and each may end what
/// the other began. At most 2 preemptions.
fn collide<const FLAW: u8>() -> impl std::fmt::Display {
    type R<const FLAW: u8> = Anonymous<FLAW>;
    Model::new(2).with_reader_slots(1).check(
        (Shared::<R<FLAW>>::new, warm::<R<FLAW>>),
        &[reads, reads, writes],
        free_after::<R<FLAW>, 1>,
    )
}

#[test]
fn readers_end_each_others_reads() {
    crate::report("bravo, anonymous", collide::<SOUND>);
}

#[test]
fn finds_a_slot_that_is_emptied_twice() {
    crate::report("storing twin", || fails(collide::<STORES>));
}

/// Readers of a lock without bias, which are all below.
#[test]
fn finds_a_release_below_in_two_steps() {
    fn below<const FLAW: u8>() -> impl std::fmt::Display {
        Model::new(2).check(Shared::<Anonymous<FLAW>>::new, &[reads, reads], works_after::<Anonymous<FLAW>>)
    }
    crate::report("bravo, anonymous", below::<SOUND>);
    crate::report("torn twin", || fails(below::<TORN>));
}

/// A lock, and how many reads another thread is to end.
type Handed<const FLAW: u8> = (Shared<Anonymous<FLAW>>, <Loom as Machine>::U32);

fn handed<const FLAW: u8>() -> Handed<FLAW> {
    (Shared::new(), Word::new(0))
}

fn warm_it<const FLAW: u8>((shared, _): &Handed<FLAW>) {
    warm(shared);
}

fn reads_and_hands_over<const FLAW: u8>((shared, owed): &Handed<FLAW>) {
    shared.lock.read();
    owed.store(1, Release);
}

/// Reads as well, so that it has two reads to end.
fn ends_both<const FLAW: u8>((shared, owed): &Handed<FLAW>) {
    shared.lock.read();
    Loom::spin_until(owed, Acquire, |owed| owed == 1);
    shared.finish_read(());
    shared.finish_read(());
}

fn it_works_after<const FLAW: u8>((shared, _): &Handed<FLAW>) {
    works_after(shared);
}

/// A thread ends its own read and another thread's; one slot for each of the two, or one for both. At most 2 preemptions. No
/// writer: it could keep the second reader out, which ends the first one's read.
#[test]
fn another_thread_ends_the_read() {
    for slots in [1, 4] {
        crate::report("bravo, handed over", || {
            Model::new(2).with_reader_slots(slots).check(
                (handed::<SOUND>, warm_it::<SOUND>),
                &[reads_and_hands_over, ends_both],
                it_works_after::<SOUND>,
            )
        });
    }
}

/// A lock whose first reader's slot comes after the second one's in the search.
#[repr(C)]
struct Meeting {
    /// Moves the lock to an identity with which the slots are in that order.
    _before: usize,
    shared: Shared<Anonymous<SOUND>>,
    /// The slot of the read that another thread is to end.
    held: AtomicUsize,
}

const SLOTS: usize = 4;

impl Meeting {
    fn new() -> Meeting {
        Meeting { _before: 0, shared: Shared::new(), held: AtomicUsize::new(SLOTS) }
    }

    /// The slot in which the calling thread reads.
    fn own_slot(&self) -> usize {
        let lock = std::ptr::from_ref(&self.shared.lock.lock).addr();
        Anywhere::first::<Loom>(Loom::identity(lock), SLOTS)
    }
}

/// The first thread reads, and goes on. Another thread is to end the read.
fn is_held(meeting: &Meeting) {
    warm(&meeting.shared);
    meeting.shared.lock.read();
    let slot = meeting.own_slot();
    // SAFETY: the slot is only looked at.
    assert_ne!(unsafe { Loom::visible_readers() }[slot].load(Relaxed), 0, "the read is not in its slot");
    meeting.held.store(slot, Relaxed);
}

/// A release for another thread meets a reader that has filled its slot, and will find that a writer revokes the bias. The release
/// may take that slot for the one that it ends, because it comes first in the search. At most 2 preemptions.
#[test]
fn a_release_meets_a_reader_that_finds_no_bias() {
    fn reads_in_a_slot_before(meeting: &Meeting) {
        let (own, held) = (meeting.own_slot(), meeting.held.load(Relaxed));
        assert!(own < held, "slot {own} is searched after {held}: the lock needs another place in `Meeting`");
        reads(&meeting.shared);
    }
    fn ends_the_read(meeting: &Meeting) {
        // It looks in its own slot before all others.
        assert_ne!(
            meeting.own_slot(),
            meeting.held.load(Relaxed),
            "the lock needs another place in `Meeting`"
        );
        meeting.shared.finish_read(());
    }
    crate::report("bravo, anonymous", || {
        Model::new(2).with_reader_slots(SLOTS).check(
            (Meeting::new, is_held),
            &[|meeting| writes(&meeting.shared), reads_in_a_slot_before, ends_the_read],
            |meeting| free_after::<_, 1>(&meeting.shared),
        )
    });
}

/// A release for another thread may empty the slot of a reader that goes on, which is below then. So a look at the lock below and
/// another at the slots may both miss it. At most 2 preemptions.
#[test]
fn a_read_lock_is_locked_while_another_read_ends() {
    fn looks(shared: &Shared<Anonymous<SOUND>>) {
        shared.lock.read();
        assert!(shared.lock.is_locked(), "a read lock says that it is free");
        shared.finish_read(());
    }
    crate::report("bravo, anonymous", || {
        Model::new(2).with_reader_slots(1).check(
            (Shared::<Anonymous<SOUND>>::new, warm::<Anonymous<SOUND>>),
            &[looks, reads],
            works_after::<Anonymous<SOUND>>,
        )
    });
}
