//! Static probes (USDT) on the contended paths, for `bpftrace`, `perf` and `stap`: `usdt:liblatchwork.so:latchwork:wait_begin`.
//!
//! A probe is one `nop`, and a note in the file that says where it is and in which registers its arguments are. The format is
//! that of SystemTap's `sys/sdt.h`, version 3.
//!
//! | probe | arguments | when |
//! |---|---|---|
//! | `wait_begin` | object, how | a thread enters a slow path, and may wait |
//! | `wait_end` | object, how | it has left that |
//! | `synchronize_begin`, `synchronize_end` | 0, 0 | a thread waits for readers |
//!
//! `how` is that of `lw_debug_acquire`; 16: condition variable; 32: semaphore.

/// A probe with two arguments.
macro_rules! probe {
    ($name:literal, $object:expr, $how:expr) => {{
        #[cfg(target_arch = "x86_64")]
        $crate::probe::note!($name, "8@%rax 4@%edx", "rax" $object, "edx" $how);
        #[cfg(target_arch = "aarch64")]
        $crate::probe::note!($name, "8@x0 4@x1", "x0" $object, "w1" $how);
    }};
}

/// The instruction, and the note.
macro_rules! note {
    ($name:literal, $places:literal, $first:tt $object:expr, $second:tt $how:expr) => {
        // SAFETY: the instruction does nothing; the sections are data that the program does not use.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte 0",
                ".asciz \"latchwork\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $places, "\""),
                "994: .balign 4",
                ".popsection",
                // Tools compare its address with that of the file's section, in case the file was prelinked.
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                in($first) $object,
                in($second) $how,
                options(nostack, preserves_flags, readonly),
            );
        }
    };
}

pub(crate) use {note, probe};
