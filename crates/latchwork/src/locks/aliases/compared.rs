//! The locks of the feature `all-locks`: the field's reference points, to compare with.

use super::{MutexOver, RwLockOver};
use crate::locks::{mutex, rwlock};
use crate::machine::Native;

/// Mutex over [`tas`](mutex::tas).
pub type TasMutex<T> = MutexOver<mutex::tas::RawTas<Native>, T>;
/// Mutex over [`ttas`](mutex::ttas).
pub type TtasMutex<T> = MutexOver<mutex::ttas::RawTtas<Native>, T>;
/// Mutex over [`clh`](mutex::clh).
pub type ClhMutex<T> = MutexOver<mutex::clh::RawClh<Native>, T>;
/// Mutex over [`cna`](mutex::cna).
pub type CnaMutex<T> = MutexOver<mutex::cna::RawCna<Native>, T>;
/// Mutex over [`c-bo-mcs`](mutex::stacked).
pub type CBoMcsMutex<T> = MutexOver<mutex::stacked::CBoMcs<Native>, T>;
/// Mutex over [`c-tkt-mcs`](mutex::stacked).
pub type CTktMcsMutex<T> = MutexOver<mutex::stacked::CTktMcs<Native>, T>;
/// Mutex over [`hmcs`](mutex::stacked).
pub type HmcsMutex<T> = MutexOver<mutex::stacked::Hmcs<Native>, T>;
/// Mutex over [`clof`](mutex::stacked).
pub type ClofMutex<T> = MutexOver<mutex::stacked::Clof<Native>, T>;
/// Mutex over [`ticket-backoff`](mutex::ticket).
pub type TicketBackoffMutex<T> = MutexOver<mutex::ticket::RawTicketBackoff<Native>, T>;
/// Mutex over [`twa`](mutex::twa).
pub type TwaMutex<T> = MutexOver<mutex::twa::RawTwa<Native>, T>;
/// Mutex over [`k42`](mutex::k42).
pub type K42Mutex<T> = MutexOver<mutex::k42::RawK42<Native>, T>;
/// Mutex over [`qspinlock`](mutex::qspinlock).
pub type QspinlockMutex<T> = MutexOver<mutex::qspinlock::RawQspinlock<Native>, T>;
/// Mutex over [`reciprocating`](mutex::reciprocating).
pub type ReciprocatingMutex<T> = MutexOver<mutex::reciprocating::RawReciprocating<Native>, T>;
/// Mutex over [`mcs_tp`](mutex::mcs_tp).
pub type McsTpMutex<T> = MutexOver<mutex::mcs_tp::RawMcsTp<Native>, T>;
/// Mutex over [`hemlock`](mutex::hemlock).
pub type HemlockMutex<T> = MutexOver<mutex::hemlock::RawHemlock<Native>, T>;
/// Mutex over [`hclh`](mutex::hclh).
pub type HclhMutex<T> = MutexOver<mutex::hclh::RawHclh<Native>, T>;
/// Mutex over [`fissile`](mutex::fissile).
pub type FissileMutex<T> = MutexOver<mutex::fissile::RawFissile<Native>, T>;
/// Mutex over [`mcs_park`](mutex::mcs_park).
pub type McsParkMutex<T> = MutexOver<mutex::mcs_park::RawMcsPark<Native>, T>;
/// Mutex over [`malthusian`](mutex::malthusian).
pub type MalthusianMutex<T> = MutexOver<mutex::malthusian::RawMalthusian<Native>, T>;
/// Mutex over [`mutexee`](mutex::mutexee).
pub type MutexeeMutex<T> = MutexOver<mutex::mutexee::RawMutexee<Native>, T>;
/// Mutex over [`hybrid`](mutex::hybrid).
pub type HybridMutex<T> = MutexOver<mutex::hybrid::RawHybrid<Native>, T>;
/// Mutex over [`cst`](mutex::cst).
pub type CstMutex<T> = MutexOver<mutex::cst::RawCst<Native>, T>;
/// Mutex over [`shfl_spin`](mutex::shfl_spin).
pub type ShflSpinMutex<T> = MutexOver<mutex::shfl_spin::RawShflSpin<Native>, T>;
/// Reader-writer lock over [`pf_t`](rwlock::pf_t).
pub type PfTRwLock<T> = RwLockOver<rwlock::pf_t::RawPfT<Native>, T>;
/// Reader-writer lock over [`mcs_rw`](rwlock::mcs_rw).
pub type McsRwLock<T> = RwLockOver<rwlock::mcs_rw::RawMcsRw<Native>, T>;
/// Reader-writer lock over [`percpu`](rwlock::percpu).
pub type PerCpuRwLock<T> = RwLockOver<rwlock::percpu::RawPerCpu<Native>, T>;
/// Reader-writer lock over [`cohort_rw`](rwlock::cohort_rw).
pub type CohortRwLock<T> = RwLockOver<rwlock::cohort_rw::RawCohortRw<Native>, T>;
/// Reader-writer lock over [`rwsem`](rwlock::rwsem).
pub type RwSemRwLock<T> = RwLockOver<rwlock::rwsem::RawRwSem<Native>, T>;
/// Reader-writer lock over [`glibc_rw`](rwlock::glibc_rw).
pub type GlibcModelRwLock<T> = RwLockOver<rwlock::glibc_rw::RawGlibcRw<Native>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`glibc_rw`](rwlock::glibc_rw).
pub type BravoGlibcModelRwLock<T> =
    RwLockOver<rwlock::bravo::Passes<Native, rwlock::glibc_rw::RawGlibcRw<Native>>, T>;
/// The same with a row of slots for each thread.
pub type Bravo2dGlibcModelRwLock<T> =
    RwLockOver<rwlock::bravo::Rows<Native, rwlock::glibc_rw::RawGlibcRw<Native>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over a mutex, [`shfl`](mutex::shfl): see
/// [`exclusive`](rwlock::exclusive) for what readers may not do with it.
pub type BravoMutexRwLock<T> = RwLockOver<
    rwlock::bravo::RawBravo<Native, rwlock::exclusive::Exclusive<mutex::shfl::RawShfl<Native>>>,
    T,
>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`pf_t`](rwlock::pf_t).
pub type BravoPfTRwLock<T> = RwLockOver<rwlock::bravo::RawBravo<Native, rwlock::pf_t::RawPfT<Native>>, T>;
