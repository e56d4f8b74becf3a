//! Every lock of the registry, for C: a table of functions for each (`struct lw_mutex_ops`, `struct lw_rwlock_ops`), by
//! name at run time (`lw_any_mutex_t`, `lw_any_rwlock_t`), and by type (`registered`, which is generated, and
//! `include/latchwork/registered.h`).
//!
//! What an acquisition hands to its release is a word, the token.

use crate::registered::{MUTEXES, RWLOCKS};
use crate::time::deadline;
use latchwork::locks::Token;
use latchwork::locks::mutex::{Fair, RawMutex};
use latchwork::locks::rwlock::{RawDowngrade, RawRwLock, RawUpgrade};
use latchwork::machine::{Deadline, Native};
use libc::{EBUSY, ENOENT, ENOMEM, ETIMEDOUT, clockid_t, timespec};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

type Lock = *mut c_void;
type Release = unsafe extern "C" fn(Lock, usize);
type Try = unsafe extern "C" fn(Lock, *mut usize) -> c_int;
type Timed = unsafe extern "C" fn(Lock, clockid_t, *const timespec, *mut usize) -> c_int;

/// `struct lw_mutex_ops`.
#[repr(C)]
pub struct MutexOps {
    name: *const c_char,
    size: usize,
    align: usize,
    lock: unsafe extern "C" fn(Lock) -> usize,
    trylock: Try,
    clocklock: Timed,
    unlock: Release,
    /// `None` if the lock has no fair unlock.
    unlock_fair: Option<Release>,
}

/// `struct lw_rwlock_ops`.
#[repr(C)]
pub struct RwLockOps {
    name: *const c_char,
    size: usize,
    align: usize,
    rdlock: unsafe extern "C" fn(Lock) -> usize,
    tryrdlock: Try,
    clockrdlock: Timed,
    rdunlock: Release,
    wrlock: unsafe extern "C" fn(Lock) -> usize,
    trywrlock: Try,
    clockwrlock: Timed,
    wrunlock: Release,
    /// Turns the token of a write acquisition into that of a read. `None` if the lock cannot.
    downgrade: Option<unsafe extern "C" fn(Lock, usize) -> usize>,
    destroy: unsafe extern "C" fn(Lock),
    /// `None` if the lock has no upgradable reads.
    upgrade: Option<&'static UpgradeOps>,
}

/// `struct lw_upgrade_ops`. Functions that turn one acquisition into another turn the token of the one into that of the other.
#[repr(C)]
pub struct UpgradeOps {
    uplock: unsafe extern "C" fn(Lock) -> usize,
    tryuplock: Try,
    clockuplock: Timed,
    upunlock: Release,
    upgrade: unsafe extern "C" fn(Lock, usize) -> usize,
    tryupgrade: Try,
    clockupgrade: Timed,
    downgrade_upgradable: unsafe extern "C" fn(Lock, usize) -> usize,
    downgrade_to_upgradable: unsafe extern "C" fn(Lock, usize) -> usize,
}

// SAFETY: the names are constants, and the functions are for any thread.
unsafe impl Sync for MutexOps {}
// SAFETY: the names are constants, and the functions are for any thread.
unsafe impl Sync for RwLockOps {}

/// Stores the token of an acquisition for C.
///
/// # Safety
///
/// `token` is valid for writes.
unsafe fn give<T: Token>(acquired: Option<T>, token: *mut usize, failed: c_int) -> c_int {
    match acquired {
        Some(acquired) => {
            // SAFETY: the caller's pointer is valid.
            unsafe { *token = acquired.into_word() };
            0
        }
        None => failed,
    }
}

/// Acquires with `until`, which gives up at `time`, and stores the token for C.
///
/// # Safety
///
/// `time` is valid for reads, and `token` for writes.
unsafe fn give_until<T: Token>(
    clock: clockid_t,
    time: *const timespec,
    token: *mut usize,
    until: impl FnOnce(Deadline) -> Option<T>,
) -> c_int {
    // SAFETY: the caller's pointers are valid.
    unsafe {
        match deadline(clock, time) {
            Ok(deadline) => give(until(deadline), token, ETIMEDOUT),
            Err(error) => error,
        }
    }
}

/// The functions of a table that acquire a lock in one way and end that: wait, try, give up at a deadline, release.
macro_rules! acquisition {
    ($raw:ident, $token:ident: $lock:ident = $wait:ident, $trylock:ident = $try:ident, $clocklock:ident = $until:ident,
     $unlock:ident = $release:ident) => {
        unsafe extern "C" fn $lock<L: $raw>(lock: Lock) -> usize {
            // SAFETY: see above.
            unsafe { &*lock.cast::<L>() }.$wait().into_word()
        }
        unsafe extern "C" fn $trylock<L: $raw>(lock: Lock, token: *mut usize) -> c_int {
            // SAFETY: see above.
            unsafe { give((*lock.cast::<L>()).$try(), token, EBUSY) }
        }
        unsafe extern "C" fn $clocklock<L: $raw>(
            lock: Lock,
            clock: clockid_t,
            time: *const timespec,
            token: *mut usize,
        ) -> c_int {
            // SAFETY: see above.
            unsafe { give_until(clock, time, token, |deadline| (*lock.cast::<L>()).$until(deadline)) }
        }
        unsafe extern "C" fn $unlock<L: $raw>(lock: Lock, token: usize) {
            // SAFETY: see above.
            unsafe { (*lock.cast::<L>()).$release(L::$token::from_word(token)) };
        }
    };
}

/// A function of a table that turns an acquisition into one of another kind.
macro_rules! change {
    ($raw:ident, $token:ident: $name:ident) => {
        unsafe extern "C" fn $name<L: $raw>(lock: Lock, token: usize) -> usize {
            // SAFETY: see above.
            unsafe { (*lock.cast::<L>()).$name(L::$token::from_word(token)).into_word() }
        }
    };
}

// SAFETY, for all functions of the tables: C passes a live lock of the table's type, tokens that it got from the acquisition that
// it ends, valid times, and room for tokens.
impl MutexOps {
    /// The table of a lock.
    pub const fn of<L: RawMutex<Machine = Native>>(name: &'static CStr) -> Self {
        acquisition!(RawMutex, Token: lock = lock, trylock = try_lock, clocklock = lock_until, unlock = unlock);
        MutexOps {
            name: name.as_ptr(),
            size: size_of::<L>(),
            align: align_of::<L>(),
            lock: lock::<L>,
            trylock: trylock::<L>,
            clocklock: clocklock::<L>,
            unlock: unlock::<L>,
            unlock_fair: None,
        }
    }

    /// The table of a lock that has a fair unlock.
    pub const fn fair<L: Fair<Machine = Native>>(name: &'static CStr) -> Self {
        unsafe extern "C" fn unlock_fair<L: Fair>(lock: Lock, token: usize) {
            // SAFETY: see above.
            unsafe { (*lock.cast::<L>()).unlock_fair(L::Token::from_word(token)) };
        }
        MutexOps { unlock_fair: Some(unlock_fair::<L>), ..Self::of::<L>(name) }
    }
}

impl RwLockOps {
    /// The table of a lock.
    pub const fn of<R: RawRwLock<Machine = Native>>(name: &'static CStr) -> Self {
        acquisition!(RawRwLock, Read: rdlock = read, tryrdlock = try_read, clockrdlock = read_until, rdunlock = unlock_read);
        acquisition!(RawRwLock, Write: wrlock = write, trywrlock = try_write, clockwrlock = write_until, wrunlock = unlock_write);
        unsafe extern "C" fn destroy<R: RawRwLock>(lock: Lock) {
            // SAFETY: see above; no thread uses the lock any more.
            unsafe { lock.cast::<R>().drop_in_place() };
        }
        RwLockOps {
            name: name.as_ptr(),
            size: size_of::<R>(),
            align: align_of::<R>(),
            rdlock: rdlock::<R>,
            tryrdlock: tryrdlock::<R>,
            clockrdlock: clockrdlock::<R>,
            rdunlock: rdunlock::<R>,
            wrlock: wrlock::<R>,
            trywrlock: trywrlock::<R>,
            clockwrlock: clockwrlock::<R>,
            wrunlock: wrunlock::<R>,
            downgrade: None,
            destroy: destroy::<R>,
            upgrade: None,
        }
    }

    /// The table of a lock that can downgrade: its writer becomes a reader.
    pub const fn downgradable<R: RawDowngrade<Machine = Native>>(name: &'static CStr) -> Self {
        change!(RawDowngrade, Write: downgrade);
        RwLockOps { downgrade: Some(downgrade::<R>), ..Self::of::<R>(name) }
    }

    /// The table of a lock with upgradable reads: such a reader can become a writer.
    pub const fn upgradable<R: RawUpgrade<Machine = Native>>(name: &'static CStr) -> Self {
        RwLockOps { upgrade: Some(const { &UpgradeOps::of::<R>() }), ..Self::downgradable::<R>(name) }
    }
}

/// Upgrades with `attempt` the read that `token` points to the token of. In place of that token it stores the writer's, or, if the
/// upgrade failed, that of the read, which goes on.
///
/// # Safety
///
/// `token` is valid, and has the token of an upgradable read.
unsafe fn upgraded<R: RawUpgrade>(
    token: *mut usize,
    failed: c_int,
    attempt: impl FnOnce(R::Upgradable) -> Result<R::Write, R::Upgradable>,
) -> c_int {
    // SAFETY: the caller's pointer is valid, and has the token of an upgradable read.
    let upgradable = unsafe { R::Upgradable::from_word(*token) };
    let (word, result) = match attempt(upgradable) {
        Ok(write) => (write.into_word(), 0),
        Err(upgradable) => (upgradable.into_word(), failed),
    };
    // SAFETY: the caller's pointer is valid.
    unsafe { *token = word };
    result
}

impl UpgradeOps {
    /// The table of a lock.
    const fn of<R: RawUpgrade<Machine = Native>>() -> Self {
        acquisition!(
            RawUpgrade, Upgradable: uplock = upgradable, tryuplock = try_upgradable, clockuplock = upgradable_until,
            upunlock = unlock_upgradable
        );
        change!(RawUpgrade, Upgradable: upgrade);
        change!(RawUpgrade, Upgradable: downgrade_upgradable);
        change!(RawUpgrade, Write: downgrade_to_upgradable);
        unsafe extern "C" fn tryupgrade<R: RawUpgrade>(lock: Lock, token: *mut usize) -> c_int {
            // SAFETY: see above.
            unsafe { upgraded::<R>(token, EBUSY, |upgradable| (*lock.cast::<R>()).try_upgrade(upgradable)) }
        }
        unsafe extern "C" fn clockupgrade<R: RawUpgrade>(
            lock: Lock,
            clock: clockid_t,
            time: *const timespec,
            token: *mut usize,
        ) -> c_int {
            // SAFETY: see above.
            unsafe {
                let deadline = match deadline(clock, time) {
                    Ok(deadline) => deadline,
                    Err(error) => return error,
                };
                upgraded::<R>(token, ETIMEDOUT, |upgradable| {
                    (*lock.cast::<R>()).upgrade_until(upgradable, deadline)
                })
            }
        }
        UpgradeOps {
            uplock: uplock::<R>,
            tryuplock: tryuplock::<R>,
            clockuplock: clockuplock::<R>,
            upunlock: upunlock::<R>,
            upgrade: upgrade::<R>,
            tryupgrade: tryupgrade::<R>,
            clockupgrade: clockupgrade::<R>,
            downgrade_upgradable: downgrade_upgradable::<R>,
            downgrade_to_upgradable: downgrade_to_upgradable::<R>,
        }
    }
}

/// What all tables begin with.
trait Described: 'static {
    fn name(&self) -> &CStr;
    fn layout(&self) -> Layout;
}

macro_rules! described {
    ($ops:ty) => {
        impl Described for $ops {
            fn name(&self) -> &CStr {
                // SAFETY: `of` was given a constant.
                unsafe { CStr::from_ptr(self.name) }
            }
            fn layout(&self) -> Layout {
                Layout::from_size_align(self.size, self.align).expect("the layout of a type")
            }
        }
    };
}
described!(MutexOps);
described!(RwLockOps);

/// `lw_any_mutex_t` and `lw_any_rwlock_t`: a lock of a type that is chosen at run time.
#[repr(C)]
pub struct Any<O: 'static> {
    ops: *const O,
    raw: Lock,
    token: usize,
}

/// Makes a lock with the name `name`. Null stands for the first of `all` that is called `default`.
///
/// # Safety
///
/// `any` is valid for writes, and `name` is a string or null.
unsafe fn make<O: Described>(
    any: *mut Any<O>,
    all: &[&'static O],
    name: *const c_char,
    default: &CStr,
) -> c_int {
    // SAFETY: the caller's name is a string.
    let name = if name.is_null() { default } else { unsafe { CStr::from_ptr(name) } };
    let Some(ops) = all.iter().find(|ops| ops.name() == name) else { return ENOENT };
    // SAFETY: no lock is empty. Zero bytes are an unlocked lock. The caller's `any` is valid.
    unsafe {
        let raw = alloc_zeroed(ops.layout());
        if raw.is_null() {
            return ENOMEM;
        }
        any.write(Any { ops: *ops, raw: raw.cast(), token: 0 });
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_any_mutex_init(any: *mut Any<MutexOps>, name: *const c_char) -> c_int {
    // SAFETY: the program passes room for a lock, and a name or null.
    unsafe { make(any, MUTEXES, name, c"shfl") }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_any_mutex_destroy(any: *mut Any<MutexOps>) {
    // SAFETY: `make` made the lock, and no thread uses it any more. Mutexes have no destructors.
    unsafe {
        dealloc((*any).raw.cast(), (*(*any).ops).layout());
        (*any).raw = null_mut();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_any_rwlock_init(any: *mut Any<RwLockOps>, name: *const c_char) -> c_int {
    // SAFETY: the program passes room for a lock, and a name or null.
    unsafe { make(any, RWLOCKS, name, c"bravo-2d-shfl-rw") }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_any_rwlock_destroy(any: *mut Any<RwLockOps>) {
    // SAFETY: `make` made the lock, and no thread uses it any more.
    unsafe {
        ((*(*any).ops).destroy)((*any).raw);
        dealloc((*any).raw.cast(), (*(*any).ops).layout());
        (*any).raw = null_mut();
    }
}

/// The name of the lock with this number, or null: numbers begin at 0 and have no gaps.
fn name_of<O: Described>(all: &[&'static O], number: usize) -> *const c_char {
    all.get(number).map_or(null_mut(), |ops| ops.name().as_ptr().cast_mut())
}

#[unsafe(no_mangle)]
extern "C" fn lw_mutex_name_of(number: usize) -> *const c_char {
    name_of(MUTEXES, number)
}

#[unsafe(no_mangle)]
extern "C" fn lw_rwlock_name_of(number: usize) -> *const c_char {
    name_of(RWLOCKS, number)
}
