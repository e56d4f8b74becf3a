//! Every lock of the registry, as a table of functions with a name of its own. Generated: LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-capi --test registered
#![allow(non_upper_case_globals, reason = "they have the names of C")]

use crate::locks::{MutexOps, RwLockOps};
use latchwork::machine::Native;

#[unsafe(no_mangle)]
static lw_tas_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::tas::RawTas<Native>>(c"tas");
#[unsafe(no_mangle)]
static lw_ttas_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::ttas::RawTtas<Native>>(c"ttas");
#[unsafe(no_mangle)]
static lw_ticket_ops: MutexOps = MutexOps::fair::<latchwork::locks::mutex::ticket::RawTicket<Native>>(c"ticket");
#[unsafe(no_mangle)]
static lw_ticket_backoff_ops: MutexOps = MutexOps::fair::<latchwork::locks::mutex::ticket::RawTicket<Native, true>>(c"ticket-backoff");
#[unsafe(no_mangle)]
static lw_twa_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::twa::RawTwa<Native>>(c"twa");
#[unsafe(no_mangle)]
static lw_mcs_ops: MutexOps = MutexOps::fair::<latchwork::locks::mutex::mcs::RawMcs<Native>>(c"mcs");
#[unsafe(no_mangle)]
static lw_clh_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::clh::RawClh<Native>>(c"clh");
#[unsafe(no_mangle)]
static lw_k42_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::k42::RawK42<Native>>(c"k42");
#[unsafe(no_mangle)]
static lw_hemlock_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::hemlock::RawHemlock<Native>>(c"hemlock");
#[unsafe(no_mangle)]
static lw_qspinlock_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::qspinlock::RawQspinlock<Native>>(c"qspinlock");
#[unsafe(no_mangle)]
static lw_reciprocating_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::reciprocating::RawReciprocating<Native>>(c"reciprocating");
#[unsafe(no_mangle)]
static lw_mcs_tp_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::mcs_tp::RawMcsTp<Native>>(c"mcs-tp");
#[unsafe(no_mangle)]
static lw_hclh_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::hclh::RawHclh<Native>>(c"hclh");
#[unsafe(no_mangle)]
static lw_c_bo_mcs_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::stacked::Stacked<latchwork::locks::mutex::ttas::RawTtas<Native>, latchwork::locks::mutex::mcs::RawMcs<Native>, latchwork::locks::mutex::stacked::CBoMcsName>>(c"c-bo-mcs");
#[unsafe(no_mangle)]
static lw_c_tkt_mcs_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::stacked::Stacked<latchwork::locks::mutex::ticket::RawTicket<Native>, latchwork::locks::mutex::mcs::RawMcs<Native>, latchwork::locks::mutex::stacked::CTktMcsName>>(c"c-tkt-mcs");
#[unsafe(no_mangle)]
static lw_hmcs_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::stacked::Stacked<latchwork::locks::mutex::mcs::RawMcs<Native>, latchwork::locks::mutex::mcs::RawMcs<Native>, latchwork::locks::mutex::stacked::HmcsName>>(c"hmcs");
#[unsafe(no_mangle)]
static lw_clof_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::stacked::Stacked<latchwork::locks::mutex::stacked::Stacked<latchwork::locks::mutex::ticket::RawTicket<Native>, latchwork::locks::mutex::mcs::RawMcs<Native>, latchwork::locks::mutex::stacked::PairOfNodes>, latchwork::locks::mutex::clh::RawClh<Native>, latchwork::locks::mutex::stacked::ClofName>>(c"clof");
#[unsafe(no_mangle)]
static lw_cna_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::cna::RawCna<Native>>(c"cna");
#[unsafe(no_mangle)]
static lw_fissile_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::fissile::RawFissile<Native>>(c"fissile");
#[unsafe(no_mangle)]
static lw_mcs_park_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::mcs_park::RawMcsPark<Native>>(c"mcs-park");
#[unsafe(no_mangle)]
static lw_malthusian_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::malthusian::RawMalthusian<Native>>(c"malthusian");
#[unsafe(no_mangle)]
static lw_mutexee_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::mutexee::RawMutexee<Native>>(c"mutexee");
#[unsafe(no_mangle)]
static lw_hybrid_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::hybrid::RawHybrid<Native>>(c"hybrid");
#[unsafe(no_mangle)]
static lw_cst_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::cst::RawCst<Native>>(c"cst");
#[unsafe(no_mangle)]
static lw_shfl_spin_ops: MutexOps = MutexOps::of::<latchwork::locks::mutex::shfl_spin::RawShflSpin<Native>>(c"shfl-spin");
#[unsafe(no_mangle)]
static lw_shfl_ops: MutexOps = MutexOps::fair::<latchwork::locks::mutex::shfl::RawShfl<Native>>(c"shfl");
#[unsafe(no_mangle)]
static lw_pf_t_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::pf_t::RawPfT<Native>>(c"pf-t");
#[unsafe(no_mangle)]
static lw_pf_q_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::pf_q::RawPfQ<Native>>(c"pf-q");
#[unsafe(no_mangle)]
static lw_shfl_rw_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::shfl_rw::RawShflRw<Native>>(c"shfl-rw");
#[unsafe(no_mangle)]
static lw_mcs_rw_ops: RwLockOps = RwLockOps::of::<latchwork::locks::rwlock::mcs_rw::RawMcsRw<Native>>(c"mcs-rw");
#[unsafe(no_mangle)]
static lw_percpu_ops: RwLockOps = RwLockOps::downgradable::<latchwork::locks::rwlock::percpu::RawPerCpu<Native, 31>>(c"percpu");
#[unsafe(no_mangle)]
static lw_cohort_rw_ops: RwLockOps = RwLockOps::downgradable::<latchwork::locks::rwlock::cohort_rw::RawCohortRw<Native>>(c"cohort-rw");
#[unsafe(no_mangle)]
static lw_rwsem_ops: RwLockOps = RwLockOps::downgradable::<latchwork::locks::rwlock::rwsem::RawRwSem<Native>>(c"rwsem");
#[unsafe(no_mangle)]
static lw_glibc_rw_model_ops: RwLockOps = RwLockOps::of::<latchwork::locks::rwlock::glibc_rw::RawGlibcRw<Native>>(c"glibc-rw-model");
#[unsafe(no_mangle)]
static lw_bravo_glibc_rw_model_ops: RwLockOps = RwLockOps::of::<latchwork::locks::rwlock::bravo::RawBravo<Native, latchwork::locks::rwlock::glibc_rw::RawGlibcRw<Native>, latchwork::locks::rwlock::bravo::table::Table<latchwork::locks::rwlock::bravo::table::Anywhere>, latchwork::locks::rwlock::bravo::bias::Guard, latchwork::locks::rwlock::bravo::revoke::Passing>>(c"bravo-glibc-rw-model");
#[unsafe(no_mangle)]
static lw_bravo_2d_glibc_rw_model_ops: RwLockOps = RwLockOps::of::<latchwork::locks::rwlock::bravo::RawBravo<Native, latchwork::locks::rwlock::glibc_rw::RawGlibcRw<Native>, latchwork::locks::rwlock::bravo::publish::Owned, latchwork::locks::rwlock::bravo::bias::Adaptive, latchwork::locks::rwlock::bravo::revoke::Passing>>(c"bravo-2d-glibc-rw-model");
#[unsafe(no_mangle)]
static lw_bravo_pf_t_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::bravo::RawBravo<Native, latchwork::locks::rwlock::pf_t::RawPfT<Native>>>(c"bravo-pf-t");
#[unsafe(no_mangle)]
static lw_bravo_pf_q_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::bravo::RawBravo<Native, latchwork::locks::rwlock::pf_q::RawPfQ<Native>>>(c"bravo-pf-q");
#[unsafe(no_mangle)]
static lw_bravo_shfl_rw_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::bravo::RawBravo<Native, latchwork::locks::rwlock::shfl_rw::RawShflRw<Native>>>(c"bravo-shfl-rw");
#[unsafe(no_mangle)]
static lw_bravo_cpu_pf_q_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::bravo::RawBravo<Native, latchwork::locks::rwlock::pf_q::RawPfQ<Native>, latchwork::locks::rwlock::bravo::table::Table<latchwork::locks::rwlock::bravo::table::Column>>>(c"bravo-cpu-pf-q");
#[unsafe(no_mangle)]
static lw_bravo_2d_shfl_rw_ops: RwLockOps = RwLockOps::upgradable::<latchwork::locks::rwlock::bravo::RawBravo<Native, latchwork::locks::rwlock::shfl_rw::RawShflRw<Native>, latchwork::locks::rwlock::bravo::publish::Owned, latchwork::locks::rwlock::bravo::bias::Adaptive, latchwork::locks::rwlock::bravo::revoke::Passing>>(c"bravo-2d-shfl-rw");

/// The mutexes.
pub(crate) static MUTEXES: &[&MutexOps] = &[&lw_tas_ops, &lw_ttas_ops, &lw_ticket_ops, &lw_ticket_backoff_ops, &lw_twa_ops, &lw_mcs_ops, &lw_clh_ops, &lw_k42_ops, &lw_hemlock_ops, &lw_qspinlock_ops, &lw_reciprocating_ops, &lw_mcs_tp_ops, &lw_hclh_ops, &lw_c_bo_mcs_ops, &lw_c_tkt_mcs_ops, &lw_hmcs_ops, &lw_clof_ops, &lw_cna_ops, &lw_fissile_ops, &lw_mcs_park_ops, &lw_malthusian_ops, &lw_mutexee_ops, &lw_hybrid_ops, &lw_cst_ops, &lw_shfl_spin_ops, &lw_shfl_ops];
/// The reader-writer locks.
pub(crate) static RWLOCKS: &[&RwLockOps] = &[&lw_pf_t_ops, &lw_pf_q_ops, &lw_shfl_rw_ops, &lw_mcs_rw_ops, &lw_percpu_ops, &lw_cohort_rw_ops, &lw_rwsem_ops, &lw_glibc_rw_model_ops, &lw_bravo_glibc_rw_model_ops, &lw_bravo_2d_glibc_rw_model_ops, &lw_bravo_pf_t_ops, &lw_bravo_pf_q_ops, &lw_bravo_shfl_rw_ops, &lw_bravo_cpu_pf_q_ops, &lw_bravo_2d_shfl_rw_ops];
