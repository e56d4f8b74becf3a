use super::*;

fn point(variant: Variant, holds: bool, value: f64) -> Point {
    Point {
        variant: variant.label(),
        holds,
        value: Some(value),
        values: vec![Some(value), None],
        met: vec![holds, true],
        parameter: variant.parameter().map(str::to_owned),
    }
}

#[test]
fn points_are_counted_and_what_decides_is_named() {
    let decisive = Decisive { cost: "one hop".into(), doubled: false, alone: true };
    let mut one = Sensitivity {
        points: vec![
            point(Variant::AsItIs, true, 1.5),
            point(Variant::Joint(0), false, 0.5),
            point(Variant::Joint(1), true, 2.0),
        ],
        decisive: Some(decisive.clone()),
    };
    assert_eq!((one.holds(), one.met(0), one.met(1), one.met(2)), (2, 2, 3, 0));
    assert_eq!((one.band(), one.band_of(0), one.band_of(1)), (Some((0.5, 2.0)), one.band(), None));
    assert_eq!(one.sentence(), "2 of 3 points of the space; decided by one hop /2 alone");
    one.decisive = Some(Decisive { alone: false, ..decisive });
    assert_eq!(one.decides(), ["one hop /2 with other costs"]);
    assert_eq!(one.range(), None);
    let unknown = |set: &str| Variant::Unknown(set.into());
    let range = Sensitivity {
        points: vec![
            point(Variant::AsItIs, false, 0.5),
            point(unknown("write=20us"), false, 0.9),
            point(unknown("write=300us"), true, 1.2),
        ],
        decisive: None,
    };
    assert_eq!(range.decides(), ["write"]);
    assert_eq!(range.range().unwrap(), "it holds with write=300us, not as it is nor with write=20us");
}

/// Lets a search look for the cost number `culprit` in a world in which the verdict turns when that one is changed.
fn search(costs: usize, culprit: usize, alone: bool) -> (Decisive, usize) {
    let costs = (0..costs).map(|at| vec![format!("cost {at}")]).collect::<Vec<_>>();
    let mut search =
        Search { claim: 0, other: costs.len(), costs, run: 3, same: 0, holds: true, decisive: None };
    let mut steps = 0;
    while let Some(variant) = search.next() {
        steps += 1;
        search.found(match variant {
            Variant::Part(3, changed) => changed <= culprit,
            Variant::Alone(3, cost) => !alone || cost != culprit,
            other => panic!("{other:?}"),
        });
    }
    (search.decisive.unwrap(), steps)
}

#[test]
fn a_search_finds_the_cost_in_few_steps() {
    for costs in 1..=20 {
        for culprit in 0..costs {
            for alone in [true, false] {
                let (found, steps) = search(costs, culprit, alone);
                assert_eq!((found.cost, found.alone), (format!("cost {culprit}"), alone));
                assert_eq!(found.doubled, space::is_doubled(culprit, 3));
                assert!(steps <= 6, "{steps}");
            }
        }
    }
}

#[test]
fn where_a_lock_failed_a_claim_is_not_judged() {
    const EFFORT: Effort = Effort { runs: 1, seconds: None, seed: 1 };
    let many = |claim: &Claim| claim.id == "bravo-page-fault-many";
    let claims: Vec<Claim> = super::super::claims::all().into_iter().filter(many).collect();
    let experiments = super::super::claims::experiments();
    let asked = Asked::new(&claims, &experiments, &EFFORT);
    let used = &asked.claims[0].1;
    let all = space::first(used);
    let mut space = Space::default();
    for variant in &all {
        let ready = Ready::variant(used[0], variant, &EFFORT, false).unwrap();
        let mut results = Results::new(&ready.plan);
        for at in 0..results.points.len() {
            results.file(at, Ok(crate::measure::results::Run::at(1e6)));
        }
        space.at.insert((used[0].id, variant.clone(), false), space.ready.len());
        space.ready.push(ready);
        space.results.push(results);
    }
    assert_eq!(asked.of(&space, claims[0].id, 0).unwrap().points.len(), all.len());
    assert!(space.failures().is_empty());
    space.results[1].file(0, Err("it lost an increment".into()));
    assert_eq!(asked.of(&space, claims[0].id, 0).unwrap().points.len(), all.len() - 1);
    let failures = space.failures();
    assert!(failures.len() == 1 && failures[0].ends_with("threads: it lost an increment"), "{failures:?}");
    space.results[0].file(0, Err("it lost an increment".into()));
    assert!(asked.of(&space, claims[0].id, 0).is_none(), "the claim as it is");
}

#[test]
fn a_claim_that_a_quarter_of_the_time_turns_is_judged_by_all_of_it() {
    const EFFORT: Effort = Effort { runs: 1, seconds: None, seed: 1 };
    let many = |claim: &Claim| claim.id == "bravo-page-fault-many";
    let claims: Vec<Claim> = super::super::claims::all().into_iter().filter(many).collect();
    let experiments = super::super::claims::experiments();
    let asked = Asked::new(&claims, &experiments, &EFFORT);
    let (claim, used) = (&claims[0], &asked.claims[0].1);
    // A quarter of the time shows no gain, all of it threefold throughput.
    let mut space = Space::default();
    for (whole, gain) in [(false, 1.0), (true, 3.0)] {
        let ready = Ready::variant(used[0], &Variant::AsItIs, &EFFORT, whole).unwrap();
        let mut results = Results::new(&ready.plan);
        for at in 0..results.points.len() {
            let name = ready.plan.locks[results.points[at].place.lock].name;
            let rate = if name.starts_with("bravo") { gain } else { 1.0 };
            results.file(at, Ok(crate::measure::results::Run::at(rate * 1e6)));
        }
        space.at.insert((used[0].id, Variant::AsItIs, whole), space.ready.len());
        space.ready.push(ready);
        space.results.push(results);
    }
    let time = |at: usize| space.ready[at].how.as_ref().unwrap().measured_ns;
    assert_eq!(time(1), 4 * time(0));
    assert!(!space.point(claim, &Variant::AsItIs, 0).holds);
    assert!(asked.turned(&space, &|_| false).is_empty());
    space.whole = asked.turned(&space, &|_| true);
    assert!(space.point(claim, &Variant::AsItIs, 0).holds);
}
