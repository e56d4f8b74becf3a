//! Name and summary of a composition, joined from those of its parts at compile time.

use super::publish::Publish;
use crate::locks::rwlock::RawRwLock;
use crate::machine::Machine;
use core::marker::PhantomData;

/// Name and summary of BRAVO with slots `P` over `R`.
pub(super) struct Described<M, R, P>(PhantomData<(M, R, P)>);

impl<M: Machine, R: RawRwLock, P: Publish<M>> Described<M, R, P> {
    pub const NAME: &'static str = text(&Self::NAME_BYTES, P::PREFIX.len() + R::INFO.name.len());
    const NAME_BYTES: [u8; TEXT] = join(P::PREFIX, R::INFO.name);
    pub const SUMMARY: &'static str = text(&Self::SUMMARY_BYTES, P::SUMMARY.len() + R::INFO.summary.len());
    const SUMMARY_BYTES: [u8; TEXT] = join(P::SUMMARY, R::INFO.summary);
}

/// Bytes of the longest joined text. A longer one does not compile.
const TEXT: usize = 160;

const fn join(first: &str, second: &str) -> [u8; TEXT] {
    let mut bytes = [0; TEXT];
    let (head, tail) = bytes.split_at_mut(first.len());
    head.copy_from_slice(first.as_bytes());
    tail.split_at_mut(second.len()).0.copy_from_slice(second.as_bytes());
    bytes
}

const fn text(bytes: &'static [u8; TEXT], length: usize) -> &'static str {
    match core::str::from_utf8(bytes.split_at(length).0) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    }
}
