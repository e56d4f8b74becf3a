//! The part of a profile that makes its kernel's scheduler EEVDF.

use super::Number;
use serde::{Deserialize, Serialize};

/// The scheduler is EEVDF, as in Linux from 6.6 on (the rules are in `scheduler/eevdf.rs`). Without it the rules are those of
/// `scheduler.rs` alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eevdf {
    /// How much processor time a thread may use before its deadline (Linux's `base_slice_ns`).
    pub base_slice: Number,
    /// A thread that ran within this time stays on its processor when another one has just run out of threads (Linux's
    /// `migration_cost_ns`).
    pub migration_cost: Number,
}

impl Eevdf {
    /// What Linux uses on a machine of `cpus` processors unless somebody has changed it.
    pub fn linux(cpus: usize) -> Self {
        let factor = 1 + cpus.clamp(1, 8).ilog2();
        Eevdf {
            base_slice: Number {
                value: f64::from(700_000 * factor),
                source: "looked up: sysctl_sched_base_slice, 0.7 ms times 1 + log2 of the CPUs (at most 8); kernel/sched/fair.c of Linux 6.18".into(),
            },
            migration_cost: Number {
                value: 500_000.0,
                source: "looked up: sysctl_sched_migration_cost; kernel/sched/fair.c of Linux 6.18".into(),
            },
        }
    }

    pub(super) fn numbers(&self) -> [(&'static str, &Number); 2] {
        [("eevdf.base_slice", &self.base_slice), ("eevdf.migration_cost", &self.migration_cost)]
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self.base_slice.value {
            1000.0.. => Ok(()),
            _ => Err("eevdf.base_slice must be at least 1000 (nanoseconds)".into()),
        }
    }
}
