//! `src/registered.rs` and `include/latchwork/registered.h` have every lock of the registry, with its size.
//!
//! `LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-capi --test registered` writes them anew.

use latchwork::locks::mutex::{Fair, RawMutex};
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, RawUpgrade};
use latchwork::machine::Native;
use latchwork::registry::{Visitor, visit};
use std::any::type_name;
use std::fmt::Write;
use std::path::Path;

#[derive(Default)]
struct Files {
    statics: [String; 2],
    lists: [String; 2],
    header: String,
}

impl Files {
    fn add<L>(&mut self, is_rwlock: bool, maker: &str, name: &str) {
        let identifier = name.replace('-', "_");
        let (ops, list, define) = match is_rwlock {
            false => ("MutexOps", &mut self.lists[0], "LW_MUTEX_TYPE_"),
            true => ("RwLockOps", &mut self.lists[1], "LW_RWLOCK_TYPE_"),
        };
        let rust = type_name::<L>().replace("latchwork::machine::native::Native", "Native");
        let _ = write!(
            self.statics[usize::from(is_rwlock)],
            "#[unsafe(no_mangle)]\nstatic lw_{identifier}_ops: {ops} = {ops}::{maker}::<{rust}>(c\"{name}\");\n"
        );
        let _ = write!(list, "&lw_{identifier}_ops, ");
        let (size, align) = (size_of::<L>().next_multiple_of(8), align_of::<L>().max(8));
        let kind = if maker == "of" { "plain" } else { maker };
        let _ = writeln!(self.header, "{define}({identifier}, {size}, {align}, {kind})");
    }
}

impl Visitor<Native> for Files {
    fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
        self.add::<L>(false, "of", L::INFO.name);
    }
    fn fair_mutex<L: Fair<Machine = Native>>(&mut self) {
        self.add::<L>(false, "fair", L::INFO.name);
    }
    fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
        self.add::<R>(true, "of", R::INFO.name);
    }
    fn downgradable<R: RawDowngrade<Machine = Native>>(&mut self) {
        self.add::<R>(true, "downgradable", R::INFO.name);
    }
    fn upgradable<R: RawUpgrade<Machine = Native> + RawFair>(&mut self) {
        self.add::<R>(true, "upgradable", R::INFO.name);
    }
}

#[test]
fn the_generated_files_are_those_of_the_registry() {
    let mut files = Files::default();
    visit(&mut files);
    let Files { statics: [mutexes, rwlocks], lists: [mutex_list, rwlock_list], header } = files;
    let command = "LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-capi --test registered";
    let rust = format!(
        "//! Every lock of the registry, as a table of functions with a name of its own. Generated: {command}\n\
         #![allow(non_upper_case_globals, reason = \"they have the names of C\")]\n\n\
         use crate::locks::{{MutexOps, RwLockOps}};\nuse latchwork::machine::Native;\n\n\
         {mutexes}{rwlocks}\n\
         /// The mutexes.\npub(crate) static MUTEXES: &[&MutexOps] = &[{}];\n\
         /// The reader-writer locks.\npub(crate) static RWLOCKS: &[&RwLockOps] = &[{}];\n",
        mutex_list.trim_end_matches(", "),
        rwlock_list.trim_end_matches(", "),
    );
    let header = format!(
        "/* Every lock of the registry: its name in C, its bytes, its alignment, and what it has beyond the plain functions. For\n \
         * locks.h and locks.hpp. Generated: {command} */\n{header}"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, now) in [("src/registered.rs", rust), ("include/latchwork/registered.h", header)] {
        let path = root.join(path);
        if std::env::var_os("LATCHWORK_WRITE_DOCS").is_some() {
            std::fs::write(&path, &now).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == now,
            "{} is old: run {command}",
            path.display()
        );
    }
}
