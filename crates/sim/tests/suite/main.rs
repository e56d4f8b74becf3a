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

/// Whether what takes longest was asked for. CI does.
fn thorough() -> bool {
    std::env::var_os("LATCHWORK_THOROUGH").is_some_and(|value| value != "0")
}

/// Whether the tests shall run this lock: `LATCHWORK_LOCK` names it (or several, separated by commas), or is not set.
fn wanted(name: &str) -> bool {
    std::env::var("LATCHWORK_LOCK").map_or(true, |only| only.split(',').any(|one| one == name))
}
