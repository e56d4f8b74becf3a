//! Builds the preload library for the command to carry, so that nothing has to be built by hand.
//!
//! Cargo cannot yet make one package's shared library an input of another, so this runs a second
//! cargo, in a target directory of its own: the outer one holds the lock of the usual directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What of a package can change the library: not its tests, benches or examples.
const NOT_INPUTS: [&str; 4] = ["tests", "benches", "examples", "target"];

fn main() {
    let root = path("CARGO_MANIFEST_DIR").join("../..").canonicalize().expect("the workspace is there");
    let manifest = root.join("crates/preload/Cargo.toml");
    assert!(
        manifest.exists(),
        "{} is missing: latchwork-cli must be built inside its workspace, because it carries the preload \
         library; use `cargo install --path crates/cli` in a clone",
        manifest.display()
    );
    for package in ["crates/latchwork", "crates/preload"] {
        watch(&root.join(package));
    }
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }

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
    let library = fs::read(&built).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    let carried = out.join("liblatchwork_preload.so");
    fs::write(&carried, &library).expect("OUT_DIR can be written");
    println!("cargo::rustc-env=LATCHWORK_PRELOAD_BUILT={}", carried.display());
    println!("cargo::rustc-env=LATCHWORK_PRELOAD_HASH={:016x}", fnv1a(&library));
}

fn path(variable: &str) -> PathBuf {
    env::var_os(variable).unwrap_or_else(|| panic!("cargo sets {variable}")).into()
}

fn watch(package: &Path) {
    for entry in fs::read_dir(package).expect("a package of the workspace") {
        let entry = entry.expect("a readable directory");
        if !NOT_INPUTS.iter().any(|name| entry.file_name() == *name) {
            println!("cargo::rerun-if-changed={}", entry.path().display());
        }
    }
}

/// Names the file in the user's cache; what is found there is compared byte by byte, so the hash
/// need not withstand anybody.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
