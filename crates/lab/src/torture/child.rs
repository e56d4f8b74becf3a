//! `latchwork-lab torture-one`: the process in which one lock is tortured. It writes to the process that started it: a line
//! of JSON for each round, and one at the end. It ends when its standard input is closed, which happens on Ctrl-C and
//! if the other process dies.

use clap::Args;
use latchwork::registry::Kind;
use latchwork_console::failure::{Failure, Result};
use latchwork_torture::twins::{self, Verdict};
use latchwork_torture::{Progress, Report, Scenario, Settings, reclaim, registered, torture, unit};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Options of `latchwork-lab torture-one`.
#[derive(Args)]
pub struct One {
    /// `mutex`, `rwlock`, `seqlock`, `reclamation`, or `twin` for one that is broken on purpose
    kind: String,
    name: String,
    #[arg(long)]
    seconds: f64,
    #[arg(long, default_value_t = 8)]
    threads: usize,
    #[arg(long)]
    seed: u64,
    #[arg(long, default_value_t = 30.0)]
    patience: f64,
}

/// What it says.
#[derive(Serialize, Deserialize)]
pub enum Message {
    /// Before each round.
    Round(Progress),
    /// At the end.
    Done(Report),
    /// At the end, if it was a lock that is broken on purpose. Whether it failed as it must.
    Twin(bool, Report),
}

static CANCELLED: AtomicBool = AtomicBool::new(false);

fn say(message: &Message) {
    let mut line = serde_json::to_string(message).expect("plain data");
    line.push('\n');
    // If the parent has gone, the message has no reader.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
    let _ = std::io::stdout().lock().flush();
}

/// Tortures it.
pub fn one(options: &One) -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        CANCELLED.store(true, Relaxed);
    });
    let settings = Settings {
        threads: options.threads,
        time: Duration::from_secs_f64(options.seconds),
        patience: Duration::from_secs_f64(options.patience),
        seed: options.seed,
        ..Settings::default()
    };
    let message = match options.kind.as_str() {
        "mutex" => run(registered(Kind::Mutex, &options.name), &options.name, settings)?,
        "rwlock" => run(registered(Kind::RwLock, &options.name), &options.name, settings)?,
        "seqlock" => run(registered(Kind::SeqLock, &options.name), &options.name, settings)?,
        "semaphore" => run(unit::scenarios(), &options.name, settings)?,
        "reclamation" => run(reclaim::of(&options.name), &options.name, settings)?,
        "twin" => twin(&options.name, settings)?,
        other => {
            return Err(Failure::usage(format!(
                "{other:?} is neither mutex, rwlock, seqlock, semaphore, reclamation nor twin"
            )));
        }
    };
    say(&message);
    Ok(())
}

fn run(scenarios: Vec<Scenario>, name: &str, settings: Settings) -> Result<Message> {
    if scenarios.is_empty() {
        return Err(Failure::usage(format!("there is no lock called {name:?}")));
    }
    let tell = |progress| say(&Message::Round(progress));
    Ok(Message::Done(torture(&scenarios, settings, &CANCELLED, tell)))
}

fn twin(name: &str, settings: Settings) -> Result<Message> {
    let Some(twin) = twins::all().into_iter().find(|twin| twin.name == name) else {
        return Err(Failure::usage(format!("there is no broken lock called {name:?}")));
    };
    let failed = |failed| Report { failed: Some(failed), ..Report::default() };
    Ok(match twin.check(settings.seed, settings.time) {
        Verdict::Caught(why) => Message::Twin(true, failed(why)),
        Verdict::Otherwise(why) => Message::Twin(false, failed(why)),
        Verdict::Missed(report) => Message::Twin(false, report),
    })
}
