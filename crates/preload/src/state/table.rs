//! Tables of functions: one slot for each function that this library exports.
//!
//! [`TABLE`] has the functions that serve the process. Start-up fills it: the families put in their functions, then an
//! observer may put itself over those. `startup::entry` has what the exported symbols jump through: a copy.

use super::abi::{Attr, Cond, Mutex, RwLock, Sem, Spin};
use super::interface::interface;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use libc::{c_int, c_void, timespec};

/// A pointer, to a function or to something static, that may be set while other threads use it.
#[repr(transparent)]
pub(crate) struct Slot<F>(AtomicPtr<()>, PhantomData<F>);

impl<F: Copy> Slot<F> {
    pub(crate) const fn new(f: F) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut ()>()) };
        // SAFETY: the sizes are equal, as asserted, and a slot is only made for pointers.
        Slot(AtomicPtr::new(unsafe { core::mem::transmute_copy::<F, *mut ()>(&f) }), PhantomData)
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> F {
        // (A) pairs with the store in `set`.
        let f = self.0.load(Acquire);
        // SAFETY: `new` and `set` store nothing but an `F`.
        unsafe { core::mem::transmute_copy::<*mut (), F>(&f) }
    }

    pub(crate) fn set(&self, f: F) {
        // SAFETY: the sizes are equal, as `new` asserts, and `F` is a pointer.
        let f = unsafe { core::mem::transmute_copy::<F, *mut ()>(&f) };
        // (A) a thread that calls the new function sees what the setting thread prepared for it.
        self.0.store(f, Release);
    }
}

/// What stands for a function that the C library lacks returns.
trait Missing {
    const MISSING: Self;
}
impl Missing for c_int {
    const MISSING: c_int = libc::ENOSYS;
}
impl Missing for *mut c_void {
    const MISSING: *mut c_void = core::ptr::null_mut();
}
impl Missing for () {
    const MISSING: () = ();
}

// The types of arguments in the list.
pub(crate) type MutexPtr = *mut Mutex;
pub(crate) type RwLockPtr = *mut RwLock;
pub(crate) type CondPtr = *mut Cond;
pub(crate) type SpinPtr = *mut Spin;
pub(crate) type SemPtr = *mut Sem;
pub(crate) type AttrPtr = *const Attr;
pub(crate) type Time = *const timespec;
pub(crate) type ClockId = libc::clockid_t;
pub(crate) type Handle = *mut c_void;
pub(crate) type Int = c_int;
pub(crate) type IntPtr = *mut c_int;
pub(crate) type Value = u32;
pub(crate) type KeyPtr = *mut libc::pthread_key_t;
pub(crate) type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;
pub(crate) type Name = *const core::ffi::c_char;
pub(crate) type Namespace = isize;
pub(crate) type Thread = libc::pthread_t;
pub(crate) type ThreadPtr = *mut libc::pthread_t;
pub(crate) type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
pub(crate) type ResultPtr = *mut *mut c_void;
pub(crate) type BarrierPtr = *mut libc::pthread_barrier_t;
pub(crate) type AtFork = Option<unsafe extern "C" fn()>;

macro_rules! tables {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty =
        $($symbol:ident [$($version:literal),*])*, real $real:literal $real_version:literal;)*) => {
        /// One slot for each function.
        #[repr(C)]
        pub(crate) struct Table {
            $(pub $name: Slot<unsafe extern "C" fn($($arg: $type),*) -> $ret>,)*
        }

        impl Table {
            /// A table in which every function fails.
            #[allow(clippy::declare_interior_mutable_const)]
            pub(crate) const EMPTY: Table = Table { $($name: Slot::new(missing::$name),)* };

            /// Takes over all functions of another.
            pub(crate) fn copy_from(&self, other: &Table) {
                $(self.$name.set(other.$name.get());)*
            }
        }

        mod missing {
            use super::*;
            $(pub(super) unsafe extern "C" fn $name($(_: $type),*) -> $ret {
                <$ret as Missing>::MISSING
            })*
        }

        /// Fills [`REAL`]. Every glibc that this library loads on has the versions that are asked for. For another
        /// version `dlvsym` would allocate the text of its error, and `malloc` may be waiting for the call that has led
        /// here.
        pub(crate) fn resolve() {
            $({
                // SAFETY: both strings end in NUL. The symbol has the type that the C library's headers give it, which is
                // the slot's.
                unsafe {
                    let f = next(concat!($real, "\0").as_ptr(), concat!($real_version, "\0").as_ptr());
                    if !f.is_null() {
                        REAL.$name.set(core::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($arg: $type),*) -> $ret,
                        >(f));
                    }
                }
            })*
        }
    };
}

interface!(tables);

/// The functions that serve the process.
pub(crate) static TABLE: Table = Table::EMPTY;

/// The next definitions after this library's: glibc's, or those of another interposer.
pub(crate) static REAL: Table = Table::EMPTY;

/// The next definition of a symbol after this library's.
///
/// # Safety
///
/// Both are strings that end in NUL.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
unsafe fn next(name: *const u8, version: *const u8) -> *mut c_void {
    // SAFETY: the caller passes two strings.
    unsafe { libc::dlvsym(libc::RTLD_NEXT, name.cast(), version.cast()) }
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
unsafe fn next(name: *const u8, _: *const u8) -> *mut c_void {
    // Version names differ between architectures. The default version is the current one.
    // SAFETY: the caller passes a string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.cast()) }
}

/// Sets slots of the table: `install!(name => function, ...)`.
macro_rules! install {
    ($($name:ident => $function:expr),* $(,)?) => {
        $($crate::state::table::TABLE.$name.set($function);)*
    };
}
pub(crate) use install;

/// Leaves functions to the next library: `pass!(name, ...)`.
macro_rules! pass {
    ($($name:ident),* $(,)?) => {
        $($crate::state::table::TABLE.$name.set($crate::state::table::REAL.$name.get());)*
    };
}
pub(crate) use pass;
