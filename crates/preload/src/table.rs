//! The exported symbols, and the table that they jump through.
//!
//! One line per function of the interface says its arguments and its symbols with their versions.
//! An exported symbol is one indirect jump, so a lock's own fast path is what a call runs. Until
//! the configuration is known each slot holds a function that finds it out and jumps again: pthread
//! calls may come before our constructor.

use crate::abi::{Cond, Mutex, RwLock};
use crate::sem::Sem;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use libc::{c_int, c_void, timespec};

/// A function pointer that is set while other threads may be calling through it.
#[repr(transparent)]
pub(crate) struct Slot<F>(AtomicPtr<()>, PhantomData<F>);

impl<F: Copy> Slot<F> {
    pub(crate) const fn new(f: F) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut ()>()) };
        // SAFETY: a slot is only made for function pointers, which have the size and validity of a pointer.
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
        // SAFETY: as in `new`.
        let f = unsafe { core::mem::transmute_copy::<F, *mut ()>(&f) };
        // (A) a thread that calls the new function sees what was prepared for it.
        self.0.store(f, Release);
    }
}

/// What a function that the C library lacks returns.
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

pub(crate) type Spin = u32;
pub(crate) type Attr = c_void;
pub(crate) type AtFork = Option<unsafe extern "C" fn()>;

macro_rules! interface {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty =
        $($symbol:ident [$($version:literal),*])*, real $real:literal $real_version:literal;)*) => {
        /// The interface, one slot per function.
        #[repr(C)]
        pub(crate) struct Table {
            $(pub $name: Slot<unsafe extern "C" fn($($arg: $type),*) -> $ret>,)*
        }

        impl Table {
            /// One that calls nothing yet.
            #[allow(clippy::declare_interior_mutable_const)]
            pub(crate) const EMPTY: Table = Table { $($name: Slot::new(missing::$name),)* };

            /// Takes over all functions of another.
            pub(crate) fn copy_from(&self, other: &Table) {
                $(self.$name.set(other.$name.get());)*
            }
        }

        /// What the exported symbols jump through.
        pub(crate) static TABLE: Table =
            Table { $($name: Slot::new(lazy::$name),)* };

        /// The next definitions after ours: glibc's, or those of another interposer.
        pub(crate) static REAL: Table = Table::EMPTY;

        mod lazy {
            use super::*;
            $(pub(super) unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                let table = if crate::config::init() { &TABLE } else { &REAL };
                // SAFETY: the caller's call, with the caller's arguments.
                unsafe { table.$name.get()($($arg),*) }
            })*
        }

        mod missing {
            use super::*;
            $(pub(super) unsafe extern "C" fn $name($(_: $type),*) -> $ret {
                <$ret as Missing>::MISSING
            })*
        }

        /// Finds the real functions. The versions asked for exist in every glibc that this library
        /// loads on: a wrong one would make `dlvsym` allocate its error text, and `malloc` may be
        /// our caller.
        pub(crate) fn resolve() {
            $({
                // SAFETY: both strings end in NUL; the symbol has the type that the C library's
                // headers give it, which is the slot's.
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

        $(
            #[cfg(versioned)]
            core::arch::global_asm!(
                concat!(".pushsection .text.latchwork_entry_", stringify!($name), ",\"ax\",@progbits"),
                concat!(".globl latchwork_entry_", stringify!($name)),
                concat!(".type latchwork_entry_", stringify!($name), ", @function"),
                ".balign 16",
                concat!("latchwork_entry_", stringify!($name), ":"),
                "jmp qword ptr [rip + {table} + {offset}]",
                concat!(".size latchwork_entry_", stringify!($name), ", . - latchwork_entry_", stringify!($name)),
                $($(concat!(".symver latchwork_entry_", stringify!($name), ", ", stringify!($symbol), $version),)*)*
                ".popsection",
                table = sym TABLE,
                offset = const core::mem::offset_of!(Table, $name),
            );
        )*

        #[cfg(not(versioned))]
        mod unversioned {
            interface!(@plain $($name ($($arg: $type),*) -> $ret = $($symbol)*;)*);
        }
    };

    (@plain $($name:ident $args:tt -> $ret:ty = $($symbol:ident)*;)*) => {
        $($(interface!(@symbol $symbol $name $args -> $ret);)*)*
    };

    (@symbol $symbol:ident $name:ident ($($arg:ident: $type:ty),*) -> $ret:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol($($arg: super::$type),*) -> $ret {
            // SAFETY: the caller's call, with the caller's arguments.
            unsafe { super::TABLE.$name.get()($($arg),*) }
        }
    };
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
unsafe fn next(name: *const u8, version: *const u8) -> *mut c_void {
    // SAFETY: from the caller.
    unsafe { libc::dlvsym(libc::RTLD_NEXT, name.cast(), version.cast()) }
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
unsafe fn next(name: *const u8, _: *const u8) -> *mut c_void {
    // Version names differ between architectures; the default version is the current one.
    // SAFETY: from the caller.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.cast()) }
}

type MutexPtr = *mut Mutex;
type RwLockPtr = *mut RwLock;
type CondPtr = *mut Cond;
type SpinPtr = *mut Spin;
type AttrPtr = *const Attr;
type Time = *const timespec;
type ClockId = libc::clockid_t;
type Handle = *mut c_void;
type Int = c_int;
type IntPtr = *mut c_int;
type SemPtr = *mut Sem;
type Value = u32;
type KeyPtr = *mut libc::pthread_key_t;
type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;
type Name = *const core::ffi::c_char;
type Namespace = isize;

interface! {
    mutex_init(m: MutexPtr, attr: AttrPtr) -> c_int =
        pthread_mutex_init ["@@GLIBC_2.2.5"] __pthread_mutex_init ["@GLIBC_2.2.5"],
        real "pthread_mutex_init" "GLIBC_2.2.5";
    mutex_destroy(m: MutexPtr) -> c_int =
        pthread_mutex_destroy ["@@GLIBC_2.2.5"] __pthread_mutex_destroy ["@GLIBC_2.2.5"],
        real "pthread_mutex_destroy" "GLIBC_2.2.5";
    // The symbols of these two, and of rwlock_rdlock and rwlock_unlock, are in `hot`.
    mutex_lock(m: MutexPtr) -> c_int =,
        real "pthread_mutex_lock" "GLIBC_2.2.5";
    mutex_trylock(m: MutexPtr) -> c_int =
        pthread_mutex_trylock ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_mutex_trylock ["@GLIBC_2.2.5"],
        real "pthread_mutex_trylock" "GLIBC_2.2.5";
    mutex_timedlock(m: MutexPtr, time: Time) -> c_int =
        pthread_mutex_timedlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
        real "pthread_mutex_timedlock" "GLIBC_2.2.5";
    mutex_clocklock(m: MutexPtr, clock: ClockId, time: Time) -> c_int =
        pthread_mutex_clocklock ["@@GLIBC_2.34", "@GLIBC_2.30"],
        real "pthread_mutex_clocklock" "GLIBC_2.30";
    mutex_unlock(m: MutexPtr) -> c_int =,
        real "pthread_mutex_unlock" "GLIBC_2.2.5";

    rwlock_init(l: RwLockPtr, attr: AttrPtr) -> c_int =
        pthread_rwlock_init ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_rwlock_init ["@GLIBC_2.2.5"],
        real "pthread_rwlock_init" "GLIBC_2.2.5";
    rwlock_destroy(l: RwLockPtr) -> c_int =
        pthread_rwlock_destroy ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_rwlock_destroy ["@GLIBC_2.2.5"],
        real "pthread_rwlock_destroy" "GLIBC_2.2.5";
    rwlock_rdlock(l: RwLockPtr) -> c_int =,
        real "pthread_rwlock_rdlock" "GLIBC_2.2.5";
    rwlock_wrlock(l: RwLockPtr) -> c_int =
        pthread_rwlock_wrlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_rwlock_wrlock ["@GLIBC_2.2.5"],
        real "pthread_rwlock_wrlock" "GLIBC_2.2.5";
    rwlock_tryrdlock(l: RwLockPtr) -> c_int =
        pthread_rwlock_tryrdlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"]
        __pthread_rwlock_tryrdlock ["@GLIBC_2.2.5"],
        real "pthread_rwlock_tryrdlock" "GLIBC_2.2.5";
    rwlock_trywrlock(l: RwLockPtr) -> c_int =
        pthread_rwlock_trywrlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"]
        __pthread_rwlock_trywrlock ["@GLIBC_2.2.5"],
        real "pthread_rwlock_trywrlock" "GLIBC_2.2.5";
    rwlock_timedrdlock(l: RwLockPtr, time: Time) -> c_int =
        pthread_rwlock_timedrdlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
        real "pthread_rwlock_timedrdlock" "GLIBC_2.2.5";
    rwlock_timedwrlock(l: RwLockPtr, time: Time) -> c_int =
        pthread_rwlock_timedwrlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
        real "pthread_rwlock_timedwrlock" "GLIBC_2.2.5";
    rwlock_clockrdlock(l: RwLockPtr, clock: ClockId, time: Time) -> c_int =
        pthread_rwlock_clockrdlock ["@@GLIBC_2.34", "@GLIBC_2.30"],
        real "pthread_rwlock_clockrdlock" "GLIBC_2.30";
    rwlock_clockwrlock(l: RwLockPtr, clock: ClockId, time: Time) -> c_int =
        pthread_rwlock_clockwrlock ["@@GLIBC_2.34", "@GLIBC_2.30"],
        real "pthread_rwlock_clockwrlock" "GLIBC_2.30";
    rwlock_unlock(l: RwLockPtr) -> c_int =,
        real "pthread_rwlock_unlock" "GLIBC_2.2.5";

    spin_init(s: SpinPtr, shared: Int) -> c_int =
        pthread_spin_init ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_init" "GLIBC_2.2.5";
    spin_destroy(s: SpinPtr) -> c_int =
        pthread_spin_destroy ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_destroy" "GLIBC_2.2.5";
    spin_lock(s: SpinPtr) -> c_int =
        pthread_spin_lock ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_lock" "GLIBC_2.2.5";
    spin_trylock(s: SpinPtr) -> c_int =
        pthread_spin_trylock ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_trylock" "GLIBC_2.2.5";
    spin_unlock(s: SpinPtr) -> c_int =
        pthread_spin_unlock ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "pthread_spin_unlock" "GLIBC_2.2.5";

    cond_init(c: CondPtr, attr: AttrPtr) -> c_int =
        pthread_cond_init ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_init" "GLIBC_2.3.2";
    cond_destroy(c: CondPtr) -> c_int =
        pthread_cond_destroy ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_destroy" "GLIBC_2.3.2";
    cond_wait(c: CondPtr, m: MutexPtr) -> c_int =
        pthread_cond_wait ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_wait" "GLIBC_2.3.2";
    cond_timedwait(c: CondPtr, m: MutexPtr, time: Time) -> c_int =
        pthread_cond_timedwait ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_timedwait" "GLIBC_2.3.2";
    cond_clockwait(c: CondPtr, m: MutexPtr, clock: ClockId, time: Time) -> c_int =
        pthread_cond_clockwait ["@@GLIBC_2.34", "@GLIBC_2.30"], real "pthread_cond_clockwait" "GLIBC_2.30";
    cond_signal(c: CondPtr) -> c_int =
        pthread_cond_signal ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_signal" "GLIBC_2.3.2";
    cond_broadcast(c: CondPtr) -> c_int =
        pthread_cond_broadcast ["@@GLIBC_2.3.2", "@GLIBC_2.2.5"], real "pthread_cond_broadcast" "GLIBC_2.3.2";

    mtx_init(m: MutexPtr, kind: Int) -> c_int =
        mtx_init ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_init" "GLIBC_2.28";
    mtx_destroy(m: MutexPtr) -> () =
        mtx_destroy ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_destroy" "GLIBC_2.28";
    mtx_lock(m: MutexPtr) -> c_int =
        mtx_lock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_lock" "GLIBC_2.28";
    mtx_trylock(m: MutexPtr) -> c_int =
        mtx_trylock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_trylock" "GLIBC_2.28";
    mtx_timedlock(m: MutexPtr, time: Time) -> c_int =
        mtx_timedlock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_timedlock" "GLIBC_2.28";
    mtx_unlock(m: MutexPtr) -> c_int =
        mtx_unlock ["@@GLIBC_2.34", "@GLIBC_2.28"], real "mtx_unlock" "GLIBC_2.28";

    cnd_init(c: CondPtr) -> c_int =
        cnd_init ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_init" "GLIBC_2.28";
    cnd_destroy(c: CondPtr) -> () =
        cnd_destroy ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_destroy" "GLIBC_2.28";
    cnd_wait(c: CondPtr, m: MutexPtr) -> c_int =
        cnd_wait ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_wait" "GLIBC_2.28";
    cnd_timedwait(c: CondPtr, m: MutexPtr, time: Time) -> c_int =
        cnd_timedwait ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_timedwait" "GLIBC_2.28";
    cnd_signal(c: CondPtr) -> c_int =
        cnd_signal ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_signal" "GLIBC_2.28";
    cnd_broadcast(c: CondPtr) -> c_int =
        cnd_broadcast ["@@GLIBC_2.34", "@GLIBC_2.28"], real "cnd_broadcast" "GLIBC_2.28";

    sem_init(s: SemPtr, shared: Int, value: Value) -> c_int =
        sem_init ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_init" "GLIBC_2.2.5";
    sem_destroy(s: SemPtr) -> c_int =
        sem_destroy ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_destroy" "GLIBC_2.2.5";
    sem_post(s: SemPtr) -> c_int =
        sem_post ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_post" "GLIBC_2.2.5";
    sem_getvalue(s: SemPtr, value: IntPtr) -> c_int =
        sem_getvalue ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_getvalue" "GLIBC_2.2.5";
    sem_wait(s: SemPtr) -> c_int =
        sem_wait ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_wait" "GLIBC_2.2.5";
    sem_trywait(s: SemPtr) -> c_int =
        sem_trywait ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_trywait" "GLIBC_2.2.5";
    sem_timedwait(s: SemPtr, time: Time) -> c_int =
        sem_timedwait ["@@GLIBC_2.34", "@GLIBC_2.2.5"], real "sem_timedwait" "GLIBC_2.2.5";
    sem_clockwait(s: SemPtr, clock: ClockId, time: Time) -> c_int =
        sem_clockwait ["@@GLIBC_2.34", "@GLIBC_2.30"], real "sem_clockwait" "GLIBC_2.30";

    // Not ours to serve: a program that needs all keys gets ours too, see `keys`.
    key_create(key: KeyPtr, destructor: Destructor) -> c_int =
        pthread_key_create ["@@GLIBC_2.34", "@GLIBC_2.2.5"] __pthread_key_create ["@@GLIBC_2.34", "@GLIBC_2.2.5"],
        real "pthread_key_create" "GLIBC_2.2.5";
    tss_create(key: KeyPtr, destructor: Destructor) -> c_int =
        tss_create ["@@GLIBC_2.34", "@GLIBC_2.28"], real "tss_create" "GLIBC_2.28";

    // The symbols of these two are in `deep`.
    dlopen(name: Name, flags: Int) -> *mut c_void =, real "dlopen" "GLIBC_2.2.5";
    dlmopen(namespace: Namespace, name: Name, flags: Int) -> *mut c_void =, real "dlmopen" "GLIBC_2.3.4";

    // Not ours to serve: whoever registers a fork handler comes after us, see `fork`.
    register_atfork(prepare: AtFork, parent: AtFork, child: AtFork, object: Handle) -> c_int =
        __register_atfork ["@@GLIBC_2.3.2"], real "__register_atfork" "GLIBC_2.3.2";
}

/// Sets slots of the table: `install!(name => function, ...)`.
macro_rules! install {
    ($($name:ident => $function:expr),* $(,)?) => {
        $($crate::table::TABLE.$name.set($function);)*
    };
}
pub(crate) use install;

/// Leaves functions to the next library: `pass!(name, ...)`.
macro_rules! pass {
    ($($name:ident),* $(,)?) => {
        $($crate::table::TABLE.$name.set($crate::table::REAL.$name.get());)*
    };
}
pub(crate) use pass;
