//! The names that users of the crate type.

use crate::machine::Native;
use crate::mutex::{self, Api};
use crate::rwlock;

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
/// Mutex over [`shfl_spin`](mutex::shfl_spin).
pub type ShflSpinMutex<T> = lock_api::Mutex<Api<mutex::shfl_spin::RawShflSpin<Native>>, T>;
/// Mutex over [`shfl`](mutex::shfl): the one to take unless you measured something else.
pub type ShflMutex<T> = lock_api::Mutex<Api<mutex::shfl::RawShfl<Native>>, T>;

/// Reader-writer lock over [`pf_t`](rwlock::pf_t).
pub type PfTRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::pf_t::RawPfT<Native>>, T>;
/// Reader-writer lock over [`pf_q`](rwlock::pf_q).
pub type PfQRwLock<T> = lock_api::RwLock<rwlock::Api<rwlock::pf_q::RawPfQ<Native>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`pf_t`](rwlock::pf_t).
pub type BravoPfTRwLock<T> =
    lock_api::RwLock<rwlock::Api<rwlock::bravo::RawBravo<Native, rwlock::pf_t::RawPfT<Native>>>, T>;
/// Reader-writer lock over [`bravo`](rwlock::bravo) over [`pf_q`](rwlock::pf_q): the one to take
/// unless you measured something else.
pub type BravoRwLock<T> =
    lock_api::RwLock<rwlock::Api<rwlock::bravo::RawBravo<Native, rwlock::pf_q::RawPfQ<Native>>>, T>;
