use super::super::pf_t::RawPfT;
use super::super::{RawRecursive, RawUpgrade};
use super::bias::{Bernoulli, TICK, expired};
use super::count::Counts;
use super::revoke::{Passing, Spins};
use super::table::{Column, ROW, Sector, Slots, Table, Twice, mix32};
use super::word::{FIRST, WARM_UP};
use super::*;
use crate::locks::Token;
use crate::locks::rwlock::Index;
use crate::locks::rwlock::percpu::RawPerCpu;
use crate::locks::rwlock::shfl_rw::RawShflRw;
use crate::machine::Clock;
use crate::machine::ROW_SLOTS;
use crate::machine::shared;
use core::sync::atomic::{AtomicBool, AtomicUsize};

mod forgotten;
mod policies;
mod slots;

type Lock = RawBravo<Native, RawPfT<Native>>;
type Read = <Lock as RawRwLock>::Read;

/// A row of slots per thread.
type RowLock = Rows<Native, RawShflRw<Native>>;

const _: () = assert!(size_of::<Lock>() == 24 && Lock::USED_BYTES == 24);
const _: () = assert!(RowLock::USED_BYTES == 32 && size_of::<RowLock>() == 32);

/// The paper's N.
const N: u64 = 9;

impl<R: RawRwLock<Machine = Native>, P: Publish<Native>, W: When, V: Revoke, S: Count>
    RawBravo<Native, R, P, W, V, S>
{
    /// An unlocked lock that is biased. It may be moved to an address that no forgotten reader has left in a slot.
    fn new_biased_in() -> Self {
        assert!(P::prepare());
        Self::with_bias(Bias::ON)
    }
}

fn inhibit(start: u64, now: u64) -> u32 {
    <Guard as When>::revoked::<Native>(start, now)
}

fn biased() -> Lock {
    let lock = Lock::new_biased_in();
    assert!(lock.is_biased());
    lock
}

/// The calling thread's row may have been another thread's, and note a lock without bias at the address where a test's
/// lock is now. From here on it notes one that is gone.
fn forget() {
    let other = std::boxed::Box::new(RowLock::new_in());
    // SAFETY: the token is from the acquisition in the same expression.
    unsafe { other.unlock_read(other.read()) };
    assert_eq!(shared::reader_row::<Native>().unwrap().unbiased.load(Relaxed), other.address());
}

/// Reads through the table. Another test's lock may have the slot for a moment.
fn read_fast(lock: &Lock) -> (Read, &'static AtomicUsize) {
    loop {
        match lock.read() {
            token @ ReadToken::Fast(Filled(slot)) => return (token, slot),
            // SAFETY: the token is from the acquisition above.
            token => unsafe { lock.unlock_read(token) },
        }
        assert!(lock.is_biased());
        std::thread::yield_now();
    }
}

#[test]
fn readers_bias_a_new_lock_after_a_while() {
    let lock = Lock::new();
    for _ in 0..WARM_UP {
        assert!(!lock.is_biased());
        let token = lock.read();
        assert!(matches!(token, ReadToken::Slow(())));
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(token) };
    }
    assert!(lock.is_biased());
}

#[test]
fn a_reader_of_a_biased_lock_is_in_the_table_and_not_in_the_lock() {
    let lock = biased();
    let (token, slot) = read_fast(&lock);
    assert_eq!(slot.load(Relaxed), lock.address());
    assert!(core::ptr::eq(slot, Hashed::slot::<Native>(lock.address())));
    assert!(shared::visible_readers::<Native>().iter().any(|entry| core::ptr::eq(entry, slot)));
    assert!(!lock.lock.is_locked() && lock.is_locked());
    // SAFETY: the token is from the acquisition above.
    unsafe { lock.unlock_read(token) };
    assert_ne!(slot.load(Relaxed), lock.address());
    assert!(!lock.is_locked());
}

#[test]
fn a_reader_whose_slot_is_taken_uses_the_lock() {
    let lock = biased();
    let (first, slot) = read_fast(&lock);
    // The same thread hashes to the same slot.
    for again in [lock.read(), lock.try_read().unwrap()] {
        assert!(matches!(again, ReadToken::Slow(())));
        assert!(lock.lock.is_locked());
        // SAFETY: the token is from an acquisition above.
        unsafe { lock.unlock_read(again) };
    }
    assert_eq!(slot.load(Relaxed), lock.address(), "the wrong acquisition was released");
    assert!(!lock.lock.is_locked());
    // SAFETY: the token is from the acquisition above.
    unsafe { lock.unlock_read(first) };
}

#[test]
fn a_writer_revokes_and_waits_for_readers_in_the_table() {
    let lock = &biased();
    let wrote = &AtomicBool::new(false);
    let (token, _) = read_fast(lock);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            lock.write();
            wrote.store(true, Relaxed);
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        while lock.is_biased() {
            std::thread::yield_now();
        }
        // The bias is off, so newcomers queue up behind the writer in the underlying lock.
        assert!(lock.try_read().is_none());
        assert!(!wrote.load(Relaxed), "a writer did not wait for a reader in the table");
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(token) };
    });
    assert!(wrote.load(Relaxed));
    assert!(!lock.is_biased());
    assert!(lock.bias.load(Relaxed).0 > WARM_UP, "no inhibition after a revocation");
    assert!(!lock.is_locked());
}

#[test]
fn a_writer_that_gives_up_restores_the_bias() {
    let lock = biased();
    let (token, _) = read_fast(&lock);
    assert!(lock.try_write().is_none());
    assert!(lock.is_biased());
    assert!(lock.write_until(Deadline::after::<Native>(1_000_000)).is_none());
    assert!(lock.is_biased() && !lock.lock.is_locked());
    // SAFETY: the token is from the acquisition above.
    unsafe { lock.unlock_read(token) };
    assert!(lock.try_write().is_some());
    assert!(!lock.is_biased());
}

#[test]
fn tokens_survive_as_words() {
    let lock = biased();
    let (token, slot) = read_fast(&lock);
    let word = token.into_word();
    assert!(word & 1 == 1);
    // SAFETY: the word is a token's.
    let token = unsafe { Read::from_word(word) };
    assert!(matches!(token, ReadToken::Fast(Filled(back)) if core::ptr::eq(back, slot)));
    // SAFETY: the token is from the acquisition above.
    unsafe { lock.unlock_read(token) };
    assert!(!lock.is_locked());
    // SAFETY: the word is a token's.
    assert!(matches!(unsafe { Read::from_word(Read::Slow(()).into_word()) }, ReadToken::Slow(())));
}

/// BRAVO over a lock with numbers as tokens, odd ones among them.
#[test]
fn tokens_that_are_numbers_survive_as_words() {
    type Over<R> = ReadToken<AtomicUsize, <R as RawRwLock>::Read>;
    for number in [0, 1, 2, 5, u32::MAX] {
        let word = Over::<RawPerCpu<Native>>::Slow(Index(number)).into_word();
        // SAFETY: the word is a token's.
        let token = unsafe { Over::<RawPerCpu<Native>>::from_word(word) };
        assert!(matches!(token, ReadToken::Slow(Index(same)) if same == number), "{number}");
    }
}

#[test]
fn it_is_described_after_the_lock_below() {
    assert_eq!(Lock::INFO.name, "bravo-pf-t");
    assert_eq!(RowLock::INFO.name, "bravo-2d-shfl-rw");
    assert_eq!(Columns::<Native, RawPfT<Native>>::INFO.name, "bravo-cpu-pf-t");
    assert_eq!(RawBravo::<Native, RawPfT<Native>, Table<Twice>>::INFO.name, "bravo-twice-pf-t");
    assert!(Lock::INFO.summary.ends_with(RawPfT::<Native>::INFO.summary));
}

/// A writer waits, in naps, for a reader that has exited without leaving, until another thread leaves in its place.
#[test]
fn a_writer_waits_for_a_reader_whose_thread_is_gone() {
    let lock = &RowLock::new_biased_in();
    let reads = || {
        forget();
        lock.read().into_word()
    };
    let word = std::thread::scope(|scope| scope.spawn(reads).join().unwrap());
    assert!(lock.is_biased() && lock.try_write().is_none());
    assert!(lock.write_until(Deadline::after::<Native>(3_000_000)).is_none());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        while lock.is_biased() {
            std::thread::yield_now();
        }
        assert!(!writer.is_finished());
        // SAFETY: the word is a token's that nobody else uses.
        unsafe { lock.unlock_read(<RowLock as RawRwLock>::Read::from_word(word)) };
    });
    assert!(!lock.is_locked());
}

/// Whatever the composition, a reader with a slot is found by a writer, and one without has the lock.
#[test]
fn every_composition_excludes() {
    fn check<P: Publish<Native>, V: Revoke>() {
        let lock = &RawBravo::<Native, RawShflRw<Native>, P, Bernoulli<1>, V>::new_biased_in();
        let [sum, most] = &[const { AtomicUsize::new(0) }; 2];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..500 {
                        if (round + thread) % 16 == 0 {
                            lock.write();
                            // Not atomic together: another writer, or a reader, would see it.
                            sum.store(sum.load(Relaxed) + 1, Relaxed);
                            most.store(sum.load(Relaxed), Relaxed);
                            // SAFETY: acquired above.
                            unsafe { lock.unlock_write(()) };
                        } else {
                            let token = lock.read();
                            assert_eq!(sum.load(Relaxed), most.load(Relaxed));
                            // SAFETY: the token is from the acquisition above.
                            unsafe { lock.unlock_read(token) };
                        }
                    }
                });
            }
        });
        let writes = (0..4).flat_map(|thread| (thread..thread + 500).filter(|at| at % 16 == 0));
        assert_eq!(sum.load(Relaxed), writes.count());
        assert!(!lock.is_locked());
    }
    check::<Hashed, Holding<Spins>>();
    check::<Table<Twice>, Passing>();
    check::<Table<Sector>, Passing<Spins>>();
    check::<table::Columns, Holding>();
    check::<Owned, Passing>();
}

/// Readers pass a writer that revokes early, through the underlying lock, and it still waits for the one
/// in the table.
#[test]
fn readers_pass_a_revocation() {
    forget();
    let lock = &RawBravo::<Native, RawShflRw<Native>, Owned, Guard, Passing>::new_biased_in();
    let first = lock.read();
    assert!(matches!(first, ReadToken::Fast(_)));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        while lock.bias.load(Relaxed) != Bias::REVOKING {
            std::thread::yield_now();
        }
        for _ in 0..2 * WARM_UP {
            let second = lock.read();
            assert!(matches!(second, ReadToken::Slow(())));
            // SAFETY: the token is from the acquisition above.
            unsafe { lock.unlock_read(second) };
        }
        assert_eq!(lock.bias.load(Relaxed), Bias::REVOKING, "set while a writer revokes");
        assert!(lock.try_write().is_none());
        assert!(lock.write_until(Deadline::after::<Native>(100_000)).is_none());
        assert!(!writer.is_finished());
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(first) };
    });
    assert!(!lock.is_locked() && !lock.is_biased());
}

/// A writer is suspended in its brief hold. The only thread that waits, the head of the underlying lock's queue, ends that.
#[test]
fn a_lone_waiter_ends_an_overdue_hold() {
    for reads in [true, false] {
        let lock = RowLock::new();
        lock.lock.write();
        lock.bias.store(Bias::brief_hold(Native::now(Clock::Monotonic).wrapping_sub(1 << 30)), Relaxed);
        let in_a_minute = Deadline::after::<Native>(60_000_000_000);
        let entered = if reads {
            lock.read_until(in_a_minute).is_some()
        } else {
            lock.write_until(in_a_minute).is_some()
        };
        assert!(entered, "reads: {reads}");
    }
}

/// So does an attempt, of each kind.
#[test]
fn an_attempt_ends_an_overdue_hold() {
    let attempts: [fn(&RowLock) -> bool; 4] = [
        |lock| lock.try_write().is_some(),
        |lock| lock.try_read().is_some(),
        |lock| lock.try_upgradable().is_some(),
        |lock| lock.try_read_recursive().is_some(),
    ];
    for (number, attempt) in attempts.into_iter().enumerate() {
        let lock = RowLock::new();
        lock.lock.write();
        lock.bias.store(Bias::brief_hold(Native::now(Clock::Monotonic).wrapping_sub(1 << 30)), Relaxed);
        assert!(attempt(&lock), "attempt {number}");
    }
}

/// An upgrade finds the slots empty, and gives up because of a reader of the underlying lock. It leaves the bias as it was.
#[test]
fn an_upgrade_that_gives_up_restores_the_bias() {
    let lock = RowLock::new_biased_in();
    lock.lock.read();
    assert!(lock.try_upgradable().is_some());
    let soon = Timeout::At(Deadline::after::<Native>(1_000_000));
    // SAFETY: acquired above.
    assert!(unsafe { lock.upgrade_within((), soon) }.is_err());
    assert!(lock.is_biased());
}

/// Every read is counted once, and why it was slow.
#[test]
fn reads_and_revocations_are_counted() {
    type Counting = <RowLock as RawRwLock>::Counted;
    // Its own thread, with a row that no other test counts in.
    let before = Counts::of_process();
    std::thread::spawn(|| {
        forget();
        let lock = Counting::new_biased_in();
        let tokens: std::vec::Vec<_> = (0..=ROW_SLOTS).map(|_| lock.read()).collect();
        for token in tokens {
            // SAFETY: the token is from an acquisition above.
            unsafe { lock.unlock_read(token) };
        }
        lock.write();
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
        for token in [lock.try_read(), lock.read_until(Deadline::after::<Native>(1_000_000))] {
            // SAFETY: the token is from the acquisition above.
            unsafe { lock.unlock_read(token.unwrap()) };
        }
    })
    .join()
    .unwrap();
    let after = Counts::of_process();
    assert_eq!(after.fast - before.fast, ROW_SLOTS as u64);
    assert_eq!(after.collisions - before.collisions, 1);
    assert_eq!(after.unbiased - before.unbiased, 2);
    assert_eq!(after.revocations - before.revocations, 1);
    assert!(after.in_vain - before.in_vain <= 2 && after.revoking > before.revoking);
}

/// Linux numbers threads below 2^22. If all of them revoke, the count does not run into the bit beside it.
#[test]
fn every_thread_may_revoke() {
    let mut bias = Bias::ON;
    for _ in 1..1 << 22 {
        bias = bias.joined().expect("no thread has seen the slots empty");
    }
    for _ in 1..1 << 22 {
        assert!(bias.is_revoking() && bias.hides_readers());
        bias = bias.left(false, Bias::off(0));
    }
    assert!(bias.is_on());
}

/// A write ends the reads in a row, whether it revokes the bias or finds none.
#[test]
fn a_write_ends_the_reads_in_a_row() {
    for lock in [RowLock::new(), RowLock::new_biased_in()] {
        lock.in_a_row.store(1000, Relaxed);
        lock.write();
        assert_eq!(lock.in_a_row.load(Relaxed), 0);
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
    }
}

/// A thread does not join a revocation in which a thread has seen the slots empty: it has nothing to wait for.
#[test]
fn no_thread_joins_a_revocation_that_is_done() {
    let revoking = Bias::ON.joined().and_then(Bias::joined).unwrap();
    let done = revoking.left(true, Bias::off(0));
    assert!(done.is_revoking() && !done.hides_readers());
    assert_eq!(done.joined(), None);
}
