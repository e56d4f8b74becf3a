//! Every lock as a row of function pointers, for C: [`lw_rows`].

use crate::broken::{Torn, forget};
use crate::machine::{BLIND, DEAF, FORGETFUL, INTERRUPTIBLE, KILLABLE, Kernel};
use crate::rwsem::RawRwSemaphore;
use core::ffi::c_void;
use latchwork::locks::mutex::{RawMutex, shfl::RawShfl};
use latchwork::locks::rwlock::{RawDowngrade, RawRwLock, bravo::RawBravo, shfl_rw::RawShflRw};
use latchwork::locks::{Info, Token};
use latchwork::machine::{Clock, Deadline};
use latchwork::registry::{Visitor, visit};

/// BRAVO over the kernel's own semaphore, as in the paper's section 6.1.
pub type BravoRwSemaphore<const FAULT: u8 = 0> = RawBravo<Kernel<FAULT>, RawRwSemaphore<FAULT>>;

/// Readers can be inside together.
pub const SHARED: u32 = 1;
/// Waiters sleep, so only a thread that may sleep waits well.
pub const SLEEPS: u32 = 2;
/// Broken on purpose.
pub const BROKEN: u32 = 4;

/// How an acquisition waits.
#[repr(u32)]
#[derive(Copy, Clone)]
pub enum Patience {
    /// As long as it takes.
    Endless = 0,
    /// Not at all.
    None = 1,
    /// Until a time on the monotonic clock.
    Timed = 2,
    /// Until a signal.
    Interruptible = 3,
    /// Until a deadly signal.
    Killable = 4,
}

type Acquire = unsafe extern "C" fn(lock: *const c_void, Patience, nanos: u64, token: *mut usize) -> bool;
type Release = unsafe extern "C" fn(lock: *const c_void, token: usize);

/// A lock as C sees it. `module/latchwork.h` has the same fields.
#[repr(C)]
pub struct Row {
    /// The name, without a zero at its end.
    name: *const u8,
    name_bytes: u32,
    flags: u32,
    /// Bytes of the lock, and of its alignment.
    bytes: u32,
    align: u32,
    /// Makes a lock at its final address, of zero bytes; null if zero bytes are an unlocked lock.
    init: Option<unsafe extern "C" fn(lock: *mut c_void)>,
    write: Acquire,
    unlock_write: Release,
    read: Option<Acquire>,
    unlock_read: Option<Release>,
    downgrade: Option<unsafe extern "C" fn(lock: *const c_void, token: usize) -> usize>,
    is_locked: unsafe extern "C" fn(lock: *const c_void) -> bool,
    /// Ends any read acquisition of the lock, for a task that does not know the token.
    unlock_any_read: Option<unsafe extern "C" fn(lock: *const c_void)>,
}

/// The deadline of an acquisition that may give up.
fn deadline(patience: Patience, nanos: u64) -> Deadline {
    match patience {
        Patience::Interruptible => INTERRUPTIBLE,
        Patience::Killable => KILLABLE,
        _ => Deadline { clock: Clock::Monotonic, nanos },
    }
}

/// Acquires a lock as `patience` says, and stores the token for C.
///
/// # Safety
///
/// `out` is valid for writes.
unsafe fn acquire<T: Token>(
    patience: Patience,
    nanos: u64,
    out: *mut usize,
    endless: impl FnOnce() -> T,
    attempt: impl FnOnce() -> Option<T>,
    until: impl FnOnce(Deadline) -> Option<T>,
) -> bool {
    let token = match patience {
        Patience::Endless => Some(endless()),
        Patience::None => attempt(),
        _ => until(deadline(patience, nanos)),
    };
    let Some(token) = token else { return false };
    // SAFETY: `out` is valid, says the caller.
    unsafe { out.write(token.into_word()) };
    true
}

unsafe extern "C" fn lock<L: RawMutex>(
    lock: *const c_void,
    patience: Patience,
    nanos: u64,
    out: *mut usize,
) -> bool {
    // SAFETY: an initialized lock is there, in this function and the next.
    let lock = unsafe { &*lock.cast::<L>() };
    // SAFETY: `out` has room for a word, says the caller in C.
    unsafe {
        acquire(
            patience,
            nanos,
            out,
            || lock.lock(),
            || lock.try_lock(),
            |deadline| lock.lock_until(deadline),
        )
    }
}

unsafe extern "C" fn unlock<L: RawMutex>(lock: *const c_void, token: usize) {
    // SAFETY: as in `lock`; the token came from there.
    unsafe { (*lock.cast::<L>()).unlock(L::Token::from_word(token)) }
}

unsafe extern "C" fn init_semaphore<const FAULT: u8>(lock: *mut c_void) {
    // SAFETY: room for the lock, says the caller. The semaphore is the first field of the `repr(C)` lock over it.
    unsafe { (*lock.cast::<RawRwSemaphore>()).init() }
}

unsafe extern "C" fn write<R: RawRwLock>(
    lock: *const c_void,
    patience: Patience,
    nanos: u64,
    out: *mut usize,
) -> bool {
    // SAFETY: an initialized lock is there, in this function and those below.
    let lock = unsafe { &*lock.cast::<R>() };
    // SAFETY: as in `lock`.
    unsafe {
        acquire(
            patience,
            nanos,
            out,
            || lock.write(),
            || lock.try_write(),
            |deadline| lock.write_until(deadline),
        )
    }
}

unsafe extern "C" fn unlock_write<R: RawRwLock>(lock: *const c_void, token: usize) {
    // SAFETY: as in `write`; the token came from there.
    unsafe { (*lock.cast::<R>()).unlock_write(R::Write::from_word(token)) }
}

unsafe extern "C" fn read<R: RawRwLock>(
    lock: *const c_void,
    patience: Patience,
    nanos: u64,
    out: *mut usize,
) -> bool {
    // SAFETY: as in `write`.
    let lock = unsafe { &*lock.cast::<R>() };
    // SAFETY: as in `lock`.
    unsafe {
        acquire(
            patience,
            nanos,
            out,
            || lock.read(),
            || lock.try_read(),
            |deadline| lock.read_until(deadline),
        )
    }
}

unsafe extern "C" fn unlock_read<R: RawRwLock>(lock: *const c_void, token: usize) {
    // SAFETY: as in `write`; the token came from `read`.
    unsafe { (*lock.cast::<R>()).unlock_read(R::Read::from_word(token)) }
}

unsafe extern "C" fn downgrade<R: RawDowngrade>(lock: *const c_void, token: usize) -> usize {
    // SAFETY: as in `write`; the token came from there.
    unsafe { (*lock.cast::<R>()).downgrade(R::Write::from_word(token)) }.into_word()
}

unsafe extern "C" fn is_locked<L: RawMutex>(lock: *const c_void) -> bool {
    // SAFETY: as in `lock`.
    unsafe { (*lock.cast::<L>()).is_locked() }
}

unsafe extern "C" fn is_rw_locked<R: RawRwLock>(lock: *const c_void) -> bool {
    // SAFETY: as in `write`.
    unsafe { (*lock.cast::<R>()).is_locked() }
}

unsafe extern "C" fn unlock_any_read<const FAULT: u8>(lock: *const c_void) {
    // SAFETY: as in `write`. The semaphore is the first field of the `repr(C)` lock over it.
    let (lock, below) =
        unsafe { (&*lock.cast::<BravoRwSemaphore<FAULT>>(), &*lock.cast::<RawRwSemaphore<FAULT>>()) };
    // SAFETY: the caller in C ends one read acquisition, and all of them are ended here.
    unsafe {
        lock.unlock_anonymous_read(|| {
            below.release_any() || FAULT == FORGETFUL && forget(core::ptr::from_ref(lock).cast())
        })
    }
}

/// A C function that takes rows.
pub type Each = unsafe extern "C" fn(row: &Row, context: *mut c_void);

struct Rows {
    each: Each,
    context: *mut c_void,
}

impl Rows {
    fn give(&mut self, row: &Row) {
        // SAFETY: `lw_rows`'s caller gives the context that its function takes.
        unsafe { (self.each)(row, self.context) }
    }

    /// The row of a lock of type `T` that has only a writer's side.
    fn row<T>(
        info: Info,
        name: &'static str,
        flags: u32,
        write: Acquire,
        unlock_write: Release,
        is_locked: unsafe extern "C" fn(lock: *const c_void) -> bool,
    ) -> Row {
        let sleeps = if info.blocking { SLEEPS } else { 0 };
        Row {
            name: name.as_ptr(),
            name_bytes: name.len() as u32,
            flags: flags | sleeps,
            bytes: size_of::<T>() as u32,
            align: align_of::<T>() as u32,
            init: None,
            write,
            unlock_write,
            read: None,
            unlock_read: None,
            downgrade: None,
            is_locked,
            unlock_any_read: None,
        }
    }

    fn mutex_row<L: RawMutex>(name: &'static str, flags: u32) -> Row {
        Self::row::<L>(L::INFO, name, flags, lock::<L>, unlock::<L>, is_locked::<L>)
    }

    fn rwlock_row<R: RawRwLock>(name: &'static str, flags: u32) -> Row {
        let (write, unlock_write) = (write::<R>, unlock_write::<R>);
        let writers = Self::row::<R>(R::INFO, name, flags | SHARED, write, unlock_write, is_rw_locked::<R>);
        Row { read: Some(read::<R>), unlock_read: Some(unlock_read::<R>), ..writers }
    }
}

impl Visitor<Kernel> for Rows {
    fn mutex<L: RawMutex<Machine = Kernel>>(&mut self) {
        self.give(&Self::mutex_row::<L>(L::INFO.name, 0));
    }

    fn rwlock<R: RawRwLock<Machine = Kernel>>(&mut self) {
        self.give(&Self::rwlock_row::<R>(R::INFO.name, 0));
    }

    fn downgradable<R: RawDowngrade<Machine = Kernel>>(&mut self) {
        self.give(&Row { downgrade: Some(downgrade::<R>), ..Self::rwlock_row::<R>(R::INFO.name, 0) });
    }

    fn upgradable<R>(&mut self)
    where
        R: latchwork::locks::rwlock::RawUpgrade<Machine = Kernel> + latchwork::locks::rwlock::RawFair,
    {
        self.downgradable::<R>();
    }
}

/// Calls `each` with every lock of the registry, with BRAVO over the kernel's semaphore, and with the broken ones. A row
/// is the caller's to copy; what it points to stays.
///
/// # Safety
///
/// `each` takes `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rows(each: Each, context: *mut c_void) {
    let mut rows = Rows { each, context };
    visit::<Kernel>(&mut rows);

    rows.give(&over_semaphore::<0>("bravo-rwsem", 0));
    rows.give(&Rows::mutex_row::<Torn>("broken-spin", BROKEN));
    rows.give(&Rows::mutex_row::<RawShfl<Kernel<DEAF>>>("broken-shfl", BROKEN));
    rows.give(&Rows::rwlock_row::<RawShflRw<Kernel<DEAF>>>("broken-shfl-rw", BROKEN));
    rows.give(&over_semaphore::<BLIND>("broken-bravo", BROKEN));
    rows.give(&over_semaphore::<FORGETFUL>("broken-bravo-other", BROKEN));
}

fn over_semaphore<const FAULT: u8>(name: &'static str, flags: u32) -> Row {
    Row {
        init: Some(init_semaphore::<FAULT>),
        downgrade: Some(downgrade::<BravoRwSemaphore<FAULT>>),
        unlock_any_read: Some(unlock_any_read::<FAULT>),
        ..Rows::rwlock_row::<BravoRwSemaphore<FAULT>>(name, flags)
    }
}
