use super::*;

fn message(machine: &str) -> String {
    let message = Profile::find(machine).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn every_built_in_profile_parses_and_survives_being_written() {
    let names = Profile::names();
    let newer = [
        "epyc-7742",
        "epyc-7r13",
        "xeon-8375c",
        "graviton3",
        "emerald-rapids-2",
        "zen3-2",
        "zen4-2",
        "sapphire-rapids-2",
        "zen5-2",
    ];
    assert_eq!(names, [&["x5-2", "x5-4", "e7-8890v4", "power4"][..], &newer].concat());
    for name in names {
        let profile = Profile::find(&name).unwrap();
        assert_eq!(Profile::parse(&profile.to_toml(), "copy").unwrap(), profile);
        for (field, number) in profile.numbers() {
            let kinds = ["looked up: ", "estimate: ", "measured: ", "the paper: "];
            assert!(
                kinds.iter().any(|kind| number.source.starts_with(kind)),
                "{name} {field}: {}",
                number.source
            );
        }
    }
}

#[test]
fn shorthands() {
    let big = Profile::find("8x24").unwrap();
    assert_eq!((big.cpus(), big.topology.links), (192, Links::Cube));
    let small = Profile::find("2x18x2").unwrap();
    assert_eq!(Profile::find("X5-2").unwrap().name, "x5-2");
    assert_eq!((small.cpus(), small.topology.links), (72, Links::Full));
}

#[test]
fn bad_input_gets_one_clear_line() {
    assert!(message("x5_2").contains("did you mean x5-2?"));
    assert!(message("epyc").contains("did you mean epyc-7742?"));
    assert!(message("cray").contains("known are x5-2, x5-4"));
    assert!(message("8x65").contains("520 CPUs: at most 512"));
    assert!(message("99999999999x99999999999").contains("at most 512"));
    assert!(message("0x4").contains("at least 1"));
    assert!(message("/nowhere/at-all.toml").contains("cannot read"));
}

#[test]
fn broken_files_name_the_line() {
    let good = include_str!("../../profiles/x5-2.toml");
    let parse = |text: &str| Profile::parse(text, "f.toml").unwrap_err().to_string();
    let line = good.lines().position(|line| line.starts_with("hit ")).unwrap();
    let with = |new: &str| {
        let lines = good.lines().enumerate().map(|(i, old)| if i == line { new } else { old });
        lines.collect::<Vec<_>>().join("\n")
    };
    let here = format!("f.toml, line {}", line + 1);
    assert!(parse(&with("hit = {")).starts_with(&here[..13]), "{}", parse(&with("hit = {")));
    assert!(parse(&with("hit = { value = \"x\", source = \"y\" }")).starts_with(&here));
    assert!(parse(&with("hot = 7")).contains(&format!("line {}: unknown field `hot`", line + 1)));
    assert!(parse(&with("")).contains("missing field `hit`"));
    assert!(parse(&with("hit = { value = -1, source = \"y\" }")).contains("lines.hit is -1"));
    assert!(parse(&with("hit = { value = 1, source = \"\" }")).contains("lines.hit has no source"));
    assert!(parse(&good.replace("hop = ", "#")).contains("lines.hop is missing"));
    let pause = |field: &str, value: u32| {
        format!("{good}\n[kernel.{field}]\nvalue = {value}\nsource = \"estimate: a test\"\n")
    };
    assert!(parse(&pause("pause", 2000)).contains("go together"));
    assert!(parse(&pause("pause_every", 2000)).contains("go together"));
    let often = pause("pause", 2000) + &pause("pause_every", 999)[good.len()..];
    assert!(parse(&often).contains("kernel.pause_every must be at least 1000"));
    let first = |field: &str, value: u32| {
        format!("\n[memory.{field}]\nvalue = {value}\nsource = \"estimate: a test\"\n")
    };
    assert!(parse(&(good.to_owned() + &first("first", 32))).contains("go together"));
    let whole = first("first", 32) + &first("first_ways", 8) + &first("private_hit", 4);
    let profile = Profile::parse(&(good.to_owned() + &whole), "f.toml").unwrap();
    assert_eq!(Profile::parse(&profile.to_toml(), "copy").unwrap(), profile);
    let many = first("first", 32) + &first("first_ways", 33) + &first("private_hit", 4);
    assert!(parse(&(good.to_owned() + &many)).contains("memory.first_ways is 33"));
    let slice = include_str!("../../profiles/zen3-2.toml").replace("value = 1400000.0", "value = 999");
    assert!(parse(&slice).contains("eevdf.base_slice must be at least 1000"));
}

/// The machines that were measured for this simulator ran Linux 6.18, those of the papers older kernels.
#[test]
fn the_scheduler_is_a_property_of_the_profile() {
    let with: Vec<_> = Profile::all().into_iter().filter(|profile| profile.eevdf.is_some()).collect();
    let names: Vec<_> = with.iter().map(|profile| &profile.name).collect();
    assert_eq!(names, ["zen3-2", "zen4-2", "sapphire-rapids-2", "zen5-2"]);
    for profile in with {
        assert_eq!(profile.eevdf, Some(Eevdf::linux(2)), "{}", profile.name);
    }
}
