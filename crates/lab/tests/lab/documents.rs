//! The pages of `docs`: every page is linked from the index, and every table of figures names its command and machine.

use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The pages with their text, but for the index.
fn pages() -> Vec<(String, String)> {
    let files = std::fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let named = pages.map(|path| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap())
    });
    named.filter(|(name, _)| name != "README.md").collect()
}

#[test]
fn the_index_links_every_page_and_no_other() {
    let index = std::fs::read_to_string(docs().join("README.md")).unwrap();
    let link = |name: &str| format!("[{name}]({name})");
    for (name, _) in pages() {
        assert!(index.contains(&link(&name)), "docs/README.md does not link {name}");
    }
    for linked in index.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
    {
        assert!(docs().join(linked).exists(), "docs/README.md links {linked}, which does not exist");
    }
}

/// Whether a cell of a table is a figure: a number with two digits or more and a fraction.
fn is_figure(cell: &str) -> bool {
    let number = cell.trim().trim_matches('*').split(' ').next().unwrap_or_default();
    number.contains('.') && number.chars().all(|c| c.is_ascii_digit() || c == '.') && number.len() > 2
}

/// The lines of `text` with tables of figures outside of a generated block, and blocks without a machine or an end.
fn unmarked(text: &str) -> Vec<String> {
    let (mut wrong, mut inside) = (Vec::new(), false);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("<!-- generated: ") {
            let machine = lines.get(at + 1).is_some_and(|next| next.starts_with("<!-- machine: "));
            if inside || !machine {
                wrong
                    .push(format!("line {}: a block without an end before it, or without a machine", at + 1));
            }
            inside = true;
        } else if *line == "<!-- end of generated -->" {
            inside = false;
        } else if !inside
            && line.starts_with('|')
            && line.split('|').filter(|cell| is_figure(cell)).count() > 1
        {
            wrong.push(format!("line {}: {line}", at + 1));
        }
    }
    if inside {
        wrong.push("a block has no end".to_owned());
    }
    wrong
}

#[test]
fn every_table_of_figures_names_its_command_and_its_machine() {
    // These are generated as a whole.
    let whole = ["real-programs.md", "reproduction.md", "which-lock.md", "workloads.md"];
    for (name, text) in pages() {
        if whole.contains(&name.as_str()) {
            assert!(text.starts_with("<!-- generated: "), "{name}");
            continue;
        }
        assert_eq!(unmarked(&text), [""; 0], "docs/{name}");
    }
}

#[test]
fn a_table_without_a_head_is_found() {
    let table = "| lock | ns | ratio |\n|---|---|---|\n| mcs | 13.54 | 1.20 |\n";
    assert_eq!(unmarked(table).len(), 1);
    let head = "<!-- generated: a command -->\n<!-- machine: a machine -->\n\n";
    assert_eq!(unmarked(&format!("{head}{table}\n<!-- end of generated -->\n")), [""; 0]);
    assert_eq!(unmarked(&format!("{head}{table}")).len(), 1, "the end is missing");
    assert_eq!(
        unmarked(&format!("<!-- generated: a command -->\n{table}<!-- end of generated -->")).len(),
        1
    );
}
