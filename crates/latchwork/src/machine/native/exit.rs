//! What happens when a thread exits: it gives back what it kept for itself.
//!
//! The C library tells of the exit through a `pthread_key`. A process has few keys (glibc: 1,024), so one serves all uses:
//! the thread's value of the key is the set of the uses that have something to give back. A program that does not know
//! that the locks are preloaded may count on having all keys, and on their numbers. So this crate takes the last of the
//! first 32 keys. glibc keeps the values of those 32 inside of the thread's control block, so that setting one allocates
//! nothing. The preload library gives the key up when the program has taken all others.
//!
//! Without a key, what an exiting thread kept is not used again. That also holds for the threads that live when a plugin with
//! this crate in it is unloaded.
//!
//! State of [`KEY`]: 0 -> a key (`create_key`) -> [`GIVEN_UP`] (`give_up`). (A): a stored function pairs with the load when
//! a thread exits.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// The key's number plus one; 0 while there is none.
static KEY: AtomicU32 = AtomicU32::new(0);
/// The value of [`KEY`] after the key was given up.
const GIVEN_UP: u32 = u32::MAX;

/// The last key whose value glibc keeps inside of the thread's control block.
const LAST_INSIDE: libc::pthread_key_t = 31;

/// The function of each use. It finds what the thread kept through thread-local words.
static FUNCTIONS: [AtomicPtr<()>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

/// A use of the key: has a function called when a thread exits that has asked for it.
pub(super) struct Hook(usize);

impl Hook {
    /// That of the preload library, or of the C interface. It comes first: until it has returned, the thread's record and row
    /// are no other thread's.
    pub(super) const LIBRARY: Hook = Hook(0);
    pub(super) const NODES: Hook = Hook(1);
    pub(super) const ROWS: Hook = Hook(2);
    pub(super) const RECORDS: Hook = Hook(3);

    /// Sets the function, and creates the key if there is none.
    pub(super) fn create(&self, at_exit: fn()) {
        if FUNCTIONS[self.0].load(Acquire).is_null() {
            // (A) pairs with the load in `run`.
            FUNCTIONS[self.0].store(at_exit as *mut (), Release);
        }
        if KEY.load(Relaxed) == 0 {
            create_key();
        }
    }

    /// Has the function called when the calling thread exits. `false` if there is no key for that.
    pub(super) fn set(&self) -> bool {
        let Some(key) = key() else { return false };
        // SAFETY: both functions check the key.
        unsafe {
            let uses = libc::pthread_getspecific(key).addr() | 1 << self.0;
            if libc::pthread_setspecific(key, core::ptr::without_provenance(uses)) != 0 {
                return false;
            }
        }
        if self::key() == Some(key) {
            return true;
        }
        // `give_up` came in between, and the number may be that of a key of the program's by now. This thread is still in
        // this function, so it has not given the program's key a value: null is what the program expects.
        // SAFETY: the function checks the key.
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
    // SAFETY: each key that is deleted here was created here, and is used by no other thread.
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

/// Deletes the key, for a program that needs all keys. `false` if there is none.
pub(super) fn give_up() -> bool {
    let Some(key) = key() else { return false };
    // SAFETY: the key was created here. The exchange succeeds in one thread, which deletes it.
    KEY.compare_exchange(key + 1, GIVEN_UP, AcqRel, Relaxed).is_ok()
        && unsafe { libc::pthread_key_delete(key) } == 0
}

/// The shared object that this crate is in is being unloaded, or the process ends. A key that stays would have threads call
/// unmapped code when they exit.
#[cfg(feature = "std")]
extern "C" fn unload() {
    give_up();
}

// Not without `std`: a kernel has neither keys nor this section, and would be linked with both.
#[cfg(feature = "std")]
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

/// Runs when a thread exits. Destructors that run later may take locks: that sets the value again, and the C library then
/// runs this once more. The functions are called in the order of [`FUNCTIONS`].
extern "C" fn run(uses: *mut libc::c_void) {
    for (index, function) in FUNCTIONS.iter().enumerate() {
        // (A) a thread that has set a use has called `create` before, so it sees the function.
        let function = function.load(Acquire);
        if uses.addr() & 1 << index != 0 && !function.is_null() {
            // SAFETY: `create` stores nothing but a `fn()`.
            unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
        }
    }
}
