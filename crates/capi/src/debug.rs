//! What debuggers and observers see: names, what each thread waits for, and with `LW_DEBUG` what it holds.
//!
//! [`waiting`] stands around each slow path. It stores two words of the thread for gdb, and has a probe before and after. The
//! functions `lw_debug_*` stand in place of the inline paths in programs with `LW_DEBUG`. They note the holder, and tell the
//! preload library, if the program runs under it.

use crate::mutex::{Mutex as LwMutex, lw_mutex_clocklock_slow};
use crate::probe::probe;
use crate::rwlock::{self as rw, RwLock};
use crate::thread;
use latchwork::Mutex;
use latchwork::locks::mutex::{Fair, RawMutex};
use libc::{EBUSY, clockid_t, timespec};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{Ordering::Release, compiler_fence};

/// `how`: bits of it.
const KIND: c_int = 3;
const MUTEX: c_int = 0;
const READ: c_int = 1;
const WRITE: c_int = 2;
const ATTEMPT: c_int = 4;
const FAIR: c_int = 8;
/// Nothing is to be done with the lock.
const NOTED_ONLY: c_int = 64;
/// `how` of what is no lock.
pub(crate) const COND: c_int = 16;
pub(crate) const SEM: c_int = 32;

#[repr(C)]
struct Hold {
    lock: *const c_void,
    how: u64,
}

/// `struct lw_thread_debug`.
#[repr(C)]
struct ThreadDebug {
    waits_for: *const c_void,
    waits_how: u32,
    holds: u32,
    held: [Hold; 14],
}

const _: () = assert!(size_of::<ThreadDebug>() == 240);

type Step = unsafe extern "C" fn(*mut c_void) -> c_int;

unsafe extern "C" {
    #[allow(improper_ctypes, reason = "to C, the words are addresses")]
    fn lw_thread_debug_address() -> *mut ThreadDebug;
    fn lw_observe_acquire(
        lock: *mut c_void,
        how: c_int,
        attempt: Step,
        block: Step,
        context: *mut c_void,
    ) -> c_int;
    fn lw_observe_release(lock: *mut c_void, how: c_int, below: Step, context: *mut c_void) -> c_int;
    safe fn lw_observe_gone(lock: *mut c_void);
    fn lw_observe_name(object: *mut c_void, name: *const c_char);
}

/// Runs the slow path of an object.
#[inline]
pub(crate) fn waiting<T, R>(object: *const T, how: c_int, slow_path: impl FnOnce() -> R) -> R {
    // SAFETY: the words are the thread's own. They are written whole, for a debugger that stops the thread.
    let own = unsafe { lw_thread_debug_address() };
    probe!("wait_begin", object, how);
    // SAFETY: the words are the thread's own.
    let before = unsafe {
        (*own).waits_how = how as u32;
        (&raw mut (*own).waits_for).replace(object.cast())
    };
    let result = slow_path();
    // SAFETY: the words are the thread's own.
    unsafe { (*own).waits_for = before };
    probe!("wait_end", object, how);
    result
}

/// Notes that the calling thread holds a lock.
fn note(lock: *const c_void, how: c_int) {
    // SAFETY: the words are the thread's own.
    let own = unsafe { &mut *lw_thread_debug_address() };
    if let Some(entry) = own.held.get_mut(own.holds as usize) {
        *entry = Hold { lock, how: u64::from(how & KIND & READ != 0) };
        own.holds += 1;
    }
}

/// Notes that it does not hold the lock any more. Returns whether it did.
fn forget(lock: *const c_void) -> bool {
    // SAFETY: the words are the thread's own.
    let own = unsafe { &mut *lw_thread_debug_address() };
    let held = &mut own.held[..own.holds as usize];
    let Some(at) = held.iter().rposition(|hold| hold.lock == lock) else { return false };
    held[at..].rotate_left(1);
    own.holds -= 1;
    true
}

/// A lock call, while the observer has it in its hands.
struct Call {
    lock: *mut c_void,
    how: c_int,
    clock: clockid_t,
    time: *const timespec,
}

/// Acquires without waiting. SAFETY, for this and the two functions below: `context` is a [`Call`] of a live lock.
unsafe extern "C" fn attempt(context: *mut c_void) -> c_int {
    // SAFETY: see above.
    unsafe {
        let call = &*context.cast::<Call>();
        match call.how & KIND {
            MUTEX => [EBUSY, 0][usize::from((*call.lock.cast::<LwMutex>()).try_lock_weak().is_some())],
            WRITE => rw::lw_rwlock_wrtrylock_slow(call.lock.cast()),
            _ => rw::lw_rwlock_rdtrylock_slow(call.lock.cast()),
        }
    }
}

/// Does what the program asked for.
unsafe extern "C" fn block(context: *mut c_void) -> c_int {
    // SAFETY: see above.
    unsafe {
        let &Call { lock, how, clock, time } = &*context.cast::<Call>();
        let (mutex, rwlock) = (lock.cast::<LwMutex>(), lock.cast::<RwLock>());
        let is_attempt = how & ATTEMPT != 0;
        match how & KIND {
            MUTEX if is_attempt => [EBUSY, 0][usize::from((*mutex).try_lock().is_some())],
            MUTEX if time.is_null() => {
                waiting(mutex, MUTEX, || (*mutex).lock());
                0
            }
            MUTEX => lw_mutex_clocklock_slow(mutex, clock, time),
            WRITE if is_attempt => rw::lw_rwlock_wrtrylock_slow(rwlock),
            WRITE if time.is_null() => {
                rw::lw_rwlock_wrlock_slow(rwlock);
                0
            }
            WRITE => rw::lw_rwlock_wrclocklock_slow(rwlock, clock, time),
            _ if is_attempt => rw::lw_rwlock_rdtrylock_slow(rwlock),
            READ if time.is_null() => {
                rw::lw_rwlock_rdlock_slow(rwlock);
                0
            }
            READ => rw::lw_rwlock_rdclocklock_slow(rwlock, clock, time),
            _ => {
                rw::lw_rwlock_rdlock_recursive_slow(rwlock);
                0
            }
        }
    }
}

unsafe extern "C" fn unlock(context: *mut c_void) -> c_int {
    // SAFETY: see above; the calling thread holds the lock.
    unsafe {
        let &Call { lock, how, .. } = &*context.cast::<Call>();
        let (mutex, rwlock) = (lock.cast::<LwMutex>(), lock.cast::<RwLock>());
        match (how & KIND, how & FAIR != 0) {
            (MUTEX, false) => (*mutex).unlock(()),
            (MUTEX, true) => (*mutex).unlock_fair(()),
            (WRITE, false) => rw::lw_rwlock_wrunlock_slow(rwlock),
            (WRITE, true) => rw::lw_rwlock_wrunlock_fair_slow(rwlock),
            _ => rw::lw_rwlock_rdunlock_slow(rwlock),
        }
    }
    0
}

unsafe extern "C" fn nothing(_: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_debug_acquire(
    lock: *mut c_void,
    how: c_int,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    let (attempt, block): (Step, Step) =
        if how & NOTED_ONLY != 0 { (nothing, nothing) } else { (attempt, block) };
    let how = how & !NOTED_ONLY;
    let mut call = Call { lock, how, clock, time };
    // SAFETY: the program passes a live lock and a valid time or null.
    let result = unsafe { lw_observe_acquire(lock, how, attempt, block, (&raw mut call).cast()) };
    if result == 0 {
        note(lock, how);
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_debug_release(lock: *mut c_void, how: c_int) {
    forget(lock);
    let below: Step = if how & NOTED_ONLY != 0 { nothing } else { unlock };
    let how = how & !NOTED_ONLY;
    let mut call = Call { lock, how, clock: 0, time: null() };
    // SAFETY: the program passes a live lock that it holds.
    unsafe { lw_observe_release(lock, how, below, (&raw mut call).cast()) };
}

#[unsafe(no_mangle)]
extern "C" fn lw_debug_gone(lock: *mut c_void) {
    lw_observe_gone(lock);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_debug_no_section(function: *const c_char) {
    // SAFETY: the header passes its own name.
    panic!("{} in a thread that is in no section", unsafe { CStr::from_ptr(function) }.to_string_lossy());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_debug_unprotected(condition: *const c_char) {
    // SAFETY: the header passes the text of the condition.
    let condition = unsafe { CStr::from_ptr(condition) }.to_string_lossy();
    panic!("lw_rcu_dereference_protected, although this does not hold: {condition}");
}

/// Around a wait for a condition variable: the calling thread does not hold the mutex meanwhile.
pub(crate) fn without<R>(mutex: *const LwMutex, wait: impl FnOnce() -> R) -> R {
    let lock = mutex.cast::<c_void>().cast_mut();
    let noted = forget(lock);
    if noted {
        // SAFETY: the function ignores its argument.
        unsafe { lw_observe_release(lock, MUTEX, nothing, null_mut()) };
    }
    let result = wait();
    if noted {
        // SAFETY: the functions ignore their argument.
        unsafe { lw_observe_acquire(lock, MUTEX, nothing, nothing, null_mut()) };
        note(lock, MUTEX);
    }
    result
}

/// The name of an object, cut to 39 bytes and a zero byte.
#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) struct Named {
    object: *const c_void,
    name: [u8; 40],
}

/// What stands behind the last name.
const END: Named = Named { object: null(), name: [0; 40] };

/// For gdb: the names in an array, which ends with a null object. gdb reads it while the process is stopped, at any point of
/// `lw_name`.
#[unsafe(no_mangle)]
static mut lw_names: *const Named = null();

/// The names of objects.
struct Names {
    /// `lw_names`; empty as long as no object has had a name. It grows like a vector, but `lw_names` points to the larger array before
    /// the smaller one is freed.
    array: Vec<Named>,
    /// Where in the array an object's name stands, by the object's address.
    places: BTreeMap<usize, usize>,
}

// SAFETY: the addresses in the array are only compared.
unsafe impl Send for Names {}

static NAMES: Mutex<Names> = Mutex::new(Names { array: Vec::new(), places: BTreeMap::new() });

impl Names {
    fn set(&mut self, object: *const c_void, name: [u8; 40]) {
        if let Some(&place) = self.places.get(&object.addr()) {
            self.array[place].name = name;
            return;
        }
        if self.array.len() == self.array.capacity() {
            let mut larger = Vec::with_capacity(16.max(2 * self.array.len()));
            larger.extend_from_slice(if self.array.is_empty() { &[END] } else { &self.array });
            // SAFETY: the lock of the names is held.
            unsafe { lw_names = larger.as_ptr() };
            // For gdb, which reads the words in the order in which the program writes them.
            compiler_fence(Release);
            self.array = larger;
        }
        let place = self.array.len() - 1;
        self.array.push(END);
        self.array[place].name = name;
        compiler_fence(Release); // for gdb: the entry counts from here on
        self.array[place].object = object;
        self.places.insert(object.addr(), place);
    }

    fn remove(&mut self, object: *const c_void) {
        let Some(place) = self.places.remove(&object.addr()) else { return };
        let last = self.array.len() - 2;
        if place != last {
            self.array[place] = self.array[last];
            self.places.insert(self.array[last].object.addr(), place);
        }
        compiler_fence(Release); // for gdb: the name that moves is there twice, rather than not at all
        self.array[last] = END;
        self.array.pop();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_name(object: *const c_void, name: *const c_char) {
    let mut cut = [0; 40];
    if !name.is_null() {
        // SAFETY: the program passes a string.
        let text = unsafe { CStr::from_ptr(name) }.to_bytes();
        let length = text.len().min(39);
        cut[..length].copy_from_slice(&text[..length]);
    }
    let mut names = NAMES.lock();
    // ThreadSanitizer does not see this lock, and would take the copies of bytes in the map for accesses that nothing orders.
    thread::lw_tsan_ignore(true);
    if name.is_null() {
        names.remove(object);
    } else if !object.is_null() {
        names.set(object, cut);
    }
    thread::lw_tsan_ignore(false);
    drop(names);
    // SAFETY: null, or the program's string.
    unsafe { lw_observe_name(object.cast_mut(), name) };
}
