//! The end of caches, of memory and of links.

use super::*;
use latchwork_sim::{Memory, Number, in_pages, set_home};

const PAGE: usize = 4096;
const PER_PAGE: usize = PAGE / 64;

#[repr(align(64))]
struct Slot(U64);

/// A page of lines.
#[repr(align(4096))]
struct Page([Slot; PER_PAGE]);

fn pages(count: usize) -> Vec<Page> {
    (0..count).map(|_| Page(std::array::from_fn(|_| Slot(U64::new(0))))).collect()
}

/// The first `lines` lines of these pages, a power of two, in an order that nobody foresees.
fn each(pages: &[Page], lines: usize) -> impl Iterator<Item = &U64> {
    assert!(lines.is_power_of_two());
    (0..lines).map(move |at| at * 37 % lines).map(|line| &pages[line / PER_PAGE].0[line % PER_PAGE].0)
}

fn walk(pages: &[Page], lines: usize) -> u64 {
    timed(|| each(pages, lines).for_each(|word| ignore(word.load(Relaxed))))
}

fn number(value: f64) -> Number {
    Number { value, source: "test".into() }
}

/// The machine of round numbers with a private cache of a page, and a shared one of four.
fn small(sockets: usize, clusters: usize) -> Profile {
    let mut profile = machine((sockets, clusters, 8, 1));
    profile.memory = Some(Memory {
        first: None,
        first_ways: None,
        private_hit: None,
        private: number(4.0),
        private_ways: number(8.0),
        shared: number(16.0),
        shared_ways: number(16.0),
        shared_hit: number(20.0),
        bandwidth: None,
        link: None,
    });
    profile
}

#[test]
fn what_fits_stays() {
    let memory = pages(1);
    small(1, 1).play(vec![&|| {
        assert_eq!(walk(&memory, PER_PAGE), 80 * 64);
        assert_eq!(walk(&memory, PER_PAGE), 64);
        assert_eq!(walk(&memory, PER_PAGE), 64);
    }]);
}

#[test]
fn what_does_not_fit_comes_from_the_shared_cache_and_then_from_memory() {
    let memory = pages(16);
    small(1, 1).play(vec![&|| {
        walk(&memory, 2 * PER_PAGE);
        // The oldest leaves, so going round twice finds nothing. Without an end of the cache these were hits.
        assert_eq!(walk(&memory, 2 * PER_PAGE), 20 * 128);
        walk(&memory, 16 * PER_PAGE);
        assert_eq!(walk(&memory, 16 * PER_PAGE), 80 * 1024);
    }]);
    let mut endless = small(1, 1);
    endless.memory = None;
    endless.play(vec![&|| {
        walk(&memory, 16 * PER_PAGE);
        assert_eq!(walk(&memory, 16 * PER_PAGE), 1024);
    }]);
}

/// Account of a shared cache is kept only when there are many lines. Those that are in it by then leave it like all others.
#[test]
fn what_is_in_the_shared_cache_from_the_beginning_leaves_it() {
    let memory = pages(64);
    let mut profile = small(1, 1);
    let limits = profile.memory.as_mut().expect("it has one");
    (limits.private, limits.shared) = (number(1.0), number(64.0));
    profile.play(vec![&|| {
        walk(&memory, 64 * PER_PAGE);
        let first = each(&memory, 64 * PER_PAGE).next().expect("there are 4096");
        assert_eq!(timed(|| first.load(Relaxed)), 80);
    }]);
}

/// Goes `rounds` times through the lines at equal places of these pages. How long the last round takes for each.
fn across(pages: &[Page], rounds: usize) -> u64 {
    let round = || timed(|| pages.iter().for_each(|page| ignore(page.0[5].0.load(Relaxed))));
    (1..rounds).for_each(|_| ignore(round()));
    round() / pages.len() as u64
}

/// A machine with a private cache of 16 sets of 8 ways, and a first-level cache of 8 sets of 4 ways if `first`.
fn with_sets(first: bool) -> Profile {
    let mut profile = small(1, 1);
    let limits = profile.memory.as_mut().expect("it has one");
    (limits.private, limits.shared) = (number(8.0), number(512.0));
    if first {
        (limits.first, limits.first_ways) = (Some(number(2.0)), Some(number(4.0)));
        limits.private_hit = Some(number(6.0));
    }
    profile
}

#[test]
fn lines_at_equal_places_of_pages_meet_in_a_set() {
    let memory = pages(9);
    let body = |lines: usize| {
        in_pages(&memory);
        across(&memory[..lines], 3)
    };
    with_sets(false).play(vec![&|| assert_eq!(body(8), 1, "as many as the set has ways")]);
    with_sets(false).play(vec![&|| assert_eq!(body(9), 20, "one more: each is in the shared cache")]);
    // The twin, whose lines lie at random places.
    with_sets(false).play(vec![&|| assert_eq!(across(&memory, 3), 1)]);
}

#[test]
fn lines_at_other_places_of_pages_do_not_meet() {
    let memory = pages(9);
    with_sets(false).play(vec![&|| {
        in_pages(&memory);
        let words = || memory.iter().zip(0..).map(|(page, at)| &page.0[at].0);
        words().for_each(|word| ignore(word.load(Relaxed)));
        assert_eq!(timed(|| words().for_each(|word| ignore(word.load(Relaxed)))), 9);
    }]);
}

#[test]
fn what_the_first_level_does_not_have_comes_from_the_private_cache() {
    let memory = pages(9);
    for (lines, takes) in [(4, 1), (5, 6), (8, 6), (9, 20)] {
        with_sets(true).play(vec![&|| {
            in_pages(&memory);
            assert_eq!(across(&memory[..lines], 3), takes, "{lines} lines");
        }]);
    }
    // Memory that lies anywhere: 128 lines fill the private cache, and four times the first one.
    with_sets(true).play(vec![&|| {
        walk(&memory, 2 * PER_PAGE);
        assert_eq!(walk(&memory, 2 * PER_PAGE), 6 * 128);
        let word = each(&memory, 2 * PER_PAGE).next().expect("there are 128");
        assert_eq!(timed(|| word.fetch_add(1, Relaxed)), 5 + 10, "an addition waits for it");
        assert_eq!(timed(|| word.fetch_add(1, Relaxed)), 10);
        let word = each(&memory, 2 * PER_PAGE).nth(1).expect("there are 128");
        assert_eq!(timed(|| word.store(1, Relaxed)), 1, "a store goes into the buffer");
    }]);
}

#[test]
fn a_writer_takes_it_from_the_first_level_too() {
    let memory = pages(5);
    let reader = || {
        in_pages(&memory);
        assert_eq!(across(&memory[..4], 3), 1);
        at(2_000);
        assert_eq!(timed(|| memory[0].0[5].0.load(Relaxed)), 50, "from the writer");
        assert_eq!(timed(|| memory[0].0[5].0.load(Relaxed)), 1);
    };
    let writer = || {
        at(1_000);
        memory[0].0[5].0.store(1, Relaxed);
    };
    with_sets(true).play(vec![&reader, &writer]);
}

#[test]
fn a_line_that_left_is_in_the_shared_cache_of_its_cluster() {
    let memory = pages(2);
    let first = || walk(&memory, 2 * PER_PAGE);
    let filled = || {
        ignore(first());
        at(50_000);
    };
    // The first 64 of the walk have left processor 0's cache. A core of the same cluster finds them in the cluster's, one of
    // another cluster there too, and one of another socket.
    let load = |index: usize| {
        let word = each(&memory, 2 * PER_PAGE).nth(index).expect("there are 128");
        timed(|| word.load(Relaxed))
    };
    let here = || {
        at(20_000);
        assert_eq!(load(0), 20);
    };
    let beside = || {
        at(30_000);
        assert_eq!(load(1), 60);
    };
    let beyond = || {
        at(40_000);
        assert_eq!(load(2), 100);
        assert_eq!(load(127), 100, "from the core that has it");
    };
    let nothing = || ();
    let mut bodies: Vec<&dyn Fn()> = vec![&nothing; 17];
    (bodies[0], bodies[1], bodies[8], bodies[16]) = (&filled, &here, &beside, &beyond);
    small(2, 2).play(bodies);
}

/// A copy in a private cache of another socket does not keep a core from the shared cache of its own.
#[test]
fn the_own_shared_cache_is_nearer_than_a_copy_on_another_socket() {
    let memory = pages(2);
    let first = || each(&memory, 2 * PER_PAGE).next().expect("there are 128");
    let here = || {
        walk(&memory, 2 * PER_PAGE);
        at(40_000);
        assert_eq!(timed(|| first().load(Relaxed)), 130, "from the other socket, which had it alone");
        // Now both have it, and it leaves the private cache.
        walk(&memory, 2 * PER_PAGE);
        assert_eq!(timed(|| first().load(Relaxed)), 20);
    };
    let there = || {
        at(30_000);
        assert_eq!(timed(|| first().load(Relaxed)), 100);
    };
    let nothing = || ();
    let mut bodies: Vec<&dyn Fn()> = vec![&nothing; 9];
    (bodies[0], bodies[8]) = (&here, &there);
    small(2, 1).play(bodies);
}

#[test]
fn a_writer_takes_it_from_all_caches() {
    let memory = pages(2);
    let reader = || {
        walk(&memory, 2 * PER_PAGE);
        at(40_000);
        let word = each(&memory, 2 * PER_PAGE).next().expect("there are 128");
        assert_eq!(timed(|| word.load(Relaxed)), 50, "from the writer");
    };
    let writer = || {
        at(20_000);
        let word = each(&memory, 2 * PER_PAGE).next().expect("there are 128");
        assert_eq!(timed(|| word.fetch_add(1, Relaxed)), 30, "20 from the shared cache, and the addition");
    };
    small(1, 1).play(vec![&reader, &writer]);
}

/// How long `threads` processors need to read as many pages each from memory, line by line.
fn stream(profile: &Profile, threads: usize) -> u64 {
    let memory = pages(8 * threads);
    let over = std::cell::Cell::new(0);
    let bodies: Vec<Box<dyn FnOnce()>> = memory
        .chunks(8)
        .map(|own| {
            let over = &over;
            Box::new(move || {
                own.iter().flat_map(|page| &page.0).for_each(|slot| ignore(slot.0.load(Relaxed)));
                over.set(over.get().max(now()));
            }) as Box<dyn FnOnce()>
        })
        .collect();
    run(profile, &exact(), bodies).unwrap();
    over.get()
}

#[test]
fn memory_serves_one_line_after_the_other() {
    let mut profile = small(1, 1);
    // A line in 16 ns; a scan would take one in 8 ns.
    profile.memory.as_mut().expect("it has one").bandwidth = Some(number(4.0));
    let [alone, both] = [1, 4].map(|threads| stream(&profile, threads) as f64 / (512 * threads) as f64);
    assert!((15.9..18.0).contains(&alone), "{alone} ns a line");
    assert!((15.9..18.0).contains(&both), "{both} ns a line of all");
    profile.memory.as_mut().expect("it has one").bandwidth = None;
    let [alone, both] = [1, 4].map(|threads| stream(&profile, threads) as f64 / 512.0);
    assert!((8.0..10.0).contains(&alone), "{alone} ns a line without that end");
    assert!((alone - both).abs() < 0.01, "{alone} and {both} ns a line for each");
}

#[test]
fn so_does_a_link() {
    let mut profile = small(2, 1);
    profile.memory.as_mut().expect("it has one").link = Some(number(0.64));
    let (x, y) = (line(), line());
    let fetch = |line: &Line| {
        at(1_000);
        load(line)
    };
    // A line in 100 ns on the way from node 1 to node 0: the second one waits for that. The other direction is free.
    let one = || {
        set_home(&x, 1);
        assert_eq!(fetch(&x), 150);
    };
    let other = || {
        set_home(&y, 1);
        at(500);
        assert_eq!(fetch(&y), 250);
    };
    profile.play(vec![&one, &other]);
}
