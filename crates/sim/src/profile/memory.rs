//! The part of a profile that limits caches, memory and links.

use super::{MAX_CLUSTERS, Number, Shape};
use serde::{Deserialize, Serialize};

/// How much caches hold and how fast memory is (the rules are in `lines/caches.rs`). Without it caches and links have no limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// A core's first-level cache, in KiB. Not given: what the private cache has costs a hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Number>,
    /// Its ways (a number).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ways: Option<Number>,
    /// A load that the first-level cache does not have, and the private one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_hit: Option<Number>,
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
        let first = [
            ("memory.first", &self.first),
            ("memory.first_ways", &self.first_ways),
            ("memory.private_hit", &self.private_hit),
        ];
        let mut all: Vec<_> =
            first.into_iter().filter_map(|(name, number)| Some((name, number.as_ref()?))).collect();
        all.extend([
            ("memory.private", &self.private),
            ("memory.private_ways", &self.private_ways),
            ("memory.shared", &self.shared),
            ("memory.shared_ways", &self.shared_ways),
            ("memory.shared_hit", &self.shared_hit),
        ]);
        all.extend(self.bandwidth.iter().map(|number| ("memory.bandwidth", number)));
        all.extend(self.link.iter().map(|number| ("memory.link", number)));
        all
    }

    pub(super) fn check(&self, shape: &Shape) -> Result<(), String> {
        // Room for the account of all caches.
        const MOST: f64 = 1024.0 * 1024.0;
        let first = match (&self.first, &self.first_ways, &self.private_hit) {
            (Some(size), Some(ways), Some(_)) => Some(("memory.first", size, ways)),
            (None, None, None) => None,
            _ => return Err("memory.first, memory.first_ways and memory.private_hit go together".into()),
        };
        let others = [
            ("memory.private", &self.private, &self.private_ways),
            ("memory.shared", &self.shared, &self.shared_ways),
        ];
        for (field, size, ways) in first.into_iter().chain(others) {
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
