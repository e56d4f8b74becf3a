//! Which line of the file a message of the parser is about. The parser names the end of the file where the fault is a key of a table, or
//! the content of a string.

/// A table of the file: its name, the line of its header, and the keys in it with their lines. The first one is the file itself.
struct Table<'a> {
    name: &'a str,
    line: usize,
    keys: Vec<(&'a str, usize)>,
}

impl Table<'_> {
    fn line_of(&self, key: &str) -> Option<usize> {
        self.keys.iter().rfind(|(name, _)| *name == key).map(|(_, line)| *line)
    }
}

/// The parser's message, with the line of the fault if the parser has another one.
pub fn corrected(text: &str, message: &str) -> String {
    let tables = tables(text);
    let (cause, table) = match message.split_once(" for key `") {
        Some((cause, rest)) => (cause, rest.split('`').next().unwrap_or("")),
        None => (message.split(" at line ").next().unwrap_or(message), ""),
    };
    let name = |start: &str| cause.strip_prefix(start)?.strip_prefix('`')?.split('`').next();
    let mut of_name = tables.iter().filter(|one| one.name == table);
    let line = if let Some(key) = name("unknown field ") {
        let is_below = |one: &&Table| one.name.split('.').next() == Some(key);
        let header = || tables.iter().find(is_below).map(|one| one.line);
        of_name.find_map(|one| one.line_of(key)).or_else(header)
    } else if let Some(key) = name("missing field ") {
        of_name.find(|one| one.line_of(key).is_none()).map(|one| one.line)
    } else if let Some(key) = name("duplicate key: ") {
        let is_twice = |one: &&Table| one.keys.iter().filter(|(name, _)| *name == key).count() > 1;
        of_name.find(is_twice).and_then(|one| one.line_of(key))
    } else if cause.ends_with(" expected a sequence") && table == "lock" && of_name.next().is_some() {
        let header = text.lines().position(|line| line.trim_start().starts_with("[lock]"));
        return match header {
            Some(line) => format!("line {}: write [[lock]] for each lock, with two brackets", line + 1),
            None => message.into(),
        };
    } else if let Some((string, _)) = cause.split_once(" is no place") {
        text.lines().position(|line| line.contains(string)).map(|line| line + 1)
    } else {
        return message.into();
    };
    match line {
        Some(line) => format!("line {line}: {cause}"),
        None => cause.into(),
    }
}

/// The tables in their order. A string of several lines may look like a key.
fn tables(text: &str) -> Vec<Table<'_>> {
    let mut tables = vec![Table { name: "", line: 1, keys: Vec::new() }];
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[')
            && let Some((name, _)) = header.trim_start_matches('[').split_once(']')
            // A line of an array.
            && !name.trim().starts_with(['"', '\''])
        {
            tables.push(Table { name: name.trim(), line: number + 1, keys: Vec::new() });
        } else if let Some((key, _)) = line.split_once('=')
            && let Some(table) = tables.last_mut()
        {
            table.keys.push((key.trim().trim_matches(['"', '\'']), number + 1));
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const GOOD: &str = r#"version = 1
[module.server]
path = "/bin/server"
build-id = "ab12"
[[lock]]
kind = "mutex"
use = "shfl"
static = ["server 0x4010 cache+0x10"]
[[lock]]
kind = "rwlock"
use = "glibc"
from = [["server 0x1234 make", "server 0x1300"]]
"#;

    #[test]
    fn a_message_names_the_line_of_the_fault() {
        Config::parse(GOOD).expect("a good file");
        for (from, to, start) in [
            ("version = 1", "version = 1\nlocks = 3", "line 2: unknown field `locks`, expected one of"),
            ("[module.server]", "[modul.server]", "line 2: unknown field `modul`"),
            ("use = \"glibc\"", "used = \"glibc\"", "line 11: unknown field `used`"),
            ("use = \"glibc\"", "", "line 9: missing field `use`"),
            ("path = \"/bin/server\"\n", "", "line 2: missing field `path`"),
            ("version = 1", "", "line 1: missing field `version`"),
            ("use = \"glibc\"", "kind = \"rwlock\"", "line 11: duplicate key: `kind`"),
            ("0x4010", "4010", "line 8: \"server 4010 cache+0x10\" is no place in a file"),
            ("0x1300", "1300", "line 12: \"server 1300\" is no place"),
            (
                "use = \"glibc\"",
                "use = 3",
                "invalid type: integer `3`, expected a string for key `lock.use` at line 11",
            ),
        ] {
            let error = Config::parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(error.starts_with(start), "{to}: {error}");
        }
        let error = Config::parse(&GOOD.replacen("[[lock]]", "[lock]", 1).replacen("[[lock]]", "[x]", 1));
        assert!(error.is_err_and(|why| why.starts_with("line 5: write [[lock]]")));
    }
}
