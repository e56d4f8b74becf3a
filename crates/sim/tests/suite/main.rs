//! The tests of the simulated and of the exploring machine, as one program: each program links the simulator and the
//! library once more.

/// What a map frees stays there until its schedule is over, so that a mistake shows, and does no harm.
#[global_allocator]
static ALLOCATOR: latchwork_sim::explore::Keeping = latchwork_sim::explore::Keeping;

mod attempts;
mod broken;
mod checks;
mod crowd;
mod explore;
mod maps;
mod model;
mod policies;
mod readers;
mod reclaim;
mod reentry;
mod registry;
mod rowless;
mod suspended;
mod turns;

/// A seed besides the usual ones, from which some tests run for a little longer, if `LATCHWORK_SEED` says one. In CI
/// each commit has another one.
fn fresh_seed() -> Option<u64> {
    std::env::var("LATCHWORK_SEED").ok().map(|seed| seed.parse().expect("a number, the seed"))
}

/// How to run the calling test of this lock again, if there is a fresh seed: the end of a message.
fn again(lock: &str) -> String {
    let Some(seed) = fresh_seed() else { return String::new() };
    // libtest names the thread after the test, unless all tests run in the main thread.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or_default();
    format!(
        "\nAgain: LATCHWORK_SEED={seed} LATCHWORK_LOCK={lock} cargo test -p latchwork-sim --test suite {test}"
    )
}

/// Whether the tests shall run this lock: `LATCHWORK_LOCK` names it (or several, separated by commas), or is not set.
fn wanted(name: &str) -> bool {
    std::env::var("LATCHWORK_LOCK").map_or(true, |only| only.split(',').any(|one| one == name))
}
