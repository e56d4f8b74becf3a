//! What the evidence says about the papers: the headlines that hold in less than half of their space, and what decides that.

use super::claims::{self, Paper};
use super::document::{Answer, Document};
use super::headlines;
use super::judge::Verdict;
use super::markdown::cell;
use super::rule::number;
use super::sensitivity::Sensitivity;

/// The share of its space in which a headline has to hold.
const HALF: f64 = 0.5;

const TITLE: &str = "## What the evidence says about the papers\n\n";

/// The part of the page. Empty, if no headline was run over its space.
pub fn text(document: &Document) -> String {
    let answers: Vec<&Answer> =
        document.answers.iter().filter(|answer| headlines::is_one(answer.claim.id)).collect();
    let locks = |answer: &&&Answer| matches!(answer.claim.paper, Paper::Bravo | Paper::ShflLock);
    let of_locks: Vec<&Answer> = answers.iter().filter(locks).copied().collect();
    if answers.iter().all(|answer| answer.space.is_none()) {
        return String::new();
    }
    let mut text = TITLE.to_owned();
    text += &summary(&of_locks);
    for answer in answers {
        if let Some(space) = answer.space.as_ref().filter(|space| space.share() < HALF) {
            text += &headline(answer, space);
        }
    }
    text
}

/// How many of the headlines of BRAVO and ShflLock hold in at least half of their space. Some have none: no simulation decides
/// them, or they were not run over it.
fn summary(answers: &[&Answer]) -> String {
    let varied: Vec<(&str, bool)> = answers
        .iter()
        .filter_map(|answer| Some((answer.claim.id, answer.space.as_ref()?.share() >= HALF)))
        .collect();
    let none = answers.iter().filter(|answer| answer.space.is_none());
    let (fixed, open): (Vec<&Answer>, Vec<&Answer>) = none.partition(|answer| answer.claim.is_fixed());
    let ids = |holds: bool| {
        let of = varied.iter().filter(|(_, good)| *good == holds);
        of.map(|(id, _)| *id).collect::<Vec<_>>().join(", ")
    };
    let good = varied.iter().filter(|(_, good)| *good).count();
    let mut text = format!(
        "{} headlines of BRAVO and ShflLock are tested in a space of costs and parameters. {good} of them hold in at least \
         half of it",
        varied.len()
    );
    let (holds, not) = (ids(true), ids(false));
    text += &match (holds.is_empty(), not.is_empty()) {
        (false, false) => format!(": {holds}. The others do not: {not}."),
        (false, true) => format!(": {holds}."),
        (true, _) => ".".into(),
    };
    if !fixed.is_empty() {
        let holds = fixed.iter().filter(|answer| answer.verdict == Verdict::Holds).count();
        text += &format!(
            " {} more have no space, because no cost changes them; {holds} of these hold.",
            fixed.len()
        );
    }
    if open.is_empty() {
        let all = varied.len() + fixed.len();
        let in_all = good + fixed.iter().filter(|answer| answer.verdict == Verdict::Holds).count();
        text += &format!(" Together that is {in_all} of {all}.");
    } else {
        let ids: Vec<&str> = open.iter().map(|answer| answer.claim.id).collect();
        text += &format!(" {} were not run over a space: {}.", ids.len(), ids.join(", "));
    }
    text + "\n\n"
}

/// One that does not hold in half of its space.
fn headline(answer: &Answer, space: &Sensitivity) -> String {
    let claim = &answer.claim;
    let points = space.points.len();
    let parts = answer.judged.checks.len();
    let met: Vec<usize> = (0..parts).map(|part| space.met(part)).collect();
    let never = met.iter().filter(|met| **met == 0).count();
    let always = met.iter().filter(|met| **met == points).count();
    let mut text = format!(
        "### {}: {} of {points} points\n\n{}, {}: \"{}\"\n\n",
        claim.id,
        space.holds(),
        claim.paper.name(),
        claim.place,
        claim.sentence()
    );
    if parts > 1 {
        text += &format!(
            "Of the {parts} parts of its rule, {always} are met in all points, {} in some, {never} in none.",
            parts - always - never
        );
        if (1..parts).contains(&never) {
            let without = |point: &&super::sensitivity::Point| {
                (0..parts).all(|part| met[part] == 0 || point.met.get(part) == Some(&true))
            };
            let left = space.points.iter().filter(without).count();
            let them = if never == 1 { "that one" } else { "those" };
            text += &format!(" Without {them} the claim would hold in {left} of {points} points.");
        }
        text += "\n\n";
    }
    text += "| part of the rule | ours | over the space | met in |\n|---|---|---|---|\n";
    let mut shown: Vec<usize> = (0..parts).filter(|part| met[*part] < points).collect();
    shown.sort_by_key(|part| met[*part]);
    for part in shown {
        let check = &answer.judged.checks[part];
        let band = space
            .band_of(part)
            .map_or_else(String::new, |(least, most)| format!("{} to {}", number(least), number(most)));
        let ours = check.ours.map_or_else(|| "-".into(), number);
        text += &format!("| {} | {ours} | {band} | {} of {points} |\n", cell(&check.rule), met[part]);
    }
    let decides = space.decides();
    if !decides.is_empty() {
        text += &format!("\nThe verdict turns with {}.", decides.join(", "));
    }
    // The table shows several parts: the counts are of the one that is missed by most.
    let part = answer.judged.tightest().filter(|_| parts > 1);
    let part = part.map_or_else(|| "the part shown".into(), |check| format!("\"{}\"", check.rule));
    let causes = answer.causes(&part);
    if !causes.is_empty() {
        text += &format!("\nWhat the run shows: {}.", causes.trim_end_matches('.'));
    }
    if !claim.conclusion.is_empty() {
        text += &format!("\n\nFor a user: {}", claim.conclusion);
    }
    let ids = claim.experiments();
    let used = claims::experiments().into_iter().filter(|experiment| ids.contains(&experiment.id));
    let commands: Vec<String> = used.map(|experiment| format!("    {}", experiment.command())).collect();
    if !commands.is_empty() {
        text += &format!("\n\nTo see it:\n\n{}", commands.join("\n"));
    }
    text.trim_end().to_owned() + "\n\n"
}

#[cfg(test)]
mod tests {
    use super::super::judge::{self, Ground};
    use super::super::sensitivity::Point;
    use super::*;

    const FLAT: &str = "bravo-rwbench-flat";

    /// A claim with at most two parts, after a run in which all figures are 1.
    fn answer(id: &str, space: Option<Sensitivity>) -> Answer {
        let claim = claims::all().into_iter().find(|claim| claim.id == id).unwrap();
        let mut judged = judge::judge(&claim.checks, 1, &|_, _| Ok(1.0));
        judged.checks.truncate(2);
        let verdict = judge::verdict(&judged, Ground::Covered, space.as_ref(), None);
        Answer { claim, judged, verdict, space, evidence: Some("misses/op 2 and 1".into()), seen: Vec::new() }
    }

    fn space(points: &[[bool; 2]]) -> Sensitivity {
        Sensitivity { points: points.iter().map(|met| Point::made_up(met)).collect(), decisive: None }
    }

    #[test]
    fn headlines_are_counted_by_half_of_their_space() {
        let all = [[true, true], [false, true], [true, true]];
        let varied = |points: &[[bool; 2]]| answer(FLAT, Some(space(points)));
        let fixed = answer("bravo-bytes-added", None);
        let holds = usize::from(fixed.verdict == Verdict::Holds);
        let of = |answers: &[Answer]| summary(&answers.iter().collect::<Vec<_>>());
        let text = of(&[varied(&all), varied(&all[1..2]), fixed]);
        for part in [
            "2 headlines",
            "1 of them hold",
            "1 more have no space",
            &format!("{holds} of these hold"),
            &format!("that is {} of 3", 1 + holds),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = of(&[varied(&all), answer(FLAT, None)]);
        assert!(text.contains("1 were not run over a space: bravo-rwbench-flat."), "{text}");
        assert!(!text.contains("Together") && !text.contains("no cost changes"), "{text}");
    }

    #[test]
    fn the_parts_that_are_met_nowhere_decide() {
        let space = space(&[[false, true], [false, false], [false, true]]);
        let answer = answer(FLAT, Some(space.clone()));
        let counted = format!("shows: in \"{}\": misses/op 2 and 1", answer.judged.tightest().unwrap().rule);
        let text = headline(&answer, &space);
        for part in [
            &counted,
            "0 of 3 points",
            "Of the 2 parts of its rule, 0 are met in all points, 1 in some, 1 in none.",
            "Without that one the claim would hold in 2 of 3 points.",
            "| 0 of 3 |",
            "| 2 of 3 |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_reader_is_told_what_to_conclude_and_how_to_see_it() {
        let space = space(&[[false, true], [true, true], [false, true]]);
        let text = headline(&answer("bravo-no-harm", Some(space.clone())), &space);
        for part in ["For a user: ", "\n\n    latchwork-lab simulate rwbench --machine x5-2"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
