//! The words `word` and `readers` of [`RawShflRw`](super::RawShflRw): values, and what they say.
//!
//! # `word`: the writer, and hints about the head of the queue
//!
//! | bit | meaning | which thread sets it | which thread clears it |
//! |---|---|---|---|
//! | WRITER (0) | a writer is inside, or looks for readers | that writer | that writer: when it leaves, or when it finds readers |
//! | CLAIMED (1) | the head is next: newcomers do not enter | the head; a holder that unlocks fairly; a reader that enters past a parked head after its turn | the head; LAPSED |
//! | OFFERED (2) | the lock is free and left to the head, since the time in `turn` | newcomers and waiters | the head; LAPSED |
//! | LAPSED (3) | the head is suspended: any thread may enter | newcomers and waiters | the head |
//! | UPGRADING (4) | with WRITER: the writer is the upgradable reader and still waits for readers | that writer | that writer |
//! | LEFT (5) | with CLAIMED: a holder has left the lock to the head, which takes that back only if it gives up | a holder that unlocks fairly | as CLAIMED |
//! | SHARED (6) | the head is an upgradable reader: CLAIMED keeps no plain reader out | the head | the head |
//! | PARKED (31) | with WRITER: the head sleeps at `word`; wake it | the head, or the writer for the next head | the writer, with WRITER; the head |
//!
//! WRITER and UPGRADING are the lock; the others are hints. A writer that finds no queue, or no hint, leaves without an
//! atomic read-modify-write (see [`release_if`](Machine::release_if)), so a hint that another thread sets meanwhile may be lost. The
//! head sets a lost hint again at its next look. If the head has left, a thread that finds the queue empty drops the hints.
//!
//! # `readers`: the readers, and a sleeping head
//!
//! | bits | meaning | which thread sets them | which thread clears them |
//! |---|---|---|---|
//! | 0 to 28 | readers inside, or about to look for a writer; a reader that finds TOO_MANY (28) set ends the process | each reader adds one | and subtracts it |
//! | UPGRADABLE (29) | likewise, the upgradable reader | the upgradable reader | the upgradable reader, when it leaves or has become a writer |
//! | PARKED (31) | the head sleeps at `readers`: wake it | the head, or a reader for the next head | the head; a reader that comes in alone, or a writer that finds no queue, which wakes the head |
//!
//! UPGRADABLE counts as a reader for writers: bits 0 to 29 together are zero when no reader is inside. All changes of
//! `readers` are atomic.

use crate::locks::bits::Bits;
use crate::locks::rwlock::{MOST_READERS, too_many_readers};

/// `word`: no writer and no hint.
pub(super) const FREE: u32 = 0;
pub(super) const WRITER: u32 = 1;
pub(super) const CLAIMED: u32 = 1 << 1;
pub(super) const OFFERED: u32 = 1 << 2;
pub(super) const LAPSED: u32 = 1 << 3;
pub(super) const UPGRADING: u32 = 1 << 4;
pub(super) const LEFT: u32 = 1 << 5;
pub(super) const SHARED: u32 = 1 << 6;
/// What says that the head is next.
pub(super) const CLAIMS: u32 = CLAIMED | OFFERED | LEFT;
/// That, and what says which head it is, and that it does not come.
pub(super) const HINTS: u32 = CLAIMS | SHARED | LAPSED;

/// In either word.
pub(super) const PARKED: u32 = 1 << 31;

/// `readers`: one reader.
pub(super) const READER: u32 = 1;
pub(super) const UPGRADABLE: u32 = 1 << 29;
/// `readers`: more readers than there can be. The process ends before the count reaches UPGRADABLE.
pub(super) const TOO_MANY: u32 = MOST_READERS;
/// `readers`: all readers, the upgradable one included.
pub(super) const ANY_READER: u32 = (1 << 30) - 1;

/// A reader has added itself to this value of `readers`.
#[inline(always)]
pub(super) fn check(before: Bits) {
    if before.has(TOO_MANY) {
        too_many_readers();
    }
}

/// Whether no writer keeps out a reader that reads again.
pub(super) fn admits_recursive_reader(word: Bits) -> bool {
    !word.has(WRITER) || word.has(UPGRADING)
}

/// What an acquisition is for.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Side {
    Read,
    Upgradable,
    Write,
}

impl Side {
    /// The bits of `readers` that keep this side out.
    pub fn kept_out_by(self) -> u32 {
        match self {
            Side::Read => 0,
            Side::Upgradable => UPGRADABLE,
            Side::Write => ANY_READER,
        }
    }

    /// Whether a newcomer of this side has to leave the lock to the head.
    pub fn is_kept_out_by_claim(self, word: Bits) -> bool {
        word.has(CLAIMED) && !(self == Side::Read && word.has(SHARED))
    }
}
