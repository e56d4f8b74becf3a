//! How a reader got in, as its token.

use crate::locks::Token;

/// How a reader got in.
pub enum ReadToken<S: 'static, T> {
    /// Through a slot, which this is.
    Fast(Filled<S>),
    /// Through the underlying lock; this is that lock's token.
    Slow(T),
}

/// A slot that a reader has filled. Another reader may fill it later, so safe code must not write to it.
pub struct Filled<S: 'static>(pub(super) &'static S);

impl<S> Clone for Filled<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Filled<S> {}

impl<S> Filled<S> {
    /// This slot.
    pub fn new(slot: &'static S) -> Self {
        Filled(slot)
    }

    /// The slot.
    ///
    /// # Safety
    ///
    /// The caller writes to it only to end the acquisition that the slot stands for.
    pub unsafe fn slot(self) -> &'static S {
        self.0
    }
}

impl<S, T: Copy> Clone for ReadToken<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, T: Copy> Copy for ReadToken<S, T> {}

/// As a word: the slot's address with the lowest bit set, or the word of the underlying token, with the lowest bit clear.
impl<S, T: Token> Token for ReadToken<S, T> {
    const HAS_FREE_BIT: bool = false;

    #[inline]
    fn into_word(self) -> usize {
        const { assert!(align_of::<S>() > 1 && T::HAS_FREE_BIT) };
        match self {
            ReadToken::Fast(Filled(slot)) => core::ptr::from_ref(slot).expose_provenance() | 1,
            ReadToken::Slow(token) => token.into_word(),
        }
    }

    #[inline]
    unsafe fn from_word(word: usize) -> Self {
        if word & 1 != 0 {
            // SAFETY: only `Fast` sets the bit, so the rest is the address of a slot. Slots are never freed.
            ReadToken::Fast(Filled(unsafe { &*core::ptr::with_exposed_provenance(word & !1) }))
        } else {
            // SAFETY: the bit is clear, so `into_word` made the word from the underlying token.
            ReadToken::Slow(unsafe { T::from_word(word) })
        }
    }
}
