//! Locks stacked by the machine's topology: lock cohorting, HMCS, CLoF.
//!
//! Source: Dice, Marathe and Shavit, "Lock Cohorting: A General Technique for Designing NUMA Locks", PPoPP 2012, section 3
//! ([`CBoMcs`], [`CTktMcs`]); Chabbi, Fagan and Mellor-Crummey, "High Performance Locks for Multi-level NUMA Systems", PPoPP
//! 2015 ([`Hmcs`]); the composition of any basic locks: Chehab et al., "CLoF: A Compositional Lock Framework for Multi-level
//! NUMA Systems", SOSP 2021 ([`Clof`]).
//!
//! There is a local lock for each NUMA node, and one global lock. A thread takes its local lock, then the global lock for
//! its whole *cohort*. A holder that releases while other threads wait for the same local lock leaves the global lock to
//! them, up to [`Name::PASSES`] times in a row. [`Stacked`] makes a lock of two locks. As it is a lock itself, three locks
//! make three levels.
//!
//! | `passes` of a cohort | meaning |
//! |---|---|
//! | 0 | the cohort does not have the global lock, or the holder of the local lock got the global lock itself |
//! | n | the cohort has the global lock, and has passed it on n times since |
//!
//! Only the holder of the local lock writes `passes` and the cohort's tokens. Orderings are those of the two locks: (A).
//!
//! Size: a cache line for each of 8 cohorts, and one for the global lock: 576 bytes, 1152 for three levels; waiters and
//! holders as the parts'.
//! Atomics per uncontended pair: the sum of the parts'.
//! Fairness: the local lock's within a cohort, [`Name::PASSES`] in a row; the global lock's among cohorts.
//! Suspension: blocks. A suspended waiter keeps its local lock from the waiters behind it, and may get the global lock.
//!
//! Where it differs from the papers:
//! - The local lock is released *before* the global one. The papers' order saves the next cohort a few instructions, but
//!   then a thread still writes to the lock after another may have destroyed it.
//! - An attempt (`try_lock`) looks at its local lock first, as the papers' attempts do, but takes it only when it has the
//!   global lock. So an attempt that fails never makes another one fail that could succeed. (In the simulator, 192 threads
//!   on 8 sockets of 24 pass 1.6 times as many barriers made of attempts as where all look at the global lock.)
//! - HMCS keeps the count of passes in the waiters' nodes; here it is the composition's, as in CLoF.
//! - [`Machine`] knows NUMA nodes and nothing below, so HMCS has two levels here. NUMA nodes beyond the eighth share the
//!   cohorts of others.

pub use super::local::Local;
use super::{
    ConstNew, Info, RawMutex, Suspension, Token, clh::RawClh, mcs::RawMcs, ticket::RawTicket, ttas::RawTtas,
};
use crate::machine::{Machine, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Cohorts per lock. NUMA node n uses number n modulo this.
const COHORTS: usize = 8;

/// What a composition is called, and its parameters.
pub trait Name: Send + Sync + 'static {
    /// As in [`Info`].
    const NAME: &'static str = "stacked";
    /// As in [`Info`].
    const SUMMARY: &'static str = "a lock per NUMA node below a global one";
    /// As in [`Info`].
    const SOURCE: &'static str = "Chehab et al. 2021";
    /// As in [`Info`].
    const FAIRNESS: &'static str = "the local lock's, 64 in a row; then the global lock's";
    /// How often a cohort passes the global lock on before it releases it.
    const PASSES: u32 = 64;
    /// The cohort of the calling thread.
    fn cohort<M: Machine>() -> usize {
        M::numa_node() as usize
    }
}

/// A composition without a name of its own.
#[derive(Debug)]
pub struct Unnamed;
impl Name for Unnamed {}

/// What the threads of one NUMA node share.
#[repr(align(64))]
struct Cohort<L: RawMutex> {
    local: L,
    passes: <L::Machine as Machine>::U32,
    /// The holder's token of `local`.
    token: <L::Machine as Machine>::Usize,
    /// The cohort's token of the global lock, while it has that.
    global: <L::Machine as Machine>::Usize,
}

impl<L: ConstNew> Cohort<L> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Cohort {
        local: L::NEW,
        passes: AtomicU32::new(0),
        token: AtomicUsize::new(0),
        global: AtomicUsize::new(0),
    };
}

/// `L` in each NUMA node, below `G`. See the [module documentation](self).
pub struct Stacked<G, L: RawMutex, N = Unnamed> {
    global: G,
    /// The global lock's token of a holder without a cohort.
    direct: <L::Machine as Machine>::Usize,
    cohorts: [Cohort<L>; COHORTS],
    name: PhantomData<N>,
}

impl<G: ConstNew, L: ConstNew, N> Stacked<G, L, N> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        Stacked {
            global: G::NEW,
            direct: AtomicUsize::new(0),
            cohorts: [const { Cohort::<L>::NEW }; COHORTS],
            name: PhantomData,
        }
    }
}

const_new!(Stacked<G, L, N>, G: ConstNew, L: Local + ConstNew, N: Name);

/// How a holder acquired the lock: 0, by the global lock alone; else the number of its cohort, from 1.
#[derive(Copy, Clone, Debug)]
pub struct Way(usize);

impl Token for Way {
    const HAS_FREE_BIT: bool = true;
    fn into_word(self) -> usize {
        self.0 << 1
    }
    unsafe fn from_word(word: usize) -> Self {
        Way(word >> 1)
    }
}

/// Keeps a token in a word that the holder owns.
#[inline(always)]
fn keep<T: Token>(word: &impl Word<usize>, token: T) {
    if const { size_of::<T>() != 0 } {
        word.store(token.into_word(), Relaxed);
    }
}

/// The token that [`keep`] has put into a word.
///
/// # Safety
///
/// The caller owns the word, and [`keep`] was the last to write it.
#[inline(always)]
unsafe fn kept<T: Token>(word: &impl Word<usize>) -> T {
    let word = if const { size_of::<T>() != 0 } { word.load(Relaxed) } else { 0 };
    // SAFETY: `keep` wrote the word with `into_word`, as the caller promises.
    unsafe { T::from_word(word) }
}

// SAFETY: a holder has the global lock, itself or through its cohort, and of a cohort only the holder of the local lock
// makes use. (A) what a holder leaves in its cohort, and its section, happen before the next holder's, through the local
// lock or through the global one. All-zero bytes are unlocked, because they are in both parts.
unsafe impl<G, L, N> RawMutex for Stacked<G, L, N>
where
    G: RawMutex,
    L: Local<Machine = G::Machine>,
    N: Name,
{
    type Machine = G::Machine;
    type Token = Way;
    const INFO: Info = Info {
        name: N::NAME,
        summary: N::SUMMARY,
        atomics: G::INFO.atomics + L::INFO.atomics,
        waiter_bytes: L::INFO.waiter_bytes,
        holder_bytes: G::INFO.holder_bytes + L::INFO.holder_bytes,
        fairness: N::FAIRNESS,
        blocking: G::INFO.blocking && L::INFO.blocking,
        suspension: Suspension::Blocks,
        source: N::SOURCE,
    };

    fn new_in() -> Self {
        let word = || <G::Machine as Machine>::Usize::new(0);
        let cohort = |_| Cohort {
            local: L::new_in(),
            passes: <G::Machine as Machine>::U32::new(0),
            token: word(),
            global: word(),
        };
        Stacked {
            global: G::new_in(),
            direct: word(),
            cohorts: core::array::from_fn(cohort),
            name: PhantomData,
        }
    }

    #[inline]
    fn lock(&self) -> Way {
        let number = N::cohort::<G::Machine>() % COHORTS;
        let cohort = &self.cohorts[number];
        keep(&cohort.token, cohort.local.lock());
        if cohort.passes.load(Relaxed) == 0 {
            keep(&cohort.global, self.global.lock());
        }
        Way(number + 1)
    }

    #[inline]
    fn try_lock(&self) -> Option<Way> {
        let number = N::cohort::<G::Machine>() % COHORTS;
        let cohort = &self.cohorts[number];
        if cohort.local.is_locked() {
            return None;
        }
        let global = self.global.try_lock()?;
        let Some(local) = cohort.local.try_lock() else {
            keep(&self.direct, global);
            return Some(Way(0));
        };
        keep(&cohort.token, local);
        keep(&cohort.global, global);
        Some(Way(number + 1))
    }

    #[inline]
    unsafe fn unlock(&self, way: Way) {
        let Some(number) = way.0.checked_sub(1) else {
            // SAFETY: the holder of the global lock owns the word, and `try_lock` put the token there.
            unsafe { self.global.unlock(kept(&self.direct)) };
            return;
        };
        let cohort = &self.cohorts[number];
        // SAFETY: the holder owns its cohort. The cohort's tokens are those of the acquisitions in `lock`. The global one
        // may be of another thread of the cohort, which has passed it on.
        unsafe {
            let local: L::Token = kept(&cohort.token);
            let passes = cohort.passes.load(Relaxed);
            if passes < N::PASSES && cohort.local.has_waiters(local) {
                cohort.passes.store(passes + 1, Relaxed);
                cohort.local.unlock(local);
            } else {
                let global: G::Token = kept(&cohort.global);
                if passes != 0 {
                    cohort.passes.store(0, Relaxed);
                }
                cohort.local.unlock(local);
                self.global.unlock(global);
            }
        }
    }

    fn is_locked(&self) -> bool {
        self.global.is_locked()
    }
}

/// The name of [`CBoMcs`].
#[derive(Debug)]
pub struct CBoMcsName;
impl Name for CBoMcsName {
    const NAME: &'static str = "c-bo-mcs";
    const SUMMARY: &'static str = "lock cohorting: backoff test-and-set over an MCS per NUMA node";
    const SOURCE: &'static str = "Dice, Marathe and Shavit 2012, section 3.1";
    const FAIRNESS: &'static str = "none among nodes; FIFO per NUMA node, 64 in a row";
}
/// Lock cohorting, backoff over MCS.
pub type CBoMcs<M> = Stacked<RawTtas<M>, RawMcs<M>, CBoMcsName>;

/// The name of [`CTktMcs`].
#[derive(Debug)]
pub struct CTktMcsName;
impl Name for CTktMcsName {
    const NAME: &'static str = "c-tkt-mcs";
    const SUMMARY: &'static str = "lock cohorting: ticket over an MCS per NUMA node";
    const SOURCE: &'static str = "Dice, Marathe and Shavit 2012, section 3.4";
    const FAIRNESS: &'static str = "FIFO per NUMA node, 64 in a row; FIFO among nodes";
}
/// Lock cohorting, ticket over MCS.
pub type CTktMcs<M> = Stacked<RawTicket<M>, RawMcs<M>, CTktMcsName>;

/// The name of [`Hmcs`].
#[derive(Debug)]
pub struct HmcsName;
impl Name for HmcsName {
    const NAME: &'static str = "hmcs";
    const SUMMARY: &'static str = "hierarchical MCS, two levels";
    const SOURCE: &'static str = "Chabbi, Fagan and Mellor-Crummey 2015";
    const FAIRNESS: &'static str = "FIFO per NUMA node, 64 in a row; FIFO among nodes";
}
/// HMCS.
pub type Hmcs<M> = Stacked<RawMcs<M>, RawMcs<M>, HmcsName>;

/// The name of [`Clof`], and of the level in the middle of it.
#[derive(Debug)]
pub struct ClofName;
impl Name for ClofName {
    const NAME: &'static str = "clof";
    const SUMMARY: &'static str = "three levels: ticket, an MCS per pair of NUMA nodes, a CLH per node";
    const FAIRNESS: &'static str = "FIFO per NUMA node, 64 in a row; per pair, 64 times; among pairs";
}
/// Two NUMA nodes that are numbered one after the other.
#[derive(Debug)]
pub struct PairOfNodes;
impl Name for PairOfNodes {
    fn cohort<M: Machine>() -> usize {
        M::numa_node() as usize / 2
    }
}
/// Three levels.
pub type Clof<M> = Stacked<Stacked<RawTicket<M>, RawMcs<M>, PairOfNodes>, RawClh<M>, ClofName>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::mutex::{cna::RawCna, k42::RawK42, mcs_park::RawMcsPark};
    use crate::locks::tests::in_a_minute;
    use crate::machine::Native;

    /// All threads are of one cohort.
    struct One;

    impl Name for One {
        fn cohort<M: Machine>() -> usize {
            0
        }
    }

    /// A cohort passes the global lock on to its waiters, but only so often in a row.
    #[test]
    fn a_cohort_passes_on_so_often() {
        for (before, after) in [(0, 1), (One::PASSES - 1, One::PASSES), (One::PASSES, 0)] {
            let lock = Stacked::<RawTicket<Native>, RawMcs<Native>, One>::new();
            let (way, cohort) = (lock.lock(), &lock.cohorts[0]);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let way = lock.lock();
                    let passes = cohort.passes.load(Relaxed);
                    // SAFETY: the token is from the acquisition above.
                    unsafe { lock.unlock(way) };
                    passes
                });
                // SAFETY: the holder owns its cohort, and the token is that of its acquisition.
                let waits = in_a_minute(|| unsafe { cohort.local.has_waiters(kept(&cohort.token)) });
                cohort.passes.store(before, Relaxed);
                // SAFETY: the token is from the acquisition above.
                unsafe { lock.unlock(way) };
                assert_eq!((waits, waiter.join().unwrap()), (true, after));
            });
            assert_eq!(cohort.passes.load(Relaxed), 0);
        }
    }

    /// The holder of a local lock sees whether another thread waits.
    #[test]
    fn holders_of_local_locks_see_waiters() {
        fn check<L: Local<Machine = Native>>() {
            let lock = L::new_in();
            let token = lock.lock();
            // SAFETY: the token is from an acquisition that has not ended.
            let has_waiters = || unsafe { lock.has_waiters(token) };
            assert!(!has_waiters(), "{}: there is none", L::INFO.name);
            let waits = std::thread::scope(|scope| {
                // SAFETY: the token is from the acquisition in the same call.
                scope.spawn(|| unsafe { lock.unlock(lock.lock()) });
                let waits = in_a_minute(has_waiters);
                // SAFETY: the token is from the first acquisition.
                unsafe { lock.unlock(token) };
                waits
            });
            assert!(waits, "{}", L::INFO.name);
        }
        check::<RawTicket<Native>>();
        check::<RawClh<Native>>();
        check::<RawMcs<Native>>();
        check::<RawK42<Native>>();
        check::<RawCna<Native>>();
        check::<RawMcsPark<Native>>();
    }
}
