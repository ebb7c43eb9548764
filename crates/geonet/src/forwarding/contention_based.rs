//! Contention-based forwarding (E.3, F.3): the timer, and the buffer of packets in contention.
//!
//! A station that receives a packet starts a timer. Inside an area, the timer is shorter if the sender is
//! farther away. On the path to an area, the timer is shorter if the station makes more progress. When the
//! timer expires, the station repeats the packet unless another station has already repeated it. The buffer
//! is bounded by octets and drops its oldest packet.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::MacAddress;
use crate::Mib;
use crate::location_table::SeededHash;
use crate::packet::BufferedPacket;

/// Returns the timeout of F.3: TO = MAX + (MIN - MAX) / DIST_MAX * distance, and MIN beyond DIST_MAX;
/// distances in metres. Returns MAX if the distance is `None`.
pub fn contention_timeout(mib: &Mib, distance: Option<f64>) -> Duration {
    let Some(distance) = distance else { return mib.cbf_max_time };
    if distance >= mib.max_communication_range {
        return mib.cbf_min_time;
    }
    let (min, max) = (mib.cbf_min_time.as_secs_f64(), mib.cbf_max_time.as_secs_f64());
    let span = max + (min - max) / mib.max_communication_range * distance.max(0.0);
    Duration::try_from_secs_f64(span).unwrap_or(mib.cbf_max_time)
}

/// Identity of a packet: MID of the source and sequence number.
pub(crate) type PacketIdentity = (u64, u16);

/// A packet in contention.
#[derive(Debug)]
pub(crate) struct ContendingPacket {
    pub packet: BufferedPacket,
    /// Link-layer address of the station that sent the packet.
    pub sender: MacAddress,
    /// Number of copies received so far.
    pub copy_count: u32,
    /// Whether the rules of F.4 apply. Without them, the first copy from another station ends the contention.
    pub uses_advanced_forwarding: bool,
    /// Arrival number of the packet; the packet with the smallest number is the oldest in the buffer.
    arrival_number: u64,
}

/// The packets in contention (`itsGnCbfPacketBufferSize`).
#[derive(Debug)]
pub(crate) struct ContentionBuffer {
    packets: HashMap<PacketIdentity, ContendingPacket, SeededHash>,
    identity_by_arrival: BTreeMap<u64, PacketIdentity>,
    next_arrival_number: u64,
    octets: usize,
}

impl ContentionBuffer {
    pub fn new(seed: u64) -> ContentionBuffer {
        ContentionBuffer {
            packets: HashMap::with_hasher(SeededHash(seed)),
            identity_by_arrival: BTreeMap::new(),
            next_arrival_number: 0,
            octets: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn octets(&self) -> usize {
        self.octets
    }

    pub fn contains(&self, identity: PacketIdentity) -> bool {
        !self.packets.is_empty() && self.packets.contains_key(&identity)
    }

    pub fn get_mut(&mut self, identity: PacketIdentity) -> Option<&mut ContendingPacket> {
        self.packets.get_mut(&identity)
    }

    /// Adds a packet that is not in the buffer. If the buffer would exceed `limit` octets, removes the oldest
    /// packets and passes them to `pushed_out`. If the new packet alone has more than `limit` octets, passes
    /// it to `pushed_out`.
    pub fn insert(
        &mut self,
        packet: BufferedPacket,
        sender: MacAddress,
        advanced: bool,
        limit: usize,
        mut pushed_out: impl FnMut(BufferedPacket),
    ) {
        if packet.frame.len() > limit {
            return pushed_out(packet);
        }
        while self.octets + packet.frame.len() > limit
            && let Some((_, oldest)) = self.identity_by_arrival.first_key_value()
            && let Some(oldest) = self.remove(*oldest)
        {
            pushed_out(oldest.packet);
        }
        let identity = packet.properties.identity;
        self.octets += packet.frame.len();
        self.identity_by_arrival.insert(self.next_arrival_number, identity);
        self.packets.insert(
            identity,
            ContendingPacket {
                packet,
                sender,
                copy_count: 1,
                uses_advanced_forwarding: advanced,
                arrival_number: self.next_arrival_number,
            },
        );
        self.next_arrival_number += 1;
    }

    pub fn remove(&mut self, identity: PacketIdentity) -> Option<ContendingPacket> {
        let contender = self.packets.remove(&identity)?;
        self.identity_by_arrival.remove(&contender.arrival_number);
        self.octets -= contender.packet.frame.len();
        Some(contender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The timeouts follow the formula of F.3; the expected values come from ETSI.
    #[test]
    fn contention_timeout_depends_on_distance() {
        let mib = Mib::default();
        for (metres, expected) in
            [(0.0, 100.0), (250.0, 75.25), (500.0, 50.5), (900.0, 10.9), (1000.0, 1.0), (1100.0, 1.0)]
        {
            let found = contention_timeout(&mib, Some(metres)).as_secs_f64() * 1e3;
            assert!((found - expected).abs() < 1e-6, "{metres} m: {found} ms");
        }
        assert_eq!(contention_timeout(&mib, None), Duration::from_millis(100));
    }
}
