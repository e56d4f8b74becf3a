//! What a simulation is told beside the machine.

/// Which thread starts on which processor.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Fills a node before the next one (its cores first, then their second hardware threads).
    #[default]
    FirstFill,
    /// One thread on each node in turn.
    RoundRobin,
}

/// Which of several waiting requests for a cache line is served next. On real machines the near ones often win. How often
/// is not documented, and it matters: sweep it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Arbitration {
    /// In order of arrival.
    Fifo,
    /// With this probability the one nearest to the line's owner, otherwise the first.
    Nearest(f64),
    /// Any.
    Random,
}

impl Default for Arbitration {
    fn default() -> Self {
        Arbitration::Nearest(0.8)
    }
}

/// Random preemption: threads are taken off their processors at bad moments, as on a machine that
/// is busy with something else.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Adversary {
    /// A running thread is stopped once in this many nanoseconds of its own time, on average.
    pub every_ns: u64,
    /// The probability that a thread is stopped within a microsecond after it acquired a lock
    /// (between [`acquired`](crate::acquired) and [`released`](crate::released)).
    pub holder: f64,
    /// For how long on average; the time is exponentially distributed.
    pub stop_ns: u64,
    /// The probability that a wait on a word returns for no reason.
    pub spurious: f64,
}

impl Default for Adversary {
    fn default() -> Self {
        Adversary { every_ns: 20_000, holder: 0.1, stop_ns: 20_000, spurious: 0.05 }
    }
}

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything random follows from it: same seed, same trace.
    pub seed: u64,
    /// Which thread starts on which processor.
    pub placement: Placement,
    /// Which of several waiting requests for a cache line is served next.
    pub arbitration: Arbitration,
    /// Threads start spread over this many nanoseconds; `None` is a microsecond for each thread.
    ///
    /// Closed loops around a fair lock keep the order in which their threads first arrived. If they
    /// all arrive at once, near ones win, and the lock stays among neighbours for ever after: an order
    /// that no real run has.
    pub spread_ns: Option<u64>,
    /// Random preemption.
    pub adversary: Option<Adversary>,
    /// Whether a body may [suspend its thread for ever](crate::suspend_in): sleeps that a wake should end then end by
    /// themselves as well. (In other runs they do not, so that a lost wakeup shows.)
    pub suspends: bool,
    /// Simulated nanoseconds after which the run is given up.
    pub limit_ns: u64,
    /// Names of objects for messages: address, size, name. See [`label`](Options::label).
    pub labels: Vec<(usize, usize, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            placement: Placement::default(),
            arbitration: Arbitration::default(),
            spread_ns: None,
            adversary: None,
            suspends: false,
            limit_ns: 60_000_000_000,
            labels: Vec::new(),
        }
    }
}

impl Options {
    /// Calls `object` `name` in messages ("thread 3 spins on NAME").
    pub fn label<T>(&mut self, object: &T, name: impl Into<String>) {
        self.labels.push((std::ptr::from_ref(object).addr(), size_of::<T>(), name.into()));
    }
}
