//! The table of fixed size, under each strategy.

use crate::{Point, Subject};
use latchwork::locks::mutex::ttas::RawTtas;
use latchwork::locks::rwlock::pf_q::RawPfQ;
use latchwork::machine::Native;
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork_workloads::load::hashtable_strategies::HashtableStrategies;
use latchwork_workloads::native::{Options, Threads};
#[cfg(feature = "urcu")]
use latchwork_workloads::peers::lfht;
use latchwork_workloads::peers::reclamation::{Crossbeam, Haphazard, Seize};
use latchwork_workloads::tables::bucket_lock::BucketLocked;
use latchwork_workloads::tables::locked::{Global, Ideal, Locked, PerBucket};
use latchwork_workloads::tables::michael::Michael;
use latchwork_workloads::tables::readers::{Reference, Section};
use latchwork_workloads::tables::type_stable::TypeStable;
use latchwork_workloads::tables::{Table, TableWorkload};
use latchwork_workloads::topology::Placement;
use latchwork_workloads::workload::Settings;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is measured; the first is what the others are compared with.
pub static SUBJECTS: &[Subject] = &[
    Subject::new("ideal", rate::<Locked<Ideal<Native>>>),
    Subject::new("qsbr-l", rate::<BucketLocked<QsbrDomain<Native>, Section>>),
    Subject::new("qsbr-nbs", rate::<Michael<QsbrDomain<Native>, Section>>),
    Subject::new("rcu-l", rate::<BucketLocked<RcuDomain<Native>, Section>>),
    Subject::new("rcu-nbs", rate::<Michael<RcuDomain<Native>, Section>>),
    Subject::new("epoch-nbs", rate::<Michael<EpochDomain<Native>, Section>>),
    Subject::new("hpbr-l", rate::<BucketLocked<HazardDomain<Native>, Reference>>),
    Subject::new("hpbr-nbs", rate::<Michael<HazardDomain<Native>, Reference>>),
    Subject::new("counted-l", rate::<BucketLocked<CountedDomain<Native>, Reference>>),
    Subject::new("type-stable", rate::<TypeStable<Native>>),
    Subject::new("crossbeam-epoch", rate::<BucketLocked<Crossbeam, Section>>),
    Subject::new("crossbeam-epoch, nbs", rate::<Michael<Crossbeam, Section>>),
    Subject::new("seize", rate::<BucketLocked<Seize, Section>>),
    Subject::new("haphazard", rate::<BucketLocked<Haphazard, Reference>>),
    #[cfg(feature = "urcu")]
    Subject::new("liburcu-memb, cds_lfht", rate::<lfht::Lfht<lfht::Memb>>),
    #[cfg(feature = "urcu")]
    Subject::new("liburcu-qsbr, cds_lfht", rate::<lfht::Lfht<lfht::Qsbr>>),
    Subject::new("ttas in each bucket", rate::<Locked<PerBucket<RawTtas<Native>>>>),
    Subject::new("one pf-q", rate::<Locked<Global<RawPfQ<Native>>>>),
];

fn stuck(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(1)
}

/// Runs the workload.
fn rate<T: Table<Machine = Native>>(point: &Point, seconds: f64) -> Result<f64, String> {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let measured = Duration::from_secs_f64(seconds);
    let seed = SEED.fetch_add(1, Relaxed);
    let options = Options { measured, warm_up: measured / 4, placement: Placement::Free, seed };
    let info = HashtableStrategies::INFO;
    let mut settings = Settings::new(info.parameters);
    let (buckets, budget) = ((point.keys / 2).to_string(), point.budget.to_string());
    for (name, value) in [("updates", point.updates), ("buckets", &buckets), ("budget", &budget)] {
        let parameter = info.parameters.iter().find(|parameter| parameter.name == name);
        settings.set(parameter.expect("a parameter of the workload"), value)?;
    }
    let workload = HashtableStrategies::new(&settings);
    Ok(workload.run::<Threads, T>(&Threads::new(options, stuck), point.threads)?.rate())
}
