//! The simulated machines that an ablation runs on.

use latchwork_sim::{Number, Profile};

/// What PAUSE costs and what the transfer of a modified line between two cores of a socket costs, in nanoseconds, and the
/// number of sockets. Any two of the three take each pair of values once.
const GRID: [(f64, f64, usize); 9] = [
    (4.0, 20.0, 1),
    (4.0, 60.0, 2),
    (4.0, 150.0, 8),
    (15.0, 20.0, 2),
    (15.0, 60.0, 8),
    (15.0, 150.0, 1),
    (60.0, 20.0, 8),
    (60.0, 60.0, 1),
    (60.0, 150.0, 2),
];
/// Processors of each of these machines: enough for eight sockets of two, and few enough for eight threads each.
const CPUS: usize = 16;

/// The machines of an ablation unless the user names some: a measured one, and those of the grid.
pub fn all() -> Vec<Profile> {
    let measured = Profile::find("emerald-rapids-2").expect("it is built in");
    std::iter::once(measured)
        .chain(GRID.map(|(pause, transfer, sockets)| machine(pause, transfer, sockets)))
        .collect()
}

/// A machine of the grid.
fn machine(pause: f64, transfer: f64, sockets: usize) -> Profile {
    let mut profile = Profile::find(&format!("{sockets}x{}", CPUS / sockets)).expect("a valid shorthand");
    profile.name = format!("{}, PAUSE {pause} ns, transfer {transfer} ns", profile.name);
    profile.processor.pause.value = pause;
    let lines = &mut profile.lines;
    let scale = transfer / lines.cluster_modified.value;
    let each = |number: &mut Number| number.value *= scale;
    [&mut lines.cluster, &mut lines.cluster_modified, &mut lines.third_party].into_iter().for_each(each);
    [&mut lines.hop, &mut lines.hop_modified, &mut lines.two_hops, &mut lines.two_hops_modified]
        .into_iter()
        .flatten()
        .for_each(each);
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_balanced() {
        let pairs = |pair: fn(&(f64, f64, usize)) -> (u64, u64)| {
            let mut pairs: Vec<_> = GRID.iter().map(pair).collect();
            pairs.sort_unstable();
            pairs.dedup();
            pairs.len()
        };
        let bits = f64::to_bits;
        assert_eq!(pairs(|m| (m.0.to_bits(), m.1.to_bits())), 9);
        assert_eq!(pairs(|m| (m.0.to_bits(), m.2 as u64)), 9);
        assert_eq!(pairs(|m| (m.1.to_bits(), m.2 as u64)), 9);
        for (profile, (pause, transfer, _)) in all().iter().skip(1).zip(GRID) {
            assert_eq!(profile.cpus(), CPUS);
            assert_eq!(bits(profile.processor.pause.value), bits(pause));
            assert!((profile.lines.cluster_modified.value - transfer).abs() < 1e-9);
        }
    }
}
