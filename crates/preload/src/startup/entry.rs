//! The exported symbols.
//!
//! Each symbol is one indirect jump through [`ENTRIES`], so a call runs the function of the chosen lock, with that lock's
//! fast path inlined. Until the process is set up, each slot holds a function that sets it up and jumps again: pthread
//! calls may come before this library's constructor.

use super::early::Argument;
use super::set_up;
use crate::state::interface::interface;
use crate::state::table::*;
use libc::{c_int, c_void};

macro_rules! entries {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty =
        $($symbol:ident [$($version:literal),*])*, real $real:literal $real_version:literal;)*) => {
        /// What the exported symbols jump through: until [`publish`], functions that set up the process.
        pub(super) static ENTRIES: Table = Table { $($name: Slot::new(first_call::$name),)* };

        mod first_call {
            use super::*;
            $(pub(super) unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
                // SAFETY: the program's call, with the program's arguments.
                unsafe {
                    let left = !set_up() && true $(& $arg.leave_to_glibc(stringify!($name)))*;
                    let table = if left { &REAL } else { &TABLE };
                    table.$name.get()($($arg),*)
                }
            })*
        }

        $(
            #[cfg(versioned)]
            core::arch::global_asm!(
                concat!(".pushsection .text.latchwork_entry_", stringify!($name), ",\"ax\",@progbits"),
                concat!(".globl latchwork_entry_", stringify!($name)),
                concat!(".type latchwork_entry_", stringify!($name), ", @function"),
                ".balign 16",
                concat!("latchwork_entry_", stringify!($name), ":"),
                "jmp qword ptr [rip + {table} + {offset}]",
                concat!(".size latchwork_entry_", stringify!($name), ", . - latchwork_entry_", stringify!($name)),
                $($(concat!(".symver latchwork_entry_", stringify!($name), ", ", stringify!($symbol), $version),)*)*
                ".popsection",
                table = sym ENTRIES,
                offset = const core::mem::offset_of!(Table, $name),
            );
        )*

        #[cfg(not(versioned))]
        mod unversioned {
            use super::*;
            entries!(@plain $($name ($($arg: $type),*) -> $ret = $($symbol)*;)*);
        }
    };

    (@plain $($name:ident $args:tt -> $ret:ty = $($symbol:ident)*;)*) => {
        $($(entries!(@symbol $symbol $name $args -> $ret);)*)*
    };

    // A jump as above: what is called sees the program's own call (`profile` asks for its return address).
    (@symbol $symbol:ident $name:ident ($($arg:ident: $type:ty),*) -> $ret:ty) => {
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $symbol($(_: $type),*) -> $ret {
            core::arch::naked_asm!(
                "hint #34", // bti c
                "adrp x16, {table} + {offset}",
                "ldr x16, [x16, :lo12:{table} + {offset}]",
                "br x16",
                table = sym ENTRIES,
                offset = const core::mem::offset_of!(Table, $name),
            )
        }

        #[cfg(not(target_arch = "aarch64"))]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol($($arg: $type),*) -> $ret {
            // SAFETY: the program's call, with the program's arguments.
            unsafe { ENTRIES.$name.get()($($arg),*) }
        }
    };
}

interface!(entries);

/// From now on the exported symbols jump to the functions in the table.
pub(super) fn publish() {
    // A fork handler of the program's must be registered after ours, which are registered last. So the entry for that keeps
    // waiting for the end of the set-up.
    TABLE.register_atfork.set(ENTRIES.register_atfork.get());
    ENTRIES.copy_from(&TABLE);
    TABLE.register_atfork.set(REAL.register_atfork.get());
}

/// The same again, after the table has changed. Other threads may call the symbols meanwhile.
pub(super) fn publish_again() {
    let waits = ENTRIES.register_atfork.get();
    ENTRIES.copy_from(&TABLE);
    ENTRIES.register_atfork.set(waits);
}
