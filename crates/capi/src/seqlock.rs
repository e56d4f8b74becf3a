//! `lw_seqlock_t`.

use crate::same_layout;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::seqlock::RawSeqLock;
use latchwork::machine::Native;
use std::slice;
use std::sync::atomic::AtomicUsize;

type SeqLock = RawSeqLock<RawShfl<Native>>;

same_layout!(SeqLock, 24, 8);

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_seqlock_read_slow(
    lock: *const SeqLock,
    copy: *mut usize,
    words: *const AtomicUsize,
    count: usize,
) {
    // SAFETY: the program passes a live lock, `count` words, and room for as many.
    unsafe {
        (*lock).read(slice::from_raw_parts(words, count), slice::from_raw_parts_mut(copy, count), || ())
    };
}
