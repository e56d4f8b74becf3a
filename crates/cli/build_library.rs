//! Builds the preload library as the command carries it. The command's build script does it; the tests of the preload library
//! do the same, and find it built.
//!
//! Cargo cannot yet make one package's shared library an input of another, so this code runs a second cargo, in a
//! target directory of its own: the outer cargo holds the lock of the usual one. The second cargo builds a package that
//! this code writes. It depends on `latchwork-preload` and says how that is compiled, so that the library is the same in
//! a clone, as a published package and below another workspace.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's package, and those that it depends on and that are published with it: their directories in a clone.
const PACKAGES: [(&str, &str); 4] = [
    ("latchwork-preload", "preload"),
    ("latchwork-check", "check"),
    ("latchwork-recording", "recording"),
    ("latchwork", "latchwork"),
];

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

/// What is built, and for whom.
pub struct Library<'a> {
    /// The directory of the package that asks for the library. The library's packages stand beside it, or in a registry.
    pub asks: &'a Path,
    /// The version of all these packages.
    pub version: &'a str,
    /// The target triple.
    pub target: &'a str,
}

impl Library<'_> {
    /// Builds the library, and returns its path and the files that the second package was made from. The second package is
    /// written into `package`.
    pub fn build(&self, package: &Path, target_dir: &Path) -> (PathBuf, Vec<PathBuf>) {
        let made_from = self.write_package(package);
        let mut command = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
        command
            .current_dir(package)
            .args(["build", "--release", "--package", "latchwork-preload", "--target", self.target])
            .arg("--target-dir")
            .arg(target_dir)
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
        (target_dir.join(self.target).join("release/liblatchwork_preload.so"), made_from)
    }

    /// Writes the package that the second cargo builds. Returns the files that it is made from.
    fn write_package(&self, directory: &Path) -> Vec<PathBuf> {
        let version = self.version;
        // In a clone the packages stand beside the one that asks. Below a registry's or a vendored directory they stand there
        // under their names, with or without the version. Elsewhere cargo looks for them, in the registry of the
        // configuration.
        let find = |(name, directory): (&str, &str)| {
            let beside = self.asks.parent()?;
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
        fs::create_dir_all(directory).expect("the target directory can be written");
        write_if_changed(&directory.join("Cargo.toml"), manifest.as_bytes());
        write_if_changed(&directory.join("lib.rs"), b"");
        // The same versions as those of the package that asks.
        let workspace = self.asks.join("../..").canonicalize().expect("the package is in a directory");
        let locks = [self.asks.join("Cargo.lock"), workspace.join("Cargo.lock")];
        let Some(lock) = locks.into_iter().find(|file| file.exists()) else { return Vec::new() };
        let copy = directory.join("Cargo.lock");
        let changed = |copied: std::time::SystemTime| {
            fs::metadata(&lock).and_then(|found| found.modified()).is_ok_and(|lock| lock > copied)
        };
        if fs::metadata(&copy).and_then(|found| found.modified()).map_or(true, changed) {
            fs::copy(&lock, &copy).expect("the target directory can be written");
        }
        [lock, workspace.join("Cargo.toml")].into_iter().filter(|file| file.exists()).collect()
    }
}

fn is_package(manifest: &Path, name: &str) -> bool {
    fs::read_to_string(manifest).is_ok_and(|text| text.contains(&format!("\nname = \"{name}\"\n")))
}

/// Leaves the file's time alone when nothing changes.
fn write_if_changed(path: &Path, content: &[u8]) {
    if fs::read(path).ok().as_deref() != Some(content) {
        fs::write(path, content).expect("the target directory can be written");
    }
}
