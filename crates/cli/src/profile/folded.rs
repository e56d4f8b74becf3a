//! Folded stacks, which tools for flame graphs read: a line for each stack, outermost frame first, and the nanoseconds that
//! threads waited there.

use super::model::{Profile, StackId};
use std::collections::BTreeMap;

/// The lines. The innermost frame is the lock.
pub fn text(profile: &Profile) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for class in &profile.locks {
        for waiter in &class.waiters {
            let line = format!("{};[{}]", stack(profile, waiter.stack), word(&class.name));
            *lines.entry(line).or_default() += waiter.wait_ns;
        }
    }
    lines.into_iter().filter(|(_, ns)| *ns > 0).map(|(line, ns)| format!("{line} {ns}\n")).collect()
}

fn stack(profile: &Profile, stack: StackId) -> String {
    let names: Vec<String> = profile.frames_of(stack).rev().map(|frame| word(&frame.function)).collect();
    names.join(";")
}

/// `;` ends a frame, and a line end ends a stack.
fn word(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    #[test]
    fn each_line_is_a_stack_and_a_number() {
        let profile = sample::profile();
        let text = text(&profile);
        let mut sum = 0;
        for line in text.lines() {
            let (stack, number) = line.rsplit_once(' ').unwrap();
            assert!(stack.starts_with("main;serve;Cache::"), "{stack}");
            assert!(stack.ends_with(']'), "{stack}");
            sum += number.parse::<u64>().unwrap();
        }
        assert_eq!(sum, profile.lost_ns());
        assert!(text.contains("main;serve;Cache::get;std::mutex::lock;[cache.mutex_] "), "{text}");
    }
}
