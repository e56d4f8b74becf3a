//! The preload library that the command carries is built anew when anything that it is made of changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the build script told cargo to watch.
fn watched() -> Vec<PathBuf> {
    // Cargo keeps a build script's output beside OUT_DIR, in which the library lies.
    let out = Path::new(env!("LATCHWORK_PRELOAD_BUILT")).parent().unwrap();
    let output = fs::read_to_string(out.with_file_name("output")).unwrap();
    output
        .lines()
        .filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="))
        .map(PathBuf::from)
        .collect()
}

/// The directories of this workspace's packages that the library is made of, as cargo resolves them.
fn packages() -> Vec<PathBuf> {
    let output = Command::new(std::env::var_os("CARGO").expect("cargo runs the tests"))
        .args(["tree", "--offline", "--package", "latchwork-preload", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // `NAME vVERSION (DIRECTORY)`; packages of a registry have no directory. A package may come twice.
    let text = String::from_utf8(output.stdout).unwrap();
    let directory = |line: &str| Some(PathBuf::from(line.split_once(" (/")?.1.split_once(')')?.0));
    text.lines().filter_map(directory).map(|path| Path::new("/").join(path)).collect()
}

#[test]
fn everything_that_the_library_is_made_of_is_watched() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let packages = packages();
    for name in ["latchwork", "check", "preload"] {
        assert!(packages.contains(&workspace.join("crates").join(name)), "{packages:?}");
    }
    let of_package = |package: &PathBuf| [package.join("Cargo.toml"), package.join("src/lib.rs")];
    let mut made_of: Vec<PathBuf> = packages.iter().flat_map(of_package).collect();
    // The files of the workspace, those that no Rust file names, and one deep in each package.
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        "crates/preload/build.rs",
        "crates/preload/src/families/cond.c",
        "crates/preload/src/families/sem.c",
        "crates/preload/versions.map",
        "crates/check/src/graph.rs",
        "crates/latchwork/src/machine/native/futex.rs",
    ] {
        made_of.push(workspace.join(file));
    }
    let watched = watched();
    made_of.retain(|file| !watched.iter().any(|path| file.starts_with(path)));
    assert!(made_of.is_empty(), "cargo does not watch {made_of:?}");
}

/// A program that runs with the file would die of SIGBUS if the file changed under it.
#[test]
fn the_library_replaces_a_file_that_is_loaded() {
    let directory = crate::common::scratch("embedded");
    let file = directory.join("library.so");
    fs::write(&file, "of before").unwrap();
    let loaded = fs::File::open(&file).unwrap();
    assert!(crate::common::latchwork().arg("library").arg(&file).status().unwrap().success());
    assert_eq!(std::io::read_to_string(loaded).unwrap(), "of before");
    assert!(fs::metadata(&file).unwrap().len() > 100_000);
}

/// Of the symbols that the command and its library need, none is newer than the glibc that the documentation promises.
#[test]
fn glibc_2_34_is_new_enough() {
    for file in [crate::COMMAND, env!("LATCHWORK_PRELOAD_BUILT")] {
        let output = Command::new("objdump").args(["-T", file]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // A weak symbol may be missing.
        let needed = text.lines().filter(|line| line.contains("*UND*") && !line.contains(" w "));
        let minor = |line: &str| {
            line.split_once("GLIBC_2.")?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let newer: Vec<&str> =
            needed.clone().filter(|line| minor(line).is_some_and(|minor: u32| minor > 34)).collect();
        assert!(needed.count() > 10 && newer.is_empty(), "{file}: {newer:?}");
    }
}
