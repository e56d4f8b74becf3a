//! Pairs are estimates, from a part of the waits. The sums of a class are exact, so the pairs are made to agree with them.

use super::{Cause, Class, Kind, Pair};

/// Multiplies the pairs of each class by one factor, so that the waits of all its waiters add up to the exact sum.
pub(super) fn calibrate(pairs: &mut Vec<Pair>, classes: &[Class]) {
    // Those of a class come together, and in them those of a waiter.
    pairs.sort_by_key(|pair| (pair.class, pair.waiter));
    let mut looked_at = vec![false; classes.len()];
    for own in pairs.chunk_by_mut(|one, other| one.class == other.class) {
        let number = own[0].class;
        if is_lock(&classes[number]) {
            looked_at[number] = agree(own, &classes[number]);
        } else {
            looked_at[number] = true;
        }
    }
    pairs.retain(|pair| looked_at[pair.class]);
    for (number, class) in classes.iter().enumerate() {
        let (waits, nanos) = (class.counters.contended, class.counters.wait_nanos);
        if is_lock(class) && !looked_at[number] && (waits, nanos) != (0, 0) {
            let unknown = |cause| Pair { class: number, waiter: 0, cause, waits, nanos };
            pairs.extend([unknown(Cause::Whole), unknown(Cause::Unknown)]);
        }
    }
}

/// Waits for conditions and units are all in the pairs.
fn is_lock(class: &Class) -> bool {
    !matches!(class.kind, Kind::Condvar | Kind::Semaphore)
}

fn is_whole(pair: &Pair) -> bool {
    pair.cause == Cause::Whole
}

/// Makes the pairs of one class agree with its sums. `false`: none of its waits was looked at closely.
fn agree(own: &mut [Pair], class: &Class) -> bool {
    let exact = (class.counters.contended, class.counters.wait_nanos);
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
    use super::super::Counters;
    use super::*;

    fn class(contended: u64, wait_nanos: u64) -> Class {
        Class {
            kind: Kind::Mutex,
            birth: 0,
            instances: 1,
            address: 0,
            name: String::new(),
            own: false,
            counters: Counters { contended, wait_nanos, ..Counters::default() },
            waits: Vec::new(),
            holds: Vec::new(),
            objects: Vec::new(),
        }
    }

    fn pair(class: usize, waiter: usize, cause: Cause, waits: u64, nanos: u64) -> Pair {
        Pair { class, waiter, cause, waits, nanos }
    }

    #[test]
    fn pairs_add_up_to_the_exact_sums() {
        let classes = [class(1000, 1_000_001), class(7, 70), class(3, 30)];
        let mut pairs = vec![
            pair(0, 1, Cause::Whole, 400, 600_000),
            pair(0, 1, Cause::Holder(3), 300, 500_000),
            pair(0, 1, Cause::Handover, 400, 100_000),
            pair(0, 2, Cause::Whole, 400, 300_000),
            pair(0, 2, Cause::Holder(3), 400, 300_000),
            // All waits of this class are in the pairs.
            pair(1, 1, Cause::Whole, 7, 70),
            pair(1, 1, Cause::Unknown, 7, 70),
        ];
        let before = pairs.clone();
        calibrate(&mut pairs, &classes);
        let sum = |class, is: fn(Cause) -> bool| {
            let own = pairs.iter().filter(|pair| pair.class == class && is(pair.cause));
            own.fold((0, 0), |sum, pair| (sum.0 + pair.waits, sum.1 + pair.nanos))
        };
        assert_eq!(sum(0, |cause| cause == Cause::Whole), (1000, 1_000_001));
        assert_eq!(sum(0, |cause| cause != Cause::Whole).1, 1_000_001);
        assert_eq!(pairs[0].nanos, 666_667 + 1);
        assert_eq!(pairs[5..7], before[5..7]);
        // No wait of this class was looked at closely.
        assert_eq!(pairs[7], pair(2, 0, Cause::Whole, 3, 30));
        assert_eq!(pairs[8], pair(2, 0, Cause::Unknown, 3, 30));
    }
}
