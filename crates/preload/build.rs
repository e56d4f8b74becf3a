//! Builds the C half, and arranges for glibc's symbol versions.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(versioned)");
    println!("cargo::rerun-if-changed=src/cond.c");
    println!("cargo::rerun-if-changed=versions.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblatchwork_preload.so");

    // No `-fexceptions`: cleanup handlers must be the set-jump kind, which is exact even when the
    // thread is cancelled between any two instructions.
    cc::Build::new()
        .file("src/cond.c")
        .flag("-fasynchronous-unwind-tables")
        .flag("-fvisibility=hidden")
        .warnings(true)
        .extra_warnings(true)
        .compile("latchwork_cond");

    if let Some(lld) = rust_lld() {
        // rustc always writes an anonymous version script of its own. GNU ld refuses to combine
        // that with named versions, LLD does it: so name LLD, which rustc brings along.
        let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
        println!("cargo::rustc-cfg=versioned");
        println!("cargo::rustc-cdylib-link-arg=-B{}", lld.display());
        println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", root.join("versions.map").display());
    }
}

/// The directory of rustc's own LLD, where versions are those of x86-64 glibc. Elsewhere symbols
/// have no version, which binds for everything but `dlvsym`.
fn rust_lld() -> Option<PathBuf> {
    let target = env::var("TARGET").ok()?;
    if target != "x86_64-unknown-linux-gnu" {
        return None;
    }
    let output = Command::new(env::var_os("RUSTC")?).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let directory = Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("bin/gcc-ld");
    directory.join("ld.lld").exists().then_some(directory)
}
