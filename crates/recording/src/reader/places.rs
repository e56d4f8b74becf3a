//! Modules that lay at the same place one after the other: a library was unloaded, and another one was loaded there.
//!
//! A reader of a recording looks addresses up in the list of modules. So that each address is in one module, the later one is
//! moved to addresses that no process has, and with it the addresses of what was recorded while it was there.

use super::model::Module;

pub(crate) struct Places(Vec<Place>);

struct Place {
    module: Module,
    /// See [`Module::replaced`](crate::layout::Module::replaced).
    replaced: u16,
    /// How far it is moved.
    distance: u64,
}

impl Places {
    pub(crate) fn new(modules: Vec<(Module, u16)>) -> Self {
        let distance = |(module, replaced): &(Module, u16)| {
            let is_later = modules.iter().any(|(other, before)| {
                before < replaced && other.start < module.end && module.start < other.end
            });
            // Addresses of programs have 47 bits.
            if is_later { u64::from(*replaced) << 48 } else { 0 }
        };
        let distances: Vec<u64> = modules.iter().map(distance).collect();
        let place = |((module, replaced), distance)| Place { module, replaced, distance };
        Self(modules.into_iter().zip(distances).map(place).collect())
    }

    /// The modules, each at a place of its own.
    pub(crate) fn modules(&self) -> Vec<Module> {
        let moved = |place: &Place| {
            let mut module = place.module.clone();
            for address in [&mut module.start, &mut module.end, &mut module.bias] {
                *address = address.wrapping_add(place.distance);
            }
            module
        };
        self.0.iter().map(moved).collect()
    }

    /// Where the address of a record is now that has this [`replaced`](crate::layout::Stack::replaced), in the module that has
    /// the address `inside`.
    pub(crate) fn move_address(&self, address: u64, inside: u64, replaced: u16) -> u64 {
        let all = || self.0.iter().filter(|place| (place.module.start..place.module.end).contains(&inside));
        let there = all().filter(|place| place.replaced <= replaced).max_by_key(|place| place.replaced);
        let place = there.or_else(|| all().min_by_key(|place| place.replaced));
        address.wrapping_add(place.map_or(0, |place| place.distance))
    }

    /// The same for return addresses. The call is before the address, which may be the first one behind the module.
    pub(crate) fn move_frames(&self, frames: Vec<u64>, replaced: u16) -> Vec<u64> {
        let moved = |address: u64| self.move_address(address, address.wrapping_sub(1), replaced);
        frames.into_iter().map(moved).collect()
    }
}
