//! The recorder of `latchwork profile` (`LATCHWORK_PROFILE=DIRECTORY`): a layer over the table, whichever lock serves. It writes
//! into a mapped file. The crate `latchwork-recording` has the layout of that file.
//!
//! | module | what it has |
//! |---|---|
//! | this one | the layer: its functions, and when they are in the table |
//! | `callers.c` | the entry points, which say where the program called |
//! | [`sleeps`] | waits for condition variables and semaphores, which are no contention |
//! | [`own`] | the locks of `latchwork.h` |
//! | [`acquire`], [`release`] | calls that acquire and release a lock |
//! | [`fast`] | the short way of uncontended calls |
//! | [`lifetimes`] | objects that are made, named and destroyed |
//! | [`calls`] | what is recorded in which call |
//! | [`waits`] | the waits of the calling thread |
//! | [`live`] | switching it on and off in a live process |
//! | [`recording`] | a recording from its beginning to its end |
//! | [`succession`] | changes of owner, CPU and NUMA node; readers inside |
//! | [`account`] | which holder caused a wait |
//! | [`threads`], [`homes`], [`entries`] | what a thread has for itself, and its table of counters |
//! | [`sampling`], [`chance`] | which waits are looked at closely |
//! | [`pending`], [`tallies`] | what a wait adds to the records |
//! | [`stack`] | stacks of return addresses |
//! | [`objects`], [`modules`] | the records of objects and classes, and of the files that addresses lie in |
//! | [`filter`] | what sends the calls of all threads the long way |
//! | [`file`], [`index`] | the mapped file; hash tables from keys to records |
//! | [`session`], [`clock`] | the number of the session; the time |
//! | [`at_once`] | the first attempt at a lock of glibc's |
//! | [`below`] | the functions below the layer |
//!
//! A module imports only modules that stand below it in this table, or beside it.
//!
//! # Contention
//!
//! A lock call of the layer counts itself in a table of the thread's own, and tries the lock. If that works, the call is not
//! contended. Otherwise the thread reads the clock, calls the function below, and reads the clock again. The first
//! attempt must not barge past waiting threads if the call itself would not. So the layer tries a mutex of this library's in
//! the way in which `lock` begins ([`mutex::try_weak`](crate::families::mutex::try_weak)). Under the checks the attempt goes
//! through their layer, which must know of every acquisition.
//!
//! # What it costs
//!
//! An uncontended call writes only into the calling thread's table, and reads one word that other threads seldom write. While
//! threads wait that look closely at their wait, the holder and these waiters write to the object's record. A thread that has
//! waited holds the lock, and only reads the clock; it records its wait after the release.
//!
//! Nothing here allocates, and no lock here is waited for without a bound. A signal handler may come between any two
//! steps, and may make lock calls itself: then a count may go to another object, but the file stays valid.

use crate::families::timeout::try_in_time;
use crate::families::{c11, cond};
use crate::observers::{check, losses};
use crate::state::abi::*;
use crate::state::exit::Use;
use crate::state::line::Line;
use crate::state::stderr;
use crate::state::table::TABLE;
use crate::state::wiped;
use acquire::{acquire, acquire_at_once};
use attempts::attempt;
use below::{BELOW, TRY_MUTEX, WITHOUT, over};
use calls::{Call, Origin};
use core::fmt::Write;
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::*;
use libc::{c_int, clockid_t, timespec};
pub(crate) use lifetimes::unloaded;
use lifetimes::{destroy, gone, init};
use release::release;

mod account;
mod acquire;
mod at_once;
mod attempts;
mod below;
mod calls;
mod chance;
mod clock;
mod entries;
mod fast;
mod file;
mod filter;
mod homes;
mod index;
mod lifetimes;
pub(crate) mod live;
mod modules;
mod objects;
pub(super) mod own;
mod pending;

mod recording;
mod release;
mod sampling;
mod session;
mod sleeps;
mod stack;
mod succession;
mod tallies;
mod threads;
mod waits;

/// Records from the start of the process on, if a file can be made. `mutex` and `rwlock` are the names of the locks that
/// serve; `None`: glibc's.
pub(crate) fn install(
    directory: &'static [u8],
    mutex: Option<&'static [u8]>,
    rwlock: Option<&'static [u8]>,
) -> bool {
    prepare(mutex, rwlock);
    file::set_directory(directory);
    if let Err(why) = recording::open(began::START) {
        let mut line = Line::new();
        let _ = write!(line, "latchwork: no profile in ");
        line.bytes(directory);
        let _ = writeln!(line, ": {why}");
        stderr::write(line.as_bytes());
        return false;
    }
    session::begin();
    place(true);
    true
}

/// Remembers the table as it is without the layer. The process may be recorded later. As in [`install`].
pub(crate) fn prepare(mutex: Option<&'static [u8]>, rwlock: Option<&'static [u8]>) {
    recording::prepare(mutex.unwrap_or(b"glibc"), rwlock.unwrap_or(b"glibc"));
    Use::PROFILE.set(threads::exits);
    wiped::prepare();
    WITHOUT.copy_from(&TABLE);
    BELOW.copy_from(&TABLE);
    if check::is_on() {
        TRY_MUTEX.set(check::first_attempts(&BELOW));
    } else if mutex.is_none() {
        TRY_MUTEX.set(BELOW.mutex_trylock.get());
    }
    at_once::prepare();
    sleeps::prepare(mutex.is_none());
}

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
    } else {
        // A mutex of glibc's says which thread holds it.
        over! { on; mutex_unlock => noted::mutex_unlock, spin_unlock => noted::spin_unlock }
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

/// In a forked child, which has one thread: it gets a file of its own. If no fork handler runs in the child, this happens when it
/// next makes a call of the layer.
pub(crate) fn after_fork() {
    let records = session::is_on();
    session::end();
    if !file::is_open() {
        return;
    }
    let parent = if records { losses::Parent::keep(&file::header().lost) } else { None };
    threads::forget();
    recording::discard();
    if records {
        match recording::open(began::FORK) {
            Ok(()) => session::begin(),
            // The layer only passes the calls on.
            Err(why) => losses::report(parent.as_ref(), "profile", file::directory(), why),
        }
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = ended;

/// The process ends in order.
extern "C" fn ended() {
    // While another thread switches the recording on or off, the file may not be there.
    if let Some(_switching) = live::Switching::begin()
        && session::number() != 0
    {
        waits::look_at_holders();
        file::header().ended.store(clock::now(), Relaxed);
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

type Time = *const timespec;

layer! {
    mutex_init(m: *mut Mutex, attr: *const Attr) -> c_int = |call| init(Call::of_mutex(m), call);
    mutex_destroy(m: *mut Mutex) -> c_int = |call| destroy(m.addr(), call);
    mutex_unlock(m: *mut Mutex) -> c_int = |call| release::<false>(kind::MUTEX, m.expose_provenance(), call);
    rwlock_init(l: *mut RwLock, attr: *const Attr) -> c_int = |call| init(writing(l), call);
    rwlock_destroy(l: *mut RwLock) -> c_int = |call| destroy(l.addr(), call);
    rwlock_unlock(l: *mut RwLock) -> c_int = |call| release::<false>(kind::RWLOCK, l.addr(), call);
    spin_init(s: *mut Spin, shared: c_int) -> c_int = |call| init(plain(kind::SPIN, s.addr()), call);
    spin_destroy(s: *mut Spin) -> c_int = |call| destroy(s.addr(), call);
    spin_unlock(s: *mut Spin) -> c_int = |call| release::<false>(kind::SPIN, s.addr(), call);
    mtx_init(m: *mut Mutex, kind: c_int) -> c_int = |call| init(Call::of_mutex(m), call);
    mtx_destroy(m: *mut Mutex) -> () = |call| { call(); gone(m.addr()) };
    mtx_unlock(m: *mut Mutex) -> c_int = |call| release::<false>(kind::MUTEX, m.expose_provenance(), call);
}

/// The releases of locks that do not say which thread holds them.
mod noted {
    use super::*;

    pub(super) unsafe extern "C" fn mutex_unlock(m: *mut Mutex) -> c_int {
        // SAFETY: the program passes a live mutex.
        unsafe { release::<true>(kind::MUTEX, m.expose_provenance(), || BELOW.mutex_unlock.get()(m)) }
    }

    pub(super) unsafe extern "C" fn spin_unlock(s: *mut Spin) -> c_int {
        // SAFETY: the program passes a live spin lock.
        unsafe { release::<true>(kind::SPIN, s.addr(), || BELOW.spin_unlock.get()(s)) }
    }
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
                let $call = move || unsafe { WITHOUT.$name.get()($first $(, $arg)*) };
                // SAFETY: the program passes a live lock.
                unsafe { $body }
            })*
        }
    };
}

acquiring! {
    mutex_lock(m: *mut Mutex) = |call, from| acquire_at_once(
        Call::of_mutex(m), from, move |tid| at_once::try_lock(m, tid), move |tid| at_once::try_recursive(m, tid),
        move || TRY_MUTEX.get()(m), call);
    mutex_trylock(m: *mut Mutex) = |call, from| attempt(Call::of_mutex(m), from, call);
    mutex_timedlock(m: *mut Mutex, time: Time) =
        |call, from| acquire(Call::of_mutex(m), from, move || {
            try_in_time(libc::CLOCK_REALTIME, time, || BELOW.mutex_trylock.get()(m))
        }, call);
    mutex_clocklock(m: *mut Mutex, clock: clockid_t, time: Time) =
        |call, from| acquire(Call::of_mutex(m), from, move || {
            try_in_time(clock, time, || BELOW.mutex_trylock.get()(m))
        }, call);

    rwlock_rdlock(l: *mut RwLock) =
        |call, from| acquire_at_once(reading(l), from, move |_| at_once::try_read(l), |_| None,
            move || at_once::try_read_again(l).unwrap_or_else(|| BELOW.rwlock_tryrdlock.get()(l)), call);
    rwlock_wrlock(l: *mut RwLock) =
        |call, from| acquire_at_once(writing(l), from, move |tid| at_once::try_write(l, tid), |_| None,
            move || BELOW.rwlock_trywrlock.get()(l), call);
    rwlock_tryrdlock(l: *mut RwLock) = |call, from| attempt(reading(l), from, call);
    rwlock_trywrlock(l: *mut RwLock) = |call, from| attempt(writing(l), from, call);
    rwlock_timedrdlock(l: *mut RwLock, time: Time) =
        |call, from| acquire(reading(l), from, move || {
            try_in_time(libc::CLOCK_REALTIME, time, || BELOW.rwlock_tryrdlock.get()(l))
        }, call);
    rwlock_timedwrlock(l: *mut RwLock, time: Time) =
        |call, from| acquire(writing(l), from, move || {
            try_in_time(libc::CLOCK_REALTIME, time, || BELOW.rwlock_trywrlock.get()(l))
        }, call);
    rwlock_clockrdlock(l: *mut RwLock, clock: clockid_t, time: Time) =
        |call, from| acquire(reading(l), from, move || {
            try_in_time(clock, time, || BELOW.rwlock_tryrdlock.get()(l))
        }, call);
    rwlock_clockwrlock(l: *mut RwLock, clock: clockid_t, time: Time) =
        |call, from| acquire(writing(l), from, move || {
            try_in_time(clock, time, || BELOW.rwlock_trywrlock.get()(l))
        }, call);

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
