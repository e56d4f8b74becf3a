//! What the abstracts and introductions say: the claims that a reader has in mind who takes a lock from a paper.

/// The ids of these claims.
pub const IDS: &[&str] = &[
    // BRAVO: abstract and section 1.
    "bravo-rwbench-scales",
    "bravo-rwbench-f",
    "bravo-rwbench-per-cpu",
    "bravo-no-harm",
    "bravo-bytes-added",
    "bravo-readwhilewriting",
    "bravo-hash-table-bench",
    "bravo-page-fault-many",
    "bravo-metis-wrmem",
    // ShflLock: abstract and section 1.
    "shfl-best-everywhere",
    "shfl-mwrl-lock1",
    "shfl-blocking-4x",
    "shfl-writers-stock",
    "shfl-rw-stock",
    "shfl-leveldb",
    "shfl-streamcluster",
    "shfl-dedup-memory",
    "shfl-wakeups",
    // Bueso: the article's figures.
    "bueso-one-socket",
    "bueso-mcs",
    // McKenney: abstract and section 3.3.
    "mckenney-deferred",
    "mckenney-rcu-ideal",
    "mckenney-globalrw",
];

/// Whether a claim is one of them.
pub fn is_one(id: &str) -> bool {
    IDS.contains(&id)
}

#[cfg(test)]
mod tests {
    use super::super::claims;

    #[test]
    fn every_headline_is_a_claim() {
        let all = claims::all();
        for id in super::IDS {
            assert!(all.iter().any(|claim| claim.id == *id), "{id}");
        }
    }
}
