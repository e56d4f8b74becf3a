//! A lock per lock (`LATCHWORK_LOCKS`): which lock serves an object.
//!
//! The choice is made once for each object: when the program initialises it, or at its first use if a static initialiser
//! has made it. Nothing changes it while the object lives. The object's word keeps it:
//!
//! | object | chosen lock | where it stands |
//! |---|---|---|
//! | mutex | one of ours | its number in the bits [`CHOICE`] of `kind`, beside [`SERVED`](super::abi::SERVED) |
//! | mutex | glibc's | [`LEFT_TO_GLIBC`](super::abi::LEFT_TO_GLIBC) in `kind`, without `SERVED` |
//! | rwlock | one of ours | its number in the bits [`CHOICE`] of `flags`, beside [`RWLOCK_OURS`](super::abi::RWLOCK_OURS) |
//! | rwlock | glibc's | [`RwLock::is_left_to_glibc`](super::abi::RwLock::is_left_to_glibc) |
//!
//! Number 0 is the lock that serves the family as a whole (`LATCHWORK_MUTEX`, `LATCHWORK_RWLOCK`). So an object of that
//! lock has the same word as in a process without a lock per lock, and its fast path is the same. Each family has an array
//! with the functions of every lock, by number.
//!
//! `startup::locks` reads the variable and makes the choice.

use super::abi::CHOICE;
use super::counters::{self, Family};
use super::table::Slot;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// How many numbers there are.
pub(crate) const NUMBERS: usize = 64;
const SHIFT: u32 = CHOICE.trailing_zeros();
const _: () = assert!(CHOICE >> SHIFT == NUMBERS as u32 - 1);

/// A lock's number, or glibc.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Choice(u8);

impl Choice {
    /// The lock that serves the family as a whole.
    pub(crate) const FAMILY: Self = Choice(0);
    /// The C library's own lock. No word has this number.
    pub(crate) const GLIBC: Self = Choice(NUMBERS as u8 - 1);

    /// The lock with this position in the registry, among those of its kind.
    pub(crate) fn registered(position: usize) -> Self {
        assert!(position < NUMBERS - 2, "as many locks as there are numbers");
        Choice(position as u8 + 1)
    }

    /// The bits of a `kind` or `flags` word.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.0) << SHIFT
    }

    /// The index in the array of the family.
    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// The number in the word of a mutex or a rwlock of ours.
#[inline(always)]
pub(crate) fn number(word: u32) -> usize {
    ((word & CHOICE) >> SHIFT) as usize
}

/// Makes the choice for an object of the family at this address.
type Choose = fn(Family, usize) -> Choice;

static ON: AtomicBool = AtomicBool::new(false);
static CHOOSE: Slot<Choose> = Slot::new(|_, _| Choice::FAMILY);
/// How many objects each lock has got, of mutexes and of rwlocks, while statistics are on.
static OBJECTS: [[AtomicU64; NUMBERS]; 2] = [const { [const { AtomicU64::new(0) }; NUMBERS] }; 2];

/// From now on `choose` makes the choice.
pub(crate) fn install(choose: Choose) {
    CHOOSE.set(choose);
    ON.store(true, Relaxed);
}

/// Whether locks are chosen one by one.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

/// The choice for an object at its initialisation or first use. Two threads that use it first at the same time may get two
/// answers; the caller makes one of them stand.
#[inline(always)]
pub(crate) fn choose(family: Family, address: usize) -> Choice {
    if is_on() { CHOOSE.get()(family, address) } else { Choice::FAMILY }
}

/// Counts an object for which a choice stands.
pub(crate) fn count(family: Family, choice: Choice) {
    if is_on() && counters::on() {
        OBJECTS[usize::from(family == Family::RwLock)][choice.number()].fetch_add(1, Relaxed);
    }
}

/// How many objects the lock with this number has got.
pub(crate) fn objects(family: Family, number: usize) -> u64 {
    OBJECTS[usize::from(family == Family::RwLock)][number].load(Relaxed)
}
