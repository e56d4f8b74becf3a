//! How much garbage there is ([`Garbage`]), and how much there may be ([`Limit`]).

/// Objects that were retired and are not reclaimed yet.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// How many.
    pub objects: u64,
    /// How many bytes they have, each rounded up to 16; without what they own.
    pub bytes: u64,
    /// For how many nanoseconds the oldest has been waiting, at least; of objects that came in together, the first counts.
    pub oldest_nanos: u64,
    /// How often a thread that retires has gone on although there was more than the [`Limit`], since the domain was made.
    /// Each time a reader has stayed in its section for longer than such a thread waits, or a thread has reclaimed for longer
    /// than that, or the thread does not wait at all ([`AtLimit`](super::AtLimit)).
    pub overruns: u64,
}

/// How much garbage there may be before a thread that retires waits, unless it never does ([`AtLimit`](super::AtLimit)). The
/// wait is bounded: while a reader stays in its section, the garbage grows beyond the limit ([`Garbage::overruns`]).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Objects.
    pub objects: u64,
    /// Bytes, as [`Garbage::bytes`] counts them.
    pub bytes: u64,
}

impl Limit {
    /// 100 000 objects, 64 MiB.
    pub const DEFAULT: Self = Limit { objects: 100_000, bytes: 64 << 20 };
}

impl Default for Limit {
    /// [`Limit::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}
