//! Builds the preload library for the command to carry, so that a user need not build or install it.
//!
//! Cargo cannot yet make one package's shared library an input of another, so this script runs a second cargo, in a
//! target directory of its own: the outer cargo holds the lock of the usual one. The second cargo builds a package that
//! this script writes. It depends on `latchwork-preload` and says how that is compiled, so that the library is the same in
//! a clone, as a published package and below another workspace.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The library's package, and those that it depends on and that are published with it: their directories in a clone.
const PACKAGES: [(&str, &str); 3] =
    [("latchwork-preload", "preload"), ("latchwork-check", "check"), ("latchwork", "latchwork")];

/// How the library is compiled. Thread cancellation may unwind through its functions, which must then have no landing
/// pads: hence `panic`. Its fast paths are functions of other crates: hence `lto`. The symbol table stays, for perf; line
/// tables would make the command several times larger.
const PROFILE: &str = "\
[profile.release]
lto = \"thin\"
codegen-units = 1
panic = \"abort\"
strip = \"debuginfo\"
";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
    let package = out.join("package");
    let lock = write_package(&package);
    let target_dir = out.join("preload");
    let mut command = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    command
        .current_dir(&package)
        .args(["build", "--release", "--package", "latchwork-preload", "--target", &target, "--target-dir"])
        .arg(&target_dir)
        // Under `cargo clippy` and the like the wrapper would check instead of compile.
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    // What the user sets for the profile of the command must not change the library.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PROFILE_RELEASE_")) {
            command.env_remove(name);
        }
    }
    let output = command.output().expect("cargo runs");
    assert!(
        output.status.success(),
        "building the preload library failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let built = target_dir.join(&target).join("release/liblatchwork_preload.so");
    for file in inputs(&built.with_extension("d")).into_iter().chain(lock) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    fs::read(&built).unwrap_or_else(|error| panic!("{}: {error}", built.display()))
}

/// Writes the package that the second cargo builds. Returns the files that it is made from.
fn write_package(directory: &Path) -> Vec<PathBuf> {
    let own = path("CARGO_MANIFEST_DIR");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    // In a clone the packages stand beside this one. Below a registry's or a vendored directory they stand there under
    // their names, with or without the version. Elsewhere cargo looks for them, in the registry of the configuration.
    let find = |(name, directory): (&str, &str)| {
        let beside = own.parent()?;
        let places = [directory.to_owned(), format!("{name}-{version}"), name.to_owned()];
        let mut manifests = places.iter().map(|place| beside.join(place).join("Cargo.toml"));
        let found = manifests.find(|path| is_package(path, name))?;
        Some(found.parent()?.to_owned())
    };
    let mut manifest = format!(
        "[package]\nname = \"latchwork-preload-build\"\nversion = \"{version}\"\nedition = \"2024\"\n\
         [lib]\npath = \"lib.rs\"\n[workspace]\n{PROFILE}[dependencies]\nlatchwork-preload = \"={version}\"\n\
         [patch.crates-io]\n"
    );
    for package in PACKAGES {
        if let Some(directory) = find(package) {
            writeln!(manifest, "{} = {{ path = {directory:?} }}", package.0).expect("a String takes all");
        }
    }
    fs::create_dir_all(directory).expect("OUT_DIR can be written");
    write_if_changed(&directory.join("Cargo.toml"), manifest.as_bytes());
    write_if_changed(&directory.join("lib.rs"), b"");
    // The same versions as the command's.
    let workspace = own.join("../..").canonicalize().expect("the package is in a directory");
    let locks = [own.join("Cargo.lock"), workspace.join("Cargo.lock")];
    let Some(lock) = locks.into_iter().find(|file| file.exists()) else { return Vec::new() };
    let copy = directory.join("Cargo.lock");
    let changed = |copied: std::time::SystemTime| {
        fs::metadata(&lock).and_then(|found| found.modified()).is_ok_and(|lock| lock > copied)
    };
    if fs::metadata(&copy).and_then(|found| found.modified()).map_or(true, changed) {
        fs::copy(&lock, &copy).expect("OUT_DIR can be written");
    }
    [lock, workspace.join("Cargo.toml")].into_iter().filter(|file| file.exists()).collect()
}

fn is_package(manifest: &Path, name: &str) -> bool {
    fs::read_to_string(manifest).is_ok_and(|text| text.contains(&format!("\nname = \"{name}\"\n")))
}

/// Leaves the file's time alone when nothing changes.
fn write_if_changed(path: &Path, content: &[u8]) {
    if fs::read(path).ok().as_deref() != Some(content) {
        fs::write(path, content).expect("OUT_DIR can be written");
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
