//! The security entity of a station (EN 302 665, TS 102 731): between the link and the GeoNetworking router.
//!
//! ```text
//!   link --frame--> handle_frame --> Plain ----------------------------------> router.handle_frame
//!                        |  `----> Ready (a copy of what was believed) ------> router.handle_frame
//!                        v
//!                   queue (bounded, by rank) --> poll_verified --> Verified -> router.handle_frame
//!   link <--frame-- secure <-------------------- router.poll_output: Transmit, own packets and others' alike
//! ```
//!
//! Procedure for a station with a security entity (its two interfaces are SN-DECAP and SN-ENCAP of EN 302
//! 636-4-1):
//!
//! 1. For a received frame the caller calls [`SecurityStation::handle_frame`]. On `Plain` it passes the frame
//!    to the router unchanged, on `Ready` it passes the packet. `Queued` means that the message waits. On an
//!    error the function has dropped the packet and counted the reason.
//! 2. After each frame, and when [`SecurityStation::poll_timeout`] is due, the caller calls
//!    [`SecurityStation::poll_verified`] until it returns `None`. It passes each result to the router:
//!    link-layer sender and destination unchanged, the packet with a plain Basic Header. The function
//!    verifies only as many messages a second as the config allows. So the loop ends, and a flood costs a
//!    bounded amount of work.
//! 3. Packets that the router transmits go through [`SecurityStation::secure_packet`]. The function signs own
//!    packets, and puts packets of other stations back into their envelope.
//! 4. After a new position the caller calls [`SecurityStation::handle_position`] and then
//!    [`SecurityStation::poll_identity`], which returns a change of identity ([`crate::pseudonym`]). After a
//!    new address it calls [`SecurityStation::handle_address`].
//!
//! The router sees only packets without envelope. One behaviour differs from a station without security. The
//! router may write a newer position of the destination into a packet that it forwards (EN 302 636-4-1 C.3).
//! The envelope keeps the old position, because only the source can sign.

mod identity;
mod receive;
mod send;

pub use receive::{HandledFrame, VerifiedPacket, packet_without_envelope};
pub use send::Ticket;

use std::collections::VecDeque;

use carnet_base::{DropReason, RateLimiter, Rng, Time};
use carnet_geonet::geodesy::Position;

use crate::SecurityDrop;
use crate::certificate::Certificate;
use crate::clock::ClockCheck;
use crate::config::SecurityConfig;
use crate::crypto::CryptoBackend;
use crate::envelopes::EnvelopeTable;
use crate::ids::HashedId8;
use crate::pseudonym::PseudonymChanger;
use crate::queue::VerificationQueue;
use crate::region::CountryFinder;
use crate::replay::ReplayDetector;
use crate::store::CertificateStore;
use crate::time::Time64;

/// The time of a monotonic clock, and the date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityTime {
    /// Monotonic time, for waiting messages.
    pub time: Time,
    /// Date, for certificates and messages.
    pub certificate_time: Time64,
}

/// Counters of the security entity.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Secured packets received.
    pub received_packets: u64,
    /// Secured packets accepted after verification.
    pub verified_packets: u64,
    /// Copies of verified packets that passed without another verification.
    pub accepted_copies: u64,
    /// Unsigned packets that passed.
    pub accepted_unsigned: u64,
    /// Verified signatures of messages and certificates.
    pub verified_signatures: u64,
    /// Own packets signed.
    pub signed_packets: u64,
    /// Own packets signed with the certificate in the envelope.
    pub with_certificate: u64,
    /// Packets of other stations forwarded in their envelope.
    pub forwarded_packets: u64,
    /// Requests for certificates sent.
    pub sent_certificate_requests: u64,
    /// Changes of pseudonym.
    pub pseudonym_changes: u64,
    dropped: [u64; SecurityDrop::ALL.len()],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            received_packets: 0,
            verified_packets: 0,
            accepted_copies: 0,
            accepted_unsigned: 0,
            verified_signatures: 0,
            signed_packets: 0,
            with_certificate: 0,
            forwarded_packets: 0,
            sent_certificate_requests: 0,
            pseudonym_changes: 0,
            dropped: [0; SecurityDrop::ALL.len()],
        }
    }
}

impl Counters {
    /// Returns the number of packets dropped for `reason`.
    pub fn dropped(&self, reason: SecurityDrop) -> u64 {
        self.dropped.get(reason as usize).copied().unwrap_or_default()
    }

    /// Returns every reason with its number of dropped packets.
    pub fn dropped_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        SecurityDrop::ALL
            .iter()
            .map(|reason| (reason.name(), self.dropped(*reason)))
            .filter(|(_, count)| *count > 0)
    }
}

/// Security entity of a station. The module documentation says which functions the caller must call.
#[derive(Debug)]
pub struct SecurityStation {
    config: SecurityConfig,
    crypto_backend: Box<dyn CryptoBackend>,
    country_finder: Box<dyn DebugCountryFinder>,
    certificate_store: CertificateStore,
    own_identity: send::OwnIdentity,
    /// State of the changes of pseudonym; `None` if pseudonyms are off.
    pseudonym_state: Option<PseudonymChanger>,
    own_position: Option<(Position, u16)>,
    verification_queue: VerificationQueue<receive::UnverifiedMessage>,
    /// Messages that wait for the certificate of a signer or an issuer.
    messages_without_certificate: VecDeque<receive::MessageWithoutCertificate>,
    single_hop_replay_detector: ReplayDetector,
    multi_hop_replay_detector: ReplayDetector,
    envelopes_to_forward: EnvelopeTable,
    verification_limiter: RateLimiter,
    counters: Counters,
    clock_check: ClockCheck,
}

/// [`CountryFinder`] that also implements `Debug`.
pub trait DebugCountryFinder: CountryFinder + std::fmt::Debug + Send {}
impl<T: CountryFinder + std::fmt::Debug + Send> DebugCountryFinder for T {}

impl SecurityStation {
    /// Creates an entity without trusted certificates and tickets.
    pub fn new(
        config: SecurityConfig,
        backend: Box<dyn CryptoBackend>,
        countries: Box<dyn DebugCountryFinder>,
        mut rng: Rng,
    ) -> SecurityStation {
        let rate = config.verifications_per_second.max(1);
        let interval = std::time::Duration::from_secs(1) / rate;
        let pseudonym = config
            .pseudonym_strategy
            .clone()
            .map(|strategy| PseudonymChanger::new(strategy, rng.fork_generator()));
        SecurityStation {
            pseudonym_state: pseudonym,
            certificate_store: CertificateStore::new(config.max_authorities, config.max_tickets.max(1)),
            own_identity: send::OwnIdentity::new(rng),
            own_position: None,
            verification_queue: VerificationQueue::new(config.max_queued.max(1)),
            messages_without_certificate: VecDeque::new(),
            single_hop_replay_detector: ReplayDetector::new(config.max_replay_entries.max(1)),
            multi_hop_replay_detector: ReplayDetector::new(config.max_replay_entries.max(1)),
            envelopes_to_forward: EnvelopeTable::new(config.max_envelope_octets),
            // The entity may at once verify as many messages as it may verify in a tenth of a second.
            verification_limiter: RateLimiter::new((rate / 10).max(2), interval),
            counters: Counters::default(),
            clock_check: ClockCheck::default(),
            config,
            crypto_backend: backend,
            country_finder: countries,
        }
    }

    /// Adds a trusted root.
    ///
    /// # Errors
    /// The errors of [`CertificateStore::add_root`].
    pub fn add_root(&mut self, certificate: Certificate) -> Result<HashedId8, SecurityDrop> {
        self.certificate_store.add_root(self.crypto_backend.as_ref(), certificate)
    }

    /// Adds the certificate of an authority below a trusted root. If the certificate is not valid now, the
    /// function checks it for the nearest date of its validity, because the station's clock may be wrong.
    /// Each later verification of a message checks the validity again.
    ///
    /// # Errors
    ///
    /// The errors of [`CertificateStore::add_authority`].
    pub fn add_authority(
        &mut self,
        now: SecurityTime,
        certificate: Certificate,
    ) -> Result<HashedId8, SecurityDrop> {
        let date = certificate.content().validity.nearest_valid_time(now.certificate_time);
        self.certificate_store.add_authority(
            self.crypto_backend.as_ref(),
            certificate,
            date,
            self.country_finder.as_ref(),
            true,
        )
    }

    /// Removes a certificate and the certificates that its holder issued. Returns false if the certificate is
    /// unknown.
    pub fn remove(&mut self, name: HashedId8) -> bool {
        self.certificate_store.remove(name)
    }

    /// Revokes a certificate and all certificates that its holder issued. The entity does not learn them
    /// again from received messages.
    pub fn revoke_certificate(&mut self, name: HashedId8) {
        self.certificate_store.revoke_certificate(name);
    }

    /// Handles the position of the station; elevation in the coding of [`crate::message::ThreeDLocation`].
    pub fn handle_position(&mut self, position: Position, elevation: u16) {
        self.own_position = position.is_on_earth().then_some((position, elevation));
    }

    /// Handles a new MID of the station's GN address.
    pub fn handle_address(&mut self, mid: [u8; 6]) {
        self.own_identity.mid = mid;
    }

    /// Returns the cryptographic back end.
    pub fn backend(&self) -> &dyn CryptoBackend {
        self.crypto_backend.as_ref()
    }

    /// Returns the configuration.
    pub const fn config(&self) -> &SecurityConfig {
        &self.config
    }

    /// Returns the certificate store.
    pub const fn store(&self) -> &CertificateStore {
        &self.certificate_store
    }

    /// Returns the counters since the start.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the milliseconds by which this station's clock is ahead of the clocks of all signed neighbours
    /// (negative: behind). Returns `None` if any neighbour's message is in time, or if no message arrives.
    pub fn clock_lead_ms(&self, now: Time) -> Option<i64> {
        self.clock_check.clock_lead_ms(now)
    }

    /// Returns the number of messages that wait for verification, and for certificates.
    pub fn waiting_messages(&self) -> (usize, usize) {
        (self.verification_queue.len(), self.messages_without_certificate.len())
    }

    /// Returns the time at which the caller must next call [`Self::poll_verified`] if no frame arrives
    /// before.
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        let next =
            (!self.verification_queue.is_empty()).then(|| self.verification_limiter.token_available_at(now));
        let parked = self.messages_without_certificate.front().map(|parked| parked.deadline);
        [next, parked].into_iter().flatten().min()
    }

    fn own_coordinates(&self) -> Option<Position> {
        self.own_position.map(|(place, _)| place)
    }

    fn drop_message(&mut self, reason: SecurityDrop) -> SecurityDrop {
        if let Some(count) = self.counters.dropped.get_mut(reason as usize) {
            *count += 1;
        }
        reason
    }
}
