//! A prediction as an SVG file: throughput over threads, a line for each choice of locks, with its range as a band.

use super::report::{Curve, Report};
use crate::measure::plot::{Drawn, colour};
use plotters::prelude::*;

/// Width of the drawing, and height of the part with the curves.
const SIZE: (u32, u32) = (820, 460);
const TITLE: u32 = 64;
const LEGEND_ROW: u32 = 24;
const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(110, 110, 110);

/// The drawing. The same report gives the same text.
pub fn text(report: &Report) -> Drawn<String> {
    let rows = report.curves.len() as u32;
    let (width, height) = (SIZE.0, TITLE + SIZE.1 + LEGEND_ROW * rows + 12);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (title, rest) = root.split_vertically(TITLE);
        let (chart, legend) = rest.split_vertically(SIZE.1);
        let grey = |size| (FONT, size).into_text_style(&title).color(&GREY);
        let heading = (FONT, 19).into_text_style(&title);
        title.draw_text(&report.command.join(" "), &heading, (16, 12))?;
        let machine = &report.machine;
        let about = format!(
            "predicted for {} ({} CPUs), closed loop, seed {}",
            machine.name, machine.cpus, report.seed
        );
        title.draw_text(&about, &grey(14), (16, 36))?;
        let trust = if report.check.refusals.is_empty() {
            "line: median of five simulations; band: their range"
        } else {
            "NOT TO BE TRUSTED (--anyway): the replay does not fit the recording"
        };
        title.draw_text(trust, &grey(14), (16, 52))?;
        curves(report, &chart)?;
        for (row, (curve, colour)) in report.curves.iter().zip(colours(report)).enumerate() {
            let y = row as i32 * LEGEND_ROW as i32 + 10;
            legend.draw(&PathElement::new(vec![(20, y), (48, y)], colour.stroke_width(3)))?;
            let text = format!("{}: {}", curve.name, summary(curve, row == 0));
            legend.draw_text(&text, &(FONT, 14).into_text_style(&legend), (56, y - 8))?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// What the legend says of a curve.
fn summary(curve: &Curve, is_recorded: bool) -> String {
    let limit = curve.points.last().and_then(|row| row.limit.as_ref());
    let limit = limit.map_or(String::new(), |limit| format!("; {} limits", limit.name));
    let against = if is_recorded { "as recorded" } else { curve.against_recorded };
    format!("{against}; 90% of its best from {} threads on{limit}", curve.knee)
}

/// A colour for each curve: that of its lock, unless another curve has it.
fn colours(report: &Report) -> Vec<RGBColor> {
    let mut taken: Vec<RGBColor> = Vec::new();
    for curve in &report.curves {
        let lock = if curve.is_what_if { &curve.name } else { &curve.mutex };
        let names = [lock.as_str(), curve.name.as_str()];
        let free = names.into_iter().map(colour).find(|colour| !taken.contains(colour));
        taken.push(free.unwrap_or_else(|| colour(&format!("{} again", curve.name))));
    }
    taken
}

fn curves(report: &Report, area: &DrawingArea<SVGBackend, plotters::coord::Shift>) -> Drawn<()> {
    let rows = || report.curves.iter().flat_map(|curve| &curve.points);
    let most = rows().map(|row| row.high).fold(0.0, f64::max);
    let threads = rows().map(|row| row.threads).max().unwrap_or(1);
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
        .build_cartesian_2d(0.0..threads as f64 * 1.03, 0.0..top)?;
    let digits = if top < 1.0 { 2 } else { usize::from(top < 10.0) };
    chart
        .configure_mesh()
        .x_desc("threads")
        .y_desc(format!("acquisitions, {unit}"))
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.digits$}"))
        .draw()?;
    for (curve, colour) in report.curves.iter().zip(colours(report)) {
        let low = curve.points.iter().map(|row| (row.threads as f64, row.low / scale));
        let high = curve.points.iter().rev().map(|row| (row.threads as f64, row.high / scale));
        let band: Vec<(f64, f64)> = low.chain(high).collect();
        chart.draw_series([Polygon::new(band, colour.mix(0.15).filled())])?;
        let median = curve.points.iter().map(|row| (row.threads as f64, row.throughput / scale));
        chart.draw_series(LineSeries::new(median.clone(), colour.stroke_width(2)))?;
        chart.draw_series(median.map(|at| Circle::new(at, 3, colour.filled())))?;
    }
    Ok(())
}
