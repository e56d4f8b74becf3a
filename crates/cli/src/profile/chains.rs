//! Chains: threads wait for lock A, and the holder of A waits for lock B.
//!
//! A recording does not say which locks a waiting thread holds. A chain is therefore concluded from the code: a thread
//! acquired lock A in a function, and a thread waits for lock B in the same call of that function, further down in its
//! text. That thread may have released A before. The report says so.

use super::model::{Profile, StackId};
use super::symbols::wrappers;

/// More would hide the long ones.
const MOST: usize = 20;

/// Locks, and stacks of each, that are looked at: those that cost most. A chain of others costs little.
const LOOKED_AT: usize = 50;

/// Threads that wait for `outer`, because its holder probably waits for `inner`.
#[derive(Debug, PartialEq)]
pub struct Chain {
    /// A number in [`Profile::locks`].
    pub outer: usize,
    /// Where its holder acquired it.
    pub holder: StackId,
    /// A number in [`Profile::locks`].
    pub inner: usize,
    /// Where the holder of `outer` waits for it.
    pub waiter: StackId,
    /// At most so much of the waiting for `outer` comes from waiting for `inner`.
    pub at_most_ns: u64,
}

/// The chains that may cost most, longest first.
pub fn chains(profile: &Profile) -> Vec<Chain> {
    let mut chains = Vec::new();
    let locks = || profile.locks.iter().enumerate().take(LOOKED_AT);
    for (outer, of_outer) in locks() {
        for holder in of_outer.holders.iter().take(LOOKED_AT) {
            for (inner, of_inner) in locks().filter(|(inner, _)| *inner != outer) {
                for waiter in of_inner.waiters.iter().take(LOOKED_AT) {
                    let at_most_ns = holder.caused_wait_ns.min(waiter.wait_ns);
                    if at_most_ns > 0 && is_below(profile, holder.stack, waiter.stack) {
                        chains.push(Chain {
                            outer,
                            holder: holder.stack,
                            inner,
                            waiter: waiter.stack,
                            at_most_ns,
                        });
                    }
                }
            }
        }
    }
    chains.sort_by_key(|chain| std::cmp::Reverse(chain.at_most_ns));
    chains.truncate(MOST);
    chains
}

/// Whether `waiter` is the stack of a call that the function which names `holder` made further down.
fn is_below(profile: &Profile, holder: StackId, waiter: StackId) -> bool {
    let (Some(of_holder), Some(of_waiter)) = (profile.stacks.get(holder), profile.stacks.get(waiter)) else {
        return false;
    };
    let naming = wrappers::naming(of_holder, &profile.frames);
    let callers = of_holder.len().saturating_sub(naming + 1);
    // The same callers all the way up; and the stack has to reach so far that this means something.
    let Some(at) = of_waiter.len().checked_sub(callers + 1) else { return false };
    if callers == 0 || of_waiter[at + 1..] != of_holder[naming + 1..] {
        return false;
    }
    let (holds, waits) = (&profile.frames[of_holder[naming]], &profile.frames[of_waiter[at]]);
    holds.function == waits.function
        && holds.file == waits.file
        && (holds.line == 0 || holds.line < waits.line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::model::{Class, Holder, Interner, Waiter};
    use crate::profile::symbols::Frame;

    #[test]
    fn a_holder_that_waits_further_down_makes_a_chain() {
        let mut interner = Interner::default();
        let mut stack = |functions: &[(&str, u32)]| {
            let frame = |(function, line): &(&str, u32)| Frame {
                function: (*function).into(),
                line: *line,
                ..Frame::default()
            };
            interner.stack(functions.iter().map(frame).collect())
        };
        let holder = stack(&[("std::mutex::lock", 1), ("work", 10), ("main", 1)]);
        let below = stack(&[("log", 5), ("work", 12), ("main", 1)]);
        let above = stack(&[("log", 5), ("work", 8), ("main", 1)]);
        let elsewhere = stack(&[("log", 5), ("work", 12), ("main", 2)]);
        let class = |holders: &[StackId], waiters: &[StackId]| Class {
            holders: holders
                .iter()
                .map(|stack| Holder { stack: *stack, waits: 1, caused_wait_ns: 100, ..Holder::default() })
                .collect(),
            waiters: waiters
                .iter()
                .map(|stack| Waiter { stack: *stack, count: 1, wait_ns: 70, ..Waiter::default() })
                .collect(),
            ..Class::default()
        };
        let locks = vec![class(&[holder], &[below]), class(&[], &[above, elsewhere, below])];
        let profile =
            Profile { locks, frames: interner.frames, stacks: interner.stacks, ..Profile::default() };
        assert_eq!(chains(&profile), [Chain { outer: 0, holder, inner: 1, waiter: below, at_most_ns: 70 }]);
    }
}
