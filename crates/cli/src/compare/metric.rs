//! A number in a program's output, by which runs are compared.

use super::verdict::Better;
use latchwork_console::failure::{Failure, Result};
use regex_lite::{Regex, RegexBuilder};

/// Finds the number.
pub struct Metric {
    expression: Regex,
    /// The option whose value it is.
    option: &'static str,
    /// Which direction is good.
    pub better: Better,
}

impl Metric {
    /// From the value of `--metric`.
    pub fn new(expression: &str, better: Better) -> Result<Self> {
        Self::of("--metric", expression, better)
    }

    /// From the value of an option.
    pub fn of(option: &'static str, expression: &str, better: Better) -> Result<Self> {
        let expression = expression_of(option, expression)?;
        if expression.captures_len() < 2 {
            return Err(Failure::usage(format!(
                "{option}: \"{expression}\" captures nothing: put (...) around the number"
            )));
        }
        Ok(Self { expression, option, better })
    }

    /// The regular expression.
    pub fn expression(&self) -> &str {
        self.expression.as_str()
    }

    /// The number in the last match; an error says what is wrong with the output.
    pub fn read(&self, output: &str) -> std::result::Result<f64, String> {
        let (expression, option) = (self.expression(), self.option);
        let found = self.expression.captures_iter(output).filter_map(|captures| captures.get(1)).last();
        let text =
            found.ok_or_else(|| format!("nothing in its output matches {option} {expression:?}"))?.as_str();
        match text.replace(',', "").parse::<f64>() {
            // The sum has no sign if both are zero.
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(number + 0.0),
            Ok(number) if number < 0.0 && number.is_finite() => Err(format!(
                "{option} {expression:?} matches {text:?}, which is negative: locks are compared by ratios, so take a \
                 number that is 0 or more"
            )),
            _ => Err(format!("{option} {expression:?} matches {text:?}, which is not a number")),
        }
    }
}

/// The regular expression that is the value of `option`. `^` and `$` match at line ends.
pub fn expression_of(option: &str, expression: &str) -> Result<Regex> {
    let built = RegexBuilder::new(expression).multi_line(true).build();
    built.map_err(|error| Failure::usage(format!("{option}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_of_the_metric_counts() {
        let metric = Metric::new(r"^rate: (\S+)$", Better::Higher).unwrap();
        assert_eq!(metric.read("rate: 1\nrate: 1,234.5\nerate: 3\n"), Ok(1234.5));
        assert!(metric.read("rate: fast\n").unwrap_err().contains("not a number"));
        assert!(metric.read("").unwrap_err().contains("nothing"));
        assert!(metric.read("rate: -3\n").unwrap_err().contains("negative"));
        assert!(metric.read("rate: -0\n").is_ok_and(f64::is_sign_positive));
        assert!(Metric::new("rate", Better::Higher).is_err_and(|failure| failure.message.contains("(...)")));
        assert!(Metric::new("(", Better::Higher).is_err_and(|failure| failure.status == 2));
    }
}
