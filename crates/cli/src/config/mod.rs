//! The file with a lock per lock: `latchwork.toml`, which `latchwork tune` writes and `latchwork run --config` reads.
//!
//! | module | what it does |
//! |---|---|
//! | this one | the file's content, read and checked |
//! | [`resolve`] | from the file to the value of `LATCHWORK_LOCKS`, for the program as it is today |
//! | [`elf`] | the build id and the symbols of a program's files |
//! | [`mod@write`] | the file's text |

pub mod elf;
pub mod resolve;
pub mod write;

use latchwork::registry::{Kind, PRELOADED};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names::{self, GLIBC};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The version of the file's form.
pub const VERSION: u32 = 1;

/// The longest file of options that is read, in bytes: thousands of entries have less. `/dev/zero` has no end.
const LONGEST: u64 = 4 << 20;

/// The content of a file that is not long.
pub fn read_small(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(file)?.take(LONGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("the file is longer than {} MiB", LONGEST >> 20)));
    }
    Ok(content)
}

/// The most dots in a line: the parser takes time with the square of those of a key.
const MOST_DOTS: usize = 10_000;

/// The content of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    version: u32,
    /// The machine on which the locks were chosen.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// What all locks get that no entry names.
    #[serde(default)]
    pub default: Defaults,
    /// The files of the program, by the short names that the places below use.
    #[serde(default)]
    pub module: BTreeMap<String, Module>,
    /// A lock for each class.
    #[serde(default)]
    pub lock: Vec<Entry>,
}

/// The machine on which the locks were chosen.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub processor: String,
    pub cpus: usize,
}

/// The locks of all objects that no entry names.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    #[serde(default = "glibc")]
    pub mutex: String,
    #[serde(default = "glibc")]
    pub rwlock: String,
}

fn glibc() -> String {
    GLIBC.into()
}

impl Default for Defaults {
    fn default() -> Self {
        Self { mutex: glibc(), rwlock: glibc() }
    }
}

/// A file of the program.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Module {
    pub path: PathBuf,
    /// In hex; of a file without a build id, `hash-` and a hash of its content.
    #[serde(rename = "build-id")]
    pub build_id: String,
}

/// The lock of a class.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// `mutex` or `rwlock`.
    pub kind: String,
    /// The lock's name.
    #[serde(rename = "use")]
    pub lock: String,
    /// Places of static objects.
    #[serde(default, rename = "static")]
    pub objects: Vec<Place>,
    /// Calls that initialise, or else first use the objects: for each site its frames, innermost first.
    #[serde(default)]
    pub from: Vec<Vec<Place>>,
}

/// A place in a file: `MODULE ADDRESS SYMBOL+OFFSET`, of which the symbol may be missing.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Place {
    pub module: String,
    pub address: u64,
    /// The symbol that contains the address, and how far behind its start the address is.
    pub symbol: Option<(String, u64)>,
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no place in a file: write \"MODULE 0xADDRESS SYMBOL+0xOFFSET\", where MODULE is one of \
                 [module.MODULE]"
            )
        };
        let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let mut words = text.split(' ');
        let (Some(module), Some(address)) = (words.next(), words.next().and_then(hex)) else {
            return Err(wrong());
        };
        let symbol = match words.next() {
            None => None,
            Some(word) => Some(match word.rsplit_once("+0x") {
                Some((name, offset)) => {
                    (name.to_owned(), u64::from_str_radix(offset, 16).map_err(|_| wrong())?)
                }
                None => (word.to_owned(), 0),
            }),
        };
        if module.is_empty() || words.next().is_some() {
            return Err(wrong());
        }
        Ok(Self { module: module.into(), address, symbol })
    }
}

impl Entry {
    /// Which kind of object it is about.
    pub fn kind(&self) -> Kind {
        if self.kind == "rwlock" { Kind::RwLock } else { Kind::Mutex }
    }

    /// How messages call it, without what a terminal would obey.
    pub fn label(&self) -> String {
        let name = if self.name.is_empty() { "without a name" } else { &self.name };
        let name = name.replace(char::is_control, " ");
        format!("the {} {name}", if self.kind() == Kind::Mutex { "mutex" } else { "reader-writer lock" })
    }
}

impl Config {
    /// An empty one.
    pub fn new(machine: Machine, default: Defaults) -> Self {
        let machine = Some(machine);
        Self { version: VERSION, machine, default, module: BTreeMap::new(), lock: Vec::new() }
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        if let Some(at) = text.lines().position(|line| line.matches('.').count() > MOST_DOTS) {
            return Err(format!("line {} has more than {MOST_DOTS} dots", at + 1));
        }
        let config: Self = toml::from_str(text).map_err(|error| with_line(text, &error))?;
        config.check()?;
        Ok(config)
    }

    /// What cannot be done is an error before anything runs.
    fn check(&self) -> std::result::Result<(), String> {
        if self.version != VERSION {
            let version = self.version;
            return Err(format!("its version is {version}, and this latchwork reads version {VERSION}"));
        }
        let known = |kind, name: &str| names::check(kind, name).map_err(|failure| failure.message);
        known(Kind::Mutex, &self.default.mutex).map_err(|why| format!("[default] mutex: {why}"))?;
        known(Kind::RwLock, &self.default.rwlock).map_err(|why| format!("[default] rwlock: {why}"))?;
        for entry in &self.lock {
            let what = entry.label();
            if !["mutex", "rwlock"].contains(&entry.kind.as_str()) {
                return Err(format!(
                    "kind = {:?} ({:?}): only a mutex or a rwlock can have a lock of its own",
                    entry.kind, entry.name
                ));
            }
            let name = known(entry.kind(), &entry.lock).map_err(|why| format!("{what}: {why}"))?;
            if is_preloaded(&name) {
                return Err(format!(
                    "{what}: {name} serves all reader-writer locks or none: it can stand under [default] if no entry \
                     is about a rwlock"
                ));
            }
            if entry.objects.is_empty() && entry.from.iter().all(Vec::is_empty) {
                return Err(format!("{what}: neither `static` nor `from` says which locks it is"));
            }
            let mut places = entry.objects.iter().chain(entry.from.iter().flatten());
            if let Some(place) = places.find(|place| !self.module.contains_key(&place.module)) {
                return Err(format!("{what}: there is no [module.{}]", place.module));
            }
        }
        if is_preloaded(&self.default.rwlock) && self.lock.iter().any(|entry| entry.kind() == Kind::RwLock) {
            return Err(format!(
                "[default] rwlock: {} serves all reader-writer locks or none, and an entry is about a rwlock",
                self.default.rwlock
            ));
        }
        Ok(())
    }
}

/// The parser's message and the line that it is about, without the text of that line, which may be long.
fn with_line(text: &str, error: &toml::de::Error) -> String {
    let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or(text);
    format!("line {}: {}", before.matches('\n').count() + 1, error.message())
}

/// Whether this is a lock that only the preloaded library has: BRAVO over glibc's own lock.
fn is_preloaded(name: &str) -> bool {
    PRELOADED.iter().any(|entry| entry.info.name == name)
}

/// Reads and checks the file.
pub fn read(file: &Path) -> Result<Config> {
    let text = read_small(file).map_err(|error| refused(file, &error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| refused(file, &error.to_string()))?;
    Config::parse(&text).map_err(|why| refused(file, &why))
}

/// The failure for a file that cannot be used.
pub fn refused(file: &Path, why: &str) -> Failure {
    Failure::usage(format!("--config {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
version = 1
[module.server]
path = "/bin/server"
build-id = "ab12"
[[lock]]
name = "cache.mutex_"
kind = "mutex"
use = "shfl"
static = ["server 0x4010 cache+0x10"]
[[lock]]
kind = "rwlock"
use = "glibc"
from = [["server 0x1234 make", "server 0x1300"]]
"#;

    #[test]
    fn a_file_is_read() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.default, Defaults::default());
        assert_eq!(config.lock[0].objects[0].symbol, Some(("cache".into(), 0x10)));
        let frames = &config.lock[1].from[0];
        assert_eq!((frames[0].symbol.clone(), frames[1].symbol.clone()), (Some(("make".into(), 0)), None));
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let text = GOOD.replace("cache.mutex_", r"\u001b[31mred");
        assert_eq!(Config::parse(&text).unwrap().lock[0].label(), "the mutex  [31mred");
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (from, to, why) in [
            ("version = 1", "version = 2", "version is 2"),
            ("version = 1", "version = 1\nlocks = 3", "unknown field"),
            ("\"shfl\"", "\"shlf\"", "did you mean"),
            ("\"shfl\"", "\"seqlock\"", "cannot hold it"),
            ("\"glibc\"", "\"bravo-2d-glibc\"", "all reader-writer locks or none"),
            ("kind = \"mutex\"", "kind = \"spin\"", "only a mutex or a rwlock"),
            ("static = [\"server 0x4010 cache+0x10\"]", "", "neither `static` nor `from`"),
            ("server 0x4010", "other 0x4010", "no [module.other]"),
            ("0x4010", "4010", "is no place in a file"),
            ("cache+0x10", "cache+0xx", "is no place in a file"),
            ("version = 1", "version = 1\n[default]\nrwlock = \"bravo-glibc\"", "an entry is about a rwlock"),
            ("version = 1", "version = 1\n[default]\nmutex = \"nope\"", "no mutex called"),
            ("[[lock]]", "[[lock", "line"),
            ("[[lock]]", &format!("x = {}", "[".repeat(100_000)), "recurs"),
            ("[[lock]]", &format!("x = {}", "{a=".repeat(20_000)), "recurs"),
            ("[[lock]]", &format!("x = [{}", "\n[".repeat(100_000)), "recurs"),
            ("[[lock]]", &format!("[{}]", ["a"; 3_000].join(".")), "recurs"),
            ("[[lock]]", &format!("[{}]", ["a"; 30_000].join(".")), "more than 10000 dots"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = Config::parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn a_message_names_the_line_of_the_fault() {
        for (from, to, start) in [
            ("version = 1", "version = 1\nlocks = 3", "line 3: unknown field `locks`, expected one of"),
            ("[module.server]", "[modul.server]", "line 3: unknown field `modul`"),
            ("use = \"glibc\"", "used = \"glibc\"", "line 13: unknown field `used`"),
            ("use = \"glibc\"", "", "line 11: missing field `use`"),
            ("path = \"/bin/server\"\n", "", "line 3: missing field `path`"),
            ("use = \"glibc\"", "kind = \"rwlock\"", "line 13: duplicate key"),
            ("0x4010", "4010", "line 10: \"server 4010 cache+0x10\" is no place in a file"),
            ("0x1300", "1300", "line 14: \"server 1300\" is no place"),
            ("use = \"glibc\"", "use = 3", "line 13: invalid type: integer `3`, expected a string"),
        ] {
            let error = Config::parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(error.starts_with(start), "{to}: {error}");
        }
    }
}
