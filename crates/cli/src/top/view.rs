//! The screen of `latchwork top`: what is on it, and what each key does. It draws into a buffer and knows no terminal.

use super::batch::{self, COLUMNS, columns};
use super::sample::{Order, Row, Sample};
use crate::profile::findings::ratio;
use crate::profile::model::{Class, Kind, Profile};
use crate::profile::units::{count, cut, percent, time};
use crate::unseen::{self, OTHER_LOCKS};
use latchwork_console::fold::fold;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use std::collections::HashMap;

/// A key, as far as one means something here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    Enter,
    Escape,
    /// Ctrl-Z.
    Suspend,
    Char(char),
}

/// What a key asks of the program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    None,
    Quit,
    /// Switches the recording on or off.
    Switch,
    /// Writes a report.
    Report,
    /// Gives the terminal back to the shell until the shell continues this process.
    Suspend,
}

/// The column of names has at least so many characters, if there is room: it changes its width seldom.
const SHORTEST: usize = 40;

/// What is shown.
pub struct View {
    pub pid: u32,
    pub program: String,
    pub sample: Sample,
    /// Whether the process is recorded.
    pub on: bool,
    pub paused: bool,
    /// For the last line, until the next key.
    pub message: String,
    order: Order,
    /// Figures of the whole recording in place of the last interval.
    whole: bool,
    /// The chosen lock. It stays chosen when rows change places.
    chosen: Option<(Kind, String)>,
    /// Whether its waiters and holders are shown.
    details: bool,
    /// The first row on the screen.
    top: usize,
}

impl View {
    pub fn new(pid: u32, program: &str, order: Order) -> Self {
        Self {
            pid,
            program: program.into(),
            sample: Sample::default(),
            on: true,
            paused: false,
            message: String::new(),
            order,
            whole: false,
            chosen: None,
            details: false,
            top: 0,
        }
    }

    /// A key was pressed.
    pub fn key(&mut self, key: Key) -> Action {
        self.message.clear();
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('o') => return Action::Switch,
            Key::Char('r') => return Action::Report,
            Key::Suspend => return Action::Suspend,
            Key::Up | Key::Char('k') => self.choose(-1),
            Key::Down | Key::Char('j') => self.choose(1),
            Key::Enter => {
                // The lock stays the shown one when another one comes to the top.
                self.choose(0);
                self.details = self.chosen.is_some();
            }
            Key::Escape => self.details = false,
            Key::Char(' ') => self.paused = !self.paused,
            Key::Char('t') => self.whole = !self.whole,
            Key::Char('w') => self.order = Order::Wait,
            Key::Char('c') => self.order = Order::Contended,
            Key::Char('a') => self.order = Order::Acquisitions,
            Key::Char('h') => self.order = Order::Hold,
            Key::Char(_) => {}
        }
        Action::None
    }

    fn rows(&self) -> Vec<&Row> {
        self.sample.sorted(self.order, self.whole)
    }

    /// Where the chosen lock is among the rows; the first one if none is chosen, or if it is gone.
    fn position(&self, rows: &[&Row]) -> usize {
        let is = |row: &&Row| {
            self.chosen.as_ref().is_some_and(|(kind, name)| row.kind == *kind && row.name == *name)
        };
        rows.iter().position(is).unwrap_or(0)
    }

    fn chosen_row(&self) -> Option<&Row> {
        let rows = self.rows();
        rows.get(self.position(&rows)).copied()
    }

    fn choose(&mut self, step: isize) {
        let rows = self.rows();
        let position = self.position(&rows).saturating_add_signed(step).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(position).map(|row| (row.kind, row.name.clone()));
    }

    /// Draws everything.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        let mut page = Page { area, buffer, line: 0 };
        page.put(&batch::headline(self.pid, &self.program, &self.sample, self.whole), bold());
        let details = self.details && self.chosen_row().is_some();
        page.put(&self.state(details), Style::new());
        if let Some(deadlock) = &self.sample.stuck.deadlock {
            page.fold(deadlock, bold().fg(Color::Red));
        }
        page.skip();
        if details {
            self.draw_details(&mut page);
        } else {
            self.draw_rows(&mut page);
        }
        page.line = area.height.saturating_sub(1);
        if self.message.is_empty() {
            let switch = if self.on { "off" } else { "on" };
            let keys = if details {
                format!("q quit  Esc back  j k move  space pause  o {switch}  r report")
            } else {
                format!(
                    "q quit  Enter open  j k move  w c a h sort  t time  space pause  o {switch}  r report"
                )
            };
            page.put(&keys, Style::new().add_modifier(Modifier::DIM));
        } else {
            page.put(&self.message.clone(), bold());
        }
    }

    /// What is recorded, and what is shown of it.
    fn state(&self, details: bool) -> String {
        let of = if self.whole || details {
            format!("all {:.0} s recorded", self.sample.total_seconds)
        } else {
            format!("the last {:.1} s", self.sample.seconds)
        };
        let order = match self.order {
            Order::Wait => "wait",
            Order::Contended => "contended",
            Order::Acquisitions => "acquisitions",
            Order::Hold => "hold time",
        };
        let state = match (self.on, self.paused) {
            (false, _) => "recording is OFF (o switches it on)",
            (true, true) => "PAUSED (space goes on)",
            (true, false) => "recording",
        };
        let order = if details { String::new() } else { format!(", by {order}") };
        format!("{state}; figures of {of}{order}")
    }

    fn draw_rows(&mut self, page: &mut Page) {
        let width = usize::from(page.area.width);
        let rest: usize = COLUMNS.iter().map(|(_, width)| width + 1).sum();
        // On a wide screen the figures stay beside the names.
        let longest = self.sample.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let name_width = width.saturating_sub(rest).min(longest.max(SHORTEST)).max(12);
        let head = batch::line("lock", name_width, &COLUMNS.map(|(name, _)| name));
        page.put(&head, Style::new().add_modifier(Modifier::REVERSED));
        let rows = self.rows();
        let position = self.position(&rows);
        let room = usize::from(page.room());
        // The chosen row stays on the screen.
        let mut top = self.top.min(rows.len().saturating_sub(room)).min(position);
        if room > 0 && position >= top + room {
            top = position + 1 - room;
        }
        for (number, row) in rows.iter().enumerate().skip(top).take(room) {
            let cells = columns(row, self.sample.time(self.whole), self.whole);
            let style = match () {
                () if number == position => bold().fg(Color::Yellow),
                () if row.waiting > 0 => Style::new().fg(Color::Red),
                () => Style::new(),
            };
            page.put(&batch::line(&cut(&row.name, name_width), name_width, &cells), style);
        }
        if rows.is_empty() {
            page.put(batch::NO_LOCK, Style::new());
            page.put(&format!("({OTHER_LOCKS}.)"), Style::new());
            if let Some(sentences) = unseen::asleep(self.pid, self.sample.asleep, &self.sample.stuck) {
                page.fold(&sentences, Style::new());
            }
        }
        self.top = top;
    }

    fn draw_details(&self, page: &mut Page) {
        let Some(row) = self.chosen_row() else { return };
        let profile = &self.sample.profile;
        let Some(class) = profile.locks.get(row.lock) else { return };
        page.put(&class.name, bold());
        page.put(
            &format!("{}, {}, served by {}", class.kind.text(), class.origin, class.served_by.join(", ")),
            Style::new(),
        );
        let lengths = |lengths: &crate::profile::model::Lengths| {
            format!(
                "50% {}, 99% {}, 99.9% {}, longest {}",
                time(lengths.quantile_ns(0.5)),
                time(lengths.quantile_ns(0.99)),
                time(lengths.quantile_ns(0.999)),
                time(lengths.max_ns)
            )
        };
        let reads = match class.kind {
            Kind::RwLock => format!(" ({} reads)", percent(ratio(class.reads, class.acquisitions))),
            _ => String::new(),
        };
        page.put(
            &format!(
                "{} acquisitions{reads}, {} contended; threads that wait: {} now, {} at most",
                count(class.acquisitions),
                count(class.contended),
                class.waiting.threads,
                class.waiters_max
            ),
            Style::new(),
        );
        page.put(
            &format!("waits: {} in all; {}", time(class.waits.sum_ns), lengths(&class.waits)),
            Style::new(),
        );
        page.put(&format!("holds: {}", lengths(&class.holds)), Style::new());
        page.skip();
        // Each half of the page that is left has a headline, and an empty line behind it.
        let room = usize::from(page.room() / 2).saturating_sub(2);
        page.table("threads blocked at", &waiters(profile, class), class.waits.sum_ns, room);
        page.skip();
        page.table("because it was held from", &holders(profile, class), class.waits.sum_ns, room);
    }
}

/// Adds up what has one name, longest first.
fn by_name(parts: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums: HashMap<String, u64> = HashMap::new();
    for (name, ns) in parts {
        *sums.entry(name).or_default() += ns;
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, ns)| *ns > 0).collect();
    sums.sort_by(|first, second| second.1.cmp(&first.1).then_with(|| first.0.cmp(&second.0)));
    sums
}

fn waiters(profile: &Profile, class: &Class) -> Vec<(String, u64)> {
    by_name(class.waiters.iter().map(|waiter| (profile.place(waiter.stack), waiter.wait_ns)))
}

fn holders(profile: &Profile, class: &Class) -> Vec<(String, u64)> {
    by_name(class.pairs.iter().map(|pair| (pair.cause.place(profile), pair.wait_ns)))
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// The screen, line by line.
struct Page<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
    line: u16,
}

impl Page<'_> {
    /// A line, as far as it fits.
    fn put(&mut self, text: &str, style: Style) {
        if self.line < self.area.height {
            let at = self.area.y + self.line;
            self.buffer.set_stringn(self.area.x, at, text, usize::from(self.area.width), style);
            self.line += 1;
        }
    }

    /// Sentences, in as many lines as they take.
    fn fold(&mut self, text: &str, style: Style) {
        for line in fold(text, "", usize::from(self.area.width)).lines() {
            self.put(line, style);
        }
    }

    fn skip(&mut self) {
        self.line += 1;
    }

    /// Lines that are left above the last one.
    fn room(&self) -> u16 {
        self.area.height.saturating_sub(self.line + 1)
    }

    /// Times with their names and shares, at most so many.
    fn table(&mut self, title: &str, parts: &[(String, u64)], all: u64, room: usize) {
        self.put(
            &format!("{:>8} {:>6}  {title}", "time", "share"),
            Style::new().add_modifier(Modifier::REVERSED),
        );
        let width = usize::from(self.area.width).saturating_sub(17);
        for (name, ns) in parts.iter().take(room) {
            let line = format!("{:>8} {:>6}  {}", time(*ns), percent(ratio(*ns, all)), cut(name, width));
            self.put(&line, Style::new());
        }
        if parts.is_empty() {
            self.put("                 no wait has ended yet", Style::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::looks;
    use super::*;
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;

    fn view() -> View {
        let mut view = View::new(7, "server", Order::Wait);
        [view.sample, _] = looks();
        view
    }

    /// The lines of a screen of this size.
    fn screen(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame.area(), frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn find<'a>(lines: &'a [String], part: &str) -> &'a str {
        lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part:?} in {lines:#?}"))
    }

    #[test]
    fn the_first_screen_has_the_worst_lock_on_top() {
        for (width, height) in [(80, 24), (132, 50), (200, 60)] {
            let lines = screen(&mut view(), width, height);
            assert!(lines[0].starts_with("server (7): 10 threads"), "{lines:#?}");
            assert!(lines[1].starts_with("recording; figures of the last"), "{lines:#?}");
            assert!(lines[3].starts_with("lock ") && lines[3].ends_with("held"), "{lines:#?}");
            assert!(lines[4].starts_with("cache.mutex_ "), "{lines:#?}");
            assert!(lines[usize::from(height) - 1].starts_with("q quit  Enter open"), "{lines:#?}");
            assert!(lines.iter().take(usize::from(height) - 1).all(|line| line.len() <= 132), "{lines:#?}");
        }
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (10, 3), (30, 5), (79, 8)] {
            let mut view = view();
            screen(&mut view, width, height);
            view.key(Key::Enter);
            screen(&mut view, width, height);
        }
    }

    #[test]
    fn a_lock_has_its_waiters_and_its_holders() {
        let mut view = view();
        assert_eq!(view.key(Key::Enter), Action::None);
        let lines = screen(&mut view, 80, 24);
        assert_eq!(find(&lines, "cache.mutex_"), "cache.mutex_");
        assert!(find(&lines, "Cache::get (cache.cc:31)").contains("75%"), "{lines:#?}");
        assert!(find(&lines, "Cache::evict (cache.cc:120)").contains("84%"), "{lines:#?}");
        assert!(find(&lines, "handover").contains('%'), "{lines:#?}");
        view.key(Key::Escape);
        assert!(screen(&mut view, 80, 24)[3].starts_with("lock "));
    }

    #[test]
    fn keys_sort_and_choose() {
        let mut view = view();
        let [_, second] = looks();
        view.sample = second;
        // Only the second lock was used in the last second.
        let first_row = |view: &mut View| screen(view, 80, 24)[4].clone();
        assert!(!first_row(&mut view).starts_with("cache.mutex_"));
        view.key(Key::Char('t'));
        assert!(first_row(&mut view).starts_with("cache.mutex_"));
        assert!(screen(&mut view, 80, 24)[1].contains("figures of all 11 s recorded, by wait"));
        view.key(Key::Char('a'));
        assert!(!first_row(&mut view).starts_with("cache.mutex_"));
        assert!(screen(&mut view, 80, 24)[1].ends_with("by acquisitions"));
        // The chosen lock stays chosen when its row moves.
        view.key(Key::Char('w'));
        view.key(Key::Down);
        let chosen = view.chosen_row().unwrap().name.clone();
        view.key(Key::Char('a'));
        assert_eq!(view.chosen_row().unwrap().name, chosen);
        for _ in 0..5 {
            view.key(Key::Char('k'));
        }
        assert_eq!(view.chosen_row().unwrap().name, view.rows()[0].name);
    }

    #[test]
    fn details_are_of_one_lock_and_of_the_whole_recording() {
        let mut view = view();
        view.key(Key::Enter);
        let name = view.chosen_row().unwrap().name.clone();
        assert!(screen(&mut view, 80, 24)[1].ends_with("figures of all 10 s recorded"));
        [_, view.sample] = looks();
        assert_ne!(view.rows()[0].name, name);
        assert_eq!(screen(&mut view, 80, 24)[3], name);
    }

    #[test]
    fn the_keys_fit_on_a_small_screen() {
        let mut view = view();
        assert!(screen(&mut view, 80, 24)[23].ends_with("r report"));
        view.key(Key::Enter);
        assert!(screen(&mut view, 80, 24)[23].ends_with("r report"));
    }

    #[test]
    fn the_chosen_row_stays_on_the_screen() {
        let mut view = view();
        let row = view.sample.rows[0].clone();
        view.sample.rows =
            (0..100).map(|number| Row { name: format!("lock{number:02}"), ..row.clone() }).collect();
        for _ in 0..99 {
            view.key(Key::Down);
        }
        let chosen = view.chosen_row().unwrap().name.clone();
        find(&screen(&mut view, 80, 24), &chosen);
        for _ in 0..99 {
            view.key(Key::Up);
        }
        assert!(screen(&mut view, 80, 24)[4].starts_with(&view.chosen_row().unwrap().name));
    }

    #[test]
    fn other_keys_are_passed_on() {
        let mut view = view();
        assert_eq!(view.key(Key::Char('q')), Action::Quit);
        assert_eq!(view.key(Key::Char('o')), Action::Switch);
        assert_eq!(view.key(Key::Char('r')), Action::Report);
        view.key(Key::Char(' '));
        assert!(screen(&mut view, 80, 24)[1].starts_with("PAUSED"));
        view.on = false;
        assert!(screen(&mut view, 80, 24)[1].starts_with("recording is OFF"));
        view.message = "written".into();
        assert_eq!(screen(&mut view, 80, 24)[23], "written");
    }
}
