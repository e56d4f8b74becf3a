//! One file of the program, with its symbols and its debug information.

use super::debug::{Slice, dwarf, parse, separate};
use super::demangle::demangle;
use super::{Frame, members};
use addr2line::Context;
use object::{Object, ObjectSymbol, SymbolKind};
use std::path::Path;

/// A file's symbols and debug information. Empty where the file cannot be read.
#[derive(Default)]
pub(super) struct Binary {
    /// By address.
    functions: Vec<Symbol>,
    variables: Vec<Symbol>,
    context: Option<Context<Slice>>,
    members: Option<members::Members>,
    /// The file at the path is not the one that the program ran.
    pub changed: bool,
}

struct Symbol {
    start: u64,
    size: u64,
    name: String,
    /// The source file, of a symbol that other files do not see.
    file: String,
}

impl Binary {
    /// The file at `path`, if it has this build id, and the debug information that belongs to it.
    pub fn open(path: &Path, build_id: &[u8]) -> Self {
        let mut binary = Self::default();
        let main = parse(path);
        let has_id = |file: &object::File| {
            build_id.is_empty() || matches!(file.build_id(), Ok(Some(found)) if found == build_id)
        };
        let (main, changed) = match main {
            Some(file) if has_id(&file) => (Some(file), false),
            Some(_) => (None, true),
            None => (None, false),
        };
        binary.changed = changed;
        let of_main = main.as_ref().is_some_and(|file| file.section_by_name(".debug_info").is_some());
        let separate = if of_main { None } else { separate(main.as_ref(), path, build_id) };
        for file in [&main, &separate].into_iter().flatten() {
            binary.add_symbols(file);
        }
        if let Some(file) = separate.as_ref().or(main.as_ref())
            && file.section_by_name(".debug_info").is_some()
        {
            let dwarf = || dwarf(file, path);
            binary.context = dwarf().and_then(|dwarf| Context::from_dwarf(dwarf).ok());
            binary.members = dwarf().map(members::Members::new);
        }
        binary
    }

    fn add_symbols(&mut self, file: &object::File) {
        // The symbols that only their source file sees stand behind its name.
        let mut source = String::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if symbol.kind() == SymbolKind::File {
                source = name.rsplit('/').next().expect("one part").to_owned();
            }
            if symbol.is_undefined() || name.is_empty() {
                continue;
            }
            let list = match symbol.kind() {
                SymbolKind::Text => &mut self.functions,
                SymbolKind::Data => &mut self.variables,
                _ => continue,
            };
            let file = if symbol.is_local() { source.clone() } else { String::new() };
            list.push(Symbol { start: symbol.address(), size: symbol.size(), name: name.into(), file });
        }
        for list in [&mut self.functions, &mut self.variables] {
            // Of several names for one address, the one without leading underscores is what programmers write.
            list.sort_by_key(|symbol| (symbol.start, symbol.name.starts_with('_')));
            list.dedup_by(|second, first| second.start == first.start && second.size <= first.size);
        }
    }

    /// The functions at `probe`, the innermost first; none if the file knows nothing.
    pub fn frames(&self, probe: u64) -> Vec<Frame> {
        let mut frames = self.debug_frames(probe);
        let symbol = find(&self.functions, probe);
        if let Some(symbol) = symbol {
            let named = || demangle(&symbol.name);
            match frames.last_mut() {
                Some(outermost) if outermost.function.is_empty() => outermost.function = named(),
                Some(_) => {}
                None => frames.push(Frame { function: named(), ..Frame::default() }),
            }
        }
        frames.retain(|frame| !frame.function.is_empty());
        frames
    }

    fn debug_frames(&self, probe: u64) -> Vec<Frame> {
        let Some(context) = &self.context else { return Vec::new() };
        let mut frames = Vec::new();
        let Ok(mut found) = context.find_frames(probe).skip_all_loads() else { return frames };
        while let Ok(Some(frame)) = found.next() {
            let function = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            frames.push(Frame {
                function: function.map(|name| demangle(&name)).unwrap_or_default(),
                file: location.and_then(|location| location.file).unwrap_or_default().to_owned(),
                line: location.and_then(|location| location.line).unwrap_or(0),
                module: String::new(),
                inlined: true,
            });
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.inlined = false;
        }
        frames
    }

    /// The variable at an address of the file: its name, where its symbol begins, and its source file if others do not see it.
    pub fn variable(&mut self, at: u64) -> Option<(String, u64, String)> {
        let symbol = find(&self.variables, at)?;
        let (base, offset) = (demangle(&symbol.name), at - symbol.start);
        let member = self.members.as_mut().and_then(|members| members.path(symbol.start, offset));
        let name = match member {
            Some(member) => base + &member,
            None if offset == 0 => base,
            None => format!("{base}+{offset:#x}"),
        };
        Some((name, symbol.start, symbol.file.clone()))
    }
}

/// The symbol that covers an address. One without a size (of assembly code) reaches to the next symbol.
fn find(symbols: &[Symbol], address: u64) -> Option<&Symbol> {
    let after = symbols.partition_point(|symbol| symbol.start <= address);
    let symbol = symbols[..after].last()?;
    (symbol.size == 0 || address - symbol.start < symbol.size).then_some(symbol)
}
