//! When a bias comes back.

use super::*;

#[test]
fn a_slow_reader_restores_the_bias_when_the_time_has_come() {
    let lock = Lock::new();
    let now = Native::now(Clock::Monotonic);
    // As many reads as it takes for one of them to look at the clock.
    let read = || {
        for _ in 0..WARM_UP {
            // SAFETY: the token is from the acquisition in the same expression.
            unsafe { lock.unlock_read(lock.read()) };
        }
        lock.is_biased()
    };
    lock.bias.store(Bias(inhibit(0, now)), Relaxed);
    assert!(!read() && !read(), "set while inhibited");
    lock.bias.store(Bias(inhibit(now - 2_000_000, now - 1_900_000)), Relaxed);
    assert!(read(), "not set after the inhibition");
}

/// A slow reader that is late with its count must not undo the bias: the next writer would not
/// look for the readers in the table.
#[test]
fn late_counts_do_not_undo_the_bias() {
    let lock = Lock::new_biased_in();
    let now = Native::now(Clock::Monotonic);
    for late in [0, WARM_UP - 1, inhibit(0, now), inhibit(now, now)] {
        lock.step(Bias(late));
        assert!(lock.is_biased());
    }
}

#[test]
fn inhibition_lasts_n_times_the_revocation() {
    let tick = 1 << TICK;
    for base in [1u64 << 45, (1 << 44) - 500_000, (1 << 44) - 1, (1 << 44) - 4 * tick, (1 << 44) + tick] {
        for took in [0, 3_000, 5_000_000] {
            let (end, inhibition) = (base + took, N * took);
            let until = inhibit(base, end);
            assert!(until > WARM_UP, "a time that means something else");
            assert!(!expired(until, end));
            assert!(!expired(until, (end + inhibition).saturating_sub(tick)));
            assert!(expired(until, end + inhibition + (4 + u64::from(FIRST)) * tick));
        }
    }
    // An hour's revocation inhibits for 68 seconds; time far ahead is time past.
    let hour = 3_600_000_000_000;
    let until = inhibit(0, hour);
    assert!(!expired(until, hour + 60_000_000_000) && expired(until, hour + 70_000_000_000));
    assert!(expired(until, hour - 100_000_000_000));
}

/// Without a guard the bias comes back soon, whatever its revocation cost.
#[test]
fn a_trial_brings_the_bias_back() {
    let lock = RawBravo::<Native, RawShflRw<Native>, Owned, Bernoulli>::new_biased_in();
    lock.bias.store(Bias(<Bernoulli as When>::revoked::<Native>(0, u64::MAX, &mut 0)), Relaxed);
    for _ in 0..100_000 {
        // SAFETY: the token is from the acquisition in the same expression.
        unsafe { lock.unlock_read(lock.read()) };
    }
    assert!(lock.is_biased());
}

/// A bias that is not worth its revocation comes back ever later, and as soon as ever after one that was.
#[test]
fn a_bias_that_does_not_pay_is_set_less_often() {
    const TOOK: u64 = 10_000;
    // Sampled reads of a millisecond without bias: such that the readers meet all the time, or hardly.
    let (busy, quiet) = (500, 10);
    let (long, short) = (10 * TOOK, TOOK);
    let (mut memory, mut now) = (0, 1 << 40);
    // How many times its revocation the bias stays off, after so many reads without it, and after it lasted for so
    // long.
    let mut away = |reads: u32, lasted: u64| {
        memory = (0..reads).fold(memory, |memory, _| memory + <Adaptive as When>::sampled(memory));
        memory = Adaptive::<N>::begin(memory, now + 1_000_000);
        let start = now + 1_000_000 + lasted;
        now = start + TOOK;
        let until = <Adaptive as When>::revoked::<Native>(start, now, &mut memory);
        assert!(until > WARM_UP && !expired(until, now));
        (0..).find(|times| expired(until, now + times * TOOK + TOOK / 2)).unwrap()
    };
    away(busy, long); // since when it had not been biased nobody knew
    assert_eq!(away(busy, long), N);
    for step in 1..=STEPS + 2 {
        assert_eq!(away(quiet, long), N << step.min(STEPS));
    }
    assert_eq!(away(busy, long), N);
    assert_eq!(away(busy, short), 2 * N);
}
