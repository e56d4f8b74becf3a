//! When a bias comes back.

use super::super::bias::SAMPLE;
use super::*;

#[test]
fn a_slow_reader_restores_the_bias_when_the_time_has_come() {
    let lock = Lock::new();
    let now = Native::now(Clock::Monotonic);
    // As many reads as it takes for one of them to look at the clock.
    let read = || {
        for _ in 0..SAMPLE {
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
    lock.bias.store(Bias(<Bernoulli as When>::revoked::<Native>(0, u64::MAX)), Relaxed);
    for _ in 0..100_000 {
        // SAFETY: the token is from the acquisition in the same expression.
        unsafe { lock.unlock_read(lock.read()) };
    }
    assert!(lock.is_biased());
}

/// The default's bias comes back after as many reads in a row as nine times its revocation took, counted in what a bias spares
/// a read; and not while a write comes before that.
#[test]
fn reads_in_a_row_bring_the_bias_back() {
    type Lock = RawBravo<Native, RawShflRw<Native>, Owned, Adaptive>;
    let lock = Lock::new_biased_in();
    let off = |took: u64| Bias(<Adaptive as When>::revoked::<Native>(1_000, 1_000 + took));
    let read = |reads: u32| {
        for _ in 0..reads {
            // SAFETY: the token is from the acquisition in the same expression.
            unsafe { lock.unlock_read(lock.read()) };
        }
        lock.is_biased()
    };
    // 10 microseconds: 600 reads. One in 17 counts, and the thread's own count of reads begins anywhere.
    lock.bias.store(off(10_000), Relaxed);
    for _ in 0..4 {
        assert!(!read(500), "too early, or across a write");
        lock.write();
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock_write(()) };
    }
    assert!(read(700), "not after enough reads");
    // A short revocation takes one sample at least, 17 reads, and a very long one leaves a valid number.
    assert_eq!(off(0), Bias(FIRST + SAMPLE));
    assert!(
        off(u64::MAX - 1_000).0 < Bias::REVOKING.0 && !Bias::off(off(u64::MAX - 1_000).0).is_being_revoked()
    );
}

/// A revocation that took long, because a reader slept in its section or the writer was preempted, does not keep the bias off.
#[test]
fn a_long_revocation_counts_for_little() {
    type Lock = RawBravo<Native, RawShflRw<Native>, Owned, Adaptive>;
    let lock = Lock::new_biased_in();
    lock.bias.store(Bias(<Adaptive as When>::revoked::<Native>(0, 1_000_000_000)), Relaxed);
    for _ in 0..7_000 {
        // SAFETY: the token is from the acquisition in the same expression.
        unsafe { lock.unlock_read(lock.read()) };
    }
    assert!(lock.is_biased());
}

/// A thread samples its slow reads of any lock. Of locks that it reads in turn, each gets its bias back, also beside one that
/// is written too often for a bias.
#[test]
fn each_of_several_locks_in_turn_gets_its_bias_back() {
    for (number, written) in (2..=8).flat_map(|number| (0..number).map(move |written| (number, written))) {
        let locks: std::vec::Vec<_> = (0..number).map(|_| RowLock::new_in()).collect();
        for lock in &locks {
            lock.bias.store(Bias(<Adaptive as When>::revoked::<Native>(0, 1_000)), Relaxed);
        }
        for round in 0..10_000 {
            for (i, lock) in locks.iter().enumerate() {
                if i == written && round % 2 == 0 {
                    lock.write();
                    // SAFETY: from the acquisition above.
                    unsafe { lock.unlock_write(()) };
                }
                // SAFETY: the token is from the acquisition in the same expression.
                unsafe { lock.unlock_read(lock.read()) };
            }
        }
        let left = locks.iter().enumerate().filter(|(i, lock)| *i != written && !lock.is_biased()).count();
        assert_eq!(left, 0, "of {number} locks, when lock {written} is written");
    }
}
