//! Which file an address belongs to.
//!
//! The dynamic linker answers without taking a lock (`_dl_find_object`, glibc 2.35 and later). Under older C libraries there is
//! no answer. Then there are no stacks, and no lock counts as static.
//!
//! There may be gaps between the segments of the program (`-z max-page-size` and `-z separate-code` make them). Then the dynamic
//! linker's answer has the bounds of one segment, and [`of`] puts those of the whole program in their place. The gaps of a
//! library belong to its mapping, and the answer is about the whole library.

use crate::state::program::Program;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// glibc's `struct dl_find_object`.
#[repr(C)]
pub(crate) struct Object {
    flags: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
    link_map: *const LinkMap,
    /// The section `.eh_frame_hdr`; null: the module has none.
    pub(super) eh_frame_header: *const u8,
    reserved: [u64; 7],
}

impl Object {
    /// The module, for an answer that may have the bounds of one segment of the program.
    pub(crate) fn whole(mut self) -> Self {
        if self.is_program() {
            self.start = self.start.min(PROGRAM[0].load(Relaxed));
            self.end = self.end.max(PROGRAM[1].load(Relaxed));
        }
        self
    }

    fn is_program(&self) -> bool {
        self.start < PROGRAM[1].load(Relaxed) && PROGRAM[0].load(Relaxed) < self.end
    }

    /// What the dynamic linker added to each address in the module's file.
    ///
    /// # Safety
    ///
    /// The module stays loaded meanwhile.
    pub(crate) unsafe fn bias(&self) -> usize {
        // SAFETY: the dynamic linker's record of a module that is loaded.
        unsafe { self.link_map.as_ref() }.map_or(0, |map| map.bias)
    }

    /// The path of the module's file; empty for the program itself.
    ///
    /// # Safety
    ///
    /// The module stays loaded while the result is used.
    pub(crate) unsafe fn name<'a>(&self) -> &'a [u8] {
        // SAFETY: the dynamic linker's record of a module that is loaded; its strings end in NUL.
        unsafe {
            match self.link_map.as_ref() {
                Some(map) if !map.name.is_null() => CStr::from_ptr(map.name).to_bytes(),
                _ => b"",
            }
        }
    }
}

/// The public part of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
}

type Find = unsafe extern "C" fn(*const c_void, *mut Object) -> i32;

/// The address of the function; 0: the C library does not have it. Even a weak reference would name the version of glibc that
/// the library was linked with, and older dynamic linkers would refuse to load the library.
static FIND: AtomicUsize = AtomicUsize::new(0);

/// Where the program lies, with the gaps between its segments: the first address, and the first one behind it. Both are 0 if
/// there are no program headers.
static PROGRAM: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Where the heap begins that grows with the program's break (`brk`): at the end of it when this was prepared.
static HEAP: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Whether this is an address of the heap that grows with the program's break, in which no module can lie. Most locks that a program's
/// first thread makes on the heap are there, and the dynamic linker takes three times as many instructions to say so.
#[inline(always)]
pub(crate) fn is_in_heap(address: usize) -> bool {
    address >= HEAP.load(Relaxed) && address < program_break()
}

fn program_break() -> usize {
    // SAFETY: an increment of 0 changes nothing.
    unsafe { libc::sbrk(0) }.addr()
}

/// Looks for the function and for the program, once, while the process starts. Before that there is no answer.
pub(crate) fn prepare() {
    if cfg!(target_env = "gnu") {
        // SAFETY: a terminated string.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        FIND.store(function.expose_provenance(), Relaxed);
        HEAP.store(program_break(), Relaxed);
        if let Some(program) = Program::find() {
            PROGRAM[0].store(program.lowest, Relaxed);
            PROGRAM[1].store(program.end, Relaxed);
        }
    }
}

fn find_object() -> Option<Find> {
    let function = core::ptr::with_exposed_provenance::<c_void>(FIND.load(Relaxed));
    // SAFETY: the function has this type in glibc's headers; `None` is represented by 0.
    unsafe { core::mem::transmute::<*const c_void, Option<Find>>(function) }
}

/// The module that has this address in its mapping.
pub(crate) fn of(address: usize) -> Option<Object> {
    find(address).map(Object::whole)
}

/// The dynamic linker's answer. If the address lies in a program with gaps between its segments, the bounds are those of the
/// segment that has the address.
pub(crate) fn find(address: usize) -> Option<Object> {
    let find = find_object()?;
    let mut object = core::mem::MaybeUninit::<Object>::zeroed();
    // SAFETY: there is room for the answer, which is complete if the function returns 0.
    unsafe {
        (find(core::ptr::without_provenance(address), object.as_mut_ptr()) == 0).then(|| object.assume_init())
    }
}

/// The build id of a module: its first 32 bytes, if it has more.
///
/// # Safety
///
/// The module is loaded.
pub(crate) unsafe fn build_id(module: &Object, bias: usize) -> Option<&'static [u8]> {
    const GNU_BUILD_ID: u32 = 3;
    // SAFETY: the caller's module is loaded.
    let headers = unsafe { headers(module) }?;
    // SAFETY: notes lie in the mapping, as the comparisons say.
    unsafe {
        for header in headers {
            let (start, length) = (bias.wrapping_add(header.p_vaddr as usize), header.p_memsz as usize);
            if header.p_type != libc::PT_NOTE || start < module.start || length > module.end - start {
                continue;
            }
            let mut notes =
                core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(start), length);
            while let Some((head, rest)) = notes.split_at_checked(12) {
                let word =
                    |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                let (name, content) = (word(0) as usize, word(4) as usize);
                let name_end = name.next_multiple_of(4);
                let found = rest.get(name_end..name_end + content)?;
                if word(8) == GNU_BUILD_ID && rest.starts_with(b"GNU\0") {
                    return Some(found.get(..32).unwrap_or(found));
                }
                notes = rest.get(name_end + content.next_multiple_of(4)..).unwrap_or(&[]);
            }
        }
    }
    None
}

/// The program headers of a module.
///
/// # Safety
///
/// The module is loaded.
unsafe fn headers(module: &Object) -> Option<&'static [libc::Elf64_Phdr]> {
    if module.is_program() {
        return Some(Program::find()?.headers);
    }
    // SAFETY: a library begins with its ELF header, which the first page holds with the program headers; the dynamic linker has
    // checked both.
    unsafe {
        let header = &*core::ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(module.start);
        let (offset, count) = (header.e_phoff as usize, header.e_phnum as usize);
        let first_page = 4096;
        if !header.e_ident.starts_with(b"\x7fELF")
            || offset + count * size_of::<libc::Elf64_Phdr>() > first_page
        {
            return None;
        }
        Some(core::slice::from_raw_parts(
            core::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(module.start + offset),
            count,
        ))
    }
}
