//! The text of the file, with the reasons as comments.

use super::{Config, Place};
use std::fmt::Write as _;

/// The text. `head` are lines of comment for the whole, and `reasons` for each entry.
pub fn text(config: &Config, head: &[String], reasons: &[Vec<String>]) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("a String takes all");
    // TOML has no control characters in comments.
    let comment = |text: &String| format!("# {}", text.replace(char::is_control, " "));
    head.iter().for_each(|text| line(comment(text)));
    line(format!("version = {}", config.version));
    if let Some(machine) = &config.machine {
        line("\n[machine]".into());
        line(format!("processor = {}", string(&machine.processor)));
        line(format!("cpus = {}", machine.cpus));
    }
    line("\n# What all locks get that no entry below names.".into());
    line("[default]".into());
    line(format!("mutex = {}", string(&config.default.mutex)));
    line(format!("rwlock = {}", string(&config.default.rwlock)));
    for (name, module) in &config.module {
        line(format!("\n[module.{name}]"));
        line(format!("path = {}", string(&module.path.to_string_lossy())));
        line(format!("build-id = {}", string(&module.build_id)));
    }
    for (number, entry) in config.lock.iter().enumerate() {
        line(String::new());
        reasons.get(number).into_iter().flatten().for_each(|text| line(comment(text)));
        line("[[lock]]".into());
        line(format!("name = {}", string(&entry.name)));
        line(format!("kind = {}", string(&entry.kind)));
        line(format!("use = {}", string(&entry.lock)));
        if !entry.objects.is_empty() {
            line(list("static = [", entry.objects.iter().map(place)));
        }
        if !entry.from.is_empty() {
            let sites = entry.from.iter().map(|frames| list("[", frames.iter().map(place)));
            line(list("from = [", sites));
        }
    }
    out
}

/// A list, on one line if it is short.
fn list(start: &str, items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    let short = items.iter().map(String::len).sum::<usize>() < 90;
    if short {
        format!("{start}{}]", items.join(", "))
    } else {
        format!("{start}\n  {},\n]", items.join(",\n  "))
    }
}

fn place(place: &Place) -> String {
    let symbol = match &place.symbol {
        None => String::new(),
        Some((name, 0)) => format!(" {name}"),
        Some((name, offset)) => format!(" {name}+{offset:#x}"),
    };
    string(&format!("{} {:#x}{symbol}", place.module, place.address))
}

/// A basic string of TOML.
fn string(text: &str) -> String {
    let mut out = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            char if char.is_control() => {
                write!(out, "\\u{:04x}", u32::from(char)).expect("a String takes all")
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Defaults, Entry, Machine, Module};
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_is_written_is_read() {
        let machine = Machine { processor: "a \"fast\" one\\".into(), cpus: 4 };
        let mut config = Config::new(machine, Defaults { mutex: "shfl".into(), rwlock: "glibc".into() });
        let module = Module { path: PathBuf::from("/bin/ä\tserver"), build_id: "ab12".into() };
        config.module.insert("server".into(), module);
        let place = |text: &str| Place::try_from(text.to_owned()).unwrap();
        config.lock.push(Entry {
            name: "mutex of a<b> (c.cc:1)".into(),
            kind: "mutex".into(),
            lock: "mcs".into(),
            objects: vec![place("server 0x1"), place("server 0x2 table+0x8")],
            from: vec![vec![place("server 0x3 f"); 6], vec![place("server 0x4 g+0x1")]],
        });
        let text = text(&config, &["by hand".into()], &[vec!["it is hot\n".into()]]);
        assert!(text.starts_with("# by hand\nversion = 1\n") && text.contains("# it is hot"), "{text}");
        let read = Config::parse(&text).unwrap();
        assert_eq!((read.default, read.module, read.lock), (config.default, config.module, config.lock));
        assert_eq!(read.machine, config.machine);
    }
}
