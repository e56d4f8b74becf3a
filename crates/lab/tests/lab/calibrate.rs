//! `latchwork-lab calibrate`. Its figures depend on the machine and on other programs, so the tests check only what must
//! hold everywhere.

use crate::common::{latchwork, output, scratch, stderr, stdout};
use latchwork_sim::Profile;

#[test]
fn a_profile_that_the_simulator_reads() {
    let directory = scratch("calibrate");
    let output = latchwork()
        .args(["calibrate", "--json", "-"])
        .env("XDG_CONFIG_HOME", &directory)
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let path = directory.join("latchwork/this-machine.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let profile = Profile::parse(&text, "it").unwrap();
    assert_eq!(profile.name, "this-machine");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(profile.cpus() >= cpus, "{} CPUs", profile.cpus());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "something was left behind");

    let lines: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let line =
        |name: &str| lines.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap().clone();
    for name in [
        "lines.hit",
        "lines.atomic",
        "lines.scan",
        "lines.dram_local",
        "processor.pause",
        "kernel.syscall",
        "kernel.wake",
    ] {
        let line = line(name);
        assert_eq!(line["measured"], true, "{line}");
        assert!(line["value"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["source"].as_str().unwrap().starts_with("measured: "), "{line}");
        assert!(line["sample"]["samples"].as_u64().unwrap() > 50, "{line}");
    }
    assert!(line("lines.third_party")["source"].as_str().unwrap().starts_with("estimate: "));
    assert_eq!(profile.lines.atomic.value, line("lines.atomic")["value"].as_f64().unwrap());
    let (hit, memory) = (&profile.lines.hit, profile.lines.dram_local.value);
    if let Some(private_hit) = profile.memory.as_ref().and_then(|limits| limits.private_hit.as_ref()) {
        assert!(private_hit.source.starts_with("measured: ") && private_hit.value > 0.0, "{private_hit:?}");
    }
    assert!(memory > 2.0 * hit.value, "memory {memory} ns, a hit {} ns", hit.value);
}

#[test]
fn one_cpu_is_enough() {
    let output = crate::on_one_cpu().args(["calibrate", "-o", "-"]).output().expect("the command runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let profile = Profile::parse(&stdout(&output), "it").unwrap();
    assert_eq!(profile.cpus(), 1);
    assert!(profile.lines.cluster.source.starts_with("estimate: "), "nothing can be transferred");
    assert!(profile.kernel.context_switch.source.starts_with("measured: "));
}

#[test]
fn what_cannot_be_written_is_refused_before_measuring() {
    for arguments in [
        &["calibrate", "-o", "/nowhere/profile.toml"][..],
        &["calibrate", "-o", "/tmp"],
        &["calibrate", "-o", "-", "--json", "-"],
        &["calibrate", "--json", "/nowhere/numbers.json"],
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}
