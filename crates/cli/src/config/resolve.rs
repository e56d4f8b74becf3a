//! From the file to what the preload library reads: the addresses of today's files in place of those of the tuned ones.
//!
//! A rule fits by address if its file has the build id that the rule was made with. After a rebuild it fits by symbol: a
//! static object by the variable and the offset in it, a call by the function that makes it.

use super::elf::{Elf, HASH};
use super::{Config, Entry, Machine, Module, Place};
use latchwork::registry::Kind;
use latchwork_console::names::{self, Choice, GLIBC};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a program is started with.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The locks of the families.
    pub choice: Choice,
    /// The value of `LATCHWORK_LOCKS`, if any lock has one of its own.
    pub locks: Option<String>,
    /// Numbers of the entries that fit nothing.
    pub unfit: Vec<usize>,
    /// What the user should know: rules that fit nothing, files that were rebuilt, another machine.
    pub notes: Vec<String>,
}

/// The longest value of a variable that the kernel passes on, in bytes.
const LONGEST: usize = 128 << 10;

/// The most frames of a call that the library compares.
pub const DEPTH: usize = 6;

/// A module of the file, as it is today.
struct Today {
    /// Its number in the value; it has one once a rule has named it.
    number: Option<usize>,
    /// As the file names it, and without symbolic links.
    paths: [PathBuf; 2],
    elf: Elf,
    is_same: bool,
}

impl Config {
    /// For a program at this path. An error says why the program cannot be started like this.
    pub fn resolve(&self, program: &Path) -> Result<Resolved, String> {
        let mut resolver = Resolver { notes: self.other_machine(), ..Resolver::default() };
        for (name, module) in &self.module {
            let named = if is_moved(module, program) { program } else { &module.path };
            let path = named.canonicalize().unwrap_or_else(|_| named.to_owned());
            match Elf::open(&path) {
                Err(why) => resolver.notes.push(format!("{}: {why}; no rule for it fits", path.display())),
                Ok(elf) => {
                    let is_same = elf.id == module.build_id;
                    if !is_same {
                        resolver.notes.push(format!(
                            "{} was rebuilt since: its locks are found by their symbols, and may behave differently now",
                            path.display()
                        ));
                    }
                    resolver.modules.insert(
                        name.clone(),
                        Today { number: None, paths: [named.to_owned(), path], elf, is_same },
                    );
                }
            }
        }
        let mut rules = [false; 2];
        let mut unfit = Vec::new();
        for (number, entry) in self.lock.iter().enumerate() {
            if resolver.entry(entry)? {
                rules[usize::from(entry.kind() == Kind::RwLock)] = true;
            } else {
                unfit.push(number);
            }
        }
        let family = |kind, name: &str, rules: bool| match name {
            // The library serves the family, and leaves what no rule names to glibc.
            GLIBC if rules => recommended(kind),
            name => name.to_owned(),
        };
        let choice = Choice {
            mutex: family(Kind::Mutex, &self.default.mutex, rules[0]),
            rwlock: family(Kind::RwLock, &self.default.rwlock, rules[1]),
        };
        let defaults = [("m", &self.default.mutex, rules[0]), ("r", &self.default.rwlock, rules[1])];
        for (letter, name, rules) in defaults {
            if rules && name == GLIBC {
                resolver.rules.push(format!("{letter}*{GLIBC}"));
            }
        }
        let locks = (!resolver.rules.is_empty())
            .then(|| resolver.names.iter().chain(&resolver.rules).cloned().collect::<Vec<_>>().join(";"));
        if locks.as_ref().is_some_and(|locks| locks.len() + 32 > LONGEST) {
            return Err(format!("it has too many places: they take more than {} KiB", LONGEST >> 10));
        }
        Ok(Resolved { choice, locks, unfit, notes: resolver.notes })
    }

    fn other_machine(&self) -> Vec<String> {
        let Some(Machine { processor, cpus }) = &self.machine else { return Vec::new() };
        let here = latchwork_console::machine::Machine::here();
        if *cpus == here.cpus && *processor == here.processor {
            return Vec::new();
        }
        vec![format!(
            "it was made on another machine ({processor}, {cpus} CPUs; this is {}, {} CPUs): another lock may be best \
             here, and `latchwork tune` finds it",
            here.processor, here.cpus
        )]
    }
}

/// Whether the file that is started is this module: it may have been moved, or be started by another name of its directory. A
/// script may have the program's name, and another program may.
fn is_moved(module: &Module, program: &Path) -> bool {
    if program.file_name().is_none() || module.path.file_name() != program.file_name() {
        return false;
    }
    let is_same = |elf: &Elf| elf.id == module.build_id;
    Elf::open(program)
        .is_ok_and(|elf| is_same(&elf) || !Elf::open(&module.path).is_ok_and(|elf| is_same(&elf)))
}

/// The recommended lock of a kind.
pub fn recommended(kind: Kind) -> String {
    let Choice { mutex, rwlock } = names::default_choice();
    if kind == Kind::Mutex { mutex } else { rwlock }
}

#[derive(Default)]
struct Resolver {
    modules: BTreeMap<String, Today>,
    /// The entries of the value for modules, and those for locks.
    names: Vec<String>,
    rules: Vec<String>,
    notes: Vec<String>,
}

impl Resolver {
    /// Adds the rules of an entry; returns whether there is one.
    fn entry(&mut self, entry: &Entry) -> Result<bool, String> {
        let letter = if entry.kind() == Kind::Mutex { 'm' } else { 'r' };
        let before = self.rules.len();
        let mut missing = 0;
        for place in &entry.objects {
            match self.span(place, true) {
                Some(span) => self.rules.push(format!("{letter}@{} {span}", entry.lock)),
                None => missing += 1,
            }
        }
        for frames in entry.from.iter().filter(|frames| !frames.is_empty()) {
            if frames.len() > DEPTH {
                return Err(format!("{}: a site has at most {DEPTH} frames", entry.label()));
            }
            let spans: Option<Vec<String>> = frames.iter().map(|place| self.span(place, false)).collect();
            match spans {
                Some(spans) => {
                    let rule = format!("{letter}<{} {}", entry.lock, spans.join(" "));
                    if !self.rules.contains(&rule) {
                        self.rules.push(rule);
                    }
                }
                None => missing += 1,
            }
        }
        let found = self.rules.len() - before;
        if found == 0 {
            self.notes.push(format!(
                "{} fits nothing in the files of today: it gets the default lock",
                entry.label()
            ));
        } else if missing > 0 {
            self.notes.push(format!("{missing} places of {} are not in the files of today", entry.label()));
        }
        Ok(found > 0)
    }

    /// A place as the library reads it.
    fn span(&mut self, place: &Place, is_static: bool) -> Option<String> {
        let module = self.modules.get_mut(&place.module)?;
        let (start, end) = if module.is_same {
            (place.address, place.address.checked_add(1)?)
        } else {
            let (name, offset) = place.symbol.as_ref()?;
            let (start, end) = module.elf.span(name)?;
            if is_static {
                let object = start.checked_add(*offset).filter(|object| *object < end)?;
                (object, object + 1)
            } else {
                // The call may be anywhere in the function now.
                (start, end)
            }
        };
        let number = *module.number.get_or_insert_with(|| {
            self.names.push(match module.elf.id.strip_prefix(HASH) {
                None => format!("B{}", module.elf.id),
                // The program's path has no symbolic links; that of a library has those that it was loaded through.
                Some(_) => format!("P{}", module.paths.each_ref().map(|path| written(path)).join(" ")),
            });
            self.names.len() - 1
        });
        Some(format!("{number}:{start:x}-{end:x}"))
    }
}

/// A path without the bytes that mean something in the value.
fn written(path: &Path) -> String {
    let byte = |byte: &u8| match byte {
        b'!'..=b'~' if !b";%".contains(byte) => char::from(*byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    path.as_os_str().as_bytes().iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Defaults;
    use super::*;

    /// A file about this test program itself, which has symbols.
    fn config(build_id: &str, default: &str, places: &[&str]) -> Config {
        let here = latchwork_console::machine::Machine::here();
        let machine = Machine { processor: here.processor, cpus: here.cpus };
        let default = Defaults { mutex: default.into(), rwlock: GLIBC.into() };
        let mut config = Config::new(machine, default);
        let path = std::env::current_exe().unwrap();
        config.module.insert("own".into(), Module { path, build_id: build_id.into() });
        for place in places {
            config.lock.push(Entry {
                name: (*place).into(),
                kind: "mutex".into(),
                lock: "mcs".into(),
                objects: Vec::new(),
                from: vec![vec![Place::try_from((*place).to_owned()).unwrap()]],
            });
        }
        config
    }

    #[test]
    fn rules_fit_by_build_id_and_then_by_symbol() {
        let program = std::env::current_exe().unwrap();
        let elf = Elf::open(&program).unwrap();
        let (start, end) = elf.span("main").unwrap();
        assert_eq!(elf.symbol(start + 1), Some(("main".into(), 1)));
        let same = config(&elf.id, GLIBC, &["own 0x1234 main+0x4"]).resolve(&program).unwrap();
        assert_eq!(same.choice, Choice { mutex: "shfl".into(), rwlock: GLIBC.into() });
        assert!(same.locks.unwrap().ends_with(";m<mcs 0:1234-1235;m*glibc"));
        assert_eq!(same.notes, [""; 0]);

        let rebuilt = config("00", "ticket", &["own 0x1234 main+0x4", "own 0x12 no_such_symbol", "own 0x12"]);
        let rebuilt = rebuilt.resolve(&program).unwrap();
        assert_eq!(rebuilt.choice.mutex, "ticket");
        assert!(rebuilt.locks.unwrap().ends_with(&format!(";m<mcs 0:{start:x}-{end:x}")));
        assert_eq!(rebuilt.notes.len(), 3, "{:?}", rebuilt.notes);
        assert!(rebuilt.notes[0].contains("was rebuilt") && rebuilt.notes[1].contains("fits nothing"));

        // No object lies before its symbol.
        let mut before = config("00", GLIBC, &["own 0x12 main+0xffffffffffffffff"]);
        let entry = &mut before.lock[0];
        entry.objects = entry.from.remove(0);
        assert_eq!(before.resolve(&program).unwrap().unfit, [0]);
        let last = config(&elf.id, GLIBC, &["own 0xffffffffffffffff"]);
        assert_eq!(last.resolve(&program).unwrap().unfit, [0]);
    }

    #[test]
    fn a_module_that_is_no_file_is_not_read() {
        let mut config = config("00", GLIBC, &["own 0x1 main"]);
        config.module.get_mut("own").unwrap().path = "/dev/zero".into();
        let resolved = config.resolve(&std::env::current_exe().unwrap()).unwrap();
        assert!(resolved.notes[0].contains("not a regular file"), "{:?}", resolved.notes);
    }

    #[test]
    fn a_script_of_the_program_s_name_is_not_the_program() {
        let program = std::env::current_exe().unwrap();
        let elf = Elf::open(&program).unwrap();
        let folder = std::env::temp_dir().join(format!("latchwork-moved-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let script = folder.join(program.file_name().unwrap());
        std::fs::write(&script, "#!/bin/sh\nexec elsewhere/program\n").unwrap();
        let resolved = config(&elf.id, GLIBC, &["own 0x1234 main+0x4"]).resolve(&script).unwrap();
        assert!(resolved.locks.is_some_and(|locks| locks.ends_with(";m<mcs 0:1234-1235;m*glibc")));
        assert_eq!((resolved.notes, resolved.unfit), (Vec::new(), Vec::new()));
        // The program itself, moved there.
        std::fs::remove_file(&script).unwrap();
        std::os::unix::fs::symlink(&program, &script).unwrap();
        let mut moved = config(&elf.id, GLIBC, &["own 0x1234 main+0x4"]);
        moved.module.get_mut("own").unwrap().path = Path::new("/no/such").join(program.file_name().unwrap());
        assert_eq!(moved.resolve(&script).unwrap().unfit, [0; 0]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_machine_is_reported() {
        let mut config = config("00", GLIBC, &[]);
        config.machine.as_mut().unwrap().cpus += 1;
        let resolved = config.resolve(&std::env::current_exe().unwrap()).unwrap();
        assert!(resolved.notes[0].contains("another machine"), "{:?}", resolved.notes);
        assert_eq!((resolved.choice, resolved.locks), (Choice::glibc(), None));
    }

    #[test]
    fn a_path_keeps_its_bytes() {
        assert_eq!(written(Path::new("/a b;c%d")), "/a%20b%3bc%25d");
    }
}
