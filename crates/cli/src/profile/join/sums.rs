//! What is summed up by stack, for each lock and each condition.

use super::super::model::{Cause, Class, Error, Holder, Pair, StackId, Waiter};
use latchwork_recording::reader;
use std::collections::HashMap;

/// Nanoseconds by waiter and cause.
type PairSums = HashMap<(StackId, Cause), (u64, Error)>;

/// Waits and nanoseconds of a class.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) waiters: HashMap<StackId, Waiter>,
    holders: HashMap<StackId, Holder>,
    pairs: PairSums,
    /// Of waits for the mutex after a wait for a condition.
    reacquires: PairSums,
    handover_ns: u64,
}

impl Sums {
    pub(super) fn add(&mut self, pair: &reader::Pair, stacks: &[StackId]) {
        let (waiter, error) = (stacks[pair.waiter], Error(pair.error_nanos));
        if pair.cause == reader::Cause::Whole {
            let sums = self.waiters.entry(waiter).or_insert(Waiter { stack: waiter, ..Waiter::default() });
            sums.count += pair.waits;
            sums.wait_ns += pair.nanos;
            sums.error_ns = sums.error_ns.and(error);
            return;
        }
        let cause = cause(pair.cause, stacks);
        match cause {
            Cause::Holder(holder) => {
                let sums = self.holder(holder);
                sums.waits += pair.waits;
                sums.caused_wait_ns += pair.nanos;
                sums.error_ns = sums.error_ns.and(error);
            }
            Cause::Handover => self.handover_ns += pair.nanos,
            Cause::Others | Cause::Unknown | Cause::StillHeld => {}
        }
        add_pair(&mut self.pairs, pair, stacks);
    }

    /// A wait for the mutex, after a wait for a condition.
    pub(super) fn reacquire(&mut self, pair: &reader::Pair, stacks: &[StackId]) {
        add_pair(&mut self.reacquires, pair, stacks);
    }

    pub(super) fn holder(&mut self, stack: StackId) -> &mut Holder {
        self.holders.entry(stack).or_insert(Holder { stack, ..Holder::default() })
    }

    pub(super) fn finish(self, class: &mut Class) {
        class.handover_ns = self.handover_ns;
        class.waiters = waiters(self.waiters);
        class.holders = self.holders.into_values().collect();
        class
            .holders
            .sort_by_key(|holder| (std::cmp::Reverse((holder.caused_wait_ns, holder.hold_ns)), holder.stack));
        class.pairs = pairs(self.pairs);
        class.reacquire_pairs = pairs(self.reacquires);
    }
}

fn add_pair(sums: &mut PairSums, pair: &reader::Pair, stacks: &[StackId]) {
    let sum = sums.entry((stacks[pair.waiter], cause(pair.cause, stacks))).or_default();
    *sum = (sum.0 + pair.nanos, sum.1.and(Error(pair.error_nanos)));
}

fn pairs(sums: PairSums) -> Vec<Pair> {
    let pair = |((waiter, cause), (wait_ns, error_ns))| Pair { waiter, cause, wait_ns, error_ns };
    let mut pairs: Vec<_> = sums.into_iter().map(pair).collect();
    pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.wait_ns), pair.waiter, pair.cause));
    pairs
}

pub(super) fn waiters(sums: HashMap<StackId, Waiter>) -> Vec<Waiter> {
    let mut waiters: Vec<_> = sums.into_values().collect();
    waiters.sort_by_key(|waiter| (std::cmp::Reverse(waiter.wait_ns), waiter.stack));
    waiters
}

pub(super) fn cause(cause: reader::Cause, stacks: &[StackId]) -> Cause {
    match cause {
        reader::Cause::Holder(stack) => Cause::Holder(stacks[stack]),
        reader::Cause::Handover => Cause::Handover,
        reader::Cause::Others => Cause::Others,
        reader::Cause::Whole | reader::Cause::Unknown => Cause::Unknown,
        reader::Cause::StillHeld => Cause::StillHeld,
    }
}
