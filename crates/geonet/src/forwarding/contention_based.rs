//! Contention-based forwarding (E.3, F.3): the timer, and the buffer of packets in contention.
//!
//! A station that receives a packet starts a timer. In an area the timer is shorter the farther the sender
//! is. On the path to an area it is shorter the more progress the station makes. The station repeats the
//! packet if no other station has done so before. The buffer is bounded by octets and drops its oldest
//! packet.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::MacAddress;
use crate::Mib;
use crate::buffers::Waiting;
use crate::location_table::SeededHash;

/// TO = MAX + (MIN - MAX) / DIST_MAX * distance, MIN beyond DIST_MAX (F.3); `None` for an unknown distance:
/// MAX. Metres.
pub fn timeout(mib: &Mib, distance: Option<f64>) -> Duration {
    let Some(distance) = distance else { return mib.cbf_max_time };
    if distance >= mib.max_communication_range {
        return mib.cbf_min_time;
    }
    let (min, max) = (mib.cbf_min_time.as_secs_f64(), mib.cbf_max_time.as_secs_f64());
    let span = max + (min - max) / mib.max_communication_range * distance.max(0.0);
    Duration::try_from_secs_f64(span).unwrap_or(mib.cbf_max_time)
}

/// MID of the source and sequence number.
pub(crate) type Identity = (u64, u16);

/// A packet in contention.
#[derive(Debug)]
pub(crate) struct Contender {
    pub packet: Waiting,
    /// From whom it came.
    pub sender: MacAddress,
    /// Copies heard so far.
    pub copies: u32,
    /// By the rules of F.4; otherwise the first copy ends it.
    pub advanced: bool,
    /// Its place in the order of arrival.
    order: u64,
}

/// The packets in contention (`itsGnCbfPacketBufferSize`).
#[derive(Debug)]
pub(crate) struct ContentionBuffer {
    packets: HashMap<Identity, Contender, SeededHash>,
    order: BTreeMap<u64, Identity>,
    next: u64,
    octets: usize,
}

impl ContentionBuffer {
    pub fn new(seed: u64) -> ContentionBuffer {
        ContentionBuffer {
            packets: HashMap::with_hasher(SeededHash(seed)),
            order: BTreeMap::new(),
            next: 0,
            octets: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn octets(&self) -> usize {
        self.octets
    }

    pub fn contains(&self, identity: Identity) -> bool {
        !self.packets.is_empty() && self.packets.contains_key(&identity)
    }

    pub fn get_mut(&mut self, identity: Identity) -> Option<&mut Contender> {
        self.packets.get_mut(&identity)
    }

    /// Adds a packet that is not in it; `pushed_out` gets those that make room.
    pub fn insert(
        &mut self,
        packet: Waiting,
        sender: MacAddress,
        advanced: bool,
        limit: usize,
        mut pushed_out: impl FnMut(Waiting),
    ) {
        if packet.frame.len() > limit {
            return pushed_out(packet);
        }
        while self.octets + packet.frame.len() > limit
            && let Some((_, oldest)) = self.order.first_key_value()
            && let Some(oldest) = self.remove(*oldest)
        {
            pushed_out(oldest.packet);
        }
        let identity = packet.meta.identity;
        self.octets += packet.frame.len();
        self.order.insert(self.next, identity);
        self.packets.insert(identity, Contender { packet, sender, copies: 1, advanced, order: self.next });
        self.next += 1;
    }

    pub fn remove(&mut self, identity: Identity) -> Option<Contender> {
        let contender = self.packets.remove(&identity)?;
        self.order.remove(&contender.order);
        self.octets -= contender.packet.frame.len();
        Some(contender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F.3, with the numbers of the reference.
    #[test]
    fn the_formula() {
        let mib = Mib::default();
        for (metres, expected) in
            [(0.0, 100.0), (250.0, 75.25), (500.0, 50.5), (900.0, 10.9), (1000.0, 1.0), (1100.0, 1.0)]
        {
            let found = timeout(&mib, Some(metres)).as_secs_f64() * 1e3;
            assert!((found - expected).abs() < 1e-6, "{metres} m: {found} ms");
        }
        assert_eq!(timeout(&mib, None), Duration::from_millis(100));
    }
}
