//! Where readers publish.

use super::*;
use crate::locks::rwlock::RawRecursive;

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
    let read = |i: usize| match i % 2 {
        0 => locks[i % 3].read(),
        _ => locks[i % 3].try_read_weak().unwrap(),
    };
    let tokens: std::vec::Vec<_> = (0..ROW_SLOTS).map(|i| (i % 3, read(i))).collect();
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

/// 100 threads have had rows at the same time, and one still has its own.
#[test]
fn a_writer_looks_at_no_row_of_a_thread_that_has_exited() {
    let test = "locks::rwlock::bravo::tests::slots::a_writer_looks_at_no_row_of_a_thread_that_has_exited";
    crate::machine::alone::alone(test, || {
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(100));
        let body = move || {
            assert!(shared::reader_row::<Native>().is_some());
            barrier.wait();
        };
        let threads: std::vec::Vec<_> = (0..100).map(|_| std::thread::spawn(body.clone())).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(shared::reader_row::<Native>().unwrap().is_empty());
        let mut looks = 0;
        let looks_on = |_: &AtomicUsize| {
            looks += 1;
            true
        };
        // SAFETY: the closure writes to no slot. All slots of a row that is looked at hold 0.
        assert!(unsafe { <Owned as Publish<Native>>::all_slots_of(0, looks_on) });
        assert_eq!(looks, ROW_SLOTS);
    });
}

/// A writer that waits for a thread's slot has passed the earlier slots of the row.
#[test]
fn a_further_slot_is_one_that_no_writer_has_passed() {
    use super::super::around::Around;
    let (other, lock) = (RowLock::new_biased_in(), RowLock::new_biased_in());
    forget();
    let address = |token: &<RowLock as RawRwLock>::Read| match token {
        ReadToken::Fast(Filled(slot)) => core::ptr::from_ref(*slot).addr(),
        ReadToken::Slow(()) => panic!("the lock is biased, and the row has empty slots"),
    };
    // SAFETY: each token is from one acquisition.
    unsafe {
        let before = other.read();
        let first = lock.read();
        assert!(address(&before) < address(&first));
        other.unlock_read(before);
        let second = lock.read_in_further_slot().expect("there are empty slots");
        assert!(address(&second) > address(&first));
        lock.unlock_read(first);
        assert!(lock.is_locked());
        lock.unlock_read(second);
    }
    assert!(!lock.is_locked());
}

/// A thread that reads already may read again while a writer has the underlying lock and waits for the thread's slot.
#[test]
fn a_reader_in_a_slot_reads_again_beside_a_writer_that_waits_for_it() {
    let lock = RowLock::new_biased_in();
    forget();
    // SAFETY: each token is from one acquisition.
    unsafe {
        let first = lock.read();
        // As a writer leaves it when it begins to wait.
        lock.lock.write();
        lock.bias.store(Bias::brief_hold(Native::now(Clock::Monotonic)), Relaxed);
        let second = lock.try_read_recursive().expect("this thread reads");
        let third = lock.read_recursive();
        lock.bias.store(Bias::ON, Relaxed);
        lock.lock.unlock_write(());
        for token in [first, second, third] {
            lock.unlock_read(token);
        }
    }
    assert!(!lock.is_locked());
}
