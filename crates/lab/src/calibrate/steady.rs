//! Whether this is still the machine that was calibrated.
//!
//! A hypervisor moves virtual CPUs: two of them may share a core now and be in different caches a
//! second later, and a line's way between them is 6 ns, or 130. What is measured then is another
//! machine than the profile's.

use super::places::Places;
use super::{memory, sample::Sample};

/// The way of a line between two CPUs.
pub struct Probe {
    /// None if there is one CPU.
    pair: Option<(usize, usize)>,
    /// In nanoseconds.
    first: f64,
}

impl Probe {
    /// Measures it for the first time.
    pub fn new() -> Self {
        let mut probe = Probe { pair: Places::here().nearest(), first: 0.0 };
        probe.first = probe.way();
        probe
    }

    fn way(&self) -> f64 {
        let values = self.pair.and_then(|(from, to)| memory::transfer(from, to, true));
        values.map_or(0.0, |values| Sample::of(&values).median)
    }

    /// How long it was, in nanoseconds; 0 if there is one CPU.
    pub fn nanos(&self) -> f64 {
        self.first
    }

    /// Whether it is still about as long.
    pub fn same(&self) -> bool {
        alike(self.first, self.way())
    }
}

/// Clock frequencies and neighbours make a difference of a third; another core makes one of 4.
fn alike(one: f64, other: f64) -> bool {
    one <= 2.0 * other && other <= 2.0 * one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_is_alike_and_another_core_is_not() {
        assert!(alike(30.0, 40.0) && alike(0.0, 0.0));
        assert!(!alike(30.0, 6.0) && !alike(30.0, 126.0));
    }
}
