//! Numbers as people read them.

/// A time of so many nanoseconds, with two or three digits: `340 ns`, `1.2 ms`, `38.4 s`.
pub fn time(ns: u64) -> String {
    let number = ns as f64;
    let (scaled, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (number / 1e3, "us"),
        1_000_000..1_000_000_000 => (number / 1e6, "ms"),
        _ => (number / 1e9, "s"),
    };
    // 999.6 us is shown as 1000 us, which is near enough.
    if scaled < 9.95 { format!("{scaled:.1} {unit}") } else { format!("{scaled:.0} {unit}") }
}

/// A share: `38%`, `0.4%`. What is more than nothing is never shown as 0%.
pub fn percent(share: f64) -> String {
    let share = share * 100.0;
    match share {
        _ if share <= 0.0 => "0%".into(),
        _ if share < 0.1 => "<0.1%".into(),
        _ if share < 9.95 && share.fract() > 0.05 => format!("{share:.1}%"),
        _ => format!("{share:.0}%"),
    }
}

/// A number of things, with a decimal prefix from ten thousand on.
pub fn count(number: u64) -> String {
    let scaled = number as f64;
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{:.0} k", scaled / 1e3),
        1_000_000..10_000_000 => format!("{:.1} M", scaled / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} M", scaled / 1e6),
        _ => format!("{:.1} G", scaled / 1e9),
    }
}

/// So many things: `1 call`, `3 calls`, `2 classes`.
pub fn things(number: u64, what: &str) -> String {
    let ending = match (number, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {what}{ending}", count(number))
}

/// So many bytes.
pub fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} bytes"),
        1024..1_048_576 => format!("{:.0} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / 1_048_576.0),
    }
}

/// A name in so many characters. What stands at its end, file and line, is kept; the outer namespaces and types go first.
pub fn cut(name: &str, width: usize) -> String {
    let name: String = name.chars().filter(|char| !char.is_control()).collect();
    if name.chars().count() <= width {
        return name;
    }
    let mut rest = &name[..];
    // A namespace, and no part of a sentence such as `mutex of a::b`.
    let is_plain = |part: &str| !part.contains([' ', '<', '(', '[']);
    while let Some((_, inner)) = rest.split_once("::").filter(|(outer, _)| is_plain(outer)) {
        rest = inner;
        if rest.chars().count() < width {
            return format!("…{rest}");
        }
    }
    let chars: Vec<char> = rest.chars().collect();
    let tail = width.saturating_sub(1) / 2;
    let head = width.saturating_sub(1) - tail;
    chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_few_digits() {
        let times = [0, 999, 1_000, 1_234_567, 38_400_000_000].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1.0 us", "1.2 ms", "38 s"]);
        assert_eq!(
            [0.0, 0.00001, 0.004, 0.05, 0.38, 1.0].map(percent),
            ["0%", "<0.1%", "0.4%", "5%", "38%", "100%"]
        );
        assert_eq!([9_999, 12_345, 1_234_567].map(count), ["9999", "12 k", "1.2 M"]);
        assert_eq!([12, 2048, 3 << 20].map(bytes), ["12 bytes", "2 KiB", "3.0 MiB"]);
    }

    #[test]
    fn names_keep_their_ends() {
        assert_eq!(cut("mutex of f (file.cc:7)", 32), "mutex of f (file.cc:7)");
        let short = cut(&format!("mutex of {}::f (file.cc:7)", "n".repeat(40)), 32);
        assert!(short.chars().count() == 32 && short.ends_with("(file.cc:7)"), "{short}");
        assert_eq!(cut("engine::detail::Cache<..>::get (a.cc:7)", 30), "…Cache<..>::get (a.cc:7)");
    }
}
