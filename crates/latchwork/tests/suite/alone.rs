//! The crate as it is published, away from this project: with its default features and without the crates that only tests
//! use, it compiles without warnings; if `LATCHWORK_THOROUGH=1` asks, the examples of its pages pass too.

use std::path::Path;
use std::process::Command;

/// Runs a command in `folder`; fails with what it printed.
fn run(folder: &Path, command: &mut Command) {
    let output = command.current_dir(folder).output().expect("it starts");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {text}");
}

/// cargo, without the network: this project's own build has fetched what is needed.
fn cargo(arguments: &[&str], target: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).arg("--offline").arg("--target-dir").arg(target);
    cargo.env("RUSTFLAGS", "-Dwarnings").env("RUSTDOCFLAGS", "-Dwarnings");
    cargo
}

#[test]
fn the_published_crate_needs_nothing_else() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone");
    std::fs::create_dir_all(&folder).unwrap();
    run(here, &mut cargo(&["package", "--no-verify", "--allow-dirty", "--quiet"], &folder));
    let name = concat!("latchwork-", env!("CARGO_PKG_VERSION"));
    let archive = folder.join(format!("package/{name}.crate"));
    // With the time of now (m): the files in the archive are all of one time, which cargo would take for unchanged.
    run(&folder, Command::new("tar").arg("xzmf").arg(archive));
    let published = folder.join(name);
    // What only tests use goes out of the manifest, and the manifest is the root of a workspace of its own.
    let manifest = published.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let sections = text.split("\n[").filter(|section| !section.starts_with("dev-dependencies"));
    let text = sections.collect::<Vec<_>>().join("\n[") + "\n[workspace]\n";
    std::fs::write(&manifest, text).unwrap();
    let target = folder.join("target");
    run(&published, &mut cargo(&["check", "--no-default-features"], &target));
    run(&published, &mut cargo(&["check", "--examples"], &target));
    // The same examples run among the workspace's own tests.
    if std::env::var_os("LATCHWORK_THOROUGH").is_some_and(|value| value != "0") {
        run(&published, &mut cargo(&["test", "--doc"], &target));
    }
}
