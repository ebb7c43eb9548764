//! Reception: packets that are accepted at once, packets that wait, and verification.

use std::collections::VecDeque;

use carnet_base::Time;
use carnet_geonet::{MacAddress, ReceivedFrame};
use carnet_wire::geonet::{BasicHeader, BasicNextHeader};

use super::{SecurityStation, SecurityTime};
use crate::SecurityDrop;
use crate::certificate::{Certificate, CertificateRole, Issuer};
use crate::config::SecurityPolicy;
use crate::crypto::name_of_certificate;
use crate::ids::HashedId8;
use crate::inspection::{CheckedMessage, check_frame, facilities_message, is_single_hop, rank_of_packet};
use crate::message::{Envelope, Payload, Signer};
use crate::message_permissions::SspBits;
use crate::permissions::Psid;
use crate::queue::Sender;
use crate::replay::MessageFingerprint;
use crate::time::Time64;

/// An accepted packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedPacket {
    /// Link-layer address of the station that sent this copy.
    pub source: MacAddress,
    /// Link-layer destination of the frame.
    pub destination: MacAddress,
    /// The packet without its envelope.
    pub packet: Vec<u8>,
    /// Application of the packet.
    pub psid: Psid,
    /// Name of the signer's ticket.
    pub signer: HashedId8,
}

impl VerifiedPacket {
    /// Returns the frame that the caller passes to the router.
    pub fn to_received_frame(&self) -> ReceivedFrame<'_> {
        ReceivedFrame { source: self.source, destination: self.destination, packet: &self.packet }
    }
}

/// Result of the reception of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandledFrame {
    /// An unsigned packet; the caller passes the received frame to the router.
    Plain,
    /// A further copy of an accepted packet, which the caller passes to the router without verification; the
    /// router handles copies.
    Ready(VerifiedPacket),
    /// The message waits for verification or for a certificate.
    Queued,
}

/// A message before verification.
#[derive(Debug)]
pub(crate) struct UnverifiedMessage {
    source: MacAddress,
    destination: MacAddress,
    octets: Vec<u8>,
    /// Hash of the signed octets.
    hash: Vec<u8>,
}

/// A message that waits for a certificate.
#[derive(Debug)]
pub(crate) struct MessageWithoutCertificate {
    pub deadline: Time,
    /// Name of the missing certificate, of a signer or of an issuer.
    missing_certificate: HashedId8,
    reason: SecurityDrop,
    unverified_message: UnverifiedMessage,
}

fn fingerprint_of_hash(hash: &[u8]) -> MessageFingerprint {
    hash.first_chunk().copied().unwrap_or_default()
}

/// Result of a verification that did not accept the message.
enum VerificationOutcome {
    Drop(SecurityDrop),
    Lacks(HashedId8, SecurityDrop),
}

impl From<SecurityDrop> for VerificationOutcome {
    fn from(reason: SecurityDrop) -> VerificationOutcome {
        VerificationOutcome::Drop(reason)
    }
}

/// Removes the envelope of a secured packet without verifying it, and returns the packet; `None` if the
/// packet has no envelope with a signed payload. The caller uses the function for own packets that the link
/// returns.
pub fn packet_without_envelope(packet: &[u8]) -> Option<Vec<u8>> {
    let basic = BasicHeader::parse(packet).ok()?;
    if basic.next_header != BasicNextHeader::Secured {
        return None;
    }
    let Ok(Envelope::Signed(message)) = Envelope::parse(packet.get(BasicHeader::LEN..)?) else { return None };
    let Payload::Data(inside) = message.payload else { return None };
    Some(rebuild_unsigned_packet(basic, inside))
}

impl SecurityStation {
    /// Handles a received frame.
    ///
    /// # Errors
    /// The reason of the drop, which the function has counted.
    pub fn handle_frame(
        &mut self,
        now: SecurityTime,
        frame: ReceivedFrame<'_>,
    ) -> Result<HandledFrame, SecurityDrop> {
        if self.config.policy == SecurityPolicy::Off {
            return Ok(HandledFrame::Plain);
        }
        // A packet with an invalid Basic Header counts as unsigned; the router drops and counts it later.
        let basic = BasicHeader::parse(frame.packet).ok();
        if basic.is_none_or(|basic| basic.next_header != BasicNextHeader::Secured) {
            if self.config.policy == SecurityPolicy::Strict {
                return Err(self.drop_message(SecurityDrop::Unsecured));
            }
            self.counters.accepted_unsigned += 1;
            return Ok(HandledFrame::Plain);
        }
        self.counters.received_packets += 1;
        self.queue_for_verification(now, frame).map_err(|reason| {
            self.record_message_time(now, frame.packet, reason);
            self.drop_message(reason)
        })
    }

    /// Stores that a message was out of time, because the cause may be this station's own wrong clock.
    fn record_message_time(&mut self, now: SecurityTime, packet: &[u8], reason: SecurityDrop) {
        let out_of_time = matches!(reason, SecurityDrop::TooOld | SecurityDrop::FromTheFuture);
        if !out_of_time || !self.clock_check.should_evaluate(now.time) {
            return;
        }
        let envelope = Envelope::parse(packet.get(BasicHeader::LEN..).unwrap_or_default());
        let Ok(Envelope::Signed(message)) = envelope else { return };
        if let Some(made) = message.header.generation_time {
            let milliseconds = |time: Time64| i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
            self.clock_check.record_message_out_of_time(
                now.time,
                milliseconds(now.certificate_time).saturating_sub(milliseconds(made)),
            );
        }
    }

    fn queue_for_verification(
        &mut self,
        now: SecurityTime,
        frame: ReceivedFrame<'_>,
    ) -> Result<HandledFrame, SecurityDrop> {
        let place = self.own_coordinates();
        let inspected = check_frame(&self.config, frame.packet, now.certificate_time, place)?;
        let message = &inspected.message;
        let hash = self.crypto_backend.hash(message.hash, message.to_be_signed);
        let signer = match &message.signer {
            Signer::Digest(name) => Some(*name),
            Signer::Certificate(certificate) => {
                Some(name_of_certificate(self.crypto_backend.as_ref(), certificate))
            }
            Signer::Itself => None,
        };
        if signer.is_some_and(|name| self.is_own_former_ticket(name)) {
            return Err(SecurityDrop::FormerPseudonym);
        }
        let known_signer = signer.filter(|name| self.certificate_store.has_ticket(*name));
        if self.was_already_accepted(now.time, &inspected, &hash)? {
            let Some(signer) = known_signer else { return Err(SecurityDrop::Replayed) };
            let verified = remove_envelope(&inspected, frame.source, frame.destination, signer);
            self.counters.accepted_copies += 1;
            return Ok(HandledFrame::Ready(verified));
        }
        let rank = rank_of_packet(&inspected.packet, place);
        let stranger = Sender::Stranger(frame.source);
        let sender =
            known_signer.map_or(stranger, |name| self.certificate_store.classify_sender(name, frame.source));
        let pending = UnverifiedMessage {
            source: frame.source,
            destination: frame.destination,
            octets: frame.packet.get(..inspected.frame_length).unwrap_or(frame.packet).to_vec(),
            hash,
        };
        if self.verification_queue.push(now.time, sender, rank, pending).is_some() {
            self.drop_message(SecurityDrop::QueueOverflow);
        }
        Ok(HandledFrame::Queued)
    }

    /// Returns whether the station has accepted this multi-hop packet before. If so, the packet is a copy,
    /// and the router handles it.
    ///
    /// # Errors
    /// [`SecurityDrop::Replayed`] for a replay.
    fn was_already_accepted(
        &self,
        now: Time,
        inspected: &CheckedMessage<'_>,
        hash: &[u8],
    ) -> Result<bool, SecurityDrop> {
        let single = is_single_hop(&inspected.packet);
        let seen = if single { &self.single_hop_replay_detector } else { &self.multi_hop_replay_detector };
        match seen.accepted_at(&fingerprint_of_hash(hash)) {
            // A single-hop packet is never repeated, because the source signs each one anew. So a copy is a
            // replay.
            Some(_) if single => Err(SecurityDrop::Replayed),
            Some(at) if now.saturating_since(at) > self.config.max_copy_delay => Err(SecurityDrop::Replayed),
            Some(_) => Ok(true),
            None if seen.may_have_been_removed(inspected.generation_time) => Err(SecurityDrop::Replayed),
            None => Ok(false),
        }
    }

    /// Verifies waiting messages and returns the next accepted packet. Returns `None` if no message waits, or
    /// the limit of verifications per second is reached.
    pub fn poll_verified(&mut self, now: SecurityTime) -> Option<VerifiedPacket> {
        self.expire_messages_without_certificate(now.time);
        self.envelopes_to_forward.expire_envelopes(now.time);
        while !self.verification_queue.is_empty() && self.verification_limiter.has_token(now.time) {
            let waiting = self.verification_queue.pop_message()?;
            if now.time.saturating_since(waiting.enqueued_at) > self.config.max_wait_for_verification {
                self.drop_message(SecurityDrop::QueuedTooLong);
                continue;
            }
            let pending = waiting.message;
            match self.verify_message(now, &pending) {
                Ok(verified) => {
                    self.counters.verified_packets += 1;
                    self.clock_check.record_verified_message();
                    return Some(verified);
                }
                Err(VerificationOutcome::Drop(reason)) => {
                    self.drop_message(reason);
                }
                Err(VerificationOutcome::Lacks(lacks, reason)) => {
                    self.store_until_certificate_arrives(now, lacks, reason, pending)
                }
            }
        }
        None
    }

    fn verify_message(
        &mut self,
        now: SecurityTime,
        pending: &UnverifiedMessage,
    ) -> Result<VerifiedPacket, VerificationOutcome> {
        let place = self.own_coordinates();
        let inspected = check_frame(&self.config, &pending.octets, now.certificate_time, place)?;
        let message = &inspected.message;
        // While this copy waited, the entity may have accepted another copy.
        let copy = self.was_already_accepted(now.time, &inspected, &pending.hash)?;
        let name = match &message.signer {
            Signer::Digest(name) if self.certificate_store.has_ticket(*name) => *name,
            Signer::Digest(name) => {
                return Err(VerificationOutcome::Lacks(*name, SecurityDrop::UnknownSigner));
            }
            Signer::Certificate(certificate) => self.verify_signer(now, certificate)?,
            Signer::Itself => return Err(SecurityDrop::SelfSigned.into()),
        };
        if copy {
            self.counters.accepted_copies += 1;
            return Ok(remove_envelope(&inspected, pending.source, pending.destination, name));
        }
        self.check_ticket(now, &inspected, name)?;
        self.verification_limiter.try_take_token(now.time);
        self.counters.verified_signatures += 1;
        let ticket = self.certificate_store.ticket(name).ok_or(SecurityDrop::UnknownSigner)?;
        if !ticket.verifies_signature(&pending.hash, &message.signature) {
            return Err(SecurityDrop::BadSignature.into());
        }
        if is_single_hop(&inspected.packet) {
            self.certificate_store.store_holder_address(name, pending.source);
        }
        self.accept_message(now, &inspected, pending);
        Ok(remove_envelope(&inspected, pending.source, pending.destination, name))
    }

    /// Returns the name of the ticket that a message carries. Verifies the ticket first if the station does
    /// not know it.
    fn verify_signer(
        &mut self,
        now: SecurityTime,
        certificate: &Certificate,
    ) -> Result<HashedId8, VerificationOutcome> {
        let name = name_of_certificate(self.crypto_backend.as_ref(), certificate);
        if self.certificate_store.has_ticket(name) {
            return Ok(name);
        }
        if certificate.certificate_role() != CertificateRole::Ticket {
            return Err(SecurityDrop::WrongRole.into());
        }
        self.verification_limiter.try_take_token(now.time);
        self.counters.verified_signatures += 1;
        let (backend, countries) = (self.crypto_backend.as_ref(), self.country_finder.as_ref());
        match self.certificate_store.verify_certificate(
            backend,
            certificate.clone(),
            now.certificate_time,
            countries,
        ) {
            Ok(ticket) => {
                self.certificate_store.add_ticket(ticket);
                // The ticket is new, so its holder may be new here and may lack this station's certificate
                // (TS 103 097 7.1.1).
                self.own_identity.include_certificate_in_next_cam();
                self.requeue_waiting_messages(now, name);
                Ok(name)
            }
            Err(SecurityDrop::UnknownIssuer) => match certificate.issuer() {
                Issuer::Digest(_, issuer) => {
                    Err(VerificationOutcome::Lacks(issuer, SecurityDrop::UnknownIssuer))
                }
                Issuer::Itself(_) => Err(SecurityDrop::UnknownIssuer.into()),
            },
            Err(reason) => Err(reason.into()),
        }
    }

    /// Checks the ticket's validity, region and permissions.
    fn check_ticket(
        &mut self,
        now: SecurityTime,
        inspected: &CheckedMessage<'_>,
        name: HashedId8,
    ) -> Result<(), SecurityDrop> {
        let psid = inspected.message.header.psid;
        let countries = self.country_finder.as_ref();
        let ticket = self.certificate_store.ticket(name).ok_or(SecurityDrop::UnknownSigner)?;
        let content = ticket.certificate().content();
        if inspected.message.signature.curve() != content.verification_key.curve() {
            return Err(SecurityDrop::AlgorithmMismatch);
        }
        ticket.check_date(now.certificate_time)?;
        // IEEE 1609.2 5.2.3.2.2: the generation time lies in the validity of the ticket.
        ticket.check_date(inspected.generation_time)?;
        let permissions = content.permission_for(psid).ok_or(SecurityDrop::NoPermission)?;
        if !ticket.is_valid_at(inspected.generation_position, countries) {
            return Err(SecurityDrop::OutsideRegion);
        }
        let claims = SspBits::bits_of_message(psid, facilities_message(inspected.packet.payload))
            .ok_or(SecurityDrop::BadPacket)?;
        if claims.are_permitted_by(permissions) { Ok(()) } else { Err(SecurityDrop::NoServicePermission) }
    }

    /// Handles the other fields of a message whose signature is valid, such as requests for certificates.
    fn accept_message(
        &mut self,
        now: SecurityTime,
        inspected: &CheckedMessage<'_>,
        pending: &UnverifiedMessage,
    ) {
        let single = is_single_hop(&inspected.packet);
        let (seen, age) = if single {
            (&mut self.single_hop_replay_detector, self.config.max_single_hop_age)
        } else {
            (&mut self.multi_hop_replay_detector, self.config.max_age)
        };
        seen.insert(
            now.time,
            fingerprint_of_hash(&pending.hash),
            inspected.generation_time,
            now.certificate_time.saturating_sub(age),
        );
        let source = inspected.packet.extended.source().address.mid();
        if let Some(sequence) = inspected.packet.extended.sequence() {
            // Keep the envelope for twice the packet's lifetime: the router may send a buffered packet at the
            // end of its lifetime.
            let until = now.time + inspected.packet.basic.lifetime.duration() * 2;
            let envelope = pending.octets.get(BasicHeader::LEN..).unwrap_or_default();
            self.envelopes_to_forward.insert(until, (source, sequence), envelope);
        }
        let header = &inspected.message.header;
        for wanted in header.inline_requests.iter() {
            self.own_identity.record_certificate_request(wanted, &self.certificate_store);
        }
        if let Some(certificate) = &header.requested_certificate {
            self.learn_authority(now, certificate);
        }
    }

    /// Stores the certificate of an authority that another station sent on request.
    fn learn_authority(&mut self, now: SecurityTime, certificate: &Certificate) {
        let name = name_of_certificate(self.crypto_backend.as_ref(), certificate);
        self.own_identity.record_certificate_sent_by_other(name);
        if certificate.certificate_role() != CertificateRole::Authority
            || self.certificate_store.issuer(name).is_some()
        {
            return;
        }
        self.verification_limiter.try_take_token(now.time);
        self.counters.verified_signatures += 1;
        let (backend, countries) = (self.crypto_backend.as_ref(), self.country_finder.as_ref());
        match self.certificate_store.add_authority(
            backend,
            certificate.clone(),
            now.certificate_time,
            countries,
            false,
        ) {
            Ok(name) => self.requeue_waiting_messages(now, name),
            Err(reason) => {
                self.drop_message(reason);
            }
        }
    }

    fn store_until_certificate_arrives(
        &mut self,
        now: SecurityTime,
        lacks: HashedId8,
        reason: SecurityDrop,
        pending: UnverifiedMessage,
    ) {
        self.own_identity.request_certificate(lacks.last_three_octets());
        if reason == SecurityDrop::UnknownSigner {
            self.own_identity.include_certificate_in_next_cam();
        }
        if self.messages_without_certificate.len() >= self.config.max_waiting_for_certificate {
            // Any station can send messages whose certificate is missing. So if a source already uses a
            // quarter of the room, its new message replaces one of its own messages.
            let his = |parked: &MessageWithoutCertificate| parked.unverified_message.source == pending.source;
            let crowd = self.messages_without_certificate.iter().filter(|parked| his(parked)).count();
            let own = self
                .messages_without_certificate
                .iter()
                .position(his)
                .filter(|_| crowd >= self.config.max_waiting_for_certificate.div_ceil(4));
            self.messages_without_certificate.remove(own.unwrap_or_default());
            self.drop_message(SecurityDrop::WaitingOverflow);
        }
        if self.config.max_waiting_for_certificate > 0 {
            self.messages_without_certificate.push_back(MessageWithoutCertificate {
                deadline: now.time + self.config.max_wait_for_certificate,
                missing_certificate: lacks,
                reason,
                unverified_message: pending,
            });
        }
    }

    fn expire_messages_without_certificate(&mut self, now: Time) {
        while self.messages_without_certificate.front().is_some_and(|parked| parked.deadline <= now) {
            if let Some(parked) = self.messages_without_certificate.pop_front() {
                self.drop_message(parked.reason);
            }
        }
    }

    /// Puts the messages that waited for the certificate `name` into the verification queue.
    fn requeue_waiting_messages(&mut self, now: SecurityTime, name: HashedId8) {
        self.own_identity.end_certificate_request(name.last_three_octets());
        let place = self.own_coordinates();
        let (go_on, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.messages_without_certificate)
                .into_iter()
                .partition(|parked| parked.missing_certificate == name);
        self.messages_without_certificate = stay;
        for parked in go_on {
            let rank =
                check_frame(&self.config, &parked.unverified_message.octets, now.certificate_time, place)
                    .map(|inspected| rank_of_packet(&inspected.packet, place));
            let given_up = match rank {
                Ok(rank) => {
                    // If `missing_certificate` is an issuer and not the signer, the sender counts as unknown.
                    let sender = self
                        .certificate_store
                        .classify_sender(parked.missing_certificate, parked.unverified_message.source);
                    let given_up =
                        self.verification_queue.push(now.time, sender, rank, parked.unverified_message);
                    given_up.map(|_| SecurityDrop::QueueOverflow)
                }
                Err(reason) => Some(reason),
            };
            if let Some(reason) = given_up {
                self.drop_message(reason);
            }
        }
    }
}

/// Returns the packet without its envelope.
fn remove_envelope(
    inspected: &CheckedMessage<'_>,
    source: MacAddress,
    destination: MacAddress,
    signer: HashedId8,
) -> VerifiedPacket {
    let packet = rebuild_unsigned_packet(inspected.packet.basic, inspected.plain_packet);
    VerifiedPacket { source, destination, packet, psid: inspected.message.header.psid, signer }
}

/// Returns the packet as an unsigned one: its Basic Header and the content of its envelope.
fn rebuild_unsigned_packet(basic: BasicHeader, inside: &[u8]) -> Vec<u8> {
    let basic = BasicHeader { next_header: BasicNextHeader::Common, ..basic };
    let mut packet = Vec::with_capacity(BasicHeader::LEN + inside.len());
    packet.extend_from_slice(&basic.to_octets());
    packet.extend_from_slice(inside);
    packet
}
