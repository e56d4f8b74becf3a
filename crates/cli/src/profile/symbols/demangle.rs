//! Names as programmers write them.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longest name that is shown with its template arguments: half a line. Those of nested templates have thousands of
/// characters.
const LONGEST: usize = 60;

/// Longest name that is shown whole.
const CUT: usize = 160;

/// The name of a function or variable without parameters, return type and, if it is long, template arguments.
pub(super) fn demangle(name: &str) -> String {
    // Symbol versions: `f@@V1`.
    let name = name.split('@').next().expect("one part");
    // `f.part.0`, `f.cold`, `f.constprop.0`: parts and copies that gcc makes.
    let plain =
        name.split_once('.').map_or(name, |(before, _)| if before.is_empty() { name } else { before });
    // Old Rust names have dots inside, in place of `::`.
    let text = rust(plain).or_else(|| rust(name)).or_else(|| cpp(plain));
    shorten(&text.unwrap_or_else(|| plain.to_owned()))
}

fn rust(name: &str) -> Option<String> {
    // An old Rust name is also a C++ name; the hash at its end tells them apart, which the library looks at.
    Some(format!("{:#}", rustc_demangle::try_demangle(name).ok()?))
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    let (name, replaced) = in_ascii(name);
    let symbol = Symbol::new_with_options(name.as_bytes(), &ParseOptions::default()).ok()?;
    let options = DemangleOptions::new().no_params().no_return_type();
    let mut text = symbol.demangle_with_options(&options).ok()?.replace("[abi:cxx11]", "");
    for (placeholder, identifier) in replaced {
        text = text.replace(&placeholder, &identifier);
    }
    Some(text)
}

/// A C++ name with other identifiers in place of those that are not ASCII, which the library does not take: what was put in, and for what.
/// An identifier follows the number of its bytes.
fn in_ascii(name: &str) -> (String, Vec<(String, String)>) {
    let (mut name, mut replaced) = (name.to_owned(), Vec::new());
    while let Some(at) = name.bytes().position(|byte| !byte.is_ascii()) {
        let before = &name[..at];
        let Some(digits) = before.rfind(|char: char| char.is_ascii_digit()) else { break };
        let start = before[..=digits].trim_end_matches(|char: char| char.is_ascii_digit()).len();
        let end =
            name[start..=digits].parse().ok().and_then(|length: usize| (digits + 1).checked_add(length));
        let Some(identifier) = end.filter(|end| *end > at).and_then(|end| name.get(digits + 1..end)) else {
            break;
        };
        // No program has such a name, and none of these begins another one.
        let placeholder = format!("Latchwork_{:04}_", replaced.len());
        let numbered = format!("{}{placeholder}", placeholder.len());
        replaced.push((placeholder, identifier.to_owned()));
        name.replace_range(start..digits + 1 + replaced[replaced.len() - 1].1.len(), &numbered);
    }
    (name, replaced)
}

/// Leaves out what stands in the outermost `<...>` of a long name.
fn shorten(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let (mut text, mut depth) = (String::new(), 0_u32);
    let mut before = ' ';
    for char in name.chars() {
        match char {
            // `operator<`, `operator->` and `->` are no brackets.
            '<' if !text.ends_with("operator") => {
                if depth == 0 {
                    text += "<..>";
                }
                depth += 1;
            }
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => text.push(char),
            _ => {}
        }
        before = char;
    }
    match text.char_indices().nth(CUT) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (symbol, name) in [
            ("main", "main"),
            ("free_unlock.part.0", "free_unlock"),
            ("pthread_mutex_lock@@GLIBC_2.2.5", "pthread_mutex_lock"),
            ("_ZNSt5mutex4lockEv", "std::mutex::lock"),
            (
                "_ZN7leveldb6DBImpl3GetERKNS_11ReadOptionsERKNS_5SliceEPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
                "leveldb::DBImpl::Get",
            ),
            ("_ZNSt10lock_guardISt5mutexEC2ERS0_", "std::lock_guard<std::mutex>::lock_guard"),
            ("_ZN15Größentabelle9einfügenEi", "Größentabelle::einfügen"),
            ("_ZZ4instILi87EER15GrößentabellevE1t", "inst<87>()::t"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            (
                "_ZN3std4sync5mutex14Mutex$LT$T$GT$4lock17h0123456789abcdefE",
                "std::sync::mutex::Mutex<T>::lock",
            ),
            (
                "_ZN57_$LT$cache..Table$LT$T$GT$$u20$as$u20$core..ops..Drop$GT$4drop17h0123456789abcdefE",
                "<cache::Table<T> as core::ops::Drop>::drop",
            ),
            (
                "_ZN4core3ops8function6FnOnce40call_once$u7b$$u7b$vtable.shim$u7d$$u7d$17h0123456789abcdefE",
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            ),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    #[test]
    fn a_long_name_loses_its_template_arguments() {
        let long = format!("a<{}>::b<c->d, int>::operator<", "x<y>".repeat(60));
        assert_eq!(shorten(&long), "a<..>::b<..>::operator<");
        assert_eq!(shorten(&"é".repeat(400)).chars().count(), CUT + 1);
    }
}
