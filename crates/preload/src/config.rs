//! What the environment asks for, and the one-time set-up.
//!
//! Runs in a constructor, or at the first pthread call if that comes earlier: nothing here
//! allocates, takes a lock that is interposed, or depends on Rust's runtime.

#[cfg(versioned)]
use crate::deep;
use crate::table::{pass, resolve};
use crate::{check, cond, fork, holds, hot, keys, mutex, only, rwlock, spin, stats};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};
use latchwork::locks::seqlock::{NOT_HELD, RawSeqLock};
use latchwork::locks::{mutex::RawMutex, rwlock::RawRwLock};
use latchwork::machine::{Machine, Native};
use latchwork::registry::{Visitor, visit};

const UNSET: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNSET);

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    decide();
    #[cfg(versioned)]
    if (fork::has_favourite() || fork::has_favourite_rw()) && variable(b"LATCHWORK_NEAR=") != Some(b"0") {
        hot::move_near();
    }
}

/// Fills the table, once per process. `false` if it is too early for that: before the C library has set `environ`
/// (functions in a program's `.preinit_array`, sanitizers), the call is the next library's.
pub(crate) fn init() -> bool {
    // SAFETY: a word that is written before any other thread exists.
    if STATE.load(Ordering::Relaxed) == UNSET && unsafe { environ.is_null() } {
        resolve();
        return false;
    }
    decide();
    true
}

fn decide() {
    // (A) pairs with itself: who sees DONE sees the table.
    match STATE.compare_exchange(UNSET, RUNNING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            set_up();
            STATE.store(DONE, Ordering::Release); // (A)
        }
        // Another thread is at it. It cannot be this one: nothing in `set_up` comes back here
        // before the table is filled.
        Err(RUNNING) => {
            while STATE.load(Ordering::Acquire) != DONE {
                Native::yield_now();
            }
        }
        Err(_) => {}
    }
}

fn set_up() {
    resolve();
    let stats = stats::configure(variable(b"LATCHWORK_STATS="));
    fork::set_normal(stats);

    let check = variable(b"LATCHWORK_CHECK=").is_some_and(|value| value != b"0");
    let mutex = variable(b"LATCHWORK_MUTEX=");
    let rwlock = variable(b"LATCHWORK_RWLOCK=");
    let why = "there is no such lock; `latchwork list` shows the names";
    let mut install = Install { mutex, rwlock, stats, mutex_found: false, rwlock_found: false, why };
    visit::<Native>(&mut install);
    let Install { mutex_found, rwlock_found, why, .. } = install;

    match mutex {
        Some(name) if mutex_found => {
            spin::install(name, stats);
            cond::install(stats);
            crate::c11::install();
            crate::sem::install();
            if hot::is_favourite(name) && !stats && !check {
                fork::set_favourite();
            }
        }
        Some(name) => refuse("LATCHWORK_MUTEX", name, why),
        None => {
            pass!(mutex_init, mutex_destroy, mutex_lock, mutex_trylock, mutex_timedlock);
            pass!(mutex_clocklock, mutex_unlock);
            pass!(spin_init, spin_destroy, spin_lock, spin_trylock, spin_unlock);
            // A condition variable of ours could not wait in step with glibc's mutexes as well as
            // glibc's own does.
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
            if hot::is_favourite_rw(name) && !stats && !check {
                fork::set_favourite_rw();
            }
        }
        Some(name) => refuse("LATCHWORK_RWLOCK", name, why),
        None => {
            pass!(rwlock_init, rwlock_destroy, rwlock_rdlock, rwlock_wrlock, rwlock_tryrdlock);
            pass!(rwlock_trywrlock, rwlock_timedrdlock, rwlock_timedwrlock, rwlock_clockrdlock);
            pass!(rwlock_clockwrlock, rwlock_unlock);
        }
    }

    if check {
        check::install(mutex.is_none(), rwlock.is_none());
    }

    // From here on pthread calls are served, so what follows may make some.
    if check {
        latchwork_check::prepare();
        fork::set_check();
    }
    keys::install();
    pass!(dlopen, dlmopen);
    #[cfg(versioned)]
    if mutex.is_some() || rwlock.is_some() {
        deep::install(mutex.is_some(), rwlock.is_some());
    }
    if mutex.is_some() || rwlock.is_some() || check {
        if variable(b"LATCHWORK_MEMBARRIER=") == Some(b"0") {
            Native::avoid_membarrier();
        }
        Native::init();
        holds::init();
        fork::register();
    }
    // Last: nobody else's fork handlers may come before ours.
    pass!(register_atfork);
}

unsafe extern "C" {
    static environ: *const *const core::ffi::c_char;
}

struct Install {
    mutex: Option<&'static [u8]>,
    rwlock: Option<&'static [u8]>,
    stats: bool,
    mutex_found: bool,
    rwlock_found: bool,
    /// What is wrong with one that is not found.
    why: &'static str,
}

impl Visitor<Native> for Install {
    fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
        if self.mutex == Some(L::INFO.name.as_bytes()) {
            self.mutex_found = true;
            if self.stats { mutex::install::<L, true>() } else { mutex::install::<L, false>() }
        }
    }

    fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
        if self.rwlock == Some(R::INFO.name.as_bytes()) {
            self.rwlock_found = true;
            if self.stats { rwlock::install::<R::Counted, true>() } else { rwlock::install::<R, false>() }
        }
    }

    fn seqlock<L: RawMutex<Machine = Native>>(&mut self) {
        let name = Some(RawSeqLock::<L>::INFO.name.as_bytes());
        if [self.mutex, self.rwlock].contains(&name) {
            self.why = NOT_HELD;
        }
    }
}

/// The value of an environment variable, given as `NAME=`; `None` if it is unset, empty or the
/// name of the default, `glibc`. In a process with raised privileges (set-user-ID, file capabilities) all count as unset:
/// the user who wrote the environment must not decide what the process does. They also count as unset in a process that
/// `LATCHWORK_ONLY` or `LATCHWORK_NOT` leaves out.
fn variable(prefix: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: reads a number that the kernel gave the process.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if privileged || !only::chosen(lookup(b"LATCHWORK_ONLY="), lookup(b"LATCHWORK_NOT=")) {
        return None;
    }
    lookup(prefix).filter(|value| *value != b"glibc")
}

/// The value of an environment variable, given as `NAME=`, unless it is empty.
fn lookup(prefix: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: `environ` is null or a null-terminated array of strings; nobody changes it while the
    // process starts, and the strings of the initial environment stay.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(prefix) {
                return (!value.is_empty()).then_some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Ends the process: running it under a lock that nobody asked for would be a lie.
fn refuse(variable: &str, name: &[u8], why: &str) -> ! {
    use core::fmt::Write;
    let mut out = stats::Line::new();
    let _ = write!(out, "latchwork: {variable}=");
    out.bytes(name);
    let _ = writeln!(out, ": {why}");
    out.write_to(libc::STDERR_FILENO);
    // SAFETY: ends the process.
    unsafe { libc::_exit(127) }
}
