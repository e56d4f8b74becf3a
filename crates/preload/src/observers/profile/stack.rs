//! Stacks of the calling thread, and their records.
//!
//! A thread remembers its recent stacks ([`Recent`]).
//!
//! Where an object was made is said by fewer frames ([`BIRTH_FRAMES`]). These a thread remembers apart, and recognises at any stack
//! pointer. A program that makes objects all the time makes them at few places, below many different calls.

use super::file::{append, header, record};
use super::index::{Index, mix};
use super::{clock, modules};
use crate::state::unwind::recent::{Known, NEW, Recent};
use crate::state::unwind::{self, OwnStack, Window};
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::*;

static BY_HASH: Index<{ 128 << 10 }> = Index::new();

/// The most frames of the program that say where an object was made.
const BIRTH_FRAMES: usize = 8;
/// As many frames of this library may lie below those.
const BIRTH_OWN: usize = 8;
/// The places of this sort that a thread remembers.
const BIRTHS: usize = 64;
/// Numbers of stack pointers for which a thread remembers the last place.
const HINTS: usize = 64;

/// What a thread keeps for its stacks. Zero bytes are an empty one, before [`begin`](Cache::begin).
pub(super) struct Cache {
    recent: Recent<FRAMES>,
    births: [Birth; BIRTHS],
    /// The outermost address of each of `births`. Most others differ there, so a search reads little memory.
    ends: [End; BIRTHS],
    /// The one of `births` that was made last.
    birth: usize,
    /// The one of `births` that was found or made last at a stack pointer with this hash: probably the same one again.
    hints: [u8; HINTS],
    /// Stacks that were found here and are not in the header yet.
    found: u32,
    /// [`modules::changes`] when the stacks were captured.
    changes: u32,
    /// Whether the thread is capturing a stack. A signal handler that interrupts it gets none.
    busy: bool,
}

/// The inner end of a stack at which objects were made. Zero bytes are none.
struct Birth {
    /// The index of the record.
    stack: u32,
    count: u32,
    /// How far above the stack pointer each return address lies, and its value.
    offsets: [u32; BIRTH_OWN + BIRTH_FRAMES],
    values: [usize; BIRTH_OWN + BIRTH_FRAMES],
}

/// A return address: how far above the stack pointer it lies, and its low half. Zero bytes are none.
#[derive(Clone, Copy)]
struct End {
    offset: u32,
    value: u32,
}

/// Stacks that were found in a cache come into the header by so many.
const FOUND_TOGETHER: u32 = 64;

/// The farthest below the stack pointer that an earlier call may have been made, in bytes. Farther away is another stack.
const BELOW: i32 = 64 << 10;

impl Cache {
    /// The calling thread begins to use the cache, which is empty.
    pub(super) fn begin(&mut self) {
        self.recent.begin();
    }

    /// The record of the calling thread's stack; 0: there is none.
    #[inline(never)]
    pub(super) fn capture(&mut self) -> u32 {
        let Some(registers) = unwind::Registers::here() else { return 0 };
        if core::mem::replace(&mut self.busy, true) {
            return 0;
        }
        let stack = self.known(&registers).tag;
        self.busy = false;
        stack
    }

    /// The record of the inner end of the calling thread's stack, where it makes an object; 0: there is none.
    #[inline(never)]
    pub(super) fn capture_birth(&mut self) -> u32 {
        let Some(sp) = unwind::Registers::sp_here() else { return 0 };
        if core::mem::replace(&mut self.busy, true) {
            return 0;
        }
        let stack = if self.recent.own_stack.is_here(sp) {
            self.forget_replaced();
            const { assert!(BIRTHS <= u8::MAX as usize) };
            let hint = mix(sp as u64) as usize % HINTS;
            let mut places = core::iter::once(usize::from(self.hints[hint])).chain(0..BIRTHS);
            let is_here = |place: &usize| {
                self.ends[*place].is_here(sp, &self.recent.own_stack)
                    && self.births[*place].is_here(sp, &self.recent.own_stack)
            };
            match places.find(is_here) {
                Some(place) => {
                    self.hints[hint] = place as u8;
                    self.count_found();
                    self.births[place].stack
                }
                None => {
                    self.birth = (self.birth + 1) % BIRTHS;
                    self.hints[hint] = self.birth as u8;
                    let registers = unwind::Registers::here();
                    let window = &mut self.recent.own_stack.window();
                    let birth = &mut self.births[self.birth];
                    let stack = registers.map_or(0, |registers| birth.unwind(&registers, window));
                    self.ends[self.birth] = birth.end();
                    stack
                }
            }
        } else {
            let (mut birth, mut window) = (Birth::EMPTY, Window::EMPTY);
            unwind::Registers::here().map_or(0, |registers| birth.unwind(&registers, &mut window))
        };
        self.busy = false;
        stack
    }

    /// Forgets all stacks if a library was unloaded: the same addresses may be other functions now.
    #[inline(always)]
    fn forget_replaced(&mut self) {
        if self.changes != modules::changes() {
            self.changes = modules::changes();
            self.recent.forget();
            self.births.iter_mut().for_each(|birth| birth.count = 0);
        }
    }

    fn count_found(&mut self) {
        self.found += 1;
        if self.found == FOUND_TOGETHER {
            self.found = 0;
            header().cached.fetch_add(u64::from(FOUND_TOGETHER), Relaxed);
        }
    }

    /// The record of the stack at which the calling thread made an earlier call, from which it has returned: `caller` is the
    /// return address of that call, and `slot` the low half of where it lay. The frames above are taken from the present stack.
    /// So the result is exact if the functions above have not returned since, and is usually close if they have. 0: there is
    /// none.
    #[cold]
    #[inline(never)]
    pub(super) fn capture_earlier(&mut self, caller: usize, slot: u32) -> u32 {
        let Some(registers) = unwind::Registers::here() else { return 0 };
        if core::mem::replace(&mut self.busy, true) {
            return 0;
        }
        let known = self.known(&registers);
        let sp = registers.sp();
        // The offset may be negative: the call was made further down.
        let above = slot.wrapping_sub(sp as u32) as i32;
        let mut stack = known.tag;
        if caller != 0 && stack != 0 && (-BELOW..unwind::REACH as i32).contains(&above) {
            let mut frames = [caller as u64; FRAMES];
            let outer = known.frames().filter(|(offset, _)| i64::from(*offset) > i64::from(above));
            let mut depth = 1;
            for ((_, address), frame) in outer.zip(&mut frames[1..]) {
                *frame = address as u64;
                depth += 1;
            }
            stack = find_or_make(&frames[..depth]);
        }
        self.busy = false;
        stack
    }

    /// The present stack, from here if it is here.
    fn known(&mut self, registers: &unwind::Registers) -> &Known {
        self.forget_replaced();
        let known = match self.recent.find(registers) {
            Some(place) => {
                self.count_found();
                self.recent.at(place)
            }
            None => counted(|| self.recent.unwind(registers)),
        };
        if known.tag == NEW {
            let mut frames = [0_u64; FRAMES];
            let mut depth = 0;
            for ((_, address), frame) in known.frames().zip(&mut frames) {
                *frame = address as u64;
                depth += 1;
            }
            known.tag = find_or_make(&frames[..depth]);
        }
        known
    }
}

/// Runs `unwinding`, which the header counts.
fn counted<T>(unwinding: impl FnOnce() -> T) -> T {
    let begin = clock::now();
    let result = unwinding();
    header().unwound.fetch_add(1, Relaxed);
    header().unwinding_nanos.fetch_add(clock::now().saturating_sub(begin), Relaxed);
    result
}

impl End {
    /// Whether the calling thread's stack has this address, from this stack pointer on. The thread runs on `stack`.
    #[inline(always)]
    fn is_here(self, sp: usize, stack: &OwnStack) -> bool {
        let slot = sp + self.offset as usize;
        if self.offset == 0 || !stack.has(slot) {
            return false;
        }
        // SAFETY: the thread's own stack has all words from the stack pointer up to this one, and stays mapped. `fill` has stored a
        // multiple of 8, as the stack pointer is.
        let value = unsafe { core::ptr::with_exposed_provenance::<usize>(slot).read_volatile() };
        value as u32 == self.value
    }
}

impl Birth {
    /// Its outermost address.
    fn end(&self) -> End {
        let last = (self.count as usize).min(self.offsets.len()).checked_sub(1);
        last.map_or(End { offset: 0, value: 0 }, |last| End {
            offset: self.offsets[last],
            value: self.values[last] as u32,
        })
    }

    const EMPTY: Self = Birth {
        stack: 0,
        count: 0,
        offsets: [0; BIRTH_OWN + BIRTH_FRAMES],
        values: [0; BIRTH_OWN + BIRTH_FRAMES],
    };

    /// Whether the calling thread is below the same calls, from this stack pointer on. A frame's size is that of its function,
    /// so the return addresses lie as far above the stack pointer as they lay. The outermost one differs most often. The thread
    /// runs on `stack`.
    #[inline(always)]
    fn is_here(&self, sp: usize, stack: &OwnStack) -> bool {
        let count = (self.count as usize).min(self.offsets.len());
        if count == 0 || !stack.has(sp + self.offsets[count - 1] as usize) {
            return false;
        }
        (0..count).rev().all(|index| {
            let slot = core::ptr::with_exposed_provenance::<usize>(sp + self.offsets[index] as usize);
            // SAFETY: the thread's own stack has all words from the stack pointer up to the last of these, which is the farthest,
            // and stays mapped. `fill` has stored multiples of 8, as the stack pointer is.
            unsafe { slot.read_volatile() == self.values[index] }
        })
    }

    /// Becomes the inner end of the present stack. Returns its record.
    #[cold]
    #[inline(never)]
    fn unwind(&mut self, registers: &unwind::Registers, window: &mut Window) -> u32 {
        counted(|| self.fill(registers, window));
        self.stack
    }

    /// Unwinds the inner end of the present stack.
    fn fill(&mut self, registers: &unwind::Registers, window: &mut Window) {
        let sp = registers.sp();
        self.count = 0;
        let mut frames = [0_u64; BIRTH_FRAMES];
        let mut depth = 0;
        unwind::each(registers, window, |slot, address, ours| {
            let count = self.count as usize;
            let Ok(offset) = u32::try_from(slot.wrapping_sub(sp)) else { return false };
            if count == self.values.len() {
                return false;
            }
            self.offsets[count] = offset;
            self.values[count] = address;
            self.count += 1;
            if !ours || depth != 0 {
                frames[depth] = address as u64;
                depth += 1;
            }
            depth < BIRTH_FRAMES
        });
        self.stack = find_or_make(&frames[..depth]);
    }
}

/// The record of a stack; 0: there is no room.
fn find_or_make(frames: &[u64]) -> u32 {
    if frames.is_empty() {
        return 0;
    }
    let mut module = 0..0;
    for frame in frames {
        // The address is behind the call, which may be the last instruction of the module.
        let call = *frame as usize - 1;
        if !module.contains(&call) {
            module = modules::around(call);
        }
    }
    let replaced = modules::replaced();
    let hash = frames.iter().fold(replaced.into(), |hash: u64, frame| mix(hash.rotate_left(5) ^ frame));
    let is = |index| {
        let stack = record::<Stack>(index);
        stack.replaced.load(Relaxed) == replaced
            && stack.hash.load(Relaxed) == hash
            && stack.frames[0].load(Relaxed) == frames[0]
    };
    let make = || {
        let index = append::<Stack>(1)?;
        let stack = record::<Stack>(index);
        stack.hash.store(hash, Relaxed);
        stack.depth.store(frames.len() as u16, Relaxed);
        stack.replaced.store(replaced, Relaxed);
        for (to, frame) in stack.frames.iter().zip(frames) {
            to.store(*frame, Relaxed);
        }
        stack.state.store(READY, Release);
        Some(index)
    };
    let discard = |index| record::<Stack>(index).state.store(0, Relaxed);
    BY_HASH.find_or_insert(mix(hash), is, make, discard).unwrap_or(0)
}

/// Forgets all stacks. In a forked child, which has one thread.
pub(super) fn clear_all() {
    BY_HASH.clear();
}
