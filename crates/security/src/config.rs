//! Configuration of the security entity, with defaults.

use std::time::Duration;

use crate::pseudonym::PseudonymStrategy;

/// Policy of the station for unsigned and signed packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SecurityPolicy {
    /// The station neither signs packets nor opens envelopes, as if this crate did not exist.
    #[default]
    Off,
    /// The station signs its own packets, verifies signed packets, and accepts unsigned packets.
    AcceptUnsigned,
    /// The station drops every message that has no valid signature of a permitted signer.
    Strict,
}

impl SecurityPolicy {
    /// Returns the name of the policy in the config file.
    pub const fn name(self) -> &'static str {
        match self {
            SecurityPolicy::Off => "off",
            SecurityPolicy::AcceptUnsigned => "accept_unsigned",
            SecurityPolicy::Strict => "strict",
        }
    }
}

/// Parameters of the security entity.
#[derive(Debug, Clone, PartialEq)]
pub struct SecurityConfig {
    /// Policy for unsigned and signed packets.
    pub policy: SecurityPolicy,
    /// Largest number of messages that wait for verification.
    pub max_queued: usize,
    /// Largest number of messages that wait for a certificate.
    pub max_waiting_for_certificate: usize,
    /// Longest time for which a message waits for its signer's certificate. Senders include the certificate
    /// in a CAM every second.
    pub max_wait_for_certificate: Duration,
    /// Longest wait of a message for verification.
    pub max_wait_for_verification: Duration,
    /// Largest number of verifications per second, within the capacity of the machine.
    pub verifications_per_second: u32,
    /// Largest number of stored tickets of other stations.
    pub max_tickets: usize,
    /// Largest number of authorities learned from other stations.
    pub max_authorities: usize,
    /// Largest number of messages that each of the two replay detectors stores.
    pub max_replay_entries: usize,
    /// Time for which the station accepts further copies of a multi-hop packet after the first copy.
    pub max_copy_delay: Duration,
    /// Largest number of stored octets of envelopes for forwarding.
    pub max_envelope_octets: usize,
    /// Longest age of a single-hop message.
    pub max_single_hop_age: Duration,
    /// Longest age of any other message: `itsGnMaxPacketLifetime`.
    pub max_age: Duration,
    /// Largest accepted lead of a sender's clock over this station's clock.
    pub max_clock_lead: Duration,
    /// Largest difference between the time of the packet's position and the generation time of the message.
    /// Some stations omit leap seconds, and the frame of a roadside unit in the tests is four minutes off.
    pub max_position_age: Duration,
    /// Largest distance in metres of the sender of a single-hop message.
    pub max_single_hop_range: f64,
    /// Largest distance between the packet's source and the generation location of the message, metres.
    pub max_displacement: f64,
    /// Strategy for changes of pseudonym. With `None` the station keeps its address and signs with one ticket
    /// until this ticket expires.
    pub pseudonym_strategy: Option<PseudonymStrategy>,
}

impl Default for SecurityConfig {
    fn default() -> SecurityConfig {
        SecurityConfig {
            policy: SecurityPolicy::Off,
            max_queued: 256,
            max_waiting_for_certificate: 64,
            max_wait_for_certificate: Duration::from_millis(1200),
            max_wait_for_verification: Duration::from_secs(1),
            verifications_per_second: 2000,
            max_tickets: 1024,
            max_authorities: 32,
            max_replay_entries: 8192,
            max_copy_delay: Duration::from_secs(2),
            max_envelope_octets: 1 << 20,
            max_single_hop_age: Duration::from_secs(2),
            max_age: Duration::from_secs(600),
            max_clock_lead: Duration::from_millis(500),
            max_position_age: Duration::from_secs(300),
            max_single_hop_range: 5_000.0,
            max_displacement: 5_000.0,
            pseudonym_strategy: None,
        }
    }
}
