//! The program as an ELF file: where it lies, and the table of addresses (the GOT) through which it calls functions of other
//! objects.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use libc::Elf64_Phdr;
#[cfg(versioned)]
pub(crate) use rebind::Binding;

#[cfg(versioned)]
mod rebind;

pub(crate) const PAGE: usize = 4096;

/// The program, as it is loaded.
pub(crate) struct Program {
    pub(super) headers: &'static [Elf64_Phdr],
    /// What the loader added to each address in the file.
    bias: usize,
    /// Its lowest address.
    pub lowest: usize,
    /// The end of its last segment. There may be gaps between the segments.
    pub(super) end: usize,
}

/// The program's headers. `getauxval` is asked once, before the first lock call is recorded: another preloaded library may have a
/// `getauxval` that locks a mutex, and a recorder that asks in a lock call would wait for that mutex for ever.
fn headers() -> Option<&'static [Elf64_Phdr]> {
    static HEADERS: AtomicPtr<Elf64_Phdr> = AtomicPtr::new(null_mut());
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if HEADERS.load(Acquire).is_null() {
        // SAFETY: reads the auxiliary vector.
        let [headers, count] = [libc::AT_PHDR, libc::AT_PHNUM].map(|kind| unsafe { libc::getauxval(kind) });
        COUNT.store(count as usize, Relaxed);
        HEADERS.store(core::ptr::with_exposed_provenance_mut(headers as usize), Release); // (A)
    }
    // Pairs with (A): a thread that sees where the headers are sees how many they are.
    let headers = HEADERS.load(Acquire);
    // SAFETY: the kernel, or the dynamic linker, has said where the program's headers are and how many; they stay.
    (!headers.is_null()).then(|| unsafe { core::slice::from_raw_parts(headers, COUNT.load(Relaxed)) })
}

impl Program {
    pub(crate) fn find() -> Option<Self> {
        let headers = headers()?;
        let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR)?;
        let bias = headers.as_ptr().addr().wrapping_sub(own.p_vaddr as usize);
        let segments = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let lowest = segments().map(|segment| segment.p_vaddr).min()?;
        let end = segments().map(|segment| segment.p_vaddr + segment.p_memsz).max()?;
        Some(Program {
            headers,
            bias,
            lowest: bias.wrapping_add(lowest as usize) & !(PAGE - 1),
            end: bias.wrapping_add(end as usize),
        })
    }
}
