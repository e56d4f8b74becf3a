//! What the space says of all claims together: how many hold in how much of it, and which of them hang on one estimate.

use super::document::Answer;
use super::judge::Verdict;
use super::sensitivity::Sensitivity;
use std::collections::BTreeMap;

const TITLE: &str = "## Over the space of costs\n\n";

/// The share of its space in which a claim should hold.
const HALF: f64 = 0.5;

/// The claims that were run over their space. Inputs are counted nowhere.
fn varied(answers: &[Answer]) -> Vec<(&Answer, &Sensitivity)> {
    let counted = answers.iter().filter(|answer| !matches!(answer.verdict, Verdict::Input(_)));
    counted.filter_map(|answer| Some((answer, answer.space.as_ref()?))).collect()
}

/// Whether the verdict turns with one estimate alone.
fn hangs(space: &Sensitivity) -> bool {
    space.decisive.as_ref().is_some_and(|decisive| decisive.alone)
}

/// The claims that hold with the costs of their machines, and those that do not.
type Sides<'a> = (Vec<(&'a Answer, &'a Sensitivity)>, Vec<(&'a Answer, &'a Sensitivity)>);

fn sides(answers: &[Answer]) -> Sides<'_> {
    varied(answers).into_iter().partition(|(answer, _)| answer.judged.holds())
}

/// In two sentences. Empty, if no claim was run over its space.
pub fn sentence(answers: &[Answer]) -> String {
    let (hold, not) = sides(answers);
    if hold.len() + not.len() == 0 {
        return String::new();
    }
    let count = |of: &dyn Fn(&Sensitivity) -> bool| hold.iter().filter(|(_, space)| of(space)).count();
    let half = count(&|space| space.share() >= HALF);
    let all = count(&|space| space.holds() == space.points.len());
    let hanging = count(&hangs);
    let open = match count(&Sensitivity::is_open) {
        0 => String::new(),
        open => format!(", and for {open} the search for the cost that decides is not finished"),
    };
    let somewhere = not.iter().filter(|(_, space)| space.holds() > 0).count();
    format!(
        "With the costs of their machines as they are, {} of the {} that were run over their space hold: {half} in at least half of it, \
         {all} in all of it; {hanging} hang on one estimate{open}. Of the {} that do not hold, {somewhere} hold somewhere in their space.",
        hold.len(),
        hold.len() + not.len(),
        not.len()
    )
}

/// The part of the page. Empty, if no claim was run over its space.
pub fn text(answers: &[Answer]) -> String {
    let (hold, not) = sides(answers);
    if hold.len() + not.len() == 0 {
        return String::new();
    }
    let mut text = format!("{TITLE}{}\n", sentence(answers));
    text += &list("Hold, but in less than half of their space", &hold, &|space| space.share() < HALF);
    text += &list("Do not hold, but do somewhere in their space", &not, &|space| space.holds() > 0);
    let both = [hold, not].concat();
    text += &list("The search for the cost that decides is not finished", &both, &Sensitivity::is_open);
    text + &decided_by(&both) + "\n"
}

/// These claims, each with its share of the space.
fn list(title: &str, answers: &[(&Answer, &Sensitivity)], of: &dyn Fn(&Sensitivity) -> bool) -> String {
    let of = answers.iter().filter(|(_, space)| of(space));
    let shares: Vec<String> = of
        .map(|(answer, space)| format!("{} ({} of {})", answer.claim.id, space.holds(), space.points.len()))
        .collect();
    if shares.is_empty() { String::new() } else { format!("\n{title}: {}.\n", shares.join(", ")) }
}

/// What turns the verdicts: with which value, and of which claims. What turns most comes first.
fn decided_by(answers: &[(&Answer, &Sensitivity)]) -> String {
    let mut alone: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut with_others: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (answer, space) in answers {
        let id = answer.claim.id;
        for name in space.parameters() {
            alone.entry(format!("{name}, of the workload")).or_default().push(id.to_owned());
        }
        if let Some(decisive) = &space.decisive {
            let of = if decisive.alone { &mut alone } else { &mut with_others };
            let entry = format!("{id} ({})", decisive.factor());
            of.entry(decisive.cost.clone()).or_default().push(entry);
        }
    }
    let mut names: Vec<String> = alone.keys().chain(with_others.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return String::new();
    }
    let of = |map: &BTreeMap<String, Vec<String>>, name: &str| map.get(name).cloned().unwrap_or_default();
    names.sort_by_key(|name| std::cmp::Reverse((of(&alone, name).len(), of(&with_others, name).len())));
    let mut text = String::from(
        "\nA claim that turns with an estimate alone is as good as that estimate: measure it on your machine first. A search names \
         one cost; others may turn the verdict, too.\n\n\
         | what decides | turns alone | turns with other costs |\n|---|---|---|\n",
    );
    for name in names {
        let (alone, others) = (of(&alone, &name), of(&with_others, &name));
        text += &format!("| {name} | {} | {} |\n", alone.join(", "), others.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::claims;
    use super::super::judge::{self, Ground};
    use super::super::sensitivity::{Decisive, Point};
    use super::*;

    /// A claim that holds as it is or not, and in these points of its space.
    fn answer(id: &str, holds: bool, points: &[bool], decisive: Option<Decisive>) -> Answer {
        let claim = claims::all().into_iter().find(|claim| claim.id == id).unwrap();
        let mut judged = judge::judge(&claim.checks, 1, &|_, _| Ok(1.0));
        judged.good = usize::from(holds);
        let points = points.iter().map(|met| Point::made_up(&[*met])).collect();
        let space = Some(Sensitivity { points, decisive });
        let verdict = judge::verdict(&judged, Ground::Covered, space.as_ref(), None);
        Answer { claim, judged, verdict, space, evidence: None, seen: Vec::new() }
    }

    #[test]
    fn claims_are_counted_by_their_share_and_listed_by_what_decides() {
        let hop = |alone| Some(Decisive { cost: "one hop".into(), doubled: true, alone });
        let all = [
            answer("bravo-rwbench-f", true, &[true; 3], None),
            answer("bravo-rwbench-e", true, &[true, true, false], hop(true)),
            answer("bravo-rwbench-a", true, &[true, false, false], hop(false)),
            answer("bueso-mcs", false, &[false, false, true], hop(true)),
            answer("bravo-no-harm", false, &[false; 3], None),
            answer("bueso-one-socket", true, &[true, false, true], None),
        ];
        let text = text(&all);
        for part in [
            "4 of the 6 that were run over their space hold: 3 in at least half of it, 1 in all of it; 1 hang on one estimate, and for 1 the search",
            "Of the 2 that do not hold, 1 hold somewhere in their space.",
            "less than half of their space: bravo-rwbench-a (1 of 3).",
            "somewhere in their space: bueso-mcs (1 of 3).",
            "is not finished: bueso-one-socket (2 of 3).",
            "| one hop | bravo-rwbench-e (x2), bueso-mcs (x2) | bravo-rwbench-a (x2) |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let none: Vec<Answer> = all.into_iter().map(|answer| Answer { space: None, ..answer }).collect();
        assert_eq!(self::text(&none) + &sentence(&none), "");
    }
}
