//! Names the sources that decide what a simulation gives: those of the locks, the simulator, its machines and the workloads.
//! `latchwork-lab reproduce --state` writes the name into its files, so that runs of other sources are not taken for ours.

use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 4] = ["../latchwork/src", "../sim/src", "../sim/profiles", "../workloads/src"];

/// The files below `directory`, by name.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for path in entries.map(|entry| entry.expect("a readable directory").path()) {
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

fn main() {
    // FNV-1a, which is the same everywhere.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        let mut found = Vec::new();
        files(Path::new(source), &mut found);
        found.sort();
        for path in found {
            let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for byte in path.to_string_lossy().bytes().chain(text) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    println!("cargo:rustc-env=LATCHWORK_SIMULATED={hash:016x}");
}
