//! Text for `--help`.

/// Joins the lines of each paragraph, so that clap breaks them where the terminal ends. Lines that are as wide as the source
/// would be broken once more. Indented lines stay as they are.
pub fn flowing(text: &str) -> String {
    let mut flowing = String::new();
    let mut within = false;
    for line in text.lines() {
        let alone = line.is_empty() || line.starts_with(' ');
        flowing += match (flowing.is_empty(), within && !alone) {
            (true, _) => "",
            (_, true) => " ",
            (_, false) => "\n",
        };
        flowing += line;
        within = !alone;
    }
    flowing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_flow_and_examples_stand() {
        assert_eq!(
            flowing("Some\nwords.\n\nExamples:\n  one\n  two\nMore."),
            "Some words.\n\nExamples:\n  one\n  two\nMore."
        );
    }
}
