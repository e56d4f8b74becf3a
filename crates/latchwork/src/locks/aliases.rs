//! The names that users of the crate type.

use super::mutex::{self, Api};
use super::rwlock;
use crate::machine::Native;

/// Mutex over [`tas`](mutex::tas).
pub type TasMutex<T> = lock_api::Mutex<Api<mutex::tas::RawTas<Native>>, T>;
/// Mutex over [`ttas`](mutex::ttas).
pub type TtasMutex<T> = lock_api::Mutex<Api<mutex::ttas::RawTtas<Native>>, T>;
/// Mutex over [`ticket`](mutex::ticket).
pub type TicketMutex<T> = lock_api::Mutex<Api<mutex::ticket::RawTicket<Native>>, T>;
/// Mutex over [`mcs`](mutex::mcs).
pub type McsMutex<T> = lock_api::Mutex<Api<mutex::mcs::RawMcs<Native>>, T>;
/// Mutex over [`clh`](mutex::clh).
pub type ClhMutex<T> = lock_api::Mutex<Api<mutex::clh::RawClh<Native>>, T>;
/// Mutex over [`cna`](mutex::cna).
pub type CnaMutex<T> = lock_api::Mutex<Api<mutex::cna::RawCna<Native>>, T>;
/// Mutex over [`c-bo-mcs`](mutex::stacked).
pub type CBoMcsMutex<T> = lock_api::Mutex<Api<mutex::stacked::CBoMcs<Native>>, T>;
/// Mutex over [`c-tkt-mcs`](mutex::stacked).
pub type CTktMcsMutex<T> = lock_api::Mutex<Api<mutex::stacked::CTktMcs<Native>>, T>;
/// Mutex over [`hmcs`](mutex::stacked).
pub type HmcsMutex<T> = lock_api::Mutex<Api<mutex::stacked::Hmcs<Native>>, T>;
/// Mutex over [`clof`](mutex::stacked).
pub type ClofMutex<T> = lock_api::Mutex<Api<mutex::stacked::Clof<Native>>, T>;
/// Mutex over [`ticket-backoff`](mutex::ticket).
pub type TicketBackoffMutex<T> = lock_api::Mutex<Api<mutex::ticket::RawTicketBackoff<Native>>, T>;
/// Mutex over [`twa`](mutex::twa).
pub type TwaMutex<T> = lock_api::Mutex<Api<mutex::twa::RawTwa<Native>>, T>;
/// Mutex over [`k42`](mutex::k42).
pub type K42Mutex<T> = lock_api::Mutex<Api<mutex::k42::RawK42<Native>>, T>;
/// Mutex over [`qspinlock`](mutex::qspinlock).
pub type QspinlockMutex<T> = lock_api::Mutex<Api<mutex::qspinlock::RawQspinlock<Native>>, T>;
/// Mutex over [`reciprocating`](mutex::reciprocating).
pub type ReciprocatingMutex<T> = lock_api::Mutex<Api<mutex::reciprocating::RawReciprocating<Native>>, T>;
/// Mutex over [`mcs_tp`](mutex::mcs_tp).
pub type McsTpMutex<T> = lock_api::Mutex<Api<mutex::mcs_tp::RawMcsTp<Native>>, T>;
/// Mutex over [`hemlock`](mutex::hemlock).
pub type HemlockMutex<T> = lock_api::Mutex<Api<mutex::hemlock::RawHemlock<Native>>, T>;
/// Mutex over [`hclh`](mutex::hclh).
pub type HclhMutex<T> = lock_api::Mutex<Api<mutex::hclh::RawHclh<Native>>, T>;
/// Mutex over [`fissile`](mutex::fissile).
pub type FissileMutex<T> = lock_api::Mutex<Api<mutex::fissile::RawFissile<Native>>, T>;
/// Mutex over [`mcs_park`](mutex::mcs_park).
pub type McsParkMutex<T> = lock_api::Mutex<Api<mutex::mcs_park::RawMcsPark<Native>>, T>;
/// Mutex over [`malthusian`](mutex::malthusian).
pub type MalthusianMutex<T> = lock_api::Mutex<Api<mutex::malthusian::RawMalthusian<Native>>, T>;
/// Mutex over [`mutexee`](mutex::mutexee).
pub type MutexeeMutex<T> = lock_api::Mutex<Api<mutex::mutexee::RawMutexee<Native>>, T>;
/// Mutex over [`hybrid`](mutex::hybrid).
pub type HybridMutex<T> = lock_api::Mutex<Api<mutex::hybrid::RawHybrid<Native>>, T>;
/// Mutex over [`cst`](mutex::cst).
pub type CstMutex<T> = lock_api::Mutex<Api<mutex::cst::RawCst<Native>>, T>;
/// Mutex over [`shfl_spin`](mutex::shfl_spin).
pub type ShflSpinMutex<T> = lock_api::Mutex<Api<mutex::shfl_spin::RawShflSpin<Native>>, T>;
/// Mutex over [`shfl`](mutex::shfl): the one to take unless you measured something else.
pub type ShflMutex<T> = lock_api::Mutex<Api<mutex::shfl::RawShfl<Native>>, T>;

/// The reader-writer lock to take unless you measured something else: [`bravo`](rwlock::bravo) with a
/// row of slots per thread over [`shfl_rw`](rwlock::shfl_rw).
///
/// Read mostly, a read costs two plain stores and no atomic read-modify-write, and readers on
/// different processors share no cache line that anybody writes. Waiters sleep. 32 bytes beside the
/// value.
///
/// A thread must not read-lock again while it holds a read guard: with a writer waiting in between both
/// may wait for ever.
pub type RwLock<T> = Bravo2dShflRwLock<T>;

/// Reader-writer lock over [`pf_t`](rwlock::pf_t).
pub type PfTRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::pf_t::RawPfT<Native>>, T>;
/// Reader-writer lock over [`pf_q`](rwlock::pf_q).
pub type PfQRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::pf_q::RawPfQ<Native>>, T>;
/// Reader-writer lock over [`shfl_rw`](rwlock::shfl_rw).
pub type ShflRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::shfl_rw::RawShflRw<Native>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`shfl_rw`](rwlock::shfl_rw).
pub type BravoShflRwLock<T> =
    lock_api::RwLock<rwlock::Api<rwlock::bravo::RawBravo<Native, rwlock::shfl_rw::RawShflRw<Native>>>, T>;
/// A few words that are copied, not locked, to be read: [`seqlock`](super::seqlock), with
/// [`shfl`](mutex::shfl) for writers.
pub type SeqLock<const WORDS: usize> = super::seqlock::SeqLock<mutex::shfl::RawShfl<Native>, WORDS>;
/// Reader-writer lock over [`mcs_rw`](rwlock::mcs_rw).
pub type McsRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::mcs_rw::RawMcsRw<Native>>, T>;
/// Reader-writer lock over [`percpu`](rwlock::percpu).
pub type PerCpuRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::percpu::RawPerCpu<Native>>, T>;
/// Reader-writer lock over [`cohort_rw`](rwlock::cohort_rw).
pub type CohortRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::cohort_rw::RawCohortRw<Native>>, T>;
/// Reader-writer lock over [`rwsem`](rwlock::rwsem).
pub type RwSemRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::rwsem::RawRwSem<Native>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over a mutex, [`shfl`](mutex::shfl): see
/// [`exclusive`](rwlock::exclusive) for what readers may not do with it.
pub type BravoMutexRwLock<T> = lock_api::RwLock<
    rwlock::Api<rwlock::bravo::RawBravo<Native, rwlock::exclusive::Exclusive<mutex::shfl::RawShfl<Native>>>>,
    T,
>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`pf_t`](rwlock::pf_t).
pub type BravoPfTRwLock<T> =
    lock_api::RwLock<rwlock::Api<rwlock::bravo::RawBravo<Native, rwlock::pf_t::RawPfT<Native>>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) with a row of slots per thread over
/// [`shfl_rw`](rwlock::shfl_rw).
pub type Bravo2dShflRwLock<T> =
    lock_api::RwLock<rwlock::Api<rwlock::bravo::Rows<Native, rwlock::shfl_rw::RawShflRw<Native>>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) with a row of slots per processor over
/// [`pf_q`](rwlock::pf_q).
pub type BravoCpuPfQRwLock<T> =
    lock_api::RwLock<rwlock::Api<rwlock::bravo::Columns<Native, rwlock::pf_q::RawPfQ<Native>>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`pf_q`](rwlock::pf_q).
pub type BravoRwLock<T> =
    lock_api::RwLock<rwlock::Api<rwlock::bravo::RawBravo<Native, rwlock::pf_q::RawPfQ<Native>>>, T>;

/// Condition variable for mutexes over `L`.
///
/// For a local one the compiler finds `L` by itself; in a type, say which mutex it goes with, or
/// use the alias of the same name as the mutex's.
///
/// ```
/// use latchwork::{Condvar, McsCondvar, McsMutex, ShflMutex};
/// use std::thread;
///
/// static DONE: McsMutex<bool> = McsMutex::new(false);
/// static CHANGED: McsCondvar = McsCondvar::new();
///
/// thread::spawn(|| {
///     *DONE.lock() = true;
///     CHANGED.notify_one();
/// });
/// CHANGED.wait_while(&mut DONE.lock(), |done| !*done);
///
/// let (jobs, arrived) = (ShflMutex::new(vec![]), Condvar::new());
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         jobs.lock().push(1);
///         arrived.notify_all();
///     });
///     let mut jobs = jobs.lock();
///     arrived.wait_while(&mut jobs, |jobs| jobs.is_empty());
///     assert_eq!(jobs.pop(), Some(1));
/// });
/// ```
pub type Condvar<L = mutex::shfl::RawShfl<Native>> = lock_api::Condvar<super::condvar::Api<L>>;
/// Condition variable for [`TasMutex`].
pub type TasCondvar = Condvar<mutex::tas::RawTas<Native>>;
/// Condition variable for [`TtasMutex`].
pub type TtasCondvar = Condvar<mutex::ttas::RawTtas<Native>>;
/// Condition variable for [`TicketMutex`].
pub type TicketCondvar = Condvar<mutex::ticket::RawTicket<Native>>;
/// Condition variable for [`McsMutex`].
pub type McsCondvar = Condvar<mutex::mcs::RawMcs<Native>>;
/// Condition variable for [`ClhMutex`].
pub type ClhCondvar = Condvar<mutex::clh::RawClh<Native>>;
/// Condition variable for [`CnaMutex`].
pub type CnaCondvar = Condvar<mutex::cna::RawCna<Native>>;
/// Condition variable for [`CBoMcsMutex`].
pub type CBoMcsCondvar = Condvar<mutex::stacked::CBoMcs<Native>>;
/// Condition variable for [`CTktMcsMutex`].
pub type CTktMcsCondvar = Condvar<mutex::stacked::CTktMcs<Native>>;
/// Condition variable for [`HmcsMutex`].
pub type HmcsCondvar = Condvar<mutex::stacked::Hmcs<Native>>;
/// Condition variable for [`ClofMutex`].
pub type ClofCondvar = Condvar<mutex::stacked::Clof<Native>>;
/// Condition variable for [`TicketBackoffMutex`].
pub type TicketBackoffCondvar = Condvar<mutex::ticket::RawTicketBackoff<Native>>;
/// Condition variable for [`TwaMutex`].
pub type TwaCondvar = Condvar<mutex::twa::RawTwa<Native>>;
/// Condition variable for [`K42Mutex`].
pub type K42Condvar = Condvar<mutex::k42::RawK42<Native>>;
/// Condition variable for [`QspinlockMutex`].
pub type QspinlockCondvar = Condvar<mutex::qspinlock::RawQspinlock<Native>>;
/// Condition variable for [`ReciprocatingMutex`].
pub type ReciprocatingCondvar = Condvar<mutex::reciprocating::RawReciprocating<Native>>;
/// Condition variable for [`McsTpMutex`].
pub type McsTpCondvar = Condvar<mutex::mcs_tp::RawMcsTp<Native>>;
/// Condition variable for [`hemlock`](mutex::hemlock).
pub type HemlockCondvar = Condvar<mutex::hemlock::RawHemlock<Native>>;
/// Condition variable for [`HclhMutex`].
pub type HclhCondvar = Condvar<mutex::hclh::RawHclh<Native>>;
/// Condition variable for [`FissileMutex`].
pub type FissileCondvar = Condvar<mutex::fissile::RawFissile<Native>>;
/// Condition variable for [`McsParkMutex`].
pub type McsParkCondvar = Condvar<mutex::mcs_park::RawMcsPark<Native>>;
/// Condition variable for [`MalthusianMutex`].
pub type MalthusianCondvar = Condvar<mutex::malthusian::RawMalthusian<Native>>;
/// Condition variable for [`MutexeeMutex`].
pub type MutexeeCondvar = Condvar<mutex::mutexee::RawMutexee<Native>>;
/// Condition variable for [`HybridMutex`].
pub type HybridCondvar = Condvar<mutex::hybrid::RawHybrid<Native>>;
/// Condition variable for [`CstMutex`].
pub type CstCondvar = Condvar<mutex::cst::RawCst<Native>>;
/// Condition variable for [`ShflSpinMutex`].
pub type ShflSpinCondvar = Condvar<mutex::shfl_spin::RawShflSpin<Native>>;
/// Condition variable for [`ShflMutex`].
pub type ShflCondvar = Condvar<mutex::shfl::RawShfl<Native>>;
