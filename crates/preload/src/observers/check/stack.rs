//! The stacks that the detector records: one for each acquisition. A thread remembers its recent ones, so that most take neither
//! a system call nor an unwinding.

use crate::state::exit::Use;
use crate::state::kernel;
use crate::state::memory::quietly;
use crate::state::unwind::recent::Recent;
use crate::state::unwind::{self, Registers, Window};
use core::ptr::{null_mut, without_provenance_mut};
use latchwork::machine::Native;
use latchwork::machine::native::tls::thread_local_word;

/// Frames above this library that may be of interest: the detector keeps fewer, this library's among them.
const FRAMES: usize = 20;

type Stacks = Recent<FRAMES>;

thread_local_word! {
    /// Null until the thread has some; [`DENIED`] if it has none, or is using them.
    Current: *mut Stacks = "check_stacks"
}

/// A signal handler that interrupts the thread here unwinds by itself, as the thread does after its memory is gone.
const DENIED: *mut Stacks = without_provenance_mut(1);

pub(super) fn install() {
    Use::CHECK.set(exits);
}

/// Writes the calling thread's return addresses, innermost first, up to the first word that is none or cannot be read. `false`:
/// this library cannot unwind here, not even its own frames.
pub(crate) fn unwind(addresses: &mut [usize]) -> bool {
    let Some(registers) = Registers::here() else { return false };
    let mut stacks = Current::get();
    if stacks == DENIED {
        return forgetfully(&registers, addresses);
    }
    Current::set(DENIED);
    if stacks.is_null() {
        stacks = make();
    }
    if stacks.is_null() {
        Current::set(stacks);
        return forgetfully(&registers, addresses);
    }
    // SAFETY: the memory is the calling thread's until `exits`, and nothing else uses it while the thread is denied.
    let recent = unsafe { &mut *stacks };
    let known = match recent.find(&registers) {
        Some(place) => recent.at(place),
        None => recent.unwind(&registers),
    };
    let depth = known.addresses().len().min(addresses.len());
    addresses[..depth].copy_from_slice(&known.addresses()[..depth]);
    Current::set(stacks);
    depth != 0
}

/// Without what the thread remembers.
#[cold]
#[inline(never)]
fn forgetfully(registers: &Registers, addresses: &mut [usize]) -> bool {
    let (mut depth, mut window) = (0, Window::EMPTY);
    unwind::each(registers, &mut window, |_, address, _| {
        addresses[depth] = address;
        depth += 1;
        depth < addresses.len()
    });
    depth != 0
}

/// Memory for the calling thread's stacks; null: there is none. A forked child keeps that of the threads that it does not have.
#[cold]
#[inline(never)]
fn make() -> *mut Stacks {
    quietly(|| {
        if !Native::notice_exit() {
            return null_mut(); // nobody would give it back
        }
        // SAFETY: a new mapping, which replaces nothing. Zero bytes are an empty one.
        let memory = unsafe { kernel::map(null_mut(), size_of::<Stacks>(), 0, None) };
        if memory == libc::MAP_FAILED {
            return null_mut();
        }
        let stacks = memory.cast::<Stacks>();
        // SAFETY: it has the size, and nobody else knows it.
        unsafe { (*stacks).begin() };
        stacks
    })
}

thread_local_word! {
    /// How often destructors of keys have run in the calling thread, which exits.
    Rounds: u64 = "check_rounds"
}

/// How often the C library runs destructors, as long as some give their key a value again.
const ROUNDS: u64 = 4; // PTHREAD_DESTRUCTOR_ITERATIONS

/// Runs when a thread exits. Destructors that run later may make lock calls, and release what the thread holds.
fn exits() {
    let round = Rounds::get() + 1;
    Rounds::set(round);
    if latchwork_check::holds_any() && !(round < ROUNDS && Native::notice_exit()) {
        latchwork_check::ended();
    }
    let stacks = Current::get();
    if !stacks.is_null() && stacks != DENIED {
        Current::set(DENIED);
        // SAFETY: `make` mapped it for this thread.
        quietly(|| unsafe { kernel::unmap(stacks.cast(), size_of::<Stacks>()) });
    }
}
