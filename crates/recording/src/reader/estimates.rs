//! Pairs are estimates, from a part of the waits. The sums of a class are exact, so the pairs are made to agree with them.

use super::sums::Sum;
use super::{Cause, Class, Counters, Pair};
use std::collections::HashMap;

/// The pairs from sums by class, waiter and cause: those of each class multiplied by one factor, so that the waits of all its
/// waiters add up to the exact sum. `exact`: the number of waits that a class's pairs are of, and their sum.
pub(super) fn calibrate(
    sums: HashMap<(usize, usize, Cause), Sum>,
    classes: &[Class],
    exact: impl Fn(&Counters) -> (u64, u64),
) -> Vec<Pair> {
    let pair = |(class, waiter, cause), sum: &Sum| Pair {
        class,
        waiter,
        cause,
        waits: sum.count,
        nanos: sum.nanos,
        error_nanos: 0,
    };
    let mut pairs: Vec<Pair> = sums.iter().map(|(key, sum)| pair(*key, sum)).collect();
    // Those of a class come together, and in them those of a waiter.
    pairs.sort_by_key(|pair| (pair.class, pair.waiter));
    let squares = |pair: &Pair| sums[&(pair.class, pair.waiter, pair.cause)].squares;
    add_errors(&mut pairs, squares);
    let mut looked_at = vec![false; classes.len()];
    for own in pairs.chunk_by_mut(|one, other| one.class == other.class) {
        let number = own[0].class;
        if classes[number].kind.is_lock() {
            looked_at[number] = agree(own, exact(&classes[number].counters));
        } else {
            looked_at[number] = true;
        }
    }
    pairs.retain(|pair| looked_at[pair.class]);
    for (number, class) in classes.iter().enumerate() {
        let (waits, nanos) = exact(&class.counters);
        // Waits for conditions and units are all in the pairs.
        if class.kind.is_lock() && !looked_at[number] && (waits, nanos) != (0, 0) {
            let unknown = |cause| Pair { class: number, waiter: 0, cause, waits, nanos, error_nanos: 0 };
            pairs.extend([unknown(Cause::Whole), unknown(Cause::Unknown)]);
        }
    }
    pairs
}

/// Sets the standard errors, before the pairs are multiplied.
///
/// A pair has a share *p* of its class's waiting, and only that share is an estimate: the whole is known. So what counts is how
/// far each chosen wait is from having that share: the variance is (1 - *p*)^2 times that of the pair's own sum, plus *p*^2
/// times that of the rest's. (The parts of one wait depend on each other; to take them as independent makes the error
/// larger, not smaller: the whole's variance has twice their covariance, and it stays with the rest.)
fn add_errors(pairs: &mut [Pair], squares: impl Fn(&Pair) -> u64) {
    for own in pairs.chunk_by_mut(|one, other| one.class == other.class) {
        let whole = own.iter().filter(|pair| is_whole(pair));
        let (nanos, variance) = whole.fold((0.0, 0.0), |sum: (f64, f64), pair| {
            (sum.0 + pair.nanos as f64, sum.1 + squares(pair) as f64)
        });
        for pair in own.iter_mut().filter(|_| nanos > 0.0) {
            let (share, own) = (pair.nanos as f64 / nanos, squares(pair) as f64);
            let rest = (variance - own).max(0.0);
            let variance = (1.0 - share).powi(2) * own + share.powi(2) * rest;
            pair.error_nanos = (variance.sqrt() * 1000.0) as u64;
        }
    }
}

fn is_whole(pair: &Pair) -> bool {
    pair.cause == Cause::Whole
}

/// Makes the pairs of one class agree with its sums. `false`: none of its waits was looked at closely.
fn agree(own: &mut [Pair], exact: (u64, u64)) -> bool {
    let estimated = own.iter().filter(|pair| is_whole(pair)).fold((0_u64, 0_u64), |sum, pair| {
        (sum.0.saturating_add(pair.waits), sum.1.saturating_add(pair.nanos))
    });
    if estimated == exact {
        return true;
    }
    if estimated.1 == 0 {
        return false;
    }
    for pair in own.iter_mut() {
        pair.waits = scale(pair.waits, exact.0, estimated.0);
        pair.nanos = scale(pair.nanos, exact.1, estimated.1);
        pair.error_nanos = scale(pair.error_nanos, exact.1, estimated.1);
    }
    // Rounding leaves a rest.
    spread(own.iter_mut().filter(|pair| is_whole(pair)).map(|pair| &mut pair.nanos), exact.1);
    spread(own.iter_mut().filter(|pair| is_whole(pair)).map(|pair| &mut pair.waits), exact.0);
    for of_waiter in own.chunk_by_mut(|one, other| one.waiter == other.waiter) {
        let whole = of_waiter.iter().filter(|pair| is_whole(pair)).map(|pair| pair.nanos).sum();
        spread(of_waiter.iter_mut().filter(|pair| !is_whole(pair)).map(|pair| &mut pair.nanos), whole);
    }
    true
}

fn scale(number: u64, exact: u64, estimated: u64) -> u64 {
    let product = u128::from(number) * u128::from(exact);
    product.checked_div(u128::from(estimated)).map_or(0, |scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// Makes numbers add up to a sum: the largest takes the difference.
fn spread<'a>(numbers: impl Iterator<Item = &'a mut u64>, sum: u64) {
    let mut now = 0_u64;
    let mut largest: Option<&mut u64> = None;
    for number in numbers {
        now = now.saturating_add(*number);
        if largest.as_ref().is_none_or(|largest| **largest < *number) {
            largest = Some(number);
        }
    }
    if let Some(largest) = largest {
        *largest = largest.saturating_add(sum.saturating_sub(now)).saturating_sub(now.saturating_sub(sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Kind;

    fn class(contended: u64, wait_nanos: u64) -> Class {
        let counters = Counters { contended, wait_nanos, ..Counters::default() };
        Class { instances: 1, counters, ..Class::new(Kind::Mutex) }
    }

    type Key = (usize, usize, Cause);

    fn exact(counters: &Counters) -> (u64, u64) {
        (counters.contended, counters.wait_nanos)
    }

    fn sum(count: u64, nanos: u64) -> Sum {
        Sum { count, nanos, squares: 0 }
    }

    fn of(pairs: &[Pair], (class, waiter, cause): Key) -> &Pair {
        let is = |pair: &&Pair| (pair.class, pair.waiter, pair.cause) == (class, waiter, cause);
        pairs.iter().find(is).expect("it is there")
    }

    #[test]
    fn pairs_add_up_to_the_exact_sums() {
        let classes = [class(1000, 1_000_001), class(7, 70), class(3, 30)];
        let pairs = calibrate(
            HashMap::from([
                ((0, 1, Cause::Whole), sum(400, 600_000)),
                ((0, 1, Cause::Holder(3)), sum(300, 500_000)),
                ((0, 1, Cause::Handover), sum(400, 100_000)),
                ((0, 2, Cause::Whole), sum(400, 300_000)),
                ((0, 2, Cause::Holder(3)), sum(400, 300_000)),
                // All waits of this class are in the pairs.
                ((1, 1, Cause::Whole), sum(7, 70)),
                ((1, 1, Cause::Unknown), sum(7, 70)),
            ]),
            &classes,
            exact,
        );
        let total = |class, is: fn(Cause) -> bool| {
            let own = pairs.iter().filter(|pair| pair.class == class && is(pair.cause));
            own.fold((0, 0), |sum, pair| (sum.0 + pair.waits, sum.1 + pair.nanos))
        };
        assert_eq!(total(0, |cause| cause == Cause::Whole), (1000, 1_000_001));
        assert_eq!(total(0, |cause| cause != Cause::Whole).1, 1_000_001);
        assert_eq!(of(&pairs, (0, 1, Cause::Whole)).nanos, 666_667 + 1);
        for cause in [Cause::Whole, Cause::Unknown] {
            let (seven, three) = (of(&pairs, (1, 1, cause)), of(&pairs, (2, 0, cause)));
            assert_eq!((seven.waits, seven.nanos), (7, 70));
            // No wait of this class was looked at closely.
            assert_eq!((three.waits, three.nanos), (3, 30));
        }
    }

    /// Two stacks wait, one three times as long in all as the other. Waits are chosen as the recorder does it, a thousand
    /// times: the estimates lie around the truth as far as their errors say.
    #[test]
    fn errors_are_those_of_a_thousand_recordings() {
        const WEIGHT: u32 = 50;
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32
        };
        let waits: Vec<(usize, u64)> =
            (0..20_000).map(|n| if n % 2 == 0 { (1, 15_000 + n) } else { (2, 2_000 + n / 2) }).collect();
        let truth = |stack| waits.iter().filter(|wait| wait.0 == stack).map(|wait| wait.1).sum::<u64>();
        let classes = [class(waits.len() as u64, truth(1) + truth(2))];
        let (mut square, mut errors, mut outside, mut bias) = (0.0, 0.0, 0, 0.0);
        for _ in 0..1000 {
            let mut sums = HashMap::new();
            for (stack, nanos) in &waits {
                if random().is_multiple_of(WEIGHT) {
                    for cause in [Cause::Whole, Cause::Unknown] {
                        let sum: &mut Sum = sums.entry((0, *stack, cause)).or_default();
                        sum.count += u64::from(WEIGHT);
                        sum.nanos += nanos * u64::from(WEIGHT);
                        sum.squares += crate::layout::squares(WEIGHT, *nanos);
                    }
                }
            }
            let pairs = calibrate(sums, &classes, exact);
            let first = of(&pairs, (0, 1, Cause::Whole));
            let difference = first.nanos as f64 - truth(1) as f64;
            square += difference * difference;
            bias += difference;
            errors += first.error_nanos as f64;
            outside += u32::from(difference.abs() > 2.0 * first.error_nanos as f64);
        }
        let (true_error, said) = ((square / 1000.0).sqrt(), errors / 1000.0);
        assert!((0.9..1.1).contains(&(said / true_error)), "{said} in place of {true_error}");
        assert!(bias.abs() / 1000.0 < true_error / 8.0, "{bias}");
        assert!((20..80).contains(&outside), "{outside} of 1000 outside of two errors");
    }
}
