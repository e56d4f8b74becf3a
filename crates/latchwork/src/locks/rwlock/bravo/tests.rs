use super::super::pf_t::RawPfT;
use super::bias::{Bernoulli, STEPS, TICK, expired};
use super::count::Counts;
use super::revoke::{Passing, Spins};
use super::table::{Column, ROW, Sector, Slots, Table, Twice, mix32};
use super::*;
use crate::locks::rwlock::Index;
use crate::locks::rwlock::percpu::RawPerCpu;
use crate::locks::rwlock::shfl_rw::RawShflRw;
use crate::machine::ROW_SLOTS;
use crate::machine::shared;
use core::sync::atomic::{AtomicBool, AtomicUsize};

type Lock = RawBravo<Native, RawPfT<Native>>;
type Read = <Lock as RawRwLock>::Read;

/// A row of slots per thread.
type RowLock = Rows<Native, RawShflRw<Native>>;

const _: () = assert!(size_of::<Lock>() == 24 && Lock::USED_BYTES == 24);
const _: () = assert!(RowLock::USED_BYTES == 32 && size_of::<RowLock>() == 32);

/// The paper's N.
const N: u64 = 9;

fn inhibit(start: u64, now: u64) -> u32 {
    <Guard as When>::revoked::<Native>(start, now, &mut 0)
}

fn biased() -> Lock {
    let lock = Lock::new_biased_in();
    assert!(lock.is_biased());
    lock
}

/// The calling thread's row may have been another thread's, and remember a lock without bias at the address where a
/// test's lock is now. From here on it remembers none that is still there.
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
    assert!(lock.bias.load(Relaxed) > BIASED, "no inhibition after a revocation");
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
fn a_slow_reader_restores_the_bias_when_the_time_has_come() {
    let lock = Lock::new();
    let now = Native::now(Clock::Monotonic);
    // Enough that one of them looks at the clock.
    let read = || {
        for _ in 0..WARM_UP {
            // SAFETY: the token is from the acquisition in the same expression.
            unsafe { lock.unlock_read(lock.read()) };
        }
        lock.is_biased()
    };
    lock.bias.store(inhibit(0, now), Relaxed);
    assert!(!read() && !read(), "set while inhibited");
    lock.bias.store(inhibit(now - 2_000_000, now - 1_900_000), Relaxed);
    assert!(read(), "not set after the inhibition");
}

/// A slow reader that is late with its count must not undo the bias: the next writer would not
/// look for the readers in the table.
#[test]
fn late_counts_do_not_undo_the_bias() {
    let lock = Lock::new_biased_in();
    let now = Native::now(Clock::Monotonic);
    for late in [0, WARM_UP - 1, inhibit(0, now), inhibit(now, now)] {
        lock.step(late);
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
            assert!(until > BIASED, "a time that means something else");
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

/// A guard that is forgotten keeps its lock read-locked for ever, and no other lock that comes to be at the same
/// address. One that was dropped there has taken the address out of the slots; one that was moved has not, and the
/// other lock does not use them. (Its thread is gone: one that reads the other lock empties its own slots.)
fn harms_no_other_lock<P: Publish<Native>, W: When>() {
    type Of<P, W> = RawBravo<Native, RawPfT<Native>, P, W>;
    let reads_fast = |lock: &Of<P, W>| {
        forget();
        let mut fast = false;
        for _ in 0..100 {
            let token = lock.read();
            fast = matches!(token, ReadToken::Fast(_));
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(token) };
        }
        fast
    };
    let mut place = std::boxed::Box::new(core::mem::ManuallyDrop::new(Of::<P, W>::new_in()));
    for dropped in [true, false] {
        assert!(reads_fast(&place));
        let forgets = || {
            forget();
            assert!(matches!(place.read(), ReadToken::Fast(_)));
        };
        std::thread::scope(|scope| scope.spawn(forgets).join().unwrap());
        assert!(place.is_locked() && place.try_write().is_none());
        if dropped {
            // SAFETY: the place gets another lock before anybody uses it.
            unsafe { core::mem::ManuallyDrop::drop(&mut place) };
        }
        *place = core::mem::ManuallyDrop::new(Of::<P, W>::new_in());
        assert!(!place.is_locked(), "a new lock counts as read");
        assert_eq!(reads_fast(&place), dropped);
        let written = place.write_until(Deadline::after::<Native>(60_000_000_000)).is_some();
        assert!(written, "a new lock is read-locked");
        // SAFETY: acquired just now.
        unsafe { place.unlock_write(()) };
        // For the next round, and for whatever else is to be at this address.
        place.forget_readers();
        *place = core::mem::ManuallyDrop::new(Of::<P, W>::new_in());
    }
}

#[test]
fn a_forgotten_reader_harms_no_other_lock() {
    harms_no_other_lock::<Hashed, Guard>();
    harms_no_other_lock::<Owned, Adaptive>();
    harms_no_other_lock::<Table<Column>, Guard>();
}

/// The same through the public interface.
#[test]
fn a_forgotten_guard_harms_no_other_lock() {
    let mut place = std::boxed::Box::new(crate::RwLock::new(0));
    for round in 0..4 {
        for _ in 0..100 {
            assert_eq!(*place.read(), 0);
        }
        core::mem::forget(place.read());
        assert!(place.try_write().is_none(), "round {round}: the lock itself stays read-locked");
        *place = crate::RwLock::new(0);
        for _ in 0..100 {
            assert_eq!(*place.read(), 0);
        }
        assert!(place.try_write_for(core::time::Duration::from_secs(60)).is_some(), "round {round}");
    }
}

/// The slots of a dropped lock can be used again, also by a thread that has forgotten more guards than it has slots.
#[test]
fn a_dropped_lock_gives_its_slots_back() {
    forget();
    for _ in 0..ROW_SLOTS {
        let _forgotten = RowLock::new_biased_in().read();
    }
    assert!(shared::reader_row::<Native>().unwrap().is_empty());
}

/// BRAVO over a lock whose tokens are numbers, odd ones among them.
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

#[test]
fn the_hash_spreads_neighbours() {
    let table = shared::visible_readers::<Native>().len();
    let mut used = std::vec![false; table];
    // As many pairs as a quarter of the table: 16 threads, 64 locks in a row.
    for thread in 0..16u64 {
        for lock in 0..64u64 {
            let key = (0x7f00_1234_5000 + lock * 64)
                .wrapping_add((0x7f00_8000_0000u64 + thread * 0x80_1000).rotate_left(32));
            used[mix32(key) as usize & (table - 1)] = true;
        }
    }
    // Random throws would fill 906 of 4096.
    let filled = used.iter().filter(|used| **used).count();
    assert!(filled > 850, "{filled}");
}

/// As many locks as a row has slots are read through it, by a thread that reads one again too; the
/// rest through the lock.
#[test]
fn a_thread_reads_through_its_row() {
    forget();
    let locks: [RowLock; 3] = core::array::from_fn(|_| RowLock::new_biased_in());
    let before =
        shared::reader_row::<Native>().unwrap().slots.iter().filter(|slot| slot.load(Relaxed) != 0).count();
    assert_eq!(before, 0);
    let tokens: std::vec::Vec<_> = (0..ROW_SLOTS).map(|i| (i % 3, locks[i % 3].read())).collect();
    assert!(tokens.iter().all(|(_, token)| matches!(token, ReadToken::Fast(_))));
    assert!(locks.iter().all(|lock| !lock.lock.is_locked() && lock.is_locked()));
    let further = locks[0].try_read().unwrap();
    assert!(matches!(further, ReadToken::Slow(())) && locks[0].lock.is_locked());
    // SAFETY: the token is from the acquisition above.
    unsafe { locks[0].unlock_read(further) };
    for (i, token) in tokens {
        assert!(locks[i].try_write().is_none());
        // Also by another thread.
        let word = token.into_word();
        std::thread::scope(|scope| {
            // SAFETY: the word is that of the token above, which nobody else uses.
            scope.spawn(|| unsafe { locks[i].unlock_read(<RowLock as RawRwLock>::Read::from_word(word)) });
        });
    }
    assert!(locks.iter().all(|lock| !lock.is_locked()));
    assert!(shared::reader_row::<Native>().unwrap().is_empty());
}

/// A reader that has exited without leaving is waited for, in a nap, until somebody leaves for it.
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

/// Without a guard the bias comes back soon, whatever its revocation cost.
#[test]
fn a_trial_brings_the_bias_back() {
    let lock = RawBravo::<Native, RawShflRw<Native>, Owned, Bernoulli>::new_biased_in();
    lock.bias.store(<Bernoulli as When>::revoked::<Native>(0, u64::MAX, &mut 0), Relaxed);
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
        assert!(until > BIASED && !expired(until, now));
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

/// A table for two threads and locks enough: slots are where their kind says.
#[test]
fn slots_are_in_their_places() {
    fn places<S: Slots>(lock: usize) -> impl Iterator<Item = usize> {
        [Some(S::first::<Native>(lock, 4096)), S::second::<Native>(lock, 4096)].into_iter().flatten()
    }
    let locks = || (1..200).map(|i| i * 32);
    for lock in locks() {
        let slots: std::vec::Vec<usize> = places::<Twice>(lock).collect();
        assert!(slots.len() == 2 && slots.iter().all(|slot| *slot < 4096));
        assert!(places::<Sector>(lock).all(|slot| slot < 4096));
        let (column, row) = table::Column::column::<Native>(lock, 4096).unwrap();
        assert!(places::<table::Column>(lock).all(|slot| slot % row == column));
    }
    assert!(locks().any(|lock| places::<Twice>(lock).count() == 2 && places::<Twice>(lock).is_sorted()));
    assert!(locks().any(|lock| !places::<Twice>(lock).is_sorted()));
}

/// With the second probe a thread reads through the table though its first slot is taken.
#[test]
fn a_second_probe_finds_another_slot() {
    type Probing = RawBravo<Native, RawPfT<Native>, Table<Twice>>;
    let locks: [Probing; 8] = core::array::from_fn(|_| Probing::new_biased_in());
    // Another test's lock may have a slot for a moment; not all of these slots.
    let pairs = locks.each_ref().map(|lock| (lock.read(), lock.read()));
    assert!(pairs.iter().any(|pair| matches!(pair, (ReadToken::Fast(_), ReadToken::Fast(_)))));
    for (lock, (first, second)) in locks.iter().zip(pairs) {
        assert!(lock.try_write().is_none());
        // SAFETY: the tokens are from the acquisitions above.
        unsafe {
            lock.unlock_read(first);
            lock.unlock_read(second);
        }
        assert!(!lock.is_locked());
    }
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
        while lock.bias.load(Relaxed) != REVOKING + 1 {
            std::thread::yield_now();
        }
        for _ in 0..2 * WARM_UP {
            let second = lock.read();
            assert!(matches!(second, ReadToken::Slow(())));
            // SAFETY: the token is from the acquisition above.
            unsafe { lock.unlock_read(second) };
        }
        assert_eq!(lock.bias.load(Relaxed), REVOKING + 1, "set while a writer revokes");
        assert!(lock.try_write().is_none());
        assert!(lock.write_until(Deadline::after::<Native>(100_000)).is_none());
        assert!(!writer.is_finished());
        // SAFETY: the token is from the acquisition above.
        unsafe { lock.unlock_read(first) };
    });
    assert!(!lock.is_locked() && !lock.is_biased());
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

/// No two processors write to one pair of cache lines, up to as many as the table has such pairs; and a
/// writer looks at no more rows than it must.
#[test]
fn each_processor_has_its_row() {
    let (length, least) = (4096, ROW as usize);
    for (cpus, slots) in [(1, 4096), (2, 2048), (64, 64), (72, 32), (144, 16), (256, 16)] {
        let row = Column::row(length, cpus, least);
        assert_eq!(row, slots, "{cpus}");
        let mut used = std::vec![false; length / least];
        for cpu in 0..cpus {
            let pairs = [0, row - 1].map(|column| Column::slot(cpu, column, row, length) / least);
            (pairs[0]..=pairs[1]).for_each(|pair| {
                assert!(!core::mem::replace(&mut used[pair], true), "processor {cpu} of {cpus} shares a row");
            });
        }
    }
    // Beyond that they share.
    let row = Column::row(length, 1000, least);
    assert_eq!((row, Column::slot(256, 3, row, length)), (16, 3));
}
