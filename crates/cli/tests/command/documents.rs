//! `latchwork completions` and `latchwork man`.

use crate::common::{output, scratch, stderr, stdout};
use std::fs;
use std::process::{Command, Stdio};

/// The commands that a user sees.
const COMMANDS: [&str; 11] =
    ["list", "run", "check", "profile", "record", "predict", "top", "compare", "completions", "man", "tune"];

#[test]
fn the_pages_hold_options_and_examples() {
    let scratch = scratch("man");
    let directory = scratch.join("made/man1");
    let output = output(&["man", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected: Vec<_> = COMMANDS.iter().map(|name| format!("latchwork-{name}.1")).collect();
    expected.push("latchwork.1".into());
    expected.sort();
    assert_eq!(names, expected);
    let page = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    for name in &names {
        assert!(page(name).contains(".SH EXAMPLES\n.nf\n\\&  latchwork"), "{name}: {}", page(name));
    }
    assert!(page("latchwork-run.1").contains("stats\\-json"));
    assert!(page("latchwork-compare.1").contains(".SH NOTES\n\\&What is compared"));
    // The page is not one that the formatter complains about.
    let Ok(formatted) =
        Command::new("man").args(["--warnings=w", "-l"]).arg(directory.join("latchwork-compare.1")).output()
    else {
        eprintln!("SKIPPED: there is no man");
        return;
    };
    let text = stdout(&formatted);
    assert!(formatted.status.success() && stderr(&formatted).is_empty(), "{}", stderr(&formatted));
    assert!(text.contains("latchwork compare --mutex shfl,mcs --runs 20 -- ./bench"), "{text}");
}

#[test]
fn there_is_a_script_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&output(&["completions", shell]));
        for name in COMMANDS {
            assert!(script.contains(name), "{shell}: {name}");
        }
        // The last two are not told the values of options.
        let told = !["elvish", "powershell"].contains(&shell);
        assert_eq!(script.contains("bravo-2d-shfl-rw"), told, "{shell}");
        let Ok(mut parser) =
            Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()
        else {
            eprintln!("SKIPPED: there is no {shell}");
            continue;
        };
        std::io::Write::write_all(&mut parser.stdin.take().unwrap(), script.as_bytes()).unwrap();
        let parsed = parser.wait_with_output().unwrap();
        assert!(parsed.status.success(), "{shell}: {}", stderr(&parsed));
    }
    assert_eq!(output(&["completions", "no-such-shell"]).status.code(), Some(2));
}

#[test]
fn fish_completes_programs_where_a_program_is_run() {
    let script = stdout(&output(&["completions", "fish"]));
    let line = script.lines().find(|line| line.contains("__fish_complete_command")).unwrap();
    for command in ["run", "check", "compare", "profile", "record", "tune"] {
        assert!(line.split([' ', '"']).any(|word| word == command), "{command}: {line}");
    }
}

#[test]
fn bash_completes_commands_and_locks() {
    let script = stdout(&output(&["completions", "bash"]));
    let complete = |words: &str, current: u32| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={current}\n_latchwork latchwork \"${{COMP_WORDS[{current}]}}\" \"${{COMP_WORDS[{}]}}\"\necho \"${{COMPREPLY[@]}}\"",
            current - 1
        );
        let output = Command::new("bash").args(["-c", &ask]).output().unwrap();
        stdout(&output).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("latchwork compa", 1), ["compare"]);
    assert_eq!(complete("latchwork run --stats-", 2), ["--stats-json"]);
    for command in ["run", "check", "compare", "profile", "record"] {
        assert_eq!(complete(&format!("latchwork {command} --mutex qsp"), 3), ["qspinlock"], "{command}");
        assert!(
            complete(&format!("latchwork {command} --rwlock bravo-2d-shfl"), 3)
                .contains(&"bravo-2d-shfl-rw".to_owned()),
            "{command}"
        );
    }
}
