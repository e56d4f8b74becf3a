//! The dynamic section of a loaded object: which functions it has, and which functions of other objects it calls.

use core::ffi::{CStr, c_char, c_void};
use libc::{Elf64_Phdr, Elf64_Sym, c_int};

const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_SONAME: usize = 14;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;

/// The bit in a symbol's version that says: not the default one.
const HIDDEN: u16 = 1 << 15;

/// The dynamic section of a loaded object.
pub(crate) struct Dynamic {
    bias: usize,
    entries: *const [usize; 2],
}

impl Dynamic {
    /// Of the object that has these program headers.
    ///
    /// # Safety
    ///
    /// The headers are those of a loaded object, which stays loaded, and `bias` is what the loader added to each address in its file.
    pub(crate) unsafe fn of(bias: usize, headers: &[Elf64_Phdr]) -> Option<Self> {
        let header = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let entries = core::ptr::with_exposed_provenance(bias.wrapping_add(header.p_vaddr as usize));
        Some(Dynamic { bias, entries })
    }

    fn entry(&self, tag: usize) -> Option<usize> {
        let mut entry = self.entries;
        // SAFETY: the section stays, and ends with an entry of zeros.
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

    /// A table that the section names. The dynamic linker may or may not have added the bias to its address.
    fn table<T>(&self, tag: usize) -> Option<*const T> {
        let address = self.entry(tag)?;
        let address = if address < self.bias { address + self.bias } else { address };
        Some(core::ptr::with_exposed_provenance(address))
    }

    /// The address of the object's function with this name, in its default version. It is found in the object's own tables, so
    /// that no function of the same name in another object comes before it.
    pub(crate) fn function(&self, name: &CStr) -> Option<*const c_void> {
        let symbols = self.table::<Elf64_Sym>(DT_SYMTAB)?;
        let strings = self.table::<c_char>(DT_STRTAB)?;
        let versions = self.table::<u16>(DT_VERSYM);
        let address = |index: u32| {
            // SAFETY: the index is from the object's hash table, so a symbol and its version are there. The symbol's name lies
            // in the object's strings.
            unsafe {
                let symbol = &*symbols.add(index as usize);
                let hidden = versions.is_some_and(|versions| *versions.add(index as usize) & HIDDEN != 0);
                let defined = symbol.st_shndx != 0 && symbol.st_info & 0xf == STT_FUNC;
                let found =
                    defined && !hidden && CStr::from_ptr(strings.add(symbol.st_name as usize)) == name;
                found.then(|| {
                    core::ptr::with_exposed_provenance(self.bias.wrapping_add(symbol.st_value as usize))
                })
            }
        };
        // SAFETY: the section says where the table is; it stays.
        unsafe {
            match self.table::<u32>(DT_GNU_HASH) {
                Some(table) => find_by_gnu_hash(table, name, address),
                None => find_by_hash(self.table(DT_HASH)?, address),
            }
        }
    }

    /// The name by which other objects ask for this one.
    fn soname(&self) -> Option<&CStr> {
        let strings = self.table::<c_char>(DT_STRTAB)?;
        // SAFETY: the entry says where in the object's strings the name is; they stay.
        Some(unsafe { CStr::from_ptr(strings.add(self.entry(DT_SONAME)?)) })
    }
}

const STT_FUNC: u8 = 2;

/// Calls `look` with the index of each symbol that may have this name, until it answers.
///
/// # Safety
///
/// `table` is an object's table `DT_GNU_HASH`, which stays.
unsafe fn find_by_gnu_hash<T>(table: *const u32, name: &CStr, look: impl Fn(u32) -> Option<T>) -> Option<T> {
    let hash = name
        .to_bytes()
        .iter()
        .fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
    // SAFETY: the table begins with the number of buckets, the first symbol that is in it, and the number of words of a filter
    // of 64 bits each. The filter, the buckets and the hashes of the symbols follow. The lowest bit ends a bucket.
    unsafe {
        let (buckets, first, filter) = (*table, *table.add(1), *table.add(2));
        if buckets == 0 {
            return None;
        }
        let bucket = table.add(4 + 2 * filter as usize);
        let hashes = bucket.add(buckets as usize);
        let mut index = *bucket.add((hash % buckets) as usize);
        if index < first {
            return None;
        }
        loop {
            let found = *hashes.add((index - first) as usize);
            if (found | 1) == (hash | 1)
                && let Some(answer) = look(index)
            {
                return Some(answer);
            }
            if found & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }
}

/// The same with the older table, all symbols of which are looked at: the kernel's own object has a dozen.
///
/// # Safety
///
/// `table` is an object's table `DT_HASH`, which stays.
unsafe fn find_by_hash<T>(table: *const u32, look: impl Fn(u32) -> Option<T>) -> Option<T> {
    // SAFETY: the second word is the number of symbols.
    let symbols = unsafe { *table.add(1) };
    (0..symbols).find_map(look)
}

/// Calls `look` for each loaded object, none of which is unloaded meanwhile.
pub(crate) fn each_object(mut look: &mut dyn FnMut(&libc::dl_phdr_info)) {
    type Look<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info);
    unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _size: usize, look: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes the description of an object, and the pointer from the call below.
        unsafe { (*look.cast::<Look>())(&*info) };
        0
    }
    // SAFETY: `one` takes the pointer for what it is, and `look` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut look).cast()) };
}

/// The dynamic section of an object that the dynamic linker describes.
pub(crate) fn of_object(object: &libc::dl_phdr_info) -> Option<Dynamic> {
    // SAFETY: the dynamic linker describes an object, which stays loaded during the call.
    unsafe {
        let headers = core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        Dynamic::of(object.dlpi_addr as usize, headers)
    }
}

/// The C library's own function with this name, whatever other libraries come before it.
pub(crate) fn of_c_library(name: &CStr) -> Option<*const c_void> {
    let mut function = None;
    each_object(&mut |object| {
        let is_c_library =
            |dynamic: &Dynamic| dynamic.soname().is_some_and(|name| name.to_bytes().starts_with(b"libc.so."));
        if function.is_none()
            && let Some(dynamic) = of_object(object).filter(is_c_library)
        {
            function = dynamic.function(name);
        }
    });
    function
}

/// Which functions of other objects an object calls.
#[cfg(versioned)]
mod imports {
    use super::*;

    const DT_PLTRELSZ: usize = 2;
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

    impl Dynamic {
        /// Calls `found` for each slot into which the dynamic linker writes an address: with the name of the function or
        /// variable there, and the slot's offset from the bias.
        pub(crate) fn each_import(&self, mut found: impl FnMut(&CStr, usize)) {
            let (Some(strings), Some(symbols)) =
                (self.table::<c_char>(DT_STRTAB), self.table::<Elf64_Sym>(DT_SYMTAB))
            else {
                return;
            };
            for (table, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
                let (Some(table), Some(size)) = (self.table::<Rela>(table), self.entry(size)) else {
                    continue;
                };
                // SAFETY: the section says where the table is and how many bytes it has; it stays.
                let relocations = unsafe { core::slice::from_raw_parts(table, size / size_of::<Rela>()) };
                for relocation in relocations {
                    if matches!(relocation.info & 0xffff_ffff, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                        // SAFETY: a relocation's symbol lies in the object's table of symbols, and the symbol's name in its
                        // strings.
                        let name = unsafe {
                            let symbol = &*symbols.add((relocation.info >> 32) as usize);
                            CStr::from_ptr(strings.add(symbol.st_name as usize))
                        };
                        found(name, relocation.offset);
                    }
                }
            }
        }
    }
}
