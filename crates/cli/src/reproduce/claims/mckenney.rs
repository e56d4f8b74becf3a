//! McKenney, "Practical Concerns for Scalable Synchronization", 2005.

use super::{Claim, Paper};

pub fn claims() -> Vec<Claim> {
    vec![Claim::not_yet(
        "mckenney-reclamation",
        Paper::McKenney,
        "evaluation",
        "How locks, hazard pointers and RCU compare on a hash table, by the mix of reads and writes.",
        "the reclamation code (RCU, epochs, hazard pointers) and a hash table over it",
    )]
}
