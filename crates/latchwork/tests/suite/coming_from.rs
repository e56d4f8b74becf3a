//! What the tables of `docs/coming-from.md` promise to users of parking_lot, std and pthread, one statement for each row. (The
//! examples of the page are for the other libraries, and tests as well.)

use latchwork::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: Duration = Duration::ZERO;

#[test]
fn mutexes() {
    let mut mutex: Mutex<(u32, String)> = Mutex::new((1, String::new()));
    mutex.get_mut().1.push('a');
    let guard = mutex.lock();
    assert!(mutex.is_locked() && mutex.try_lock().is_none() && mutex.try_lock_for(NOW).is_none());
    assert!(mutex.try_lock_until(Instant::now()).is_none());
    let mapped: MappedMutexGuard<'_, String> = MutexGuard::map(guard, |value| &mut value.1);
    MappedMutexGuard::unlock_fair(mapped);
    let guard = MutexGuard::try_map(mutex.lock(), |_| None::<&mut u32>).unwrap_err();
    let (mut guard, error) =
        MutexGuard::try_map_or_err(guard, |_| Err::<&mut u32, _>("none")).expect_err("the closure's");
    assert_eq!(error, "none");
    assert!(MutexGuard::unlocked(&mut guard, || mutex.try_lock().is_some()));
    MutexGuard::unlocked_fair(&mut guard, || ());
    MutexGuard::bump(&mut guard);
    MutexGuard::unlock_fair(guard);
    assert_eq!(mutex.into_inner(), (1, "a".into()));
    *MutexGuard::leak(Box::leak(Box::new(Mutex::new(1))).lock()) += 1;
    let unsized_value: Arc<Mutex<dyn Fn() -> u32 + Send>> = Arc::new(Mutex::new(|| 7));
    assert_eq!(unsized_value.lock()(), 7);
    assert!(unsized_value.try_lock_arc_for(NOW).is_some());
    // A panic unlocks, also where the closure of a guard panics.
    let mutex = Mutex::new(1);
    let mut panics: [&mut dyn FnMut(); 3] = [
        &mut || _ = MutexGuard::map(mutex.lock(), |_| -> &mut u32 { panic!("map") }),
        &mut || MutexGuard::unlocked(&mut mutex.lock(), || panic!("unlocked")),
        &mut || Condvar::new().wait_while(&mut mutex.lock(), |_| panic!("wait_while")),
    ];
    for panics in &mut panics {
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert!(mutex.try_lock().is_some());
    }
    let reentrant = ReentrantMutex::new((1, 2));
    let mut guard = reentrant.lock();
    assert!(reentrant.is_owned_by_current_thread());
    ReentrantMutexGuard::bump(&mut guard);
    let mapped: MappedReentrantMutexGuard<'_, i32> = ReentrantMutexGuard::map(guard, |value| &value.1);
    assert_eq!(*mapped + reentrant.lock().0, 3);
}

#[test]
fn reader_writer_locks() {
    let mut lock = RwLock::new((1, 2));
    lock.get_mut().0 += 1;
    let read: MappedRwLockReadGuard<'_, i32> = RwLockReadGuard::map(lock.read(), |value| &value.0);
    assert!(lock.try_read().is_some() && lock.try_read_for(NOW).is_some() && lock.try_write().is_none());
    assert!(lock.try_write_for(NOW).is_none() && lock.try_write_until(Instant::now()).is_none());
    assert!(lock.try_upgradable_read_for(NOW).is_some());
    drop(read);
    let write: MappedRwLockWriteGuard<'_, i32> = RwLockWriteGuard::map(lock.write(), |value| &mut value.1);
    assert!(lock.is_locked_exclusive() && lock.try_read_until(Instant::now()).is_none());
    MappedRwLockWriteGuard::unlock_fair(write);
    let mut upgradable = lock.upgradable_read();
    upgradable.with_upgraded(|value| value.0 += 1);
    assert_eq!(upgradable.try_with_upgraded_for(NOW, |value| value.0), Some(3));
    assert!(lock.try_upgradable_read().is_none(), "there is one");
    let write = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect("alone");
    let read = RwLockUpgradableReadGuard::downgrade(RwLockWriteGuard::downgrade_to_upgradable(write));
    drop(read);
    let panics = || lock.upgradable_read().with_upgraded(|_| panic!("upgraded"));
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    let lock = Arc::new(lock);
    let write: ArcRwLockWriteGuard<_> = lock.try_write_arc().expect("no other holder");
    let read: ArcRwLockReadGuard<_> = ArcRwLockWriteGuard::downgrade(write);
    let upgradable: ArcRwLockUpgradableReadGuard<_> = lock.upgradable_read_arc();
    assert_eq!((read.0, upgradable.1), (3, 2));
}

#[test]
fn condition_variables_and_semaphores() {
    let (mutex, changed) = (Mutex::new(true), Condvar::new());
    let mut guard = mutex.lock();
    assert!(changed.wait_for(&mut guard, NOW).timed_out());
    assert!(changed.wait_until(&mut guard, Instant::now()).timed_out());
    assert!(changed.wait_while_for(&mut guard, |value| *value, NOW).timed_out());
    assert!(changed.wait_while_until(&mut guard, |value| *value, Instant::now()).timed_out());
    assert!(!changed.wait_while_for(&mut guard, |value| !*value, NOW).timed_out());
    assert!(!changed.notify_one() && changed.notify_all() == 0);
    // The longest time does not overflow, and does not end at once.
    drop(guard);
    std::thread::scope(|scope| {
        let (mutex, changed) = (&mutex, &changed);
        scope.spawn(|| changed.wait_while_for(&mut mutex.lock(), |value| *value, Duration::MAX));
        scope.spawn(|| {
            let mut guard = mutex.lock();
            while *guard {
                assert!(!changed.wait_for(&mut guard, Duration::MAX).timed_out());
            }
        });
        std::thread::sleep(Duration::from_millis(5));
        *mutex.lock() = false;
        changed.notify_all();
    });
    let units = Semaphore::new(1);
    units.acquire();
    assert!(!units.try_acquire() && !units.try_acquire_for(NOW) && units.available() == 0);
    units.release().unwrap();
    assert!(units.try_acquire_for(Duration::MAX));
}
