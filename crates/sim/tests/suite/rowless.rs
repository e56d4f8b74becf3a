//! BRAVO in a thread that has no row of slots. Outside of a simulation, no thread has one on the simulated machine, and its clock
//! stands still; so has no thread in the kernel.

use latchwork::locks::rwlock::bravo::bias::Adaptive;
use latchwork::locks::rwlock::bravo::{RawBravo, Rows, table::Hashed};
use latchwork::locks::rwlock::{RawRwLock, pf_t::RawPfT, shfl_rw::RawShflRw};
use latchwork_sim::Sim;

fn read(lock: &impl RawRwLock) {
    // SAFETY: the token is from the acquisition in the same expression.
    unsafe { lock.unlock_read(lock.read()) };
}

fn write(lock: &impl RawRwLock) {
    // SAFETY: the token is from the acquisition in the same expression.
    unsafe { lock.unlock_write(lock.write()) };
}

/// The shortest revocation is paid for by 17 slow reads in a row. A thread with a row lets one of its slow reads in 17 ask the
/// policy, for all of them. Here each asks, and must count once.
#[test]
fn a_slow_read_without_a_row_counts_once() {
    let lock = RawBravo::<Sim, RawPfT<Sim>, Hashed, Adaptive>::new_warm_in();
    read(&lock);
    assert!(lock.is_biased());
    write(&lock);
    for row in [16, 1, 7, 16] {
        for _ in 0..row {
            assert!(!lock.is_biased());
            read(&lock);
        }
        assert!(!lock.is_biased(), "the bias is back after {row} reads in a row");
        write(&lock);
    }
    (0..17).for_each(|_| read(&lock));
    assert!(lock.is_biased(), "the bias is not back after 17 reads in a row");
}

/// Where no thread has a row, a bias that is a row's would cost writers a revocation and serve no reader.
#[test]
fn a_lock_with_rows_stays_unbiased_without_them() {
    let lock = Rows::<Sim, RawShflRw<Sim>>::new_in();
    (0..1_000).for_each(|_| read(&lock));
    assert!(!lock.is_biased());
    write(&lock);
}
