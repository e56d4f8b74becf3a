//! What lines cost, looked up once.

use super::{Line, Requester};
use crate::events::Time;
use crate::profile::{Number, Profile};
use crate::rng::Rng;
use crate::topology::{DISTANCES, Distance, Place, Topology};

/// The numbers of `Profile::lines`, in picoseconds, by [`Distance`].
pub(super) struct Costs {
    pub(super) hit: Time,
    pub(super) store: Time,
    pub(super) atomic: Time,
    /// The part of `atomic` before it takes effect.
    pub(super) atomic_wait: Time,
    pub(super) clean: [Time; DISTANCES],
    pub(super) modified: [Time; DISTANCES],
    pub(super) dram: [Time; DISTANCES],
    pub(super) third_party: Time,
    pub(super) home_at_reader: Time,
    pub(super) per_sharer: Time,
    pub(super) read: [Time; DISTANCES],
    pub(super) request: f64,
    jitter: f64,
    pub(super) pair_prefetch: f64,
    pub(super) scan: Time,
    pub(super) scan_misses: f64,
}

impl Costs {
    pub(super) fn new(profile: &Profile) -> Self {
        let lines = &profile.lines;
        let ps = Number::time;
        let or = |number: &Option<_>, nearer: Time| number.as_ref().map_or(nearer, ps);
        let ladder = |cluster, socket, hop, two_hops| {
            let socket = or(socket, ps(cluster));
            let hop = or(hop, socket);
            [ps(&lines.sibling), ps(cluster), socket, hop, or(two_hops, hop)]
        };
        let clean = ladder(&lines.cluster, &lines.socket, &lines.hop, &lines.two_hops);
        let local = ps(&lines.dram_local);
        let remote = or(&lines.dram_remote, local);
        let second_hop = clean[Distance::TwoHops as usize].saturating_sub(clean[Distance::Hop as usize]);
        let short = ps(&lines.read_occupancy);
        let wait = lines.atomic_wait.as_ref().map_or(0.0, |share| share.value);
        let far = |distance: Distance| {
            ((clean[distance as usize] as f64 * lines.read_occupancy_remote.value) as Time).max(short)
        };
        Costs {
            hit: ps(&lines.hit),
            store: ps(&lines.store),
            atomic: ps(&lines.atomic),
            atomic_wait: (ps(&lines.atomic) as f64 * wait) as Time,
            modified: ladder(
                &lines.cluster_modified,
                &lines.socket_modified,
                &lines.hop_modified,
                &lines.two_hops_modified,
            ),
            // Two hops cost what the second hop costs more between caches.
            dram: [local, local, local, remote, remote + second_hop],
            third_party: ps(&lines.third_party),
            home_at_reader: ps(&lines.home_at_reader),
            per_sharer: ps(&lines.per_sharer),
            read: [short, short, short, far(Distance::Hop), far(Distance::TwoHops)],
            request: lines.request.value,
            jitter: lines.jitter.value,
            pair_prefetch: lines.pair_prefetch.value,
            scan: ps(&lines.scan),
            scan_misses: lines.scan_misses.value,
            clean,
        }
    }

    /// The extra leg when the line's home is where it should not be.
    #[inline]
    pub(super) fn leg(&self, home: u16, requester: u16, supplier: u16) -> Time {
        if requester == supplier || home == supplier {
            0
        } else if home == requester {
            self.home_at_reader
        } else {
            self.third_party
        }
    }

    /// This time once more, by chance a little longer or shorter.
    #[inline]
    pub(super) fn jitter(&self, time: Time, rng: &mut Rng) -> Time {
        let most = (time as f64 * self.jitter) as Time;
        if most == 0 { time } else { time - most + rng.below(2 * most + 1) }
    }

    /// From a line's owner to another core.
    #[inline]
    pub(super) fn transfer(&self, topology: &Topology, line: &Line, owner: u16, who: &Requester) -> Time {
        let Place { core, node } = who.place;
        let table = if line.modified { &self.modified } else { &self.clean };
        let supplier = topology.node_of(owner);
        table[topology.between(core, owner) as usize] + self.leg(line.home, node, supplier)
    }
}
