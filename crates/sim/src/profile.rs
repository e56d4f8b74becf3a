//! Machine profiles: what a machine looks like and what each thing costs on it.
//!
//! A profile is a small TOML file in which every number carries its source, so that a reader sees
//! which are measured, which are looked up and which are guesses:
//!
//! ```toml
//! hop = { value = 107, source = "looked up: Intel MLC, FD.io CSIT" }
//! ```
//!
//! Unless said, numbers are nanoseconds. The fields are explained at [`Lines`], [`Processor`] and
//! [`Kernel`]; the files are in `crates/sim/profiles`.

mod eevdf;
mod memory;

use crate::Error;
use crate::events::{NS, Time};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub use eevdf::Eevdf;
pub use memory::Memory;

/// Processors at most.
pub const MAX_CPUS: usize = 512;
/// Clusters at most of a machine whose caches have an end.
pub const MAX_CLUSTERS: usize = 64;
/// Threads at most.
pub const MAX_THREADS: usize = 1024;
/// The profile that `latchwork-lab calibrate` writes.
pub const THIS_MACHINE: &str = "this-machine";

const BUILT_IN: &[&str] = &[
    include_str!("../profiles/x5-2.toml"),
    include_str!("../profiles/x5-4.toml"),
    include_str!("../profiles/e7-8890v4.toml"),
    include_str!("../profiles/power4.toml"),
    include_str!("../profiles/epyc-7742.toml"),
    include_str!("../profiles/epyc-7r13.toml"),
    include_str!("../profiles/xeon-8375c.toml"),
    include_str!("../profiles/graviton3.toml"),
    include_str!("../profiles/emerald-rapids-2.toml"),
    include_str!("../profiles/zen3-2.toml"),
    include_str!("../profiles/zen4-2.toml"),
    include_str!("../profiles/sapphire-rapids-2.toml"),
    include_str!("../profiles/zen5-2.toml"),
];
/// What shorthands get their costs from.
const GENERIC: &str = include_str!("../profiles/generic.toml");

/// A number and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The number.
    pub value: f64,
    /// Where it comes from: "measured: ...", "looked up: ..." or "estimate: ...".
    pub source: String,
}

impl Number {
    /// Nanoseconds as the simulator counts time.
    pub(crate) fn time(&self) -> Time {
        (self.value * NS as f64).round() as Time
    }
}

/// How sockets are connected.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// Every socket is every other's neighbour.
    Full,
    /// Neighbours differ in one bit of their number; all others are two hops away (eight sockets
    /// without a switch: three neighbours and four beyond).
    Cube,
}

fn one() -> usize {
    1
}

fn full() -> Links {
    Links::Full
}

/// The machine's shape. Each socket is a NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Sockets.
    pub sockets: usize,
    /// Groups of cores in a socket that share a cache (core complexes).
    #[serde(default = "one")]
    pub clusters: usize,
    /// Cores in a group.
    pub cores: usize,
    /// Hardware threads of a core.
    #[serde(default = "one")]
    pub smt: usize,
    /// How sockets are connected.
    #[serde(default = "full")]
    pub links: Links,
}

/// What cache lines cost (the rules are in `lines.rs`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// A load that hits.
    pub hit: Number,
    /// A store, as the thread sees it: into the store buffer.
    pub store: Number,
    /// A locked instruction on a line that the core owns; added to the transfer if it does not.
    pub atomic: Number,
    /// The part of a locked instruction on an owned line for which it waits before it takes effect: other cores still see
    /// the old value (a share); 0 if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic_wait: Option<Number>,
    /// From the core's other hardware thread.
    pub sibling: Number,
    /// From another core of the cluster, unmodified.
    pub cluster: Number,
    /// ... modified.
    pub cluster_modified: Number,
    /// From another cluster of the socket. Needed with more than one cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<Number>,
    /// ... modified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_modified: Option<Number>,
    /// From a neighbouring socket. Needed with more than one socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<Number>,
    /// ... modified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_modified: Option<Number>,
    /// From a socket two hops away. Needed with `links = "cube"` and more than two sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub two_hops: Option<Number>,
    /// ... modified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub two_hops_modified: Option<Number>,
    /// From the node's own memory.
    pub dram_local: Number,
    /// From a neighbour's memory. Needed with more than one socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_remote: Option<Number>,
    /// The extra leg if the line's home is neither the requester's nor the supplier's node.
    pub third_party: Number,
    /// The extra leg if a line that comes from another node is homed at the requester's.
    pub home_at_reader: Number,
    /// For each further sharer that has to be invalidated.
    pub per_sharer: Number,
    /// How long a read of a shared line keeps other requests waiting, within a node.
    pub read_occupancy: Number,
    /// ... from another node, as a share of that hop.
    pub read_occupancy_remote: Number,
    /// The part of a transfer after which the request takes the line away from its owner (a share): the
    /// way there, as against the way back.
    pub request: Number,
    /// How much longer or shorter a transfer is than the others of its distance, at most (a share): parts of
    /// the cache and of the memory are nearer than others, and so is what else is on the way. Without it,
    /// threads that do the same fall into step.
    pub jitter: Number,
    /// The probability that a miss also fetches the other line of the 128-byte pair.
    pub pair_prefetch: Number,
    /// A load that hits in a row of loads from line to line, none of which needs the value of the one
    /// before.
    pub scan: Number,
    /// How many misses of such a row are under way at once (a number).
    pub scan_misses: Number,
}

/// What processors cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// How soon after a read that missed the thread has to write to the line, for the request for its
    /// ownership to have followed that for a copy: how far the processor executes ahead.
    pub ahead: Number,
    /// A full fence, when earlier stores are done; `lines.atomic` if it is not given, as on x86-64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Number>,
    /// How soon after a full fence a read has to miss, for its request to have been sent when the fence began;
    /// 0 if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub past_fence: Option<Number>,
    /// The barrier that makes an atomic instruction an acquisition; 0 if it is not given, as on x86-64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire: Option<Number>,
    /// The barrier before a release, if the thread has stored anything since its last barrier; 0 if it is not
    /// given, as on x86-64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Number>,
    /// One spin hint.
    pub pause: Number,
    /// Reading the clock.
    pub clock: Number,
    /// How much longer computing takes while the core's other hardware thread computes too (a
    /// factor).
    pub smt_slowdown: Number,
}

/// What the operating system costs (the rules are in `scheduler.rs`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// A system call that does nothing.
    pub syscall: Number,
    /// `FUTEX_WAIT` on a word that has another value; `syscall` if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub futex_wait: Option<Number>,
    /// `FUTEX_WAKE` if no thread sleeps; `syscall` if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub futex_wake: Option<Number>,
    /// Beyond that, to wake one thread, for the waker.
    pub wake: Number,
    /// From the wake to the woken thread's first instruction on an idle processor.
    pub wakeup: Number,
    /// ... on a processor that has been idle for less than 50 microseconds, and so has not gone to sleep; `wakeup` if it is
    /// not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeup_soon: Option<Number>,
    /// For so long after a thread has gone to sleep, its processor is still on the way to idleness; 0 if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub falls_asleep: Option<Number>,
    /// `wake` in that time; `wake` if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_early: Option<Number>,
    /// `wakeup` in that time; `wakeup_soon` if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeup_early: Option<Number>,
    /// From the wake to the woken thread's first instruction on a processor that runs another thread, if the woken one takes
    /// its place. Not given: a woken thread waits until the other one leaves the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeup_busy: Option<Number>,
    /// From one thread to the next on a processor.
    pub context_switch: Number,
    /// How long a thread may run while others wait for its processor.
    pub quantum: Number,
    /// `membarrier`, for the caller, without the interrupts.
    pub membarrier: Number,
    /// An interrupt, for the interrupted processor; the caller of `membarrier` waits for one, and
    /// a little (a tenth) for each further one.
    pub interrupt: Number,
    /// A processor takes timer ticks and other interrupts, and a virtual one is taken off its processor by the host: the median
    /// time between two such pauses. Not given: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_every: Option<Number>,
    /// How long the running thread stands still in such a pause (the median).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Number>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name that a user types.
    pub name: String,
    /// What it is, in one line.
    pub summary: String,
    /// Its shape.
    pub topology: Shape,
    /// What cache lines cost.
    pub lines: Lines,
    /// What processors cost.
    pub processor: Processor,
    /// What the operating system costs.
    pub kernel: Kernel,
    /// The rules of the operating system's scheduler, where they are EEVDF; those of `scheduler.rs` if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eevdf: Option<Eevdf>,
    /// How much caches hold and how fast memory is; unlimited if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

impl Profile {
    /// The profile that `machine` names: one of [`names`](Profile::names), `this-machine` (what
    /// `latchwork-lab calibrate` has written), a shorthand such as `8x24` or `2x18x2` (sockets x cores
    /// x hardware threads, with the costs of `profiles/generic.toml`), or a TOML file.
    pub fn find(machine: &str) -> Result<Profile, Error> {
        if let Some(profile) = built_in().find(|profile| profile.name.eq_ignore_ascii_case(machine)) {
            return Ok(profile);
        }
        if machine == THIS_MACHINE {
            let path = this_machine_path()
                .ok_or_else(|| Error::Usage("neither XDG_CONFIG_HOME nor HOME is set".into()))?;
            if !path.exists() {
                return Err(Error::Usage(
                    "this machine is not known yet: run `latchwork-lab calibrate` first".into(),
                ));
            }
            return Self::load(&path);
        }
        if let Some(shape) = shorthand(machine) {
            let mut profile = Self::parse(GENERIC, "generic")?;
            profile.name = machine.into();
            profile.topology = shape;
            profile.check().map_err(|why| Error::Usage(format!("machine {machine}: {why}")))?;
            return Ok(profile);
        }
        if machine.ends_with(".toml") || machine.contains('/') {
            return Self::load(Path::new(machine));
        }
        Err(Error::Usage(unknown(machine)))
    }

    /// The names of the built-in machines.
    pub fn names() -> Vec<String> {
        built_in().map(|profile| profile.name).collect()
    }

    /// The built-in machines.
    pub fn all() -> Vec<Profile> {
        built_in().collect()
    }

    fn load(path: &Path) -> Result<Profile, Error> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|why| Error::Usage(format!("cannot read the machine profile {name}: {why}")))?;
        Self::parse(&text, &name)
    }

    /// A profile from the text of a file called `name`.
    pub fn parse(text: &str, name: &str) -> Result<Profile, Error> {
        let profile: Profile = toml::from_str(text).map_err(|why| {
            let line = why.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let what = why.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Error::Usage(format!("{name}, line {line}: {what}"))
        })?;
        profile.check().map_err(|why| Error::Usage(format!("{name}: {why}")))?;
        Ok(profile)
    }

    /// As a TOML file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile consists of numbers and text")
    }

    /// How many processors it has.
    pub fn cpus(&self) -> usize {
        let shape = &self.topology;
        [shape.sockets, shape.clusters, shape.cores, shape.smt]
            .iter()
            .fold(1, |n: usize, m| n.saturating_mul(*m))
    }

    fn check(&self) -> Result<(), String> {
        let (shape, lines) = (&self.topology, &self.lines);
        match self.cpus() {
            0 => return Err("sockets, clusters, cores and smt must be at least 1".into()),
            cpus if cpus > MAX_CPUS => {
                return Err(format!("{cpus} CPUs: at most {MAX_CPUS} can be simulated"));
            }
            _ => (),
        }
        if shape.sockets > 64 {
            return Err(format!("{} sockets: at most 64 can be simulated", shape.sockets));
        }
        let needs = [
            (shape.clusters > 1, &lines.socket, "socket", "more than one cluster"),
            (shape.clusters > 1, &lines.socket_modified, "socket_modified", "more than one cluster"),
            (shape.sockets > 1, &lines.hop, "hop", "more than one socket"),
            (shape.sockets > 1, &lines.hop_modified, "hop_modified", "more than one socket"),
            (shape.sockets > 1, &lines.dram_remote, "dram_remote", "more than one socket"),
            (self.has_two_hops(), &lines.two_hops, "two_hops", "links = \"cube\""),
            (self.has_two_hops(), &lines.two_hops_modified, "two_hops_modified", "links = \"cube\""),
        ];
        for (needed, number, field, why) in needs {
            if needed && number.is_none() {
                return Err(format!("lines.{field} is missing, and needed with {why}"));
            }
        }
        for (field, number) in self.numbers() {
            // A second is more than anything here takes, and keeps sums far from overflowing.
            if !(0.0..=1e9).contains(&number.value) {
                return Err(format!("{field} is {}: it must be between 0 and 1e9", number.value));
            }
            if number.source.trim().is_empty() {
                return Err(format!("{field} has no source"));
            }
        }
        for (field, share) in [
            ("lines.request", &self.lines.request),
            ("lines.jitter", &self.lines.jitter),
            ("lines.pair_prefetch", &self.lines.pair_prefetch),
            ("lines.read_occupancy_remote", &self.lines.read_occupancy_remote),
            ("lines.atomic_wait", self.lines.atomic_wait.as_ref().unwrap_or(&self.lines.request)),
        ] {
            if share.value > 1.0 {
                return Err(format!("{field} is {}: it is a share, between 0 and 1", share.value));
            }
        }
        if let Some(memory) = &self.memory {
            memory.check(shape)?;
        }
        if let Some(eevdf) = &self.eevdf {
            eevdf.check()?;
        }
        if self.lines.scan_misses.value < 1.0 {
            return Err("lines.scan_misses is a number of at least 1".into());
        }
        if self.processor.smt_slowdown.value < 1.0 {
            return Err("processor.smt_slowdown is a factor of at least 1".into());
        }
        if self.kernel.pause.is_some() != self.kernel.pause_every.is_some() {
            return Err("kernel.pause and kernel.pause_every go together".into());
        }
        if self.kernel.pause_every.as_ref().is_some_and(|every| every.value < 1000.0) {
            return Err("kernel.pause_every must be at least 1000 (nanoseconds)".into());
        }
        if self.kernel.quantum.value < 1000.0 {
            return Err("kernel.quantum must be at least 1000 (nanoseconds)".into());
        }
        Ok(())
    }

    fn has_two_hops(&self) -> bool {
        self.topology.links == Links::Cube && self.topology.sockets > 2
    }

    /// Every number, with its name.
    pub fn numbers(&self) -> Vec<(&'static str, &Number)> {
        let (lines, processor, kernel) = (&self.lines, &self.processor, &self.kernel);
        let mut all = vec![
            ("lines.hit", &lines.hit),
            ("lines.store", &lines.store),
            ("lines.atomic", &lines.atomic),
            ("lines.sibling", &lines.sibling),
            ("lines.cluster", &lines.cluster),
            ("lines.cluster_modified", &lines.cluster_modified),
        ];
        let optional = [
            ("lines.atomic_wait", &lines.atomic_wait),
            ("lines.socket", &lines.socket),
            ("lines.socket_modified", &lines.socket_modified),
            ("lines.hop", &lines.hop),
            ("lines.hop_modified", &lines.hop_modified),
            ("lines.two_hops", &lines.two_hops),
            ("lines.two_hops_modified", &lines.two_hops_modified),
            ("lines.dram_remote", &lines.dram_remote),
            ("processor.fence", &processor.fence),
            ("processor.past_fence", &processor.past_fence),
            ("processor.acquire", &processor.acquire),
            ("processor.release", &processor.release),
            ("kernel.futex_wait", &kernel.futex_wait),
            ("kernel.futex_wake", &kernel.futex_wake),
            ("kernel.wakeup_soon", &kernel.wakeup_soon),
            ("kernel.falls_asleep", &kernel.falls_asleep),
            ("kernel.wake_early", &kernel.wake_early),
            ("kernel.wakeup_early", &kernel.wakeup_early),
            ("kernel.wakeup_busy", &kernel.wakeup_busy),
            ("kernel.pause_every", &kernel.pause_every),
            ("kernel.pause", &kernel.pause),
        ];
        all.extend(
            optional.iter().filter_map(|(name, number)| number.as_ref().map(|number| (*name, number))),
        );
        all.extend([
            ("lines.dram_local", &lines.dram_local),
            ("lines.third_party", &lines.third_party),
            ("lines.home_at_reader", &lines.home_at_reader),
            ("lines.per_sharer", &lines.per_sharer),
            ("lines.read_occupancy", &lines.read_occupancy),
            ("lines.read_occupancy_remote", &lines.read_occupancy_remote),
            ("lines.request", &lines.request),
            ("lines.jitter", &lines.jitter),
            ("lines.pair_prefetch", &lines.pair_prefetch),
            ("lines.scan", &lines.scan),
            ("lines.scan_misses", &lines.scan_misses),
            ("processor.ahead", &processor.ahead),
            ("processor.pause", &processor.pause),
            ("processor.clock", &processor.clock),
            ("processor.smt_slowdown", &processor.smt_slowdown),
            ("kernel.syscall", &kernel.syscall),
            ("kernel.wake", &kernel.wake),
            ("kernel.wakeup", &kernel.wakeup),
            ("kernel.context_switch", &kernel.context_switch),
            ("kernel.quantum", &kernel.quantum),
            ("kernel.membarrier", &kernel.membarrier),
            ("kernel.interrupt", &kernel.interrupt),
        ]);
        all.extend(self.eevdf.iter().flat_map(Eevdf::numbers));
        all.extend(self.memory.iter().flat_map(Memory::numbers));
        all
    }
}

fn built_in() -> impl Iterator<Item = Profile> {
    BUILT_IN.iter().map(|text| Profile::parse(text, "built-in profile").expect("a test parses them all"))
}

/// Where `latchwork-lab calibrate` puts this machine's profile.
pub fn this_machine_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("latchwork").join("this-machine.toml"))
}

/// `8x24` or `2x18x2`.
fn shorthand(text: &str) -> Option<Shape> {
    let numbers: Vec<usize> = text.split('x').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let (sockets, cores, smt) = match numbers[..] {
        [sockets, cores] => (sockets, cores, 1),
        [sockets, cores, smt] => (sockets, cores, smt),
        _ => return None,
    };
    let links = if sockets <= 4 { Links::Full } else { Links::Cube };
    Some(Shape { sockets, clusters: 1, cores, smt, links })
}

fn unknown(machine: &str) -> String {
    let mut names = Profile::names();
    names.push(THIS_MACHINE.into());
    let typed = machine.to_lowercase();
    let distance = |name: &String| strsim::damerau_levenshtein(&typed, name);
    let near = names.iter().find(|name| typed.len() > 1 && name.starts_with(&typed)).or_else(|| {
        let nearest = names.iter().min_by_key(|name| distance(name));
        nearest.filter(|name| distance(name) * 2 < name.len())
    });
    let hint = near.map_or(String::new(), |name| format!(" (did you mean {name}?)"));
    format!(
        "unknown machine {machine}{hint}: known are {}, a shorthand such as 8x24 (sockets x cores), or a .toml file",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
