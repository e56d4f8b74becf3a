//! `SeqLock`.

use crate::locks::mutex::shfl::RawShfl;
use crate::locks::seqlock;
use crate::machine::Native;

/// A few words that readers copy without a lock.
pub type SeqLock<const WORDS: usize> = seqlock::SeqLock<RawShfl<Native>, WORDS>;
