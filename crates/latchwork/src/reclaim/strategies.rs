//! The list of all strategies.

use super::counted::CountedDomain;
use super::epoch::EpochDomain;
use super::hazard::HazardDomain;
use super::interval::IntervalDomain;
use super::qsbr::QsbrDomain;
use super::rcu::RcuDomain;
use super::strategy::{Info, Reclaim};
use crate::machine::Native;

/// Every strategy, by what it says about itself: those that ask the least of readers first.
pub const STRATEGIES: [Info; 6] = [
    <QsbrDomain<Native> as Reclaim>::INFO,
    <RcuDomain<Native> as Reclaim>::INFO,
    <EpochDomain<Native> as Reclaim>::INFO,
    <IntervalDomain<Native> as Reclaim>::INFO,
    <HazardDomain<Native> as Reclaim>::INFO,
    <CountedDomain<Native> as Reclaim>::INFO,
];
