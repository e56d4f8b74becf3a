//! Builds the preload library for the command to carry, so that a user need not build or install it.

#[path = "build_library.rs"]
mod build_library;

use build_library::Library;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build_library.rs");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let out = path("OUT_DIR");
    let carried = out.join("liblatchwork_preload.so");
    // docs.rs has no network, and documents the command without running it.
    let library = if env::var_os("DOCS_RS").is_some() { Vec::new() } else { build(&out) };
    fs::write(&carried, &library).expect("OUT_DIR can be written");
    println!("cargo::rustc-env=LATCHWORK_PRELOAD_BUILT={}", carried.display());
    println!("cargo::rustc-env=LATCHWORK_PRELOAD_HASH={:016x}", fnv1a(&library));
}

fn path(variable: &str) -> PathBuf {
    env::var_os(variable).unwrap_or_else(|| panic!("cargo sets {variable}")).into()
}

/// Builds the library and returns its content.
fn build(out: &Path) -> Vec<u8> {
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let own = path("CARGO_MANIFEST_DIR");
    let library = Library { asks: &own, version: &version, target: &target };
    let (built, made_from) = library.build(&out.join("package"), &target_dir(out));
    for file in inputs(&built.with_extension("d")).into_iter().chain(made_from) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    fs::read(&built).unwrap_or_else(|error| panic!("{}: {error}", built.display()))
}

/// `preload-library` beside the directory of the profile, so that all profiles, and the tests of the preload library, share what is
/// built there: `OUT_DIR` is `target/PROFILE/build/latchwork-cli-HASH/out`. In `OUT_DIR`, should cargo lay it out in another
/// way.
fn target_dir(out: &Path) -> PathBuf {
    let above = |levels| out.ancestors().nth(levels).unwrap_or(out);
    match above(2).file_name() {
        Some(name) if name == "build" => above(4).join("preload-library"),
        _ => out.join("preload-library"),
    }
}

/// What the library was made of: the files outside registries that its compiler and its build script read, which cargo
/// lists in `depfile`, and the manifest of the package that each belongs to.
fn inputs(depfile: &Path) -> BTreeSet<PathBuf> {
    let text = fs::read_to_string(depfile).unwrap_or_else(|error| panic!("{}: {error}", depfile.display()));
    let (_, files) = text.split_once(": ").expect("`OUTPUT: INPUT INPUT ...`");
    // A space within a name is escaped.
    let files = files.replace("\\ ", "\0");
    let files: BTreeSet<_> =
        files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " "))).collect();
    let manifest = |file: &PathBuf| {
        file.ancestors().skip(1).map(|directory| directory.join("Cargo.toml")).find(|path| path.exists())
    };
    let manifests: Vec<_> = files.iter().filter_map(manifest).collect();
    files.into_iter().chain(manifests).collect()
}

/// Names the file in the user's cache. The command compares what it finds there byte by byte, so that a collision does
/// no harm.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
