//! The plot of a statement, as a small SVG file: for each part of the rule our value, the runs' range, the band over the
//! uncertain costs, what the rule allows, and the paper's number.

use super::document::Answer;
use super::rule::{Bound, number};
use super::statements::Statement;
use crate::measure::plot::Drawn;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (640, 240);
/// The frame: left, top, right, bottom.
const FRAME: (i32, i32, i32, i32) = (56, 40, 628, 190);
const FONT: &str = "sans-serif";
const TEXT: RGBColor = RGBColor(60, 60, 60);
const LINES: RGBColor = RGBColor(215, 215, 215);
const ALLOWED: RGBColor = RGBColor(226, 242, 226);
const BAND: RGBColor = RGBColor(190, 190, 200);
const PAPER: RGBColor = RGBColor(30, 80, 190);
const MET: RGBColor = RGBColor(23, 112, 43);
const MISSED: RGBColor = RGBColor(179, 38, 30);
/// Over so many times the least value, the axis is logarithmic.
const WIDE: f64 = 6.0;

/// What is drawn of a part of the rule.
struct Part {
    /// The median of the runs, their least, and their greatest value.
    ours: [f64; 3],
    band: Option<(f64, f64)>,
    bound: Bound,
    met: bool,
    paper: Option<f64>,
    group: usize,
    label: &'static str,
}

/// From values to pixels.
struct Scale {
    least: f64,
    most: f64,
    log: bool,
}

impl Scale {
    fn new(parts: &[Part]) -> Self {
        let edges = |part: &Part| match part.bound {
            Bound::AtLeast(edge) | Bound::AtMost(edge) => [edge, edge],
            Bound::Within(least, most) => [least, most],
        };
        let of = |part: &Part| {
            let band = part.band.map_or([part.ours[0]; 2], |(least, most)| [least, most]);
            [&part.ours[..], &band, &edges(part), &[part.paper.unwrap_or(part.ours[0])]].concat()
        };
        let values: Vec<f64> = parts.iter().flat_map(of).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        match least > 0.0 && most / least > WIDE {
            true => Scale { least: least / 1.15, most: most * 1.15, log: true },
            false => Scale { least: least.min(0.0), most: (most * 1.08).max(0.01), log: false },
        }
    }

    fn y(&self, value: f64) -> i32 {
        let value = value.clamp(self.least, self.most);
        let share = match self.log {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => (value - self.least) / (self.most - self.least),
        };
        FRAME.3 - (share * f64::from(FRAME.3 - FRAME.1)).round() as i32
    }

    fn ticks(&self) -> Vec<f64> {
        let decades = |span: f64| span.log10().floor() as i32;
        if self.log {
            let first = decades(self.least);
            let steps = (0..8).flat_map(|up| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(first + up)));
            return steps.filter(|tick| (self.least..=self.most).contains(tick)).collect();
        }
        let rough = (self.most - self.least) / 4.0;
        let ten = 10f64.powi(decades(rough));
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|by| by * ten).find(|step| *step >= rough).unwrap_or(ten);
        let first = (self.least / step).ceil() as i64;
        (first..first + 8).map(|at| at as f64 * step).filter(|tick| *tick <= self.most).collect()
    }
}

fn parts(statement: &Statement, answer: &Answer) -> Vec<Part> {
    let part = |(at, check): (usize, &super::judge::Checked)| {
        let least = check.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = check.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (group, label) = statement.labels(at);
        Some(Part {
            ours: [check.ours?, least, most],
            band: answer.space.as_ref().and_then(|space| space.band_of(at)),
            bound: answer.claim.checks[at].bound,
            met: check.met == check.runs.len(),
            paper: statement.of_paper(at),
            group,
            label,
        })
    };
    answer.judged.checks.iter().enumerate().filter_map(part).collect()
}

/// The drawing.
pub fn svg(statement: &Statement, answer: &Answer) -> Drawn<String> {
    let parts = parts(statement, answer);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        legend(&root, statement, &parts)?;
        if !parts.is_empty() {
            values(&root, statement, &parts)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: u32, anchor: HPos) -> Drawn<()> {
    let style = (FONT, size).into_text_style(area).color(&TEXT).pos(Pos::new(anchor, VPos::Center));
    Ok(area.draw_text(text, &style, at)?)
}

fn line(area: &Area<'_>, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Drawn<()> {
    Ok(area.draw(&PathElement::new(vec![from, to], style))?)
}

fn legend(area: &Area<'_>, statement: &Statement, parts: &[Part]) -> Drawn<()> {
    write(area, statement.value, (8, 14), 13, HPos::Left)?;
    let mut x = 262;
    area.draw(&Circle::new((x, 14), 4, MET.filled()))?;
    area.draw(&Circle::new((x + 11, 14), 4, MISSED.filled()))?;
    write(area, "ours: met, missed", (x + 20, 14), 12, HPos::Left)?;
    x += 138;
    if parts.iter().any(|part| part.band.is_some()) {
        area.draw(&Rectangle::new([(x - 4, 8), (x + 4, 20)], BAND.filled()))?;
        write(area, "costs x2, /2", (x + 10, 14), 12, HPos::Left)?;
        x += 92;
    }
    area.draw(&Rectangle::new([(x - 4, 8), (x + 10, 20)], ALLOWED.filled()))?;
    write(area, "rule", (x + 16, 14), 12, HPos::Left)?;
    x += 56;
    if parts.iter().any(|part| part.paper.is_some()) {
        line(area, (x - 4, 14), (x + 12, 14), PAPER.stroke_width(2))?;
        write(area, "paper", (x + 18, 14), 12, HPos::Left)?;
    }
    Ok(())
}

fn values(area: &Area<'_>, statement: &Statement, parts: &[Part]) -> Drawn<()> {
    let scale = Scale::new(parts);
    let (left, top, right, bottom) = FRAME;
    // A gap of a column between groups.
    let groups = 1 + parts.last().map_or(0, |part| part.group);
    let width = f64::from(right - left) / (parts.len() + groups - 1).max(1) as f64;
    let edge = |column: usize| left + (column as f64 * width).round() as i32;
    let column = |at: usize| at + parts[at].group;
    let middle = |at: usize| (edge(column(at)) + edge(column(at) + 1)) / 2;
    for (at, part) in parts.iter().enumerate() {
        let (low, high) = match part.bound {
            Bound::AtLeast(least) => (scale.y(least), top),
            Bound::AtMost(most) => (bottom, scale.y(most)),
            Bound::Within(least, most) => (scale.y(least), scale.y(most)),
        };
        let sides = [(edge(column(at)), high), (edge(column(at) + 1), low)];
        area.draw(&Rectangle::new(sides, ALLOWED.filled()))?;
    }
    for tick in scale.ticks() {
        let y = scale.y(tick);
        line(area, (left, y), (right, y), LINES.stroke_width(1))?;
        write(area, &number(tick), (left - 6, y), 12, HPos::Right)?;
    }
    area.draw(&Rectangle::new([(left, top), (right, bottom)], LINES.stroke_width(1)))?;
    for (at, part) in parts.iter().enumerate() {
        let (x, [ours, least, most]) = (middle(at), part.ours);
        let half = ((width * 0.3) as i32).clamp(2, 7);
        if let Some((least, most)) = part.band {
            area.draw(&Rectangle::new(
                [(x - half, scale.y(most)), (x + half, scale.y(least))],
                BAND.filled(),
            ))?;
        }
        if let Some(paper) = part.paper {
            let y = scale.y(paper);
            line(area, (x - 14, y), (x + 14, y), PAPER.stroke_width(2))?;
            write(area, &number(paper), (x + 20, y), 12, HPos::Left)?;
        }
        let colour = if part.met { MET } else { MISSED };
        line(area, (x, scale.y(least)), (x, scale.y(most)), colour.stroke_width(1))?;
        area.draw(&Circle::new((x, scale.y(ours)), if half < 4 { 3 } else { 4 }, colour.filled()))?;
        if parts.len() <= 2 {
            write(area, &number(ours), (x - 20, scale.y(ours)), 12, HPos::Right)?;
        }
        if !part.label.is_empty() {
            write(area, part.label, (x, bottom + 12), 11, HPos::Center)?;
        }
    }
    for (group, (label, _)) in statement.groups.iter().enumerate() {
        let of = |part: &(usize, &Part)| part.1.group == group;
        let (Some((first, _)), Some((last, _))) =
            (parts.iter().enumerate().find(of), parts.iter().enumerate().rev().find(of))
        else {
            continue;
        };
        write(area, label, ((middle(first) + middle(last)) / 2, bottom + 32), 12, HPos::Center)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(value: f64, bound: Bound) -> Part {
        Part { ours: [value; 3], band: None, bound, met: true, paper: None, group: 0, label: "8" }
    }

    #[test]
    fn an_axis_shows_all_values_and_has_a_few_ticks() {
        let narrow = Scale::new(&[part(1.2, Bound::AtLeast(1.5)), part(2.0, Bound::AtLeast(1.5))]);
        assert!(!narrow.log && (3..=6).contains(&narrow.ticks().len()), "{:?}", narrow.ticks());
        let wide = Scale::new(&[part(0.2, Bound::Within(0.8, 1.25)), part(30.0, Bound::AtMost(1.0))]);
        assert!(wide.log && (4..=9).contains(&wide.ticks().len()), "{:?}", wide.ticks());
        for scale in [narrow, wide] {
            let ys: Vec<i32> = scale.ticks().into_iter().map(|tick| scale.y(tick)).collect();
            assert!(ys.is_sorted_by(|a, b| a > b) && ys.iter().all(|y| (FRAME.1..=FRAME.3).contains(y)));
        }
    }
}
