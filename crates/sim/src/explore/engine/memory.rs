//! Memory as on x86-64: a store buffer for each thread.

use super::plan::Kind;
use super::schedule::bits;
use super::*;

impl State {
    /// A write to memory.
    #[inline]
    pub(in crate::explore) fn write(&mut self, place: Place, value: u64) {
        let old = place.value();
        if old != value {
            place.set(value);
            self.idle = 0;
            if self.covered.contains(&place.address) {
                self.cover(place.address, old, value);
            }
            if self.spinning != 0 {
                self.wake_spinners(place.address);
            }
        }
    }

    #[inline(never)]
    pub(super) fn cover(&mut self, address: usize, old: u64, new: u64) {
        let waiting = (self.sleepers.len() as u32) << 8 | self.spinning.count_ones();
        if self.coverage.change(address - self.covered.start, old, new, waiting) {
            self.coverage.rare_at = self.step;
            for (operation, thread) in self.coverage.operations.iter_mut().zip(&self.threads) {
                *operation = thread.operation;
            }
        }
    }

    pub(super) fn wake_spinners(&mut self, address: usize) {
        for thread in bits(self.spinning) {
            if self.threads[thread].status == Status::Spins(address) {
                self.threads[thread].status = Status::Runnable;
                self.spinning &= !(1 << thread);
                self.runnable |= 1 << thread;
                self.look_again();
            }
        }
    }

    /// What the running thread reads.
    #[inline]
    pub(in crate::explore) fn load(&mut self, place: Place) -> u64 {
        let thread = &self.threads[self.running];
        for i in (0..thread.stored).rev() {
            let entry = &thread.buffer[(thread.first + i) % BUFFER];
            if entry.place.address == place.address {
                return entry.value;
            }
        }
        if self.fenced {
            self.fenced = false;
            if self.mistake == Mistake::NoSecondLook {
                return 0;
            }
        }
        if self.mistake == Mistake::BlindScan && self.surroundings.is_reader_slot(place.address) {
            return 0;
        }
        place.value()
    }

    /// A plain store. Returns whether it stays in the buffer for now. If it releases a lock, the thread has `looked` at this step
    /// whether another one waits.
    #[inline]
    pub(in crate::explore) fn store(&mut self, place: Place, value: u64, looked: Option<u32>) -> bool {
        let delay = self.decide(Kind::Delay, 0, |chance| {
            if chance.happens(chance.buffered, 8) {
                1 + chance.rng.below(u64::from(chance.longest)) as u32
            } else {
                0
            }
        });
        let me = self.running;
        let entry = Buffered { place, value, due: self.step + delay, looked };
        if delay == 0 && self.threads[me].stored == 0 {
            self.show(entry);
            return false;
        }
        if self.threads[me].stored == BUFFER {
            self.flush(me);
        }
        let thread = &mut self.threads[me];
        thread.buffer[(thread.first + thread.stored) % BUFFER] = entry;
        thread.stored += 1;
        self.buffering |= 1 << me;
        self.plan();
        true
    }

    /// A store becomes visible.
    fn show(&mut self, entry: Buffered) {
        self.write(entry.place, entry.value);
        if let Some(looked) = entry.looked {
            self.tear(entry.place.address, looked);
        }
    }

    /// The oldest store of a thread's buffer becomes visible.
    pub(super) fn flush(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let entry = thread.buffer[thread.first];
        thread.first = (thread.first + 1) % BUFFER;
        thread.stored -= 1;
        if thread.stored == 0 {
            self.buffering &= !(1 << number);
        }
        if entry.place.is_alive() {
            if self.trace.is_some() {
                let word = self.name(entry.place.address);
                self.note(format!("(store of thread {number} is visible: {word} = {:#x})", entry.value));
            }
            self.show(entry);
        } else {
            let word = self.name(entry.place.address);
            self.failure
                .get_or_insert(format!("a store of thread {number} to a word that was destroyed ({word})"));
        }
    }

    /// All stores of a thread become visible.
    #[inline]
    pub(in crate::explore) fn drain(&mut self, thread: usize) {
        while self.threads[thread].stored > 0 {
            self.flush(thread);
        }
    }

    /// A word is dropped by the running thread: what that has stored there does not matter any more.
    pub(in crate::explore) fn forget(&mut self, address: usize) {
        let me = self.running;
        let kept = |entry: &Buffered| entry.place.address != address;
        let thread = &mut self.threads[me];
        let stored = thread.stored;
        let mut left = 0;
        for i in 0..stored {
            let entry = thread.buffer[(thread.first + i) % BUFFER];
            if kept(&entry) {
                thread.buffer[(thread.first + left) % BUFFER] = entry;
                left += 1;
            }
        }
        thread.stored = left;
        if left == 0 {
            self.buffering &= !(1 << me);
        }
    }

    /// Whether a thread's buffer has stores.
    pub(in crate::explore) fn has_stores(&self, thread: usize) -> bool {
        self.buffering >> thread & 1 == 1
    }

    /// Whether no store of any other thread is in its buffer.
    pub(in crate::explore) fn no_stores_elsewhere(&self) -> bool {
        self.buffering & !(1 << self.running) == 0
    }

    /// `membarrier`: a full fence on every processor, between two instructions.
    pub(in crate::explore) fn heavy_fence(&mut self) {
        if self.mistake != Mistake::NoHeavyFence {
            (0..self.count).for_each(|thread| self.drain(thread));
        }
    }
}
