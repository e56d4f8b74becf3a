//! `pthread_mutex_*` over any raw lock.
//!
//! # What a mutex consists of
//!
//! | bytes | field | contents |
//! |---|---|---|
//! | 0..16 | `raw` | the raw lock, or a pointer to one that does not fit (`state::place`). Zero bytes, as a static initialiser leaves them, are an unlocked lock |
//! | 16..18 | `kind`, low half | glibc's kind, and the flags below |
//! | 18..20 | `kind`, high half | the fork generation in which the mutex was last used (`state::generation`) |
//! | 20..24 | `count` | how many times the owner holds a recursive mutex; 1 in an error-checking mutex that is held; how many waiters the unlock of a normal one wakes ([`holder`]) |
//! | 24..32 | `owner` | low 40 bits, of a recursive or an error-checking mutex, and of a normal one that [`NAMES_HOLDER`]: the number of the thread that holds it, or 0. High 24 bits: how many threads wait for a condition variable and will lock this mutex again |
//! | 32..40 | `token` | what the raw lock's `unlock` needs: a queue node, for example; or where those waiters sleep |
//!
//! A mutex is *ours* if this library serves it, and glibc's otherwise ([`is_of_glibc`]). It is *live* from its
//! initialisation until its memory is freed: a destroyed mutex is live, and glibc's. `LATCHWORK_MUTEX` names the *selected lock*,
//! the type of raw lock that mutexes of ours have in this process. `LATCHWORK_LOCKS` may give a mutex another one.
//!
//! # States, by the low half of `kind`
//!
//! | value | state | entered by | left by |
//! |---|---|---|---|
//! | 0 to 3 | not used yet | static initialiser | [`classify`] in the first call of any function, which adds [`SERVED`]; [`lock_slow`] does that itself for a normal mutex |
//! | 0 + `SERVED` | normal: the fast paths serve it | first use, `init` | `destroy` |
//! | 1 + `SERVED` | recursive | first use, `init`, `mtx_init` | `destroy` |
//! | 2 + `SERVED` | error-checking | first use, `init` | `destroy` |
//! | 3 + `SERVED` | adaptive | first use, `init` | any call that finds this state: it makes the mutex normal |
//! | 0 + `SERVED` + [`NAMES_HOLDER`] | normal, and its holder is recorded: [`holder`] has its fast paths | the first wait for a condition variable | `destroy` |
//! | + a number in [`CHOICE`] | as above, but another lock than the selected one serves it ([`choice`]); [`chosen`] has its fast paths | first use, `init` | `destroy` |
//! | 0 to 3, + [`LEFT_TO_GLIBC`] | glibc's, by choice, or because it has served the mutex before set-up | first use, `init` | `destroy` |
//! | + [`IN_SHARED_MEMORY`] | as above, but several processes may use the mutex: the fast paths do not serve it, and it is never mended | `generation::repair` | `destroy` |
//! | any of [`GLIBC_MUTEX`] | glibc's: robust, priority-inheriting or -protected, process-shared | glibc | glibc |
//! | all ones | destroyed: it has all bits of [`GLIBC_MUTEX`], and glibc refuses to lock or unlock it, with EINVAL | `destroy` | `init`, or a program that assigns a static initialiser |
//!
//! [`classify`] repairs a mutex of another generation if the mutex is ours and not [`IN_SHARED_MEMORY`]: see below.
//!
//! [`SERVED`] says that this library has used the mutex. It exists for two reasons. A library that is bound past this one
//! calls glibc's functions with the same object. glibc's lock and unlock know no kind with this bit, and refuse with EINVAL before
//! they touch the bytes that are our raw lock. (glibc's `destroy` does not look at the kind: it destroys a mutex of ours.) Nothing
//! protects a mutex that a library locks through glibc before this library first uses it. And statistics count an object once:
//! the call that sets the bit counts it.
//!
//! # Repair after a fork
//!
//! The child of a fork has one thread. The raw locks that it inherits have queues of threads that exist only in the parent. The
//! child's generation begins before the program's own handlers of `fork` run (`startup::fork`). The first call in the child that meets a mutex of the parent's generation finds another number in the high half of `kind`. It calls
//! `generation::repair`, under one lock for the whole process. `repair` calls [`mend`], which makes the raw lock anew, held
//! or free as it was. Then `repair` stores `kind` with the child's generation, with release. That store is (A).
//!
//! A child may inherit a call that was under way: a signal handler that forks has interrupted it. No repair makes such a call
//! right. POSIX has allowed such a handler, and withdrew that in 2024.
//!
//! A mutex in memory that parent and child share must not be mended: the parent's waiters are in it. That works for a raw lock that
//! fits into the mutex, in processes that have had a second thread. A process that has had none uses no atomic instruction for
//! `shfl` and `ttas`; glibc does the same for its own locks. A lock that does not fit stands in one process's memory. For such a mutex `repair`
//! sets [`IN_SHARED_MEMORY`] in place of the generation. From then on every process takes the mutex as current, whatever its
//! generation. No fast path serves it, because its `kind` is not the word that they compare with.
//!
//! # The holder
//!
//! A thread holds a normal mutex if it has locked the raw lock. The thread is not recorded, unless condition variables have used the
//! mutex ([`holder`]). A recursive or an error-checking mutex records its holder. Only the holder of the raw lock writes `owner`, `count` and `token`, so the raw lock's acquire
//! and release order these accesses and all of them are relaxed. The exceptions are [`make`] and [`mend`], which run while
//! no other thread uses the mutex.
//!
//! A thread that does not hold the mutex may read `owner` at any time: it never finds its own number there, because no
//! other thread writes that number, and its own last unlock has cleared it. No number is used again, so a mutex whose holder
//! has ended stays held. The thread of a forked child keeps the number of the thread that forked, and so what that thread
//! holds. In memory that processes share, a thread of one process may have the number of the holder in another, and is then
//! taken for the holder: only objects that ask to be process-shared have promised otherwise, and glibc serves those.
//!
//! A thread that waits for a condition variable stays counted in `owner` ([`note_waiter`], [`forget_waiter`]). `destroy`
//! refuses such a mutex, which looks unlocked, with EBUSY.
//!
//! # Orderings
//!
//! The raw lock orders the critical sections. `kind` orders repairs before uses:
//!
//! | pair | release | acquire | what it orders |
//! |---|---|---|---|
//! | (A) | the store of `kind` at the end of `generation::repair` | the loads of `kind` before the raw lock is used: `Expected::is_in` in [`lock`], [`trylock`], [`unlock`] and the entry points of `startup`; [`is_normal_and_uncounted`]; the loads in [`lock_slow`], [`classify`] and [`chosen`] | what [`mend`] has written happens before this use of the raw lock |
//!
//! On x86-64 an acquire load is an ordinary load. Setting `SERVED` publishes nothing, so that exchange is relaxed; as a
//! read-modify-write it continues the release sequence of (A).
//!
//! # What the program is promised
//!
//! The results are glibc's, but for these:
//!
//! - The selected lock decides which thread gets a contended mutex.
//! - An unlock of a normal mutex that no thread holds changes nothing: [`raw::unlock`] checks for it. (Under glibc, `destroy` then
//!   fails.) If the raw lock has a token, this holds only while no other thread locks or unlocks the mutex.
//! - A child can unlock a recursive or an error-checking mutex that its parent's thread held at the fork (glibc: EPERM).
//! - No thread gets the number of one that has ended, so a recursive mutex of a thread that has ended stays held.
//!
//! As under glibc, an unlock by another thread than the holder releases a normal mutex.
//!
//! After the entry points' own comparison (`startup::hot`, if the selected lock is not `shfl`), an uncontended lock or unlock of a
//! normal mutex executes one comparison, of the whole `kind` word, and the raw lock's own fast path; if the raw lock has a token, it also stores or loads that. `unlock` compares with [`MUTEX_WORD`]: the `kind`
//! word of a normal, served mutex of the current generation. (The word is [`SERVED`] until the process forks: generation 0.)
//! `lock` and `trylock` compare with [`MUTEX_WORD_IF_UNCOUNTED`]: the same word, or while statistics are on a word that no
//! mutex has, so that the counters see every lock call.

use super::timeout::Timeout;
use crate::state::abi::*;
use crate::state::choice::{self, Choice};
use crate::state::counters::{self, Family, Reason};
use crate::state::generation::{self, MUTEX_WORD, MUTEX_WORD_IF_UNCOUNTED};
use crate::state::table::{REAL, install};
use crate::state::{cancel, identity};
use core::sync::atomic::Ordering::*;
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::Native;
use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, c_int, timespec};
use raw::{OPERATIONS, Operations, operations};

pub(crate) mod chosen;
pub(crate) mod holder;
pub(crate) mod raw;
mod users;

pub(super) use users::Counted;
pub(crate) use users::after_first_attempt;

/// Serves the family with `L`, the selected lock.
pub(crate) fn install<L: RawMutex<Machine = Native>>() {
    OPERATIONS[0].set(const { &Operations::of::<L>() });
    install! {
        mutex_init => init,
        mutex_destroy => destroy,
        mutex_lock => lock::<L>,
        mutex_trylock => trylock::<L>,
        mutex_timedlock => timedlock,
        mutex_clocklock => clocklock,
        mutex_unlock => unlock::<L>,
    }
}

// The fast paths. Each has one way out of line, a jump, so it needs no stack frame.

unsafe extern "C" fn lock<L: RawMutex<Machine = Native>>(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex; this word says that it is one of ours, which `L` serves.
    unsafe {
        if MUTEX_WORD_IF_UNCOUNTED.is_in(&(*m).kind) && raw::try_lock_weak::<L>(&*m) {
            return 0;
        }
        lock_slow::<L>(m)
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn lock_slow<L: RawMutex<Machine = Native>>(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex. A normal one that is marked as served is one of ours.
    unsafe {
        let kind = (*m).kind.load(Acquire); // pairs with (A) in `generation::repair`
        if kind & NAMES_HOLDER != 0 && MUTEX_WORD_IF_UNCOUNTED.is(kind & !NAMES_HOLDER) {
            return holder::lock::<L>(m);
        }
        let is_first_use = kind & SERVED == 0 && MUTEX_WORD_IF_UNCOUNTED.is(kind | SERVED);
        // Many programs lock each of many mutexes from a static initialiser only once. So the first lock has a shorter path
        // than `acquire_any`. It counts no call: the comparison has shown that statistics are off. It chooses no lock for this
        // mutex: where mutexes have locks of their own, `chosen` is installed in place of these functions.
        if is_first_use && (*m).kind.compare_exchange(kind, kind | SERVED, Relaxed, Relaxed).is_ok() {
            counters::object(Family::Mutex);
            // `lock` has not tried the raw lock, because the word was another one.
            return if raw::try_lock_weak::<L>(&*m) { 0 } else { wait(m) };
        }
        acquire_any(&*m, Timeout::Never)
    }
}

unsafe extern "C" fn trylock<L: RawMutex<Machine = Native>>(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex; this word says that it is one of ours, which `L` serves.
    unsafe {
        if !MUTEX_WORD_IF_UNCOUNTED.is_in(&(*m).kind) {
            return trylock_slow(m);
        }
        if raw::try_lock::<L>(&*m) { 0 } else { EBUSY }
    }
}

unsafe extern "C" fn unlock<L: RawMutex<Machine = Native>>(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex; this word says that it is one of ours, which `L` serves.
    unsafe {
        if MUTEX_WORD.is_in(&(*m).kind) {
            raw::unlock::<L>(&*m);
            return 0;
        }
        unlock_slow(m)
    }
}

// Everything below exists once for all locks.

#[cold]
#[inline(never)]
unsafe extern "C" fn trylock_slow(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex.
    unsafe { acquire_any(&*m, Timeout::Immediate) }
}

/// The attempt with which [`lock`] begins, for an observer that wants to know whether a call waits. Where the raw lock can tell,
/// the attempt fails while threads wait, even if the lock is free.
pub(crate) unsafe extern "C" fn try_weak(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex; this word says that it is one of ours, in any state.
    unsafe {
        if !is_normal_and_uncounted(&*m) {
            return trylock_slow(m);
        }
        if !(operations(&*m).try_lock_weak)(&*m) {
            return EBUSY;
        }
        holder::note_if_named(&*m);
        0
    }
}

unsafe extern "C" fn timedlock(m: *mut Mutex, time: *const timespec) -> c_int {
    // SAFETY: the program passes a live mutex and a valid time.
    unsafe { acquire_any(&*m, Timeout::Realtime(time)) }
}

unsafe extern "C" fn clocklock(m: *mut Mutex, clock: libc::clockid_t, time: *const timespec) -> c_int {
    match Timeout::on(clock, time) {
        // SAFETY: the program passes a live mutex and a valid time.
        Some(timeout) => unsafe { acquire_any(&*m, timeout) },
        None => EINVAL,
    }
}

/// Locks a mutex of any kind, in any state.
///
/// # Safety
///
/// The mutex is live, and the time of `timeout` is valid.
unsafe fn acquire_any(m: &Mutex, timeout: Timeout) -> c_int {
    // SAFETY: the caller's mutex and time; `acquire` takes a mutex that its word or `classify` says is ours.
    unsafe {
        if is_normal_and_uncounted(m) {
            return acquire(m, timeout);
        }
        let class = classify(m);
        if class == Class::OfGlibc {
            return lock_of_glibc(m, timeout);
        }
        counters::call(Family::Mutex);
        if class == Class::Normal {
            return acquire(m, timeout);
        }
        let me = identity::me();
        if owner(m) == me {
            return acquire_again(m, class, timeout);
        }
        let result = acquire(m, timeout);
        if result == 0 {
            m.count.store(1, Relaxed);
            m.owner.store(m.owner.load(Relaxed) | me, Relaxed);
        }
        result
    }
}

/// Locks a recursive or an error-checking mutex that the calling thread holds.
fn acquire_again(m: &Mutex, class: Class, timeout: Timeout) -> c_int {
    if class == Class::ErrorChecking {
        return if matches!(timeout, Timeout::Immediate) { EBUSY } else { EDEADLK };
    }
    match m.count.load(Relaxed).checked_add(1) {
        Some(count) => {
            m.count.store(count, Relaxed);
            0
        }
        None => EAGAIN,
    }
}

/// Locks the raw lock.
///
/// # Safety
///
/// The mutex is live, one of ours and of the current generation, and the time of `timeout` is valid.
#[inline]
unsafe fn acquire(m: &Mutex, timeout: Timeout) -> c_int {
    let lock = operations(m);
    // The weak attempt may fail on a free lock that threads wait for: a call without a timeout then joins their queue. A
    // call with a timeout barges past them, because POSIX lets it fail only if the mutex is not free.
    let attempt = if matches!(timeout, Timeout::Never) { lock.try_lock_weak } else { lock.try_lock };
    // SAFETY: the caller's mutex is a live one of ours.
    let result = unsafe { if attempt(m) { 0 } else { acquire_contended(m, timeout) } };
    if result == 0 {
        holder::note_if_named(m);
    }
    result
}

/// The part of [`acquire`] after a failed attempt: waits, or returns EBUSY if it may not, and EINVAL if the time is invalid.
///
/// # Safety
///
/// As [`acquire`].
#[cold]
#[inline(never)]
unsafe fn acquire_contended(m: &Mutex, timeout: Timeout) -> c_int {
    counters::contended(Family::Mutex);
    // SAFETY: the caller's time is valid.
    let deadline = match unsafe { timeout.deadline() } {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    let lock = operations(m);
    // SAFETY: the caller's mutex is a live one of ours.
    let block = || unsafe { (lock.lock_contended)(m) };
    // SAFETY: the caller's mutex is a live one of ours.
    let until = |deadline| unsafe { (lock.lock_until)(m, deadline) }.then_some(());
    // `cancel::wait` keeps a thread that may be cancelled asynchronously from dying in the raw lock's queue.
    if cancel::wait(deadline, block, until).is_some() { 0 } else { ETIMEDOUT }
}

/// Waits for a normal mutex, after a failed attempt.
///
/// # Safety
///
/// The mutex is live, one of ours and of the current generation.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn wait(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex is a live one of ours, and there is no time.
    unsafe { acquire_contended(&*m, Timeout::Never) }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn unlock_slow(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex. The raw lock is unlocked only if `classify` says that the mutex is ours.
    unsafe {
        let m = &*m;
        match classify(m) {
            Class::OfGlibc => return REAL.mutex_unlock.get()(core::ptr::from_ref(m).cast_mut()),
            Class::Normal if m.kind.load(Relaxed) & NAMES_HOLDER != 0 => {
                let lock = operations(m);
                holder::unlock(m, |m| (lock.is_locked)(m), |m| (lock.unlock)(m));
                return 0;
            }
            Class::Normal => {} // `raw::unlock` finds out whether a thread holds it
            Class::Recursive | Class::ErrorChecking => {
                if owner(m) != identity::me() {
                    return EPERM;
                }
                let count = m.count.load(Relaxed) - 1;
                m.count.store(count, Relaxed);
                if count != 0 {
                    return 0;
                }
                m.owner.store(m.owner.load(Relaxed) & !THREAD, Relaxed);
            }
        }
        (operations(m).unlock)(m);
    }
    0
}

/// What [`classify`] finds: the kind of a mutex of ours that is ready for use, or that the mutex is glibc's.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Class {
    Normal,
    Recursive,
    ErrorChecking,
    OfGlibc,
}

/// Brings a mutex of ours up to the current generation, marks and counts it at its first use, and says of what kind it is.
///
/// # Safety
///
/// The mutex is live.
unsafe fn classify(m: &Mutex) -> Class {
    loop {
        let word = m.kind.load(Acquire); // pairs with (A) in `generation::repair`
        if word_is_of_glibc(word) {
            return Class::OfGlibc;
        }
        if !generation::is_current(word) {
            // SAFETY: the mutex is live and ours. `repair` lets one thread at a time mend it, before any uses it.
            generation::repair(&m.kind, |low| unsafe { mend(m, low & KIND) });
            continue;
        }
        if word & SERVED == 0 {
            // From a static initialiser. From now on a normal mutex takes the fast path.
            let choice = choice::choose(Family::Mutex, core::ptr::from_ref(m).addr());
            let left = choice == Choice::GLIBC;
            let new = if left { word & LOW | LEFT_TO_GLIBC } else { word | SERVED | choice.bits() };
            if m.kind.compare_exchange(word, new, Relaxed, Relaxed).is_ok() {
                choice::count(Family::Mutex, choice);
                if left {
                    counters::foreign_object(Reason::MutexChoice);
                } else {
                    counters::object(Family::Mutex);
                }
            }
            continue;
        }
        return match word & KIND {
            NORMAL => Class::Normal,
            RECURSIVE => Class::Recursive,
            ERRORCHECK => Class::ErrorChecking,
            _ => {
                // Adaptive. From now on it is a normal one, which takes the fast path.
                let _ = m.kind.compare_exchange(word, word & !ADAPTIVE, Relaxed, Relaxed);
                continue;
            }
        };
    }
}

/// Repairs a mutex in a forked child: forgets the threads that wait for the raw lock and those that `owner` counts. The child
/// has none of them. A mutex that was held stays held, by whichever thread, as under glibc.
///
/// The record in `owner` says whether a recursive or an error-checking mutex was held. If only its raw lock was, then another
/// thread was within a call at the fork, before or after its critical section. Such a mutex becomes free.
///
/// # Safety
///
/// The mutex is live and ours, and no other thread uses it.
unsafe fn mend(m: &Mutex, kind: u32) {
    let lock = operations(m);
    // SAFETY: the mutex is live, ours, and the caller's alone.
    unsafe {
        let records_owner = matches!(kind, RECURSIVE | ERRORCHECK);
        let is_held = if records_owner { owner(m) != 0 } else { (lock.is_locked)(m) };
        // Without the bits that count the waiters of condition variables.
        m.owner.store(owner(m), Relaxed);
        if !records_owner {
            m.count.store(0, Relaxed);
        }
        (lock.reset)(m);
        if is_held {
            // This succeeds (its result is ignored), because the lock is free and no other thread uses it. It also stores a new token.
            (lock.try_lock)(m);
        }
    }
}

unsafe extern "C" {
    fn pthread_mutexattr_gettype(attr: *const Attr, kind: *mut c_int) -> c_int;
    fn pthread_mutexattr_getpshared(attr: *const Attr, shared: *mut c_int) -> c_int;
    fn pthread_mutexattr_getprotocol(attr: *const Attr, protocol: *mut c_int) -> c_int;
    fn pthread_mutexattr_getrobust(attr: *const Attr, robust: *mut c_int) -> c_int;
}

unsafe extern "C" fn init(m: *mut Mutex, attr: *const Attr) -> c_int {
    // SAFETY: the program passes memory for a mutex, which no thread uses, and valid attributes or null.
    unsafe { if attr.is_null() { make(m, NORMAL, attr) } else { init_with(m, attr) } }
}

#[inline(never)]
unsafe extern "C" fn init_with(m: *mut Mutex, attr: *const Attr) -> c_int {
    let (mut kind, mut shared, mut protocol, mut robust) = (0, 0, 0, 0);
    // SAFETY: the program passes memory for a mutex, which no thread uses, and valid attributes.
    unsafe {
        pthread_mutexattr_gettype(attr, &mut kind);
        pthread_mutexattr_getpshared(attr, &mut shared);
        pthread_mutexattr_getprotocol(attr, &mut protocol);
        pthread_mutexattr_getrobust(attr, &mut robust);
        if shared | protocol | robust != 0 {
            counters::foreign_object(reason(robust != 0, protocol != 0));
            return REAL.mutex_init.get()(m, attr);
        }
        make(m, kind as u32, attr)
    }
}

/// Makes an unlocked mutex of ours, or one of glibc's if that is the choice for this object.
///
/// # Safety
///
/// `m` is valid for writes, and no thread uses it. `attr` is null or valid.
#[inline]
unsafe fn make(m: *mut Mutex, kind: u32, attr: *const Attr) -> c_int {
    // SAFETY: all-zero bytes are a valid `Mutex`, and the caller has the memory alone.
    unsafe {
        let mut bits = 0;
        if choice::is_on() {
            let choice = choice::choose(Family::Mutex, m.addr());
            choice::count(Family::Mutex, choice);
            if choice == Choice::GLIBC {
                counters::foreign_object(Reason::MutexChoice);
                let error = REAL.mutex_init.get()(m, attr);
                (*m).kind.fetch_or(LEFT_TO_GLIBC, Relaxed);
                return error;
            }
            bits = choice.bits();
        }
        m.cast::<u8>().write_bytes(0, size_of::<Mutex>());
        (*m).kind.store(generation::stamped(kind | SERVED | bits), Relaxed);
    }
    counters::object(Family::Mutex);
    0
}

/// Makes a normal mutex recursive, for `mtx_init`, which has just made it. No other thread uses it yet.
pub(super) fn make_recursive(m: &Mutex) {
    m.kind.store(m.kind.load(Relaxed) | RECURSIVE, Relaxed);
}

unsafe extern "C" fn destroy(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex, and promises that no other thread begins to use it. After the attempt below no
    // thread holds it, so the raw lock that is discarded is free.
    unsafe {
        let m = &*m;
        if classify(m) == Class::OfGlibc {
            return REAL.mutex_destroy.get()(core::ptr::from_ref(m).cast_mut());
        }
        let lock = operations(m);
        // A waiter of a condition variable counts itself in and out while it holds the raw lock. So this thread locks the raw
        // lock to read the number of waiters.
        if !(lock.try_lock)(m) {
            return EBUSY;
        }
        let waiters = m.owner.load(Relaxed) / WAITER;
        (lock.unlock)(m);
        if waiters != 0 {
            return EBUSY;
        }
        (lock.discard)(m);
        m.kind.store(u32::MAX, Relaxed); // as glibc marks a destroyed mutex, which is glibc's from now on
    }
    0
}

/// What one waiter of a condition variable adds to the owner's word.
const WAITER: u64 = 1 << identity::BITS;
/// The bits of the owner's word that name a thread.
const THREAD: u64 = WAITER - 1;

/// The thread that holds a recursive or error-checking mutex, or 0.
fn owner(m: &Mutex) -> u64 {
    m.owner.load(Relaxed) & THREAD
}

/// Adds the caller, which is about to wait for a condition variable, to the waiters that `owner` counts.
///
/// POSIX requires that the caller holds the mutex. If it does not hold a normal one, the number of waiters may be wrong.
///
/// # Safety
///
/// The mutex is live.
pub(super) unsafe fn note_waiter(m: &Mutex) -> Counted {
    // The repair of a mutex in a forked child forgets the parent's waiters: it must come before this one is counted.
    // SAFETY: the caller's mutex is live.
    let class = unsafe { classify(m) };
    let records_owner = matches!(class, Class::Recursive | Class::ErrorChecking);
    if class == Class::OfGlibc {
        return users::note(m);
    }
    if records_owner && owner(m) != identity::me() {
        return Counted::No;
    }
    m.owner.store(m.owner.load(Relaxed).wrapping_add(WAITER), Relaxed);
    holder::names_holder(m);
    Counted::Here
}

/// Takes the caller, which [`note_waiter`] has added, off the waiters. The caller holds the mutex again.
pub(super) fn forget_waiter(m: &Mutex, counted: Counted) {
    match counted {
        Counted::No => {}
        Counted::Here => m.owner.store(m.owner.load(Relaxed).wrapping_sub(WAITER), Relaxed),
        Counted::ByGlibc => users::forget(m),
    }
}

/// [`RawMutex::wants_offers`] of the raw lock.
///
/// # Safety
///
/// The mutex is live, one of ours and of the current generation.
pub(super) unsafe fn wants_offers(m: &Mutex) -> bool {
    // SAFETY: the caller's mutex is a live one of ours.
    unsafe { (operations(m).wants_offers)(m) }
}

/// The bits of glibc's kind that mutexes of ours have.
const KIND: u32 = NORMAL | RECURSIVE | ERRORCHECK | ADAPTIVE;

/// Whether the mutex is glibc's: it has a flag that no mutex of ours has. [`LEFT_TO_GLIBC`] is one of the bits of [`CHOICE`], which
/// is why these count as ours only beside [`SERVED`].
pub(super) fn is_of_glibc(m: &Mutex) -> bool {
    word_is_of_glibc(m.kind.load(Relaxed))
}

/// The same for its `kind`. A mutex with an unknown flag is glibc's too: glibc refuses it with EINVAL, or knows the flag.
fn word_is_of_glibc(kind: u32) -> bool {
    let choice = if kind & SERVED != 0 { CHOICE } else { 0 };
    kind & LOW & !(KIND | SERVED | NAMES_HOLDER | IN_SHARED_MEMORY | choice) != 0
}

/// Whether the choice of locks leaves a mutex with this `kind` to glibc. A destroyed mutex has all flags, and is not one of these.
#[inline(always)]
fn is_left_to_glibc(kind: u32) -> bool {
    kind & (GLIBC_MUTEX | SERVED | LEFT_TO_GLIBC) == LEFT_TO_GLIBC
}

/// Whether [`acquire`] may serve the mutex without a further look.
#[inline(always)]
fn is_normal_and_uncounted(m: &Mutex) -> bool {
    // (A): see `Expected::is_in`.
    MUTEX_WORD_IF_UNCOUNTED.is(m.kind.load(Acquire) & !(CHOICE | NAMES_HOLDER))
}

/// Why a mutex is glibc's. A destroyed one counts as robust, and one with an unknown flag as process-shared.
fn reason(robust: bool, priority: bool) -> Reason {
    match (robust, priority) {
        (true, _) => Reason::MutexRobust,
        (_, true) => Reason::MutexPriority,
        _ => Reason::MutexShared,
    }
}

unsafe fn lock_of_glibc(m: &Mutex, timeout: Timeout) -> c_int {
    let kind = m.kind.load(Relaxed);
    counters::foreign_call(if is_left_to_glibc(kind) {
        Reason::MutexChoice
    } else {
        reason(kind & ROBUST != 0, kind & PRIORITY != 0)
    });
    let m = core::ptr::from_ref(m).cast_mut();
    // SAFETY: the program's own arguments.
    unsafe {
        match timeout {
            Timeout::Never => REAL.mutex_lock.get()(m),
            Timeout::Immediate => REAL.mutex_trylock.get()(m),
            Timeout::Realtime(time) => REAL.mutex_timedlock.get()(m, time),
            Timeout::Monotonic(time) => REAL.mutex_clocklock.get()(m, libc::CLOCK_MONOTONIC, time),
        }
    }
}
