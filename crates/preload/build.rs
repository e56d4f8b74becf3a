//! Compiles the parts in C, and gives the exported functions the symbol versions of glibc.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts in C.
const C: [&str; 5] = [
    "src/families/cond.c",
    "src/families/sem.c",
    "src/observers/profile/callers.c",
    "src/observers/profile/sleeps.c",
    "src/state/clock.c",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(versioned)");
    for source in C {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-changed=src/families/cleanup.h");
    println!("cargo::rerun-if-changed=versions.map");
    // For the tests, which build the library as the command's build script does.
    println!("cargo::rustc-env=LATCHWORK_PRELOAD_TARGET={}", env::var("TARGET").expect("cargo sets it"));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblatchwork_preload.so");
    // In all of the library, `clock_gettime` is the function in `clock.c`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=clock_gettime");

    // Without `-fexceptions` cleanup handlers use setjmp, which works also when the thread is cancelled between any two
    // instructions.
    cc::Build::new()
        .files(C)
        .flag("-fasynchronous-unwind-tables")
        .flag("-fvisibility=hidden")
        .warnings(true)
        .extra_warnings(true)
        .compile("latchwork_preload_c");

    if let Some(lld) = rust_lld() {
        // rustc always passes an anonymous version script of its own. GNU ld refuses to combine that with named versions.
        // LLD, which rustc has beside itself, combines them.
        let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
        println!("cargo::rustc-cfg=versioned");
        println!("cargo::rustc-cdylib-link-arg=-B{}", lld.display());
        println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", root.join("versions.map").display());
    }
}

/// The directory of rustc's own LLD, on x86-64 with glibc. Elsewhere the symbols get no versions: then only `dlvsym` does not
/// find them.
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
