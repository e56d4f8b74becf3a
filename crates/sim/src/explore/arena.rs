//! Where the locks and the data of a client are, and names for addresses that are the same in every run.

use std::cell::UnsafeCell;

/// Bytes of the arena.
const BYTES: usize = 64 * 1024;

/// Locks and data have the same offsets here in every process.
#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; BYTES]>);

/// The memory of one engine, and the names of what lies there.
pub(super) struct Arena {
    memory: &'static Memory,
    /// Labels of ranges of addresses, for people.
    labels: Vec<(usize, usize, &'static str)>,
    /// Addresses outside of the arena that were asked for an identity, by line.
    identities: Vec<usize>,
}

impl Arena {
    pub(super) fn new() -> Arena {
        let memory = Box::leak(Box::new(Memory(UnsafeCell::new([0; BYTES]))));
        Arena { memory, labels: Vec::new(), identities: Vec::new() }
    }

    /// Its address.
    pub(super) fn start(&self) -> *mut u8 {
        self.memory.0.get().cast()
    }

    /// Forgets the labels and the identities of the schedule before.
    pub(super) fn reset(&mut self) {
        self.labels.clear();
        self.identities.clear();
    }

    /// What is at these addresses.
    pub(super) fn label(&mut self, address: usize, size: usize, name: &'static str) {
        self.labels.push((address, address + size, name));
    }

    /// What a word in one of the labelled ranges is called in a trace.
    pub(super) fn name(&self, address: usize) -> Option<String> {
        let (start, _, name) =
            self.labels.iter().find(|(start, end, _)| (*start..*end).contains(&address))?;
        Some(format!("{name}+{:#x}", address - start))
    }

    /// A name for an address that is the same in every run.
    pub(super) fn identity(&mut self, address: usize) -> usize {
        let arena = self.start().addr();
        if (arena..arena + BYTES).contains(&address) {
            return address - arena + BYTES;
        }
        let line = address / 64;
        let known = self.identities.iter().position(|known| *known == line);
        let number = known.unwrap_or_else(|| {
            self.identities.push(line);
            self.identities.len() - 1
        });
        2 * BYTES + number * 64 + address % 64
    }
}
