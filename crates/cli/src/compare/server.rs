//! One run of a server under load: the server is started and gets ready, the load generator runs beside it without the
//! preload library, and the server is asked to stop.

use super::child::{self, Cost, End, Event, Launch, Program, Run};
use super::tail::last_lines;
use crate::leftovers;
use latchwork_console::signals::Signals;
use regex_lite::Regex;
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

/// How often a server is looked at that is not ready yet.
const GLANCE: Duration = Duration::from_millis(10);
/// How long the load generator may go on after the server has ended. A load generator that stops the server as its last
/// action needs some milliseconds.
const LOAD_ENDS: Duration = Duration::from_secs(1);
/// How long a server may take to be gone after the request that made it crash, whose load has ended.
const CRASHES: Duration = Duration::from_millis(2);

/// How to tell that a server is ready.
pub enum Ready {
    /// Its output matches.
    Output(Regex),
    /// A program listens on this TCP port of this machine.
    Port(u16),
}

/// A server and its load.
pub struct Server {
    /// The server and its arguments.
    pub command: Vec<OsString>,
    /// How to tell that it is ready.
    pub ready: Ready,
    /// How long it may take to be ready.
    pub ready_timeout: Duration,
    /// The load generator and its arguments.
    pub load: Vec<OsString>,
}

impl Server {
    /// Runs the server with these variables, and the load without them. The wall time is that of the load, everything
    /// else that was measured is the server's. A server that does not stop within `stop_timeout` is killed.
    pub fn run(
        &self,
        environment: &[(&'static str, OsString)],
        timeout: Option<Duration>,
        stop_timeout: Duration,
        any_status: bool,
        signals: &Signals,
    ) -> Result<Run, String> {
        if let Ready::Port(port) = self.ready
            && listens(port)
        {
            return Err(format!(
                "a program that latchwork did not start already listens on port {port}: stop it, or give the server \
                 another port"
            ));
        }
        let server = Program::start(&Launch { command: &self.command, environment, input: None }, signals)?;
        let (outcome, load_group) = match self.wait_until_ready(&server, signals) {
            Outcome::Ready => self.load(&server, timeout, any_status, signals)?,
            other => (other, None),
        };
        let (killed, asked) = stop(&server, stop_timeout, signals);
        let server = server.end();
        let outcome = match outcome {
            Outcome::Loaded { by_itself: true, .. } if server.crashed(any_status) => Outcome::EndedUnderLoad,
            other => other,
        };
        let groups: Vec<_> = [Some(server.group), load_group].into_iter().flatten().collect();
        let (daemons, also_asked) = leftovers::end(&groups, stop_timeout, signals)?;
        let end = match asked.or(also_asked).map_or(outcome, Outcome::Interrupted) {
            Outcome::Interrupted(signal) => End::Interrupted(signal),
            Outcome::Loaded { wall, output, .. } => End::Good(Cost { wall, ..server.cost }, output),
            Outcome::Ready => unreachable!("the load has run"),
            Outcome::LoadFailed(why, output) => End::Bad(
                why,
                format!(
                    "{}\n(the end of the server's output:)\n{}",
                    last_lines(&output, 9),
                    last_lines(&server.output, 9)
                ),
            ),
            Outcome::NotReady => {
                let seconds = self.ready_timeout.as_secs_f64();
                let hint = match &self.ready {
                    Ready::Port(port) => format!("no program listens on port {port}"),
                    Ready::Output(expression) => {
                        format!("nothing in its output matches {:?}", expression.as_str())
                    }
                };
                End::Bad(
                    format!("the server is not ready after {seconds} s: {hint} (see --ready-timeout)"),
                    server.output,
                )
            }
            Outcome::WaitsForTerminal => {
                End::Bad(format!("the server {}", child::WAITS_FOR_TERMINAL), server.output)
            }
            Outcome::EndedEarly => End::Bad(
                format!(
                    "the server ended before it was ready ({}); it must stay in the foreground",
                    server.manner()
                ),
                server.output,
            ),
            Outcome::EndedUnderLoad => {
                End::Bad(format!("the server ended under the load ({})", server.manner()), server.output)
            }
        };
        Ok(Run { end, daemons, killed: killed && asked.is_none() })
    }

    fn wait_until_ready(&self, server: &Program, signals: &Signals) -> Outcome {
        let deadline = server.start + self.ready_timeout;
        let mut looked_at = 0;
        loop {
            let ready = match &self.ready {
                Ready::Port(port) => listens(*port),
                Ready::Output(expression) => {
                    let length = server.output.length();
                    let grown = length != looked_at;
                    looked_at = length;
                    grown && expression.is_match(&server.output.text())
                }
            };
            if ready {
                return Outcome::Ready;
            }
            if Instant::now() > deadline {
                return Outcome::NotReady;
            }
            match child::watch(&[server], signals, Some(Instant::now() + GLANCE)) {
                Event::Ended(_) => return Outcome::EndedEarly,
                Event::WaitsForTerminal(_) => return Outcome::WaitsForTerminal,
                Event::Interrupted(signal) => return Outcome::Interrupted(signal),
                Event::TimedOut => {}
            }
        }
    }

    /// Runs the load. Also returns the number of its process group.
    fn load(
        &self,
        server: &Program,
        timeout: Option<Duration>,
        any_status: bool,
        signals: &Signals,
    ) -> Result<(Outcome, Option<libc::pid_t>), String> {
        let load = Program::start(&Launch { command: &self.load, environment: &[], input: None }, signals)?;
        let mut event = child::watch(&[&load, server], signals, timeout.map(|timeout| load.start + timeout));
        let server_waits = matches!(event, Event::WaitsForTerminal(1));
        let mut server_ended = false;
        if let Event::Ended(1) = event {
            server_ended = true;
            event = child::watch(&[&load], signals, Some(Instant::now() + LOAD_ENDS));
        }
        let wall = load.start.elapsed();
        if let Event::Ended(_) = event {
            load.settle();
        }
        let load = load.end();
        // The server may have crashed at the load's last request. The kernel closes its connections, which the load sees, some time
        // before a process can be waited for: milliseconds, or a turn on a busy machine.
        if !server_ended && matches!(event, Event::Ended(_)) {
            let until = (!server.is_exiting()).then(|| Instant::now() + CRASHES);
            match child::watch(&[server], signals, until) {
                Event::Ended(_) => server_ended = true,
                Event::TimedOut | Event::WaitsForTerminal(_) => {}
                Event::Interrupted(signal) => event = Event::Interrupted(signal),
            }
        }
        let outcome = match event {
            Event::Interrupted(signal) => Outcome::Interrupted(signal),
            Event::WaitsForTerminal(_) if server_waits => Outcome::WaitsForTerminal,
            Event::TimedOut | Event::WaitsForTerminal(_) if server_ended => Outcome::EndedUnderLoad,
            Event::WaitsForTerminal(_) => {
                Outcome::LoadFailed(format!("the load {}", child::WAITS_FOR_TERMINAL), load.output)
            }
            Event::TimedOut => {
                Outcome::LoadFailed(format!("the load {}", child::timed_out(wall)), load.output)
            }
            Event::Ended(_) => match load.failure(any_status) {
                None => Outcome::Loaded { wall, output: load.output, by_itself: server_ended },
                Some(_) if server_ended => Outcome::EndedUnderLoad,
                Some(why) => Outcome::LoadFailed(format!("the load failed: {why}"), load.output),
            },
        };
        Ok((outcome, Some(load.group)))
    }
}

enum Outcome {
    Ready,
    NotReady,
    WaitsForTerminal,
    EndedEarly,
    EndedUnderLoad,
    /// Why, and what the load printed.
    LoadFailed(String, String),
    /// How long the load took, what it printed, and whether the server has ended by itself.
    Loaded {
        wall: Duration,
        output: String,
        by_itself: bool,
    },
    Interrupted(i32),
}

/// Asks the server's process group to end, and waits until the server has ended or `stop_timeout` has passed. Returns
/// whether the time was not enough, and a signal that asked this process to end meanwhile.
fn stop(server: &Program, stop_timeout: Duration, signals: &Signals) -> (bool, Option<i32>) {
    server.signal(libc::SIGTERM);
    // A process that is stopped does not see SIGTERM before it continues.
    server.signal(libc::SIGCONT);
    match child::watch(&[server], signals, Some(Instant::now() + stop_timeout)) {
        Event::Ended(_) => {
            server.settle();
            (false, None)
        }
        Event::TimedOut | Event::WaitsForTerminal(_) => (true, None),
        Event::Interrupted(signal) => (true, Some(signal)),
    }
}

/// Whether a program listens on this TCP port. The kernel says so; an attempt to connect would be a client that the server
/// has to serve, and can connect to itself where the kernel chooses the same port for the client.
fn listens(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| is_listener(line, port))
    })
}

/// Of a line `NUMBER: LOCAL-ADDRESS:PORT REMOTE-ADDRESS:PORT STATE ...`, in hexadecimal digits.
fn is_listener(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = fields.next().and_then(|local| local.rsplit_once(':'));
    local.is_some_and(|(_, local)| local == format!("{port:04X}")) && fields.nth(1) == Some(LISTEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_port_is_listened_on_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        // The client's end of a connection has a port too.
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(!listens(client.local_addr().unwrap().port()));
        let line = "0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0 0";
        assert!(is_listener(line, 80) && !is_listener(line, 5));
        assert!(!is_listener("sl local_address rem_address st tx_queue rx_queue", 80));
    }
}
