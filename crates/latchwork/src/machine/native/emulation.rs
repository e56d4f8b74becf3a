//! Whether the processor is software that translates this process (user-mode emulation).
//!
//! An emulator executes a translation of the program. There a load may stand before a store that precedes it in the program:
//! the memory order of x86-64 permits it, and `membarrier` may interrupt between the two. Light fences would not be safe then
//! (the header of `fence`). No emulator was checked for it, so `fence` does without `membarrier` under all that are known.
//!
//! Emulators give their name in CPUID. An emulator that was told to hide its name is not found: `qemu-x86_64 -cpu
//! ...,tcg-cpuid=off`.

/// Names in CPUID.
#[cfg(any(test, target_arch = "x86_64"))]
struct Answers {
    /// Leaf 0: the vendor.
    vendor: [u8; 12],
    /// Leaf 0x40000000: the hypervisor; on a processor without one, something else.
    hypervisor: [u8; 12],
    /// Leaf 0x80000002: the beginning of the processor's name.
    name: [u8; 16],
}

#[cfg(any(test, target_arch = "x86_64"))]
impl Answers {
    fn are_an_emulators(&self) -> bool {
        // QEMU has this name also when it emulates a whole machine. That machine is slow anyway.
        &self.hypervisor == b"TCGTCGTCGTCG"
            || &self.hypervisor == b"FEXIFEXIEMU\0"
            || &self.vendor == b"VirtualApple" // Rosetta
            || self.name.starts_with(b"Box64 on ")
    }
}

/// Whether the processor is known to be an emulator.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_emulated() -> bool {
    use core::arch::x86_64::__cpuid;
    fn text<const N: usize>(words: impl IntoIterator<Item = u32>) -> [u8; N] {
        let mut text = [0; N];
        for (bytes, word) in text.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        text
    }
    let [vendor, hypervisor, name] = [0, 0x4000_0000, 0x8000_0002].map(__cpuid);
    let answers = Answers {
        vendor: text([vendor.ebx, vendor.edx, vendor.ecx]),
        hypervisor: text([hypervisor.ebx, hypervisor.ecx, hypervisor.edx]),
        name: text([name.eax, name.ebx, name.ecx, name.edx]),
    };
    answers.are_an_emulators()
}

/// Other processors have no instruction that a program can ask: an emulator is not found there.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn is_emulated() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulators_are_known_by_what_they_say() {
        let real = || Answers {
            vendor: *b"AuthenticAMD",
            hypervisor: *b"KVMKVMKVM\0\0\0",
            name: *b"AMD EPYC 9R14 96",
        };
        assert!(!real().are_an_emulators());
        for hypervisor in [*b"TCGTCGTCGTCG", *b"FEXIFEXIEMU\0"] {
            assert!(Answers { hypervisor, ..real() }.are_an_emulators());
        }
        assert!(Answers { vendor: *b"VirtualApple", ..real() }.are_an_emulators());
        assert!(Answers { name: *b"Box64 on Cortex-", ..real() }.are_an_emulators());
    }
}
