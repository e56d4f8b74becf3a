//! `docs/architecture.md` and its picture are true: the picture is drawn from what cargo knows of the workspace, the files
//! that the page names exist, its numbers of lines are about right, and long files have a reason there.
//!
//! `LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-lab --test lab architecture` draws the picture anew.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where a crate stands in the picture, and what is written below its name.
struct Room {
    name: &'static str,
    in_product: bool,
    /// Pixels from the left edge of the picture.
    left: u32,
    width: u32,
    captions: [&'static str; 2],
}

const fn product(name: &'static str, left: u32, width: u32, captions: [&'static str; 2]) -> Room {
    Room { name, in_product: true, left, width, captions }
}

const fn laboratory(name: &'static str, left: u32, width: u32, captions: [&'static str; 2]) -> Room {
    Room { in_product: false, ..product(name, left, width, captions) }
}

/// Name, left edge, width, captions.
const ROOMS: &[Room] = &[
    product(
        "latchwork",
        195,
        745,
        [
            "the library: registry, locks and reclamation with maps, each written once over the trait Machine",
            "layers: registry, map > locks, reclaim > machine",
        ],
    ),
    product("latchwork-capi", 354, 108, ["latchwork.h, for", "C and C++"]),
    product("latchwork-check", 110, 108, ["lock order, misuse", ""]),
    product("latchwork-recording", 20, 155, ["the file of a profile,", "written and read"]),
    product("latchwork-preload", 20, 210, ["pthread calls of a", "program, by LD_PRELOAD"]),
    product("latchwork-cli", 20, 370, ["the command latchwork:", "list, run, check, compare"]),
    product("latchwork-console", 222, 128, ["what both commands", "share"]),
    product("latchwork-sim", 466, 108, ["simulated and", "exploring machine"]),
    laboratory("latchwork-workloads", 598, 126, ["the papers' pro-", "grams, peers, tables"]),
    laboratory("latchwork-loom", 732, 98, ["clients for the", "model checker"]),
    laboratory("latchwork-torture", 838, 112, ["stress, with locks", "broken on purpose"]),
    laboratory(
        "latchwork-lab",
        610,
        330,
        ["the command latchwork-lab: bench, simulate,", "reproduce, torture, calibrate, count"],
    ),
];

/// Pixels from one floor to the next, and of a room.
const FLOOR: u32 = 110;
const HEIGHT: u32 = 70;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Each crate of the workspace, and the crates of the workspace that it is built from.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = document["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let all: BTreeSet<_> = packages.iter().map(name).collect();
    let needs = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies.filter(|one| one["kind"] != "dev").map(name).filter(|name| all.contains(name)).collect()
    };
    packages.iter().map(|package| (name(package), needs(package))).collect()
}

/// The longest way down from a crate. Cargo refuses circles.
fn floor(crates: &BTreeMap<String, BTreeSet<String>>, name: &str) -> u32 {
    crates[name].iter().map(|below| floor(crates, below) + 1).max().unwrap_or(0)
}

/// Whether one crate needs another through a third one.
fn is_needed_through(crates: &BTreeMap<String, BTreeSet<String>>, upper: &str, lower: &str) -> bool {
    crates[upper].iter().any(|middle| {
        middle != lower && (crates[middle].contains(lower) || is_needed_through(crates, middle, lower))
    })
}

fn drawing(crates: &BTreeMap<String, BTreeSet<String>>) -> String {
    let room = |name: &str| {
        let found = ROOMS.iter().find(|room| room.name == name);
        found.unwrap_or_else(|| panic!("{name} has no place in the picture: add it to ROOMS"))
    };
    let floors = crates.keys().map(|name| floor(crates, name)).max().unwrap() + 1;
    let height = floors * FLOOR + 60;
    let top = |name: &str| height - 20 - HEIGHT - floor(crates, name) * FLOOR;
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" text-anchor=\"middle\">\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n\
         <rect width=\"960\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"292\" y=\"24\" font-size=\"15\">product</text>\n\
         <text x=\"775\" y=\"24\" font-size=\"15\">laboratory</text>\n\
         <line x1=\"587\" y1=\"12\" x2=\"587\" y2=\"{}\" stroke=\"#999\" stroke-dasharray=\"6 5\"/>\n",
        top("latchwork") - 20
    );
    for (upper, needs) in crates {
        for lower in needs.iter().filter(|lower| !is_needed_through(crates, upper, lower)) {
            let (from, to) = (room(upper), room(lower));
            // Straight down where one stands above the other, else to the nearest edge.
            let left = from.left.max(to.left);
            let right = (from.left + from.width).min(to.left + to.width);
            let (x1, x2) = if left < right {
                ((left + right) / 2, (left + right) / 2)
            } else if from.left > to.left {
                (from.left + 20, to.left + to.width - 20)
            } else {
                (from.left + from.width - 20, to.left + 20)
            };
            let _ = writeln!(
                svg,
                "<line x1=\"{x1}\" y1=\"{}\" x2=\"{x2}\" y2=\"{}\" stroke=\"#555\" marker-end=\"url(#head)\"/>",
                top(upper) + HEIGHT,
                top(lower)
            );
        }
    }
    for name in crates.keys() {
        let Room { left, width, captions, in_product, .. } = room(name);
        let (top, middle) = (top(name), left + width / 2);
        let fill = if *in_product { "#e3eefb" } else { "#f7ead8" };
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{fill}\" stroke=\"#555\"/>\n\
             <text x=\"{middle}\" y=\"{}\" font-size=\"13\" font-weight=\"bold\">{name}</text>",
            top + 22
        );
        for (line, caption) in (0..).zip(captions) {
            let caption = caption.replace('>', "&gt;");
            let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{}\">{caption}</text>", top + 42 + 17 * line);
        }
    }
    svg + "</svg>\n"
}

#[test]
fn the_picture_is_what_cargo_knows() {
    let (path, now) = (root().join("docs/architecture.svg"), drawing(&crates()));
    if std::env::var_os("LATCHWORK_WRITE_DOCS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == now,
        "run LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-lab --test lab architecture"
    );
}

#[test]
fn the_product_does_not_need_the_laboratory() {
    let crates = crates();
    let in_product = |name: &String| ROOMS.iter().any(|room| room.name == name && room.in_product);
    assert!(crates.keys().any(in_product) && !crates.keys().all(in_product));
    for (name, needs) in crates.iter().filter(|(name, _)| in_product(name)) {
        assert!(needs.iter().all(in_product), "{name} needs {needs:?}");
    }
}

/// The section of the page under this heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) =
        page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n## ").next().unwrap()
}

/// Every word in backquotes that looks like a path of this workspace is one.
#[test]
fn the_files_of_the_page_exist() {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let words = page.split('`').skip(1).step_by(2);
    let paths: BTreeSet<_> = words
        .filter(|word| ["crates/", "docs/", "scripts/", ".ci/"].iter().any(|start| word.starts_with(start)))
        .collect();
    let missing: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(paths.len() > 20 && missing.is_empty(), "{} paths; these are gone: {missing:?}", paths.len());
}

/// The Rust files of a layer, which is a file or a folder. Without tests.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let is_source = |path: &PathBuf| {
        path.file_stem() != Some("tests".as_ref())
            && (path.is_dir() || path.extension() == Some("rs".as_ref()))
    };
    entries.filter(is_source).flat_map(|path| sources(&path)).collect()
}

/// Whether a line of code names the module `layer` of its crate.
fn names(line: &str, layer: &str) -> bool {
    let code = line.split("//").next().unwrap();
    let begins = |path: &str| {
        let rest = path.trim_start().strip_prefix(layer);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next == '_' || next.is_alphanumeric()))
    };
    code.split("crate::").skip(1).any(|path| match path.strip_prefix('{') {
        Some(several) => several.split(',').any(begins),
        None => begins(path),
    })
}

/// Each table of layers has a row for every module of its crate, and no module imports one of a row above its own.
#[test]
fn layers_import_only_those_below() {
    assert!(names("use crate::map::entry;", "map") && names("pub fn a(_: &crate::map::B) {}", "map"));
    assert!(names("use crate::{Lock, map};", "map"));
    assert!(!names("use crate::mapping::page;", "map") && !names("/// As [`crate::map`].", "map"));
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    for name in ["latchwork", "preload"] {
        let source = root().join("crates").join(name).join("src");
        let start = format!("| `crates/{name}/src/");
        let rows = section(&page, "Layers").lines();
        let layers: Vec<_> = rows.filter_map(|line| line.strip_prefix(&start)?.split('`').next()).collect();
        let modules = std::fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().file_name());
        let modules: BTreeSet<_> = modules.filter(|module| module != "lib.rs").collect();
        assert_eq!(
            layers.iter().map(|layer| layer.into()).collect::<BTreeSet<std::ffi::OsString>>(),
            modules
        );
        for (row, layer) in layers.iter().enumerate() {
            for file in sources(&source.join(layer)) {
                let text = std::fs::read_to_string(&file).unwrap();
                for line in text.lines() {
                    assert!(!line.ends_with("crate::{"), "{file:?}: one layer a line: {line}");
                    let above = layers[..row].iter().find(|above| names(line, above.trim_end_matches(".rs")));
                    assert!(above.is_none(), "{file:?} imports a layer above its own: {line}");
                }
            }
        }
    }
}

/// The files of Rust, C and C++ in a folder and below, and their lines. Without what is built.
fn files(folder: &Path) -> Vec<(PathBuf, usize)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let of = |path: PathBuf| match path.extension().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() && path.file_name() != Some("target".as_ref()) => files(&path),
        Some("rs" | "c" | "cc" | "cpp" | "h" | "hpp") if path.is_file() => {
            let lines = std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
            vec![(path, lines)]
        }
        _ => Vec::new(),
    };
    entries.flat_map(|entry| of(entry.unwrap().path())).collect()
}

/// Lines of Rust, C and C++ in a folder and below.
fn lines(folder: &Path) -> usize {
    files(folder).into_iter().map(|(_, lines)| lines).sum()
}

/// The rows of the table of long files: `| file | reason |`.
fn reasons(page: &str) -> BTreeMap<&str, &str> {
    section(page, "Long files")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .collect()
}

/// A file of more than 600 lines has a reason in the table of the page.
#[test]
fn long_files_have_a_reason() {
    const LONG: usize = 600;
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let reasons = reasons(&page);
    let all = files(&root().join("crates"));
    assert!(all.len() > 300, "{} files", all.len());
    let name = |path: &Path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    let without: Vec<_> = all
        .iter()
        .filter(|(path, lines)| {
            *lines > LONG && reasons.get(&*name(path)).is_none_or(|reason| reason.is_empty())
        })
        .map(|(path, lines)| format!("{}: {lines} lines", name(path)))
        .collect();
    assert!(without.is_empty(), "split these, or say in docs/architecture.md why not: {without:#?}");
}

/// The table of the page has a line `| name | lines | lines of tests |` for each crate. It is allowed to be wrong by a
/// quarter, so that not every change has to touch it. `--nocapture` prints what the lines are now.
#[test]
fn the_numbers_of_lines_are_about_right() {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut totals = [(0, 0); 2];
    for Room { name, in_product, .. } in ROOMS {
        let folder = root().join("crates").join(name.strip_prefix("latchwork-").unwrap_or(name));
        let (source, tests) = (lines(&folder.join("src")), lines(&folder.join("tests")));
        println!("| `{name}` | {source} | {tests} |");
        let total = &mut totals[usize::from(!in_product)];
        (total.0, total.1) = (total.0 + source, total.1 + tests);
        let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in the table of docs/architecture.md"));
        let stated: Vec<usize> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        for (stated, counted) in stated.iter().zip([source, tests]) {
            let error = stated.abs_diff(counted);
            assert!(error <= counted / 4 + 50, "{name}: {stated} lines stated, {counted} counted");
        }
        assert_eq!(stated.len(), 2, "{name}: {row}");
    }
    println!("product {:?}, laboratory {:?}", totals[0], totals[1]);
}
