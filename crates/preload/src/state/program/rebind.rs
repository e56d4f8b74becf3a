//! Other addresses in the table through which the program calls functions, for the copies in `startup::near`.

use super::{PAGE, Program};
use crate::state::dynamic::Dynamic;
use core::ffi::{CStr, c_void};
use libc::{Elf64_Phdr, c_int};

const PT_GNU_PROPERTY: u32 = 0x6474_e553;
const NT_GNU_PROPERTY_TYPE_0: u32 = 5;
const GNU: u32 = u32::from_le_bytes(*b"GNU\0");
const GNU_PROPERTY_X86_FEATURE_1_AND: u32 = 0xc000_0002;
const GNU_PROPERTY_X86_FEATURE_1_IBT: u32 = 1;

/// A name by which the program calls a function, the function, and the one that it is to call instead.
pub(crate) struct Binding {
    pub name: &'static CStr,
    pub from: usize,
    pub to: usize,
}

impl Binding {
    /// Whether the dynamic linker binds the name to `from`: no other library comes before ours.
    fn is_ours(&self) -> bool {
        // SAFETY: searches the loaded objects for a name.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) }.addr() == self.from
    }
}

impl Program {
    fn header(&self, kind: u32) -> Option<&Elf64_Phdr> {
        self.headers.iter().find(|header| header.p_type == kind)
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.bias.wrapping_add(offset))
    }

    /// Whether the program is built for indirect-branch tracking: its indirect jumps arrive at an `endbr64` only.
    pub(crate) fn tracks_branches(&self) -> bool {
        let Some(header) = self.header(PT_GNU_PROPERTY) else { return false };
        let note = self.at::<u32>(header.p_vaddr as usize).cast_const();
        // SAFETY: the header says where the note is and how long; it stays.
        let note = unsafe { core::slice::from_raw_parts(note, header.p_memsz as usize / 4) };
        // The note begins with the lengths of its name and of the properties, its type, and its name: "GNU" and a zero.
        let [_, length, NT_GNU_PROPERTY_TYPE_0, GNU, properties @ ..] = note else { return false };
        let mut properties = &properties[..properties.len().min(*length as usize / 4)];
        while let [kind, length, values @ ..] = properties {
            if *kind == GNU_PROPERTY_X86_FEATURE_1_AND {
                return values.first().is_some_and(|bits| bits & GNU_PROPERTY_X86_FEATURE_1_IBT != 0);
            }
            // Each property is padded to 8 bytes.
            properties = values.get(length.next_multiple_of(8) as usize / 4..).unwrap_or(&[]);
        }
        false
    }

    /// Binds each name to its new address, in one walk through the program's relocations. An error says that the table, which
    /// had been read-only, stays writable.
    pub(crate) fn rebind<const N: usize>(&self, bindings: [Option<Binding>; N]) -> Result<(), c_int> {
        // SAFETY: the headers and the bias are the program's, which stays loaded.
        let Some(dynamic) = (unsafe { Dynamic::of(self.bias, self.headers) }) else { return Ok(()) };
        let bindings = bindings.map(|binding| binding.filter(Binding::is_ours));
        if bindings.iter().all(Option::is_none) || self.protect(libc::PROT_READ | libc::PROT_WRITE).is_err() {
            return Ok(());
        }
        dynamic.each_import(|name, offset| {
            if let Some(binding) = bindings.iter().flatten().find(|binding| binding.name == name) {
                // SAFETY: the relocation says that the slot has an address, and it is writable now. The program, which reads it,
                // does not run yet.
                unsafe { self.at::<usize>(offset).write_volatile(binding.to) };
            }
        });
        self.protect(libc::PROT_READ)
    }

    /// Protects the part that the dynamic linker made read-only after binding, if there is one.
    fn protect(&self, protection: c_int) -> Result<(), c_int> {
        let pages = self.header(libc::PT_GNU_RELRO).map_or(0..0, |header| {
            let start = self.bias.wrapping_add(header.p_vaddr as usize);
            start & !(PAGE - 1)..(start + header.p_memsz as usize) & !(PAGE - 1)
        });
        let start = core::ptr::without_provenance_mut::<c_void>(pages.start);
        // SAFETY: these pages of the program contain no code, and they stay readable.
        unsafe {
            if pages.is_empty() || libc::mprotect(start, pages.len(), protection) == 0 {
                return Ok(());
            }
            Err(*libc::__errno_location())
        }
    }
}
