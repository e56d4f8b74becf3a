//! The functions of `module/shim.c`, `sleep.c`, `nodes.c`, `numbered.c` and `semaphore.c`, and the two that do not exist.

use core::ffi::c_void;

unsafe extern "C" {
    // Waiting.
    pub safe fn lw_k_relax();
    pub safe fn lw_k_may_sleep() -> bool;
    pub safe fn lw_k_yield();
    pub safe fn lw_k_doze(nanos: u64);
    pub fn lw_k_wait(word: *const u32, expected: u32, until: u64, signals: u32) -> bool;
    pub fn lw_k_wake(word: *const u32, count: u32) -> usize;
    pub fn lw_k_lose(word: *const u32) -> bool;

    // Time, threads, processors, nodes.
    pub safe fn lw_k_now() -> u64;
    pub safe fn lw_k_signals() -> u32;
    pub safe fn lw_k_thread() -> usize;
    pub safe fn lw_k_cpu() -> u32;
    pub safe fn lw_k_cpus() -> u32;
    pub safe fn lw_k_node() -> u32;
    pub safe fn lw_k_nodes() -> u32;
    pub safe fn lw_k_hops(from: u32, to: u32) -> u32;
    pub safe fn lw_k_hints(nanos: u32) -> u32;

    // Queue nodes.
    pub safe fn lw_k_take_node() -> *mut c_void;
    pub fn lw_k_return_node(node: *mut c_void);
    pub fn lw_k_take_numbered(number: *mut u32) -> *mut c_void;
    pub fn lw_k_return_numbered();
    pub fn lw_k_numbered(number: u32) -> *mut c_void;

    // The kernel's own reader-writer semaphore.
    pub fn lw_k_rwsem_init(sem: *mut c_void);
    pub fn lw_k_down_read(sem: *mut c_void);
    pub fn lw_k_down_read_trylock(sem: *mut c_void) -> bool;
    pub fn lw_k_down_read_signals(sem: *mut c_void, signals: u32) -> bool;
    pub fn lw_k_up_read(sem: *mut c_void);
    pub fn lw_k_down_write(sem: *mut c_void);
    pub fn lw_k_down_write_trylock(sem: *mut c_void) -> bool;
    pub fn lw_k_down_write_killable(sem: *mut c_void) -> bool;
    pub fn lw_k_up_write(sem: *mut c_void);
    pub fn lw_k_downgrade_write(sem: *mut c_void);
    pub fn lw_k_rwsem_is_locked(sem: *const c_void) -> bool;

    // What is wrong.
    #[cfg(feature = "builtin")]
    pub safe fn lw_k_nothing_to_release();
    #[cfg(feature = "twin")]
    pub safe fn lw_k_broken() -> u32;
    pub fn lw_k_die(line: u32) -> !;

    // Not defined anywhere: a module that needs them does not link.
    pub fn lw_k_a_lock_allocates() -> !;
    pub fn lw_k_a_lock_frees() -> !;
}
