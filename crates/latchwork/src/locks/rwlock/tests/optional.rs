//! Downgrade, upgradable reads, recursive reads and fair unlock, on real threads.

use super::super::bravo::count::{Count, Event};
use super::super::bravo::revoke::Passing;
use super::super::bravo::{Columns, RawBravo, Rows, bias::Adaptive, bias::Bernoulli, publish::Owned};
use super::super::{
    cohort_rw::RawCohortRw, percpu::RawPerCpu, pf_q::RawPfQ, pf_t::RawPfT, rwsem::RawRwSem,
    shfl_rw::RawShflRw,
};
use super::*;

type Recommended = Rows<Native, RawShflRw<Native>>;

/// Reads often enough that BRAVO is biased.
fn warm<R: RawRwLock>(lock: &R) {
    for _ in 0..40 {
        // SAFETY: the token is from the acquisition in the same expression.
        unsafe { lock.unlock_read(lock.read()) };
    }
}

/// Many writers that downgrade: each still reads what it wrote.
fn downgrades<R: RawDowngrade<Machine = Native>>() {
    let pair = &Pair::<R>::new();
    warm(&pair.lock);
    in_threads(4, &|_| {
        for _ in 0..1_000 {
            let token = pair.lock.write();
            let mine = pair.change_only();
            // SAFETY: the token is from the acquisition above.
            let token = unsafe { pair.lock.downgrade(token) };
            // (Not `is_write_locked`: a writer that waits for this reader may count as a writer already.)
            assert!(pair.lock.is_locked() && pair.lock.try_write().is_none(), "{}", R::INFO.name);
            assert_eq!(pair.look(), mine, "{}: a writer between", R::INFO.name);
            pair.check(token);
            pair.check(pair.lock.read());
        }
    });
    assert_eq!(pair.lock.try_write().map(|token| pair.change(token)), Some(()));
}

/// A downgraded writer lets readers in and keeps writers out.
fn downgraded_shares<R: RawDowngrade<Machine = Native>>() {
    let lock = R::new_in();
    for _ in 0..40 {
        // SAFETY: each token is from one acquisition.
        unsafe {
            let first = lock.downgrade(lock.write());
            let second = lock.try_read().expect("readers share");
            assert!(lock.try_write().is_none(), "{}: wrote beside a reader", R::INFO.name);
            lock.unlock_read(first);
            assert!(lock.try_write().is_none(), "{}: wrote beside a reader", R::INFO.name);
            lock.unlock_read(second);
            assert!(!lock.is_locked(), "{}", R::INFO.name);
        }
    }
}

#[test]
fn a_writer_becomes_a_reader() {
    fn check<R: RawDowngrade<Machine = Native>>() {
        downgraded_shares::<R>();
        downgrades::<R>();
    }
    check::<RawShflRw<Native>>();
    check::<RawPfT<Native>>();
    check::<RawPfQ<Native>>();
    check::<RawPerCpu<Native>>();
    check::<RawRwSem<Native>>();
    check::<RawCohortRw<Native>>();
    check::<Recommended>();
    check::<RawBravo<Native, RawPfT<Native>>>();
    check::<Columns<Native, RawPfQ<Native>>>();
}

/// Which threads enter beside an upgradable reader, before and after it has upgraded.
fn upgradable_forms<R: RawUpgrade<Machine = Native>>() {
    let (name, lock) = (R::INFO.name, R::new_in());
    for round in 0..40 {
        // SAFETY: each token is from one acquisition.
        unsafe {
            let held = if round % 2 == 0 { lock.upgradable() } else { lock.try_upgradable().unwrap() };
            assert!(lock.is_locked() && !lock.is_write_locked(), "{name}");
            assert!(lock.try_upgradable().is_none(), "{name}: two upgradable readers");
            assert!(lock.upgradable_until(soon(0)).is_none(), "{name}: two upgradable readers");
            assert!(lock.try_write().is_none() && lock.write_until(soon(0)).is_none(), "{name}");
            let reader = lock.try_read().expect("beside an upgradable reader");
            let Err(held) = lock.try_upgrade(held) else { panic!("{name}: wrote beside a reader") };
            let Err(held) = lock.upgrade_within(held, Timeout::At(soon(1))) else {
                panic!("{name}: likewise")
            };
            // An upgrade that has given up keeps nobody out.
            let another =
                lock.try_read().unwrap_or_else(|| panic!("{name}: a failed upgrade keeps readers out"));
            lock.unlock_read(another);
            lock.unlock_read(reader);
            let token = match round % 3 {
                0 => lock.try_upgrade(held).unwrap_or_else(|_| panic!("{name}: no reader is inside")),
                1 => {
                    lock.upgrade_within(held, Timeout::At(soon(60_000))).unwrap_or_else(|_| panic!("{name}"))
                }
                _ => lock.upgrade(held),
            };
            assert!(lock.is_write_locked() && lock.try_read().is_none(), "{name}: read beside a writer");
            assert!(lock.try_upgradable().is_none(), "{name}: read beside a writer");
            if round % 2 == 0 {
                lock.unlock_write(token);
            } else {
                let held = lock.downgrade_to_upgradable(token);
                assert!(lock.try_write().is_none() && lock.try_upgradable().is_none(), "{name}");
                let reader = lock.try_read().expect("beside an upgradable reader");
                let me = lock.downgrade_upgradable(held);
                let held = lock.try_upgradable().expect("beside readers");
                lock.unlock_read(me);
                lock.unlock_read(reader);
                lock.unlock_upgradable(held);
            }
            assert!(!lock.is_locked() && !lock.is_write_locked(), "{name}");
        }
    }
}

/// Readers, writers and upgradable readers at once.
fn upgrades<R: RawUpgrade<Machine = Native>>() {
    const THREADS: u32 = 6;
    let pair = &Pair::<R>::new();
    warm(&pair.lock);
    let writes = &AtomicU32::new(0);
    let count = |changed: bool| _ = writes.fetch_add(u32::from(changed), Relaxed);
    in_threads(THREADS, &|t| {
        for round in 0..2_000 {
            // SAFETY: each token is from one acquisition.
            unsafe {
                match (t * 3 + round) % 9 {
                    0 => {
                        pair.change(pair.lock.write());
                        count(true);
                    }
                    kind @ 1..4 => {
                        let held = pair.lock.upgradable();
                        let before = pair.look();
                        let timeout = [Timeout::Never, Timeout::Immediate, Timeout::At(soon(1))];
                        match pair.lock.upgrade_within(held, timeout[kind as usize - 1]) {
                            Ok(token) => {
                                assert_eq!(pair.look(), before, "{}: a writer between", R::INFO.name);
                                count(true);
                                if round % 2 == 0 {
                                    pair.change(token);
                                } else {
                                    pair.change_only();
                                    let held = pair.lock.downgrade_to_upgradable(token);
                                    assert_eq!(pair.look(), before + 1);
                                    pair.lock.unlock_upgradable_fair(held);
                                }
                            }
                            Err(held) => {
                                assert_eq!(pair.look(), before, "{}: a writer beside", R::INFO.name);
                                pair.check(pair.lock.downgrade_upgradable(held));
                            }
                        }
                    }
                    _ => pair.check(pair.lock.read()),
                }
            }
        }
    });
    let name = R::INFO.name;
    assert_eq!(pair.look(), u64::from(writes.load(Relaxed)), "{name}: lost a write");
    assert!(!pair.lock.is_locked() && !pair.lock.is_write_locked(), "{name}: left locked");
}

#[test]
fn an_upgradable_reader_becomes_a_writer() {
    fn check<R: RawUpgrade<Machine = Native>>() {
        upgradable_forms::<R>();
        upgrades::<R>();
    }
    check::<RawShflRw<Native>>();
    check::<RawPfT<Native>>();
    check::<RawPfQ<Native>>();
    check::<Recommended>();
    check::<RawBravo<Native, RawShflRw<Native>>>();
    check::<RawBravo<Native, RawPfT<Native>>>();
    check::<Columns<Native, RawPfQ<Native>>>();
    check::<RawBravo<Native, RawPfT<Native>, Owned, Adaptive, Passing>>();
}

/// A reader reads again while a writer waits, and while an upgradable reader upgrades.
fn reads_again<R: RawRecursive<Machine = Native>>(waits: impl Fn(&R) + Sync) {
    let lock = &R::new_in();
    warm(lock);
    let waits: Body<'_, ()> = &|| waits(lock);
    for _ in 0..3 {
        let outer = lock.read();
        thread::scope(|scope| {
            scope.spawn(waits);
            // Until it waits, or long enough that it does.
            for _ in 0..20 {
                thread::sleep(core::time::Duration::from_millis(1));
                let inner = lock.read_recursive();
                let tried = lock.try_read_recursive();
                // SAFETY: each token is from one acquisition.
                unsafe {
                    lock.unlock_read(inner);
                    if let Some(token) = tried {
                        lock.unlock_read(token);
                    }
                }
            }
            // SAFETY: acquired above.
            unsafe { lock.unlock_read(outer) };
        });
        assert!(!lock.is_locked(), "{}", R::INFO.name);
    }
}

#[test]
fn a_reader_reads_again_past_a_waiting_writer() {
    fn check<R: RawRecursive<Machine = Native>>() {
        // SAFETY: the token is from the acquisition in the same expression.
        reads_again::<R>(|lock| unsafe { lock.unlock_write(lock.write()) });
    }
    check::<RawShflRw<Native>>();
    check::<RawRwSem<Native>>();
    check::<Recommended>();
}

#[test]
fn a_reader_reads_again_past_an_upgrade() {
    fn check<R: RawRecursive<Machine = Native> + RawUpgrade>() {
        // SAFETY: each token is from the acquisition before it.
        reads_again::<R>(|lock| unsafe { lock.unlock_write(lock.upgrade(lock.upgradable())) });
    }
    check::<RawShflRw<Native>>();
    check::<Recommended>();
}

/// Fair releases by many threads. (That a waiter is not passed is a client of loom.)
fn leaves_fairly<R: RawFair<Machine = Native>>() {
    let pair = &Pair::<R>::new();
    warm(&pair.lock);
    in_threads(4, &|_| {
        for _ in 0..500 {
            let token = pair.lock.write();
            pair.change_only();
            // SAFETY: each token is from one acquisition.
            unsafe {
                pair.lock.unlock_write_fair(token);
                let token = pair.lock.read();
                pair.look();
                pair.lock.unlock_read_fair(token);
            }
        }
    });
    assert!(pair.look() == 4 * 500 && !pair.lock.is_locked(), "{}", R::INFO.name);
}

#[test]
fn a_holder_leaves_the_lock_to_a_waiter() {
    leaves_fairly::<RawShflRw<Native>>();
    leaves_fairly::<RawPfT<Native>>();
    leaves_fairly::<RawPfQ<Native>>();
    leaves_fairly::<Recommended>();
}

/// Through `lock_api`, as an application uses it.
#[test]
fn through_the_guards() {
    use crate::locks::Bravo2dShflRwLock;
    use lock_api::{RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard};
    let lock = Bravo2dShflRwLock::new(1);
    let held = lock.upgradable_read();
    assert_eq!(*held + *lock.read(), 2);
    assert!(lock.try_write().is_none() && lock.try_upgradable_read().is_none());
    let mut writer = Upgradable::upgrade(held);
    *writer += 1;
    let mut held = RwLockWriteGuard::downgrade_to_upgradable(writer);
    Upgradable::bump(&mut held);
    held.with_upgraded(|value| *value += 1);
    let reader = Upgradable::downgrade(held);
    assert_eq!((*reader, *lock.read_recursive()), (3, 3));
    drop(reader);
    let mut writer = lock.write();
    RwLockWriteGuard::bump(&mut writer);
    *writer += 1;
    let reader = RwLockWriteGuard::downgrade(writer);
    assert_eq!(lock.try_read_recursive().map(|guard| *guard), Some(4));
    lock_api::RwLockReadGuard::unlock_fair(reader);
    RwLockWriteGuard::unlock_fair(lock.write());
    assert!(!lock.is_locked());
}

/// A count that panics when a writer revokes the bias.
struct Panics;

impl Count for Panics {
    const ON: bool = true;

    fn add<M: Machine>(event: Event, _: u64) {
        assert!(!matches!(event, Event::Revocation), "not now");
    }
}

/// A lock's part that panics in the middle of a bump ends the process: the guard would end an acquisition that is over.
#[test]
fn a_panic_in_a_bump_ends_the_process() {
    type Moody = RawBravo<Native, RawShflRw<Native>, Owned, Bernoulli<1>, Passing, Panics>;
    const VARIABLE: &str = "LATCHWORK_TEST_BUMP";
    if std::env::var_os(VARIABLE).is_none() {
        let (succeeded, text) =
            in_a_process("locks::rwlock::tests::optional::a_panic_in_a_bump_ends_the_process", VARIABLE, "1");
        assert!(!succeeded && text.contains("not now") && !text.contains("went on"), "{text}");
        return;
    }
    let lock = &crate::locks::RwLockOver::<Moody, u32>::new(0);
    // The sixteenth reader turns the bias on, and the writer after it revokes that.
    (0..15).for_each(|_| drop(lock.read()));
    let mut writer = lock.write();
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.read()));
        // SAFETY: no acquisition ends by it.
        while !unsafe { lock.raw() }.0.is_awaited() {
            thread::yield_now();
        }
        let bump = core::panic::AssertUnwindSafe(|| lock_api::RwLockWriteGuard::bump(&mut writer));
        _ = std::panic::catch_unwind(bump);
        std::println!("went on");
        core::mem::forget(writer);
    });
}
