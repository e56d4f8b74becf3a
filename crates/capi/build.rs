//! Compiles the part in C: the calling thread's words, which stable Rust cannot define with the initial-exec model.

use std::env;
use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=src/thread.c");
    println!("cargo::rerun-if-changed=include");
    println!("cargo::metadata=include={}", root.join("include").display());
    cc::Build::new()
        .file("src/thread.c")
        .include("include")
        .std("gnu11")
        .pic(true)
        .warnings(true)
        .extra_warnings(true)
        .compile("latchwork_capi_c");
}
