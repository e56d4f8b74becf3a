//! The recorder of `latchwork record` (`LATCHWORK_TRACE=DIRECTORY`): a layer over the table, whichever lock serves. Each thread
//! writes a stream of events into a mapped file. [`latchwork_recording::trace`] has the layout of that file.
//!
//! | module | what it has |
//! |---|---|
//! | this one | the layer: which event each call is |
//! | [`stream`] | a thread's stream, and the clock |
//! | [`objects`] | the records of locks, with the stacks of their first use |
//! | [`threads`] | the beginning and the end of threads |
//! | [`file`] | the mapped file |
//!
//! As in the [recorder of profiles](super::profile), a lock call first tries the lock. If that works, the call did not wait, and
//! one event says so: a reading of the clock and two stores into the thread's own memory. Otherwise the event has the time
//! that the call below took. The event of a release is written when the call is over, outside of the section, and has its time.
//!
//! Nothing here allocates or takes a lock. A signal handler may come between any two steps and make lock calls: while its
//! thread is in the middle of an event, the handler's events are dropped and counted.
//!
//! No value with a destructor lives across a call below, because the thread may be cancelled there.

use super::clocks::{Moment, both};
use super::losses;
use super::names::Names;
use super::{after_first_attempt, check};
use crate::families::timeout::try_in_time;
use crate::families::{cond, mutex};
use crate::state::abi::*;
use crate::state::exit::Use;
use crate::state::line::Line;
use crate::state::stderr;
use crate::state::table::{BarrierPtr, ResultPtr, Slot, Start, TABLE, Table, Thread, ThreadPtr};
use crate::state::wiped;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use latchwork_recording::layout::kind;
use latchwork_recording::trace::{Header, SHARED, op};
use libc::{EBUSY, ETIMEDOUT, c_int, c_void, clockid_t, timespec};
use stream::{Stream, ticks};
use threads::{create, join};

mod file;
mod objects;
mod stream;
mod threads;

/// The functions that the layer calls.
static BELOW: Table = Table::EMPTY;
/// The same, but what tries a lock here is the first attempt of a call that may wait: under the checks that differs from a call
/// of the program that only tries ([`check::first_attempts`]).
static FIRST: Table = Table::EMPTY;
/// The first attempt of `pthread_mutex_lock`.
static TRY_MUTEX: Slot<unsafe extern "C" fn(*mut Mutex) -> c_int> = Slot::new(mutex::try_weak);

/// Records from the start of the process on, if a file can be made. `mutex` and `rwlock` are the names of the locks that
/// serve; `None`: glibc's. `window` is the value of `LATCHWORK_TRACE_WINDOW`: milliseconds until events are written,
/// milliseconds for which they are (0: to the end), and MiB of events that are kept.
pub(crate) fn install(
    directory: &'static [u8],
    mutex: Option<&'static [u8]>,
    rwlock: Option<&'static [u8]>,
    window: Option<&'static [u8]>,
) -> bool {
    Use::TRACE.set(stream::exits);
    wiped::prepare();
    let mut numbers = window.unwrap_or(b"0,0,512").split(|byte| *byte == b',').map(number);
    let mut next = || numbers.next().unwrap_or(0);
    WINDOW[0].store(next(), Relaxed);
    WINDOW[1].store(next(), Relaxed);
    file::prepare(directory, (next() as usize) << 20);
    NAMES.set([mutex.unwrap_or(b"glibc"), rwlock.unwrap_or(b"glibc")]);
    if let Err(why) = open(false) {
        let mut line = Line::new();
        let _ = write!(line, "latchwork: no trace in ");
        line.bytes(directory);
        let _ = writeln!(line, ": {why}");
        stderr::write(line.as_bytes());
        return false;
    }
    BELOW.copy_from(&TABLE);
    FIRST.copy_from(&TABLE);
    if check::is_on() {
        TRY_MUTEX.set(check::first_attempts(&FIRST));
    } else if mutex.is_none() {
        TRY_MUTEX.set(FIRST.mutex_trylock.get());
    }
    place(mutex.is_none());
    true
}

/// Milliseconds until events are written, and for which they are.
static WINDOW: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The rate of the recorder's clock.
static TICKS_PER_MS: AtomicU64 = AtomicU64::new(0);

fn number(text: &[u8]) -> u64 {
    text.iter()
        .filter(|byte| byte.is_ascii_digit())
        .fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

static NAMES: Names = Names::new();

fn open(forked: bool) -> Result<(), &'static str> {
    let long = stream::choose_clock();
    let [mutex, rwlock] = &NAMES.get();
    file::open(&file::About { mutex, rwlock, forked, long })
}

/// Measures what the recorder and an uncontended lock cost, and opens the window. Runs when pthread calls are served.
pub(crate) fn begin() {
    /// Zero bytes: a normal mutex.
    struct Spare(core::cell::UnsafeCell<[u64; size_of::<Mutex>() / 8]>);
    // SAFETY: one thread uses it: the one that sets the process up.
    unsafe impl Sync for Spare {}
    static SPARE: Spare = Spare(core::cell::UnsafeCell::new([0; _]));
    const { assert!(align_of::<Mutex>() <= 8) };
    let mutex: *mut Mutex = SPARE.0.get().cast();
    let header = file::header();
    for _ in 0..stream::CALIBRATION {
        // SAFETY: a mutex of zero bytes is initialised, unlocked, and used by no other thread.
        unsafe {
            TABLE.mutex_lock.get()(mutex);
            TABLE.mutex_unlock.get()(mutex);
        }
    }
    if let Some(stream) = stream::current() {
        header.clock_cost.store(stream.clock_cost(), Relaxed);
        let [hold, gap, release] = stream.calibrated();
        header.empty_hold.store(hold, Relaxed);
        header.empty_gap.store(gap, Relaxed);
        header.empty_release.store(release, Relaxed);
    }
    // If the thread gets no stream: the calls above are not the program's.
    header.unknown.store(0, Relaxed);
    let per_ms = stream::ticks_per_ms(Moment { ticks: header.started_ticks, nanos: header.started });
    TICKS_PER_MS.store(per_ms, Relaxed);
    open_window();
}

/// The process begins.
fn open_window() {
    let [per_ms, delay, length] = [&TICKS_PER_MS, &WINDOW[0], &WINDOW[1]].map(|word| word.load(Relaxed));
    stream::set_window(per_ms, delay, length);
}

/// What [`begin`] has measured.
const COSTS: [fn(&Header) -> &AtomicU32; 4] = [
    |header| &header.empty_hold,
    |header| &header.empty_gap,
    |header| &header.empty_release,
    |header| &header.clock_cost,
];

/// The program may have unloaded a library.
pub(crate) fn unloaded() {
    if file::is_open() {
        objects::unloaded();
    }
}

/// In a forked child, which has one thread: it gets a file of its own. If no fork handler runs in the child, this happens when it
/// next makes a call of the layer.
pub(crate) fn after_fork() {
    if !file::is_mapped() {
        return;
    }
    let header = file::header();
    let costs = COSTS.map(|cost| cost(header).load(Relaxed));
    let parent = losses::Parent::keep(&header.lost);
    stream::leave();
    file::forget();
    objects::clear();
    match open(true) {
        Ok(()) => {
            let header = file::header();
            for (cost, value) in COSTS.into_iter().zip(costs) {
                cost(header).store(value, Relaxed);
            }
            open_window();
        }
        // The layer only passes the calls on.
        Err(why) => losses::report(parent.as_ref(), "trace", file::directory(), why),
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = ended;

/// The process ends in order.
extern "C" fn ended() {
    if file::is_open() {
        let header = file::header();
        let ended = both(ticks);
        header.ended_ticks.store(ended.ticks, Relaxed);
        header.ended.store(ended.nanos, Relaxed);
    }
}

/// Whether glibc serves mutexes and condition variables. Its C11 functions do not call the pthread symbols; this library's do.
static GLIBC: AtomicBool = AtomicBool::new(false);

/// Puts the layer over the table.
fn place(glibc: bool) {
    GLIBC.store(glibc, Relaxed);
    crate::state::table::install! {
        mutex_init => mutex_init, mutex_lock => mutex_lock, mutex_trylock => mutex_trylock,
        mutex_timedlock => mutex_timedlock, mutex_clocklock => mutex_clocklock, mutex_unlock => mutex_unlock,
        rwlock_init => rwlock_init, rwlock_rdlock => rwlock_rdlock, rwlock_wrlock => rwlock_wrlock,
        rwlock_tryrdlock => rwlock_tryrdlock, rwlock_trywrlock => rwlock_trywrlock,
        rwlock_timedrdlock => rwlock_timedrdlock, rwlock_timedwrlock => rwlock_timedwrlock,
        rwlock_clockrdlock => rwlock_clockrdlock, rwlock_clockwrlock => rwlock_clockwrlock,
        rwlock_unlock => rwlock_unlock,
        spin_init => spin_init, spin_lock => spin_lock, spin_trylock => spin_trylock, spin_unlock => spin_unlock,
        cond_wait => cond_wait, cond_timedwait => cond_timedwait, cond_clockwait => cond_clockwait,
        cond_signal => cond_signal, cond_broadcast => cond_broadcast,
        cnd_wait => cnd_wait, cnd_timedwait => cnd_timedwait,
        sem_post => sem_post, sem_trywait => sem_trywait, sem_wait => sem_wait,
        sem_timedwait => sem_timedwait, sem_clockwait => sem_clockwait,
        thread_create => thread_create, thread_join => thread_join, thread_tryjoin => thread_tryjoin,
        thread_timedjoin => thread_timedjoin, thread_clockjoin => thread_clockjoin,
        thrd_create => thrd_create, thrd_join => thrd_join,
        barrier_init => barrier_init, barrier_wait => barrier_wait,
    }
    if glibc {
        crate::state::table::install! {
            mtx_lock => mtx_lock, mtx_trylock => mtx_trylock, mtx_timedlock => mtx_timedlock, mtx_unlock => mtx_unlock,
            cnd_signal => cnd_signal, cnd_broadcast => cnd_broadcast,
        }
    } else {
        cond::RELOCK.set(relock);
    }
}

/// Whether a lock call acquired the lock. EOWNERDEAD: it acquired a robust mutex; the former holder has died.
fn got(result: c_int) -> bool {
    result == 0 || result == libc::EOWNERDEAD
}

/// An object and what is asked of it.
#[derive(Clone, Copy)]
struct Call {
    kind: u32,
    address: usize,
    op: u32,
}

fn mutex_call(m: *mut Mutex) -> Call {
    Call { kind: kind::MUTEX, address: m.expose_provenance(), op: op::ACQUIRE }
}

fn reading(l: *mut RwLock) -> Call {
    Call { kind: kind::RWLOCK, address: l.addr(), op: op::READ }
}

fn writing(l: *mut RwLock) -> Call {
    Call { op: op::ACQUIRE, ..reading(l) }
}

fn spinning(s: *mut Spin) -> Call {
    Call { kind: kind::SPIN, address: s.addr(), op: op::ACQUIRE }
}

/// Writes an event of the calling thread that ends now.
#[inline(always)]
fn event(kind: u32, address: usize, op: u32, since: Option<u64>) {
    match of(kind, address) {
        Some((stream, object)) => {
            stream.event_with(op, object, since, is_recursive(kind, address, op).into())
        }
        None => stream::unknown(),
    }
}

/// Whether the event is an acquisition of a recursive mutex.
#[inline(always)]
fn is_recursive(kind: u32, address: usize, op: u32) -> bool {
    // SAFETY: the address is that of a mutex, which the caller exposed, and which is live: the thread holds it.
    kind == kind::MUTEX
        && matches!(op, op::ACQUIRE | op::TRY)
        && unsafe {
            (*core::ptr::with_exposed_provenance::<Mutex>(address)).kind.load(Relaxed) & 3 == RECURSIVE
        }
}

/// The calling thread's stream, and the index of an object. `None`: one of them has no record.
#[inline(always)]
fn of(kind: u32, address: usize) -> Option<(&'static mut Stream, u32)> {
    let stream = stream::current()?;
    Some((stream, objects::find(kind, address)?))
}

/// A lock call that may wait: `attempt` first, then `block`.
#[inline(always)]
fn acquire(call: Call, attempt: impl FnOnce() -> c_int, block: impl FnOnce() -> c_int) -> c_int {
    let result = attempt();
    if got(result) {
        event(call.kind, call.address, call.op, None);
        return result;
    }
    if result != EBUSY {
        return after_first_attempt(call.kind, call.address, result);
    }
    let since = ticks();
    let result = block();
    if got(result) {
        event(call.kind, call.address, call.op, Some(since));
    } else if result == ETIMEDOUT {
        event(call.kind, call.address, op::FAILED, Some(since));
    }
    result
}

/// A lock call that does not wait.
#[inline(always)]
fn attempt(call: Call, attempt: impl FnOnce() -> c_int) -> c_int {
    let result = attempt();
    if got(result) {
        let op = if call.op == op::ACQUIRE { op::TRY } else { call.op };
        event(call.kind, call.address, op, None);
    } else if result == EBUSY {
        event(call.kind, call.address, op::FAILED, None);
    }
    result
}

/// An unlock call, or one that signals. It may wake other threads, which takes a while that the program does not compute.
#[inline(always)]
fn wake(kind: u32, address: usize, op: u32, below: impl FnOnce() -> c_int) -> c_int {
    let since = ticks();
    let result = below();
    // It has done nothing: the thread does not hold the lock, or the semaphore has all the units that it can have.
    if result != 0 {
        return result;
    }
    // From here on the object may be gone: its address is enough.
    match of(kind, address) {
        Some((stream, object)) => {
            stream.event(op, object, Some(since));
            stream.make_room();
        }
        None => stream::unknown(),
    }
    result
}

/// An unlock call.
#[inline(always)]
fn release(kind: u32, address: usize, below: impl FnOnce() -> c_int) -> c_int {
    wake(kind, address, op::RELEASE, below)
}

/// The program makes an object. Its stack is that of this call.
fn made(kind: u32, address: usize) {
    if file::is_open() && objects::find(kind, address).is_none() {
        stream::unknown();
    }
}

/// A wait for a condition variable: the thread releases the mutex, sleeps, and has the mutex again.
///
/// This library's condition variable calls the layer for the release, and [`relock`] when the sleep is over. glibc's does not. So
/// what a thread waits for its mutex then is a part of the sleep.
#[inline(always)]
fn wait(c: *mut Cond, m: *mut Mutex, below: impl FnOnce() -> c_int) -> c_int {
    if !GLIBC.load(Relaxed) {
        if let Some(stream) = stream::current() {
            stream.sleeps = (c.addr(), ticks());
        }
        let result = below();
        if let Some(stream) = stream::current() {
            stream.sleeps = (0, 0);
        }
        if timed_out(result) {
            // The sleep was written down when it was over: before the mutex was acquired again.
            event(kind::CONDVAR, c.addr(), op::FAILED, None);
        }
        return result;
    }
    event(kind::MUTEX, m.addr(), op::RELEASE, None);
    let since = ticks();
    let result = below();
    if result == libc::EPERM {
        return result; // the thread does not hold the mutex, and did not wait
    }
    let op = if timed_out(result) { op::FAILED } else { op::SLEEP };
    event(kind::CONDVAR, c.addr(), op, Some(since));
    event(kind::MUTEX, m.expose_provenance(), op::ACQUIRE, None);
    result
}

/// Whether a wait ended at its deadline. C11's `thrd_timedout` has another number than ETIMEDOUT.
fn timed_out(result: c_int) -> bool {
    const THRD_TIMEDOUT: c_int = 4;
    result == ETIMEDOUT || result == THRD_TIMEDOUT
}

/// Locks a mutex again after a wait for a condition variable of this library's.
unsafe extern "C" fn relock(m: *mut Mutex) -> c_int {
    match stream::current().map(|stream| core::mem::take(&mut stream.sleeps)) {
        Some((0, _)) => {}
        Some((address, since)) => event(kind::CONDVAR, address, op::SLEEP, Some(since)),
        None => stream::unknown(),
    }
    // SAFETY: the program's mutex is live.
    unsafe { mutex_lock(m) }
}

/// A wait for a unit of a semaphore.
#[inline(always)]
fn take(s: *mut Sem, below: impl FnOnce() -> c_int) -> c_int {
    let since = ticks();
    let result = below();
    event(kind::SEMAPHORE, s.addr(), if result == 0 { op::SLEEP } else { op::FAILED }, Some(since));
    result
}

/// The program makes a barrier for so many threads.
fn made_barrier(b: BarrierPtr, attr: *const Attr, count: u32) {
    let mut shared = 0;
    if !attr.is_null() {
        // SAFETY: the program passes valid attributes.
        unsafe { pthread_barrierattr_getpshared(attr, &mut shared) };
    }
    if file::is_open() && !objects::barrier(b.addr(), if shared == 0 { count } else { SHARED }) {
        stream::unknown();
    }
}

unsafe extern "C" {
    fn pthread_barrierattr_getpshared(attr: *const Attr, shared: *mut c_int) -> c_int;
}

/// A wait at a barrier.
#[inline(always)]
fn meet(b: BarrierPtr, below: impl FnOnce() -> c_int) -> c_int {
    // When the thread is through, another one may have destroyed the barrier, and made one for more threads there.
    let object = of(kind::BARRIER, b.addr()).map(|(_, object)| object);
    let since = ticks();
    let result = below();
    let is_chosen = result == libc::PTHREAD_BARRIER_SERIAL_THREAD;
    if result != 0 && !is_chosen {
        return result;
    }
    match (object, stream::current()) {
        (Some(object), Some(stream)) => {
            stream.event_with(op::SLEEP, object, Some(since), is_chosen.into());
        }
        _ => stream::unknown(),
    }
    result
}

type Time = *const timespec;

layer! {
    mutex_init(m: *mut Mutex, attr: *const Attr) -> c_int = |call| { made(kind::MUTEX, m.addr()); call() };
    mutex_lock(m: *mut Mutex) -> c_int = |call| acquire(mutex_call(m), || TRY_MUTEX.get()(m), call);
    mutex_trylock(m: *mut Mutex) -> c_int = |call| attempt(mutex_call(m), call);
    mutex_timedlock(m: *mut Mutex, time: Time) -> c_int =
        |call| acquire(mutex_call(m), || try_in_time(libc::CLOCK_REALTIME, time, || FIRST.mutex_trylock.get()(m)), call);
    mutex_clocklock(m: *mut Mutex, clock: clockid_t, time: Time) -> c_int =
        |call| acquire(mutex_call(m), || try_in_time(clock, time, || FIRST.mutex_trylock.get()(m)), call);
    mutex_unlock(m: *mut Mutex) -> c_int = |call| release(kind::MUTEX, m.addr(), call);

    rwlock_init(l: *mut RwLock, attr: *const Attr) -> c_int = |call| { made(kind::RWLOCK, l.addr()); call() };
    rwlock_rdlock(l: *mut RwLock) -> c_int = |call| acquire(reading(l), || FIRST.rwlock_tryrdlock.get()(l), call);
    rwlock_wrlock(l: *mut RwLock) -> c_int = |call| acquire(writing(l), || FIRST.rwlock_trywrlock.get()(l), call);
    rwlock_tryrdlock(l: *mut RwLock) -> c_int = |call| attempt(reading(l), call);
    rwlock_trywrlock(l: *mut RwLock) -> c_int = |call| attempt(writing(l), call);
    rwlock_timedrdlock(l: *mut RwLock, time: Time) -> c_int =
        |call| acquire(reading(l), || {
            try_in_time(libc::CLOCK_REALTIME, time, || FIRST.rwlock_tryrdlock.get()(l))
        }, call);
    rwlock_timedwrlock(l: *mut RwLock, time: Time) -> c_int =
        |call| acquire(writing(l), || {
            try_in_time(libc::CLOCK_REALTIME, time, || FIRST.rwlock_trywrlock.get()(l))
        }, call);
    rwlock_clockrdlock(l: *mut RwLock, clock: clockid_t, time: Time) -> c_int =
        |call| acquire(reading(l), || {
            try_in_time(clock, time, || FIRST.rwlock_tryrdlock.get()(l))
        }, call);
    rwlock_clockwrlock(l: *mut RwLock, clock: clockid_t, time: Time) -> c_int =
        |call| acquire(writing(l), || {
            try_in_time(clock, time, || FIRST.rwlock_trywrlock.get()(l))
        }, call);
    rwlock_unlock(l: *mut RwLock) -> c_int = |call| release(kind::RWLOCK, l.addr(), call);

    spin_init(s: *mut Spin, shared: c_int) -> c_int = |call| { made(kind::SPIN, s.addr()); call() };
    spin_lock(s: *mut Spin) -> c_int = |call| acquire(spinning(s), || FIRST.spin_trylock.get()(s), call);
    spin_trylock(s: *mut Spin) -> c_int = |call| attempt(spinning(s), call);
    spin_unlock(s: *mut Spin) -> c_int = |call| release(kind::SPIN, s.addr(), call);

    cond_wait(c: *mut Cond, m: *mut Mutex) -> c_int = |call| wait(c, m, call);
    cond_timedwait(c: *mut Cond, m: *mut Mutex, time: Time) -> c_int = |call| wait(c, m, call);
    cond_clockwait(c: *mut Cond, m: *mut Mutex, clock: clockid_t, time: Time) -> c_int = |call| wait(c, m, call);
    cond_signal(c: *mut Cond) -> c_int = |call| wake(kind::CONDVAR, c.addr(), op::WAKE, call);
    cond_broadcast(c: *mut Cond) -> c_int = |call| wake(kind::CONDVAR, c.addr(), op::WAKE_ALL, call);

    sem_post(s: *mut Sem) -> c_int = |call| wake(kind::SEMAPHORE, s.addr(), op::WAKE, call);
    sem_trywait(s: *mut Sem) -> c_int = |call| take(s, call);
    sem_wait(s: *mut Sem) -> c_int = |call| take(s, call);
    sem_timedwait(s: *mut Sem, time: Time) -> c_int = |call| take(s, call);
    sem_clockwait(s: *mut Sem, clock: clockid_t, time: Time) -> c_int = |call| take(s, call);

    thread_create(thread: ThreadPtr, attr: *const Attr, start: Start, argument: *mut c_void) -> c_int =
        |_call| create(start, argument, |start, argument| BELOW.thread_create.get()(thread, attr, start, argument));
    thread_join(thread: Thread, result: ResultPtr) -> c_int = |call| join(thread, call);
    thread_tryjoin(thread: Thread, result: ResultPtr) -> c_int = |call| join(thread, call);
    thread_timedjoin(thread: Thread, result: ResultPtr, time: Time) -> c_int = |call| join(thread, call);
    thread_clockjoin(thread: Thread, result: ResultPtr, clock: clockid_t, time: Time) -> c_int =
        |call| join(thread, call);
    thrd_create(thread: ThreadPtr, start: Start, argument: *mut c_void) -> c_int =
        |_call| create(start, argument, |start, argument| BELOW.thrd_create.get()(thread, start, argument));
    thrd_join(thread: Thread, result: *mut c_int) -> c_int = |call| join(thread, call);

    barrier_init(b: BarrierPtr, attr: *const Attr, count: u32) -> c_int = |call| {
        let result = call();
        if result == 0 {
            made_barrier(b, attr, count);
        }
        result
    };
    barrier_wait(b: BarrierPtr) -> c_int = |call| meet(b, call);

    // glibc's C11 functions are the pthread functions with other results.
    mtx_lock(m: *mut Mutex) -> c_int = |_call| crate::families::c11::result(mutex_lock(m));
    mtx_trylock(m: *mut Mutex) -> c_int = |_call| crate::families::c11::result(mutex_trylock(m));
    mtx_timedlock(m: *mut Mutex, time: Time) -> c_int = |_call| crate::families::c11::result(mutex_timedlock(m, time));
    mtx_unlock(m: *mut Mutex) -> c_int = |call| release(kind::MUTEX, m.addr(), call);
    cnd_wait(c: *mut Cond, m: *mut Mutex) -> c_int = |call| wait(c, m, call);
    cnd_timedwait(c: *mut Cond, m: *mut Mutex, time: Time) -> c_int = |call| wait(c, m, call);
    cnd_signal(c: *mut Cond) -> c_int = |call| wake(kind::CONDVAR, c.addr(), op::WAKE, call);
    cnd_broadcast(c: *mut Cond) -> c_int = |call| wake(kind::CONDVAR, c.addr(), op::WAKE_ALL, call);
}
