//! Names the sources that decide what a simulation gives: those of the locks, the simulator, its machines and the workloads. Of the
//! laboratory, these are its stage, its experiments, its questions to the simulator, and its space of uncertain costs, whose points
//! are filed under their numbers.
//! `Cargo.lock` has the versions of other libraries, one of which makes the workloads' random numbers.
//! `latchwork-lab reproduce --state` writes the name into its files, so that runs of other sources are not taken for ours.

use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 9] = [
    "../latchwork/src",
    "../sim/src",
    "../sim/profiles",
    "../workloads/src",
    "src/simulate/stage.rs",
    "src/reproduce/experiment.rs",
    "src/reproduce/probe.rs",
    "src/reproduce/space.rs",
    "../../Cargo.lock",
];

/// The file at `path`, or those below that directory.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        return found.push(path.to_owned());
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    entries.for_each(|entry| files(&entry.expect("a readable directory").path(), found));
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
