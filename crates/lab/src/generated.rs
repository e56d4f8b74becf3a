//! The head of a Markdown document that a command of the laboratory writes: the command and the machine.

/// The lines that say how to get the document again, and where it was measured.
pub fn head(machine: &str) -> String {
    format!("<!-- generated: {} -->\n<!-- machine: {machine} -->\n\n", command_line())
}

/// This process's command line, as a user types it.
fn command_line() -> String {
    let arguments = std::env::args().skip(1).map(|argument| quoted(&argument));
    std::iter::once("latchwork-lab".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// `argument` as a shell reads it. A comment of Markdown must not contain `--` followed by `>`.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:%+@".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''").replace("-->", "--\\>"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
