//! Thread-local words that are reached without a call. For this library and the preload library; not part of what
//! applications use.
//!
//! In a shared library `std::thread_local!` compiles to a call of `__tls_get_addr`, which may allocate. The
//! initial-exec model takes a few instructions and never allocates. Stable Rust has no switch for that model, so on x86-64 and
//! AArch64 [`thread_local_bytes!`] and [`thread_local_word!`] define and address the words in assembly. Elsewhere they use
//! `std::thread_local!`.
//!
//! The symbol of a word ends in the mangled name of a static of the same copy of the crate, which contains a hash of where the copy
//! comes from. A program may have two copies, of two versions or from two sources. Each has records and tables of its own, so that a
//! thread needs words of its own for each.

pub use crate::{thread_local_bytes, thread_local_word};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[doc(hidden)]
pub extern crate std;

/// A type of which zero bytes are a value.
///
/// # Safety
///
/// Zero bytes are a valid value, and need no destructor.
pub unsafe trait Zero {}

// SAFETY: 0 is a number.
unsafe impl Zero for u64 {}
// SAFETY: 0 is a number.
unsafe impl Zero for usize {}
// SAFETY: zero bytes are the null pointer.
unsafe impl<T> Zero for *mut T {}

/// A [`Zero`] type that fits into one register.
///
/// # Safety
///
/// Eight bytes, which an instruction moves as they are.
pub unsafe trait Word: Zero + Copy {}

// SAFETY: eight bytes.
unsafe impl Word for u64 {}
#[cfg(target_pointer_width = "64")]
// SAFETY: eight bytes.
unsafe impl Word for usize {}
#[cfg(target_pointer_width = "64")]
// SAFETY: eight bytes.
unsafe impl<T> Word for *mut T {}

/// How far the word that holds a thread's row of slots ([`ReaderRow`](crate::machine::ReaderRow), or null) is from the
/// thread pointer, in every thread. For the preload library's assembly.
#[cfg(target_arch = "x86_64")]
pub fn reader_row_offset() -> isize {
    super::rows::offset()
}

/// The symbol of a thread-local word, in assembly with the operand `copy`.
#[doc(hidden)]
#[macro_export]
macro_rules! thread_local_symbol {
    ($name:literal) => {
        concat!("__latchwork_", $name, "_{copy}")
    };
}

/// `thread_local_bytes!(Type: Contents = "name")` defines the type `Type`, whose function `address` says where the
/// calling thread has its `Contents`. They are zero bytes at first ([`Zero`]).
#[doc(hidden)]
#[macro_export]
macro_rules! thread_local_bytes {
    ($(#[$attribute:meta])* $visibility:vis $local:ident: $contents:ty = $name:literal) => {
        $(#[$attribute])*
        $visibility enum $local {}

        /// Its mangled name tells copies of the crate apart. A function would not do: a crate that uses a word may have an instance
        /// of its own, and functions that do the same are merged.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        #[allow(non_upper_case_globals, reason = "it has the name of the type")]
        static $local: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

        const _: () = {
            const fn zero_bytes_are_a_value<T: $crate::machine::native::tls::Zero>() {}
            zero_bytes_are_a_value::<$contents>();
            assert!(align_of::<$contents>() <= 8);
        };

        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        core::arch::global_asm!(
            concat!(".pushsection .tbss.", $crate::thread_local_symbol!($name), ",\"awT\",@nobits"),
            concat!(".weak ", $crate::thread_local_symbol!($name)),
            concat!(".hidden ", $crate::thread_local_symbol!($name)),
            concat!(".type ", $crate::thread_local_symbol!($name), ", @object"),
            concat!(".size ", $crate::thread_local_symbol!($name), ", {size}"),
            ".balign 8",
            concat!($crate::thread_local_symbol!($name), ":"),
            ".zero {size}",
            ".popsection",
            size = const size_of::<$contents>(),
            copy = sym $local,
        );

        #[allow(dead_code, reason = "not every user of the macro needs every function")]
        impl $local {
            /// Where the calling thread has its own.
            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            $visibility fn address() -> *mut $contents {
                let address;
                // SAFETY: the symbol is thread-local and defined in this link unit (above).
                unsafe {
                    core::arch::asm!(
                        concat!("mov {0}, qword ptr [rip + ", $crate::thread_local_symbol!($name), "@GOTTPOFF]"),
                        "add {0}, qword ptr fs:[0]",
                        out(reg) address,
                        copy = sym $local,
                        options(nostack, pure, readonly),
                    );
                }
                address
            }

            /// Where the calling thread has its own.
            #[cfg(target_arch = "aarch64")]
            #[inline(always)]
            $visibility fn address() -> *mut $contents {
                let address;
                // SAFETY: the symbol is thread-local and defined in this link unit (above).
                unsafe {
                    core::arch::asm!(
                        concat!("adrp {0}, :gottprel:", $crate::thread_local_symbol!($name)),
                        concat!("ldr {0}, [{0}, :gottprel_lo12:", $crate::thread_local_symbol!($name), "]"),
                        "mrs {1}, tpidr_el0",
                        "add {0}, {0}, {1}",
                        out(reg) address,
                        out(reg) _,
                        copy = sym $local,
                        options(nostack, pure, readonly, preserves_flags),
                    );
                }
                address
            }

            /// Where the calling thread has its own.
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            #[inline]
            $visibility fn address() -> *mut $contents {
                use core::cell::UnsafeCell;
                $crate::machine::native::tls::std::thread_local! {
                    // SAFETY: `Zero`, checked above.
                    static LOCAL: UnsafeCell<$contents> =
                        const { UnsafeCell::new(unsafe { core::mem::zeroed() }) };
                }
                LOCAL.with(UnsafeCell::get)
            }

            /// How far the address is from the thread pointer, in every thread.
            #[cfg(target_arch = "x86_64")]
            $visibility fn offset() -> isize {
                let offset;
                // SAFETY: the symbol is thread-local and defined in this link unit (above).
                unsafe {
                    core::arch::asm!(
                        concat!("mov {0}, qword ptr [rip + ", $crate::thread_local_symbol!($name), "@GOTTPOFF]"),
                        out(reg) offset,
                        copy = sym $local,
                        options(nostack, pure, readonly, preserves_flags),
                    );
                }
                offset
            }
        }
    };
}

/// [`thread_local_bytes!`] for contents that fit into a register ([`Word`]): also defines `get` and `set`.
#[doc(hidden)]
#[macro_export]
macro_rules! thread_local_word {
    ($(#[$attribute:meta])* $visibility:vis $local:ident: $contents:ty = $name:literal) => {
        $crate::thread_local_bytes!($(#[$attribute])* $visibility $local: $contents = $name);

        const _: () = {
            const fn fits_into_a_register<T: $crate::machine::native::tls::Word>() {}
            fits_into_a_register::<$contents>();
        };

        #[allow(dead_code, reason = "not every user of the macro needs every function")]
        impl $local {
            /// The calling thread's own.
            #[inline(always)]
            $visibility fn get() -> $contents {
                #[cfg(target_arch = "x86_64")]
                {
                    let contents;
                    // SAFETY: the symbol is thread-local and defined in this link unit (`thread_local_bytes`).
                    unsafe {
                        core::arch::asm!(
                            concat!("mov {0}, qword ptr [rip + ", $crate::thread_local_symbol!($name), "@GOTTPOFF]"),
                            "mov {0}, qword ptr fs:[{0}]",
                            out(reg) contents,
                            copy = sym $local,
                            options(nostack, readonly, preserves_flags),
                        );
                    }
                    contents
                }
                #[cfg(not(target_arch = "x86_64"))]
                // SAFETY: the address is that of the thread's own contents, which are initialised from the start.
                unsafe {
                    *Self::address()
                }
            }

            /// Replaces the calling thread's own.
            #[inline]
            $visibility fn set(contents: $contents) {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the symbol is thread-local and defined in this link unit (`thread_local_bytes`).
                unsafe {
                    core::arch::asm!(
                        concat!("mov {0}, qword ptr [rip + ", $crate::thread_local_symbol!($name), "@GOTTPOFF]"),
                        "mov qword ptr fs:[{0}], {1}",
                        out(reg) _,
                        in(reg) contents,
                        copy = sym $local,
                        options(nostack, preserves_flags),
                    );
                }
                #[cfg(not(target_arch = "x86_64"))]
                // SAFETY: the address is that of the thread's own contents.
                unsafe {
                    *Self::address() = contents;
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    crate::thread_local_word!(Number: u64 = "tests_number");
    crate::thread_local_bytes!(Numbers: [u64; 3] = "tests_numbers");

    // SAFETY: numbers.
    unsafe impl super::Zero for [u64; 3] {}

    #[test]
    fn each_thread_has_words_of_its_own_that_begin_as_zero() {
        let check = |number: u64| {
            assert_eq!(Number::get(), 0);
            Number::set(number);
            // SAFETY: the thread's own words.
            unsafe {
                assert_eq!(*Number::address(), number);
                assert_eq!(*Numbers::address(), [0; 3]);
                *Numbers::address() = [number; 3];
            }
        };
        check(7);
        std::thread::spawn(move || check(8)).join().unwrap();
        // SAFETY: the thread's own words.
        assert_eq!((Number::get(), unsafe { *Numbers::address() }), (7, [7; 3]));
    }
}
