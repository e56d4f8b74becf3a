//! Problems that are known, and are not reported: patterns for the functions and files in their stacks.

use std::sync::OnceLock;

static IGNORED: OnceLock<&'static [u8]> = OnceLock::new();

/// Leaves out each problem that has, in one of its stacks, a function or a file with code whose name matches one of these patterns: one in
/// each line, in which `*` stands for any bytes and `?` for any one byte. A file goes by its name without directories. Empty lines
/// and those that begin with `#` say nothing. To be called once, before there are any problems; later calls have no effect.
pub fn ignore(patterns: &'static [u8]) {
    let _ = IGNORED.set(patterns);
}

/// Whether some problems are left out.
pub(crate) fn are_some() -> bool {
    IGNORED.get().is_some_and(|patterns| lines(patterns).next().is_some())
}

pub(crate) fn is_ignored(name: &[u8]) -> bool {
    IGNORED.get().is_some_and(|patterns| lines(patterns).any(|pattern| matches(pattern, name)))
}

fn lines(patterns: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = patterns.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"))
}

/// Whether a name matches a pattern, in which `*` stands for any bytes and `?` for any one byte.
#[doc(hidden)]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    // The last star, and where the bytes end that it stands for so far.
    let mut star = None;
    while position < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[position] => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((star_at, end)) = star else { return false };
                star = Some((star_at, end + 1));
                (at, position) = (star_at + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
