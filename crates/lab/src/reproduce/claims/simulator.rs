//! Whether the simulator can be believed at all.

use super::{Bound, Claim, Figure, Paper, of};

/// The id.
pub const SIMULATOR: &str = "simulator";

pub fn claims() -> Vec<Claim> {
    vec![
        Claim::new(SIMULATOR, Paper::Simulator, "docs: what the simulator must show")
            .says(
                "On this machine's own calibrated profile, the simulated and the measured order of the locks agree \
                 at 1, 2 and 4 threads in at least 9 of 10 pairs whose medians differ by over 20% in measurement.",
            )
            .checks([of(Figure::Agreement, Bound::AtLeast(0.9))])
            .because("See the pairs below."),
    ]
}
