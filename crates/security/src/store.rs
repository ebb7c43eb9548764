//! Certificates that are trusted: roots and authorities by the operator or by what they signed, tickets that
//! were verified.
//!
//! The store accepts a certificate if its issuer is known and signed it. The certificate must not exceed its
//! issuer's time, region and permissions (IEEE 1609.2 5.1.2.4, TS 103 097 clause 6). So the user of a stored
//! ticket checks only the ticket's own validity. Without a region of its own the ticket has that of its
//! issuers. The store makes cheap checks first, and verifies the signature last.
//!
//! The store is bounded: learnt authorities and tickets make room for newer ones, the least recently used
//! first. Certificates that the operator set stay.
//!
//! Left out: trust lists and revocation lists (TS 102 941), which change the roots and authorities. Their
//! reader calls [`CertificateStore::add_root`] and [`CertificateStore::revoke`].

use carnet_base::SmallMap;
use carnet_geonet::MacAddress;
use carnet_geonet::geodesy::Position;

use crate::SecurityDrop;
use crate::certificate::{Certificate, Issuer, Role};
use crate::crypto::{Backend, VerifyingKey, signature_input};
use crate::ids::{HashedId3, HashedId8};
use crate::keys::Signature;
use crate::permissions::{permits_applications, permits_issuing};
use crate::queue::Sender;
use crate::region::{Countries, GeographicRegion, crosses_itself};
use crate::time::Time64;

/// A certificate that is trusted.
#[derive(Debug)]
pub struct Trusted {
    certificate: Certificate,
    name: HashedId8,
    /// Its hash, which goes into those of its holder's messages.
    hash: Vec<u8>,
    key: Box<dyn VerifyingKey>,
    /// Its own region, or the nearest above it.
    region: Option<GeographicRegion>,
    /// Set by the operator.
    pinned: bool,
    last_used: u64,
    /// The link-layer address from which its holder's own packets came last.
    came_from: Option<MacAddress>,
}

impl Trusted {
    /// The certificate.
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its name.
    pub const fn name(&self) -> HashedId8 {
        self.name
    }

    /// Whether its holder signed a message with this hash (by the hash of the key's curve).
    pub fn signed(&self, hash_of_data: &[u8], signature: &Signature) -> bool {
        self.key.verify(&[hash_of_data, &self.hash].concat(), signature)
    }

    /// Whether it holds now.
    ///
    /// # Errors
    /// [`SecurityDrop::CertificateNotYetValid`], [`SecurityDrop::CertificateExpired`].
    pub fn check_date(&self, now: Time64) -> Result<(), SecurityDrop> {
        check_date(&self.certificate, now)
    }

    /// Whether it holds at a place.
    pub fn holds_at(&self, place: Position, countries: &dyn Countries) -> bool {
        self.region.as_ref().is_none_or(|region| region.contains(place, countries))
    }
}

fn check_date(certificate: &Certificate, now: Time64) -> Result<(), SecurityDrop> {
    let validity = &certificate.content().validity;
    if now < validity.start.start() {
        return Err(SecurityDrop::CertificateNotYetValid);
    }
    if now >= validity.end() {
        return Err(SecurityDrop::CertificateExpired);
    }
    Ok(())
}

/// Certificates by name.
#[derive(Debug)]
pub struct CertificateStore {
    /// Roots and authorities.
    issuers: SmallMap<HashedId8, Trusted>,
    tickets: SmallMap<HashedId8, Trusted>,
    revoked: SmallMap<HashedId8, ()>,
    most_issuers: usize,
    most_tickets: usize,
    clock: u64,
}

impl CertificateStore {
    /// Creates an empty store with room for these numbers of certificates.
    pub const fn new(most_issuers: usize, most_tickets: usize) -> CertificateStore {
        CertificateStore {
            issuers: SmallMap::new(),
            tickets: SmallMap::new(),
            revoked: SmallMap::new(),
            most_issuers,
            most_tickets,
            clock: 0,
        }
    }

    /// Trusts a root, because the operator does.
    ///
    /// # Errors
    /// [`SecurityDrop::WrongRole`] for anything else than a root, [`SecurityDrop::BadKey`],
    /// [`SecurityDrop::AlgorithmMismatch`] or [`SecurityDrop::BadCertificateSignature`] for one that did not
    /// sign itself.
    pub fn add_root(
        &mut self,
        backend: &dyn Backend,
        certificate: Certificate,
    ) -> Result<HashedId8, SecurityDrop> {
        if certificate.role() != Role::Root {
            return Err(SecurityDrop::WrongRole);
        }
        let algorithm = certificate.hash_algorithm();
        if certificate.issuer() != Issuer::Itself(algorithm) {
            return Err(SecurityDrop::AlgorithmMismatch);
        }
        let root = self.ready(backend, certificate, None)?;
        if self.revoked.contains_key(&root.name) {
            return Err(SecurityDrop::Revoked);
        }
        let input = signature_input(backend, algorithm, root.certificate.signed_octets(), &[]);
        if !root.key.verify(&input, root.certificate.signature()) {
            return Err(SecurityDrop::BadCertificateSignature);
        }
        let name = root.name;
        self.issuers.insert(name, Trusted { pinned: true, ..root });
        Ok(name)
    }

    /// Trusts an authority that a known one signed; `pinned` if the operator named it.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn add_authority(
        &mut self,
        backend: &dyn Backend,
        certificate: Certificate,
        now: Time64,
        countries: &dyn Countries,
        pinned: bool,
    ) -> Result<HashedId8, SecurityDrop> {
        if certificate.role() != Role::Authority {
            return Err(SecurityDrop::WrongRole);
        }
        let authority = self.verify(backend, certificate, now, countries)?;
        let name = authority.name;
        // Only what is learnt from others is bounded: the operator knows how many he names.
        if !make_room(&mut self.issuers, self.most_issuers) && !pinned {
            return Err(SecurityDrop::UnknownIssuer);
        }
        self.issuers.insert(name, Trusted { pinned, ..authority });
        Ok(name)
    }

    /// Keeps a ticket that was verified.
    pub fn add_ticket(&mut self, ticket: Trusted) {
        make_room(&mut self.tickets, self.most_tickets);
        self.tickets.insert(ticket.name, ticket);
    }

    /// Revokes a certificate and those that it issued. The store does not accept them again, whichever
    /// station sends them.
    pub fn revoke(&mut self, name: HashedId8) {
        self.revoked.insert(name, ());
        self.remove(name);
    }

    /// Trusts a certificate no longer.
    pub fn remove(&mut self, name: HashedId8) -> bool {
        let issued_by = |trusted: &Trusted| matches!(trusted.certificate.issuer(), Issuer::Digest(_, issuer) if issuer == name);
        // Remove the certificates that it issued, too.
        let below: Vec<_> =
            self.issuers.values().filter(|trusted| issued_by(trusted)).map(|trusted| trusted.name).collect();
        for issuer in below {
            self.remove(issuer);
        }
        self.tickets.retain(|_, trusted| !issued_by(trusted));
        self.issuers.remove(&name).is_some() | self.tickets.remove(&name).is_some()
    }

    /// A ticket, which counts as used now.
    pub fn ticket(&mut self, name: HashedId8) -> Option<&Trusted> {
        self.clock += 1;
        let ticket = self.tickets.get_mut(&name)?;
        ticket.last_used = self.clock;
        Some(ticket)
    }

    /// A packet of a ticket's holder that goes a single hop was believed, and came from this link-layer
    /// address.
    pub fn came_from(&mut self, name: HashedId8, address: MacAddress) {
        if let Some(ticket) = self.tickets.get_mut(&name) {
            ticket.came_from = Some(address);
        }
    }

    /// Returns the sender of a message that claims to be of a known ticket and came from this link-layer
    /// address.
    pub fn sender(&self, name: HashedId8, address: MacAddress) -> Sender {
        match self.tickets.get(&name) {
            Some(ticket) if ticket.came_from == Some(address) => Sender::Neighbour(name),
            Some(_) => Sender::Relayed(address),
            None => Sender::Stranger(address),
        }
    }

    /// Whether a ticket is known.
    pub fn knows_ticket(&self, name: HashedId8) -> bool {
        self.tickets.contains_key(&name)
    }

    /// A root or an authority.
    pub fn issuer(&self, name: HashedId8) -> Option<&Trusted> {
        self.issuers.get(&name)
    }

    /// An authority by the name under which it is asked for.
    pub fn authority_by_short_name(&self, name: HashedId3) -> Option<&Trusted> {
        self.issuers
            .values()
            .find(|trusted| trusted.name.short() == name && trusted.certificate.role() == Role::Authority)
    }

    /// How many issuers and tickets there are.
    pub fn len(&self) -> (usize, usize) {
        (self.issuers.len(), self.tickets.len())
    }

    /// Verifies a certificate that is not a root's, its issuer being known.
    ///
    /// # Errors
    /// Why it is not to be trusted.
    pub fn verify(
        &self,
        backend: &dyn Backend,
        certificate: Certificate,
        now: Time64,
        countries: &dyn Countries,
    ) -> Result<Trusted, SecurityDrop> {
        let Issuer::Digest(algorithm, issuer) = certificate.issuer() else {
            return Err(SecurityDrop::WrongRole);
        };
        if self.revoked.contains_key(&issuer) {
            return Err(SecurityDrop::Revoked);
        }
        let issuer = self.issuers.get(&issuer).ok_or(SecurityDrop::UnknownIssuer)?;
        check_date(&certificate, now)?;
        issuer.check_date(now)?;
        if algorithm != issuer.certificate.hash_algorithm()
            || certificate.signature().curve() != issuer.certificate.content().verification_key.curve()
        {
            return Err(SecurityDrop::AlgorithmMismatch);
        }
        check_chain(issuer, &certificate, countries)?;
        let trusted = self.ready(backend, certificate, issuer.region.as_ref())?;
        if self.revoked.contains_key(&trusted.name) {
            return Err(SecurityDrop::Revoked);
        }
        let hash_of_data = backend.hash(algorithm, trusted.certificate.signed_octets());
        if !issuer.signed(&hash_of_data, trusted.certificate.signature()) {
            return Err(SecurityDrop::BadCertificateSignature);
        }
        Ok(trusted)
    }

    fn ready(
        &self,
        backend: &dyn Backend,
        certificate: Certificate,
        region: Option<&GeographicRegion>,
    ) -> Result<Trusted, SecurityDrop> {
        let key = backend.verifying_key(&certificate.content().verification_key);
        let key = key.ok_or(SecurityDrop::BadKey)?;
        let hash = backend.hash(certificate.hash_algorithm(), certificate.octets());
        let name = HashedId8::of_hash(&hash);
        let region = certificate.content().region.as_ref().or(region).cloned();
        Ok(Trusted {
            certificate,
            name,
            hash,
            key,
            region,
            pinned: false,
            last_used: self.clock,
            came_from: None,
        })
    }
}

/// Checks a certificate against its issuer, except for the signature.
fn check_chain(
    issuer: &Trusted,
    certificate: &Certificate,
    countries: &dyn Countries,
) -> Result<(), SecurityDrop> {
    let (above, content) = (issuer.certificate.content(), certificate.content());
    let region_within = match (&content.region, &issuer.region) {
        (Some(GeographicRegion::Polygonal(corners)), _) if crosses_itself(corners) => false,
        (Some(mine), Some(theirs)) => mine.is_within(theirs, countries),
        _ => true,
    };
    // TS 103 097 6: an issuer's assurance level (three bits) is not below that of what it issues.
    let level = |assurance: Option<u8>| assurance.map_or(0, |assurance| assurance >> 5);
    let assured = above.assurance.is_none() || level(content.assurance) <= level(above.assurance);
    let unique = |mut psids: Vec<u64>| {
        psids.sort_unstable();
        psids.windows(2).all(|pair| pair.first() != pair.last())
    };
    let allowed = content.validity.is_within(&above.validity)
        && region_within
        && assured
        && unique(content.applications.iter().map(|application| application.psid.0).collect())
        && permits_applications(&above.issuing, &content.applications)
        && permits_issuing(&above.issuing, &content.issuing);
    if allowed { Ok(()) } else { Err(SecurityDrop::InconsistentChain) }
}

/// Forgets what was used longest ago, while there is no room for one more; false if nothing may be forgotten.
fn make_room(map: &mut SmallMap<HashedId8, Trusted>, most: usize) -> bool {
    while map.len() >= most {
        let oldest =
            map.iter().filter(|(_, trusted)| !trusted.pinned).min_by_key(|(_, trusted)| trusted.last_used);
        let Some((&name, _)) = oldest else { return false };
        map.remove(&name);
    }
    true
}
