//! Locks, condition variables, semaphores and sequence locks.

use super::*;
use latchwork::locks::Bravo2dShflRwLock;
use latchwork::locks::mutex::{Fair, Token};
use latchwork::locks::rwlock::bravo::Rows;
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRecursive, RawUpgrade, ReadRecursive, Timeout};
use latchwork::locks::rwlock::{pf_q::RawPfQ, pf_t::RawPfT, rwsem::RawRwSem, shfl_rw::RawShflRw};

struct Each;

impl Visitor<Native> for Each {
    fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
        let lock = L::new_in();
        let token = lock.lock();
        assert!(lock.try_lock().is_none() && lock.try_lock_weak().is_none() && lock.is_locked());
        lock.wants_offers();
        for deadline in deadlines() {
            assert!(lock.lock_until(deadline).is_none(), "{}", L::INFO.name);
        }
        // SAFETY: from the acquisition above, by way of its word.
        unsafe { lock.unlock(L::Token::from_word(token.into_word())) };
        // A forgotten token leaves the lock held for ever. The lock may still be moved and dropped.
        lock.lock_contended();
        let moved = Box::new(lock);
        assert!(moved.is_locked() && moved.try_lock().is_none());
    }

    fn fair_mutex<L: Fair<Machine = Native>>(&mut self) {
        self.mutex::<L>();
        let lock = L::new_in();
        let token = lock.lock();
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock_fair(token) };
        assert!(!lock.is_locked());
    }

    fn downgradable<R: RawDowngrade<Machine = Native>>(&mut self) {
        self.rwlock::<R>();
        let lock = R::new_in();
        // SAFETY: each token is from the call before.
        unsafe { lock.unlock_read(lock.downgrade(lock.write())) };
        assert!(!lock.is_locked());
    }

    fn upgradable<R: RawUpgrade<Machine = Native> + RawFair>(&mut self) {
        self.downgradable::<R>();
        let lock = R::new_in();
        // A forgotten token leaves the lock held for ever.
        _ = lock.upgradable();
        assert!(lock.try_upgradable().is_none() && lock.try_write().is_none());
    }

    fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
        let lock = R::new_in();
        for _ in 0..40 {
            // Enough reads that a lock with a bias is biased.
            let token = lock.read();
            _ = (R::is_recorded(&token), lock.has_own_recorded_read(), lock.has_recorded_read());
            assert!(lock.is_locked() && !lock.is_write_locked());
            // SAFETY: from the acquisition above.
            unsafe { lock.unlock_read(token) };
        }
        let token = lock.write();
        assert!(lock.try_read().is_none() && lock.try_read_weak().is_none() && lock.try_write().is_none());
        for deadline in deadlines() {
            assert!(lock.read_until(deadline).is_none() && lock.write_until(deadline).is_none());
        }
        assert!(lock.is_write_locked(), "{}", R::INFO.name);
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock_write(token) };
        _ = lock.read();
        let moved = Box::new(lock);
        _ = moved.try_write();
    }

    fn seqlock<L: RawMutex<Machine = Native>>(&mut self) {
        let lock = RawSeqLock::<L>::new_in();
        let words: [AtomicUsize; 3] = [1, 2, 3].map(AtomicUsize::new);
        // Copies of another length than the words, and of length 0.
        for length in [0, 2, 3, 9] {
            let mut copy = vec![0; length];
            assert!(lock.try_read(&words, &mut copy) && lock.try_read(&[], &mut copy));
            lock.read(&words, &mut copy, || ());
            let mut writing = lock.write();
            writing.load(&words, &mut copy);
            writing.store(&words, &copy);
            writing.store(&[], &copy);
        }
        // A forgotten write keeps writers out. Readers go on.
        forget(lock.write());
        assert!(lock.try_read(&words, &mut [0; 3]));
    }
}

pub fn raw() {
    registry::visit(&mut Each);
    let mut all = 0;
    registry::for_each(|entry| {
        all += 1;
        assert_eq!(registry::find(entry.kind, entry.info.name).unwrap().bytes, entry.bytes);
        assert!(!entry.info.suspension.name().is_empty());
    });
    assert!(all > 30 && registry::find(Kind::Mutex, "\0").is_none() && !Kind::SeqLock.name().is_empty());
    struct Far;
    impl Name for Far {
        fn cohort<M: Machine>() -> usize {
            usize::MAX
        }
    }
    type Stacked = mutex::stacked::Stacked<mutex::tas::RawTas<Native>, mutex::mcs::RawMcs<Native>, Far>;
    let lock = Stacked::new_in();
    let way = lock.lock();
    // SAFETY: from the acquisition above.
    unsafe { lock.unlock(way) };
    assert_eq!(Far::cohort::<Native>(), usize::MAX);
    let mcs = mutex::mcs::RawMcs::<Native>::new_in();
    let token = mcs.lock();
    // SAFETY: from the acquisition above, which has not ended.
    assert!(!unsafe { mcs.has_waiters(token) });
}

/// The functions of locks that can do more than read and write, each with deadlines of all kinds.
pub fn modes() {
    fn check<R: RawUpgrade<Machine = Native> + RawFair>() {
        let lock = R::new_in();
        let held = lock.upgradable();
        assert!(lock.try_upgradable().is_none() && lock.is_locked());
        for deadline in deadlines() {
            assert!(lock.upgradable_until(deadline).is_none());
            assert!(lock.upgradable_within(Timeout::At(deadline), &|| ()).is_none());
        }
        _ = lock.is_awaited();
        // SAFETY: from the acquisition above, by way of its word.
        unsafe { lock.unlock_upgradable_fair(R::Upgradable::from_word(held.into_word())) };
        // One that is forgotten keeps writers out for ever, and readers go on.
        _ = lock.upgradable();
        let moved = Box::new(lock);
        assert!(moved.try_write().is_none() && moved.try_read().is_some());
    }
    fn check_recursive<R: RawRecursive<Machine = Native>>() {
        let lock = R::new_in();
        _ = (lock.read_recursive(), lock.try_read_recursive().unwrap());
        for deadline in deadlines() {
            assert!(lock.read_recursive_until(deadline).is_some());
            assert!(lock.read_recursive_within(Timeout::At(deadline), &|| ()).is_some());
        }
        let lock = R::new_in();
        _ = lock.write();
        assert!(lock.try_read_recursive().is_none());
        for deadline in deadlines() {
            assert!(lock.read_recursive_until(deadline).is_none());
        }
    }
    check::<RawPfT<Native>>();
    check::<RawPfQ<Native>>();
    check::<RawShflRw<Native>>();
    check::<Rows<Native, RawShflRw<Native>>>();
    check_recursive::<RawRwSem<Native>>();
    check_recursive::<RawShflRw<Native>>();
    check_recursive::<Rows<Native, RawShflRw<Native>>>();
    let lock = Bravo2dShflRwLock::new(());
    forget((lock.read_recursive(), lock.try_read_recursive()));
    assert!(lock.try_write().is_none());
    assert!(lock.try_read_recursive_for(Duration::MAX).is_some());
    assert!(lock.try_read_recursive_until(Instant::now()).is_some());
}

pub fn guards() {
    // Forgotten guards leave locks held. The value is dropped with the lock.
    let lock = Mutex::new(vec![1]);
    forget(lock.lock());
    assert!(lock.try_lock_for(Duration::ZERO).is_none());
    let mut moved = Box::new(lock);
    moved.get_mut().push(2);
    assert_eq!(moved.into_inner(), [1, 2]);
    let lock = RwLock::new(String::from("read"));
    (0..40).for_each(|_| drop(lock.read()));
    forget(lock.read());
    assert!(lock.try_write_for(Duration::ZERO).is_none() && *lock.read() == "read");
    drop(lock);
    let condvar = Condvar::new();
    let lock = Mutex::new(());
    assert!(condvar.wait_for(&mut lock.lock(), Duration::ZERO).timed_out());
    condvar.notify_one();
}

pub fn bravo() {
    use bias::When;
    use bravo::RawBravo;
    use bravo::around::Around;
    use count::Count;
    use publish::Publish;
    use revoke::Await;
    use table::Slots;
    type Lock = RawBravo<Native, latchwork::locks::rwlock::pf_t::RawPfT<Native>>;
    let lock = Lock::new_warm_in();
    assert!(!lock.is_biased());
    // SAFETY: the token is from the acquisition in the same expression.
    unsafe { lock.unlock_read(lock.read()) };
    assert!(lock.is_biased());
    assert!(lock.may_have_slot_readers() && lock.must_revoke() && !lock.is_being_revoked());
    let rows = Rows::<Native, RawShflRw<Native>>::new_in();
    assert!(rows.read_in_further_slot().is_none() && rows.read_in_first_slot().is_none());
    // SAFETY: the token is from the acquisition in the same expression.
    (0..40).for_each(|_| unsafe { rows.unlock_read(rows.read()) });
    // Slots that are never left keep writers out. (The thread has few, and forgotten readers of other locks are in some.)
    let slots = [rows.read_in_first_slot(), rows.read_in_other_slot(), rows.read_in_further_slot()];
    (0..40).for_each(|_| _ = rows.read_in_further_slot());
    assert_eq!(rows.try_write().is_none(), slots.iter().any(Option::is_some));
    drop(rows);
    _ = bravo::Filled::new(&0u64);
    count::Counted::add::<Native>(count::Event::Fast, u64::MAX);
    count::Counted::add::<Native>(count::Event::Revoking, 0);
    assert!(refused(|| count::Counted::add::<Native>(count::Event::Fast, 1)) || cfg!(not(debug_assertions)));
    assert!(refused(|| _ = count::Counts::of_process()) || count::Counts::of_process().revoking < u64::MAX);
    <publish::Owned as Publish<Native>>::fence();
    <publish::Owned as Publish<Native>>::note_unbiased(NOWHERE, true);
    <publish::Owned as Publish<Native>>::note_unbiased(usize::MAX, false);
    assert!(<table::Hashed as Publish<Native>>::prepare());
    for length in [1, 4096] {
        for lock in [0, NOWHERE, usize::MAX] {
            assert!(table::Anywhere::first::<Native>(lock, length) < length);
            assert!(table::Twice::second::<Native>(lock, length).is_some_and(|slot| slot < length));
            assert!(table::Sector::first::<Native>(lock, length) < length);
            assert!(table::Column::column::<Native>(lock, length).is_some_and(|(column, _)| column < length));
        }
    }
    assert!(refused(|| _ = table::Anywhere::first::<Native>(1, 0)) || cfg!(not(debug_assertions)));
    type Adaptive = bias::Adaptive<{ u64::MAX }>;
    for (start, now) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
        refused(|| _ = Adaptive::revoked::<Native>(start, now));
        refused(|| _ = bias::Guard::<{ u64::MAX }>::revoked::<Native>(start, now));
        for number in [0, 7, u32::MAX] {
            _ = (Adaptive::may_return::<Native>(number, 0, 1), Adaptive::may_return::<Native>(0, number, 16));
            _ = bias::Bernoulli::<0>::may_return::<Native>(number, number, number);
        }
    }
    let word = AtomicUsize::new(1);
    for deadline in deadlines() {
        let patience = Timeout::At(deadline);
        assert!(!revoke::Naps::until::<Native, _, _>(&word, patience, |_| false));
        assert!(!revoke::Spins::until::<Native, _, _>(&word, patience, |_| false));
    }
    assert!(!revoke::Naps::until::<Native, _, _>(&word, Timeout::Immediate, |_| true));
}

pub fn waiting() {
    // The pieces of a wait in the wrong order, and with another condition variable.
    let (one, other) = (RawCondvar::<Native>::new_in(), RawCondvar::<Native>::new_in());
    RawCondvar::<Native>::offer_processor(|| true);
    let ticket = one.prepare();
    other.notify_all();
    assert!(!one.is_notified(ticket) && one.has_waiters() && ticket.value() == 0);
    for deadline in deadlines() {
        one.block(ticket, Some(deadline));
        one.wait(|| (), Some(deadline));
    }
    one.word().store(u32::MAX, Relaxed);
    one.notify(0);
    one.notify_one();
    // Announced, and woken more often than that, and elsewhere.
    let sleepers = one.announce(u32::MAX).unwrap() + other.announce(1).unwrap();
    one.wake_claimed();
    other.wake_claimed();
    RawCondvar::<Native>::wake_announced(other.word(), sleepers + 1);
    one.finish(ticket, latchwork::machine::Wait::TimedOut);
    one.wait_until_quiet();
    // One more waiter leaves than has come.
    one.abandon(ticket);
    one.notify_one();
    let semaphore = Semaphore::new(0);
    assert!(!semaphore.try_acquire_for(Duration::ZERO) && !semaphore.try_acquire());
    assert!(!semaphore.try_acquire_until(Instant::now()) && semaphore.available() == 0);
    assert!(semaphore.release_many(2).is_ok() && semaphore.release_many(u32::MAX).is_err());
    assert!(semaphore.release().is_ok() && semaphore.try_acquire_for(Duration::MAX));
    semaphore.acquire();
    let semaphore = RawSemaphore::<Native>::new(0);
    for deadline in deadlines() {
        assert!(!semaphore.acquire_until(deadline));
    }
    semaphore.step(false, false);
    semaphore.step(true, true);
    semaphore.forsake();
    assert!(semaphore.release_many(u32::MAX).is_err() && semaphore.release().is_ok());
    assert!((0..1000).any(|_| semaphore.spin()), "one waiter in some spins");
    semaphore.word().store(u32::MAX, Relaxed);
    assert!(semaphore.value() > 0 && semaphore.release().is_err());
    refused(|| _ = RawSemaphore::<Native>::new_in(u32::MAX));
    let words = SeqLock::<RawShfl<Native>, 0>::new([]);
    assert!(words.read().is_empty() && words.try_read().is_some());
    words.write(|_| ());
    let panicking = SeqLock::<RawShfl<Native>, 2>::new_in();
    assert!(refused(|| panicking.write(|_| panic!("half done"))) && panicking.read() == [0, 0]);
}

/// Whether [`Moody`] panics.
static MOOD: AtomicU32 = AtomicU32::new(0);

/// The part of a lock that a program has written, and that panics.
struct Moody;

impl Name for Moody {
    fn cohort<M: Machine>() -> usize {
        assert_eq!(MOOD.load(Relaxed), 0, "not in the mood");
        0
    }
}

/// A mutex cannot be locked again after a wait, because the program's part of it panics. The guard would unlock a mutex
/// that is not held, so the process ends instead.
pub fn panics_in_a_wait() {
    type Lock = mutex::stacked::Stacked<mutex::tas::RawTas<Native>, mutex::mcs::RawMcs<Native>, Moody>;
    let lock = lock_api::Mutex::<mutex::Api<Lock>, u32>::new(0);
    let condvar = CondvarOver::<Lock>::new();
    let mut guard = lock.lock();
    MOOD.store(1, Relaxed);
    refused(|| _ = condvar.wait_for(&mut guard, Duration::ZERO));
    MOOD.store(0, Relaxed);
    let another = lock.try_lock();
    println!("two holders: {}", another.is_some());
}
