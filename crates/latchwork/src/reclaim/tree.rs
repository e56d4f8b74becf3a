//! A tree of readers: a thread that has announced a quiescent state says so for other threads, too.
//!
//! Source: the tree of the Linux kernel's RCU (McKenney, "Hierarchical RCU", LWN 2008), and combining trees (Yew, Tzeng,
//! Lawrie 1987). There, threads count each other with atomic instructions on words that they share. Here each thread
//! writes to its own word alone, and looks at the words of the threads below it.
//!
//! The records of a group form a heap with four children each. A thread that has reached a time looks at its children in
//! its quiescent states, until each of them *vouches*: says that it, and all threads below it, have reached that time.
//! Then the thread vouches as well. The leader of a grace period looks at the first thread of each group. It looks at
//! all of the group only if the first thread does not vouch, because that thread may be offline, or may have announced
//! nothing for long. So no thread waits for the tree.
//!
//! State of a record's `online`: stamped (time) -> vouches (the same, and a bit) -> stamped (a later time).
//! Per grace period and thread: one store, and a look at up to four lines; no atomics.

use super::grace::is_at_least;
use crate::machine::record::{NEEDS_FULL_FENCE, NESTING, Record};
use crate::machine::{Group, Machine, Word};
use core::sync::atomic::Ordering::*;

/// Children of a thread.
const CHILDREN: usize = 4;

/// The bit of a reader's word that says that the thread vouches. (Readers of QSBR have no light fences, so they do not
/// need the bit's other meaning.)
pub(super) const ALL: u64 = NEEDS_FULL_FENCE;

/// Whether the owner of this word says that it, and all threads below it, have reached `time`. That stays true when the
/// owner goes offline, or exits; until half of all times have passed. Then the word is later than the clock.
/// `clock` looks at the clock: what it said a moment ago may deny what the word says, and never the other way round.
pub(super) fn vouches(word: u64, time: u64, clock: &impl Fn() -> u64) -> bool {
    word & ALL != 0 && is_at_least(word, time) && is_at_least(clock(), word)
}

/// Whether all threads below `parent` have reached `time`. The caller has seen that time on the clock, and has issued a
/// full fence since then.
pub(super) fn reached<M: Machine>(
    group: &'static Group<M, Record<M>>,
    parent: usize,
    time: u64,
    clock: &impl Fn() -> u64,
) -> bool {
    below(group.entries(), group.owners(), parent, time, clock)
}

fn below<M: Machine>(
    records: &'static [Record<M>],
    owned: u32,
    parent: usize,
    time: u64,
    clock: &impl Fn() -> u64,
) -> bool {
    let first = CHILDREN * parent + 1;
    let mut children = first..records.len().min(first + CHILDREN);
    children.all(|child| {
        // (E) pairs with the stores of that thread: its sections, and those of the threads below it, happen before.
        let word = if owned & 1 << child == 0 { 0 } else { records[child].online.load(Acquire) };
        // A thread that is offline does not vouch for those below it. What it reads next, it reads at a later time.
        vouches(word, time, clock) || word & NESTING == 0 && below(records, owned, child, time, clock)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;
    use crate::machine::record::{STEP, TIME};
    use std::boxed::Box;

    const NOW: u64 = (7 * STEP) | 1;
    const BEFORE: u64 = (6 * STEP) | 1;

    /// Nine records, all owned but those in `exited`; the words of those in `words`, offline else.
    fn group(exited: &[usize], words: &[(usize, u64)]) -> &'static Group<Native, Record<Native>> {
        let records: Box<[Record<Native>]> = (0..9).map(|_| Record::new()).collect();
        words.iter().for_each(|&(place, word)| records[place].online.store(word, Relaxed));
        let owned = exited.iter().fold((1 << 9) - 1, |owned, place| owned & !(1 << place));
        Box::leak(Box::new(Group::new(Box::leak(records), owned, None)))
    }

    #[test]
    fn a_thread_vouches_when_all_below_it_have_reached_the_time() {
        let reached = |words: &[(usize, u64)], parent| reached(group(&[], words), parent, NOW, &|| NOW);
        assert!(reached(&[], 0), "all are offline");
        assert!(reached(&[(0, BEFORE)], 0), "it is not asked about itself");
        for child in 1..=4 {
            assert!(!reached(&[(child, BEFORE)], 0), "{child} is in the way");
            assert!(!reached(&[(child, NOW)], 0), "{child} has to look at those below it");
            assert!(!reached(&[(child, BEFORE | ALL)], 0), "{child} vouched for an earlier time");
            assert!(reached(&[(child, NOW | ALL)], 0) && reached(&[(child, (NOW | ALL) + 1)], 0));
        }
        assert!(!reached(&[(8, BEFORE)], 0) && !reached(&[(5, NOW)], 0), "the first child is offline");
        assert!(reached(&[(1, (NOW | ALL) - 1), (8, BEFORE)], 0), "and has vouched for them before");
        assert!(!reached(&[(8, BEFORE)], 1) && reached(&[(8, BEFORE)], 2));
    }

    /// Half of all times later, the word of a thread that is offline says nothing any more.
    #[test]
    fn an_old_word_does_not_vouch() {
        let late = NOW.wrapping_add(TIME / 2 + 2 * STEP);
        assert!(is_at_least(NOW, late), "the word seems to be later");
        assert!(!vouches(NOW | ALL, late, &|| late) && vouches(late | ALL, late, &|| late));
    }

    #[test]
    fn who_has_exited_is_not_in_the_way_but_those_below_are() {
        assert!(reached(group(&[1, 2], &[(1, BEFORE), (2, BEFORE)]), 0, NOW, &|| NOW));
        assert!(!reached(group(&[1], &[(6, BEFORE)]), 0, NOW, &|| NOW));
    }
}
