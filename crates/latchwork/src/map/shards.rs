//! The shards of a map, of which there are the more the more its updaters meet.
//!
//! Source: Fagin, Nievergelt, Pippenger and Strong, "Extendible Hashing: A Fast Access Method for Dynamic Files", TODS 1979:
//! a directory of 2^g entries names the shards. A shard of depth d has the keys whose hashes have its d lowest bits, so
//! 2^(g-d) entries name it. To split a shard, a thread holds the shard's lock alone: it moves half of the elements' numbers
//! to a new shard, and changes the entries. If d is g, it doubles the directory first. Elements stay where they are. The new
//! shard is locked as well until all entries have changed, so no update of either half ends before.
//!
//! Beyond the paper: an update asks for its bucket's cache line before it takes the shard's lock (`docs/maps.md` has what that is worth).
//!
//! Readers find a shard's buckets in the directory, and the shard itself only when they update. Directories that were
//! replaced are kept until the map ends, so updaters need no section to find a shard: they have at most half of the bytes
//! of the present one.
//!
//! State of a shard: one for the whole map -> split (a shard and its sibling) -> ... A shard is never merged, and freed with
//! the map.
//!
//! What pairs with what: (D) a thread publishes buckets, shards and directories (release), and readers and updates load them
//! (acquire).
//!
//! Size: 128 bytes for a shard, and 16 for each entry of the directory.

use super::array::Array;
use super::elements::Numbers;
use super::lines::{Line, Lines};
use super::under;
use crate::locks::mutex::RawMutex;
use crate::machine::{Arith, Machine, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What a shard's heat rises by when a thread had to wait for its lock, times the square of the number of threads that have
/// been waiting, this one included. It falls by 1 when a thread had not to wait: so a shard gets hot if more than one
/// acquisition in 16 waits.
///
/// Why the square: a thread that has just released the lock may take it again before the waiters do, for a millisecond. Then
/// few long waits stand beside thousands of acquisitions that do not wait. One waiter, or two, lose nothing by that: the one
/// thread has all lines in its cache, and does as many updates as two or three do that take the lines from each other. More
/// waiters would do more updates in shards of their own.
const RISE: u32 = 16;
/// At this heat a shard is split: after 16 to 32 threads had to wait, or when four wait at a time.
const HOT: u32 = 16 * RISE;

/// A part of the map: what updaters use.
#[repr(C, align(64))]
pub struct Shard<L: RawMutex, T: Send + Sync + 'static> {
    /// The lock of the shard's updates.
    pub lock: L,
    /// How many elements there are. Changed under the lock.
    pub count: <L::Machine as Machine>::Usize,
    /// How many threads have begun to wait for the lock. Wraps around.
    came: <L::Machine as Machine>::U32,
    /// The holder of the lock, while it may run functions of the program that update the map by mistake; else 0.
    busy: <L::Machine as Machine>::Usize,
    own: UnsafeCell<Own<L, T>>,
}

/// What a shard's lock guards.
pub struct Own<L: RawMutex, T: Send + Sync + 'static> {
    /// The buckets; as in the directory.
    word: *mut Line<L::Machine>,
    /// How many spare lines of the buckets are in use.
    pub spare: usize,
    /// How many threads had to wait for the lock lately, see [`RISE`].
    heat: u32,
    /// How many threads have waited for the lock, and got it. Wraps around.
    served: u32,
    /// The lowest bits of the hashes of its keys; how many bits is in the word of the buckets.
    prefix: u32,
    /// For elements that come and go.
    pub numbers: Numbers<L, T>,
}

// SAFETY: `own` is used under the lock alone; its contents may be used by any thread.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Shard<L, T> {}
// SAFETY: a shard owns its buckets and batches, which are `Send`.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Shard<L, T> {}

/// An entry of the directory.
struct Entry<L: RawMutex, T: Send + Sync + 'static> {
    buckets: <L::Machine as Machine>::Ptr<Line<L::Machine>>,
    shard: <L::Machine as Machine>::Ptr<Shard<L, T>>,
}

/// The shards, and the directory.
pub struct Shards<L: RawMutex, T: Send + Sync + 'static> {
    /// The first entry; in the 7 lowest bits, the binary logarithm of the number of entries.
    directory: <L::Machine as Machine>::Ptr<Entry<L, T>>,
    /// The rest, which readers do not use.
    rest: Box<Rest<L, T>>,
}

/// What changes the directory.
struct Rest<L: RawMutex, T: Send + Sync + 'static> {
    /// A thread that changes entries holds this lock.
    lock: L,
    /// Twice the number of splits; odd during one.
    version: <L::Machine as Machine>::U64,
    /// All directories: the last one is in use.
    all: UnsafeCell<Vec<Array<Entry<L, T>>>>,
    /// Bits of the hash that choose a shard, at most.
    deepest: u32,
}

// SAFETY: `all` is used under the lock alone, or when no other thread uses the map.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Rest<L, T> {}
// SAFETY: the directories hold words, which any thread may use.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Rest<L, T> {}

/// Bits of the word that say how many entries there are. Directories begin at a multiple of 128 bytes.
const SIZE: usize = 0x7f;

/// The directory at a moment.
struct Directory<'a, L: RawMutex, T: Send + Sync + 'static>(&'a [Entry<L, T>]);

/// A shard whose lock the calling thread holds, until this is dropped.
pub struct Held<'a, L: RawMutex, T: Send + Sync + 'static> {
    shard: &'a Shard<L, T>,
    token: L::Token,
    alone: core::marker::PhantomData<*mut ()>,
}

impl<L: RawMutex, T: Send + Sync + 'static> Drop for Held<'_, L, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the token is from the acquisition in `hold`, and this is dropped once.
        unsafe { self.shard.lock.unlock(self.token) }
    }
}

impl<'a, L: RawMutex, T: Send + Sync + 'static> Held<'a, L, T> {
    #[inline(always)]
    fn hold(shard: &'a Shard<L, T>) -> Self {
        let Some(token) = shard.lock.try_lock() else { return Self::wait(shard) };
        let mut held = Held { shard, token, alone: core::marker::PhantomData };
        let own = held.own();
        own.heat = own.heat.saturating_sub(1);
        held
    }

    #[cold]
    #[inline(never)]
    fn wait(shard: &'a Shard<L, T>) -> Self {
        // No other thread stores this thread's number, so it is there only if this thread holds the lock.
        let own = shard.busy.load(Relaxed) == L::Machine::thread_id();
        assert!(
            !own,
            "a map is updated by a closure of one of its updates, or while the thread has an entry of it"
        );
        shard.came.fetch_add(1, Relaxed);
        let mut held = Held { shard, token: shard.lock.lock(), alone: core::marker::PhantomData };
        // At least 1: the lock orders the additions of those that have been served, and this thread has added itself.
        let waiting = shard.came.load(Relaxed).wrapping_sub(held.own().served);
        let own = held.own();
        own.served = own.served.wrapping_add(1);
        own.heat = own.heat.saturating_add(RISE.saturating_mul(waiting.saturating_mul(waiting)));
        held
    }

    /// The same, for a function that takes a reference: the caller's own then stays in a register. It does not release the lock.
    ///
    /// # Safety
    ///
    /// As long as the copy is used, the lock is held, and `self` is not used.
    #[inline(always)]
    pub unsafe fn copy(&self) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Held { shard: self.shard, token: self.token, alone: self.alone })
    }

    /// What the lock guards.
    #[inline(always)]
    pub fn own(&mut self) -> &mut Own<L, T> {
        // SAFETY: this thread holds the lock, and borrows what it guards with `self`.
        unsafe { &mut *self.shard.own.get() }
    }

    /// The buckets, which do not change while the lock is held.
    #[inline(always)]
    pub fn lines<'h>(&'h self) -> Lines<'h, L::Machine>
    where
        'a: 'h,
    {
        // SAFETY: this thread holds the lock, and with it the buckets are not replaced.
        unsafe { Lines::from_word((*self.shard.own.get()).word) }
    }

    /// The buckets, without the borrow.
    ///
    /// # Safety
    ///
    /// They are used as long as the lock is held and they have not been replaced.
    #[inline(always)]
    pub unsafe fn lines_now<'m>(&self) -> Lines<'m, L::Machine> {
        // SAFETY: this thread holds the lock, and with it the buckets are not replaced.
        unsafe { Lines::from_word((*self.shard.own.get()).word) }
    }

    /// Whether threads have had to wait for the lock so often that the shard should be split.
    #[inline(always)]
    pub fn is_hot(&mut self) -> bool {
        self.own().heat >= HOT
    }

    /// Says that this thread may run functions of the program under the lock, or does so no more.
    pub fn set_busy(&self, busy: bool) {
        self.shard.busy.store(if busy { L::Machine::thread_id() } else { 0 }, Relaxed);
    }

    /// Forgets that threads had to wait.
    pub fn cool(&mut self) {
        self.own().heat = 0;
    }

    /// A hash of the shard.
    pub fn prefix(&mut self) -> u64 {
        self.own().prefix.into()
    }

    /// How many elements there are.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.shard.count.load(Relaxed)
    }

    /// Sets how many elements there are.
    #[inline(always)]
    pub fn set_count(&self, count: usize) {
        // Release: if the thread has just split the shard, a thread that sees this count sees that the version was odd.
        self.shard.count.store(count, Release);
    }

    /// Whether keys with this hash are in the shard.
    #[inline(always)]
    fn has(&mut self, hash: u64) -> bool {
        let own = self.own();
        // SAFETY: the shard's buckets are not freed while the lock is held.
        let depth = unsafe { Lines::<L::Machine>::from_word(own.word) }.depth();
        (hash as u32 ^ own.prefix) & ((1 << depth) - 1) == 0
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Entry<L, T> {
    fn new(buckets: *mut Line<L::Machine>, shard: *mut Shard<L, T>) -> Self {
        Entry { buckets: Word::new(buckets), shard: Word::new(shard) }
    }

    /// The buckets.
    ///
    /// # Safety
    ///
    /// They are not freed during `'a`.
    #[inline(always)]
    unsafe fn lines<'a>(&self) -> Lines<'a, L::Machine> {
        // (D) pairs with the store in `publish`. SAFETY: the caller promises that they are not freed.
        unsafe { Lines::from_word(self.buckets.load(Acquire)) }
    }

    #[inline(always)]
    fn shard(&self) -> &Shard<L, T> {
        // (D) pairs with the store in `publish`. SAFETY: shards are freed with the map.
        unsafe { &*self.shard.load(Acquire) }
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Shard<L, T> {
    fn make(lines: Lines<'_, L::Machine>, prefix: u32, count: usize, spare: usize) -> *mut Self {
        let (heat, served) = (0, 0);
        let own = Own { word: lines.into_word(), spare, heat, served, prefix, numbers: Numbers::new() };
        Box::into_raw(Box::new(Shard {
            lock: L::new_in(),
            count: Word::new(count),
            came: Word::new(0),
            busy: Word::new(0),
            own: UnsafeCell::new(own),
        }))
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Shards<L, T> {
    /// 2^`depth` empty shards with `buckets` buckets each, and not more than 2^`deepest` later.
    pub fn new(depth: u32, deepest: u32, buckets: usize) -> Self {
        assert!(depth <= deepest && deepest < 32, "more shards than hashes");
        let entries = Array::new(1 << depth, |prefix| {
            let lines = Lines::make(buckets, depth);
            Entry::new(lines.into_word(), Shard::make(lines, prefix as u32, 0, 0))
        });
        let rest =
            Rest { lock: L::new_in(), version: Word::new(0), all: UnsafeCell::new(Vec::new()), deepest };
        let shards = Shards { directory: Word::new(core::ptr::null_mut()), rest: Box::new(rest) };
        // SAFETY: no other thread has the shards.
        unsafe { shards.install(entries) };
        shards
    }

    /// Makes `entries` the directory.
    ///
    /// # Safety
    ///
    /// No other thread changes the directory: the caller holds the lock, or has the shards alone.
    unsafe fn install(&self, entries: Array<Entry<L, T>>) {
        let word = entries.pointer(0).map_addr(|address| address | entries.len().ilog2() as usize);
        // SAFETY: no other thread changes the directory, says the caller.
        unsafe { (*self.rest.all.get()).push(entries) };
        // (D) A thread that sees the directory sees the entries.
        self.directory.store(word, Release);
    }

    /// The directory now.
    #[inline(always)]
    fn directory(&self) -> Directory<'_, L, T> {
        // (D) pairs with the store in `install`.
        let word = self.directory.load(Acquire);
        let first = word.map_addr(|address| address & !SIZE);
        // SAFETY: `install` stored the first entry and the number of entries. Directories are freed with the map.
        Directory(unsafe { core::slice::from_raw_parts(first, 1 << (word.addr() & SIZE)) })
    }

    /// The buckets of a hash.
    ///
    /// # Safety
    ///
    /// The caller is in a section of RCU that lasts for `'g`.
    #[inline(always)]
    pub unsafe fn lines<'g>(&'g self, hash: u64) -> Lines<'g, L::Machine> {
        // SAFETY: buckets are retired after others have been published, so the section protects those that it finds.
        unsafe { self.directory().entry(hash).lines() }
    }

    /// Locks the shard of a hash.
    #[inline(always)]
    pub fn lock(&self, hash: u64) -> Held<'_, L, T> {
        loop {
            let entry = self.directory().entry(hash);
            // The line of the bucket comes while the lock is taken. Its atomic instruction lets no later load begin before it ends.
            L::Machine::prefetch(|| Lines::address(entry.buckets.load(Relaxed), hash));
            let mut held = Held::hold(entry.shard());
            // Else the shard has been split meanwhile, and the hash is its sibling's.
            if held.has(hash) {
                return held;
            }
        }
    }

    /// Bits of the hash that choose a shard, at most.
    pub fn deepest(&self) -> u32 {
        self.rest.deepest
    }

    /// Gives a shard other buckets of the same depth. Returns the previous ones, which the caller retires.
    pub fn replace(
        &self,
        held: &mut Held<'_, L, T>,
        new: Lines<'_, L::Machine>,
        spare: usize,
    ) -> Lines<'static, L::Machine> {
        let own = held.own();
        let old = core::mem::replace(&mut own.word, new.into_word());
        own.spare = spare;
        let (prefix, depth) = (own.prefix, new.depth());
        under(&self.rest.lock, || self.publish(prefix, depth, new, None));
        // SAFETY: the caller retires them, so they are freed after that.
        unsafe { Lines::from_word(old) }
    }

    /// Sets the entries with this prefix. The caller holds the lock of the directory.
    fn publish(
        &self,
        prefix: u32,
        depth: u32,
        buckets: Lines<'_, L::Machine>,
        shard: Option<*mut Shard<L, T>>,
    ) {
        for entry in self.directory().0[prefix as usize..].iter().step_by(1 << depth) {
            // (D) A thread that sees the buckets or the shard sees what is in them. The shard first: an updater that finds
            // the wrong one looks again, and readers use the buckets alone.
            if let Some(shard) = shard {
                entry.shard.store(shard, Release);
            }
            entry.buckets.store(buckets.into_word(), Release);
        }
    }

    /// Splits a shard in two. The shard whose lock is held keeps the half with `hash`. `halves` are the new buckets of each
    /// half, one bit deeper, with the number of elements and of spare lines in use. Returns the previous buckets, which the
    /// caller retires.
    pub fn split(
        &self,
        held: &mut Held<'_, L, T>,
        hash: u64,
        halves: [(Lines<'_, L::Machine>, usize, usize); 2],
    ) -> Lines<'static, L::Machine> {
        let depth = halves[0].0.depth();
        let bit = 1 << (depth - 1);
        let [lower, upper] = [held.own().prefix, held.own().prefix | bit];
        let (mine, other) = if hash as u32 & bit == 0 { (lower, upper) } else { (upper, lower) };
        let of = |prefix: u32| &halves[usize::from(prefix == upper)];
        let (lines, count, spare) = of(other);
        let sibling = Shard::make(*lines, other, *count, *spare);
        // The sibling is locked as well, until all entries have changed: so both halves are in the previous buckets what they
        // are in the new ones, and no thread finds the sibling, updates it, and then misses that in the previous buckets.
        // SAFETY: shards are freed with the map.
        let sibling_held = Held::hold(unsafe { &*sibling });
        under(&self.rest.lock, || {
            let version = self.rest.version.fetch_add(1, Acquire);
            let now = self.directory().0;
            if now.len() < 1 << depth {
                let copy = |at: usize| {
                    let entry = &now[at & (now.len() - 1)];
                    Entry::new(entry.buckets.load(Relaxed), entry.shard.load(Relaxed))
                };
                // SAFETY: this thread holds the lock.
                unsafe { self.install(Array::new(now.len() * 2, copy)) };
            }
            // Release: a thread that sees this count sees that the version is odd.
            held.shard.count.store(of(mine).1, Release);
            // The upper half first: a walk that has met the lower half in its new buckets goes on with the upper half in
            // its new ones, and not with the previous buckets, which have both (see `after`).
            for (prefix, half) in [(upper, halves[1].0), (lower, halves[0].0)] {
                self.publish(prefix, depth, half, (prefix == other).then_some(sibling));
            }
            // Release: a thread that sees the new version sees the new counts.
            self.rest.version.store(version + 2, Release);
        });
        drop(sibling_held);
        let (lines, _, spare) = of(mine);
        let own = held.own();
        (own.prefix, own.spare, own.heat) = (mine, *spare, 0);
        // SAFETY: the caller retires them, so they are freed after that.
        unsafe { Lines::from_word(core::mem::replace(&mut own.word, lines.into_word())) }
    }

    /// The shards at a moment: the entries of the directory that are each shard's first.
    fn all(&self) -> impl Iterator<Item = &Shard<L, T>> {
        let entries = self.directory().0;
        let first = |at: &usize| {
            // SAFETY: the depth is in the word, and the lines are not looked at.
            let depth = unsafe { entries[*at].lines() }.depth();
            *at < 1 << depth
        };
        (0..entries.len()).filter(first).map(|at| entries[at].shard())
    }

    /// How many elements there are. Splits do not disturb this; it may miss, or count, what comes or goes meanwhile.
    pub fn count(&self) -> usize {
        let sum = || self.all().map(|shard| shard.count.load(Acquire)).sum();
        // Acquire: pairs with the last store of the version in `split`.
        let version = self.rest.version.load(Acquire);
        let count = sum();
        if version.is_multiple_of(2) && self.rest.version.load(Relaxed) == version {
            return count;
        }
        // The lock keeps splits out. (To look again and again would wait for a thread that may have been preempted.)
        under(&self.rest.lock, sum)
    }

    /// Calls `each` with every shard, locked. Shards that are split meanwhile are met in both halves.
    pub fn each(&self, mut each: impl FnMut(Held<'_, L, T>)) {
        let mut at = Some(0);
        while let Some(prefix) = at {
            let held = self.lock(prefix);
            at = after(prefix, held.lines().depth());
            each(held);
        }
    }

    /// The buckets of all shards: all elements that are there during the whole section are in one of them, once.
    ///
    /// # Safety
    ///
    /// The caller is in a section of RCU that lasts for `'g`.
    pub unsafe fn all_lines<'g>(&'g self) -> impl Iterator<Item = Lines<'g, L::Machine>> + use<'g, L, T> {
        let mut at = Some(0);
        core::iter::from_fn(move || {
            let prefix = at?;
            // SAFETY: the caller is in a section.
            let lines = unsafe { self.lines(prefix) };
            at = after(prefix, lines.depth());
            Some(lines)
        })
    }

    /// Bytes of the directories and shards, and of their buckets.
    pub fn bytes(&self) -> usize {
        let mut bytes = size_of::<Rest<L, T>>();
        under(&self.rest.lock, || {
            // SAFETY: this thread holds the lock.
            let all = unsafe { &*self.rest.all.get() };
            bytes += all.iter().map(|entries| entries.len() * size_of::<Entry<L, T>>()).sum::<usize>();
        });
        self.each(|held| {
            bytes += size_of::<Shard<L, T>>() + held.lines().lines() * size_of::<Line<L::Machine>>()
        });
        bytes
    }

    /// Takes the shards apart: calls `each` with the buckets and the numbers in hand of every shard.
    pub fn take_apart(&mut self, mut each: impl FnMut(Lines<'static, L::Machine>, Numbers<L, T>)) {
        let shards: Vec<*const Shard<L, T>> = self.all().map(core::ptr::from_ref).collect();
        for shard in shards {
            // SAFETY: `make` made a box; the map ends, so no thread uses the shard, and `all` names each once.
            let own = unsafe { Box::from_raw(shard.cast_mut()) }.own.into_inner();
            // SAFETY: they are not freed before `each` frees them.
            each(unsafe { Lines::from_word(own.word) }, own.numbers);
        }
    }
}

impl<'a, L: RawMutex, T: Send + Sync + 'static> Directory<'a, L, T> {
    #[inline(always)]
    fn entry(&self, hash: u64) -> &'a Entry<L, T> {
        // SAFETY: the number of entries is a power of two.
        unsafe { self.0.get_unchecked(hash as usize & (self.0.len() - 1)) }
    }
}

/// The prefix after those of the shard that has `prefix` and this depth. Prefixes are walked in the order of their
/// reversed bits: then a shard that is split lies where it lay before, followed by its sibling, and a walk that has passed
/// a boundary between shards passes all of them later, and none that it has met before.
pub fn after(prefix: u64, depth: u32) -> Option<u64> {
    if depth == 0 {
        return None;
    }
    let reversed = (prefix & ((1 << depth) - 1)).reverse_bits();
    let next = reversed.checked_add(1 << (u64::BITS - depth))?;
    Some(next.reverse_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_walked_each_once_also_if_shards_are_split_meanwhile() {
        let all = |depth| core::iter::successors(Some(0), move |at| after(*at, depth));
        assert_eq!(all(0).collect::<Vec<_>>(), [0]);
        assert_eq!(all(3).collect::<Vec<_>>(), [0, 4, 2, 6, 1, 5, 3, 7]);
        // The shard of 2 has depth 2 when it is met, and the others 3.
        assert_eq!(after(2, 2), Some(1));
        assert_eq!(after(7, 3), None);
    }
}
