//! The part of a profile that limits caches, memory and links.

use super::{MAX_CLUSTERS, Number, Shape};
use serde::{Deserialize, Serialize};

/// How much caches hold and how fast memory is (the rules are in `lines/caches.rs`). Without it caches and links have no limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// A core's private cache (the second level), in KiB.
    pub private: Number,
    /// Its ways (a number).
    pub private_ways: Number,
    /// The cache that a cluster's cores share, in KiB.
    pub shared: Number,
    /// Its ways (a number).
    pub shared_ways: Number,
    /// A load that the private cache does not have, and the shared one has.
    pub shared_hit: Number,
    /// What a node's memory delivers, in gigabytes (1e9 bytes) a second. Not given: there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Number>,
    /// What a link from one node to another delivers, in each direction, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Number>,
}

impl Memory {
    pub(super) fn numbers(&self) -> Vec<(&'static str, &Number)> {
        let mut all = vec![
            ("memory.private", &self.private),
            ("memory.private_ways", &self.private_ways),
            ("memory.shared", &self.shared),
            ("memory.shared_ways", &self.shared_ways),
            ("memory.shared_hit", &self.shared_hit),
        ];
        all.extend(self.bandwidth.iter().map(|number| ("memory.bandwidth", number)));
        all.extend(self.link.iter().map(|number| ("memory.link", number)));
        all
    }

    pub(super) fn check(&self, shape: &Shape) -> Result<(), String> {
        // Room for the account of all caches.
        const MOST: f64 = 1024.0 * 1024.0;
        for (field, size, ways) in [
            ("memory.private", &self.private, &self.private_ways),
            ("memory.shared", &self.shared, &self.shared_ways),
        ] {
            if !(1.0..=32.0).contains(&ways.value) {
                return Err(format!("{field}_ways is {}: it must be between 1 and 32", ways.value));
            }
            if !(ways.value / 16.0..=MOST).contains(&size.value) {
                return Err(format!(
                    "{field} is {} KiB: it must be at least a line of 64 bytes for each way, and at most 1 GiB",
                    size.value
                ));
            }
        }
        for (field, rate) in [("memory.bandwidth", &self.bandwidth), ("memory.link", &self.link)] {
            if rate.as_ref().is_some_and(|rate| rate.value < 0.01) {
                return Err(format!("{field} must be at least 0.01 (gigabytes a second)"));
            }
        }
        if shape.sockets * shape.clusters > MAX_CLUSTERS {
            return Err(format!("memory needs a machine of at most {MAX_CLUSTERS} clusters"));
        }
        Ok(())
    }
}
