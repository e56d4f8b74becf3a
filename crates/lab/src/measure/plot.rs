//! The results as an SVG file: throughput over threads, or over the one parameter that varies.

use super::plan::Plan;
use super::results::{Place, Results, varied};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use latchwork_workloads::candidate::{Candidate, Kind, Origin};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

/// A panel's width and height.
const PANEL: (u32, u32) = (620, 400);
const TITLE: u32 = 64;
const LEGEND_ROW: u32 = 26;
/// Width of a lock in the legend.
const LEGEND_CELL: u32 = 190;
const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(110, 110, 110);

/// One lock's curve in a panel.
struct Curve {
    lock: Candidate,
    /// x, then the least, median and greatest of the runs.
    points: Vec<(f64, [f64; 3])>,
}

struct Panel {
    title: String,
    curves: Vec<Curve>,
}

struct Axis {
    label: String,
    values: Vec<f64>,
    log: bool,
}

/// Fails if the ending of the name `path` promises another kind of picture than the one that is written.
pub fn check(path: &Path) -> Result<()> {
    match path.extension() {
        Some(ending) if !ending.eq_ignore_ascii_case("svg") => {
            let (shown, name) = (path.display(), path.with_extension("svg"));
            Err(Failure::usage(format!(
                "--plot {shown}: only SVG is written, which browsers show; name a file that ends in .svg: --plot {}",
                output::shell_word(&name.to_string_lossy())
            )))
        }
        _ => Ok(()),
    }
}

/// Draws the results into `path`.
pub fn write(path: &Path, plan: &Plan, results: &Results, machine: &str) -> Result<()> {
    let text = text(plan, results, machine)
        .map_err(|error| Failure::new(format!("--plot {}: {error}", path.display())))?;
    output::write("--plot", path, &text)
}

/// What comes of drawing.
pub type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The drawing.
pub fn text(plan: &Plan, results: &Results, machine: &str) -> Drawn<String> {
    let (axis, panels) = panels(plan, results);
    let columns = if panels.len() > 4 { 3 } else { panels.len().clamp(1, 2) };
    let rows = panels.len().div_ceil(columns).max(1);
    let width = PANEL.0 * columns as u32;
    let per_row = (width / LEGEND_CELL).max(1) as usize;
    let legend = LEGEND_ROW * plan.locks.len().div_ceil(per_row) as u32 + 12;
    let height = TITLE + PANEL.1 * rows as u32 + legend;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (title, rest) = root.split_vertically(TITLE);
        let (charts, bottom) = rest.split_vertically(PANEL.1 * rows as u32);
        title.draw_text(
            &format!("{}: {}", plan.workload.name, plan.workload.summary),
            &(FONT, 19).into_text_style(&title),
            (16, 12),
        )?;
        let threads =
            if axis.label == "threads" { String::new() } else { format!(", {} threads", plan.threads[0]) };
        for (line, y) in [(format!("{machine}{threads}"), 36), (plan.workload.source.to_owned(), 54)] {
            title.draw_text(&line, &(FONT, 14).into_text_style(&title).color(&GREY), (16, y))?;
        }
        for (panel, area) in panels.iter().zip(charts.split_evenly((rows, columns))) {
            draw_panel(&area, panel, &axis, plan.workload.operation)?;
        }
        for (index, lock) in plan.locks.iter().enumerate() {
            let (column, row) = ((index % per_row) as i32, (index / per_row) as i32);
            let (x, y) = (column * LEGEND_CELL as i32 + 20, row * LEGEND_ROW as i32 + 12);
            let colour = colour(lock.name);
            bottom.draw(&PathElement::new(vec![(x, y), (x + 26, y)], colour.stroke_width(2)))?;
            bottom.draw(&marker(lock, (x + 13, y), colour))?;
            bottom.draw_text(lock.name, &(FONT, 15).into_text_style(&bottom), (x + 34, y - 8))?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// What is on the x axis, and a panel for each of the settings that are not.
fn panels(plan: &Plan, results: &Results) -> (Axis, Vec<Panel>) {
    let curve = |lock: usize, places: Vec<(f64, Place)>| {
        let point = |(x, place): (f64, Place)| {
            let rates = results.at(place).rates();
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let most = rates.iter().copied().fold(0.0, f64::max);
            Some((x, [least, results.at(place).rate()?, most]))
        };
        Curve { lock: plan.locks[lock], points: places.into_iter().filter_map(point).collect() }
    };
    if let Some((name, values)) = parameter_axis(plan) {
        let places = |lock| {
            let place = |(settings, x): (usize, &f64)| (*x, Place { settings, threads: 0, lock });
            values.iter().enumerate().map(place).collect()
        };
        let curves = (0..plan.locks.len()).map(|lock| curve(lock, places(lock))).collect();
        let log = values.iter().all(|value| *value > 0.0);
        return (Axis { label: name.to_owned(), values, log }, vec![Panel { title: String::new(), curves }]);
    }
    let panel = |settings| {
        let places = |lock| {
            let place = |(threads, x): (usize, &usize)| (*x as f64, Place { settings, threads, lock });
            plan.threads.iter().enumerate().map(place).collect()
        };
        let curves = (0..plan.locks.len()).map(|lock| curve(lock, places(lock))).collect();
        Panel { title: varied(plan, settings), curves }
    };
    let values = plan.threads.iter().map(|threads| *threads as f64).collect();
    let axis = Axis { label: "threads".into(), values, log: plan.workload.log_threads };
    (axis, (0..plan.settings.len()).map(panel).collect())
}

/// The parameter that goes on the x axis: the only one that varies, if the thread count does not.
fn parameter_axis(plan: &Plan) -> Option<(&'static str, Vec<f64>)> {
    if plan.threads.len() > 1 || plan.settings.len() < 2 {
        return None;
    }
    let of = |name: &str| plan.settings.iter().map(|settings| settings.number(name)).collect::<Vec<_>>();
    let varying: Vec<_> = plan
        .workload
        .parameters
        .iter()
        .map(|parameter| parameter.name)
        .filter(|name| of(name).windows(2).any(|pair| pair[0] != pair[1]))
        .collect();
    match varying[..] {
        [name] => {
            let values = of(name);
            values.is_sorted_by(|a, b| a < b).then_some((name, values))
        }
        _ => None,
    }
}

/// The x axis: linear or logarithmic, with labels where there is room.
struct Scale {
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn new(axis: &Axis) -> Self {
        let first = axis.values.first().copied().unwrap_or(1.0);
        let last = axis.values.last().copied().unwrap_or(1.0);
        let log = axis.log && last > first;
        let ticks = ticks(&axis.values, log);
        // A little room, lest the outermost markers be cut.
        let (from, to) = if log { (first * 0.94, last * 1.06) } else { (0.0, (last * 1.03).max(1.0)) };
        Scale { from, to, log, ticks }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (least, most): (i32, i32)) -> i32 {
        let share = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        least + (share * f64::from(most - least)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        format!("{value}")
    }
}

fn draw_panel(
    area: &DrawingArea<SVGBackend, Shift>,
    panel: &Panel,
    axis: &Axis,
    operation: &str,
) -> Drawn<()> {
    let points = panel.curves.iter().flat_map(|curve| &curve.points);
    let most = points.map(|(_, [.., most])| *most).fold(0.0, f64::max);
    let (scale, unit) = match most {
        most if most >= 1e6 => (1e6, "million per second"),
        most if most >= 1e3 => (1e3, "thousand per second"),
        _ => (1.0, "per second"),
    };
    let top = if most > 0.0 { most / scale * 1.06 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(68)
        .caption(&panel.title, (FONT, 15))
        .build_cartesian_2d(Scale::new(axis), 0.0..top)?;
    let digits = if top < 1.0 { 2 } else { usize::from(top < 10.0) };
    chart
        .configure_mesh()
        .x_desc(&axis.label)
        .y_desc(format!("{operation}, {unit}"))
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .y_label_formatter(&|y| format!("{y:.digits$}"))
        .draw()?;
    for curve in &panel.curves {
        let colour = colour(curve.lock.name);
        let line = curve.points.iter().map(|(x, [_, median, _])| (*x, median / scale));
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
        let bars = curve.points.iter().map(|(x, [least, _, most])| {
            PathElement::new(vec![(*x, least / scale), (*x, most / scale)], colour.mix(0.5).stroke_width(1))
        });
        chart.draw_series(bars)?;
        let markers = curve.points.iter().map(|(x, [_, median, _])| {
            EmptyElement::at((*x, median / scale)) + marker(&curve.lock, (0, 0), colour)
        });
        chart.draw_series(markers)?;
    }
    Ok(())
}

/// A dot for a mutex, a square for a reader-writer lock, a triangle for a strategy; hollow for other libraries' locks.
fn marker<'a>(
    lock: &Candidate,
    (x, y): (i32, i32),
    colour: RGBColor,
) -> DynElement<'static, SVGBackend<'a>, (i32, i32)> {
    let style = if lock.origin == Origin::Peer { colour.stroke_width(2) } else { colour.filled() };
    match lock.kind {
        Kind::Mutex => Circle::new((x, y), 4, style).into_dyn(),
        Kind::RwLock => Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], style).into_dyn(),
        Kind::SeqLock => Cross::new((x, y), 4, style).into_dyn(),
        Kind::Strategy => TriangleMarker::new((x, y), 5, style).into_dyn(),
    }
}

/// Those of the values that have room for a label: both ends, then powers of two, then the others.
fn ticks(values: &[f64], log: bool) -> Vec<f64> {
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return Vec::new() };
    let position = |value: f64| if log { (value / first).ln() / (last / first).ln() } else { value / last };
    let power = |value: &&f64| value.log2().fract() == 0.0;
    let candidates = [last, first]
        .into_iter()
        .chain(values.iter().filter(power))
        .chain(values.iter().filter(|value| !power(value)));
    let mut ticks: Vec<f64> = Vec::new();
    for value in candidates.copied() {
        if ticks.iter().all(|tick| (position(*tick) - position(value)).abs() > 0.055) {
            ticks.push(value);
        }
    }
    ticks.sort_by(f64::total_cmp);
    ticks
}

/// The lock's colour, the same in every plot. Variants of a lock are near each other.
pub fn colour(name: &str) -> RGBColor {
    const COLOURS: &[(&str, (u8, u8, u8))] = &[
        ("tas", (200, 30, 40)),
        ("ttas", (255, 127, 14)),
        ("ticket", (188, 150, 10)),
        ("mcs", (40, 140, 40)),
        ("clh", (130, 200, 90)),
        ("shfl-spin", (95, 165, 235)),
        ("shfl", (20, 60, 170)),
        ("pf-t", (225, 120, 180)),
        ("pf-q", (190, 40, 130)),
        ("bravo-pf-t", (90, 210, 200)),
        ("bravo-pf-q", (0, 130, 130)),
        ("bravo-pf-q-private", (110, 110, 200)),
        ("shfl-rw", (110, 30, 160)),
        ("bravo-shfl-rw", (175, 125, 225)),
        ("bravo-2d-shfl-rw", (215, 95, 225)),
        ("glibc", (40, 40, 40)),
        ("glibc-rw", (105, 105, 105)),
        ("std", (140, 80, 50)),
        ("std-rw", (195, 145, 110)),
        ("parking_lot", (100, 90, 20)),
        ("parking_lot-rw", (165, 160, 70)),
        ("absl", (0, 90, 90)),
        ("absl-rw", (60, 150, 170)),
        ("nsync", (120, 0, 60)),
        ("nsync-rw", (180, 80, 110)),
        ("ck-ticket", (230, 190, 60)),
        ("ck-mcs", (90, 120, 60)),
        ("ck-pf", (240, 160, 150)),
        ("ck-rw", (150, 150, 150)),
    ];
    if let Some((_, (red, green, blue))) = COLOURS.iter().find(|(known, _)| *known == name) {
        return RGBColor(*red, *green, *blue);
    }
    // Any other: by its name alone.
    let hash =
        name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [hue, saturation, lightness] = [hash % 360, hash / 360 % 5, hash / 1800 % 5].map(f64::from);
    let colour = HSLColor(hue / 360.0, 0.45 + 0.1 * saturation, 0.3 + 0.05 * lightness);
    let (red, green, blue) = colour.to_backend_color().rgb;
    RGBColor(red, green, blue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::results::Run;
    use latchwork_workloads::peers;
    use latchwork_workloads::workload::Settings;

    fn plan(threads: Vec<usize>, set: &[&str]) -> Plan {
        let workload = latchwork_workloads::registry::find("rwbench").unwrap();
        let parameter = workload.parameters.iter().find(|parameter| parameter.name == "writes").unwrap();
        let settings = set
            .iter()
            .map(|text| {
                let mut settings = Settings::new(workload.parameters);
                settings.set(parameter, text).unwrap();
                settings
            })
            .collect();
        let locks = peers::candidates().into_iter().filter(|lock| lock.name.contains("pf-q")).collect();
        Plan { workload, locks, against: None, threads, settings, runs: 1, seed: 1 }
    }

    fn measured(plan: &Plan) -> Results {
        let mut results = Results::new(plan);
        for index in 0..results.points.len() {
            results.file(index, Ok(Run::at(1e6 * (index + 1) as f64)));
        }
        results
    }

    #[test]
    fn a_plot_names_its_axes_units_and_locks() {
        let plan = plan(vec![1, 8, 72], &["9/10", "1/100"]);
        let svg = text(&plan, &measured(&plan), "x5-2").unwrap();
        for wanted in ["threads", "million per second", "pf-q", "bravo-pf-q", "writes=9/10", "x5-2", "\n72\n"]
        {
            assert!(svg.contains(wanted), "{wanted} is missing");
        }
        let RGBColor(red, green, blue) = colour("pf-q");
        assert!(svg.contains(&format!("#{red:02X}{green:02X}{blue:02X}")));
    }

    #[test]
    fn a_parameter_becomes_the_axis_if_threads_do_not_vary() {
        let one = plan(vec![64], &["1/100", "1/10", "1/2"]);
        assert_eq!(parameter_axis(&one).unwrap().1, [0.01, 0.1, 0.5]);
        assert_eq!(panels(&one, &measured(&one)).1.len(), 1);
        let many = plan(vec![1, 2], &["1/100", "1/10"]);
        assert!(parameter_axis(&many).is_none());
        assert_eq!(panels(&many, &measured(&many)).1.len(), 2);
    }

    #[test]
    fn nothing_measured_is_still_a_plot() {
        let plan = plan(vec![1], &["1/100"]);
        assert!(text(&plan, &Results::new(&plan), "here").unwrap().contains("svg"));
    }

    #[test]
    fn every_lock_has_a_colour_of_its_own() {
        let names: Vec<_> = peers::candidates().into_iter().map(|lock| lock.name).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(names[..at].iter().all(|other| colour(other) != colour(name)), "{name}");
        }
        assert_eq!(colour("not-known-yet"), colour("not-known-yet"));
    }

    #[test]
    fn labels_do_not_overlap() {
        let ticks = ticks(&[1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 72.0], true);
        assert!(ticks.contains(&1.0) && ticks.contains(&72.0) && !ticks.contains(&64.0), "{ticks:?}");
    }
}
