//! Builds the shims over the C and C++ libraries that are compared with: the features `ck`, `absl` and
//! `nsync` for their locks, `urcu` for its readers and its hash table.

use std::path::Path;

/// A library: its feature and shim, Debian's package, the header that shows that it is there, and
/// what to link with.
struct Library {
    feature: &'static str,
    shim: &'static str,
    package: &'static str,
    header: &'static str,
    link: &'static [&'static str],
}

const LIBRARIES: &[Library] = &[
    Library { feature: "CK", shim: "ck.c", package: "libck-dev", header: "ck_spinlock.h", link: &[] },
    Library {
        feature: "ABSL",
        shim: "absl.cc",
        package: "libabsl-dev",
        header: "absl/synchronization/mutex.h",
        link: &["absl_synchronization"],
    },
    Library {
        feature: "NSYNC",
        shim: "nsync.c",
        package: "libnsync-dev",
        header: "nsync.h",
        link: &["nsync"],
    },
    Library {
        feature: "URCU",
        shim: "urcu.c",
        package: "liburcu-dev",
        header: "urcu/urcu-memb.h",
        link: &["urcu-memb", "urcu-qsbr", "urcu-cds"],
    },
];

fn main() {
    println!("cargo::rerun-if-changed=src/peers/shims");
    for library in LIBRARIES {
        if std::env::var_os(format!("CARGO_FEATURE_{}", library.feature)).is_some() {
            build(library);
        }
    }
}

fn build(library: &Library) {
    let shim = Path::new("src/peers/shims").join(library.shim);
    let mut build = cc::Build::new();
    build.file(&shim).opt_level(3).cpp(library.shim.ends_with(".cc"));
    if library.shim.ends_with(".cc") {
        build.std("c++17");
    }
    let Library { package, header, feature, .. } = library;
    let found = build.clone().try_expand();
    if !found.is_ok_and(|text| String::from_utf8_lossy(&text).contains(header)) {
        let feature = feature.to_lowercase();
        println!("cargo::error=feature {feature} needs <{header}>: sudo apt-get install {package}");
        return;
    }
    build.compile(&format!("latchwork_shim_{feature}"));
    for name in library.link {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
}
