//! The names of the crate's thread-local words contain a hash of where this copy of the crate comes from. So another copy in the same
//! program, of another version or from another source, has words of its own: the words lead to records and tables that each copy
//! has for itself.
#![cfg(target_arch = "x86_64")]

use latchwork::machine::{Machine, Native, Records};

#[test]
fn thread_local_words_are_those_of_this_copy_of_the_crate() {
    // These calls make the linker take the words in.
    // SAFETY: the node was taken just now; the row and the record are only read.
    unsafe {
        Native::release_node(Native::acquire_node());
        assert!(Native::reader_row().is_some());
        assert!(Native::record().number.load(std::sync::atomic::Ordering::Relaxed) > 0);
    }

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
    // A mangled name, of which the compiler sees to it that no other copy has it: `_ZN9latchwork...17h0123456789abcdefE` or
    // `_R...Cs0123456789_9latchwork...`.
    for name in names {
        let mangled = name.split_once("_ZN9latchwork").is_some_and(|(_, path)| path.contains("17h"));
        assert!(mangled || name.contains("_9latchwork") && name.contains("_R"), "{name}");
    }
}
