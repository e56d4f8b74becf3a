//! The classes of locks that matter, and what the profile says about them.

use super::rules;
use crate::config::elf::{Elf, hex};
use crate::config::resolve::DEPTH;
use crate::config::{Config, Defaults, Entry, Module, Place};
use crate::profile::findings::ratio;
use crate::profile::model::{self, Class, Origin, Profile};
use crate::unseen;
use latchwork_console::machine;
use latchwork_console::names::GLIBC;
use latchwork_recording::reader::Recording;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A class is tuned if it takes this share of the threads' time, without the waits for the classes that take more: these waits may
/// end with other locks, and where one class makes the program five times as slow, all others have a fifth of their share.
pub const SHARE: f64 = 0.01;
/// Without the waits for such classes at least this part of the time counts: else what takes next to nothing were tuned.
const LEAST_LEFT: u64 = 10;
/// The most classes that are tuned: those that take most time.
pub const MOST: usize = 10;
/// What an acquisition without a wait counts, in nanoseconds: about one transfer of a cache line. The profile sees waits, but not
/// that a line moves; with it a lock that is read all the time, and never waited for, is tuned.
const TRANSFER: u64 = 50;
/// The most static objects of a class that a file names, one by one.
const MOST_OBJECTS: usize = 1000;
/// The most static objects of all classes: what the library can be told, 128 KiB, has room for so many with long names of locks.
const ALL_OBJECTS: usize = 3000;

/// The classes to tune.
pub struct Tuned {
    pub classes: Vec<Tunable>,
    /// How many classes the program has.
    pub all: usize,
    /// How many calls asked for its locks.
    pub calls: u64,
    /// Most threads of the program that lived at the same time.
    pub threads: usize,
    /// Whether the threads may be more than the processors.
    pub oversubscribed: bool,
    /// The files that the classes are in, by short names.
    pub modules: BTreeMap<String, Module>,
}

/// A class to tune.
pub struct Tunable {
    pub name: String,
    pub kind: model::Kind,
    pub features: Features,
    /// The locks to try, the first of which is glibc's.
    pub candidates: Vec<String>,
    objects: Vec<Place>,
    from: Vec<Vec<Place>>,
}

/// What decides which locks are tried.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Of the threads' time, without what they waited for work.
    pub share: f64,
    pub acquisitions: u64,
    /// Share of the calls that waited; of those that got the lock, and those that gave up at a deadline.
    pub contended: f64,
    /// Share of the acquisitions for reading.
    pub reads: f64,
    pub hold_ns: u64,
    pub hold_p99_ns: u64,
    /// Share of the time in which the lock is held that lies in long sections: a holder sleeps, mostly.
    pub long_holds: f64,
    /// Most threads that waited at once.
    pub waiters: u64,
    /// `trylock` calls that failed, for each acquisition.
    pub failed_tries: f64,
    /// Whether threads wait for conditions with it.
    pub has_conditions: bool,
}

impl Features {
    fn new(class: &Class, time_ns: u64) -> Self {
        Self {
            share: ratio(taken_ns(class), time_ns).min(1.0),
            acquisitions: class.acquisitions,
            contended: ratio(class.contended, class.calls()),
            reads: ratio(class.reads, class.acquisitions),
            hold_ns: class.holds.mean_ns(),
            hold_p99_ns: class.holds.quantile_ns(0.99),
            long_holds: long_holds(&class.holds),
            waiters: class.waiters_max,
            failed_tries: ratio(class.failed_tries, class.acquisitions),
            has_conditions: class.reacquires > 0,
        }
    }

    /// A line for people.
    pub fn text(&self) -> String {
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        let mut text = format!(
            "{} of the threads' time, {} acquisitions, {} waited, at most {} at once; held {:.1} us (99%: {:.1} us)",
            percent(self.share),
            self.acquisitions,
            percent(self.contended),
            self.waiters,
            self.hold_ns as f64 / 1e3,
            self.hold_p99_ns as f64 / 1e3
        );
        if self.long_holds > 0.01 && self.hold_ns < rules::LONG {
            text +=
                &format!("; {} of that in sections over {} us", percent(self.long_holds), rules::LONG / 1000);
        }
        if self.reads > 0.0 {
            text += &format!("; {:.1}% reads", self.reads * 100.0);
        }
        if self.has_conditions {
            text += "; with condition variables";
        }
        text
    }
}

impl Tuned {
    /// From the profile, and the recordings that it was made of.
    pub fn new(profile: &Profile, recordings: &[Recording]) -> Self {
        let threads = most_at_once(recordings);
        let oversubscribed = threads > machine::cpus();
        let idle: u64 = profile.threads.iter().map(|thread| thread.idle_ns).sum();
        let time_ns = profile.lifetime_ns().saturating_sub(idle);
        let mut files = Files::default();
        let mut classes: Vec<&Class> = profile
            .locks
            .iter()
            .filter(|class| class.kind != model::Kind::Spin && !class.origins.is_empty())
            .collect();
        classes.sort_by_key(|class| Reverse(taken_ns(class)));
        let taken: Vec<(u64, u64)> = classes.iter().map(|class| (taken_ns(class), class.lost_ns())).collect();
        classes.truncate(worth_tuning(&taken, time_ns));
        let tunable = |class: &Class| {
            let features = Features::new(class, time_ns);
            let candidates = rules::candidates(class.kind, &features, threads, oversubscribed);
            let (objects, from) = files.places(&class.origins);
            Tunable { name: class.name.clone(), kind: class.kind, features, candidates, objects, from }
        };
        let mut classes: Vec<Tunable> = classes.into_iter().map(tunable).collect();
        let most = most_objects(&classes.iter().map(|class| class.objects.len()).collect::<Vec<_>>());
        classes.iter_mut().for_each(|class| class.objects.truncate(most));
        let (all, calls) = (profile.locks.len(), unseen::calls(profile));
        Self { classes, all, calls, threads, oversubscribed, modules: files.modules }
    }

    /// Leaves out the classes that no rule would find again in the files of today, and returns their names. Each trial of them
    /// would be one of the same locks.
    pub fn leave_out_unfit(&mut self, program: &Path) -> Result<Vec<String>, String> {
        let locks = vec![GLIBC.to_owned(); self.classes.len()];
        let unfit = self.config(Defaults::default(), &locks).resolve(program)?.unfit;
        Ok(unfit.into_iter().rev().map(|number| self.classes.remove(number).name).collect())
    }

    /// The file with this lock for each class.
    pub fn config(&self, default: Defaults, locks: &[String]) -> Config {
        let here = machine::Machine::here();
        let here = crate::config::Machine { processor: here.processor, cpus: here.cpus };
        let mut config = Config::new(here, default);
        for (class, lock) in self.classes.iter().zip(locks) {
            config.lock.push(Entry {
                name: class.name.clone(),
                kind: class.kind.key().into(),
                lock: lock.clone(),
                objects: class.objects.clone(),
                from: class.from.clone(),
            });
        }
        let places = |entry: &Entry| {
            entry.objects.iter().chain(entry.from.iter().flatten()).cloned().collect::<Vec<_>>()
        };
        let used: Vec<Place> = config.lock.iter().flat_map(places).collect();
        config.module = self.modules.clone();
        config.module.retain(|name, _| used.iter().any(|place| place.module == *name));
        config
    }
}

/// The threads' time that a class takes.
fn taken_ns(class: &Class) -> u64 {
    class.lost_ns().saturating_add(class.acquisitions.saturating_mul(TRANSFER))
}

/// How many classes are tuned, of classes that take so much of the threads' time, the longest first, and of that so much in waits.
fn worth_tuning(classes: &[(u64, u64)], time_ns: u64) -> usize {
    let mut left = time_ns;
    let is_worth = |(taken, waited): &&(u64, u64)| {
        let worth = *taken as f64 >= SHARE * left as f64 && *taken > 0;
        left = left.saturating_sub(*waited).max(time_ns / LEAST_LEFT);
        worth
    };
    classes.iter().take(MOST).take_while(is_worth).count()
}

/// The share of the time in which a lock is held that lies in sections of more than [`rules::LONG`]. A section counts with the middle
/// of its bucket.
fn long_holds(holds: &model::Lengths) -> f64 {
    let time = |least: u64| -> f64 {
        let long = holds.buckets.iter().filter(|bucket| bucket.start >= least);
        long.map(|bucket| bucket.start.midpoint(bucket.end) as f64 * bucket.count as f64).sum()
    };
    time(rules::LONG) / time(0).max(1.0)
}

/// Most threads that lived at the same time, in all processes together.
fn most_at_once(recordings: &[Recording]) -> usize {
    let threads = recordings.iter().flat_map(|recording| &recording.threads);
    let mut events: Vec<(u64, i64)> = threads
        .flat_map(|thread| [(thread.started, 1), (thread.ended.max(thread.started + 1), -1)])
        .collect();
    events.sort_unstable();
    let (mut now, mut most) = (0_i64, 0);
    for (_, change) in events {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

/// The files of the program that classes are in.
#[derive(Default)]
struct Files {
    modules: BTreeMap<String, Module>,
    elves: BTreeMap<PathBuf, (String, Option<Elf>)>,
}

impl Files {
    /// The places of a class: static objects, and sites of calls.
    fn places(&mut self, origins: &[Origin]) -> (Vec<Place>, Vec<Vec<Place>>) {
        let (mut objects, mut from) = (Vec::new(), Vec::new());
        for origin in origins {
            match origin {
                Origin::Static(place) => objects.push(self.place(place)),
                Origin::Calls(calls) => {
                    let frames: Vec<Place> = calls.iter().take(DEPTH).map(|call| self.place(call)).collect();
                    if !from.contains(&frames) {
                        from.push(frames);
                    }
                }
            }
        }
        objects.sort_by_key(|place| (place.module.clone(), place.address));
        objects.dedup();
        (objects, from)
    }

    fn place(&mut self, place: &model::Place) -> Place {
        if !self.elves.contains_key(&place.module) {
            let elf = Elf::open(&place.module).ok();
            let id = if place.build_id.is_empty() {
                elf.as_ref().map_or_else(String::new, |elf| elf.id.clone())
            } else {
                hex(&place.build_id)
            };
            let name = self.short_name(&place.module);
            self.modules.insert(name.clone(), Module { path: place.module.clone(), build_id: id.clone() });
            let elf = elf.filter(|elf| elf.id == id);
            self.elves.insert(place.module.clone(), (name, elf));
        }
        let (name, elf) = &self.elves[&place.module];
        let symbol = elf.as_ref().and_then(|elf| elf.symbol(place.address));
        Place { module: name.clone(), address: place.address, symbol }
    }

    /// A name that can stand in `[module.NAME]`, and that no other file has.
    fn short_name(&self, path: &Path) -> String {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = file.split(".so").next().unwrap_or(&file);
        let plain = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
        let base: String = stem.chars().map(plain).collect();
        let names = std::iter::once(base.clone()).chain((2..).map(|number| format!("{base}-{number}")));
        names.into_iter().find(|name| !self.modules.contains_key(name)).expect("one is free")
    }
}

/// How many static objects of each class a file names, of classes that have so many.
fn most_objects(classes: &[usize]) -> usize {
    let fits = |most: &usize| classes.iter().map(|objects| objects.min(most)).sum::<usize>() <= ALL_OBJECTS;
    (1..=MOST_OBJECTS).rev().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_classes_share_the_room() {
        for (classes, most) in [
            (&[][..], MOST_OBJECTS),
            (&[5, 2000], MOST_OBJECTS),
            (&[1200; 8], 375),
            (&[1200, 1200, 1200, 600, 10], 796),
        ] {
            assert_eq!(most_objects(classes), most, "{classes:?}");
        }
    }

    #[test]
    fn one_slow_class_hides_no_other() {
        // Of a second the first class takes 80% in waits; the others have 1% of what is left.
        let others = [(4_000_000, 1_000_000), (3_000_000, 0), (1_000_000, 0)];
        let classes = [&[(850_000_000, 800_000_000)][..], &others].concat();
        assert_eq!(worth_tuning(&classes, 1_000_000_000), 3);
        assert_eq!(worth_tuning(&others, 1_000_000_000), 0);
        assert_eq!(worth_tuning(&[(999, 999), (2, 2), (1, 0), (0, 0)], 1000), 3);
        assert_eq!(worth_tuning(&[(999, 999), (9, 0)], 100_000), 0);
        assert_eq!(worth_tuning(&[(9, 0); 20], 100), MOST);
        assert_eq!(worth_tuning(&[(0, 0)], 0), 0);
    }

    use latchwork_recording::reader::Thread;

    #[test]
    fn threads_count_while_they_live() {
        // A thread may compute for long after its last call.
        let thread = |started, ended| Thread { started, seen: started, ended, ..Thread::default() };
        let one = Recording { threads: vec![thread(0, 10), thread(5, 20)], ..Recording::default() };
        let two = Recording { threads: vec![thread(10, 30), thread(12, 14)], ..Recording::default() };
        assert_eq!(most_at_once(&[one, two]), 3);
        assert_eq!(most_at_once(&[]), 0);
    }
}
