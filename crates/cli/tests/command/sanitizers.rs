//! Programs that are built with a sanitizer run as they do without `latchwork`, under its locks.

use crate::common::{compile, output, scratch, stderr, stdout};
use std::process::Command;

const SOURCE: &str = include_str!("../../../preload/tests/programs/sanitized.c");

#[test]
fn a_program_with_a_sanitizer_runs() {
    let directory = scratch("sanitizers");
    for (sanitizer, runtime) in [("address", "libasan.so"), ("thread", "libtsan.so")] {
        let found = Command::new("cc").arg(format!("-print-file-name={runtime}")).output().unwrap();
        if !found.stdout.starts_with(b"/") {
            eprintln!("SKIPPED: no {runtime}; it comes with gcc");
            continue;
        }
        let option = format!("-fsanitize={sanitizer}");
        let program = compile(&directory, sanitizer, SOURCE, &[&option, "-pthread", "-g"]);
        let output = output(&["run", "--stats", "--mutex", "shfl", "--", program.to_str().unwrap()]);
        let stderr = stderr(&output);
        assert!(output.status.success() && stdout(&output) == "ok\n", "{sanitizer}: {stderr}");
        assert!(stderr.contains("mutex (shfl): ") && !stderr.contains("Sanitizer"), "{sanitizer}: {stderr}");
    }
}
