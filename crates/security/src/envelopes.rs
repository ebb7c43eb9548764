//! Envelopes of accepted packets, for forwarding. A forwarder does not sign: it sends the source's signed
//! octets with another Basic Header (EN 302 636-4-1 10.3.8 to 10.3.12).
//!
//! The router handles packets without envelopes. When it forwards a packet, this module adds the envelope in
//! which the packet arrived. Source and sequence number identify the packet.

use std::collections::{BTreeMap, VecDeque};

use carnet_base::Time;

/// MID of a packet's source, and the sequence number.
pub type PacketIdentity = ([u8; 6], u16);

/// Envelopes by packet.
#[derive(Debug)]
pub struct EnvelopeTable {
    envelopes_by_packet: BTreeMap<PacketIdentity, Vec<u8>>,
    packets_by_time: VecDeque<(Time, PacketIdentity)>,
    octets: usize,
    max_octets: usize,
}

impl EnvelopeTable {
    /// Creates a table with room for `room` octets.
    pub const fn new(room: usize) -> EnvelopeTable {
        EnvelopeTable {
            envelopes_by_packet: BTreeMap::new(),
            packets_by_time: VecDeque::new(),
            octets: 0,
            max_octets: room,
        }
    }

    /// Stores an envelope until `until`; if there is no room, removes the oldest envelopes. If the packet
    /// already has an envelope, that envelope stays unchanged.
    pub fn insert(&mut self, until: Time, identity: PacketIdentity, envelope: &[u8]) {
        if self.envelopes_by_packet.contains_key(&identity) || envelope.len() > self.max_octets {
            return;
        }
        while self.octets + envelope.len() > self.max_octets && self.remove_oldest() {}
        self.octets += envelope.len();
        self.envelopes_by_packet.insert(identity, envelope.to_vec());
        self.packets_by_time.push_back((until, identity));
    }

    /// Returns the envelope of a packet; `None` if the table does not have it.
    pub fn get(&self, identity: &PacketIdentity) -> Option<&[u8]> {
        self.envelopes_by_packet.get(identity).map(Vec::as_slice)
    }

    /// Removes the envelopes of expired packets. Envelopes are in order of arrival, so an expired one remains
    /// until all earlier ones have expired.
    pub fn expire_envelopes(&mut self, now: Time) {
        while self.packets_by_time.front().is_some_and(|(until, _)| *until <= now) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) -> bool {
        let Some((_, identity)) = self.packets_by_time.pop_front() else { return false };
        self.octets -= self.envelopes_by_packet.remove(&identity).map_or(0, |envelope| envelope.len());
        true
    }
}
