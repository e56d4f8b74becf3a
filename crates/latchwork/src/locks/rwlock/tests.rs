//! What every registered reader-writer lock must do, on real threads.

use super::*;
use crate::locks::tests::{Body, in_threads};
use crate::machine::alone::in_a_process;
use crate::registry::{Visitor, visit};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::boxed::Box;
use std::thread;

mod many;
mod optional;

/// Two numbers that only a writer may find unequal.
struct Pair<R> {
    lock: R,
    numbers: UnsafeCell<(u64, u64)>,
}

// SAFETY: the numbers are accessed under the lock; that it excludes is what the tests check.
unsafe impl<R: Sync> Sync for Pair<R> {}

impl<R: RawRwLock> Pair<R> {
    fn new() -> Self {
        Pair { lock: R::new_in(), numbers: UnsafeCell::new((0, 0)) }
    }

    fn check(&self, token: R::Read) {
        let numbers = self.numbers.get();
        // SAFETY: the token excludes writers; volatile keeps the two reads apart.
        unsafe {
            let first = (&raw const (*numbers).0).read_volatile();
            core::hint::spin_loop();
            assert_eq!(
                first,
                (&raw const (*numbers).1).read_volatile(),
                "{}: a reader saw a writer",
                R::INFO.name
            );
            self.lock.unlock_read(token);
        }
    }

    /// How many changes there were. The caller holds the lock in any mode.
    fn look(&self) -> u64 {
        // SAFETY: a holder of any kind excludes writers but itself.
        unsafe { (&raw const (*self.numbers.get()).0).read_volatile() }
    }

    /// The change alone, by a holder for writing. Returns how many there were.
    fn change_only(&self) -> u64 {
        let numbers = self.numbers.get();
        // SAFETY: the caller excludes all other threads; volatile keeps the two writes apart.
        unsafe {
            let next = (&raw const (*numbers).0).read_volatile() + 1;
            (&raw mut (*numbers).0).write_volatile(next);
            core::hint::spin_loop();
            assert_eq!((&raw const (*numbers).1).read_volatile(), next - 1, "{}: two writers", R::INFO.name);
            (&raw mut (*numbers).1).write_volatile(next);
            next
        }
    }

    fn change(&self, token: R::Write) {
        self.change_only();
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.lock.unlock_write(token) };
    }
}

fn soon(millis: u64) -> Deadline {
    Deadline::after::<Native>(millis * 1_000_000)
}

/// All forms of acquire at once, by many more threads than there are cores.
fn exclusion<R: RawRwLock<Machine = Native>>() {
    const THREADS: u32 = 12;
    // Locks that spin need a switch between threads for nearly every hand-over here.
    let rounds = if R::INFO.blocking { 20_000 } else { 3_000 };
    let pair = Pair::<R>::new();
    let writes = AtomicU32::new(0);
    in_threads(THREADS, &|t| {
        for round in 0..rounds {
            let write = match (t + round * 7) % 12 {
                0 => Some(pair.lock.write()),
                1 => pair.lock.try_write(),
                2 => pair.lock.write_until(soon(1)),
                3 => pair.lock.write_until(soon(0)),
                4 => pair.lock.try_read().and_then(|token| {
                    pair.check(token);
                    None
                }),
                5 => pair.lock.read_until(soon(1)).and_then(|token| {
                    pair.check(token);
                    None
                }),
                _ => {
                    pair.check(pair.lock.read());
                    None
                }
            };
            if let Some(token) = write {
                pair.change(token);
                writes.fetch_add(1, Relaxed);
            }
        }
    });
    let name = R::INFO.name;
    assert_eq!(pair.numbers.into_inner().1, u64::from(writes.into_inner()), "{name}: lost a write");
    assert!(!pair.lock.is_locked() && !pair.lock.is_write_locked(), "{name}: left locked");
}

/// What each form of acquisition answers while the lock is held for reading, and for writing.
fn forms<R: RawRwLock<Machine = Native>>() {
    let name = R::INFO.name;
    let lock = R::new_in();
    // Often enough that a biased lock is biased, and with more than one phase of each kind.
    for _ in 0..40 {
        let first = lock.read();
        let second = lock.try_read().expect("readers share");
        let third = lock.read_until(soon(0)).expect("readers share");
        assert!(lock.is_locked() && !lock.is_write_locked(), "{name}");
        assert!(lock.try_write().is_none(), "{name}: wrote beside a reader");
        assert!(lock.write_until(soon(0)).is_none(), "{name}: wrote beside a reader");
        let fourth = lock.try_read().expect("a writer that gave up is gone");
        // SAFETY: each token is from one acquisition above.
        unsafe {
            for token in [first, second, third, fourth] {
                lock.unlock_read(token);
            }
        }
        assert!(!lock.is_locked(), "{name}");
        for turn in 0..3 {
            let token = match turn {
                0 => lock.write(),
                1 => lock.try_write().expect("free"),
                _ => lock.write_until(soon(0)).expect("free"),
            };
            assert!(lock.is_locked() && lock.is_write_locked(), "{name}");
            assert!(lock.try_read().is_none(), "{name}: read beside a writer");
            assert!(lock.read_until(soon(0)).is_none(), "{name}: read beside a writer");
            assert!(lock.try_write().is_none(), "{name}: two writers");
            assert!(lock.write_until(soon(0)).is_none(), "{name}: two writers");
            // SAFETY: the token is from the acquisition above.
            unsafe { lock.unlock_write(token) };
        }
    }
}

/// Timed waiters that fail leave nothing behind, and one that is patient enough succeeds.
fn timed<R: RawRwLock<Machine = Native>>() {
    let name = R::INFO.name;
    let lock = &R::new_in();
    let released = &AtomicBool::new(false);
    let reader = lock.read();
    let hasty: Body<'_, bool> = &|| lock.write_until(soon(3)).is_none();
    let patient: Body<'_, bool> = &|| {
        let token = lock.write_until(soon(60_000));
        let after = released.load(Relaxed);
        // SAFETY: the token is from the acquisition above.
        token.map(|token| unsafe { lock.unlock_write(token) }).is_some() && after
    };
    thread::scope(|scope| {
        let (hasty, patient) = (scope.spawn(hasty), scope.spawn(patient));
        assert!(hasty.join().unwrap(), "{name}: wrote beside a reader");
        released.store(true, Relaxed);
        // SAFETY: `reader` is from the acquisition above.
        unsafe { lock.unlock_read(reader) };
        assert!(patient.join().unwrap(), "{name}: timed writer");
        // SAFETY: each token is from the acquisition in the same expression.
        unsafe {
            lock.unlock_write(lock.write());
            lock.unlock_read(lock.read());
        }
    });
    assert!(!lock.is_locked(), "{name}: left locked");
}

/// All-zero bytes are an unlocked lock (the preloaded library relies on it).
fn zeroes<R: RawRwLock<Machine = Native>>() {
    let lock = Box::<R>::new_zeroed();
    // SAFETY: this is the claim under test, made by the trait.
    let lock = unsafe { lock.assume_init() };
    assert!(!lock.is_locked());
    // SAFETY: each token is from the acquisition in the same expression.
    unsafe {
        lock.unlock_write(lock.write());
        lock.unlock_read(lock.read());
    }
    assert!(!lock.is_locked());
}

#[test]
fn every_rwlock() {
    struct All(u32);
    impl Visitor<Native> for All {
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            zeroes::<R>();
            forms::<R>();
            timed::<R>();
            exclusion::<R>();
            self.0 += 1;
        }
    }
    let mut all = All(0);
    visit(&mut all);
    assert!(all.0 >= 4);
}

/// BRAVO over a mutex, which is not registered.
#[test]
fn over_a_mutex() {
    type Lock = bravo::RawBravo<Native, exclusive::Exclusive<crate::locks::mutex::shfl::RawShfl<Native>>>;
    assert_eq!(Lock::INFO.name, "bravo-shfl");
    zeroes::<Lock>();
    timed::<Lock>();
    exclusion::<Lock>();
}

/// The recommended lock is small, and the right one.
#[test]
fn the_default() {
    assert_eq!(size_of::<crate::RwLock<()>>(), 32);
    static LOCK: crate::RwLock<u32> = crate::RwLock::new(1);
    for turn in 1..=50 {
        assert_eq!(*LOCK.read(), turn);
        *LOCK.write() += 1;
    }
}

#[test]
fn in_a_static() {
    use crate::locks::{BravoPfTRwLock, BravoRwLock, PfQRwLock, PfTRwLock};
    static PF_T: PfTRwLock<u32> = PfTRwLock::new(1);
    static PF_Q: PfQRwLock<u32> = PfQRwLock::new(1);
    static BRAVO_PF_T: BravoPfTRwLock<u32> = BravoPfTRwLock::new(1);
    static BRAVO_PF_Q: BravoRwLock<u32> = BravoRwLock::new(1);
    for turn in 1..=50 {
        assert_eq!([*PF_T.read(), *PF_Q.read(), *BRAVO_PF_T.read(), *BRAVO_PF_Q.read()], [turn; 4]);
        *PF_T.write() += 1;
        *PF_Q.try_write().unwrap() += 1;
        *BRAVO_PF_T.try_write_for(core::time::Duration::from_secs(60)).unwrap() += 1;
        *BRAVO_PF_Q.write() += 1;
        let guard = BRAVO_PF_Q.try_read().unwrap();
        assert!(*guard == turn + 1 && BRAVO_PF_Q.try_write().is_none());
    }
}
