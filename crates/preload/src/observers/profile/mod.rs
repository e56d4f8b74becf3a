//! The recorder of `latchwork profile` (`LATCHWORK_PROFILE=DIRECTORY`): a layer over the table, whichever lock serves. It writes
//! into a mapped file. The crate `latchwork-recording` has the layout of that file.
//!
//! | module | what it has |
//! |---|---|
//! | this one | the layer: its functions, and when they are in the table |
//! | [`locks`] | what is recorded in which lock or unlock call |
//! | [`fast`] | the short way of uncontended calls |
//! | [`sampling`] | which waits are looked at closely |
//! | [`sleeps`] | waits for condition variables and semaphores, which are no contention |
//! | [`account`] | which holder caused a wait |
//! | [`waits`], [`tallies`] | what a wait adds to the records |
//! | [`succession`] | changes of owner, CPU and NUMA node; readers inside |
//! | `callers.c` | the entry points, which say where the program called |
//! | [`threads`] | the table of counters of each thread |
//! | [`objects`] | the records of objects and classes |
//! | [`stack`], [`unwind`], [`rules`], [`modules`] | stacks of return addresses, and the files that they lie in |
//! | [`clock`] | the time |
//! | [`live`] | switching it on and off in a live process |
//! | [`file`], [`index`] | the mapped file; hash tables from keys to records |
//!
//! # Contention
//!
//! A lock call of the layer counts itself in a table of the thread's own, and tries the lock. If that works, the call is not
//! contended. Otherwise the thread reads the clock, calls the function below, and reads the clock again. The first
//! attempt must not barge past waiting threads if the call itself would not. So the layer tries a mutex of this library's in
//! the way in which `lock` begins ([`mutex::try_weak`]).
//!
//! # What it costs
//!
//! An uncontended call writes only into the calling thread's table, and reads one word that other threads seldom write. While
//! threads wait that look closely at their wait, the holder and these waiters write to the object's record. A thread that has
//! waited holds the lock, and only reads the clock; it records its wait after the release.
//!
//! Nothing here allocates, and no lock here is waited for without a bound. A signal handler may come between any two
//! steps, and may make lock calls itself: then a count may go to another object, but the file stays valid.

use crate::families::{c11, cond, mutex};
use crate::state::abi::*;
use crate::state::exit::Use;
use crate::state::line::Line;
use crate::state::table::{Slot, TABLE, Table};
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, Ordering::*};
use latchwork_recording::layout::*;
use libc::{c_int, clockid_t, timespec};
use locks::{Call, Origin, acquire, attempt, release};

mod account;
mod clock;
mod fast;
mod file;
mod index;
pub(crate) mod live;
mod locks;
pub(crate) mod modules;
mod objects;
mod rules;
mod sampling;
mod sleeps;
mod stack;
mod succession;
mod tallies;
mod threads;
pub(crate) mod unwind;
mod waits;

/// The functions that the layer calls.
static BELOW: Table = Table::EMPTY;
/// How a mutex is tried before a call waits for it.
static TRY_MUTEX: Slot<unsafe extern "C" fn(*mut Mutex) -> c_int> = Slot::new(mutex::try_weak);

/// Of a thread's waits, the first so many have their CPU time measured, and then one in so many.
const TIMED: u32 = 8;
/// See [`TIMED`].
const TIMED_PERIOD: u32 = 16;

/// A wait of so many nanoseconds was probably spent asleep.
const LONG: u64 = 5_000;

/// Of a thread's uncontended acquisitions, one in so many has its hold time measured, the logarithm to base 2: until
/// [`MOST_MEASURED`] are, and then. A measurement takes some 200 ns, so in the end that is less than half a nanosecond for each
/// call.
const HOLD_PERIODS: [u8; 2] = [6, 9];
/// See [`HOLD_PERIODS`]: the means are right to 2% by then.
const MOST_MEASURED: u32 = 4096;
/// So many of a thread's first acquisitions of an object have it measured, too: many locks are used rarely, and for long.
const HOLD_FIRST: u8 = 8;
/// So many acquisitions after one that was contended capture their stack: before the call, so that nobody waits for it. Others do
/// that when they release the lock, if threads wait by then.
const HOT: u8 = 3;

/// Records from the start of the process on, if a file can be made. `mutex` and `rwlock` are the names of the locks that
/// serve; `None`: glibc's.
pub(crate) fn install(
    directory: &'static [u8],
    mutex: Option<&'static [u8]>,
    rwlock: Option<&'static [u8]>,
) -> bool {
    prepare(mutex, rwlock);
    file::set_directory(directory);
    if let Err(why) = open(false) {
        let mut line = Line::new();
        let _ = write!(line, "latchwork: no profile in ");
        line.bytes(directory);
        let _ = writeln!(line, ": {why}");
        line.write_to(libc::STDERR_FILENO);
        return false;
    }
    live::begin_session();
    place(true);
    true
}

/// Remembers the table as it is without the layer. The process may be recorded later. As in [`install`].
pub(crate) fn prepare(mutex: Option<&'static [u8]>, rwlock: Option<&'static [u8]>) {
    modules::prepare();
    clock::prepare();
    Use::PROFILE.set(threads::exits);
    NAMES[0].set(mutex.unwrap_or(b"glibc"));
    NAMES[1].set(rwlock.unwrap_or(b"glibc"));
    BELOW.copy_from(&TABLE);
    if mutex.is_none() {
        TRY_MUTEX.set(BELOW.mutex_trylock.get());
    }
    sleeps::prepare(mutex.is_none());
}

/// Sets slots of the table to functions of the layer, or to those below it: `over!(on; name => function, ...)`.
macro_rules! over {
    ($on:expr; $($name:ident => $function:expr),* $(,)?) => {
        $($crate::state::table::TABLE.$name.set(if $on { $function } else { $crate::observers::profile::BELOW.$name.get() });)*
    };
}
use over;

/// Puts the layer over the table, or takes it off. Other threads may call functions of the table meanwhile: the layer knows
/// how to release what it has not acquired.
pub(crate) fn place(on: bool) {
    over! { on;
        mutex_init => mutex_init, mutex_destroy => mutex_destroy, mutex_lock => callers::mutex_lock,
        mutex_trylock => callers::mutex_trylock, mutex_timedlock => callers::mutex_timedlock,
        mutex_clocklock => callers::mutex_clocklock, mutex_unlock => mutex_unlock,
        rwlock_init => rwlock_init, rwlock_destroy => rwlock_destroy,
        rwlock_rdlock => callers::rwlock_rdlock, rwlock_wrlock => callers::rwlock_wrlock,
        rwlock_tryrdlock => callers::rwlock_tryrdlock, rwlock_trywrlock => callers::rwlock_trywrlock,
        rwlock_timedrdlock => callers::rwlock_timedrdlock, rwlock_timedwrlock => callers::rwlock_timedwrlock,
        rwlock_clockrdlock => callers::rwlock_clockrdlock, rwlock_clockwrlock => callers::rwlock_clockwrlock,
        rwlock_unlock => rwlock_unlock,
        spin_init => spin_init, spin_destroy => spin_destroy, spin_lock => callers::spin_lock,
        spin_trylock => callers::spin_trylock, spin_unlock => spin_unlock,
    }
    if sleeps::glibc_serves() {
        // glibc's C11 functions do not call the pthread symbols. This library's do.
        over! { on;
            mtx_init => mtx_init, mtx_destroy => mtx_destroy, mtx_lock => callers::mtx_lock,
            mtx_trylock => callers::mtx_trylock, mtx_timedlock => callers::mtx_timedlock, mtx_unlock => mtx_unlock,
        }
    }
    cond::RELOCK.set(if on { relock } else { cond::relock });
    sleeps::place(on);
}

/// Locks a mutex again after a wait for a condition variable of this library's.
unsafe extern "C" fn relock(m: *mut Mutex) -> c_int {
    if let Some(local) = &mut threads::current() {
        local.relocks = m.addr();
    }
    // SAFETY: the program's mutex is live.
    let result = unsafe { callers::mutex_lock(m) };
    if let Some(local) = &mut threads::current() {
        local.relocks = 0;
    }
    result
}

/// The names of the locks that serve mutexes and rwlocks: a copy for forked children.
static NAMES: [Name; 2] = [const { Name([const { AtomicU8::new(0) }; 48]) }; 2];
struct Name([AtomicU8; 48]);
impl Name {
    fn set(&self, name: &[u8]) {
        self.0.iter().zip(name).for_each(|(to, byte)| to.store(*byte, Relaxed));
    }

    fn get(&self) -> [u8; 48] {
        core::array::from_fn(|index| self.0[index].load(Relaxed))
    }
}

fn open(forked: bool) -> Result<(), &'static str> {
    if !forked {
        clock::calibrate();
    }
    let names = [NAMES[0].get(), NAMES[1].get()];
    let [mutex, rwlock] = names.each_ref().map(|name| name.split(|byte| *byte == 0).next().unwrap_or(b""));
    file::open(&file::About { mutex, rwlock, hold_period: 1 << HOLD_PERIODS[1], forked })
}

/// In a forked child, which has one thread: it gets a file of its own.
pub(crate) fn after_fork() {
    let records = live::session() != 0;
    live::end_session();
    if !file::is_open() {
        return;
    }
    threads::forget();
    discard();
    // Without a file nothing is recorded: the layer only passes the calls on.
    if records && open(true).is_ok() {
        live::begin_session();
    }
}

/// Unmaps the file, and forgets all that was in it. No thread is in a call of the layer.
fn discard() {
    file::close();
    objects::clear_all();
    tallies::clear_all();
    stack::clear_all();
    modules::clear_all();
    fast::clear_all();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = ended;

/// The process ends in order.
extern "C" fn ended() {
    // While another thread switches the recording on or off, the file may not be there.
    if let Some(_switching) = live::Switching::begin()
        && live::session() != 0
    {
        file::header().ended.store(now(), Relaxed);
    }
}

/// The time, in nanoseconds.
#[inline(always)]
fn now() -> u64 {
    clock::now()
}

/// The CPU time of the calling thread, in nanoseconds.
fn cpu_time() -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer. The call fails for no clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The program makes an object.
fn made(kind: u32, address: usize) {
    if let Some(local) = &mut threads::current() {
        gone(address);
        objects::find_or_make(kind, address, || stack::capture(local));
    }
}

/// The program has destroyed an object.
fn gone(address: usize) {
    if let Some(local) = &mut threads::current() {
        if let Some(entry) = local.entry_of(address) {
            local.empty(entry);
        }
        objects::retire(address);
    }
}

fn plain(kind: u32, address: usize) -> Call {
    Call::new(kind, address, false)
}

fn reading(l: *mut RwLock) -> Call {
    Call::new(kind::RWLOCK, l.addr(), true)
}

fn writing(l: *mut RwLock) -> Call {
    plain(kind::RWLOCK, l.addr())
}

/// Exposes the address: the recorder asks the mutex whether it is recursive.
fn mutex_call(m: *mut Mutex) -> Call {
    plain(kind::MUTEX, m.expose_provenance())
}

type Time = *const timespec;

layer! {
    mutex_init(m: *mut Mutex, attr: *const Attr) -> c_int = |call| { made(kind::MUTEX, m.addr()); call() };
    mutex_destroy(m: *mut Mutex) -> c_int = |call| destroy(m.addr(), call);
    mutex_unlock(m: *mut Mutex) -> c_int = |call| release(kind::MUTEX, m.expose_provenance(), call);
    rwlock_init(l: *mut RwLock, attr: *const Attr) -> c_int = |call| { made(kind::RWLOCK, l.addr()); call() };
    rwlock_destroy(l: *mut RwLock) -> c_int = |call| destroy(l.addr(), call);
    rwlock_unlock(l: *mut RwLock) -> c_int = |call| release(kind::RWLOCK, l.addr(), call);
    spin_init(s: *mut Spin, shared: c_int) -> c_int = |call| { made(kind::SPIN, s.addr()); call() };
    spin_destroy(s: *mut Spin) -> c_int = |call| destroy(s.addr(), call);
    spin_unlock(s: *mut Spin) -> c_int = |call| release(kind::SPIN, s.addr(), call);
    mtx_init(m: *mut Mutex, kind: c_int) -> c_int = |call| { made(kind::MUTEX, m.addr()); call() };
    mtx_destroy(m: *mut Mutex) -> () = |call| { call(); gone(m.addr()) };
    mtx_unlock(m: *mut Mutex) -> c_int = |call| release(kind::MUTEX, m.expose_provenance(), call);
}

/// As [`layer!`]: the calls that acquire a lock. The symbol of each is a function of `callers.c`, which adds to the
/// program's arguments where the program called.
macro_rules! acquiring {
    ($($name:ident($first:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) = |$call:ident, $from:ident| $body:expr;)*) => {
        /// The functions of the layer, which jump to those in [`from`].
        mod callers {
            use super::*;
            unsafe extern "C" {
                $(#[link_name = concat!("latchwork_profile_", stringify!($name))]
                pub(super) fn $name($first: $type $(, $arg: $arg_type)*) -> c_int;)*
            }
        }
        /// What they do.
        mod from {
            use super::*;
            $(#[unsafe(export_name = concat!("latchwork_profile_", stringify!($name), "_from"))]
            pub(super) unsafe extern "C" fn $name(
                $first: $type $(, $arg: $arg_type)*, caller: usize, slot: usize
            ) -> c_int {
                let $from = Origin { caller, slot };
                // SAFETY: the program's own arguments.
                let $call = move || unsafe { BELOW.$name.get()($first $(, $arg)*) };
                // SAFETY: the program passes a live lock.
                unsafe { $body }
            })*
        }
    };
}

acquiring! {
    mutex_lock(m: *mut Mutex) = |call, from| acquire(mutex_call(m), from, move || TRY_MUTEX.get()(m), call);
    mutex_trylock(m: *mut Mutex) = |call, from| attempt(mutex_call(m), from, call);
    mutex_timedlock(m: *mut Mutex, time: Time) =
        |call, from| acquire(mutex_call(m), from, move || BELOW.mutex_trylock.get()(m), call);
    mutex_clocklock(m: *mut Mutex, clock: clockid_t, time: Time) =
        |call, from| acquire(mutex_call(m), from, move || BELOW.mutex_trylock.get()(m), call);

    rwlock_rdlock(l: *mut RwLock) =
        |call, from| acquire(reading(l), from, move || BELOW.rwlock_tryrdlock.get()(l), call);
    rwlock_wrlock(l: *mut RwLock) =
        |call, from| acquire(writing(l), from, move || BELOW.rwlock_trywrlock.get()(l), call);
    rwlock_tryrdlock(l: *mut RwLock) = |call, from| attempt(reading(l), from, call);
    rwlock_trywrlock(l: *mut RwLock) = |call, from| attempt(writing(l), from, call);
    rwlock_timedrdlock(l: *mut RwLock, time: Time) =
        |call, from| acquire(reading(l), from, move || BELOW.rwlock_tryrdlock.get()(l), call);
    rwlock_timedwrlock(l: *mut RwLock, time: Time) =
        |call, from| acquire(writing(l), from, move || BELOW.rwlock_trywrlock.get()(l), call);
    rwlock_clockrdlock(l: *mut RwLock, clock: clockid_t, time: Time) =
        |call, from| acquire(reading(l), from, move || BELOW.rwlock_tryrdlock.get()(l), call);
    rwlock_clockwrlock(l: *mut RwLock, clock: clockid_t, time: Time) =
        |call, from| acquire(writing(l), from, move || BELOW.rwlock_trywrlock.get()(l), call);

    spin_lock(s: *mut Spin) =
        |call, from| acquire(plain(kind::SPIN, s.addr()), from, move || BELOW.spin_trylock.get()(s), call);
    spin_trylock(s: *mut Spin) = |call, from| attempt(plain(kind::SPIN, s.addr()), from, call);

    // glibc's functions are the pthread functions with other results.
    mtx_lock(m: *mut Mutex) = |_call, from| c11::result(self::from::mutex_lock(m, from.caller, from.slot));
    mtx_trylock(m: *mut Mutex) =
        |_call, from| c11::result(self::from::mutex_trylock(m, from.caller, from.slot));
    mtx_timedlock(m: *mut Mutex, time: Time) =
        |_call, from| c11::result(self::from::mutex_timedlock(m, time, from.caller, from.slot));
}

/// A `destroy` call: the object is gone if the call succeeds.
fn destroy(address: usize, call: impl FnOnce() -> c_int) -> c_int {
    let result = call();
    if result == 0 {
        gone(address);
    }
    result
}
