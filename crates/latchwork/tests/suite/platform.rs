//! The crate's page says which glibc and which Linux it needs: this compares it with what the program is linked to, and
//! with the system calls in the source.

/// The crate's page.
const PAGE: &str = include_str!("../../src/lib.rs");

/// The system calls of the crate, and the Linux in which each, as the crate uses it, is new. (A program that calls another
/// one names it here.)
const CALLS: &[(&str, (u32, u32))] = &[
    ("clone", (2, 6)),
    ("close", (2, 6)),
    ("exit_group", (2, 6)),
    ("futex", (2, 6)),
    // `MEMBARRIER_CMD_PRIVATE_EXPEDITED`.
    ("membarrier", (4, 14)),
    ("mmap", (2, 6)),
    ("mmap2", (2, 6)),
    ("openat", (2, 6)),
    ("prctl", (2, 6)),
    ("read", (2, 6)),
    ("sched_getaffinity", (2, 6)),
    ("sched_getscheduler", (2, 6)),
    ("write", (2, 6)),
];

/// The version on the page that stands between `before` and " or newer".
fn stated(before: &str) -> (u32, u32) {
    let (_, rest) = PAGE.split_once(before).unwrap_or_else(|| panic!("the page does not say {before:?}"));
    let version = rest.split(" or newer").next().unwrap().trim();
    let (major, minor) = version.split_once('.').unwrap_or_else(|| panic!("no version: {version:?}"));
    (major.parse().unwrap(), minor.parse().unwrap())
}

/// The versions of glibc's symbols that this program was linked to.
#[test]
fn no_newer_glibc_is_needed_than_the_page_says() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    // The parts are joined here: otherwise the search would find this test's own text.
    let start = ["\0GLI", "BC_"].concat().into_bytes();
    let versions: Vec<(u32, u32)> = program
        .windows(start.len())
        .enumerate()
        .filter(|(_, window)| *window == start)
        .filter_map(|(at, _)| {
            let rest = &program[at + start.len()..];
            let text = std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()?;
            let mut numbers = text.split('.').map(|number| number.parse());
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        })
        .collect();
    let newest = versions.iter().max().expect("glibc's versions are in the program");
    assert!(*newest <= stated("Linux with glibc"), "linked to glibc {newest:?}: {versions:?}");
}

/// Each system call in the source is listed above, and the page states the newest Linux that they need.
#[test]
fn no_newer_linux_is_needed_than_the_page_says() {
    let mut sources = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut calls = std::collections::BTreeSet::new();
    while let Some(path) = sources.pop() {
        if path.is_dir() {
            sources.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        calls.extend(
            text.split("libc::SYS_").skip(1).map(|rest| {
                rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_string()
            }),
        );
    }
    let listed: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    assert!(calls.iter().eq(listed.iter()), "in the source: {calls:?}; listed here: {listed:?}");
    assert_eq!(CALLS.iter().map(|(_, linux)| *linux).max().unwrap(), stated("and Linux"));
}
