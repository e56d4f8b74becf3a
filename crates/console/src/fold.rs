//! Text in lines that a terminal shows whole.

/// A sentence in lines of at most `width` characters; a longer word stands alone in its line. The lines after the first begin with
/// `indent`.
pub fn fold(sentence: &str, indent: &str, width: usize) -> String {
    fill(sentence, "", indent, width)
}

/// Each line of the text in lines of at most `width` characters. The rest of an indented line stands four characters further to the right.
pub fn fold_lines(text: &str, width: usize) -> String {
    let fold_line = |line: &str| {
        let (indent, rest) = line.split_at(line.len() - line.trim_start_matches(' ').len());
        let further = if indent.is_empty() { "" } else { "    " };
        fill(rest, indent, &format!("{indent}{further}"), width)
    };
    text.lines().map(fold_line).collect()
}

fn fill(sentence: &str, first: &str, indent: &str, width: usize) -> String {
    let (mut text, mut used) = (first.to_owned(), first.len());
    for (number, word) in sentence.split_whitespace().enumerate() {
        let length = word.chars().count();
        if number > 0 && used + 1 + length > width {
            text = text + "\n" + indent;
            used = indent.len();
        } else if number > 0 {
            text.push(' ');
            used += 1;
        }
        text += word;
        used += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_they_may_be() {
        let text = "one two three\n\n    rule: four five six seven eight\n";
        let folded = fold_lines(text, 20);
        let lines = ["one two three", "", "    rule: four five", "        six seven", "        eight", ""];
        assert_eq!(folded, lines.join("\n"));
        assert_eq!(fold_lines(text, 100), text);
        assert_eq!(fold("a word_that_is_long here", "", 6), "a\nword_that_is_long\nhere\n");
    }
}
