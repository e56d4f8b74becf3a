//! `latchwork run --stats-json` with programs that do to their process what servers do.

use crate::common::{compile, latchwork, scratch, stderr};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Runs a program and returns the lines that it and its children appended.
fn statistics(program: &Path, file: &Path) -> Vec<Value> {
    let output = latchwork().args(["run", "--stats-json"]).arg(file).arg("--").arg(program).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_process_title_over_the_environment_does_not_move_the_file() {
    let directory = scratch("title");
    // What a server does to have room for its process title: it writes over its arguments and environment.
    let source = r#"
        #include <string.h>
        extern char **environ;
        int main(int argc, char **argv) {
            char *end = argv[argc - 1];
            for (char **entry = environ; *entry; entry++) end = *entry;
            end += strlen(end);
            memset(argv[0], 'x', end - argv[0]);
            return 0;
        }"#;
    let program = compile(&directory, "program", source, &[]);
    let lines = statistics(&program, &directory.join("statistics"));
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["mutex"]["lock"], "shfl");
}

/// A shell script starts a hundred processes that lock nothing. Each report names its program, and has no line without a number.
#[test]
fn the_text_names_programs_and_leaves_out_what_is_not_used() {
    let directory = scratch("program-names");
    let source = r#"
        #include <pthread.h>
        int main(int argc, char **argv) {
            static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
            for (int i = 1; i < argc; i++) {
                pthread_mutex_lock(&mutex);
                pthread_mutex_unlock(&mutex);
            }
            return 0;
        }"#;
    let program = compile(&directory, "a \"name\\", source, &["-pthread"]);
    let run = |arguments: &[&str]| {
        let output =
            latchwork().args(["run", "--stats", "--"]).arg(&program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stderr(&output);
        text.lines()
            .map(|line| line.split_once("]: ").expect("a process number").1.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(run(&[]), ["a ?name?: mutex (shfl), rwlock (bravo-2d-shfl-rw): no calls"]);
    assert_eq!(
        run(&["1", "2"]),
        [
            "a ?name?: mutex (shfl): 1 object, 2 calls, 0 had to wait",
            "a ?name?: rwlock (bravo-2d-shfl-rw): no calls",
        ]
    );
    let lines = statistics(&program, &directory.join("statistics"));
    assert_eq!(lines[0]["program"], "a ?name?");
}

#[test]
fn a_process_that_gave_up_its_privileges_writes_its_statistics() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can change its root directory and its user");
        return;
    }
    let directory = scratch("privileges");
    fs::create_dir(directory.join("root")).unwrap();
    let source = r#"
        #include <grp.h>
        #include <unistd.h>
        int main(void) {
            return chroot(ROOT) || chdir("/") || setgroups(0, 0) || setgid(65534) || setuid(65534);
        }"#;
    let root = format!("-DROOT=\"{}\"", directory.join("root").display());
    let program = compile(&directory, "program", source, &[&root]);
    let file = directory.join("statistics");
    assert_eq!(statistics(&program, &file).len(), 1);
    assert_eq!(statistics(&program, &file).len(), 2);
}

/// The descriptor that is kept for the case above may be closed by the program, and its number used again.
#[test]
fn a_program_that_closes_all_descriptors_writes_its_statistics_where_they_belong() {
    let directory = scratch("descriptors");
    let source = r#"
        #include <fcntl.h>
        #include <unistd.h>
        int main(void) {
            for (int file = 3; file < 1000; file++) close(file);
            for (int file = 3; file < 1000; file++) open(OWN, O_RDWR | O_CREAT | O_APPEND, 0600);
            return 0;
        }"#;
    let own = format!("-DOWN=\"{}\"", directory.join("own").display());
    let program = compile(&directory, "program", source, &[&own]);
    let file = directory.join("statistics");
    assert_eq!(statistics(&program, &file).len(), 1);
    assert_eq!(fs::read(directory.join("own")).unwrap(), b"");
    // A file that was removed while the program ran is made again.
    let source = "#include <unistd.h>\nint main(void) { return unlink(FILE_NAME); }";
    let name = format!("-DFILE_NAME=\"{}\"", file.display());
    let program = compile(&directory, "remover", source, &[&name]);
    assert_eq!(statistics(&program, &file).len(), 1);
}
