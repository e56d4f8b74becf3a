//! Runs the tests of `src/index.rs`: the library itself has none, because it would interpose the test harness.

#[path = "../src/index.rs"]
#[allow(dead_code)]
mod index;

/// The part of `src/place.rs` that the index uses.
mod place {
    pub(crate) fn pages(bytes: usize) -> *mut u8 {
        // SAFETY: an anonymous private mapping.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        memory.cast()
    }
}
