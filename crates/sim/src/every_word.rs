//! The words that both machines have, under the same names.

/// Makes each word with `$word`, and arithmetic on those that have it with `$arith`.
macro_rules! every_word {
    ($word:ident, $arith:ident) => {
        $word!(
            /// An 8-bit word.
            U8, AtomicU8, u8
        );
        $word!(
            /// A 32-bit word.
            U32, AtomicU32, u32
        );
        $word!(
            /// A 64-bit word.
            U64, AtomicU64, u64
        );
        $word!(
            /// A pointer-sized word.
            Usize, AtomicUsize, usize
        );
        $word!(
            /// A word that holds a pointer.
            Ptr<T>, AtomicPtr<T>, *mut T
        );
        $arith!(U32, u32);
        $arith!(U64, u64);
        $arith!(Usize, usize);
    };
}
