//! The tests of the simulated and of the exploring machine, as one program: each program links the simulator and the
//! library once more.

mod attempts;
mod broken;
mod checks;
mod explore;
mod maps;
mod model;
mod policies;
mod reclaim;
mod reentry;
mod registry;
mod rowless;
mod suspended;
mod turns;
