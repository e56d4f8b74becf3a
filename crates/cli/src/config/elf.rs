//! The identity of a program's file, and its symbols.

use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A file of the program, as it is today.
#[derive(Debug, Default)]
pub struct Elf {
    /// The build id in hex ([`BUILD_ID`] bytes of it at most), or a hash of the content.
    pub id: String,
    /// By address.
    symbols: Vec<Symbol>,
    by_name: HashMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Symbol {
    name: String,
    start: u64,
    size: u64,
}

/// The most bytes of a build id that the preload library looks at.
const BUILD_ID: usize = 32;

/// What begins the identity of a file without a build id.
pub const HASH: &str = "hash-";

impl Elf {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, String> {
        // A device may have no end, and a pipe no writer.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err("it is not a regular file".into());
        }
        let content = fs::read(path).map_err(|error| error.to_string())?;
        let file = object::File::parse(&*content).map_err(|error| error.to_string())?;
        let id = match file.build_id() {
            Ok(Some(id)) => hex(id.get(..BUILD_ID).unwrap_or(id)),
            _ => format!("{HASH}{:016x}", fnv1a(&content)),
        };
        let mut elf = Self { id, ..Self::default() };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let is_place = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
            if let Ok(name) = symbol.name()
                && is_place
                && !symbol.is_undefined()
                && !name.is_empty()
                && !name.contains(' ')
            {
                let name = name.to_owned();
                elf.symbols.push(Symbol { name, start: symbol.address(), size: symbol.size() });
            }
        }
        elf.symbols.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        elf.symbols.dedup_by(|a, b| (a.start, &a.name) == (b.start, &b.name));
        let mut count: HashMap<&str, usize> = HashMap::new();
        elf.symbols.iter().for_each(|symbol| *count.entry(&symbol.name).or_default() += 1);
        // A name that several functions of the file have names none of them.
        let unique = |symbol: &Symbol| count[symbol.name.as_str()] == 1;
        let numbered = elf.symbols.iter().enumerate().filter(|(_, symbol)| unique(symbol));
        elf.by_name = numbered.map(|(number, symbol)| (symbol.name.clone(), number)).collect();
        Ok(elf)
    }

    /// The symbol that contains an address and names no other place, and the distance from its start.
    pub fn symbol(&self, address: u64) -> Option<(String, u64)> {
        let behind = self.symbols.partition_point(|symbol| symbol.start <= address);
        let covers = |symbol: &&Symbol| address - symbol.start < symbol.size;
        // Of nested symbols the outermost one: it is the likeliest to be there after a rebuild.
        let near = &self.symbols[behind.saturating_sub(8)..behind];
        let found = near.iter().filter(covers).find(|symbol| self.by_name.contains_key(&symbol.name))?;
        Some((found.name.clone(), address - found.start))
    }

    /// The addresses of a symbol: the first, and the first behind it.
    pub fn span(&self, name: &str) -> Option<(u64, u64)> {
        let symbol = &self.symbols[*self.by_name.get(name)?];
        Some((symbol.start, symbol.start.checked_add(symbol.size)?))
    }
}

/// Bytes in hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
