//! The highest layer: what happens once, at the start of the process, and the exported symbols.
//!
//! | module | what it has |
//! |---|---|
//! | this one | which lock serves which family |
//! | [`environment`], [`only`] | the variables that say so, and which programs ignore them |
//! | [`locks`] | a lock per lock: which lock serves which object |
//! | [`entry`] | the exported symbols, each a jump |
//! | [`early`] | calls that come before set-up |
//! | [`hot`] | four exported symbols that inline the fast paths of the recommended locks |
//! | [`near`], [`unwind`] | copies of those near the program, and how to unwind the stack from them |
//! | [`fork`] | the fork handlers |
//! | [`live`] | the signal with which an observer switches the recorder on and off |
//! | [`keys`] | thread-specific keys, of which this library needs one |
//! | [`unload`] | `dlclose`, for the recorders |
//! | [`deep`] | a warning about libraries that bind past this one |
//!
//! Set-up runs in a constructor, or at the first pthread call if that comes earlier. So nothing in it allocates, calls a
//! function that this library exports, or depends on Rust's runtime. Functions of other libraries that it calls (`open`, `mmap`, ...)
//! may belong to a further preloaded library, and may take locks: meanwhile the next library serves the thread, and keeps these locks for good.

use crate::families::{c11, cond, mutex, rwlock, sem, spin};
use crate::observers::{check, profile, statistics, trace};
use crate::state::clock;
use crate::state::counters::{self, Family};
use crate::state::generation;
use crate::state::stderr;
use crate::state::table::{pass, resolve};
use crate::state::unwind::modules;
use crate::state::used;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use environment::{is_too_early, refuse, variable};
use latchwork::locks::seqlock::{NOT_HELD, RawSeqLock};
use latchwork::locks::{mutex::RawMutex, rwlock::RawRwLock};
use latchwork::machine::{Machine, Native};
use latchwork::registry::{Visitor, visit};

mod checks;
#[cfg(versioned)]
mod deep;
mod early;
mod entry;
mod environment;
mod fork;
mod hot;
mod keys;
mod live;
mod locks;
#[cfg(versioned)]
mod near;
mod only;
mod unload;
#[cfg(versioned)]
mod unwind;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    set_up_once();
    #[cfg(versioned)]
    if (generation::MUTEX_WORD_IF_RECOMMENDED.exists()
        || generation::RWLOCK_WORD_IF_RECOMMENDED.exists()
        || generation::RWLOCK_WORD_IF_OVER_GLIBC.exists())
        && variable(b"LATCHWORK_NEAR=") != Some(b"0")
    {
        near::install();
    }
}

// Whether the process is set up.
const UNSET: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNSET);

/// The thread that sets the process up ([`Native::thread_id`]).
static SETTER: AtomicUsize = AtomicUsize::new(0);

/// Sets up the process, once. `false`: that is not done yet, and the next library must serve the call. It is too early; or the
/// calling thread is about to do it, and what it has called in another library has called this one.
fn set_up() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNSET if is_too_early() => {
            resolve();
            return false;
        }
        // A thread that sets the process up has stored its own number.
        RUNNING if SETTER.load(Ordering::Relaxed) == Native::thread_id() => return false,
        _ => {}
    }
    set_up_once();
    true
}

fn set_up_once() {
    // (A) pairs with itself: a thread that loads DONE sees the table.
    match STATE.compare_exchange(UNSET, RUNNING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            SETTER.store(Native::thread_id(), Ordering::Relaxed);
            choose();
            STATE.store(DONE, Ordering::Release); // (A)
        }
        // Another thread sets the process up: `set_up` has returned if it is this one, and no code in `choose` runs the
        // constructor.
        Err(RUNNING) => {
            while STATE.load(Ordering::Acquire) != DONE {
                Native::yield_now();
            }
        }
        Err(_) => {}
    }
}

/// Fills the table with what the environment asks for.
fn choose() {
    resolve();
    clock::find();
    #[cfg(versioned)]
    unwind::find();
    let counts = statistics::configure(variable(b"LATCHWORK_STATS="));
    if counts {
        generation::count_calls();
    }
    let check = variable(b"LATCHWORK_CHECK=").filter(|value| *value != b"0");
    let checks = check.is_some();
    stderr::begin(counts || checks);
    let mutex = variable(b"LATCHWORK_MUTEX=");
    let rwlock = variable(b"LATCHWORK_RWLOCK=");
    let why = "there is no such lock; `latchwork list` shows the names";
    let mut install = Install { mutex, rwlock, counts, mutex_found: false, rwlock_found: false, why };
    visit::<Native>(&mut install);
    let Install { mutex_found, mut rwlock_found, mut why, .. } = install;
    let mut over_glibc = false;
    if let Some(name) = rwlock
        && let Some(info) = rwlock::over_glibc::install_named(name, counts)
    {
        statistics::name(Family::RwLock, info.name);
        over_glibc = true;
        rwlock_found = rwlock::over_glibc::is_as_expected();
        why = "the rwlocks of this C library have another layout; take a lock that is not over glibc's";
    }
    let directory = variable(b"LATCHWORK_PROFILE=").filter(|value| *value != b"0");
    let traces = variable(b"LATCHWORK_TRACE=").filter(|value| *value != b"0");
    let observed = counts || checks || directory.is_some() || traces.is_some();
    let listens = variable(b"LATCHWORK_LIVE=").is_some_and(|value| value != b"0");
    let by_place = variable(b"LATCHWORK_LOCKS=");
    if checks || directory.is_some() || traces.is_some() || listens || by_place.is_some() {
        modules::prepare();
    }

    if let Some(path) = variable(b"LATCHWORK_USED=")
        && (checks || mutex.is_some() || rwlock.is_some())
    {
        // SAFETY: the value ends where its string in the environment does.
        unsafe { used::begin(path) };
        if !checks {
            counters::report_first_object();
        }
    }
    let chosen = by_place.map(locks::read).unwrap_or_default();
    locks::check(chosen, mutex.is_some(), rwlock.is_some() && !over_glibc);

    pass!(
        thread_create,
        thread_join,
        thread_tryjoin,
        thread_timedjoin,
        thread_clockjoin,
        thrd_create,
        thrd_join
    );
    pass!(barrier_init, barrier_wait);
    match mutex {
        Some(name) if mutex_found => {
            if chosen.mutex {
                mutex::chosen::install();
            }
            cond::install();
            c11::install();
            if chosen.leaves_rest_to_glibc {
                pass!(spin_init, spin_destroy, spin_lock, spin_trylock, spin_unlock);
                pass!(sem_init, sem_destroy, sem_post, sem_getvalue, sem_wait, sem_trywait, sem_timedwait);
                pass!(sem_clockwait);
            } else {
                statistics::name(Family::Spin, spin::install(name));
                sem::install();
            }
            if hot::is_recommended(name) && !observed {
                generation::recommend_mutex();
            }
        }
        Some(name) => refuse("LATCHWORK_MUTEX", name, why),
        None => {
            pass!(mutex_init, mutex_destroy, mutex_lock, mutex_trylock, mutex_timedlock);
            pass!(mutex_clocklock, mutex_unlock);
            pass!(spin_init, spin_destroy, spin_lock, spin_trylock, spin_unlock);
            // glibc's own condition variable works better with its mutexes than ours would.
            pass!(cond_init, cond_destroy, cond_wait, cond_timedwait, cond_clockwait);
            pass!(cond_signal, cond_broadcast);
            pass!(mtx_init, mtx_destroy, mtx_lock, mtx_trylock, mtx_timedlock, mtx_unlock);
            pass!(sem_init, sem_destroy, sem_post, sem_getvalue, sem_wait, sem_trywait, sem_timedwait);
            pass!(sem_clockwait);
            pass!(cnd_init, cnd_destroy, cnd_wait, cnd_timedwait, cnd_signal, cnd_broadcast);
        }
    }
    match rwlock {
        Some(name) if rwlock_found => {
            if chosen.rwlock {
                rwlock::chosen::install(counts);
            }
            if hot::is_recommended_rwlock(name) && !observed {
                generation::recommend_rwlock();
            }
            if rwlock::over_glibc::has_near_copies(name) && !observed {
                generation::recommend_over_glibc();
            }
        }
        Some(name) => refuse("LATCHWORK_RWLOCK", name, why),
        None => {
            pass!(rwlock_init, rwlock_destroy, rwlock_rdlock, rwlock_wrlock, rwlock_tryrdlock);
            pass!(rwlock_trywrlock, rwlock_timedrdlock, rwlock_timedwrlock, rwlock_clockrdlock);
            pass!(rwlock_clockwrlock, rwlock_unlock);
        }
    }
    if checks {
        check::install(mutex.is_none(), rwlock.is_none() || over_glibc);
    }
    // Above the checks, which report the calls that the program makes.
    let window = variable(b"LATCHWORK_TRACE_WINDOW=");
    let traces = traces.is_some_and(|directory| trace::install(directory, mutex, rwlock, window));
    let directory = directory.filter(|_| !traces);
    let named = (served_by(mutex, chosen.mutex), served_by(rwlock, chosen.rwlock));
    let profiles = directory.is_some_and(|directory| profile::install(directory, named.0, named.1));
    let serves = mutex.is_some() || rwlock.is_some();
    let live = listens && !profiles && !traces;
    if live {
        profile::prepare(named.0, named.1);
    }
    keys::install();
    pass!(dlopen, dlmopen);
    #[cfg(versioned)]
    if serves {
        deep::install(mutex.is_some(), rwlock.is_some());
    }
    entry::publish();

    // From here on pthread calls are served, so what follows may make some.
    if let Some(value) = check {
        checks::begin(value);
        latchwork_check::prepare(stderr::write, check::unwind);
    }
    let works = serves || checks || profiles || traces || live;
    if works {
        if variable(b"LATCHWORK_MEMBARRIER=") == Some(b"0") {
            Native::avoid_membarrier();
        }
        Native::init();
        rwlock::holds::init();
    }
    fork::register(works);
    if traces {
        trace::begin();
    }
    if live {
        live::listen();
    }
}

/// What a profile calls the lock behind a family: its name, unless each lock has one of its own.
fn served_by(family: Option<&'static [u8]>, by_place: bool) -> Option<&'static [u8]> {
    if by_place { family.and(Some(b"a lock per lock")) } else { family }
}

/// Installs the locks that the environment names.
struct Install {
    mutex: Option<&'static [u8]>,
    rwlock: Option<&'static [u8]>,
    counts: bool,
    mutex_found: bool,
    rwlock_found: bool,
    /// Why a name that is not found cannot serve.
    why: &'static str,
}

impl Visitor<Native> for Install {
    fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
        if self.mutex == Some(L::INFO.name.as_bytes()) {
            self.mutex_found = true;
            statistics::name(Family::Mutex, L::INFO.name);
            mutex::install::<L>();
        }
    }

    fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
        if self.rwlock == Some(R::INFO.name.as_bytes()) {
            self.rwlock_found = true;
            statistics::name(Family::RwLock, R::INFO.name);
            if self.counts { rwlock::install::<R::Counted>() } else { rwlock::install::<R>() }
        }
    }

    fn seqlock<L: RawMutex<Machine = Native>>(&mut self) {
        let name = Some(RawSeqLock::<L>::INFO.name.as_bytes());
        if [self.mutex, self.rwlock].contains(&name) {
            self.why = NOT_HELD;
        }
    }
}
