//! The names of the crate's thread-local words contain the crate's version, so an incompatible version of the crate in the
//! same program has words of its own.
#![cfg(target_arch = "x86_64")]

use latchwork::machine::{Machine, Native, Records};

#[test]
fn thread_local_words_are_named_after_the_version() {
    // These calls make the linker take the words in.
    // SAFETY: the node was taken just now; the row and the record are only read.
    unsafe {
        Native::release_node(Native::acquire_node());
        assert!(Native::reader_row().is_some());
        assert!(Native::record().number.load(std::sync::atomic::Ordering::Relaxed) > 0);
    }

    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"), "_");
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    // In the table of names, each name stands between zero bytes. The parts are joined here: otherwise the search would
    // find this test's own text.
    let start = ["\0__latch", "work_"].concat().into_bytes();
    let names: Vec<_> = program
        .windows(start.len())
        .enumerate()
        .filter(|(_, window)| *window == start)
        .map(|(at, _)| {
            let rest = &program[at + start.len()..];
            String::from_utf8_lossy(&rest[..rest.iter().position(|byte| *byte == 0).unwrap()]).into_owned()
        })
        .collect();
    assert!(names.len() >= 3, "the table of names is missing: {names:?}");
    assert!(names.iter().all(|name| name.starts_with(version)), "{names:?}");
}
