//! The functions that hold the locks of a class, each over all of its stacks.

use super::model::{Cause, Class, Holder, Pair, Profile};
use std::collections::HashMap;

/// A function that holds a lock, over all stacks.
#[derive(Clone, Debug, Default)]
pub struct TopHolder {
    pub function: String,
    pub caused_wait_ns: u64,
    /// How many waits it had a part in.
    pub waits: u64,
    /// Its holds that were measured, and how long they took.
    pub holds: u64,
    /// See `holds`.
    pub hold_ns: u64,
    /// The weights of its stacks whose holds were measured, and the sum of their mean lengths times these.
    weight: f64,
    weighted_ns: f64,
}

impl TopHolder {
    /// How long it holds the lock at a time; or how long it kept each waiting thread waiting, if no hold was measured. A function may
    /// have short sections for which no thread waits beside a long one: each counts by the waiting, or the holding, that it has a part
    /// in.
    pub fn at_a_time_ns(&self) -> u64 {
        if self.weight > 0.0 {
            return (self.weighted_ns / self.weight).round() as u64;
        }
        let per_wait = self.caused_wait_ns.checked_div(self.waits).unwrap_or(0);
        self.hold_ns.checked_div(self.holds).unwrap_or(per_wait)
    }
}

impl Profile {
    /// The function in which most waiting for the class was caused.
    pub fn top_holder(&self, class: &Class) -> Option<TopHolder> {
        let by_cause = |first: &TopHolder, second: &TopHolder| {
            first.caused_wait_ns.cmp(&second.caused_wait_ns).then(second.function.cmp(&first.function))
        };
        let holders = self.holders(class, |holder| holder.caused_wait_ns);
        holders.filter(|holder| holder.caused_wait_ns > 0).max_by(by_cause)
    }

    /// The function whose measured holds took longest.
    pub fn longest_holder(&self, class: &Class) -> Option<TopHolder> {
        let by_holds = |first: &TopHolder, second: &TopHolder| {
            first.hold_ns.cmp(&second.hold_ns).then(second.function.cmp(&first.function))
        };
        self.holders(class, |holder| holder.hold_ns).max_by(by_holds)
    }

    /// The function that caused most of the other waiting at the places where calls gave up at their deadlines, as far as it is known.
    pub fn holder_at_deadlines(&self, class: &Class) -> Option<TopHolder> {
        let gave_up =
            |waiter| class.pairs.iter().any(|pair| pair.waiter == waiter && pair.cause == Cause::StillHeld);
        let (function, _) = self.top_cause(class.pairs.iter().filter(|pair| gave_up(pair.waiter)))?;
        self.holders(class, |holder| holder.caused_wait_ns).find(|holder| holder.function == function)
    }

    /// The function that held a mutex of the class for most of the time in which threads that had waited for a condition wanted it, and
    /// for how much of that.
    pub fn top_reacquire_holder(&self, class: &Class) -> Option<(String, u64)> {
        self.top_cause(class.reacquire_pairs.iter())
    }

    /// The function that caused most of the waiting of these pairs, and how much; of several, the first by name.
    fn top_cause<'a>(&self, pairs: impl Iterator<Item = &'a Pair>) -> Option<(String, u64)> {
        let mut sums: HashMap<String, u64> = HashMap::new();
        for pair in pairs {
            if let Cause::Holder(stack) = pair.cause {
                *sums.entry(self.function(stack)).or_default() += pair.wait_ns;
            }
        }
        sums.into_iter().max_by(|first, second| first.1.cmp(&second.1).then(second.0.cmp(&first.0)))
    }

    /// The functions that hold locks of the class. `weight`: what a stack's holds count for in [`TopHolder::at_a_time_ns`].
    pub fn holders(&self, class: &Class, weight: fn(&Holder) -> u64) -> impl Iterator<Item = TopHolder> {
        let mut sums: HashMap<String, TopHolder> = HashMap::new();
        for holder in &class.holders {
            let function = self.function(holder.stack);
            let sum = sums.entry(function).or_default();
            sum.caused_wait_ns += holder.caused_wait_ns;
            sum.waits += holder.waits;
            sum.holds += holder.holds;
            sum.hold_ns += holder.hold_ns;
            if let Some(mean) = holder.mean_hold_ns() {
                sum.weight += weight(holder) as f64;
                sum.weighted_ns += weight(holder) as f64 * mean as f64;
            }
        }
        sums.into_iter().map(|(function, sum)| TopHolder { function, ..sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function holds a lock shortly before it waits for a condition, and for long behind that.
    #[test]
    fn short_sections_do_not_hide_the_long_one_of_the_same_function() {
        let mut profile = crate::profile::sample::profile();
        let class = &mut profile.locks[0];
        let long = class.holders[0].clone();
        let short = Holder { stack: long.stack, holds: 1_000, hold_ns: 1_000_000, ..Holder::default() };
        class.holders = vec![long.clone(), short];
        let class = &profile.locks[0];
        assert_eq!(profile.top_holder(class).unwrap().at_a_time_ns(), long.mean_hold_ns().unwrap());
        let longest = profile.longest_holder(class).unwrap().at_a_time_ns();
        assert!(longest > long.mean_hold_ns().unwrap() * 9 / 10, "{longest}");
    }
}
