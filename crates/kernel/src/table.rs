//! Every lock as a row of function pointers, for C: [`lw_rows`].

use crate::broken::{Early, Torn, forget};
use crate::machine::{BLIND, DEAF, FORGETFUL, INTERRUPTIBLE, KILLABLE, Kernel, STUBBORN};
use crate::rwsem::RawRwSemaphore;
use crate::spin::Spin;
use core::ffi::c_void;
use core::marker::PhantomData;
use latchwork::locks::mutex::{RawMutex, shfl::RawShfl};
use latchwork::locks::rwlock::{RawDowngrade, RawRwLock, bravo::RawBravo};
use latchwork::locks::rwlock::{glibc_rw::RawGlibcRw, shfl_rw::RawShflRw};
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
/// Readers that overlap keep writers out for as long as they overlap.
pub const PREFERS_READERS: u32 = 8;

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

/// What can be acquired: a mutex, or one side of a reader-writer lock.
trait Side {
    type Lock;
    type Token: Token;
    fn wait(lock: &Self::Lock) -> Self::Token;
    fn attempt(lock: &Self::Lock) -> Option<Self::Token>;
    fn wait_until(lock: &Self::Lock, deadline: Deadline) -> Option<Self::Token>;
    /// # Safety
    ///
    /// The token came from the acquisition that this ends.
    unsafe fn release(lock: &Self::Lock, token: Self::Token);
}

struct Whole<L>(PhantomData<L>);
struct Writer<R>(PhantomData<R>);
struct Reader<R>(PhantomData<R>);

impl<L: RawMutex> Side for Whole<L> {
    type Lock = L;
    type Token = L::Token;
    fn wait(lock: &L) -> L::Token {
        lock.lock()
    }
    fn attempt(lock: &L) -> Option<L::Token> {
        lock.try_lock()
    }
    fn wait_until(lock: &L, deadline: Deadline) -> Option<L::Token> {
        lock.lock_until(deadline)
    }
    unsafe fn release(lock: &L, token: L::Token) {
        // SAFETY: the token is from the acquisition, says the caller.
        unsafe { lock.unlock(token) }
    }
}

impl<R: RawRwLock> Side for Writer<R> {
    type Lock = R;
    type Token = R::Write;
    fn wait(lock: &R) -> R::Write {
        lock.write()
    }
    fn attempt(lock: &R) -> Option<R::Write> {
        lock.try_write()
    }
    fn wait_until(lock: &R, deadline: Deadline) -> Option<R::Write> {
        lock.write_until(deadline)
    }
    unsafe fn release(lock: &R, token: R::Write) {
        // SAFETY: the token is from the acquisition, says the caller.
        unsafe { lock.unlock_write(token) }
    }
}

impl<R: RawRwLock> Side for Reader<R> {
    type Lock = R;
    type Token = R::Read;
    fn wait(lock: &R) -> R::Read {
        lock.read()
    }
    fn attempt(lock: &R) -> Option<R::Read> {
        lock.try_read()
    }
    fn wait_until(lock: &R, deadline: Deadline) -> Option<R::Read> {
        lock.read_until(deadline)
    }
    unsafe fn release(lock: &R, token: R::Read) {
        // SAFETY: the token is from the acquisition, says the caller.
        unsafe { lock.unlock_read(token) }
    }
}

/// Acquires as `patience` says, and stores the token for C.
unsafe extern "C" fn acquire<S: Side>(
    lock: *const c_void,
    patience: Patience,
    nanos: u64,
    out: *mut usize,
) -> bool {
    // SAFETY: C passes an initialized lock of the row that this function is in.
    let lock = unsafe { &*lock.cast::<S::Lock>() };
    let token = match patience {
        Patience::Endless => Some(S::wait(lock)),
        Patience::None => S::attempt(lock),
        _ => S::wait_until(lock, deadline(patience, nanos)),
    };
    let Some(token) = token else { return false };
    // SAFETY: C passes a pointer to a word of its own.
    unsafe { out.write(token.into_word()) };
    true
}

unsafe extern "C" fn release<S: Side>(lock: *const c_void, token: usize) {
    // SAFETY: as in `acquire`, of the lock; C passes the word that `acquire` of the same row has stored, once.
    unsafe { S::release(&*lock.cast::<S::Lock>(), S::Token::from_word(token)) }
}

unsafe extern "C" fn init_semaphore<const FAULT: u8>(lock: *mut c_void) {
    // SAFETY: C passes memory of `bytes` bytes, all zero. The semaphore is the first field of the `repr(C)` lock over it.
    unsafe { (*lock.cast::<RawRwSemaphore>()).init() }
}

unsafe extern "C" fn downgrade<R: RawDowngrade>(lock: *const c_void, token: usize) -> usize {
    // SAFETY: as in `release`.
    unsafe { (*lock.cast::<R>()).downgrade(R::Write::from_word(token)) }.into_word()
}

unsafe extern "C" fn is_locked<L: RawMutex>(lock: *const c_void) -> bool {
    // SAFETY: as in `acquire`.
    unsafe { (*lock.cast::<L>()).is_locked() }
}

unsafe extern "C" fn is_rw_locked<R: RawRwLock>(lock: *const c_void) -> bool {
    // SAFETY: as in `acquire`.
    unsafe { (*lock.cast::<R>()).is_locked() }
}

unsafe extern "C" fn unlock_any_read<const FAULT: u8>(lock: *const c_void) {
    // SAFETY: as in `acquire`. The semaphore is the first field of the `repr(C)` lock over it.
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

    /// The row of a lock that has one side only, or of the writers' side of a lock that has two.
    fn row<S: Side>(
        info: Info,
        name: &'static str,
        flags: u32,
        is_locked: unsafe extern "C" fn(lock: *const c_void) -> bool,
    ) -> Row {
        let sleeps = if info.blocking { SLEEPS } else { 0 };
        Row {
            name: name.as_ptr(),
            name_bytes: name.len() as u32,
            flags: flags | sleeps,
            bytes: size_of::<S::Lock>() as u32,
            align: align_of::<S::Lock>() as u32,
            init: None,
            write: acquire::<S>,
            unlock_write: release::<S>,
            read: None,
            unlock_read: None,
            downgrade: None,
            is_locked,
            unlock_any_read: None,
        }
    }

    fn mutex_row<L: RawMutex>(name: &'static str, flags: u32) -> Row {
        Self::row::<Whole<L>>(L::INFO, name, flags, is_locked::<L>)
    }

    fn rwlock_row<R: RawRwLock>(name: &'static str, flags: u32) -> Row {
        let prefers = if R::PREFERS_READERS { PREFERS_READERS } else { 0 };
        let writers = Self::row::<Writer<R>>(R::INFO, name, flags | SHARED | prefers, is_rw_locked::<R>);
        Row { read: Some(acquire::<Reader<R>>), unlock_read: Some(release::<Reader<R>>), ..writers }
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

/// Calls `each` with every lock of the registry, with BRAVO over the kernel's semaphore, with ShflLock in 4 bytes, and with the broken ones. A row
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
    rows.give(&Rows::mutex_row::<Spin>(Spin::INFO.name, 0));
    rows.give(&Rows::mutex_row::<Torn>("broken-spin", BROKEN));
    rows.give(&Rows::mutex_row::<Early>("broken-handover", BROKEN));
    rows.give(&Rows::mutex_row::<RawShfl<Kernel<DEAF>>>("broken-shfl", BROKEN));
    rows.give(&Rows::mutex_row::<RawShfl<Kernel<STUBBORN>>>("broken-shfl-stubborn", BROKEN));
    rows.give(&Rows::rwlock_row::<RawShflRw<Kernel<DEAF>>>("broken-shfl-rw", BROKEN));
    rows.give(&Rows::rwlock_row::<RawGlibcRw<Kernel<DEAF>>>("broken-glibc-rw", BROKEN));
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
