//! Builds the preload library for the command to carry, so that nothing has to be built by hand.
//!
//! Cargo cannot yet make one package's shared library an input of another, so this runs a second
//! cargo, in a target directory of its own: the outer one holds the lock of the usual directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let root = path("CARGO_MANIFEST_DIR").join("../..").canonicalize().expect("the workspace is there");
    let manifest = root.join("crates/preload/Cargo.toml");
    assert!(
        manifest.exists(),
        "{} is missing: latchwork-cli must be built inside its workspace, because it carries the preload \
         library; use `cargo install --path crates/cli` in a clone",
        manifest.display()
    );
    let out = path("OUT_DIR");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let target_dir = out.join("preload");
    let output = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"))
        .args(["build", "--release", "--package", "latchwork-preload", "--manifest-path"])
        .arg(&manifest)
        .args(["--target", &target, "--target-dir"])
        .arg(&target_dir)
        // The symbol table stays, for perf; line tables would make the command several times larger.
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // Under `cargo clippy` and the like the wrapper would check instead of compile.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "building the preload library failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let built = target_dir.join(&target).join("release/liblatchwork_preload.so");
    let mut inputs = inputs(&built.with_extension("d"));
    inputs.extend(["Cargo.toml", "Cargo.lock"].map(|file| root.join(file)));
    for file in inputs {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let library = fs::read(&built).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    let carried = out.join("liblatchwork_preload.so");
    fs::write(&carried, &library).expect("OUT_DIR can be written");
    println!("cargo::rustc-env=LATCHWORK_PRELOAD_BUILT={}", carried.display());
    println!("cargo::rustc-env=LATCHWORK_PRELOAD_HASH={:016x}", fnv1a(&library));
}

fn path(variable: &str) -> PathBuf {
    env::var_os(variable).unwrap_or_else(|| panic!("cargo sets {variable}")).into()
}

/// What the library was made of: the files of this workspace that its compiler and its build script read,
/// which cargo lists in `depfile`, and the manifest of the package that each belongs to.
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

/// Names the file in the user's cache; what is found there is compared byte by byte, so the hash
/// need not withstand anybody.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
