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
    Subject { name: "ideal", rate: rate::<Locked<Ideal<Native>>> },
    Subject { name: "qsbr-l", rate: rate::<BucketLocked<QsbrDomain<Native>, Section>> },
    Subject { name: "qsbr-nbs", rate: rate::<Michael<QsbrDomain<Native>, Section>> },
    Subject { name: "rcu-l", rate: rate::<BucketLocked<RcuDomain<Native>, Section>> },
    Subject { name: "rcu-nbs", rate: rate::<Michael<RcuDomain<Native>, Section>> },
    Subject { name: "epoch-nbs", rate: rate::<Michael<EpochDomain<Native>, Section>> },
    Subject { name: "hpbr-l", rate: rate::<BucketLocked<HazardDomain<Native>, Reference>> },
    Subject { name: "hpbr-nbs", rate: rate::<Michael<HazardDomain<Native>, Reference>> },
    Subject { name: "counted-l", rate: rate::<BucketLocked<CountedDomain<Native>, Reference>> },
    Subject { name: "type-stable", rate: rate::<TypeStable<Native>> },
    Subject { name: "crossbeam-epoch", rate: rate::<BucketLocked<Crossbeam, Section>> },
    Subject { name: "crossbeam-epoch, nbs", rate: rate::<Michael<Crossbeam, Section>> },
    Subject { name: "seize", rate: rate::<BucketLocked<Seize, Section>> },
    Subject { name: "haphazard", rate: rate::<BucketLocked<Haphazard, Reference>> },
    #[cfg(feature = "urcu")]
    Subject { name: "liburcu-memb, cds_lfht", rate: rate::<lfht::Lfht<lfht::Memb>> },
    #[cfg(feature = "urcu")]
    Subject { name: "liburcu-qsbr, cds_lfht", rate: rate::<lfht::Lfht<lfht::Qsbr>> },
    Subject { name: "ttas in each bucket", rate: rate::<Locked<PerBucket<RawTtas<Native>>>> },
    Subject { name: "one pf-q", rate: rate::<Locked<Global<RawPfQ<Native>>>> },
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
