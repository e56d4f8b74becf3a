//! `latchwork-lab calibrate`: what this machine's cache lines, instructions and system calls cost, as a
//! profile for the simulator.
//!
//! What cannot be measured here (on one CPU, the transfer of a line; anywhere, how invalidations
//! overlap) is taken from the generic profile, and its source says so.

mod capacity;
mod kernel;
pub mod memory;
pub mod places;
mod sample;
pub mod steady;
pub mod threads;

use crate::measure::progress;
use clap::Args;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::Machine;
use latchwork_console::output;
use latchwork_console::signals::Signals;
use latchwork_console::table;
use latchwork_sim::{Eevdf, MAX_CLUSTERS, Memory, Number, Profile, THIS_MACHINE, this_machine_path};
use places::{Distance, Places};
use sample::{Sample, round};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `--help` ends with.
pub const HELP: &str = "\
The calibration takes about 10 seconds. Other programs disturb it; the quartiles show how much.

Examples:
  latchwork-lab calibrate                then: latchwork-lab simulate NAME --machine this-machine
  latchwork-lab calibrate -o quiet.toml  then: latchwork-lab simulate NAME --machine ./quiet.toml
  latchwork-lab calibrate -o - | less    only look
  taskset -c 0 latchwork-lab calibrate -o -  of one CPU";

/// Options of `latchwork-lab calibrate`.
#[derive(Args)]
pub struct Options {
    /// Write the profile there; - is standard output [default: this-machine.toml in
    /// ~/.config/latchwork, which the simulator knows as `this-machine`]
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// Write every number with its quartiles to FILE (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One number of the profile.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    value: f64,
    measured: bool,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
}

/// Interrupts that must have been seen for a number.
const FEWEST: usize = 20;

/// The measurements, one after the other.
struct Calibration {
    places: Places,
    profile: Profile,
    samples: Vec<(&'static str, Sample)>,
}

type Step = fn(&mut Calibration);

const STEPS: [(&str, Step); 9] = [
    ("instructions", Calibration::instructions),
    ("memory", Calibration::memory),
    ("caches", Calibration::capacity),
    ("cache lines", Calibration::transfers),
    ("scans", Calibration::scans),
    ("system calls", Calibration::calls),
    ("wake-ups", Calibration::wakes),
    ("the scheduler", Calibration::scheduler),
    ("interrupts", Calibration::interrupts),
];

/// Measures and writes; the exit status.
pub fn calibrate(options: &Options) -> Result<i32> {
    let to_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if to_stdout(&options.output) && to_stdout(&options.json) {
        return Err(Failure::usage("--output - and --json - both want standard output"));
    }
    let path = match &options.output {
        Some(path) => path.clone(),
        None => default_path()?,
    };
    output::check("--output", &path)?;
    if let Some(path) = &options.json {
        output::check("--json", path)?;
    }
    let machine = Machine::here();
    let signals = Signals::watch()?;
    let mut calibration = Calibration::new(&machine)?;
    let bar = progress(STEPS.len());
    for (what, step) in STEPS {
        bar.set_message(format!("measuring {what}"));
        bar.tick();
        step(&mut calibration);
        if let Some(signal) = signals.take() {
            bar.finish_and_clear();
            return Ok(128 + signal); // nothing has been written
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let text = format!(
        "# Measured by latchwork-lab calibrate. Values are nanoseconds unless they are shares or factors.\n{}",
        calibration.profile.to_toml()
    );
    // The simulator must be able to read the profile: one that it refuses is a mistake of this command.
    Profile::parse(&text, "the measured profile").map_err(|error| Failure::new(error.to_string()))?;
    let lines = calibration.lines();
    if to_stdout(&options.output) {
        output::print(&text)?;
    } else {
        output::write("--output", &path, &text)?;
    }
    let json = || serde_json::to_string_pretty(&lines).expect("plain data") + "\n";
    match &options.json {
        Some(path) if path == Path::new("-") => output::print(&json())?,
        Some(path) => output::write("--json", path, &json())?,
        None => (),
    }
    if !to_stdout(&options.output) && !to_stdout(&options.json) {
        let name = if options.output.is_some() { path.display().to_string() } else { THIS_MACHINE.into() };
        output::print(&format!(
            "{}\nWritten to {}.\nSimulate it: latchwork-lab simulate WORKLOAD --machine {name}\n",
            table(&lines, &machine),
            path.display()
        ))?;
    }
    if machine.load_average > 0.5 * machine.cpus as f64 {
        output::say(&format!(
            "latchwork-lab: the machine was busy (load average {}): the numbers may be too large",
            machine.load_average
        ));
    }
    Ok(0)
}

/// Calibrations until the machine stays the same during one.
const ATTEMPTS: usize = 4;

/// This machine's profile, measured now and not written anywhere, and what tells whether it is still the
/// same. `tick` hears what is being measured.
pub fn profile(mut tick: impl FnMut(&str)) -> Result<(Profile, steady::Probe)> {
    for attempt in 1.. {
        let probe = steady::Probe::new();
        let mut calibration = Calibration::new(&Machine::here())?;
        for (what, step) in STEPS {
            tick(what);
            step(&mut calibration);
        }
        if probe.same() || attempt == ATTEMPTS {
            return Ok((calibration.profile, probe));
        }
    }
    unreachable!("there is a last attempt")
}

fn default_path() -> Result<PathBuf> {
    let path = this_machine_path().ok_or_else(|| {
        Failure::usage("neither XDG_CONFIG_HOME nor HOME is set: say where to write with --output FILE.toml")
    })?;
    let directory = path.parent().expect("it is in a directory");
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::usage(format!("cannot make {}: {error}; use --output", directory.display()))
    })?;
    Ok(path)
}

fn table(lines: &[Line], machine: &Machine) -> String {
    let mut table = table::new(["", "value", "quartiles", "source"]);
    for line in lines {
        let quartiles = line.sample.as_ref().map_or(String::new(), |sample| {
            format!("{} .. {}", round(sample.quartiles.0), round(sample.quartiles.1))
        });
        let source = line.source.split(';').next().unwrap_or_default().to_owned();
        table.add_row([line.name.to_owned(), line.value.to_string(), quartiles, source]);
    }
    table::right(&mut table, [1]);
    format!("{}\n\n{}\n", machine.line(), table.trim_fmt())
}

impl Calibration {
    fn new(machine: &Machine) -> Result<Self> {
        Self::of(Places::here(), machine.line())
    }

    /// Of a machine with these CPUs. An error if the simulator cannot have as many.
    fn of(places: Places, summary: String) -> Result<Self> {
        let shape = places.shape();
        // Its numbers are what remains where nothing can be measured.
        let mut profile = Profile::find("1x1").map_err(|error| Failure::new(error.to_string()))?;
        profile.name = THIS_MACHINE.into();
        profile.summary = summary;
        if shape.sockets == 1 {
            (profile.lines.hop, profile.lines.hop_modified, profile.lines.dram_remote) = (None, None, None);
        }
        if shape.clusters > 1 {
            profile.lines.socket = Some(profile.lines.cluster.clone());
            profile.lines.socket_modified = Some(profile.lines.cluster_modified.clone());
        }
        (profile.lines.two_hops, profile.lines.two_hops_modified) = (None, None);
        if shape.sockets * shape.clusters > MAX_CLUSTERS {
            // The simulator does not know the end of so many caches.
            profile.memory = None;
        }
        profile.topology = shape;
        let mut calibration = Calibration { places, profile, samples: Vec::new() };
        calibration.adopt()?;
        Ok(calibration)
    }

    /// Marks everything as an estimate from the generic profile.
    fn adopt(&mut self) -> Result<()> {
        let text = self.profile.to_toml();
        let text = text.replace("source = \"estimate: ", "source = \"");
        let text = text.replace("source = \"", "source = \"estimate: not measured here; generic: ");
        self.profile =
            Profile::parse(&text, THIS_MACHINE).map_err(|error| Failure::new(error.to_string()))?;
        Ok(())
    }

    /// The CPU that measures.
    fn cpu(&self) -> usize {
        self.places.cpus[0].id
    }

    /// Another CPU, on another core if there is one.
    fn other(&self) -> Option<usize> {
        Some(self.places.nearest()?.1)
    }

    /// A measured number.
    fn number(&mut self, name: &'static str, sample: Sample, what: &str) -> Number {
        let number = Number { value: round(sample.median), source: sample.source(what) };
        self.samples.push((name, sample));
        number
    }

    fn lines(&self) -> Vec<Line> {
        let line = |(name, number): (&'static str, &Number)| Line {
            name,
            value: number.value,
            measured: number.source.starts_with("measured"),
            source: number.source.clone(),
            sample: self.samples.iter().find(|(of, _)| *of == name).map(|(_, sample)| sample.clone()),
        };
        self.profile.numbers().into_iter().map(line).collect()
    }

    fn instructions(&mut self) {
        let cpu = self.cpu();
        self.profile.lines.hit =
            self.number("lines.hit", memory::hit(cpu), "a load that hits, in a pointer chase");
        self.profile.lines.store =
            self.number("lines.store", memory::store(cpu), "a store, in a row of them");
        self.profile.lines.atomic =
            self.number("lines.atomic", memory::atomic(cpu), "an atomic addition to an owned line");
        self.profile.processor.pause = self.number("processor.pause", memory::pause(cpu), "a spin hint");
        self.profile.processor.clock = self.number("processor.clock", memory::clock(cpu), "clock_gettime");
        self.profile.lines.scan =
            self.number("lines.scan", memory::scan(cpu), "a load that hits, in a row from line to line");
        match self.places.pairs(Distance::Sibling, 1).first() {
            Some((one, other)) => {
                let sample = memory::smt_slowdown(*one, *other);
                self.profile.processor.smt_slowdown =
                    self.number("processor.smt_slowdown", sample, "a multiplication beside a busy sibling");
            }
            None => {
                self.profile.processor.smt_slowdown =
                    Number { value: 1.0, source: "measured: no core has two hardware threads".into() };
            }
        }
    }

    fn memory(&mut self) {
        let cpu = self.cpu();
        if let Some(values) = memory::memory(cpu, cpu) {
            self.profile.lines.dram_local =
                self.number("lines.dram_local", Sample::of(&values), "a load of a flushed line");
        }
        let values: Vec<f64> = self
            .places
            .pairs(Distance::Remote, 4)
            .into_iter()
            .filter_map(|(home, cpu)| memory::memory(home, cpu))
            .flatten()
            .collect();
        if !values.is_empty() {
            self.profile.lines.dram_remote = Some(self.number(
                "lines.dram_remote",
                Sample::of(&values),
                "a load of a flushed remote line",
            ));
        }
    }

    /// What is known of the caches. Memory and links have no limit: a few CPUs of a socket do not reach it.
    fn capacity(&mut self) {
        let cpu = self.cpu();
        let said = |value: usize, source: &str| Number { value: value as f64, source: source.into() };
        let known = "looked up: the kernel says so";
        if let (Some(private), Some(shared)) = (capacity::cache(cpu, 2), capacity::cache(cpu, 3)) {
            self.first_level(private.kib);
            let hit = capacity::shared_hit(cpu, private.kib);
            let dram = self.profile.lines.dram_local.value;
            let kib = capacity::shared(cpu, private.kib, shared.kib, hit.median, dram);
            let what = "a load in a chase through twice the private cache";
            let hit = self.number("memory.shared_hit", hit, what);
            self.set_memory(|memory| {
                memory.private = said(private.kib, known);
                memory.private_ways = said(private.ways, known);
                let source = format!(
                    "measured: a chase through more is nearer to memory than to this cache; the kernel says {} KiB",
                    shared.kib
                );
                memory.shared = said(kib, &source);
                memory.shared_ways = said(shared.ways, known);
                memory.shared_hit = hit;
            });
        }
        self.set_memory(|memory| (memory.bandwidth, memory.link) = (None, None));
    }

    /// The same of the first-level cache, above a private one of so many KiB.
    fn first_level(&mut self, private: usize) {
        let cpu = self.cpu();
        let Some(first) = capacity::cache(cpu, 1) else { return };
        let said = |value: usize| {
            Some(Number { value: value as f64, source: "looked up: the kernel says so".into() })
        };
        let what = "a load in a chase through four times the first-level cache";
        let hit = self.number("memory.private_hit", capacity::private_hit(cpu, first.kib, private), what);
        self.set_memory(|memory| {
            (memory.first, memory.first_ways) = (said(first.kib), said(first.ways));
            memory.private_hit = Some(hit);
        });
    }

    fn set_memory(&mut self, change: impl FnOnce(&mut Memory)) {
        if let Some(memory) = &mut self.profile.memory {
            change(memory);
        }
    }

    /// The transfer at one distance, over a few pairs and both directions.
    fn transfer(&self, distance: Distance, modified: bool) -> Option<Sample> {
        let pairs = self.places.pairs(distance, 4).into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
        let values: Vec<f64> =
            pairs.filter_map(|(from, to)| memory::transfer(from, to, modified)).flatten().collect();
        (!values.is_empty()).then(|| Sample::of(&values))
    }

    fn transfers(&mut self) {
        let clean = "a load of a line that another CPU has read";
        let modified = "a load of a line that another CPU has written";
        if let Some(sample) = self.transfer(Distance::Sibling, true) {
            self.profile.lines.sibling = self.number("lines.sibling", sample, modified);
        }
        if let Some(sample) = self.transfer(Distance::Cluster, true) {
            self.profile.lines.cluster_modified = self.number("lines.cluster_modified", sample, modified);
        }
        if let Some(sample) = self.transfer(Distance::Cluster, false) {
            self.profile.lines.cluster = self.number("lines.cluster", sample, clean);
        }
        if let Some(sample) = self.transfer(Distance::Socket, true) {
            self.profile.lines.socket_modified = Some(self.number("lines.socket_modified", sample, modified));
        }
        if let Some(sample) = self.transfer(Distance::Socket, false) {
            self.profile.lines.socket = Some(self.number("lines.socket", sample, clean));
        }
        if let Some(sample) = self.transfer(Distance::Remote, true) {
            self.profile.lines.hop_modified = Some(self.number("lines.hop_modified", sample, modified));
        }
        if let Some(sample) = self.transfer(Distance::Remote, false) {
            self.profile.lines.hop = Some(self.number("lines.hop", sample, clean));
        }
    }

    /// How many transfers a scan has under way at once.
    fn scans(&mut self) {
        let lines = &self.profile.lines;
        let within = (Distance::Cluster, Some(&lines.cluster_modified));
        let beyond = (Distance::Remote, lines.hop_modified.as_ref());
        let measured = [within, beyond].into_iter().find_map(|(distance, transfer)| {
            Some((*self.places.pairs(distance, 1).first()?, transfer?.value))
        });
        let Some(((from, to), transfer)) = measured else { return };
        let load = lines.scan.value;
        // At best one line costs as much as one load; at worst its whole transfer.
        let share = |time: &f64| (transfer / time.max(load)).max(1.0);
        let values: Vec<f64> = memory::scan_line(from, to, load).iter().map(share).collect();
        let what = "transfer of a line that another CPU has written, over the time of each in a row of them";
        self.profile.lines.scan_misses = self.number("lines.scan_misses", Sample::of(&values), what);
    }

    fn calls(&mut self) {
        let sample = kernel::syscall(self.cpu());
        self.profile.kernel.syscall = self.number("kernel.syscall", sample, "getppid");
        let [wait, wake] = kernel::futex_calls(self.cpu());
        let what = "FUTEX_WAIT on a word that has another value";
        self.profile.kernel.futex_wait = Some(self.number("kernel.futex_wait", wait, what));
        let what = "FUTEX_WAKE of a word on which no thread sleeps";
        self.profile.kernel.futex_wake = Some(self.number("kernel.futex_wake", wake, what));
    }

    fn wakes(&mut self) {
        let (cpu, other) = (self.cpu(), self.other());
        let wake = kernel::wake(cpu, other.unwrap_or(cpu), Duration::from_micros(200));
        let syscall = self.profile.kernel.syscall.value;
        let futex_wait = self.profile.kernel.futex_wait.as_ref().map_or(syscall, |call| call.value);
        let futex_wake = self.profile.kernel.futex_wake.as_ref().map_or(syscall, |call| call.value);
        let less = |sample: Sample, by: f64| Sample {
            median: (sample.median - by).max(0.0),
            quartiles: ((sample.quartiles.0 - by).max(0.0), (sample.quartiles.1 - by).max(0.0)),
            ..sample
        };
        self.profile.kernel.wake = self.number(
            "kernel.wake",
            less(wake.call, futex_wake),
            "FUTEX_WAKE of one sleeper, less the same of none",
        );
        let latency = match other {
            Some(_) => "from its return to the sleeper's, on another CPU that was idle for 200 microseconds",
            None => "from its return to the sleeper's, on the same CPU (the only one)",
        };
        self.profile.kernel.wakeup = self.number("kernel.wakeup", wake.latency, latency);
        if let Some(other) = other {
            // Some microseconds of these pass until the sleeper sleeps.
            let soon = kernel::wake(cpu, other, Duration::from_micros(10)).latency;
            let what = "the same, on a CPU that was idle for less than 10 microseconds";
            self.profile.kernel.wakeup_soon = Some(self.number("kernel.wakeup_soon", soon, what));
            if let Some(early) = kernel::wake_early(cpu, other) {
                let what = "how long after its thread's wait began a CPU is not idle yet: wakes cost less";
                self.profile.kernel.falls_asleep = Some(self.number("kernel.falls_asleep", early.time, what));
                let call = less(early.wake.call, futex_wake);
                let what = "FUTEX_WAKE in that time, less the same of no sleeper";
                self.profile.kernel.wake_early = Some(self.number("kernel.wake_early", call, what));
                let what = "from its return to the sleeper's, in that time";
                self.profile.kernel.wakeup_early =
                    Some(self.number("kernel.wakeup_early", early.wake.latency, what));
            }
            if let Some(busy) = kernel::wake_busy(cpu, other) {
                let what =
                    "from the return of FUTEX_WAKE to the sleeper's, on a CPU that runs another thread";
                self.profile.kernel.wakeup_busy = Some(self.number("kernel.wakeup_busy", busy, what));
            }
        }
        // The simulator charges both calls, and the switch on top of them.
        let hand_over = less(kernel::hand_over(cpu), futex_wait + futex_wake);
        self.profile.kernel.context_switch = self.number(
            "kernel.context_switch",
            hand_over,
            "two threads on a CPU that wake each other by futex, less a FUTEX_WAIT that does not wait and a FUTEX_WAKE that wakes nobody",
        );
    }

    fn scheduler(&mut self) {
        self.profile.eevdf = kernel::is_eevdf(&Machine::here().kernel).then(|| Eevdf::linux(kernel::cpus()));
        if let Some(sample) = kernel::quantum(self.cpu()) {
            let sample = Sample { median: sample.median.max(1000.0), ..sample };
            self.profile.kernel.quantum =
                self.number("kernel.quantum", sample, "gaps in the time of two busy threads on a CPU");
        }
        if let Some((every, length)) = kernel::pauses(self.cpu()) {
            let every = Sample { median: every.median.max(1000.0), ..every };
            let what = "from one gap to the next in the time of a thread that is alone on its CPU";
            self.profile.kernel.pause_every = Some(self.number("kernel.pause_every", every, what));
            self.profile.kernel.pause = Some(self.number("kernel.pause", length, "the length of these gaps"));
        }
    }

    fn interrupts(&mut self) {
        let cpu = self.cpu();
        let Some(alone) = kernel::membarrier(cpu, None) else { return };
        let alone = Sample::of(&alone);
        let base = alone.median;
        self.profile.kernel.membarrier =
            self.number("kernel.membarrier", alone, "membarrier while no other thread runs");
        let Some(other) = self.other() else { return };
        let Some(values) = kernel::membarrier(cpu, Some(other)) else { return };
        // On a busy machine the other thread is off its CPU now and then, and not interrupted.
        let interrupts: Vec<f64> =
            values.into_iter().filter(|time| *time > 1.5 * base).map(|time| time - base).collect();
        if interrupts.len() >= FEWEST {
            self.profile.kernel.interrupt = self.number(
                "kernel.interrupt",
                Sample::of(&interrupts),
                "membarrier while one other thread runs, less the same alone",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_too_large_is_refused_or_has_no_end_of_caches() {
        let of = |sockets, clusters, cores| {
            Calibration::of(Places::made_up(sockets, clusters, cores), "large".into())
        };
        let error = of(2, 32, 12).err().expect("768 CPUs");
        assert!(error.message.contains("768 CPUs: at most 512"), "{}", error.message);
        assert!(of(2, 48, 1).unwrap().profile.memory.is_none(), "96 clusters");
        assert!(of(2, 32, 4).unwrap().profile.memory.is_some(), "64 clusters");
    }
}
