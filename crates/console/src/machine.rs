//! The machine on which something was measured, and how busy other programs kept it.

use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::fs;

/// As the JSON file describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// As /proc/cpuinfo names it.
    pub processor: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// NUMA nodes.
    pub numa_nodes: usize,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// C library release.
    pub glibc: String,
    /// One-minute load average before the first run.
    pub load_average: f64,
}

impl Machine {
    /// This one, now.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        // SAFETY: returns a static string.
        let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let memory: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        let nodes =
            fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten().filter(|entry| {
                let name = entry.file_name();
                let digits = name.to_str().and_then(|name| name.strip_prefix("node"));
                digits.is_some_and(|digits| digits.parse::<u32>().is_ok())
            });
        Self {
            processor: processor(&read("/proc/cpuinfo")).unwrap_or_else(|| "unknown".into()),
            cpus: cpus(),
            numa_nodes: nodes.count().max(1),
            memory_bytes: memory * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            glibc: glibc.to_string_lossy().into_owned(),
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        format!("{} ({} CPUs), Linux {}, glibc {}", self.processor, self.cpus, self.kernel, self.glibc)
    }
}

fn value(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What `/proc/cpuinfo` calls the processor. On ARM it has only numbers: of the maker and of the design.
fn processor(cpuinfo: &str) -> Option<String> {
    value(cpuinfo, "model name").or_else(|| {
        let number = |key| value(cpuinfo, key);
        let maker = number("CPU implementer")?;
        Some(format!(
            "CPU implementer {maker}, part {}, variant {}",
            number("CPU part")?,
            number("CPU variant")?
        ))
    })
}

/// The effective user of this process.
pub fn user() -> u32 {
    // SAFETY: the call takes nothing and always succeeds.
    unsafe { libc::geteuid() }
}

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The CPU time that this process and the children that it waited for have used, in seconds.
pub fn own_seconds() -> f64 {
    let used = |whose| {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: room for the answer, of which zeroes are a value too.
        let usage = unsafe {
            libc::getrusage(whose, usage.as_mut_ptr());
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    used(libc::RUSAGE_SELF) + used(libc::RUSAGE_CHILDREN)
}

/// The machine's CPU time since it started, in seconds: all of it, and the used part. Time that a hypervisor gave to
/// other guests counts as used.
#[derive(Copy, Clone, Debug, Default)]
pub struct Clock {
    /// Used and idle.
    pub all: f64,
    /// Used.
    pub busy: f64,
}

impl Clock {
    /// From /proc/stat; zero if that cannot be read.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        // SAFETY: plain argument.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        Self::parse(&text, ticks).unwrap_or_default()
    }

    fn parse(text: &str, ticks: f64) -> Option<Self> {
        // user nice system idle iowait irq softirq steal; guest time is within user.
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let values: Vec<f64> =
            line.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let idle = values.get(3)? + values.get(4)?;
        let all: f64 = values.iter().sum();
        Some(Self { all: all / ticks, busy: (all - idle) / ticks })
    }

    /// The share of the machine's CPU time that other programs used from `self` to `now`, of which this command and its
    /// programs used `own` seconds.
    pub fn others_share(self, now: Self, own: f64) -> f64 {
        let all = now.all - self.all;
        if all <= 0.0 { 0.0 } else { ((now.busy - self.busy - own) / all).clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_names() {
        assert_eq!(processor("processor : 0\nmodel name\t: A CPU\n").unwrap(), "A CPU");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n";
        assert_eq!(processor(arm).unwrap(), "CPU implementer 0x41, part 0xd0c, variant 0x3");
        assert_eq!(processor(""), None);
    }

    #[test]
    fn proc_stat_is_understood() {
        let text = "cpu  100 0 50 800 50 0 0 100 7 7\ncpu0 1 2 3\n";
        let clock = Clock::parse(text, 100.0).unwrap();
        assert_eq!((clock.all, clock.busy), (11.0, 2.5));
        assert_eq!(Clock::default().others_share(clock, 1.4), 0.1);
        assert!(Clock::now().all > 0.0);
    }
}
