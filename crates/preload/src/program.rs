//! The program's own table of addresses (its GOT), through which it calls other objects' functions.

use core::ffi::{CStr, c_char, c_void};
use core::ops::Range;
use libc::Elf64_Phdr;

pub(crate) const PAGE: usize = 4096;

/// The program, as the dynamic linker has it.
pub(crate) struct Program {
    headers: &'static [Elf64_Phdr],
    /// Added to each address in the file.
    bias: usize,
    /// Its lowest address.
    pub lowest: usize,
}

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

/// A relocation.
#[repr(C)]
struct Rela {
    offset: usize,
    info: u64,
    _addend: i64,
}

impl Program {
    pub(crate) fn find() -> Option<Self> {
        // SAFETY: the kernel, or the dynamic linker, says where the program's headers are.
        let headers = unsafe {
            let headers = libc::getauxval(libc::AT_PHDR) as *const Elf64_Phdr;
            let count = libc::getauxval(libc::AT_PHNUM) as usize;
            if headers.is_null() {
                return None;
            }
            core::slice::from_raw_parts(headers, count)
        };
        let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR)?;
        let bias = headers.as_ptr().addr().wrapping_sub(own.p_vaddr as usize);
        let lowest = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| header.p_vaddr)
            .min()?;
        Some(Program { headers, bias, lowest: bias.wrapping_add(lowest as usize) & !(PAGE - 1) })
    }

    fn header(&self, kind: u32) -> Option<&Elf64_Phdr> {
        self.headers.iter().find(|header| header.p_type == kind)
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.bias.wrapping_add(offset))
    }

    /// An entry of its dynamic section.
    fn dynamic(&self, tag: usize) -> Option<usize> {
        let mut entry = self.at::<[usize; 2]>(self.header(libc::PT_DYNAMIC)?.p_vaddr as usize);
        // SAFETY: the section ends with an entry of zeros.
        unsafe {
            while (*entry)[0] != 0 {
                if (*entry)[0] == tag {
                    return Some((*entry)[1]);
                }
                entry = entry.add(1);
            }
        }
        None
    }

    /// A table that the dynamic section names. The dynamic linker may have added the bias, or not.
    fn table<T>(&self, tag: usize) -> Option<*const T> {
        let address = self.dynamic(tag)?;
        let offset = if address < self.bias { address } else { address - self.bias };
        Some(self.at::<T>(offset))
    }

    /// Lets it call `to` where it calls the function of this name, if that is `from`.
    pub(crate) fn rebind(&self, name: &CStr, from: usize, to: usize) {
        let (Some(strings), Some(symbols)) =
            (self.table::<c_char>(DT_STRTAB), self.table::<libc::Elf64_Sym>(DT_SYMTAB))
        else {
            return;
        };
        // SAFETY: looks for a symbol that exists.
        if unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr() != from {
            return;
        }
        for (table, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            let (Some(table), Some(size)) = (self.table::<Rela>(table), self.dynamic(size)) else { continue };
            // SAFETY: the program's tables, as the dynamic linker has used them.
            let relocations = unsafe { core::slice::from_raw_parts(table, size / size_of::<Rela>()) };
            for relocation in relocations {
                // SAFETY: as above.
                let is_wanted = || unsafe {
                    let symbol = &*symbols.add((relocation.info >> 32) as usize);
                    CStr::from_ptr(strings.add(symbol.st_name as usize)) == name
                };
                if matches!(relocation.info & 0xffff_ffff, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
                    && is_wanted()
                {
                    self.set(self.at(relocation.offset), to);
                }
            }
        }
    }

    /// Writes to a slot, which may be in the part that became read-only when the program had been bound.
    fn set(&self, slot: *mut usize, value: usize) {
        let pages: Range<usize> = self.header(libc::PT_GNU_RELRO).map_or(0..0, |header| {
            let start = self.bias.wrapping_add(header.p_vaddr as usize);
            start & !(PAGE - 1)..(start + header.p_memsz as usize) & !(PAGE - 1)
        });
        let protect = |protection| {
            let start = core::ptr::without_provenance_mut::<c_void>(pages.start);
            // SAFETY: pages of the program's that hold no code.
            !pages.contains(&slot.addr()) || unsafe { libc::mprotect(start, pages.len(), protection) } == 0
        };
        if protect(libc::PROT_READ | libc::PROT_WRITE) {
            // SAFETY: a slot for an address, whose users take it as it is.
            unsafe { slot.write_volatile(value) };
            protect(libc::PROT_READ);
        }
    }
}
