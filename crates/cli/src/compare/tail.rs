//! The end of a program's output, for messages about a run that failed.

/// The last few kilobytes of a failed run's output: nobody reads more, and what this process keeps would count as memory of the
/// programs that it starts.
pub fn end(output: String) -> String {
    const KEPT: usize = 8192;
    let mut start = output.len().saturating_sub(KEPT);
    while !output.is_char_boundary(start) {
        start += 1;
    }
    // Another allocation, which is as small.
    output[start..].to_owned()
}

/// The end of a failed run's output, indented.
pub fn tail(output: &str) -> String {
    const LINES: usize = 20;
    if output.lines().next().is_none() {
        return "\n  (it printed nothing)".into();
    }
    let mut text = String::from("\n  the end of its output:");
    for line in last_lines(output, LINES).lines() {
        text += &format!("\n  | {line}");
    }
    text
}

/// The last lines of an output, without control characters.
pub fn last_lines(output: &str, count: usize) -> String {
    const WIDTH: usize = 200;
    let lines: Vec<&str> = output.lines().collect();
    let shorten =
        |line: &&str| line.chars().filter(|char| !char.is_control()).take(WIDTH).collect::<String>();
    lines[lines.len().saturating_sub(count)..].iter().map(shorten).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_small() {
        assert_eq!(end("short".into()), "short");
        assert_eq!(end("ä".repeat(10_000) + "b").len(), 8191);
    }

    #[test]
    fn the_tail_is_short_and_harmless() {
        let output: String = (0..50).map(|line| format!("line {line}\x1b[31m\n")).collect();
        let tail = tail(&output);
        assert!(tail.contains("line 49[31m") && tail.contains("line 30[") && !tail.contains("line 29["));
    }
}
