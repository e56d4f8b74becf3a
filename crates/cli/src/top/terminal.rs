//! The terminal of `latchwork top`: raw mode, keys, and what the view draws.

use super::sample::{Order, Watch};
use super::view::{Action, Key, View};
use crate::live::{Session, Signals};
use crate::profile::{html, join};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output::{say, write_or_print};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Shows the process until the user quits, a signal comes, or the process ends.
pub fn run(mut session: Session, signals: Signals, interval: Duration, order: Order) -> Result<()> {
    let fail = |error: io::Error| Failure::new(format!("terminal: {error}"));
    let mut raw = Raw::enter().map_err(fail)?;
    let mut terminal = Terminal::new(Ansi::default()).map_err(fail)?;
    let mut view = View::new(session.pid(), session.program(), order);
    let mut watch = Watch::new();
    let mut looked = Instant::now();
    let ended = loop {
        terminal.draw(|frame| view.draw(frame.area(), frame.buffer_mut())).map_err(fail)?;
        // The size of the terminal may change meanwhile.
        let wait = interval.saturating_sub(looked.elapsed()).min(Duration::from_millis(250));
        let [ended, typed] = signals.wait([session.descriptor(), 0], wait + Duration::from_millis(1));
        let keys = if typed { keys().map_err(fail)? } else { Vec::new() };
        if signals.come().is_some() || typed && keys.is_empty() && is_closed() {
            break false;
        }
        let mut quit = false;
        for key in keys {
            match view.key(key) {
                Action::None => {}
                Action::Quit => quit = true,
                Action::Switch => {
                    view.message = match switch(&mut session, &mut watch) {
                        Ok(()) => String::new(),
                        Err(failure) => failure.message,
                    };
                    view.on = session.is_on();
                    looked = Instant::now();
                }
                Action::Suspend => {
                    drop(raw);
                    // SAFETY: a signal to the process group, as the terminal sends it. This process goes on when it is continued.
                    unsafe { libc::kill(0, libc::SIGTSTP) };
                    raw = Raw::enter().map_err(fail)?;
                    terminal.clear().map_err(fail)?;
                }
                Action::Report => view.message = report(&session, &view),
            }
        }
        if quit {
            break false;
        }
        if ended {
            break true;
        }
        if looked.elapsed() >= interval && view.on && !view.paused {
            view.sample = super::look(&mut session, &mut watch)?;
            looked = Instant::now();
        } else if looked.elapsed() >= interval {
            looked = Instant::now();
        }
    };
    drop(raw);
    if ended {
        say(&format!("latchwork: process {} has ended", session.pid()));
    }
    Ok(())
}

fn switch(session: &mut Session, watch: &mut Watch) -> Result<()> {
    if session.is_on() {
        return session.off();
    }
    // The new recording begins with nothing.
    session.clear();
    session.on()?;
    watch.restart();
    Ok(())
}

/// Writes the report into the present directory. Returns what to tell the user.
fn report(session: &Session, view: &View) -> String {
    let name = |number| format!("latchwork-{}-{number}.html", session.pid());
    let name = (1..).map(name).find(|name| !std::path::Path::new(name).exists()).expect("a free number");
    let page = || {
        // While it is paused, the report has what is on the screen.
        if view.paused && !view.sample.profile.locks.is_empty() {
            return Ok(html::text(&view.sample.profile));
        }
        session.read().map(|recordings| html::text(&join::join(&recordings)))
    };
    match page() {
        Ok(page) => match write_or_print(name.as_ref(), page.as_bytes()) {
            Ok(()) => format!("the report is in {name}"),
            Err(error) => format!("{name}: {error}"),
        },
        Err(failure) => failure.message,
    }
}

/// The terminal without line editing and echo, on its second screen. Dropping this brings back what was there before.
struct Raw(libc::termios);

impl Raw {
    fn enter() -> io::Result<Self> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: room for the answer.
        if unsafe { libc::tcgetattr(0, before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has written it.
        let before = unsafe { before.assume_init() };
        let mut raw = before;
        // The keys that send signals would leave the second screen where it is.
        raw.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        raw.c_iflag &= !(libc::IXON | libc::ICRNL);
        raw.c_cc[libc::VMIN] = 0;
        raw.c_cc[libc::VTIME] = 0;
        // SAFETY: a valid structure.
        if unsafe { libc::tcsetattr(0, libc::TCSADRAIN, &raw) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let entered = Self(before);
        let mut out = io::stdout();
        out.write_all(b"\x1b[?1049h\x1b[?25l\x1b[2J")?;
        out.flush()?;
        Ok(entered)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _ = out.write_all(b"\x1b[0m\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
        // SAFETY: what `enter` has found.
        unsafe { libc::tcsetattr(0, libc::TCSADRAIN, &self.0) };
    }
}

/// The keys that have been pressed.
fn keys() -> io::Result<Vec<Key>> {
    let mut bytes = [0; 256];
    // SAFETY: room for so many bytes. Raw mode makes the call return at once.
    let length = unsafe { libc::read(0, bytes.as_mut_ptr().cast(), bytes.len()) };
    match usize::try_from(length) {
        Ok(length) => Ok(decode(&bytes[..length])),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Whether the terminal is gone.
fn is_closed() -> bool {
    let mut poll = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor.
    unsafe { libc::poll(&mut poll, 1, 0) };
    poll.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

fn decode(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        match (*first, rest) {
            (0x1b, [b'[' | b'O', code, rest @ ..]) => {
                // Parameters, and then a letter or `~`, end a sequence.
                let mut rest = rest;
                let mut code = *code;
                while !(0x40..=0x7e).contains(&code) {
                    let [next, more @ ..] = rest else { break };
                    (code, rest) = (*next, more);
                }
                bytes = rest;
                match code {
                    b'A' => keys.push(Key::Up),
                    b'B' => keys.push(Key::Down),
                    _ => {}
                }
            }
            (0x1b, _) => keys.push(Key::Escape),
            // Ctrl-C, Ctrl-\ and Ctrl-Z.
            (0x03 | 0x1c, _) => keys.push(Key::Char('q')),
            (0x1a, _) => keys.push(Key::Suspend),
            (b'\r' | b'\n', _) => keys.push(Key::Enter),
            (0x7f | 0x08, _) => keys.push(Key::Escape),
            (printable @ 0x20..0x7f, _) => keys.push(Key::Char(char::from(printable))),
            _ => {}
        }
    }
    keys
}

/// Draws with the sequences of ECMA-48, which all terminals understand.
#[derive(Default)]
struct Ansi(String);

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, cells: I) -> io::Result<()> {
        let out = &mut self.0;
        let mut next = None;
        let mut style = None;
        for (x, y, cell) in cells {
            if next != Some((x, y)) {
                *out += &format!("\x1b[{};{}H", y + 1, x + 1);
            }
            next = Some((x + 1, y));
            let wanted = (cell.fg, cell.modifier);
            if style != Some(wanted) {
                out.push_str("\x1b[0");
                let attributes = [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")];
                for (modifier, code) in attributes {
                    if cell.modifier.contains(modifier) {
                        out.push_str(code);
                    }
                }
                match cell.fg {
                    Color::Red => out.push_str(";31"),
                    Color::Yellow => out.push_str(";33"),
                    _ => {}
                }
                out.push('m');
                style = Some(wanted);
            }
            out.push_str(cell.symbol());
        }
        if style.is_some() {
            out.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // The cursor is hidden, and each cell that is drawn has its position.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.0 += &format!("\x1b[{};{}H", y + 1, x + 1);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.0.push_str(match region {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[0J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[0K",
        });
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        // SAFETY: plain data, for which zeroes are a value; the call writes it.
        let mut size: libc::winsize = unsafe { std::mem::zeroed() };
        // SAFETY: room for the answer.
        let known =
            unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &mut size) } == 0 && size.ws_col > 0 && size.ws_row > 0;
        Ok(if known { Size::new(size.ws_col, size.ws_row) } else { Size::new(80, 24) })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.0.as_bytes())?;
        self.0.clear();
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded() {
        assert_eq!(decode(b"q \r\x1b"), [Key::Char('q'), Key::Char(' '), Key::Enter, Key::Escape]);
        assert_eq!(decode(b"\x1b[A\x1bOB\x7f"), [Key::Up, Key::Down, Key::Escape]);
        assert_eq!(decode(b"\x03\x1c\x1a"), [Key::Char('q'), Key::Char('q'), Key::Suspend]);
        // Keys without a meaning here: delete, F5, an arrow with Control, a letter of another script.
        assert_eq!(decode("\x1b[3~\x1b[15~\x1b[1;5Cä".as_bytes()), []);
    }
}
