//! One table of slots for the whole process, and which of them a reader takes.

use super::publish::{Publish, Published};
use crate::machine::{Machine, Word, shared};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

/// One table for the process. All threads share its slots, so a reader takes one with a compare-and-exchange. A reader that
/// finds the slot taken uses the underlying lock.
#[derive(Debug)]
pub struct Table<S>(PhantomData<S>);

/// The paper's: a slot anywhere in the table.
pub type Hashed = Table<Anywhere>;
/// The paper's BRAVO-2D: a slot in the row of the reader's processor, and in the column of the lock.
pub type Columns = Table<Column>;

/// Which slots of a table readers take. The length of the table is a power of two.
///
/// # Safety
///
/// Where there is a [`column`](Slots::column), [`first`](Slots::first) and [`second`](Slots::second) are in it.
pub unsafe trait Slots: Send + Sync + 'static {
    /// How the names of its locks begin.
    const PREFIX: &'static str;
    /// How their summaries begin.
    const SUMMARY: &'static str;
    /// Paper and section.
    const SOURCE: &'static str;

    /// The caller's slot for `lock`.
    fn first<M: Machine>(lock: usize, length: usize) -> usize;

    /// Another one, for a caller that has found the first taken.
    fn second<M: Machine>(_lock: usize, _length: usize) -> Option<usize> {
        None
    }

    /// Where readers of `lock` can be, if not in all slots: `(first, step)` stands for the slots `first`, `first + step`,
    /// `first + 2 * step` and so on.
    #[inline]
    fn column<M: Machine>(_lock: usize, _length: usize) -> Option<(usize, usize)> {
        None
    }
}

/// Mix32 of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014),
/// with the constants of its implementation in Java 8.
#[inline]
pub(in crate::locks::rwlock) fn mix32(z: u64) -> u32 {
    let z = (z ^ (z >> 33)).wrapping_mul(0x62a9_d9ed_7997_05f5);
    ((z ^ (z >> 28)).wrapping_mul(0xcb24_d0a5_c88c_35b3) >> 32) as u32
}

/// A hash of thread and lock. Both are addresses with the same zero bits below and the same bits above. One is rotated, so
/// that neighbouring locks and neighbouring threads do not cancel out.
#[inline]
fn hash<M: Machine>(lock: usize) -> u32 {
    mix32((lock as u64).wrapping_add((M::thread_id() as u64).rotate_left(32)))
}

/// A hash of thread and lock chooses among all slots (listing 1).
#[derive(Debug)]
pub struct Anywhere;

// SAFETY: there are no columns.
unsafe impl Slots for Anywhere {
    const PREFIX: &'static str = "bravo-";
    const SUMMARY: &'static str = "biased locking for readers over ";
    const SOURCE: &'static str = "Dice and Kogan 2019, listing 1";

    #[inline]
    fn first<M: Machine>(lock: usize, length: usize) -> usize {
        hash::<M>(lock) as usize & (length - 1)
    }
}

/// The same, and a second slot when the first is taken (section 7: "a secondary hash to probe an alternative location"). It
/// suits readers that hold many locks at a time, and hundreds of threads. Let c of the 4096 slots be taken. Then one reader in
/// (4096 / c)^2 goes to the underlying lock instead of one in 4096 / c. Such a reader has failed at two
/// compare-and-exchanges.
#[derive(Debug)]
pub struct Twice;

// SAFETY: there are no columns.
unsafe impl Slots for Twice {
    const PREFIX: &'static str = "bravo-twice-";
    const SUMMARY: &'static str = "biased locking for readers, with two probes, over ";
    const SOURCE: &'static str = "Dice and Kogan 2019, section 7";

    #[inline]
    fn first<M: Machine>(lock: usize, length: usize) -> usize {
        Anywhere::first::<M>(lock, length)
    }

    fn second<M: Machine>(lock: usize, length: usize) -> Option<usize> {
        Some(mix32(u64::from(hash::<M>(lock))) as usize & (length - 1))
    }
}

/// A hash of thread and lock chooses within a sector that belongs to the reader's NUMA node (section 7). So threads of
/// several nodes do not write slots of one cache line. On a machine with one node this is [`Anywhere`].
#[derive(Debug)]
pub struct Sector;

// SAFETY: there are no columns.
unsafe impl Slots for Sector {
    const PREFIX: &'static str = "bravo-numa-";
    const SUMMARY: &'static str = "biased locking, a sector of slots per NUMA node, over ";
    const SOURCE: &'static str = "Dice and Kogan 2019, section 7";

    #[inline]
    fn first<M: Machine>(lock: usize, length: usize) -> usize {
        let nodes = (M::numa_nodes() as usize).next_power_of_two().min(length);
        let node = if nodes == 1 { 0 } else { M::numa_node() as usize & (nodes - 1) };
        let sector = length / nodes;
        node * sector + (hash::<M>(lock) as usize & (sector - 1))
    }
}

/// The reader's processor chooses the row, and a hash of the lock the column (section 7, "our preferred embodiment"). Threads
/// on different processors share no cache line, and a revoking writer looks at one slot of each row. A reader collides with
/// other readers on its processor, and with itself if it holds two locks of one column.
#[derive(Debug)]
pub struct Column;

/// The fewest slots in a row: a pair of cache lines, which processors fetch together. The table is divided among as many
/// processors as there can be: two rows of 2048 slots on a machine with two. There are 256 rows at most; further processors
/// share them.
pub(super) const ROW: u32 = 16;

// SAFETY: `first` and `column` both take the column from `shape`, and there is no second slot.
unsafe impl Slots for Column {
    const PREFIX: &'static str = "bravo-cpu-";
    const SUMMARY: &'static str = "biased locking, a row of slots per processor, over ";
    const SOURCE: &'static str = "Dice and Kogan 2019, section 7 (BRAVO-2D)";

    #[inline]
    fn first<M: Machine>(lock: usize, length: usize) -> usize {
        let (column, row) = Self::shape::<M>(lock, length);
        Self::slot(M::cpu() as usize, column, row, length)
    }

    #[inline]
    fn column<M: Machine>(lock: usize, length: usize) -> Option<(usize, usize)> {
        Some(Self::shape::<M>(lock, length))
    }
}

impl Column {
    /// The lock's column, and the length of rows.
    #[inline]
    fn shape<M: Machine>(lock: usize, length: usize) -> (usize, usize) {
        let row = Self::row(length, M::cpus() as usize, M::patience(ROW) as usize);
        (mix32(lock as u64) as usize & (row - 1), row)
    }

    /// Slots in the row of each of so many processors, at least so many.
    #[inline]
    pub(super) fn row(length: usize, cpus: usize, least: usize) -> usize {
        // A shift and no division: this is on the readers' fast path.
        (length >> cpus.next_power_of_two().trailing_zeros()).max(least).min(length)
    }

    /// Of a processor's row, the slot in a column.
    #[inline]
    pub(super) fn slot(cpu: usize, column: usize, row: usize, length: usize) -> usize {
        ((cpu * row) & (length - 1)) + column
    }
}

impl<S: Slots> Table<S> {
    /// The caller's slot for `lock`.
    #[inline]
    pub(super) fn slot<M: Machine>(lock: usize) -> &'static M::Usize {
        let table = shared::visible_readers::<M>();
        &table[S::first::<M>(lock, table.len())]
    }

    #[inline(always)]
    fn fill<M: Machine>(slot: &'static M::Usize, lock: usize) -> Option<&'static M::Usize> {
        // (B) Dekker pair with the writer: the reader writes the slot and then reads the bias, the writer writes the bias and
        // then reads the slot, all four sequentially consistent, so at least one sees the other. On x86 a
        // compare-and-exchange is a full fence anyway.
        slot.compare_exchange(0, lock, SeqCst, Relaxed).is_ok().then_some(slot)
    }
}

// SAFETY: a writer looks at all slots where `Slots` puts readers of the lock: all of the table, or the lock's column. The
// accesses are sequentially consistent.
unsafe impl<M: Machine, S: Slots> Publish<M> for Table<S> {
    const PREFIX: &'static str = S::PREFIX;
    const SUMMARY: &'static str = S::SUMMARY;
    const ATOMICS: u32 = 1;
    const SOURCE: &'static str = S::SOURCE;

    #[inline]
    unsafe fn publish(lock: usize, biased: impl FnOnce() -> bool) -> Published<M> {
        // A look at the bias first saves an atomic instruction.
        let filled = biased().then(|| Self::fill::<M>(Self::slot::<M>(lock), lock)).flatten();
        filled.map_or(Published::Nowhere, Published::In)
    }

    #[inline]
    unsafe fn publish_elsewhere(lock: usize, biased: impl FnOnce() -> bool) -> Option<&'static M::Usize> {
        let table = shared::visible_readers::<M>();
        let second = S::second::<M>(lock, table.len()).filter(|_| biased())?;
        Self::fill::<M>(&table[second], lock)
    }

    fn fence() {} // (B) the accesses themselves

    #[inline]
    unsafe fn of_caller(lock: usize) -> Option<&'static M::Usize> {
        let slot = Self::slot::<M>(lock);
        (slot.load(Relaxed) == lock).then_some(slot)
    }

    #[inline]
    unsafe fn all_slots_of(lock: usize, mut each: impl FnMut(&'static M::Usize) -> bool) -> bool {
        let mut table = shared::visible_readers::<M>();
        if let Some((column, row)) = S::column::<M>(lock, table.len()) {
            let mut slots = table[column..].iter().step_by(row);
            return slots.all(|slot| slot.load(SeqCst) != lock || each(slot));
        }
        while let Some(at) = M::find(table, lock) {
            if !each(&table[at]) {
                return false;
            }
            table = &table[at + 1..];
        }
        true
    }
}
