//! The records of modules: the files that addresses belong to. A module gets its record when its first address is met.

use super::file::{append, header, record, text};
use super::index::{Index, mix};
use crate::state::unwind::modules::{Object, build_id, find, is_in_heap, of};
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};
use latchwork_recording::layout::*;

static BY_START: Index<{ 8 << 10 }> = Index::new();

/// How many modules have taken the place of another one, which was unloaded before. At most 65,535 are told apart.
static REPLACED: AtomicU32 = AtomicU32::new(0);

/// See [`REPLACED`].
#[inline(always)]
pub(super) fn replaced() -> u16 {
    REPLACED.load(Relaxed).min(u16::MAX.into()) as u16
}

/// How often the program has unloaded a library, or a module has been found in the place of another one.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// See [`CHANGES`]. What a thread remembers of code at an address is right while this stays the same.
#[inline(always)]
pub(super) fn changes() -> u32 {
    CHANGES.load(Relaxed)
}

/// The program may have unloaded a library.
pub(super) fn unloaded() {
    CHANGES.fetch_add(1, Relaxed);
}

/// The module in which a thread has found an object last. Zero bytes are none.
pub(super) struct Last {
    start: usize,
    end: usize,
    /// Of its record.
    replaced: u16,
    /// [`changes`] when it was found.
    changes: u32,
}

impl Last {
    /// If a module has this address: the [`replaced`](Module::replaced) of its record. Gives the module a record.
    pub(super) fn replaced_at(&mut self, address: usize) -> Option<u16> {
        if is_in_heap(address) {
            return None;
        }
        let changes = changes();
        if (self.start..self.end).contains(&address) && self.changes == changes {
            return Some(self.replaced);
        }
        let part = find(address)?;
        // Something else may lie in a gap between two segments of the program.
        let (start, end) = (part.start, part.end);
        let module = note(&part.whole());
        let replaced = module.map_or(0, |index| record::<Module>(index).replaced.load(Relaxed));
        *self = Last { start, end, replaced, changes };
        Some(replaced)
    }
}

/// Whether a module has this address now.
pub(super) fn is_loaded(address: usize) -> bool {
    of(address).is_some()
}

/// The addresses of the module that has this one; none: no module has it. Gives the module a record.
pub(super) fn around(address: usize) -> Range<usize> {
    let Some(module) = of(address) else { return 0..0 };
    note(&module);
    module.start..module.end
}

/// Gives the module a record, if it has none. `None`: there is no room.
fn note(module: &Object) -> Option<u32> {
    let is = |index| {
        let known = record::<Module>(index);
        // SAFETY: the module's code is running or its data in use, so it stays loaded meanwhile.
        unsafe { is_same(known, module) }
    };
    let make = || {
        let index = append::<Module>(1)?;
        replace(module, index);
        let known = record::<Module>(index);
        known.replaced.store(replaced(), Relaxed);
        // SAFETY: the module's code is running or its data in use, so it stays loaded meanwhile. The strings of the dynamic
        // linker end in NUL.
        unsafe {
            let (bias, name) = (module.bias(), module.name());
            let path = text(name);
            known.path.store(path.start, Relaxed);
            known.path_length.store(path.length, Relaxed);
            known.bias.store(bias as u64, Relaxed);
            if let Some(id) = build_id(module, bias) {
                let length = id.len().min(known.build_id.len());
                known.build_id.iter().zip(id).for_each(|(to, byte)| to.store(*byte, Relaxed));
                known.build_id_length.store(length as u16, Relaxed);
            }
        }
        known.start.store(module.start as u64, Relaxed);
        known.end.store(module.end as u64, Relaxed);
        known.state.store(READY, Release);
        Some(index)
    };
    let discard = |index| record::<Module>(index).state.store(0, Relaxed);
    BY_START.find_or_insert(mix(module.start as u64), is, make, discard)
}

/// Whether the record is that of the module: of the same file, at the same place.
///
/// # Safety
///
/// The module is loaded.
unsafe fn is_same(known: &Module, module: &Object) -> bool {
    if (known.start.load(Relaxed), known.end.load(Relaxed)) != (module.start as u64, module.end as u64) {
        return false;
    }
    // SAFETY: the caller's module is loaded.
    let (bias, name) = unsafe { (module.bias(), module.name()) };
    // SAFETY: the caller's module is loaded.
    let id = unsafe { build_id(module, bias) }.unwrap_or(&[]);
    let id = &id[..id.len().min(known.build_id.len())];
    let length = known.build_id_length.load(Relaxed);
    if !id.is_empty() || length != 0 {
        return usize::from(length) == id.len()
            && known.build_id.iter().zip(id).all(|(is, byte)| is.load(Relaxed) == *byte);
    }
    let (path, length) = (known.path.load(Relaxed), known.path_length.load(Relaxed));
    // A path for which there was no room has no length, and says nothing.
    length == 0
        || length as usize == name.len()
            && (path..).zip(name).all(|(index, byte)| record::<AtomicU8>(index).load(Relaxed) == *byte)
}

/// The modules that lay where this one lies, whose record gets this index, have been unloaded.
fn replace(module: &Object, index: u32) {
    let count = header().sections[MODULES].count.load(Relaxed).min(index);
    for before in 0..count {
        let known = record::<Module>(before);
        let (start, end) = (known.start.load(Relaxed), known.end.load(Relaxed));
        let overlaps = start < module.end as u64 && (module.start as u64) < end;
        if known.state.load(Acquire) == READY
            && overlaps
            // SAFETY: as in `note`: the module is in use.
            && !unsafe { is_same(known, module) }
            && BY_START.remove(mix(start), before)
        {
            REPLACED.fetch_add(1, Relaxed);
            CHANGES.fetch_add(1, Relaxed);
        }
    }
}

/// Forgets all modules. In a forked child, which has one thread.
pub(super) fn clear_all() {
    REPLACED.store(0, Relaxed);
    BY_START.clear();
}
