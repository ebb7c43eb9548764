//! Settings of the operator, and their defaults.

use std::time::Duration;

use crate::pseudonym::Strategy;

/// Whom to believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Nothing is signed, envelopes are not opened: packets go as without this crate.
    #[default]
    Off,
    /// Own packets are signed, signed ones verified, those in the open believed as they are.
    AcceptUnsigned,
    /// Drops every message that no permitted signer has signed.
    Strict,
}

impl Policy {
    /// As it is written in configs.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Off => "off",
            Policy::AcceptUnsigned => "accept_unsigned",
            Policy::Strict => "strict",
        }
    }
}

/// Parameters of the security entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Whom to believe.
    pub policy: Policy,
    /// Messages that wait for verification at most.
    pub most_queued: usize,
    /// Messages that wait for a certificate at most, and how long.
    pub most_parked: usize,
    /// How long they wait: a CAM brings its certificate every second.
    pub parked_for: Duration,
    /// How long a message may wait for verification.
    pub queued_for: Duration,
    /// Verifications in a second, at most: what the machine can spare.
    pub verifications_per_second: u32,
    /// Tickets of others that are kept.
    pub most_tickets: usize,
    /// Authorities that are learnt from others.
    pub most_authorities: usize,
    /// Messages that are remembered so that they are not believed twice, of each kind.
    pub most_seen: usize,
    /// How long copies of a packet over several hops are passed on after it was believed.
    pub copies_for: Duration,
    /// Octets of envelopes that are kept for forwarding.
    pub most_envelope_octets: usize,
    /// How old a single-hop message may be.
    pub single_hop_age: Duration,
    /// How old any other message may be: `itsGnMaxPacketLifetime`.
    pub age: Duration,
    /// How far ahead the sender's clock may be.
    pub future: Duration,
    /// How far the time of the packet's position may be from that of the message. Stations on the road forget
    /// leap seconds, and one of the frames in the tests, of a roadside unit, is four minutes off.
    pub position_time: Duration,
    /// How far a neighbour may be, in metres.
    pub single_hop_range: f64,
    /// How far the packet's source may be from where the message was made, in metres.
    pub displacement: f64,
    /// When the station becomes another one; `None`: it stays who it is, and signs with one ticket until that
    /// runs out.
    pub pseudonyms: Option<Strategy>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: Policy::Off,
            most_queued: 256,
            most_parked: 64,
            parked_for: Duration::from_millis(1200),
            queued_for: Duration::from_secs(1),
            verifications_per_second: 2000,
            most_tickets: 1024,
            most_authorities: 32,
            most_seen: 8192,
            copies_for: Duration::from_secs(2),
            most_envelope_octets: 1 << 20,
            single_hop_age: Duration::from_secs(2),
            age: Duration::from_secs(600),
            future: Duration::from_millis(500),
            position_time: Duration::from_secs(300),
            single_hop_range: 5_000.0,
            displacement: 5_000.0,
            pseudonyms: None,
        }
    }
}
