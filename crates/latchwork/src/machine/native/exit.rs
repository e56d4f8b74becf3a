//! What is done when a thread exits: what it kept for itself is given back.
//!
//! The C library says so through a `pthread_key`. A process has few of them (glibc: 1,024), so one serves all uses: the
//! thread's value is the set of those that have something to give back. A program that preloads the locks without
//! knowing counts on all keys, and on their numbers. So the key is the last of the first 32, which glibc keeps inside
//! of the thread's control block: setting it allocates nothing. The preload library gives it up when the program has
//! taken all others.
//!
//! Without a key, what a thread has is not used again.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// The key's number plus one; 0 while there is none.
static KEY: AtomicU32 = AtomicU32::new(0);
const GIVEN_UP: u32 = u32::MAX;

/// The last key whose value glibc keeps inside of the thread's control block.
const LAST_INSIDE: libc::pthread_key_t = 31;

/// The functions of the uses, which get the thread's own things from its thread-local words.
static FUNCTIONS: [AtomicPtr<()>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

/// A use: has a function called when a thread exits that has asked for it.
pub(super) struct Hook(usize);

impl Hook {
    pub(super) const NODES: Hook = Hook(0);
    pub(super) const ROWS: Hook = Hook(1);
    pub(super) const RECORDS: Hook = Hook(2);
    /// Of the library that is preloaded.
    pub(super) const LIBRARY: Hook = Hook(3);

    /// Sets the function, and creates the key if there is none. `first` is called before, by each thread that may be
    /// the first.
    pub(super) fn create(&self, at_exit: fn(), first: impl FnOnce()) {
        if FUNCTIONS[self.0].load(Acquire).is_null() {
            first();
            // (A) pairs with the load in `run`.
            FUNCTIONS[self.0].store(at_exit as *mut (), Release);
        }
        if KEY.load(Relaxed) == 0 {
            create_key();
        }
    }

    /// Has the function called when the calling thread exits; `false` if that cannot be.
    pub(super) fn set(&self) -> bool {
        let Some(key) = key() else { return false };
        // SAFETY: both functions take any number for a key.
        unsafe {
            let uses = libc::pthread_getspecific(key).addr() | 1 << self.0;
            if libc::pthread_setspecific(key, core::ptr::without_provenance(uses)) != 0 {
                return false;
            }
        }
        if self::key() == Some(key) {
            return true;
        }
        // `give_up` came in between, and the number may be that of a key of the program's, which this thread, being
        // here, has not given a value yet.
        // SAFETY: the function takes any number for a key.
        unsafe { libc::pthread_setspecific(key, null_mut()) };
        false
    }
}

fn key() -> Option<libc::pthread_key_t> {
    match KEY.load(Acquire) {
        0 | GIVEN_UP => None,
        key => Some(key - 1),
    }
}

#[cold]
fn create_key() {
    let mut keys = [0; LAST_INSIDE as usize + 1];
    let mut count = 0;
    // SAFETY: each key is created here, and deleted here unless it becomes `KEY`.
    unsafe {
        while count < keys.len() && libc::pthread_key_create(&mut keys[count], Some(run)) == 0 {
            count += 1;
            if keys[count - 1] >= LAST_INSIDE {
                break;
            }
        }
        let Some((best, others)) = keys[..count].split_last() else { return };
        for key in others {
            libc::pthread_key_delete(*key);
        }
        if KEY.compare_exchange(0, best + 1, AcqRel, Relaxed).is_err() {
            libc::pthread_key_delete(*best);
        }
    }
}

/// Deletes the key, for a program that needs all. `false` if there is none to delete.
pub(super) fn give_up() -> bool {
    let Some(key) = key() else { return false };
    // SAFETY: it was created here, and is deleted once.
    KEY.compare_exchange(key + 1, GIVEN_UP, AcqRel, Relaxed).is_ok()
        && unsafe { libc::pthread_key_delete(key) } == 0
}

/// Runs when a thread exits. Other destructors may take locks afterwards: that sets the value again, and the C library
/// then runs this once more.
extern "C" fn run(uses: *mut libc::c_void) {
    for (index, function) in FUNCTIONS.iter().enumerate() {
        // (A) a thread that has set the use has seen the function.
        let function = function.load(Acquire);
        if uses.addr() & 1 << index != 0 && !function.is_null() {
            // SAFETY: `create` stores nothing but a `fn()`.
            unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
        }
    }
}
