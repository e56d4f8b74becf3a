//! The public root of the crate and the aliases below `latchwork::locks`: what every type has, and that the figures in
//! the docs are those of the registry.

use latchwork::locks;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::semaphore::Unit;
use latchwork::machine::Native;
use latchwork::registry::{self, Entry, Kind};
use latchwork::{Condvar, Mutex, ReentrantMutex, RwLock, Semaphore, SeqLock, lock_api};
use std::cell::Cell;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compiles if a type can be shared by threads.
fn shared<T: Sync>(_: &T) {}

/// Whether a type has a trait. A constant of the type itself goes before one of a trait, and needs the trait asked for.
macro_rules! has {
    ($type:ty: $trait:path) => {{
        #[allow(dead_code, reason = "a type uses one of the two constants")]
        const fn has() -> bool {
            struct Of<T: ?Sized>(std::marker::PhantomData<T>);
            trait Any {
                const HAS: bool = false;
            }
            impl<T: ?Sized> Any for Of<T> {}
            impl<T: ?Sized + $trait> Of<T> {
                const HAS: bool = true;
            }
            <Of<$type>>::HAS
        }
        has()
    }};
}

/// What each type that holds a value has; then `guards` for its guards.
macro_rules! value {
    ($($lock:ident)::+, $guards:expr) => {{
        let lock: $($lock)::+<u32> = From::from(7);
        assert!(format!("{lock:?}").contains('7'));
        $guards(&lock);
        assert_eq!(lock.into_inner(), 7);
        assert_eq!(<$($lock)::+<u32>>::default().into_inner(), 0);
        stringify!($($lock)::+)
    }};
}

macro_rules! mutexes {
    ($($name:ident)*) => {
        [$(value!(locks::$name, |lock: &locks::$name<u32>| {
            let guard = lock.lock();
            shared(&guard);
            assert_eq!(format!("{guard:?}"), "7");
            let mapped = lock_api::MutexGuard::map(guard, |value| value);
            shared(&mapped);
            assert_eq!(format!("{mapped:?}"), "7");
            drop(mapped);
            let condvar = locks::CondvarOver::default();
            assert!(condvar.wait_for(&mut lock.lock(), Duration::ZERO).timed_out());
            shared(&condvar);
            assert!(format!("{condvar:?}").contains("Condvar"));
        })),*]
    };
}

macro_rules! rwlocks {
    ($($name:ident)*) => {
        [$(value!(locks::$name, |lock: &locks::$name<u32>| {
            let guard = lock.read();
            shared(&guard);
            assert_eq!(format!("{guard:?}"), "7");
            let mapped = lock_api::RwLockReadGuard::map(guard, |value| value);
            shared(&mapped);
            drop(mapped);
            let guard = lock.write();
            shared(&guard);
            assert_eq!(format!("{guard:?}"), "7");
            let mapped = lock_api::RwLockWriteGuard::map(guard, |value| value);
            shared(&mapped);
        })),*]
    };
}

#[test]
fn every_alias_has_the_usual_traits() {
    let mut seen = Vec::new();
    seen.extend(mutexes! {
        TasMutex TtasMutex TicketMutex McsMutex ClhMutex CnaMutex CBoMcsMutex CTktMcsMutex HmcsMutex ClofMutex
        TicketBackoffMutex TwaMutex K42Mutex QspinlockMutex ReciprocatingMutex McsTpMutex HemlockMutex HclhMutex
        FissileMutex McsParkMutex MalthusianMutex MutexeeMutex HybridMutex CstMutex ShflSpinMutex ShflMutex
    });
    seen.extend(rwlocks! {
        PfTRwLock PfQRwLock ShflRwLock BravoShflRwLock McsRwLock PerCpuRwLock CohortRwLock RwSemRwLock
        BravoMutexRwLock BravoPfTRwLock Bravo2dShflRwLock BravoCpuPfQRwLock BravoRwLock
        GlibcModelRwLock BravoGlibcModelRwLock Bravo2dGlibcModelRwLock
    });
    let sources = concat!(
        include_str!("../../src/locks/aliases.rs"),
        include_str!("../../src/locks/aliases/compared.rs")
    );
    let names = sources.lines().filter_map(|line| line.strip_prefix("pub type "));
    let mut missing: Vec<_> = names
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap())
        .filter(|name| !name.ends_with("Over") && !name.ends_with("Condvar"))
        .filter(|name| {
            !seen
                .iter()
                .any(|seen| seen.ends_with(&format!(" {name}")) || seen.ends_with(&format!("::{name}")))
        })
        .collect();
    missing.sort_unstable();
    assert!(missing.is_empty(), "not checked here: {missing:?}");
    // Each mutex and each reader-writer lock of the registry has an alias (that of BRAVO over a mutex is beside it).
    let (mut mutexes, mut rwlocks) = (0, 1);
    registry::for_each(|entry| match entry.kind {
        Kind::Mutex => mutexes += 1,
        Kind::RwLock => rwlocks += 1,
        Kind::SeqLock => (),
    });
    let readme = include_str!("../../README.md");
    let both = mutexes + rwlocks - 1;
    assert!(readme.contains(&format!("`all-locks`, {both} of them")), "README.md: there are {both}");
    let count = |suffix: &str| seen.iter().filter(|name| name.ends_with(suffix)).count();
    assert_eq!((count("Mutex"), count("RwLock")), (mutexes, rwlocks));
}

#[test]
fn every_type_of_the_root_has_the_usual_traits() {
    fn usual<T: Debug + Default + Send + Sync>() {
        assert!(!format!("{:?}", T::default()).is_empty());
    }
    usual::<Mutex<u32>>();
    usual::<RwLock<u32>>();
    usual::<Condvar>();
    usual::<Semaphore>();
    usual::<SeqLock<2>>();
    usual::<ReentrantMutex<u32>>();
    usual::<latchwork::reclaim::Rcu<u32>>();
    usual::<latchwork::map::RcuMap<u32, u32>>();
    usual::<latchwork::map::RcuTreeMap<u32, u32>>();
    assert_eq!(*Mutex::from(7).lock(), 7);
    assert_eq!(*RwLock::from(7).read(), 7);
    assert_eq!(SeqLock::from([7]).read(), [7]);
    assert_eq!(format!("{:?}", SeqLock::from([7, 8])), "SeqLock([7, 8])");
    assert_eq!(*latchwork::reclaim::Rcu::from(7).get(), 7);
    assert_eq!(format!("{:?}", latchwork::reclaim::Rcu::new(7)), "Rcu(7)");
    let reentrant = ReentrantMutex::from(7);
    let guards = (reentrant.lock(), reentrant.lock());
    shared(&guards);
    assert_eq!(*guards.0 + *guards.1, 14);
    assert!(format!("{:?}", Semaphore::new(3)).contains("available: 3"));
}

/// No guard can be sent to another thread, and only guards of a `Sync` value can be shared. A lock shares its value as it has to.
#[test]
fn guards_stay_in_their_thread() {
    use latchwork::*;
    macro_rules! guards {
        ($($guard:ident $(<$lifetime:lifetime>)?),* $(,)?) => {$(
            assert!(!has!($guard<$($lifetime,)? u32>: Send), "{} is Send", stringify!($guard));
            assert!(has!($guard<$($lifetime,)? u32>: Sync), "{} is not Sync", stringify!($guard));
            assert!(!has!($guard<$($lifetime,)? Cell<u32>>: Sync), "{} shares a Cell", stringify!($guard));
        )*};
    }
    guards!(
        MutexGuard<'static>,
        MappedMutexGuard<'static>,
        ArcMutexGuard,
        ReentrantMutexGuard<'static>,
        MappedReentrantMutexGuard<'static>,
        ArcReentrantMutexGuard,
        RwLockReadGuard<'static>,
        RwLockWriteGuard<'static>,
        RwLockUpgradableReadGuard<'static>,
        MappedRwLockReadGuard<'static>,
        MappedRwLockWriteGuard<'static>,
        ArcRwLockReadGuard,
        ArcRwLockWriteGuard,
        ArcRwLockUpgradableReadGuard,
    );
    macro_rules! locks {
        ($($lock:ident: $shares_cells:expr),*) => {$(
            assert!(has!($lock<Cell<u32>>: Send) && has!($lock<u32>: Sync), "{}", stringify!($lock));
            assert!(!has!($lock<Rc<u32>>: Send) && !has!($lock<Rc<u32>>: Sync), "{}", stringify!($lock));
            assert_eq!(has!($lock<Cell<u32>>: Sync), $shares_cells, "{}", stringify!($lock));
        )*};
    }
    locks!(Mutex: true, ReentrantMutex: true, RwLock: false);
}

/// What the reader-writer lock of the root can do beyond reading and writing.
#[test]
fn readers_become_writers_and_writers_become_readers() {
    use latchwork::{ReadRecursive, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
    let lock = RwLock::new(1);
    for round in 1..50 {
        let upgradable: RwLockUpgradableReadGuard<'_, u32> = lock.upgradable_read();
        shared(&upgradable);
        assert!(
            lock.try_read().is_some() && lock.try_upgradable_read().is_none() && lock.try_write().is_none()
        );
        let mut write = RwLockUpgradableReadGuard::upgrade(upgradable);
        assert!(lock.try_read().is_none() && *write == round);
        *write += 1;
        let upgradable = RwLockWriteGuard::downgrade_to_upgradable(write);
        let reader = lock.read();
        let upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect_err("there is a reader");
        drop(reader);
        let write =
            RwLockUpgradableReadGuard::try_upgrade_for(upgradable, Duration::from_secs(60)).expect("alone");
        let mut reader: RwLockReadGuard<'_, u32> = RwLockWriteGuard::downgrade(write);
        let again = lock.read_recursive();
        assert!(*reader == *again && lock.try_read_recursive().is_some() && lock.try_write().is_none());
        drop(again);
        RwLockReadGuard::bump(&mut reader);
        RwLockReadGuard::unlock_fair(reader);
        RwLockWriteGuard::unlock_fair(lock.write());
    }
    assert!(!lock.is_locked());
}

/// A thread that reads may read again in each form while a writer waits for it.
#[test]
fn recursive_reads_pass_a_waiting_writer() {
    use latchwork::ReadRecursive;
    const MINUTE: Duration = Duration::from_secs(60);
    let lock = RwLock::new(1);
    std::thread::scope(|scope| {
        let outer = lock.read();
        scope.spawn(|| *lock.write() = 2);
        // Long enough for a writer that comes to wait.
        std::thread::sleep(Duration::from_millis(20));
        let again = [
            Some(lock.read_recursive()),
            lock.try_read_recursive_for(MINUTE),
            lock.try_read_recursive_until(Instant::now() + MINUTE),
        ];
        assert!(again.iter().all(|guard| guard.as_ref().is_some_and(|guard| **guard == *outer)));
    });
    let write = lock.write();
    assert_eq!(*write, 2);
    assert!(lock.try_read_recursive_for(Duration::from_millis(1)).is_none());
    assert!(lock.try_read_recursive_until(Instant::now()).is_none());
}

/// The features that lock_api has too.
#[test]
fn locks_are_serialized_as_their_value_and_guards_can_own_them() {
    assert_eq!(serde_json::to_string(&(Mutex::from(7), RwLock::from([8]))).unwrap(), "[7,[8]]");
    assert_eq!(*serde_json::from_str::<RwLock<u32>>("7").unwrap().read(), 7);
    let lock = Arc::new(Mutex::new(7));
    let guard: latchwork::ArcMutexGuard<u32> = lock.lock_arc();
    shared(&guard);
    assert!(lock.is_locked());
    drop(lock);
    assert_eq!(*guard, 7);
}

/// The tables in the docs of the root's types: a row begins with its title.
#[test]
fn the_docs_have_the_registrys_figures() {
    let sources = [
        ("mutex", include_str!("../../src/sync/mutex.rs")),
        ("rwlock", include_str!("../../src/sync/rwlock.rs")),
        ("seqlock", include_str!("../../src/sync/seqlock.rs")),
        ("semaphore", include_str!("../../src/sync/semaphore.rs")),
    ];
    for (kind, source) in sources {
        let rows: Vec<(&str, &str)> = source
            .lines()
            .filter_map(|line| line.strip_prefix("/// | ")?.strip_suffix(" |")?.split_once(" | "))
            .collect();
        let row = |title: &str| {
            let found = rows.iter().find(|(first, _)| *first == title);
            found.unwrap_or_else(|| panic!("{kind}: no row \"{title}\"")).1
        };
        let name = source.split("/// | `").nth(1).and_then(|rest| rest.split('`').next()).expect("a table");
        let semaphore =
            Entry { kind: Kind::Mutex, info: Unit::<Native>::INFO, bytes: size_of::<Semaphore>() };
        let entry = match kind {
            "mutex" => registry::find(Kind::Mutex, name),
            "rwlock" => registry::find(Kind::RwLock, name),
            "seqlock" => registry::find(Kind::SeqLock, name),
            _ => Some(semaphore),
        };
        let Entry { info, bytes, .. } = entry.expect("a registered lock");
        let size =
            rows.iter().find(|(title, _)| title.starts_with("bytes") && !title.contains("each")).unwrap();
        let figures = [
            ("bytes", size.1, bytes),
            ("bytes for each waiter", row("bytes for each waiter"), info.waiter_bytes),
            ("bytes for each holder", row("bytes for each holder"), info.holder_bytes),
            (
                "atomic read-modify-writes",
                row("atomic read-modify-writes, uncontended"),
                info.atomics as usize,
            ),
        ];
        for (what, documented, figure) in figures {
            assert_eq!(documented, figure.to_string(), "src/sync: {what} of {name}");
        }
        assert_eq!(row("fairness"), info.fairness, "src/sync: fairness of {name}");
        if kind == "rwlock" {
            let below = registry::find(Kind::RwLock, "shfl-rw").unwrap().info.fairness;
            assert_eq!(row("fairness of the lock below, `shfl-rw`"), below, "src/sync: fairness of shfl-rw");
        }
        assert_eq!(row("waiters").ends_with("sleep"), info.blocking, "src/sync: waiters of {name}");
    }
    assert_eq!(size_of::<Condvar>(), 8, "src/sync/condvar.rs says 8");
    assert_eq!(size_of::<ReentrantMutex<()>>(), size_of::<Mutex<()>>() + 16, "src/sync/reentrant.rs says 16");
    assert_eq!(size_of::<Mutex<()>>(), registry::find(Kind::Mutex, "shfl").unwrap().bytes);
    assert_eq!(size_of::<RwLock<()>>(), registry::find(Kind::RwLock, "bravo-2d-shfl-rw").unwrap().bytes);
}

/// The mutex is one among threads, however often its holder has locked it.
#[test]
fn a_reentrant_mutex_excludes_other_threads() {
    let mutex = ReentrantMutex::new(Cell::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let outer = mutex.lock();
                    let before = outer.get();
                    let inner = mutex.lock();
                    std::thread::yield_now();
                    inner.set(before + 1);
                }
            });
        }
    });
    assert_eq!(mutex.lock().get(), 8000);
    let held = mutex.lock();
    let again = held.get();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(mutex.try_lock().is_none() && mutex.try_lock_for(Duration::from_millis(1)).is_none())
        });
    });
    assert_eq!(held.get(), again);
}
