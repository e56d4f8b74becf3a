//! A problem in words, and as a line of JSON.

use crate::graph::{self, ENDED};
use crate::names;
use crate::report::{Circle, Problem, Step, Wait};
use crate::stack::{Frame, Stack, Variable};
use latchwork::machine::{Machine, Native};
use std::fmt::Write;

/// What is said about a problem.
pub(crate) struct Description {
    /// What the JSON calls it. `None`: it is a warning, and no mistake.
    mistake: Option<&'static str>,
    /// The first words of the text.
    title: String,
    parts: Vec<Part>,
}

/// What a thread does, or did, with a lock.
struct Part {
    /// In the text, before the frames.
    words: String,
    /// In JSON.
    does: &'static str,
    lock: usize,
    /// Where it is, if it is a static one.
    place: Option<Variable>,
    for_reading: bool,
    /// 0: that is not known, or it has ended.
    thread: usize,
    frames: Vec<Frame>,
}

impl Description {
    /// `names` says whether functions are looked up.
    pub(crate) fn of(problem: &Problem, names: bool) -> Self {
        let me = Native::thread_id();
        let mut parts = Vec::new();
        let mut part = |words: String, does, (lock, for_reading), thread, stack: &Stack| {
            let (place, frames) = (Variable::of(lock, names), stack.frames(names));
            parts.push(Part { words, does, lock, place, for_reading, thread, frames });
        };
        let shown = |lock| shown(lock, names);
        let asked = |(lock, for_reading)| shown(lock) + if for_reading { " for reading" } else { "" };
        let (mut mistake, mut title) = (None, String::new());
        match problem {
            Problem::Inversion { now, then, back, length } => {
                mistake = Some("lock-order inversion");
                title = "lock-order inversion, which may deadlock\n    ".into();
                let held = |step: &Step| (step.held.0, step.shared[0]);
                let taken = |step: &Step| (step.taken.0, step.shared[1]);
                let others =
                    if *length > 1 { format!(" (the first of {length} steps)") } else { String::new() };
                let words = format!("{} holds lock {}, taken at", named(me), asked(held(now)));
                part(words, "holds", held(now), me, &now.held.1);
                let words = format!("    and takes lock {} at", asked(taken(now)));
                part(words, "takes", taken(now), me, &now.taken.1);
                let words = format!("    before, lock {} was held{others}, taken at", asked(held(then)));
                part(words, "held before", held(then), 0, &then.held.1);
                let words = format!("    when lock {} was taken at", asked(taken(then)));
                part(words, "took before", taken(then), 0, &then.taken.1);
                if *length > 1 {
                    let words = format!("    and lock {} (the last step), taken at", asked(held(back)));
                    part(words, "held before", held(back), 0, &back.held.1);
                    let words = format!("    when lock {} was taken at", asked(taken(back)));
                    part(words, "took before", taken(back), 0, &back.taken.1);
                }
            }
            Problem::SelfDeadlock { lock, held, here } => {
                mistake = Some("self-deadlock");
                let words = format!("self-deadlock: a thread waits for lock {} at", shown(*lock));
                part(words, "waits", (*lock, false), me, here);
                part("    which it holds itself, taken at".into(), "holds", (*lock, false), me, held);
            }
            Problem::Deadlock => {
                // None of these threads goes on, so the circle is still there.
                let circle = graph::with(|tables| tables.circle(me)).flatten();
                let Circle { length, waits } = &circle.unwrap_or_default();
                mistake = Some("deadlock");
                let shown = if *length > Circle::MOST { " (the first 8 are shown)" } else { "" };
                title = format!("deadlock: {length} threads wait for each other{shown}\n    ");
                for (number, wait) in waits.iter().flatten().enumerate() {
                    let indent = if number == 0 { "" } else { "    " };
                    let Wait { thread, lock, shared, at, holder, read, held } = wait;
                    let words =
                        format!("{indent}{} waits for lock {} at", named(*thread), asked((*lock, *shared)));
                    part(words, "waits", (*lock, *shared), *thread, at);
                    let words = format!("    which {} holds, taken at", named(*holder));
                    part(words, "holds", (*lock, *read), *holder, held);
                }
            }
            Problem::Stranger { lock, holder, here } => {
                mistake = Some("unlock by a stranger");
                let how = match holder {
                    Some(_) => " by a thread that does not hold it, at",
                    None => ", which nobody holds, at",
                };
                let words = format!("lock {} is unlocked{how}", shown(*lock));
                part(words, "unlocks", (*lock, false), me, here);
                if let Some((thread, taken)) = holder {
                    let words = format!("    {} holds it, taken at", named(*thread));
                    part(words, "holds", (*lock, false), *thread, taken);
                }
            }
            Problem::Ended { lock, held } => {
                mistake = Some("end of the holder");
                let words = format!("{} ends while it holds lock {}, taken at", named(me), shown(*lock));
                part(words, "holds", (*lock, false), me, held);
            }
            Problem::Destroyed { lock, holder: (thread, taken), here } => {
                mistake = Some("destruction");
                let words = format!("lock {} is destroyed while it is held, at", shown(*lock));
                part(words, "destroys", (*lock, false), me, here);
                let words = format!("    {} holds it, taken at", named(*thread));
                part(words, "holds", (*lock, false), *thread, taken);
            }
            Problem::Full(what) => {
                title = format!(
                    "more {what} than can be remembered: mistakes with others are missed from now on"
                );
            }
        }
        Self { mistake, title, parts }
    }

    /// Whether it is one of those that are left out.
    pub(crate) fn is_ignored(&self) -> bool {
        self.parts.iter().flat_map(|part| &part.frames).any(Frame::is_ignored)
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!("latchwork[{}]: {}", pid(), self.title);
        for part in &self.parts {
            out.push_str(&part.words);
            out.push('\n');
            for (number, frame) in part.frames.iter().enumerate() {
                let _ = writeln!(out, "      #{number} {frame}");
            }
            if part.frames.is_empty() {
                out.push_str("      (unknown)\n");
            }
        }
        if self.parts.is_empty() {
            out.push('\n');
        }
        out
    }

    /// With a newline.
    pub(crate) fn json(&self) -> String {
        let mut out = format!("{{\"pid\":{}", pid());
        let (key, value) =
            self.mistake.map_or(("warning", self.title.as_str()), |mistake| ("mistake", mistake));
        text_member(&mut out, key, value);
        let mut separator = ",\"parts\":[";
        for part in &self.parts {
            let _ = write!(out, "{separator}{{\"does\":\"{}\",\"lock\":\"{:#x}\"", part.does, part.lock);
            separator = ",";
            if let Some(name) = names::text(part.lock) {
                text_member(&mut out, "name", &name);
            }
            if let Some(Variable { name, object, offset }) = &part.place {
                if let Some(name) = name {
                    text_member(&mut out, "variable", name);
                }
                text_member(&mut out, "object", object);
                let _ = write!(out, ",\"offset\":\"{offset:#x}\"");
            }
            let _ = write!(out, ",\"for_reading\":{}", part.for_reading);
            if part.thread != ENDED {
                let _ = write!(out, ",\"thread\":\"{:#x}\"", part.thread);
            }
            out.push_str(",\"stack\":[");
            for (number, frame) in part.frames.iter().enumerate() {
                let _ =
                    write!(out, "{}{{\"offset\":\"{:#x}\"", if number == 0 { "" } else { "," }, frame.offset);
                for (key, text) in [("object", &frame.object), ("function", &frame.function)] {
                    if let Some(text) = text {
                        text_member(&mut out, key, text);
                    }
                }
                if let Some((file, line)) = &frame.source {
                    text_member(&mut out, "file", file);
                    let _ = write!(out, ",\"line\":{line}");
                }
                out.push('}');
            }
            out.push_str("]}");
        }
        out.push_str(if self.parts.is_empty() { "}\n" } else { "]}\n" });
        out
    }
}

fn pid() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// A thread, in words.
fn named(thread: usize) -> String {
    if thread == ENDED { "a thread that has ended".into() } else { format!("thread {thread:#x}") }
}

/// A lock, in words. An address is another one in the next run, so a lock without a name has its place in its file beside it.
fn shown(lock: usize, names: bool) -> String {
    let text = names::shown(lock);
    if names::text(lock).is_some() {
        return text;
    }
    let Some(Variable { name, object, offset }) = Variable::of(lock, names) else { return text };
    let file = object.rsplit('/').next().unwrap_or(&object);
    let name = name.map_or_else(String::new, |name| format!("{name}, "));
    format!("{text} ({name}{file}+{offset:#x})")
}

/// Adds a member with a text.
fn text_member(out: &mut String, key: &str, text: &str) {
    let _ = write!(out, ",\"{key}\":\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_json() {
        let mut out = String::new();
        text_member(&mut out, "file", "a\\b \"c\"\n\u{e9}\u{7f}");
        assert_eq!(out, ",\"file\":\"a\\\\b \\\"c\\\"\\u000a\u{e9}\u{7f}\"");
    }
}
