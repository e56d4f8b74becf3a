//! The records of objects, threads' stacks and modules.
//!
//! An object keeps its record for ever: one that is destroyed, and another one of the same kind that is made at the same
//! address, count as one. They never exist at the same time, so a replay does not confuse them; but the second has the name of
//! the first. Only objects in the data of a library are told apart from those of the next library that lies there.

use super::file;
use crate::state::unwind::{self, modules};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use latchwork_recording::layout::kind;
use latchwork_recording::trace::*;

/// Slots of the table. At most half of them are used.
const SLOTS: usize = 2 * OBJECTS;
/// Slots that are searched from the one that the hash says.
const PROBES: usize = 64;

/// The index of an object plus one; 0: empty. An object never leaves its slot.
static TABLE: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

fn slots(address: usize) -> impl Iterator<Item = &'static AtomicU32> {
    let hash = (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |probe| &TABLE[(hash as usize + probe) % SLOTS])
}

fn is(index: u32, kind: u32, address: usize) -> bool {
    let object = file::object(index);
    object.address.load(Relaxed) == address as u64 && object.kind.load(Relaxed) == kind
}

/// The index of an object, which gets a record if it has none. `None`: there is no room.
#[inline(always)]
pub(super) fn find(kind: u32, address: usize) -> Option<u32> {
    for slot in slots(address) {
        // (A) pairs with the exchange in `make`: the record is complete.
        match slot.load(Acquire) {
            0 => break,
            value if is(value - 1, kind, address) => return Some(value - 1),
            _ => {}
        }
    }
    make(kind, address)
}

#[cold]
#[inline(never)]
fn make(kind: u32, address: usize) -> Option<u32> {
    // Without a slot no later call would find the record, and each of them would take one.
    if slots(address).all(|slot| slot.load(Relaxed) != 0) {
        return None;
    }
    let index = file::new_object()?;
    let object = file::object(index);
    object.kind.store(kind, Relaxed);
    object.address.store(address as u64, Relaxed);
    object.is_static.store(u32::from(modules::of(address).is_some_and(|module| note(&module))), Relaxed);
    object.depth.store(capture(&object.frames), Relaxed);
    object.replaced.store(replaced(), Relaxed);
    object.state.store(1, Release);
    for slot in slots(address) {
        // (A) publishes the record.
        match slot.compare_exchange(0, index + 1, AcqRel, Acquire) {
            Ok(_) => return Some(index),
            Err(other) if is(other - 1, kind, address) => {
                // Another thread was faster.
                object.state.store(0, Relaxed);
                return Some(other - 1);
            }
            Err(_) => {}
        }
    }
    object.state.store(0, Relaxed);
    None
}

/// The program makes a barrier for so many threads. Returns whether it has a record. A barrier for more or fewer threads that lay
/// there before is another one.
pub(super) fn barrier(address: usize, parties: u32) -> bool {
    let mut found = false;
    // (A) pairs with the exchange in `make`: the record is complete.
    for index in slots(address).filter_map(|slot| slot.load(Acquire).checked_sub(1)) {
        let object = file::object(index);
        let is_here = object.address.load(Relaxed) == address as u64;
        if is_here && object.kind.load(Relaxed) & !REMADE == kind::BARRIER {
            let is_it = !found && object.parties.load(Relaxed) == parties;
            object.kind.store(if is_it { kind::BARRIER } else { kind::BARRIER | REMADE }, Relaxed);
            found |= is_it;
        }
    }
    let made = find(kind::BARRIER, address);
    if let Some(index) = made {
        file::object(index).parties.store(parties, Relaxed);
    }
    made.is_some()
}

/// The program may have unloaded a library: an object in its data is gone, and the next one at this address is another one.
pub(super) fn unloaded() {
    // (A) pairs with the exchange in `make`: the record is complete.
    for index in TABLE.iter().filter_map(|slot| slot.load(Acquire).checked_sub(1)) {
        let object = file::object(index);
        let address = object.address.load(Relaxed) as usize;
        if object.is_static.load(Relaxed) == 1 && modules::of(address).is_none() {
            object.kind.fetch_or(GONE, Relaxed);
        }
    }
}

/// Captures the calling thread's stack, without the frames of this library. Returns how many frames there are.
pub(super) fn capture(frames: &[AtomicU64; FRAMES]) -> u32 {
    let Some(registers) = unwind::Registers::here() else { return 0 };
    let (mut depth, mut window) = (0, unwind::Window::EMPTY);
    unwind::each(&registers, &mut window, |_, address, ours| {
        if !ours {
            frames[depth].store(address as u64, Relaxed);
            // The address is behind the call, which may be the last instruction of the module.
            if let Some(module) = modules::of(address - 1) {
                note(&module);
            }
            depth += 1;
        }
        depth < FRAMES
    });
    depth as u32
}

/// In place of a stack: the function at this address, which is about to run.
pub(super) fn only(frames: &[AtomicU64; FRAMES], function: usize) {
    if let Some(module) = modules::of(function) {
        note(&module);
    }
    // As an address behind a call, like the others.
    frames[0].store(function as u64 + 1, Relaxed);
}

/// How many modules have taken the place of another one, which was unloaded before. At most 65,535 are told apart.
static REPLACED: AtomicU32 = AtomicU32::new(0);

/// See [`REPLACED`].
pub(super) fn replaced() -> u32 {
    REPLACED.load(Relaxed).min(u16::MAX.into())
}

/// Gives a module a record, if it has none. Returns whether it has one. Two threads may make two records of one module, which
/// does no harm.
fn note(module: &modules::Object) -> bool {
    let count = (file::header().modules.load(Relaxed) as usize).min(MODULES) as u32;
    // The last one that was here is here still, or was unloaded.
    let overlaps = |known: &&Module| {
        (known.start.load(Acquire) as usize) < module.end && module.start < known.end.load(Relaxed) as usize
    };
    if let Some(known) = (0..count).rev().map(file::module).find(overlaps) {
        // SAFETY: the module's code is running or its data in use, so it stays loaded meanwhile.
        if unsafe { is_same(known, module) } {
            return true;
        }
        REPLACED.fetch_add(1, Relaxed);
    }
    let Some(index) = file::new_module() else { return false };
    let record = file::module(index);
    // SAFETY: the module's code is running or its data in use, so it stays loaded meanwhile.
    unsafe {
        let bias = module.bias();
        record.bias.store(bias as u64, Relaxed);
        record.path[..record.path.len() - 1]
            .iter()
            .zip(module.name())
            .for_each(|(to, byte)| to.store(*byte, Relaxed));
        if let Some(id) = modules::build_id(module, bias) {
            let length = id.len().min(record.build_id.len());
            record.build_id.iter().zip(id).for_each(|(to, byte)| to.store(*byte, Relaxed));
            record.build_id_length.store(length as u32, Relaxed);
        }
    }
    record.end.store(module.end as u64, Relaxed);
    record.replaced.store(replaced(), Relaxed);
    record.state.store(1, Relaxed);
    record.start.store(module.start as u64, Release);
    true
}

/// Whether the record is that of the module: of the same file, at the same place.
///
/// # Safety
///
/// The module is loaded.
unsafe fn is_same(known: &Module, module: &modules::Object) -> bool {
    if (known.start.load(Relaxed), known.end.load(Relaxed)) != (module.start as u64, module.end as u64) {
        return false;
    }
    // SAFETY: the caller's module is loaded.
    let (id, name) = unsafe { (modules::build_id(module, module.bias()), module.name()) };
    let (id, length) = (id.unwrap_or(&[]), known.build_id_length.load(Relaxed) as usize);
    if !id.is_empty() || length != 0 {
        return id.len().min(known.build_id.len()) == length
            && known.build_id.iter().zip(id).all(|(is, byte)| is.load(Relaxed) == *byte);
    }
    let path = &known.path[..known.path.len() - 1];
    path.iter().zip(name.iter().chain(&[0])).all(|(is, byte)| is.load(Relaxed) == *byte)
}

/// Forgets all objects. In a forked child, which has one thread.
pub(super) fn clear() {
    REPLACED.store(0, Relaxed);
    TABLE.iter().for_each(|slot| slot.store(0, Relaxed));
}
