//! Transmission: signs own packets by the profiles of TS 103 097 7.1, and puts packets of other stations back
//! into their envelope.
//!
//! A CAM names its signer by a digest. It carries the certificate once a second, when another station
//! requests it, and when a new station appears (7.1.1). CAMs also carry requests for certificates that this
//! station lacks (inlineP2pcdRequest), and a certificate of an authority that other stations lack
//! (requestedCertificate). The station omits that certificate if another station has sent it first. DENMs and
//! all other packets have the certificate and the place (7.1.2, 7.1.3).

use std::collections::BTreeSet;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::Position;
use carnet_wire::geonet::{BasicHeader, BasicNextHeader, CommonNextHeader, Packet};

use super::{Now, Security};
use crate::SecurityDrop;
use crate::certificate::Certificate;
use crate::claims::Claims;
use crate::config::Policy;
use crate::crypto::{SigningKey, signature_input};
use crate::ids::{HashedId3, HashedId8};
use crate::inspection::{application_of, application_of_payload, facilities_message};
use crate::message::{HeaderInfo, MOST_REQUESTS, Signer, ThreeDLocation, seal, to_be_signed};
use crate::permissions::Psid;
use crate::store::{CertificateStore, Trusted};
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
    trusted: Trusted,
    key: Box<dyn SigningKey>,
}

impl OwnTicket {
    const fn name(&self) -> HashedId8 {
        self.trusted.name()
    }

    const fn validity(&self) -> &ValidityPeriod {
        &self.trusted.certificate().content().validity
    }
}

/// State of the station's own identity.
#[derive(Debug)]
pub(crate) struct Own {
    pub mid: [u8; 6],
    tickets: Vec<OwnTicket>,
    /// Tickets that had expired by the clock when they were added; the clock may have been ahead. The entity
    /// verifies them when the clock goes back into their validity.
    expired: Vec<Ticket>,
    /// Latest end of the expired tickets' validity.
    expired_until: Time64,
    current: usize,
    /// Time of the last CAM with the certificate.
    told: Option<Time>,
    /// Whether the next CAM carries the certificate.
    tell: bool,
    wanted: BTreeSet<HashedId3>,
    /// Certificate of an authority that another station has requested.
    asked: Option<HashedId8>,
    rng: Rng,
}

impl Own {
    pub const fn new(rng: Rng) -> Own {
        Own {
            mid: [0; 6],
            tickets: Vec::new(),
            expired: Vec::new(),
            expired_until: Time64(0),
            current: 0,
            told: None,
            tell: false,
            wanted: BTreeSet::new(),
            asked: None,
            rng,
        }
    }

    /// Makes the next CAM carry the certificate, because a new station may not know it.
    pub const fn introduce(&mut self) {
        self.tell = true;
    }

    /// Notes a request of another station for a certificate.
    pub fn asked_for(&mut self, wanted: HashedId3, store: &CertificateStore) {
        let current = self.tickets.get(self.current);
        if current.is_some_and(|own| own.name().short() == wanted) {
            self.tell = true;
        } else if let Some(authority) = store.authority_by_short_name(wanted) {
            self.asked = Some(authority.name());
        }
    }

    /// Handles a certificate that another station has sent, so that this station omits it.
    pub fn was_sent(&mut self, name: HashedId8) {
        if self.asked == Some(name) {
            self.asked = None;
        }
    }

    /// Requests a certificate in the next CAM.
    pub fn want(&mut self, name: HashedId3) {
        if self.wanted.len() < MOST_REQUESTS {
            self.wanted.insert(name);
        }
    }

    /// Ends the request for a certificate that has arrived.
    pub fn found(&mut self, name: HashedId3) {
        self.wanted.remove(&name);
    }
}

impl Security {
    /// Adds a ticket and its key. An expired ticket waits: the clock may be ahead, and the entity adds the
    /// ticket when the clock goes back into its validity.
    ///
    /// # Errors
    /// [`SecurityDrop::BadKey`] if the key does not match the certificate,
    /// [`SecurityDrop::CertificateExpired`] if the certificate has expired. The other errors are those of
    /// received tickets, because other stations would reject this ticket.
    pub fn add_own_ticket(&mut self, now: Now, ticket: Ticket) -> Result<HashedId8, SecurityDrop> {
        if ticket.key.public_key() != ticket.certificate.content().verification_key {
            return Err(SecurityDrop::BadKey);
        }
        let end = ticket.certificate.content().validity.end();
        if end <= now.date {
            self.own.expired_until = self.own.expired_until.max(end);
            self.own.expired.push(ticket);
            return Err(SecurityDrop::CertificateExpired);
        }
        self.verify_own_ticket(now, ticket)
    }

    fn verify_own_ticket(&mut self, now: Now, ticket: Ticket) -> Result<HashedId8, SecurityDrop> {
        let (backend, countries) = (self.backend.as_ref(), self.countries.as_ref());
        // Authorities issue pseudonyms for weeks in advance, so check the ticket at the beginning of its
        // validity.
        let date = ticket.certificate.content().validity.nearest(now.date);
        let trusted = self.store.verify(backend, ticket.certificate, date, countries)?;
        let name = trusted.name();
        self.own.tickets.push(OwnTicket { trusted, key: ticket.key });
        Ok(name)
    }

    /// Adds the expired tickets that are valid by the present date.
    pub(super) fn revive_tickets(&mut self, now: Now) {
        if now.date >= self.own.expired_until {
            return;
        }
        let all = std::mem::take(&mut self.own.expired);
        let is_over = |ticket: &Ticket| ticket.certificate.content().validity.end() <= now.date;
        let (over, revived): (Vec<_>, Vec<_>) = all.into_iter().partition(is_over);
        let ends = over.iter().map(|ticket| ticket.certificate.content().validity.end());
        self.own.expired_until = ends.max().unwrap_or(Time64(0));
        self.own.expired = over;
        for ticket in revived {
            // A ticket that other stations would reject does not sign. It was not checked when it was added,
            // because it was not valid then.
            let _ = self.verify_own_ticket(now, ticket);
        }
    }

    /// Returns the names of the valid own tickets.
    pub fn own_tickets(&self, now: Now) -> Vec<HashedId8> {
        let holds = |own: &&OwnTicket| own.validity().contains(now.date);
        self.own.tickets.iter().filter(holds).map(|own| own.name()).collect()
    }

    /// Returns the validity of each own ticket, first that of the ticket that signs on this date, with its
    /// name. The names of the other tickets stay secret until they sign, because together they would link the
    /// pseudonyms of the station.
    pub fn own_validities(&self, now: Now) -> (Option<HashedId8>, Vec<ValidityPeriod>) {
        let tickets = &self.own.tickets;
        let holds = |own: &&OwnTicket| own.validity().contains(now.date);
        let current = tickets.get(self.own.current).filter(holds);
        let signs = current.or_else(|| tickets.iter().find(holds)).map(OwnTicket::name);
        let (first, others): (Vec<_>, Vec<_>) = tickets.iter().partition(|own| Some(own.name()) == signs);
        (signs, first.into_iter().chain(others).map(|own| *own.validity()).collect())
    }

    /// Returns the name of the ticket that signs.
    pub fn current_ticket(&self) -> Option<HashedId8> {
        self.own.tickets.get(self.own.current).map(|own| own.name())
    }

    /// Makes another ticket the current one; returns false if the station has no such ticket. The caller
    /// gives the router and the facilities another address, so that nothing links the two tickets.
    pub fn use_ticket(&mut self, name: HashedId8) -> bool {
        let found = self.own.tickets.iter().position(|own| own.name() == name);
        if let Some(found) = found {
            self.own.current = found;
            // No station knows this ticket yet, and requests for the old ticket are obsolete.
            (self.own.told, self.own.tell, self.own.asked) = (None, false, None);
        }
        found.is_some()
    }

    /// Returns the names of the own tickets for whose validity `is` returns true.
    pub(super) fn tickets_that<'a>(
        &'a self,
        is: impl Fn(&ValidityPeriod) -> bool + 'a,
    ) -> impl Iterator<Item = HashedId8> + 'a {
        self.own.tickets.iter().filter(move |own| is(own.validity())).map(OwnTicket::name)
    }

    pub(super) fn is_own_ticket(&self, name: HashedId8) -> bool {
        self.own.tickets.iter().any(|own| own.name() == name)
    }

    /// Returns a random element; `None` for an empty list.
    pub(super) fn draw(&mut self, choice: &[HashedId8]) -> Option<HashedId8> {
        let number = if choice.is_empty() { 0 } else { self.own.rng.below(choice.len() as u64) as usize };
        choice.get(number).copied()
    }

    /// Signs with another ticket if the current one is not valid; false if no ticket is valid.
    pub fn keep_signing(&mut self, now: Now) -> bool {
        self.revive_tickets(now);
        let holds = |own: &OwnTicket| own.validity().contains(now.date);
        if self.own.tickets.get(self.own.current).is_some_and(holds) {
            return true;
        }
        let next = self.own.tickets.iter().find(|own| holds(own)).map(OwnTicket::name);
        next.is_some_and(|name| self.use_ticket(name))
    }

    /// Returns the largest number of octets that an envelope adds to a packet: header, longest own ticket,
    /// and signature.
    pub fn overhead(&self) -> usize {
        /// All parts but certificate and signature: versions, tags, lengths, generationTime and
        /// generationLocation.
        const REST: usize = 40;
        let with = |certificate: &Certificate| {
            REST + certificate.octets().len() + 2 * certificate.content().verification_key.curve().octets()
        };
        let taken = self.own.tickets.iter().map(|own| own.trusted.certificate());
        taken.chain(self.own.expired.iter().map(|it| &it.certificate)).map(with).max().unwrap_or_default()
    }

    /// Drops expired tickets, with their keys.
    pub fn forget_old_tickets(&mut self, now: Now) {
        let current = self.current_ticket();
        self.own.tickets.retain(|own| own.validity().end() > now.date);
        self.own.current =
            self.own.tickets.iter().position(|own| Some(own.name()) == current).unwrap_or_default();
    }

    /// Returns a packet of the router in the form for the link.
    ///
    /// # Errors
    /// The reason for which the packet cannot leave; the function has counted it.
    pub fn secure(&mut self, now: Now, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        if self.config.policy == Policy::Off {
            return Ok(frame.to_vec());
        }
        self.wrap(now, frame).map_err(|reason| self.drop_message(reason))
    }

    fn wrap(&mut self, now: Now, frame: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        let packet = Packet::parse(frame).map_err(|_| SecurityDrop::BadPacket)?;
        let source = packet.extended.source().address.mid();
        let envelope = if source == self.own.mid {
            self.revive_tickets(now);
            // Without tickets the station cannot sign, and the policy accepts unsigned packets.
            if self.own.tickets.is_empty() && self.config.policy == Policy::AcceptUnsigned {
                return Ok(frame.to_vec());
            }
            self.check_own(now, packet.common.next_header, packet.payload).map_err(
                |reason| match reason {
                    SecurityDrop::NoGenerationLocation => reason,
                    _ => SecurityDrop::NoTicket,
                },
            )?;
            let inside = frame.get(BasicHeader::LEN..packet.len()).unwrap_or_default();
            self.sign(now, application_of(&packet), inside)?
        } else {
            let identity = packet.extended.sequence().map(|sequence| (source, sequence));
            match identity.and_then(|identity| self.envelopes.get(&identity)) {
                Some(envelope) => {
                    self.counters.forwarded += 1;
                    envelope.to_vec()
                }
                None if self.config.policy == Policy::AcceptUnsigned => return Ok(frame.to_vec()),
                None => return Err(SecurityDrop::EnvelopeForgotten),
            }
        };
        let basic = BasicHeader { next_header: BasicNextHeader::Secured, ..packet.basic };
        let mut secured = Vec::with_capacity(BasicHeader::LEN + envelope.len());
        secured.extend_from_slice(&basic.to_octets());
        secured.extend_from_slice(&envelope);
        Ok(secured)
    }

    /// Checks whether the current ticket allows this payload, which includes the BTP header.
    ///
    /// # Errors
    /// [`SecurityDrop::NoGenerationLocation`] before the first position, [`SecurityDrop::NoTicket`] if no
    /// ticket is valid here and now. [`SecurityDrop::NoPermission`] if the ticket lacks the application,
    /// [`SecurityDrop::NoServicePermission`] if its SSP do not cover the content of the message. The function
    /// counts no drop.
    pub fn check_own(
        &mut self,
        now: Now,
        next_header: CommonNextHeader,
        payload: &[u8],
    ) -> Result<(), SecurityDrop> {
        let unsigned = self.own.tickets.is_empty() && self.config.policy == Policy::AcceptUnsigned;
        if unsigned || self.config.policy == Policy::Off {
            return Ok(());
        }
        self.revive_tickets(now);
        if self.pseudonym.is_none() {
            self.keep_signing(now);
        }
        let psid = application_of_payload(next_header, payload);
        let (own, _) = self.own_signer(now)?;
        let permissions =
            own.trusted.certificate().content().application(psid).ok_or(SecurityDrop::NoPermission)?;
        // If the octets are not a message of the application, they need no SSP.
        match Claims::of(psid, facilities_message(payload)) {
            Some(claims) if !claims.are_covered_by(permissions) => Err(SecurityDrop::NoServicePermission),
            _ => Ok(()),
        }
    }

    /// Returns the ticket that signs here and now, with the position and elevation.
    fn own_signer(&self, now: Now) -> Result<(&OwnTicket, (Position, u16)), SecurityDrop> {
        let position = self.position.ok_or(SecurityDrop::NoGenerationLocation)?;
        let holds = |own: &&OwnTicket| {
            own.trusted.check_date(now.date).is_ok()
                && own.trusted.holds_at(position.0, self.countries.as_ref())
        };
        let own = self.own.tickets.get(self.own.current).filter(holds).ok_or(SecurityDrop::NoTicket)?;
        Ok((own, position))
    }

    /// Returns an envelope around a payload of this station, signed by the current ticket.
    ///
    /// # Errors
    /// [`SecurityDrop::NoTicket`] if the current ticket may not sign the payload here and now,
    /// [`SecurityDrop::NoGenerationLocation`] before the first position, [`SecurityDrop::SigningFailed`] if
    /// the key did not sign.
    pub fn sign(&mut self, now: Now, psid: Psid, payload: &[u8]) -> Result<Vec<u8>, SecurityDrop> {
        // Do not call `own_signer`, which borrows the whole entity.
        let (place, elevation) = self.position.ok_or(SecurityDrop::NoGenerationLocation)?;
        let own = self.own.tickets.get(self.own.current).ok_or(SecurityDrop::NoTicket)?;
        let certificate = own.trusted.certificate();
        let holds = own.trusted.check_date(now.date).is_ok()
            && certificate.content().application(psid).is_some()
            && own.trusted.holds_at(place, self.countries.as_ref());
        if !holds {
            return Err(SecurityDrop::NoTicket);
        }
        let cam = psid == Psid::CAM;
        let due = self.own.told.is_none_or(|told| now.time.saturating_since(told) >= CERTIFICATE_INTERVAL);
        let with_certificate = !cam || self.own.tell || due;
        let mut header = HeaderInfo::new(psid);
        header.generation_time = Some(now.date);
        let mut requests: Vec<HashedId3> = Vec::new();
        if cam {
            requests.extend(std::mem::take(&mut self.own.wanted));
            self.counters.requests += requests.len() as u64;
            // 7.1.1: omit the requested certificate if the CAM carries the own one, which needs the room.
            if !with_certificate && let Some(asked) = self.own.asked.take() {
                header.requested_certificate =
                    self.store.issuer(asked).map(|authority| authority.certificate().clone());
            }
        } else {
            header.generation_location = Some(ThreeDLocation { position: place, elevation });
        }
        let data = to_be_signed(payload, &header, &requests);
        let backend = self.backend.as_ref();
        let input = signature_input(backend, certificate.hash_algorithm(), &data, certificate.octets());
        let signature = own.key.sign(&input).map_err(|_| SecurityDrop::SigningFailed)?;
        let signer = if with_certificate {
            Signer::Certificate(Box::new(certificate.clone()))
        } else {
            Signer::Digest(own.name())
        };
        self.counters.signed += 1;
        if with_certificate {
            self.counters.with_certificate += 1;
        }
        if cam && with_certificate {
            self.own.told = Some(now.time);
            self.own.tell = false;
        }
        Ok(seal(&data, &signer, &signature))
    }
}
