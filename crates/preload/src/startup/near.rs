//! Copies of the fast paths of [`hot`](super::hot), and of the readers of `bravo-2d-glibc`, at an address near the program's.
//!
//! A call and its return take longer than their instructions where caller and callee are far apart: on a Zen 4, 2.0 ns
//! together between a position-independent program at 0x55... and libraries at 0x7f..., and 1.2 ns within an aligned
//! 64 GiB. Of an uncontended lock and unlock with one atomic instruction that is half.
//!
//! So [`install`] copies the usual case of each function, some 15 instructions, to a page below the program, and points the
//! program's own table of addresses there. In any other case the copy jumps to the function in `hot`. Where this is not
//! possible, or of no use, nothing changes. (Other libraries are near ours anyway.)
//!
//! The copied code must not refer to anything by its distance. No compiler promises that, so the code is assembly. It has
//! no protocol of its own: each instruction that touches a lock corresponds to a line in the functions that `hot` inlines,
//! and a comment beside it names that line. It never moves the stack pointer: [`unwind`] relies on that.
//!
//! Where fences are not light, a reader's plain store without a fence would be wrong, and nothing is copied.

use super::hot::{
    Recommended, RecommendedRwLock, latchwork_hot_lock, latchwork_hot_rdlock, latchwork_hot_rwlock_unlock,
    latchwork_hot_unlock,
};
use super::unwind::{self, Description};
use crate::families::rwlock::holds;
use crate::families::rwlock::over_glibc::{self, OverGlibc};
use crate::state::abi::{MUTEX_SPACE, Mutex, RWLOCK_SPACE, RwLock};
use crate::state::generation::{
    Expected, MUTEX_WORD_IF_RECOMMENDED, RWLOCK_WORD_IF_OVER_GLIBC, RWLOCK_WORD_IF_RECOMMENDED,
};
use crate::state::kernel;
use crate::state::line::Line;
use crate::state::place::is_in_place;
use crate::state::program::{Binding, PAGE, Program};
use crate::state::stderr;
use core::ffi::{c_char, c_void};
use core::fmt::Write;
use core::mem::{offset_of, size_of};
use latchwork::locks::for_assembly::{BiasedRwLock, CompareMutex};
use latchwork::machine::native::tls::reader_row_offset;
use latchwork::machine::{Native, ReaderRow};
use libc::c_int;

type Lock = unsafe extern "C" fn(*mut Mutex) -> c_int;
type RwLockFn = unsafe extern "C" fn(*mut RwLock) -> c_int;

/// The first bytes of the copy: what it needs of the rest of the library.
#[repr(C)]
struct Far {
    /// The word of a mutex, and of a rwlock, that the copy may serve.
    mutex: &'static Expected,
    rwlock: &'static Expected,
    /// glibc's word: not 0 while there has never been a second thread.
    single: *const c_char,
    lock: Lock,
    unlock: Lock,
    rdlock: RwLockFn,
    rwlock_unlock: RwLockFn,
    /// The word of a rwlock that is BRAVO over glibc's, and the functions of such rwlocks.
    over_glibc: &'static Expected,
    glibc_rdlock: RwLockFn,
    glibc_unlock: RwLockFn,
    /// Distances from the thread pointer: of the words of [`holds`], and of the word with the thread's row of slots.
    holds: isize,
    row: isize,
}

core::arch::global_asm!(
    // Jumps to 2, unless the object's word is the expected one.
    ".macro latchwork_near_serves wanted, word",
    "mov rax, [rip + latchwork_near + \\wanted]",
    "mov ecx, [rdi + \\word]",
    "cmp ecx, [rax]",
    "jne 2f",
    ".endm",
    // Jumps to 2 if the thread's list of read locks has an entry.
    ".macro latchwork_near_unlisted",
    "mov rax, [rip + latchwork_near + {holds}]",
    "cmp qword ptr fs:[rax + {any}], 0",
    "jne 2f",
    ".endm",
    // Loads the thread's row into rdx. Jumps to 2 if the thread has none.
    ".macro latchwork_near_row",
    "mov rax, [rip + latchwork_near + {row}]",
    "mov rdx, fs:[rax]",
    "test rdx, rdx",
    "je 2f",
    ".endm",
    // Owned::publish, RawBravo::try_read_weak: reads through the row's slot, or jumps to the function `slow`.
    ".macro latchwork_near_read bias, slow",
    "cmp rdi, [rdx + {unbiased}]",
    "je 2f",
    "cmp qword ptr [rdx + {slots}], 0",
    "jne 2f",
    "mov [rdx + {slots}], rdi", // Owned::fill; (B) there
    "xor eax, eax",
    "cmp dword ptr [rdi + \\bias], {biased}", // (A) in RawBravo::read_fast
    "jne 3f",
    "ret",
    "3: mov [rdx + {slots}], rax",
    "2: jmp [rip + latchwork_near + \\slow]",
    ".endm",
    // RawBravo::unlock_read: empties the row's slot, or jumps to the function `slow`.
    ".macro latchwork_near_unread slow",
    "cmp rdi, [rdx + {slots}]",
    "jne 2f",
    "xor eax, eax",
    "mov [rdx + {slots}], rax",
    "ret",
    "2: jmp [rip + latchwork_near + \\slow]",
    ".endm",
    // Stands before each function. A program that is built for indirect-branch tracking jumps to the `endbr64`.
    ".macro latchwork_near_entry",
    ".balign 64",
    ".skip 60, 0xcc",
    "endbr64",
    ".endm",
    ".pushsection .text.latchwork_near,\"ax\",@progbits",
    ".balign 64",
    "latchwork_near:",
    ".zero {far}",
    // RawShfl::try_lock
    "latchwork_near_entry",
    "latchwork_near_lock:",
    "latchwork_near_serves {mutex}, {kind}",
    "mov esi, {locked}",
    "xor eax, eax",
    "mov rdx, [rip + latchwork_near + {single}]",
    "cmp byte ptr [rdx], 0",
    "jne 3f",
    "lock cmpxchg [rdi + {word}], esi", // Machine::acquire_zero
    "jne 2f",
    "ret",
    "3: cmp [rdi + {word}], eax",
    "jne 2f",
    "mov [rdi + {word}], esi",
    "ret",
    "2: jmp [rip + latchwork_near + {lock}]",
    // RawShfl::unlock
    "latchwork_near_entry",
    "latchwork_near_unlock:",
    "latchwork_near_serves {mutex}, {kind}",
    "xor eax, eax",
    "cmp [rdi + {queue}], rax", // Machine::release_if
    "jne 2f",
    "mov [rdi + {word}], eax",
    "ret",
    "2: jmp [rip + latchwork_near + {unlock}]",
    "latchwork_near_entry",
    "latchwork_near_rdlock:",
    "latchwork_near_serves {rwlock}, {flags}",
    "latchwork_near_unlisted",
    "latchwork_near_row",
    "latchwork_near_read {bias}, {rdlock}",
    // Owned::own
    "latchwork_near_entry",
    "latchwork_near_rwlock_unlock:",
    "latchwork_near_serves {rwlock}, {flags}",
    "cmp qword ptr [rdi + {owner}], 0",
    "jne 2f",
    "latchwork_near_unlisted",
    "latchwork_near_row",
    "latchwork_near_unread {rwlock_unlock}",
    // over_glibc::rdlock: the same without the list, which has no reader with a row
    "latchwork_near_entry",
    "latchwork_near_glibc_rdlock:",
    "latchwork_near_serves {over_glibc}, {glibc_flags}",
    "latchwork_near_row",
    "latchwork_near_read {glibc_bias}, {glibc_rdlock}",
    // over_glibc::unlock
    "latchwork_near_entry",
    "latchwork_near_glibc_unlock:",
    "cmp dword ptr [rdi + {glibc_bias}], {biased}",
    "jne 2f",
    "latchwork_near_row",
    "latchwork_near_unread {glibc_unlock}",
    "latchwork_near_end:",
    ".popsection",
    far = const size_of::<Far>(),
    mutex = const offset_of!(Far, mutex),
    rwlock = const offset_of!(Far, rwlock),
    single = const offset_of!(Far, single),
    lock = const offset_of!(Far, lock),
    unlock = const offset_of!(Far, unlock),
    rdlock = const offset_of!(Far, rdlock),
    rwlock_unlock = const offset_of!(Far, rwlock_unlock),
    over_glibc = const offset_of!(Far, over_glibc),
    glibc_rdlock = const offset_of!(Far, glibc_rdlock),
    glibc_unlock = const offset_of!(Far, glibc_unlock),
    glibc_flags = const over_glibc::FLAGS,
    glibc_bias = const OverGlibc::BIAS,
    holds = const offset_of!(Far, holds),
    row = const offset_of!(Far, row),
    kind = const offset_of!(Mutex, kind),
    word = const offset_of!(Mutex, raw) + Recommended::WORD,
    locked = const Recommended::LOCKED,
    queue = const offset_of!(Mutex, raw) + Recommended::QUEUE,
    flags = const offset_of!(RwLock, flags),
    owner = const offset_of!(RwLock, owner),
    bias = const offset_of!(RwLock, raw) + RecommendedRwLock::BIAS,
    biased = const RecommendedRwLock::BIASED,
    any = const holds::ANY,
    unbiased = const offset_of!(ReaderRow<Native>, unbiased),
    slots = const offset_of!(ReaderRow<Native>, slots),
);

unsafe extern "C" {
    static latchwork_near: [u8; 0];
    static latchwork_near_lock: [u8; 0];
    static latchwork_near_unlock: [u8; 0];
    static latchwork_near_rdlock: [u8; 0];
    static latchwork_near_rwlock_unlock: [u8; 0];
    static latchwork_near_glibc_rdlock: [u8; 0];
    static latchwork_near_glibc_unlock: [u8; 0];
    static latchwork_near_end: [u8; 0];
    static __libc_single_threaded: c_char;
}

/// Bytes of the instruction `endbr64`, before each function.
const TRACKED_ENTRY: usize = 4;

/// Binary logarithm of the size in bytes of the aligned regions within which calls are cheap (measured: see above).
const REGION: u32 = 36;
/// Distance, in bytes, between the program and the first place that is tried for the page, and between two such places. The
/// program's own sections and their guard pages are nearer.
const DISTANCE: usize = 16 * PAGE;

/// Lets the program call copies near itself. The constructor calls this once: the dynamic linker has bound the program, and
/// the program does not run yet.
pub(super) fn install() {
    if const { !is_in_place::<Recommended, MUTEX_SPACE>() || !is_in_place::<RecommendedRwLock, RWLOCK_SPACE>() }
    {
        return;
    }
    let (lock, unlock): (Lock, Lock) = (latchwork_hot_lock, latchwork_hot_unlock);
    let (rdlock, rwlock_unlock): (RwLockFn, RwLockFn) = (latchwork_hot_rdlock, latchwork_hot_rwlock_unlock);
    let Some(program) = Program::find() else { return };
    let apart = |address: usize| (address ^ program.lowest) >> REGION != 0;
    if !apart(lock as usize) || !Native::has_light_fences() {
        return;
    }
    let far = Far {
        mutex: &MUTEX_WORD_IF_RECOMMENDED,
        rwlock: &RWLOCK_WORD_IF_RECOMMENDED,
        single: &raw const __libc_single_threaded,
        lock,
        unlock,
        rdlock,
        rwlock_unlock,
        over_glibc: &RWLOCK_WORD_IF_OVER_GLIBC,
        glibc_rdlock: over_glibc::rdlock::<OverGlibc>,
        glibc_unlock: over_glibc::unlock::<OverGlibc>,
        holds: holds::Words::offset(),
        row: reader_row_offset(),
    };
    let places = (1..=16).map(|step| program.lowest.wrapping_sub(step * DISTANCE));
    let Some(page) = places.take_while(|address| !apart(*address)).find_map(page_at) else { return };
    let block = (&raw const latchwork_near).cast::<u8>();
    let offset = |symbol: *const [u8; 0]| symbol.addr() - block.addr();
    let size = offset(&raw const latchwork_near_end);
    let described = size.next_multiple_of(align_of::<Description>());
    assert!(described + size_of::<Description>() <= PAGE);
    // SAFETY: no other code uses the new page. It has room for the block, which begins with a `Far`, and the description.
    let description = unsafe {
        page.copy_from_nonoverlapping(block, size);
        page.cast::<Far>().write(far);
        let description = page.byte_add(described).cast::<Description>();
        description.write(Description::new(page.addr(), size));
        if libc::mprotect(page.cast(), PAGE, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            kernel::unmap(page.cast(), PAGE);
            return;
        }
        // Names the page in /proc/PID/maps, if the kernel can do that.
        libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, page, PAGE, c"latchwork near".as_ptr());
        &*description
    };
    unwind::describe(description);
    let entry = if program.tracks_branches() { TRACKED_ENTRY } else { 0 };
    let copy = |serves: bool, name, from, symbol| {
        serves.then(|| Binding { name, from, to: page.addr() + offset(symbol) - entry })
    };
    let (mutex, rwlock) = (MUTEX_WORD_IF_RECOMMENDED.exists(), RWLOCK_WORD_IF_RECOMMENDED.exists());
    let over_glibc = RWLOCK_WORD_IF_OVER_GLIBC.exists();
    let protected = program.rebind([
        copy(mutex, c"pthread_mutex_lock", lock as usize, &raw const latchwork_near_lock),
        copy(mutex, c"pthread_mutex_unlock", unlock as usize, &raw const latchwork_near_unlock),
        copy(rwlock, c"pthread_rwlock_rdlock", rdlock as usize, &raw const latchwork_near_rdlock),
        copy(
            rwlock,
            c"pthread_rwlock_unlock",
            rwlock_unlock as usize,
            &raw const latchwork_near_rwlock_unlock,
        ),
        copy(over_glibc, c"pthread_rwlock_rdlock", rdlock as usize, &raw const latchwork_near_glibc_rdlock),
        copy(
            over_glibc,
            c"pthread_rwlock_unlock",
            rwlock_unlock as usize,
            &raw const latchwork_near_glibc_unlock,
        ),
    ]);
    if let Err(error) = protected {
        let mut line = Line::new();
        // SAFETY: `getpid` takes nothing and always succeeds.
        let pid = unsafe { libc::getpid() };
        let _ = writeln!(
            line,
            "latchwork[{pid}]: warning: the program's table of function addresses stays writable: mprotect failed \
             with error {error}; LATCHWORK_NEAR=0 leaves the table alone"
        );
        stderr::write(line.as_bytes());
    }
}

/// Maps a page at this address, if the address is free.
fn page_at(address: usize) -> Option<*mut u8> {
    let hint = core::ptr::without_provenance_mut::<c_void>(address);
    // SAFETY: the flag forbids the kernel to replace a mapping. A kernel that does not know the flag takes the address for a
    // hint; a page that it maps elsewhere is given back.
    unsafe {
        let page = kernel::map(hint, PAGE, libc::MAP_FIXED_NOREPLACE, None);
        if page == libc::MAP_FAILED {
            return None;
        }
        if page != hint {
            kernel::unmap(page, PAGE);
            return None;
        }
        Some(page.cast())
    }
}
