//! The head of a Markdown document that a command of the laboratory writes: the command and the machine.

use latchwork_console::output::shell_word;

/// The lines that say how to get the document again, and where it was measured.
pub fn head(machine: &str) -> String {
    format!("<!-- generated: {} -->\n<!-- machine: {machine} -->\n\n", command_line())
}

/// Options of files that keep or bring runs, or have the report, each with a value. They do not change what a document says.
const KEPT: [&str; 4] = ["--state", "--merge", "--from-state", "--report"];

/// This process's command line, as a user types it to get the document.
fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let program = std::iter::once("latchwork-lab".to_owned());
    program.chain(deciding(&arguments).map(quoted)).collect::<Vec<_>>().join(" ")
}

/// The arguments that decide what a document says.
fn deciding(arguments: &[String]) -> impl Iterator<Item = &str> {
    let is_kept = |at: usize| KEPT.contains(&arguments[at].as_str());
    let joined = |argument: &str| argument.split_once('=').is_some_and(|(option, _)| KEPT.contains(&option));
    let is_of_kept = move |at: usize| is_kept(at) || joined(&arguments[at]) || at > 0 && is_kept(at - 1);
    (0..arguments.len()).filter(move |at| !is_of_kept(*at)).map(|at| arguments[at].as_str())
}

/// `argument` as a shell reads it. A comment of Markdown must not contain `--` followed by `>`.
fn quoted(argument: &str) -> String {
    shell_word(argument).replace("-->", "--\\>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_runs_are_kept_is_no_part_of_the_command() {
        let line = "reproduce --state a.jsonl --only bueso --merge=1,2 --merge 3 --runs 2";
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let left: Vec<&str> = deciding(&arguments).collect();
        assert_eq!(left.join(" "), "reproduce --only bueso --runs 2");
    }

    #[test]
    fn a_head_names_the_command_and_the_machine() {
        assert_eq!(quoted("writes=1/2,1%"), "writes=1/2,1%");
        assert_eq!(quoted("two words"), "'two words'");
        assert!(!quoted("x --> y").contains("-->"));
        let head = head("a machine");
        assert!(head.starts_with("<!-- generated: latchwork-lab"), "{head}");
        assert!(head.contains("<!-- machine: a machine -->"), "{head}");
    }
}
