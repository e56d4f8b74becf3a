//! The stacks of one thread that were unwound lately.
//!
//! A thread remembers where the return addresses of its recent stacks lay. If the stack pointer is the same, and those words
//! still have the same values, the stack is the same: that takes one load for each frame. Otherwise the stack is unwound, up to
//! a frame that the thread's last stack had too: the frames above are taken from there, if their return addresses still lie
//! where they lay.
//!
//! All this holds for the stack that the thread began with ([`OwnStack`]). A stack of another sort, such as a coroutine's, is
//! unwound at each capture: when the thread comes back, another one may lie there, and the pages above may be gone.

use super::{MOST, OwnStack, Registers, Window, each, mix};

/// Stacks that a thread remembers: so many sets, one for each hash of a stack pointer.
const SETS: usize = 16;
/// Stacks of a set. A function that locks at several places has the same stack pointer at each.
const WAYS: usize = 4;

/// What a thread keeps. Zero bytes are an empty one, before [`begin`](Self::begin). `FRAMES` are the most frames above this library
/// that are of interest.
pub(crate) struct Recent<const FRAMES: usize> {
    stacks: [[Known; WAYS]; SETS],
    /// The place in its set that the next new stack takes.
    turn: usize,
    /// The set and the place of the last stack.
    last: (usize, usize),
    /// The last one that was captured elsewhere than on the thread's own stack. It is not looked up.
    elsewhere: Known,
    pub(crate) own_stack: OwnStack,
}

/// The tag of a stack that was unwound just now.
pub(crate) const NEW: u32 = u32::MAX;

/// A stack.
pub(crate) struct Known {
    /// The stack pointer; 0: nothing is remembered.
    sp: usize,
    /// What the user knows the stack by, or [`NEW`].
    pub(crate) tag: u32,
    /// Frames of this library, the innermost ones.
    own: u32,
    count: u32,
    /// Whether it ends with the outermost frame, and not for want of room.
    whole: bool,
    /// How far above the stack pointer each return address lies, and its value.
    offsets: [u32; MOST],
    values: [usize; MOST],
}

impl<const FRAMES: usize> Recent<FRAMES> {
    /// The calling thread begins to use this, which is empty.
    pub(crate) fn begin(&mut self) {
        self.own_stack = OwnStack::new();
    }

    /// Forgets all stacks. If a library was unloaded, the same addresses may be other functions now.
    pub(crate) fn forget(&mut self) {
        self.stacks.iter_mut().flatten().for_each(|known| {
            (known.sp, known.count, known.whole) = (0, 0, false);
        });
    }

    /// Whether the thread remembers the present stack: the set and the place, for [`at`](Self::at).
    pub(crate) fn find(&mut self, registers: &Registers) -> Option<(usize, usize)> {
        let sp = registers.sp();
        if !self.own_stack.is_here(sp) {
            return None;
        }
        let set = set_of(sp);
        let way = self.stacks[set].iter().position(|known| known.sp == sp && is_same(known))?;
        self.last = (set, way);
        Some(self.last)
    }

    pub(crate) fn at(&mut self, (set, way): (usize, usize)) -> &mut Known {
        &mut self.stacks[set][way]
    }

    /// Unwinds the present stack, which the thread does not remember.
    pub(crate) fn unwind(&mut self, registers: &Registers) -> &mut Known {
        let sp = registers.sp();
        if !self.own_stack.is_here(sp) {
            let mut window = Window::EMPTY;
            self.elsewhere.unwind(registers, &mut window, &Known::EMPTY, FRAMES);
            return &mut self.elsewhere;
        }
        let set = set_of(sp);
        self.turn = self.turn.wrapping_add(1);
        let mut way = self.turn % WAYS;
        if self.last == (set, way) {
            way = (way + 1) % WAYS;
        }
        let mut new = core::mem::replace(&mut self.stacks[set][way], Known::EMPTY);
        let last = &self.stacks[self.last.0][self.last.1];
        new.unwind(registers, &mut self.own_stack.window(), last, FRAMES);
        self.stacks[set][way] = new;
        self.last = (set, way);
        &mut self.stacks[set][way]
    }
}

fn set_of(sp: usize) -> usize {
    mix(sp as u64 >> 3) as usize % SETS
}

impl Known {
    const EMPTY: Self =
        Known { sp: 0, tag: 0, own: 0, count: 0, whole: false, offsets: [0; MOST], values: [0; MOST] };

    /// The return addresses, innermost first, those in this library among them.
    pub(crate) fn addresses(&self) -> &[usize] {
        &self.values[..self.count as usize]
    }

    /// The return addresses above this library, with their distances from the stack pointer. None: there is no stack.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (u32, usize)> {
        let program = self.own as usize..self.count as usize;
        self.offsets[program.clone()].iter().copied().zip(self.values[program].iter().copied())
    }

    /// Becomes the present stack. `last` is another one of the same thread.
    #[cold]
    #[inline(never)]
    fn unwind(&mut self, registers: &Registers, window: &mut Window, last: &Self, frames: usize) {
        if !self.fill(registers, window, last, frames) {
            self.fill(registers, window, &Known::EMPTY, frames);
        }
    }

    /// Unwinds the present stack. The frames above one that `last` has, too, are taken from there. `false`: they have changed.
    fn fill(&mut self, registers: &Registers, window: &mut Window, last: &Self, frames: usize) -> bool {
        let sp = registers.sp();
        (self.sp, self.tag, self.own, self.count) = (0, NEW, 0, 0);
        let mut depth = 0;
        let mut common = last.own as usize;
        let mut is_common = false;
        each(registers, window, |slot, address, ours| {
            if !self.push(sp, slot, address) {
                return false;
            }
            if ours && depth == 0 {
                self.own += 1;
                return true;
            }
            depth += 1;
            while common < last.count as usize && last.slot(common) < slot {
                common += 1;
            }
            is_common = last.whole
                && common < last.count as usize
                && last.slot(common) == slot
                && last.values[common] == address;
            depth < frames && !is_common
        });
        if is_common {
            for index in common + 1..last.count as usize {
                if self.count as usize == MOST || depth == frames {
                    break;
                }
                let (slot, address) = (last.slot(index), last.values[index]);
                if window.read(sp, slot) != Some(address as u64) || !self.push(sp, slot, address) {
                    return false;
                }
                depth += 1;
            }
        }
        self.whole = (self.count as usize) < MOST && depth < frames;
        if self.count != 0 {
            self.sp = sp;
        }
        true
    }

    /// Adds a return address. `false`: there is no room, or it lies too far away.
    fn push(&mut self, sp: usize, slot: usize, address: usize) -> bool {
        let index = self.count as usize;
        let Ok(offset) = u32::try_from(slot.wrapping_sub(sp)) else { return false };
        if index == MOST {
            return false;
        }
        (self.offsets[index], self.values[index]) = (offset, address);
        self.count += 1;
        true
    }

    /// Where a return address lies.
    fn slot(&self, index: usize) -> usize {
        self.sp + self.offsets[index] as usize
    }
}

/// Whether the thread, which runs on its own stack, is still in the calls that it was in.
fn is_same(known: &Known) -> bool {
    (0..known.count as usize).all(|index| {
        let slot = core::ptr::with_exposed_provenance::<usize>(known.slot(index));
        // SAFETY: `known` was captured on the thread's own stack, and these words were read in it. It stays mapped.
        unsafe { slot.read_volatile() == known.values[index] }
    })
}
