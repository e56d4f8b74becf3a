//! A program outside of the workspace, in release mode with cargo's own profile. There each crate is compiled in several units, and the
//! optimiser moves functions between them (thin, local LTO). This workspace's release profile has one unit, so its builds do not show
//! whether the crate's thread-local words link in a user's program.

use std::path::Path;
use std::process::Command;

#[test]
fn a_program_outside_of_the_workspace_links_and_runs() {
    if std::env::var_os("LATCHWORK_THOROUGH").is_none_or(|value| value == "0") {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("optimised");
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"optimised\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [dependencies]\nlatchwork.path = {here:?}\n[workspace]\n"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(folder.join("src/main.rs"), include_str!("optimised/program.rs")).unwrap();
    // The versions that this project's own build has fetched.
    std::fs::copy(here.join("../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();

    // Without the network. Variables of the outer build would change the profile.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--release", "--offline", "--quiet", "--target-dir", "target"]).current_dir(&folder);
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_BUILD_TARGET").env_remove("RUSTC_WORKSPACE_WRAPPER");
    let output = cargo.output().expect("cargo starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "4000 40 10 10\n", "{stderr}");
}
