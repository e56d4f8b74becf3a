//! The manual pages of section 3, `crates/capi/man/*.3`: made from the headers' comments and the programs in
//! `crates/capi/man/examples`, so that they say what the headers say.
//!
//! `LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-capi --test c man` writes them.

use super::*;
use std::fmt::Write;

/// The headers, and what each page is about in a few words.
const PAGES: [(&str, &str); 11] = [
    ("base", "names of locks, and programs that are compiled for debugging"),
    ("mutex", "a mutex that scales"),
    ("rwlock", "a reader-writer lock whose readers do not meet"),
    ("cond", "condition variables"),
    ("sem", "counting semaphores"),
    ("seqlock", "sequence locks"),
    ("locks", "every lock by type, or by a name that is chosen at run time"),
    ("rcu", "RCU, epochs, and quiescent-state-based RCU"),
    ("rcu_list", "linked lists that are read without locks"),
    ("rcu_map", "a hash map that is read without locks"),
    ("hazard", "hazard pointers"),
];

/// A function, or a macro that is used like one, with its comment.
struct Function {
    name: String,
    /// What it returns; empty for a macro.
    returns: String,
    arguments: Vec<String>,
    comment: String,
}

/// The text of a comment, without its marks.
fn uncomment(comment: &str) -> String {
    let text = comment.trim().trim_start_matches("/*").trim_end_matches("*/");
    text.lines()
        .map(|line| line.strip_prefix(" *").map_or(line, |line| line.strip_prefix(' ').unwrap_or(line)))
        .fold(String::new(), |all, line| all + line.trim_end() + "\n")
        .trim()
        .to_owned()
}

/// The declaration without attributes and body.
fn plain(declaration: &str) -> String {
    let mut text = declaration.split(" {").next().unwrap_or_default().replace("LW_INLINE ", "");
    while let Some(start) = text.find(" LW_").or_else(|| text.find(" __attribute__")) {
        let rest = &text[start + 1..];
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let mut end = name;
        if rest[name..].starts_with('(') {
            let mut depth = 0;
            for (at, c) in rest[name..].char_indices() {
                depth += i32::from(c == '(') - i32::from(c == ')');
                if depth == 0 {
                    end = name + at + 1;
                    break;
                }
            }
        }
        text.replace_range(start..start + 1 + end, "");
    }
    text.trim().trim_end_matches(';').split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The parts of `a, b(c, d)` at its outermost commas.
fn split_arguments(text: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in text.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("one at least").push(c);
        }
    }
    parts
        .iter()
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty() && part != "void")
        .collect()
}

fn function(declaration: &str, comment: &str) -> Option<Function> {
    if let Some(rest) = declaration.strip_prefix("#define ") {
        let (name, rest) = rest.split_once('(')?;
        let arguments = split_arguments(rest.split_once(')')?.0);
        return name.starts_with("lw_").then(|| Function {
            name: name.to_owned(),
            returns: String::new(),
            arguments,
            comment: comment.to_owned(),
        });
    }
    let text = plain(declaration);
    let (before, rest) = text.split_once('(')?;
    let at = before.rfind([' ', '*'])? + 1;
    let (returns, name) = before.split_at(at);
    let is_public = name.starts_with("lw_") && !name.ends_with('_') && !name.ends_with("_slow");
    (is_public && !text.starts_with("typedef")).then(|| Function {
        name: name.to_owned(),
        returns: returns.trim().to_owned(),
        arguments: split_arguments(rest.strip_suffix(')').unwrap_or(rest)),
        comment: comment.to_owned(),
    })
}

/// The comment at the top of a header, and its functions. A comment is for the declarations that follow without an empty
/// line or another comment in between.
fn parse(header: &str) -> (String, Vec<Function>) {
    let (mut top, mut comment, mut functions) = (None, String::new(), Vec::new());
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        let mut item = line.to_owned();
        if line.starts_with("/*") {
            while !item.trim_end().ends_with("*/") {
                item = item + "\n" + lines.next().expect("the comment ends");
            }
            comment = uncomment(&item);
            top.get_or_insert_with(|| comment.clone());
        } else if line.is_empty() {
            comment.clear();
        } else if line.starts_with("#define lw_") || !line.starts_with([' ', '#', '}']) && line.contains('(')
        {
            while !item.contains([';', '{']) && !item.starts_with('#') {
                item = item + " " + lines.next().expect("the declaration ends").trim();
            }
            functions.extend(function(&item, &comment));
        }
    }
    (top.expect("a header begins with a comment"), functions)
}

/// A line of text for mdoc.
fn escape(line: &str) -> String {
    let line = line.replace('\\', "\\e");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

/// A sentence, in lines that mandoc does not call too long.
fn wrapped(out: &mut String, sentence: &str) {
    let mut line = String::new();
    for word in sentence.split(' ') {
        if line.len() + 1 + word.len() > 78 {
            let _ = writeln!(out, "{}", escape(&line));
            line.clear();
        }
        line += if line.is_empty() { "" } else { " " };
        line += word;
    }
    let _ = writeln!(out, "{}", escape(&line));
}

/// Text of a comment as mdoc: paragraphs; examples and tables as they stand.
fn text(out: &mut String, comment: &str) {
    let is_literal = |line: &str| line.starts_with("    ") || line.starts_with('|');
    let mut literal = false;
    for (at, line) in comment.lines().enumerate() {
        if line.is_empty() {
            let next = comment.lines().nth(at + 1).unwrap_or_default();
            if literal && is_literal(next) {
                out.push('\n');
            } else if !is_literal(next) && !literal {
                out.push_str(".Pp\n");
            }
            if literal && !is_literal(next) {
                out.push_str(".Ed\n.Pp\n");
                literal = false;
            }
            continue;
        }
        if is_literal(line) != literal {
            out.push_str(if literal { ".Ed\n" } else { ".Bd -literal\n" });
            literal = !literal;
        }
        if literal {
            let _ = writeln!(out, "{}", escape(line.strip_prefix("    ").unwrap_or(line)));
        } else {
            // Each sentence begins a line: so mdoc knows where it ends.
            for sentence in line.trim_start().replace(". ", ".\n").lines() {
                wrapped(out, sentence);
            }
        }
    }
    if literal {
        out.push_str(".Ed\n");
    }
}

fn page(name: &str, about: &str, header: &str, example: &str) -> String {
    let (top, functions) = parse(header);
    assert!(!functions.is_empty(), "{name}.h");
    let title = if name == "base" { "lw_name".to_owned() } else { format!("lw_{name}") };
    let mut out = format!(
        ".\\\" Generated from latchwork/{name}.h. To change it, see crates/capi/tests/c/man.rs.\n.Dd November 23, 2026\n.Dt {} 3\n\
         .Os\n.Sh NAME\n",
        title.to_uppercase()
    );
    for (at, function) in functions.iter().enumerate() {
        let comma = if at + 1 < functions.len() { " ," } else { "" };
        let _ = writeln!(out, ".Nm {}{comma}", function.name);
    }
    let _ = writeln!(out, ".Nd {about}\n.Sh SYNOPSIS\n.In latchwork/{name}.h");
    for Function { name, returns, arguments, .. } in &functions {
        if !returns.is_empty() {
            let _ = writeln!(out, ".Ft \"{returns}\"");
        }
        let _ = write!(out, ".Fn {name}");
        for argument in arguments {
            let _ = write!(out, " \"{argument}\"");
        }
        out.push('\n');
    }
    out.push_str(".Pp\nLink with\n.Fl llatchwork .\n.Sh DESCRIPTION\n");
    text(&mut out, &top);
    out.push_str(".Bl -tag -width Ds\n");
    for Function { name, comment, .. } in &functions {
        let _ = writeln!(out, ".It Fn {name}");
        text(&mut out, if comment.is_empty() { "As above." } else { comment });
    }
    out.push_str(".El\n.Sh EXAMPLES\n.Bd -literal\n");
    example.lines().for_each(|line| _ = writeln!(out, "{}", escape(line)));
    out.push_str(".Ed\n.Sh SEE ALSO\n.Xr latchwork 1 ,\n");
    let mut others: Vec<_> = PAGES.iter().map(|(other, _)| *other).filter(|other| *other != name).collect();
    others.sort_unstable_by_key(|other| if *other == "base" { "name" } else { other });
    for (at, other) in others.iter().enumerate() {
        let comma = if at + 1 < others.len() { " ," } else { "" };
        let _ = writeln!(out, ".Xr lw_{} 3{comma}", if *other == "base" { "name" } else { other });
    }
    out
}

/// The headers for C++ below `latchwork.hpp`, in the order of the page.
const CPP_HEADERS: [&str; 11] = [
    "mutex.hpp",
    "shared_mutex.hpp",
    "upgrade.hpp",
    "locks.hpp",
    "condition_variable.hpp",
    "semaphore.hpp",
    "seqlock.hpp",
    "rcu_ptr.hpp",
    "rcu",
    "hazard_pointer",
    "rcu_map",
];

/// The comment at the top of a header for C++: one of C, or lines that begin with `//` (the first says the language).
fn cpp_top(header: &str) -> String {
    if header.starts_with("/*") {
        return uncomment(header.split_inclusive("*/").next().expect("the comment ends"));
    }
    let lines = header.lines().skip(1).map_while(|line| line.strip_prefix("//"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The page of the classes for C++: what each header says at its top.
fn cpp_page() -> String {
    let include = manifest().join("include");
    let mut out = ".\\\" Generated from latchwork.hpp and the headers below it. To change it, see crates/capi/tests/c/man.rs.\n\
        .Dd November 23, 2026\n.Dt LW_CPP 3\n.Os\n.Sh NAME\n.Nm lw_cpp\n.Nd the classes of latchwork for C++\n\
        .Sh SYNOPSIS\n.In latchwork.hpp\n.Pp\nLink with\n.Fl llatchwork .\n.Sh DESCRIPTION\n"
        .to_owned();
    text(&mut out, &cpp_top(&read(include.join("latchwork.hpp"))));
    for name in CPP_HEADERS {
        let _ = writeln!(out, ".Ss latchwork/{name}");
        text(&mut out, &cpp_top(&read(include.join("latchwork").join(name))));
    }
    out.push_str(".Sh EXAMPLES\n.Bd -literal\n");
    let example = read(directory().join("examples/cpp.cpp"));
    example.lines().for_each(|line| _ = writeln!(out, "{}", escape(line)));
    out.push_str(".Ed\n.Sh SEE ALSO\n.Xr latchwork 1 ,\n.Xr lw_hazard 3 ,\n.Xr lw_mutex 3 ,\n.Xr lw_rcu 3 ,\n.Xr lw_rwlock 3\n");
    out
}

fn directory() -> PathBuf {
    manifest().join("man")
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Compares a page with the file, or writes the file; and has mandoc look at it.
fn check(file: &Path, page: &str) {
    if env::var_os("LATCHWORK_WRITE_DOCS").is_some() {
        fs::write(file, page).unwrap();
    }
    let now = fs::read_to_string(file).unwrap_or_default();
    assert!(now == page, "{} is old: LATCHWORK_WRITE_DOCS=1 writes it anew", file.display());
    if Command::new("mandoc").arg("-V").output().is_ok() {
        // Not about references: the other pages need not be installed here.
        let linted = output(Command::new("mandoc").args(["-T", "lint"]).arg(file));
        let text = String::from_utf8_lossy(&linted.stdout).into_owned();
        let hints: Vec<_> =
            text.lines().filter(|hint| !hint.contains("referenced manual not found")).collect();
        assert!(hints.is_empty(), "{hints:#?}");
    }
}

#[test]
fn the_manual_pages_are_those_of_the_headers() {
    for (name, about) in PAGES {
        let header = read(manifest().join(format!("include/latchwork/{name}.h")));
        let example = read(directory().join(format!("examples/{name}.c")));
        let page = page(name, about, &header, &example);
        let file = directory().join(format!("lw_{}.3", if name == "base" { "name" } else { name }));
        check(&file, &page);
    }
    check(&directory().join("lw_cpp.3"), &cpp_page());
}

/// Each function that the library exports for programs, and each inline one of the default locks, has a page.
#[test]
fn each_function_has_a_page() {
    let pages: String = PAGES
        .iter()
        .map(|(name, _)| format!("lw_{}.3", if *name == "base" { "name" } else { name }))
        .map(|file| fs::read_to_string(directory().join(file)).unwrap())
        .collect();
    let list = fs::read_to_string(manifest().join("exports")).unwrap();
    // Not functions, slow paths, tables of the registered locks, and what latchwork.h says by itself.
    let is_inner = |name: &&str| {
        name.ends_with("_slow")
            || name.ends_with("_ops")
            || name.starts_with("lw_thread")
            || *name == "lw_names"
    };
    let missing: Vec<_> =
        list.lines().filter(|name| !is_inner(name) && !pages.contains(&format!(".It Fn {name}\n"))).collect();
    assert!(missing.is_empty(), "no page has {missing:?}");
}

#[test]
fn the_examples_of_the_manual_pages_run() {
    if is_there("gcc") {
        for (name, _) in PAGES {
            let source = format!("../../man/examples/{name}.c");
            Build { compiler: "gcc", standard: "c11", source: &source, link: Link::Shared, more: &[] }.run();
        }
    }
    if is_there("g++") {
        let source = "../../man/examples/cpp.cpp";
        Build { compiler: "g++", standard: "c++17", source, link: Link::Shared, more: &[] }.run();
    }
}
