//! Transmission: signs own packets by the profiles of TS 103 097 7.1, and puts packets of other stations back
//! into their envelope.
//!
//! A CAM names its signer by a digest. It carries the certificate once a second, when another station
//! requests it, and when a new station appears (7.1.1). CAMs also carry requests for certificates that this
//! station lacks (inlineP2pcdRequest), and a certificate of an authority that other stations lack
//! (requestedCertificate). The station does not send that certificate if another station has sent it first.
//! DENMs and all other packets have the signer's certificate and the generation location (7.1.2, 7.1.3).

use std::collections::BTreeSet;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::Position;
use carnet_wire::geonet::{BasicHeader, BasicNextHeader, CommonNextHeader, Packet};

use super::{SecurityStation, SecurityTime};
use crate::SecurityDrop;
use crate::certificate::Certificate;
use crate::config::SecurityPolicy;
use crate::crypto::{SigningKey, signature_input};
use crate::ids::{HashedId3, HashedId8};
use crate::inspection::{application_of_packet, application_of_payload, facilities_message};
use crate::message::{
    HeaderInfo, MAX_REQUESTED_CERTIFICATES, Signer, ThreeDLocation, emit_signed_message, to_be_signed,
};
use crate::message_permissions::SspBits;
use crate::permissions::Psid;
use crate::store::{CertificateStore, TrustedCertificate};
use crate::time::{Time64, ValidityPeriod};

/// Interval at which CAMs carry the certificate (TS 103 097 7.1.1).
pub const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(1);

/// A certificate of this station and its key.
#[derive(Debug)]
pub struct Ticket {
    /// The certificate.
    pub certificate: Certificate,
    /// The key.
    pub key: Box<dyn SigningKey>,
}

#[derive(Debug)]
struct OwnTicket {
    trusted_certificate: TrustedCertificate,
    key: Box<dyn SigningKey>,
}

impl OwnTicket {
    const fn name(&self) -> HashedId8 {
        self.trusted_certificate.name()
    }

    const fn validity(&self) -> &ValidityPeriod {
        &self.trusted_certificate.certificate().content().validity
    }
}

/// State of the station's own identity.
#[derive(Debug)]
pub(crate) struct OwnIdentity {
    pub mid: [u8; 6],
    tickets: Vec<OwnTicket>,
    /// Own tickets whose validity had ended when they were added. The station's clock may have been ahead, so
    /// the entity adds them once the clock is within their validity.
    expired_tickets: Vec<Ticket>,
    /// Latest end of the expired tickets' validity.
    latest_expired_ticket_end: Time64,
    current_index: usize,
    /// Time of the last CAM that carried the certificate.
    certificate_last_sent_at: Option<Time>,
    /// Whether the next CAM carries the certificate.
    is_certificate_due: bool,
    certificates_to_request: BTreeSet<HashedId3>,
    /// Certificate of an authority that another station has requested.
    requested_authority: Option<HashedId8>,
    rng: Rng,
}

impl OwnIdentity {
    pub const fn new(rng: Rng) -> OwnIdentity {
        OwnIdentity {
            mid: [0; 6],
            tickets: Vec::new(),
            expired_tickets: Vec::new(),
            latest_expired_ticket_end: Time64(0),
            current_index: 0,
            certificate_last_sent_at: None,
            is_certificate_due: false,
            certificates_to_request: BTreeSet::new(),
            requested_authority: None,
            rng,
        }
    }

    /// Makes the next CAM carry the certificate, because a new station may not know it.
    pub const fn include_certificate_in_next_cam(&mut self) {
        self.is_certificate_due = true;
    }

    /// Notes a request of another station for a certificate.
    pub fn record_certificate_request(&mut self, wanted: HashedId3, store: &CertificateStore) {
        let current = self.tickets.get(self.current_index);
        if current.is_some_and(|own| own.name().last_three_octets() == wanted) {
            self.is_certificate_due = true;
        } else if let Some(authority) = store.authority_by_short_name(wanted) {
            self.requested_authority = Some(authority.name());
        }
    }

    /// Handles a requested certificate that another station has sent: this station need not send it any more.
    pub fn record_certificate_sent_by_other(&mut self, name: HashedId8) {
        if self.requested_authority == Some(name) {
            self.requested_authority = None;
        }
    }

    /// Makes the next CAM request this certificate from other stations.
    pub fn request_certificate(&mut self, name: HashedId3) {
        if self.certificates_to_request.len() < MAX_REQUESTED_CERTIFICATES {
            self.certificates_to_request.insert(name);
        }
    }

    /// Ends the request for a certificate that has arrived.
    pub fn end_certificate_request(&mut self, name: HashedId3) {
        self.certificates_to_request.remove(&name);
    }
}

impl SecurityStation {
    /// Adds an own ticket and its key. The entity stores a ticket whose validity has ended. It uses the
    /// ticket later if the clock was ahead and is set back.
    ///
    /// # Errors
    ///
    /// [`SecurityDrop::BadKey`] if the key does not match the certificate,
    /// [`SecurityDrop::CertificateExpired`] if the validity has ended. The other errors are those for
    /// received tickets, because other stations would reject this ticket.
    pub fn add_own_ticket(&mut self, now: SecurityTime, ticket: Ticket) -> Result<HashedId8, SecurityDrop> {
        if ticket.key.public_key() != ticket.certificate.content().verification_key {
            return Err(SecurityDrop::BadKey);
        }
        let end = ticket.certificate.content().validity.first_invalid_time();
        if end <= now.certificate_time {
            self.own_identity.latest_expired_ticket_end =
                self.own_identity.latest_expired_ticket_end.max(end);
            self.own_identity.expired_tickets.push(ticket);
            return Err(SecurityDrop::CertificateExpired);
        }
        self.verify_own_ticket(now, ticket)
    }

    fn verify_own_ticket(&mut self, now: SecurityTime, ticket: Ticket) -> Result<HashedId8, SecurityDrop> {
        let (backend, countries) = (self.crypto_backend.as_ref(), self.country_finder.as_ref());
        // Authorities issue pseudonyms weeks in advance, so check the ticket for the beginning of its
        // validity.
        let date = ticket.certificate.content().validity.nearest_valid_time(now.certificate_time);
        let trusted =
            self.certificate_store.verify_certificate(backend, ticket.certificate, date, countries)?;
        let name = trusted.name();
        self.own_identity.tickets.push(OwnTicket { trusted_certificate: trusted, key: ticket.key });
        Ok(name)
    }

    /// Adds the expired tickets that are valid by the present date.
    pub(super) fn restore_valid_tickets(&mut self, now: SecurityTime) {
        if now.certificate_time >= self.own_identity.latest_expired_ticket_end {
            return;
        }
        let all = std::mem::take(&mut self.own_identity.expired_tickets);
        let is_over = |ticket: &Ticket| {
            ticket.certificate.content().validity.first_invalid_time() <= now.certificate_time
        };
        let (over, revived): (Vec<_>, Vec<_>) = all.into_iter().partition(is_over);
        let ends = over.iter().map(|ticket| ticket.certificate.content().validity.first_invalid_time());
        self.own_identity.latest_expired_ticket_end = ends.max().unwrap_or(Time64(0));
        self.own_identity.expired_tickets = over;
        for ticket in revived {
            // A ticket that other stations would reject must not sign. The entity could not check this ticket
            // when it was added, because by the clock its validity had ended.
            let _ = self.verify_own_ticket(now, ticket);
        }
    }

    /// Returns the names of the valid own tickets.
    pub fn own_tickets(&self, now: SecurityTime) -> Vec<HashedId8> {
        let holds = |own: &&OwnTicket| own.validity().contains_time(now.certificate_time);
        self.own_identity.tickets.iter().filter(holds).map(|own| own.name()).collect()
    }

    /// Returns the validity of each own ticket. The first is the ticket that signs on this date, with its
    /// name. The function does not return the names of the other tickets: an observer who knew several names
    /// could link the station's pseudonyms.
    pub fn own_ticket_validities(&self, now: SecurityTime) -> (Option<HashedId8>, Vec<ValidityPeriod>) {
        let tickets = &self.own_identity.tickets;
        let holds = |own: &&OwnTicket| own.validity().contains_time(now.certificate_time);
        let current = tickets.get(self.own_identity.current_index).filter(holds);
        let signs = current.or_else(|| tickets.iter().find(holds)).map(OwnTicket::name);
        let (first, others): (Vec<_>, Vec<_>) = tickets.iter().partition(|own| Some(own.name()) == signs);
        (signs, first.into_iter().chain(others).map(|own| *own.validity()).collect())
    }

    /// Returns the name of the ticket that signs now; `None` if the station has no ticket.
    pub fn current_ticket(&self) -> Option<HashedId8> {
        self.own_identity.tickets.get(self.own_identity.current_index).map(|own| own.name())
    }

    /// Makes another own ticket the current one. Returns false if the station has no ticket of this name. The
    /// caller also changes the addresses of router and facilities, because otherwise they would link both
    /// tickets.
    pub fn use_ticket(&mut self, name: HashedId8) -> bool {
        let found = self.own_identity.tickets.iter().position(|own| own.name() == name);
        if let Some(found) = found {
            self.own_identity.current_index = found;
            // Other stations do not know the new ticket yet, so the next CAM carries its certificate.
            // Requests for the old ticket no longer matter.
            (
                self.own_identity.certificate_last_sent_at,
                self.own_identity.is_certificate_due,
                self.own_identity.requested_authority,
            ) = (None, false, None);
        }
        found.is_some()
    }

    /// Returns the names of the own tickets for whose validity period `is` returns true.
    pub(super) fn own_tickets_where<'a>(
        &'a self,
        is: impl Fn(&ValidityPeriod) -> bool + 'a,
    ) -> impl Iterator<Item = HashedId8> + 'a {
        self.own_identity.tickets.iter().filter(move |own| is(own.validity())).map(OwnTicket::name)
    }

    pub(super) fn is_own_ticket(&self, name: HashedId8) -> bool {
        self.own_identity.tickets.iter().any(|own| own.name() == name)
    }

    /// Returns a random element; `None` for an empty list.
    pub(super) fn choose_random_ticket(&mut self, choice: &[HashedId8]) -> Option<HashedId8> {
        let number = if choice.is_empty() {
            0
        } else {
            self.own_identity.rng.number_below(choice.len() as u64) as usize
        };
        choice.get(number).copied()
    }

    /// Changes to a valid ticket if the current one is not valid. Returns false if no own ticket is valid.
    pub fn replace_invalid_ticket(&mut self, now: SecurityTime) -> bool {
        self.restore_valid_tickets(now);
        let holds = |own: &OwnTicket| own.validity().contains_time(now.certificate_time);
        if self.own_identity.tickets.get(self.own_identity.current_index).is_some_and(holds) {
            return true;
        }
        let next = self.own_identity.tickets.iter().find(|own| holds(own)).map(OwnTicket::name);
        next.is_some_and(|name| self.use_ticket(name))
    }

    /// Returns the largest number of octets that an envelope adds to a packet: header, longest own ticket,
    /// and signature.
    pub fn max_envelope_octets(&self) -> usize {
        /// Octets of all parts of an envelope but certificate and signature: versions, tags, lengths,
        /// generationTime and generationLocation.
        const ENVELOPE_OVERHEAD_OCTETS: usize = 40;
        let with = |certificate: &Certificate| {
            ENVELOPE_OVERHEAD_OCTETS
                + certificate.octets().len()
                + 2 * certificate.content().verification_key.curve().octets()
        };
        let taken = self.own_identity.tickets.iter().map(|own| own.trusted_certificate.certificate());
        taken
            .chain(self.own_identity.expired_tickets.iter().map(|it| &it.certificate))
            .map(with)
            .max()
            .unwrap_or_default()
    }

    /// Drops expired tickets, with their keys.
    pub fn remove_expired_tickets(&mut self, now: SecurityTime) {
        let current = self.current_ticket();
        self.own_identity.tickets.retain(|own| own.validity().first_invalid_time() > now.certificate_time);
        self.own_identity.current_index =
            self.own_identity.tickets.iter().position(|own| Some(own.name()) == current).unwrap_or_default();
    }

    /// Returns a packet of the router as the caller must send it: signed, if the policy says so.
    ///
    /// # Errors
    ///
    /// The reason why the packet cannot be sent; the function has counted the drop.
    pub fn secure_packet(&mut self, now: SecurityTime, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        if self.config.policy == SecurityPolicy::Off {
            return Ok(frame.to_vec());
        }
        self.sign_packet(now, frame).map_err(|reason| self.drop_message(reason))
    }

    fn sign_packet(&mut self, now: SecurityTime, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        let packet = Packet::parse(frame).map_err(|_| SecurityDrop::BadPacket)?;
        let source = packet.extended.source().address.mid();
        let envelope = if source == self.own_identity.mid {
            self.restore_valid_tickets(now);
            // Without tickets the station cannot sign, and the policy accepts unsigned packets.
            if self.own_identity.tickets.is_empty() && self.config.policy == SecurityPolicy::AcceptUnsigned {
                return Ok(frame.to_vec());
            }
            self.check_own_message(now, packet.common.next_header, packet.payload).map_err(|reason| {
                match reason {
                    SecurityDrop::NoGenerationLocation => reason,
                    _ => SecurityDrop::NoTicket,
                }
            })?;
            let inside = frame.get(BasicHeader::LEN..packet.len()).unwrap_or_default();
            self.sign_payload(now, application_of_packet(&packet), inside)?
        } else {
            let identity = packet.extended.sequence().map(|sequence| (source, sequence));
            match identity.and_then(|identity| self.envelopes_to_forward.get(&identity)) {
                Some(envelope) => {
                    self.counters.forwarded_packets += 1;
                    envelope.to_vec()
                }
                None if self.config.policy == SecurityPolicy::AcceptUnsigned => return Ok(frame.to_vec()),
                None => return Err(SecurityDrop::EnvelopeForgotten),
            }
        };
        let basic = BasicHeader { next_header: BasicNextHeader::Secured, ..packet.basic };
        let mut secured = Vec::with_capacity(BasicHeader::LEN + envelope.len());
        secured.extend_from_slice(&basic.to_octets());
        secured.extend_from_slice(&envelope);
        Ok(secured)
    }

    /// Checks whether the current ticket permits this station to send this payload, which includes the BTP
    /// header.
    ///
    /// # Errors
    ///
    /// [`SecurityDrop::NoGenerationLocation`] before the first position. [`SecurityDrop::NoTicket`] if no
    /// ticket is valid here and now. [`SecurityDrop::NoPermission`] if the ticket lacks the application.
    /// [`SecurityDrop::NoServicePermission`] if the ticket's SSP do not permit the content. The function
    /// counts no drop.
    pub fn check_own_message(
        &mut self,
        now: SecurityTime,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), SecurityDrop> {
        let unsigned =
            self.own_identity.tickets.is_empty() && self.config.policy == SecurityPolicy::AcceptUnsigned;
        if unsigned || self.config.policy == SecurityPolicy::Off {
            return Ok(());
        }
        self.restore_valid_tickets(now);
        if self.pseudonym_state.is_none() {
            self.replace_invalid_ticket(now);
        }
        let psid = application_of_payload(next_header, payload);
        let (own, _) = self.current_signer_and_position(now)?;
        let permissions = own
            .trusted_certificate
            .certificate()
            .content()
            .permission_for(psid)
            .ok_or(SecurityDrop::NoPermission)?;
        // A payload that is not a facilities message of this application needs no SSP.
        match SspBits::bits_of_message(psid, facilities_message(payload)) {
            Some(claims) if !claims.are_permitted_by(permissions) => Err(SecurityDrop::NoServicePermission),
            _ => Ok(()),
        }
    }

    /// Returns the own ticket that is valid here and now, with the station's position and elevation.
    fn current_signer_and_position(
        &self,
        now: SecurityTime,
    ) -> Result<(&OwnTicket, (Position, u16)), SecurityDrop> {
        let position = self.own_position.ok_or(SecurityDrop::NoGenerationLocation)?;
        let holds = |own: &&OwnTicket| {
            own.trusted_certificate.check_date(now.certificate_time).is_ok()
                && own.trusted_certificate.is_valid_at(position.0, self.country_finder.as_ref())
        };
        let own = self
            .own_identity
            .tickets
            .get(self.own_identity.current_index)
            .filter(holds)
            .ok_or(SecurityDrop::NoTicket)?;
        Ok((own, position))
    }

    /// Signs a payload of this station with the current ticket, and returns the envelope.
    ///
    /// # Errors
    ///
    /// [`SecurityDrop::NoTicket`] if the current ticket may not sign the payload here and now,
    /// [`SecurityDrop::NoGenerationLocation`] before the first position, [`SecurityDrop::SigningFailed`] if
    /// the key could not sign.
    pub fn sign_payload(
        &mut self,
        now: SecurityTime,
        psid: Psid,
        payload: &[u8],
    ) -> Result<Vec<u8>, SecurityDrop> {
        // Read the position directly: a method such as `current_signer_and_position` would borrow the whole
        // entity.
        let (place, elevation) = self.own_position.ok_or(SecurityDrop::NoGenerationLocation)?;
        let own =
            self.own_identity.tickets.get(self.own_identity.current_index).ok_or(SecurityDrop::NoTicket)?;
        let certificate = own.trusted_certificate.certificate();
        let holds = own.trusted_certificate.check_date(now.certificate_time).is_ok()
            && certificate.content().permission_for(psid).is_some()
            && own.trusted_certificate.is_valid_at(place, self.country_finder.as_ref());
        if !holds {
            return Err(SecurityDrop::NoTicket);
        }
        let cam = psid == Psid::CAM;
        let due = self
            .own_identity
            .certificate_last_sent_at
            .is_none_or(|told| now.time.saturating_since(told) >= CERTIFICATE_INTERVAL);
        let with_certificate = !cam || self.own_identity.is_certificate_due || due;
        let mut header = HeaderInfo::new(psid);
        header.generation_time = Some(now.certificate_time);
        let mut requests: Vec<HashedId3> = Vec::new();
        if cam {
            requests.extend(std::mem::take(&mut self.own_identity.certificates_to_request));
            self.counters.sent_certificate_requests += requests.len() as u64;
            // 7.1.1: a CAM with this station's own certificate has no room for the requested certificate of
            // an authority, which waits.
            if !with_certificate && let Some(asked) = self.own_identity.requested_authority.take() {
                header.requested_certificate =
                    self.certificate_store.issuer(asked).map(|authority| authority.certificate().clone());
            }
        } else {
            header.generation_location = Some(ThreeDLocation { position: place, elevation });
        }
        let data = to_be_signed(payload, &header, &requests);
        let backend = self.crypto_backend.as_ref();
        let input = signature_input(backend, certificate.hash_algorithm(), &data, certificate.octets());
        let signature = own.key.sign(&input).map_err(|_| SecurityDrop::SigningFailed)?;
        let signer = if with_certificate {
            Signer::Certificate(Box::new(certificate.clone()))
        } else {
            Signer::Digest(own.name())
        };
        self.counters.signed_packets += 1;
        if with_certificate {
            self.counters.with_certificate += 1;
        }
        if cam && with_certificate {
            self.own_identity.certificate_last_sent_at = Some(now.time);
            self.own_identity.is_certificate_due = false;
        }
        Ok(emit_signed_message(&data, &signer, &signature))
    }
}
