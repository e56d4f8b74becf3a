//! Tests that must not share their process with others.

/// Runs a test of this crate, with this body, in a process of its own.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "LATCHWORK_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some() {
        return body();
    }
    let (succeeded, said) = in_a_process(test, VARIABLE, "1");
    assert!(succeeded && said.contains("1 passed"), "{said}");
}

/// Runs a test of this crate in a process of its own, with this value of a variable. Returns whether it succeeded, and what it
/// printed.
pub(crate) fn in_a_process(test: &str, variable: &str, value: &str) -> (bool, std::string::String) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    let output = child.env(variable, value).env("RUST_BACKTRACE", "0").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), std::string::String::from_utf8_lossy(&text).into_owned())
}
