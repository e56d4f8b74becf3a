//! Guards that are forgotten, and what they leave in slots.

use super::*;

/// A guard that is forgotten keeps its lock read-locked for ever, and no other lock that comes to be at the same
/// address. One that was dropped there has taken the address out of the slots; one that was moved has not, and the
/// other lock does not use them. (Its thread is gone: one that reads the other lock empties its own slots.)
fn harms_no_other_lock<P: Publish<Native>, W: When>() {
    type Of<P, W> = RawBravo<Native, RawPfT<Native>, P, W>;
    // Whether one of the reads is fast.
    let reads_fast = |lock: &Of<P, W>| {
        forget();
        (0..100).any(|_| {
            let token = lock.read();
            let fast = matches!(token, ReadToken::Fast(_));
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(token) };
            fast
        })
    };
    // Another test's lock may have the slot of the table for a while.
    let reads_fast_in_the_end = |lock: &Of<P, W>| {
        let end = Deadline::after::<Native>(60_000_000_000);
        while !reads_fast(lock) {
            assert!(!end.passed::<Native>(), "no reader becomes fast");
            std::thread::yield_now();
        }
    };
    let mut place = std::boxed::Box::new(core::mem::ManuallyDrop::new(Of::<P, W>::new_in()));
    for dropped in [true, false] {
        reads_fast_in_the_end(&place);
        let forgets = || {
            forget();
            loop {
                match place.read() {
                    ReadToken::Fast(_) => break,
                    // SAFETY: the token is from the acquisition above.
                    token => unsafe { place.unlock_read(token) },
                }
            }
        };
        std::thread::scope(|scope| scope.spawn(forgets).join().unwrap());
        assert!(place.is_locked() && place.try_write().is_none());
        if dropped {
            // SAFETY: no thread uses the place before it gets another lock, two lines below.
            unsafe { core::mem::ManuallyDrop::drop(&mut place) };
        }
        *place = core::mem::ManuallyDrop::new(Of::<P, W>::new_in());
        assert!(!place.is_locked(), "a new lock counts as read");
        if dropped {
            reads_fast_in_the_end(&place);
        } else {
            assert!(!reads_fast(&place), "the address is in a slot");
        }
        let written = place.write_until(Deadline::after::<Native>(60_000_000_000)).is_some();
        assert!(written, "a new lock is read-locked");
        // SAFETY: acquired just now.
        unsafe { place.unlock_write(()) };
        // For the next round, and for whatever else is to be at this address.
        place.empty_slots();
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

/// A lock that its first reader biases comes to an address that a forgotten reader has left in a slot. (The earlier lock
/// was moved away, not dropped.) A writer of the new lock must not wait for that reader.
#[test]
fn a_forgotten_reader_harms_no_warm_lock() {
    fn check<P: Publish<Native>>() {
        type Of<P> = RawBravo<Native, RawPfT<Native>, P>;
        let mut place = std::boxed::Box::new(core::mem::ManuallyDrop::new(Of::<P>::new_warm_in()));
        let forgets = || {
            forget();
            // Another test's lock may have the slot of the table for a moment.
            while !matches!(place.read(), ReadToken::Fast(_)) {}
        };
        std::thread::scope(|scope| scope.spawn(forgets).join().unwrap());
        *place = core::mem::ManuallyDrop::new(Of::<P>::new_warm_in());
        // SAFETY: the token is from the acquisition in the same expression.
        unsafe { place.unlock_read(place.read()) };
        let written = place.write_until(Deadline::after::<Native>(60_000_000_000)).is_some();
        assert!(written, "the new lock is read-locked");
        // SAFETY: acquired just now.
        unsafe { place.unlock_write(()) };
        place.empty_slots(); // for the next lock at this address
    }
    check::<Hashed>();
    check::<Owned>();
}

/// A thread forgets a read, and reads a new lock at the same address through the lock below. The end of that read must not take the
/// forgotten slot for it: the lock below would stay read-locked.
#[test]
fn a_forgotten_read_does_not_end_in_place_of_a_later_one() {
    type Lock = Rows<Native, RawPfT<Native>>;
    let mut place = std::boxed::Box::new(core::mem::ManuallyDrop::new(Lock::new_in()));
    while !matches!(place.read(), ReadToken::Fast(_)) {
        // SAFETY: a slow read was acquired just now.
        unsafe { place.unlock_read(ReadToken::Slow(())) };
    }
    *place = core::mem::ManuallyDrop::new(Lock::new_in());
    let token = place.read();
    assert!(matches!(token, ReadToken::Slow(())), "a new lock is not biased");
    // SAFETY: the token is used only if this has not ended its acquisition.
    assert!(!unsafe { place.unlock_own_recorded_read() }, "the forgotten read was ended");
    // SAFETY: acquired above.
    unsafe { place.unlock_read(token) };
    assert!(!place.is_locked());
}

/// The calling thread has forgotten a read of an earlier lock at the address of this one.
fn leave_in_a_slot(lock: &RowLock) {
    forget();
    shared::reader_row::<Native>().unwrap().slots[0].store(lock.address(), Relaxed);
}

/// The slot of a forgotten read does not let its thread past a writer.
#[test]
fn a_forgotten_read_is_none_to_begin_from() {
    let lock = RowLock::new();
    leave_in_a_slot(&lock);
    lock.write();
    assert!(lock.try_read_recursive().is_none());
    // SAFETY: acquired above.
    unsafe { lock.unlock_write(()) };
    assert!(lock.read_again().is_none());
    shared::reader_row::<Native>().unwrap().slots[0].store(0, Relaxed);
}

/// A thread that has noted that the lock is unbiased, and has forgotten a read at its address, does not keep it from being biased.
#[test]
fn a_forgotten_read_of_a_noted_lock_is_emptied() {
    let lock = RowLock::new_warm_in();
    leave_in_a_slot(&lock);
    shared::reader_row::<Native>().unwrap().unbiased.store(lock.address(), Relaxed);
    // SAFETY: the token is from the acquisition in the same expression.
    unsafe { lock.unlock_read(lock.read()) };
    assert!(lock.is_biased());
}
