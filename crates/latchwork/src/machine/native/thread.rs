//! Which thread the caller is, and on which processor and NUMA node it runs.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether the process has never had a second thread. glibc keeps this for its own locks.
#[cfg(target_env = "gnu")]
#[inline(always)]
pub(super) fn is_single() -> bool {
    unsafe extern "C" {
        static __libc_single_threaded: u8;
    }
    // SAFETY: glibc 2.32 or later exports the byte, and writes it only while the process has one thread.
    unsafe { (&raw const __libc_single_threaded).read_volatile() != 0 }
}

#[cfg(not(target_env = "gnu"))]
#[inline(always)]
pub(super) fn is_single() -> bool {
    false
}

/// The address of the thread control block: unique among live threads, one load.
#[inline(always)]
pub(super) fn id() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let tcb: usize;
        // SAFETY: the x86-64 TLS ABI keeps the control block's own address at offset 0 of `fs`.
        unsafe {
            core::arch::asm!("mov {}, fs:[0]", out(reg) tcb, options(nostack, preserves_flags, pure, readonly));
        }
        tcb
    }
    #[cfg(target_arch = "aarch64")]
    {
        let pointer: usize;
        // SAFETY: reads the register that the ABI keeps a thread's pointer in, which lies in its control block.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags, pure));
        }
        pointer
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        // SAFETY: the call takes no arguments and always succeeds.
        (unsafe { libc::pthread_self() }) as usize
    }
}

unsafe extern "C" {
    fn getcpu(cpu: *mut u32, node: *mut u32) -> i32;
}

/// The NUMA node of the calling thread, right now (vDSO, no system call).
pub(super) fn numa_node() -> u32 {
    let (mut cpu, mut node) = (0, 0);
    // SAFETY: both pointers are to local variables.
    unsafe { getcpu(&mut cpu, &mut node) };
    node
}

/// The processor of the calling thread, right now. With glibc 2.35 and later, the kernel keeps the number in the thread's
/// own memory (rseq), so this is a load.
#[inline]
pub(super) fn cpu() -> u32 {
    // SAFETY: the call takes no arguments. It fails only on a kernel without it.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Whether the process has a single processor: one on which the kernel lets the calling thread run, and on which all threads ran that
/// have asked in this second. (A program may bind each of its threads to another processor.) The answer is kept for a second at
/// most, because a process may be given other processors at any time.
pub(super) fn has_one_processor() -> bool {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    is_only_processor(&KNOWN)
}

/// In `known` the number of the processor that the process has, from 1, or [`SEVERAL`]. In the upper half the second of the answer.
fn is_only_processor(known: &AtomicU64) -> bool {
    const SEVERAL: u32 = 0;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writes. The clock exists since Linux 2.6.32, and reading it is no system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    let (second, mine) = (now.tv_sec as u32, cpu() + 1);
    // Relaxed: it publishes nothing. An answer that two threads overwrite for each other is one more question.
    let before = known.load(Ordering::Relaxed);
    let (asked, only) = ((before >> 32) as u32, before as u32);
    if asked == second && (only == SEVERAL || only == mine) {
        return only == mine;
    }
    let only = if asked != second && is_bound() { mine } else { SEVERAL };
    known.store(u64::from(second) << 32 | u64::from(only), Ordering::Relaxed);
    only == mine
}

/// Whether the kernel lets the calling thread run on one processor only. `false` if it does not say.
fn is_bound() -> bool {
    let mut allowed = [0u64; 16];
    // SAFETY: the buffer is valid for writes, and `errno` is always valid. The call fails where the kernel has more processors than
    // the buffer has bits.
    let length = unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let length =
            libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&allowed), allowed.as_mut_ptr());
        *errno = saved;
        length
    };
    length > 0 && allowed.iter().map(|word| word.count_ones()).sum::<u32>() == 1
}

/// Whether the kernel prefers the calling thread to threads that have slept longer. Where a filter refuses the question, it may.
/// (glibc's function remembers the policy, and misses a change from outside; musl's always fails.)
pub(super) fn is_real_time() -> bool {
    // SAFETY: no memory is passed, and `errno` is always valid.
    let policy = unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let policy = libc::syscall(libc::SYS_sched_getscheduler, 0) as i32;
        *errno = saved;
        policy
    };
    !matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE)
}

/// How many NUMA nodes the machine has, read once from the kernel.
pub(super) fn numa_nodes() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    once(&COUNT, c"/sys/devices/system/node/online", 1)
}

/// How many processors the machine can have, including those that may be plugged in later, so that the number stays the
/// same; read once from the kernel. 64 if the kernel does not say.
#[inline]
pub(super) fn cpus() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    once(&COUNT, c"/sys/devices/system/cpu/possible", 64)
}

#[inline]
fn once(count: &AtomicU32, path: &CStr, unknown: u32) -> u32 {
    match count.load(Ordering::Relaxed) {
        0 => read_count(count, path, unknown),
        count => count,
    }
}

/// One more than the highest number in a list such as `0` or `0-1,3`. Uses raw system calls, because a lock call must not
/// allocate. The first thread that stores the number decides for all.
#[cold]
fn read_count(count: &AtomicU32, path: &CStr, unknown: u32) -> u32 {
    let mut text = [0u8; 64];
    let list = read_file(path, &mut text);
    let read = if list.is_empty() { unknown } else { highest_number(list) + 1 };
    match count.compare_exchange(0, read, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => read,
        Err(first) => first,
    }
}

/// The beginning of a file; empty if the file cannot be read.
pub(super) fn read_file<'a>(path: &CStr, text: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: the path is a C string, and the buffer is valid for its length. `errno` is restored: lock calls must not
    // change it. `open` and the others would be cancellation points, which lock calls are not, either.
    let length = unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        let length =
            if file >= 0 { libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len()) } else { 0 };
        if file >= 0 {
            libc::syscall(libc::SYS_close, file);
        }
        *errno = saved;
        usize::try_from(length).unwrap_or(0)
    };
    &text[..length]
}

fn highest_number(list: &[u8]) -> u32 {
    let number =
        |digits: &[u8]| digits.iter().fold(0, |n: u32, d| n.saturating_mul(10) + u32::from(d - b'0'));
    let last = list.split(|b| !b.is_ascii_digit()).rfind(|digits| !digits.is_empty());
    last.map_or(0, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On the processor that the calling thread has been bound to, and on another one.
    #[test]
    fn a_bound_thread_has_one_processor_until_another_one_asks_elsewhere() {
        // SAFETY: the sets are valid for the calls, and all-zero bytes are an empty set. Only this thread of the test is bound.
        let bind = |cpu: usize| unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
        };
        let ask = |known: &AtomicU64| {
            std::thread::scope(|scope| {
                let bound_to = |cpu| move || bind(cpu).then(|| is_only_processor(known));
                [0, 1, 0].map(|cpu| scope.spawn(bound_to(cpu)).join().unwrap())
            })
        };
        // A second may begin between two questions.
        let answers = (0..5).map(|_| ask(&AtomicU64::new(0)));
        let expected = [Some(true), Some(false), Some(false)];
        assert!(answers.into_iter().any(|answers| answers == expected || answers.contains(&None)));
        let unbound = std::thread::available_parallelism().unwrap().get() > 1;
        assert!(!unbound || !is_only_processor(&AtomicU64::new(0)));
    }

    #[test]
    fn node_lists() {
        for (list, highest) in [("", 0), ("0\n", 0), ("0-1\n", 1), ("0-3,8-11\n", 11)] {
            assert_eq!(highest_number(list.as_bytes()), highest);
        }
        assert!(numa_nodes() > numa_node());
        assert!(cpu() < cpus() && cpus() <= 1 << 16);
        let count = AtomicU32::new(0);
        assert_eq!([0; 2].map(|_| once(&count, c"/no/such/file", 3)), [3, 3]);
    }
}
