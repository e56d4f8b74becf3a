//! Strategies of reclamation that are broken on purpose.

use latchwork::machine::Records;
use latchwork::reclaim::domain::{Domain, Flavour};
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{Garbage, GuardOf, Info, Limit, Reclaim, Retire};
use latchwork_sim::explore::Explore;

/// RCU whose readers begin sections of `F`.
pub struct Twin<const MISTAKE: u8, F: Flavour, M: Records = Explore> {
    retires: RcuDomain<M>,
    reads: Domain<M, F>,
}

/// Reclaims what is retired at once.
pub const TOO_EARLY: u8 = 0;
/// Waits for sections of RCU alone: a mistake unless `F` is RCU.
pub const WRONG_GUARD: u8 = 1;

// SAFETY: none: the exploration has to find it. Its objects are never freed.
unsafe impl<const MISTAKE: u8, F: Flavour, M: Records> Reclaim for Twin<MISTAKE, F, M> {
    type Machine = M;
    type Reader<'d> = F::Reader<'d, M>;
    const INFO: Info = <RcuDomain<M> as Reclaim>::INFO;

    fn new_in() -> Self {
        Twin { retires: RcuDomain::new_in(), reads: Domain::new_in() }
    }
    fn reader(&self) -> Self::Reader<'_> {
        self.reads.reader()
    }
    fn covers<'r, 'd>(&self, _: &GuardOf<'r, 'd, Self>) -> bool
    where
        Self::Reader<'d>: 'r,
    {
        true
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: none.
        unsafe {
            match MISTAKE {
                TOO_EARLY => T::reclaim(object),
                _ => self.retires.retire(object),
            }
        }
    }
    fn set_limit(&self, limit: Limit) {
        self.retires.set_limit(limit);
    }
    fn collect(&self) {
        self.retires.collect();
    }
    fn barrier(&self) {
        self.retires.barrier();
    }
    fn garbage(&self) -> Garbage {
        self.retires.garbage()
    }
}
