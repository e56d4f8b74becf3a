//! A program that was written for parking_lot runs with latchwork when its `use` line is changed: `program.rs` is compiled
//! with each.

/// As it was written.
mod with_parking_lot {
    use parking_lot::{
        ArcMutexGuard, Condvar, MappedMutexGuard, MappedRwLockReadGuard, Mutex, MutexGuard, RawMutex, RwLock,
        RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
    };
    include!("program.rs");
    type OwnedGuard<T> = ArcMutexGuard<RawMutex, T>;
}

/// With the `use` line changed. The guard that owns its mutex is a type of lock_api in parking_lot, and an alias in
/// latchwork.
mod with_latchwork {
    use latchwork::{
        ArcMutexGuard, Condvar, MappedMutexGuard, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock,
        RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
    };
    include!("program.rs");
    type OwnedGuard<T> = ArcMutexGuard<T>;
}

#[test]
fn the_program_does_the_same_with_both() {
    let (before, after) = (with_parking_lot::run(), with_latchwork::run());
    assert_eq!(before, after);
    assert!(before.len() > 10, "{before:?}");
}
