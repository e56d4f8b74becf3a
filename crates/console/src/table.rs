//! Tables of the commands: on the terminal, without lines between the columns, and as Markdown.

use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};
use console::Term;

/// A table without rows.
pub fn new(head: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head);
    table
}

/// Puts the cells of these columns, which have numbers, to the right.
pub fn right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for column in columns {
        table.column_mut(column).expect("within the head").set_cell_alignment(CellAlignment::Right);
    }
}

/// Breaks cells, so that the table is as wide as the terminal. Without a terminal, each row is one line of at most `longest`
/// characters: that is what grep wants.
pub fn fit(table: &mut Table, longest: u16) {
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(columns(longest));
}

/// Columns of the terminal, or `longest` without one.
pub fn columns(longest: u16) -> u16 {
    stdout_columns().map_or(longest, |columns| u16::try_from(columns).unwrap_or(longest))
}

/// Columns of the terminal that standard output is, if it is one.
pub fn stdout_columns() -> Option<usize> {
    columns_of(&Term::stdout())
}

/// Columns of the terminal that standard error is, if it is one.
pub fn stderr_columns() -> Option<usize> {
    columns_of(&Term::stderr())
}

fn columns_of(terminal: &Term) -> Option<usize> {
    // In a narrower one the lines are broken by the terminal.
    terminal.size_checked().map(|(_, columns)| usize::from(columns.max(80)))
}

/// A row of a table in Markdown.
pub fn markdown_row(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.as_ref().replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The head of a table in Markdown. `is_number` says whether the cells of a column stand on the right.
pub fn markdown_head(head: &[impl AsRef<str>], is_number: impl Fn(usize) -> bool) -> String {
    let rule = |column| if is_number(column) { "---:" } else { "---" };
    markdown_row(head) + &markdown_row(&(0..head.len()).map(rule).collect::<Vec<_>>())
}
