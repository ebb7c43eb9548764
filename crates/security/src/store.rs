//! Trusted certificates: roots and authorities of the operator, learnt authorities, and verified tickets.
//!
//! The store accepts a certificate if its issuer is known and signed it. The certificate must not exceed its
//! issuer's time, region and permissions (IEEE 1609.2 5.1.2.4, TS 103 097 clause 6). So a later check of a
//! stored ticket needs only the ticket's own validity. A ticket without a region has the region of its
//! issuers. The store makes cheap checks first, and verifies the signature last.
//!
//! The store is bounded: newer authorities and tickets replace the least recently used ones. The store never
//! replaces certificates that the operator set.
//!
//! Left out: trust lists and revocation lists (TS 102 941), which change the roots and authorities. A program
//! that reads these lists calls [`CertificateStore::add_root`] and [`CertificateStore::revoke_certificate`].

use std::collections::{BTreeMap, BTreeSet};

use carnet_geonet::MacAddress;
use carnet_geonet::geodesy::Position;

use crate::SecurityDrop;
use crate::certificate::{Certificate, CertificateRole, Issuer};
use crate::crypto::{CryptoBackend, VerifyingKey, signature_input};
use crate::ids::{HashedId3, HashedId8};
use crate::keys::Signature;
use crate::permissions::{permits_applications, permits_issuing};
use crate::queue::Sender;
use crate::region::{CountryFinder, GeographicRegion, is_self_crossing};
use crate::time::Time64;

/// A trusted certificate.
#[derive(Debug)]
pub struct TrustedCertificate {
    certificate: Certificate,
    name: HashedId8,
    /// Hash of the certificate, which is part of the hash of its holder's messages.
    hash: Vec<u8>,
    verifying_key: Box<dyn VerifyingKey>,
    /// Region of the certificate, or of the nearest issuer with a region.
    effective_region: Option<GeographicRegion>,
    /// Whether the operator configured the certificate, so that the store never removes it to make room.
    is_configured: bool,
    last_used_count: u64,
    /// Link-layer address from which the last single-hop packet of the certificate's station came.
    sender_address: Option<MacAddress>,
}

impl TrustedCertificate {
    /// Returns the certificate.
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the name of the certificate.
    pub const fn name(&self) -> HashedId8 {
        self.name
    }

    /// Returns whether the holder signed the message with this hash. The hash must be by the hash algorithm
    /// of the key's curve.
    pub fn verifies_signature(&self, hash_of_data: &[u8], signature: &Signature) -> bool {
        self.verifying_key.verify(&[hash_of_data, &self.hash].concat(), signature)
    }

    /// Checks that the certificate is valid now.
    ///
    /// # Errors
    /// [`SecurityDrop::CertificateNotYetValid`] or [`SecurityDrop::CertificateExpired`].
    pub fn check_date(&self, now: Time64) -> Result<(), SecurityDrop> {
        check_date(&self.certificate, now)
    }

    /// Returns whether the certificate is valid at a place.
    pub fn is_valid_at(&self, place: Position, countries: &dyn CountryFinder) -> bool {
        self.effective_region.as_ref().is_none_or(|region| region.contains_place(place, countries))
    }
}

fn check_date(certificate: &Certificate, now: Time64) -> Result<(), SecurityDrop> {
    let validity = &certificate.content().validity;
    if now < validity.start.start_of_second() {
        return Err(SecurityDrop::CertificateNotYetValid);
    }
    if now >= validity.first_invalid_time() {
        return Err(SecurityDrop::CertificateExpired);
    }
    Ok(())
}

/// Trusted certificates by name.
#[derive(Debug)]
pub struct CertificateStore {
    /// Roots and authorities.
    issuer_certificates: BTreeMap<HashedId8, TrustedCertificate>,
    tickets: BTreeMap<HashedId8, TrustedCertificate>,
    revoked_names: BTreeSet<HashedId8>,
    max_issuers: usize,
    max_tickets: usize,
    use_counter: u64,
}

impl CertificateStore {
    /// Creates an empty store with room for `most_issuers` roots and authorities, and for `most_tickets`
    /// tickets. The operator may configure more roots and authorities.
    pub const fn new(most_issuers: usize, most_tickets: usize) -> CertificateStore {
        CertificateStore {
            issuer_certificates: BTreeMap::new(),
            tickets: BTreeMap::new(),
            revoked_names: BTreeSet::new(),
            max_issuers: most_issuers,
            max_tickets: most_tickets,
            use_counter: 0,
        }
    }

    /// Adds a root certificate that the operator trusts.
    ///
    /// # Errors
    ///
    /// [`SecurityDrop::WrongRole`] for a certificate that is not a root. [`SecurityDrop::BadKey`],
    /// [`SecurityDrop::AlgorithmMismatch`] or [`SecurityDrop::BadCertificateSignature`] for a root that its
    /// own key has not signed.
    pub fn add_root(
        &mut self,
        backend: &dyn CryptoBackend,
        certificate: Certificate,
    ) -> Result<HashedId8, SecurityDrop> {
        if certificate.certificate_role() != CertificateRole::Root {
            return Err(SecurityDrop::WrongRole);
        }
        let algorithm = certificate.hash_algorithm();
        if certificate.issuer() != Issuer::Itself(algorithm) {
            return Err(SecurityDrop::AlgorithmMismatch);
        }
        let root = self.build_trusted_certificate(backend, certificate, None)?;
        if self.revoked_names.contains(&root.name) {
            return Err(SecurityDrop::Revoked);
        }
        let input = signature_input(backend, algorithm, root.certificate.signed_octets(), &[]);
        if !root.verifying_key.verify(&input, root.certificate.signature()) {
            return Err(SecurityDrop::BadCertificateSignature);
        }
        let name = root.name;
        self.issuer_certificates.insert(name, TrustedCertificate { is_configured: true, ..root });
        Ok(name)
    }

    /// Adds an authority whose issuer the store knows. `pinned` says that the operator configured the
    /// authority.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::verify_certificate`].
    pub fn add_authority(
        &mut self,
        backend: &dyn CryptoBackend,
        certificate: Certificate,
        now: Time64,
        countries: &dyn CountryFinder,
        pinned: bool,
    ) -> Result<HashedId8, SecurityDrop> {
        if certificate.certificate_role() != CertificateRole::Authority {
            return Err(SecurityDrop::WrongRole);
        }
        let authority = self.verify_certificate(backend, certificate, now, countries)?;
        let name = authority.name;
        // The limit applies only to authorities from received messages, not to authorities that the operator
        // configured.
        if !make_room_for_certificate(&mut self.issuer_certificates, self.max_issuers) && !pinned {
            return Err(SecurityDrop::UnknownIssuer);
        }
        self.issuer_certificates.insert(name, TrustedCertificate { is_configured: pinned, ..authority });
        Ok(name)
    }

    /// Stores a verified ticket.
    pub fn add_ticket(&mut self, ticket: TrustedCertificate) {
        make_room_for_certificate(&mut self.tickets, self.max_tickets);
        self.tickets.insert(ticket.name, ticket);
    }

    /// Revokes a certificate and all certificates that its holder issued. The store does not accept them
    /// again from received messages.
    pub fn revoke_certificate(&mut self, name: HashedId8) {
        self.revoked_names.insert(name);
        self.remove(name);
    }

    /// Removes a certificate and the certificates below it. Returns false if the store does not have the
    /// certificate.
    pub fn remove(&mut self, name: HashedId8) -> bool {
        let issued_by = |trusted: &TrustedCertificate| match trusted.certificate.issuer() {
            Issuer::Digest(_, issuer) => issuer == name,
            _ => false,
        };
        // Remove the certificates below the removed one, too.
        let below: Vec<_> = self
            .issuer_certificates
            .values()
            .filter(|trusted| issued_by(trusted))
            .map(|trusted| trusted.name)
            .collect();
        for issuer in below {
            self.remove(issuer);
        }
        self.tickets.retain(|_, trusted| !issued_by(trusted));
        self.issuer_certificates.remove(&name).is_some() | self.tickets.remove(&name).is_some()
    }

    /// Returns a ticket and marks it as used now.
    pub fn ticket(&mut self, name: HashedId8) -> Option<&TrustedCertificate> {
        self.use_counter += 1;
        let ticket = self.tickets.get_mut(&name)?;
        ticket.last_used_count = self.use_counter;
        Some(ticket)
    }

    /// Stores the link-layer address from which an accepted single-hop packet of the ticket's holder came.
    pub fn store_holder_address(&mut self, name: HashedId8, address: MacAddress) {
        if let Some(ticket) = self.tickets.get_mut(&name) {
            ticket.sender_address = Some(address);
        }
    }

    /// Returns the class of a message's sender, from the ticket that the message names and the link-layer
    /// address from which it came.
    pub fn classify_sender(&self, name: HashedId8, address: MacAddress) -> Sender {
        match self.tickets.get(&name) {
            Some(ticket) if ticket.sender_address == Some(address) => Sender::Neighbour(name),
            Some(_) => Sender::Relayed(address),
            None => Sender::Stranger(address),
        }
    }

    /// Returns whether the store has a ticket.
    pub fn has_ticket(&self, name: HashedId8) -> bool {
        self.tickets.contains_key(&name)
    }

    /// Returns a root or an authority.
    pub fn issuer(&self, name: HashedId8) -> Option<&TrustedCertificate> {
        self.issuer_certificates.get(&name)
    }

    /// Returns an authority by the short name that requests for certificates contain.
    pub fn authority_by_short_name(&self, name: HashedId3) -> Option<&TrustedCertificate> {
        self.issuer_certificates.values().find(|trusted| {
            trusted.name.last_three_octets() == name
                && trusted.certificate.certificate_role() == CertificateRole::Authority
        })
    }

    /// Returns the number of issuers and tickets.
    pub fn len(&self) -> (usize, usize) {
        (self.issuer_certificates.len(), self.tickets.len())
    }

    /// Verifies a certificate that is not a root. The store must have the certificate of its issuer.
    ///
    /// # Errors
    ///
    /// The reason why the certificate is not trusted.
    pub fn verify_certificate(
        &self,
        backend: &dyn CryptoBackend,
        certificate: Certificate,
        now: Time64,
        countries: &dyn CountryFinder,
    ) -> Result<TrustedCertificate, SecurityDrop> {
        let Issuer::Digest(algorithm, issuer) = certificate.issuer() else {
            return Err(SecurityDrop::WrongRole);
        };
        if self.revoked_names.contains(&issuer) {
            return Err(SecurityDrop::Revoked);
        }
        let issuer = self.issuer_certificates.get(&issuer).ok_or(SecurityDrop::UnknownIssuer)?;
        check_date(&certificate, now)?;
        issuer.check_date(now)?;
        if algorithm != issuer.certificate.hash_algorithm()
            || certificate.signature().curve() != issuer.certificate.content().verification_key.curve()
        {
            return Err(SecurityDrop::AlgorithmMismatch);
        }
        check_chain(issuer, &certificate, countries)?;
        let trusted =
            self.build_trusted_certificate(backend, certificate, issuer.effective_region.as_ref())?;
        if self.revoked_names.contains(&trusted.name) {
            return Err(SecurityDrop::Revoked);
        }
        let hash_of_data = backend.hash(algorithm, trusted.certificate.signed_octets());
        if !issuer.verifies_signature(&hash_of_data, trusted.certificate.signature()) {
            return Err(SecurityDrop::BadCertificateSignature);
        }
        Ok(trusted)
    }

    fn build_trusted_certificate(
        &self,
        backend: &dyn CryptoBackend,
        certificate: Certificate,
        region: Option<&GeographicRegion>,
    ) -> Result<TrustedCertificate, SecurityDrop> {
        let key = backend.verifying_key(&certificate.content().verification_key);
        let key = key.ok_or(SecurityDrop::BadKey)?;
        let hash = backend.hash(certificate.hash_algorithm(), certificate.octets());
        let name = HashedId8::from_hash(&hash);
        let region = certificate.content().validity_region.as_ref().or(region).cloned();
        Ok(TrustedCertificate {
            certificate,
            name,
            hash,
            verifying_key: key,
            effective_region: region,
            is_configured: false,
            last_used_count: self.use_counter,
            sender_address: None,
        })
    }
}

/// Checks a certificate against its issuer, except for the signature.
fn check_chain(
    issuer: &TrustedCertificate,
    certificate: &Certificate,
    countries: &dyn CountryFinder,
) -> Result<(), SecurityDrop> {
    let (above, content) = (issuer.certificate.content(), certificate.content());
    let region_within = match (&content.validity_region, &issuer.effective_region) {
        (Some(GeographicRegion::Polygonal(corners)), _) if is_self_crossing(corners) => false,
        (Some(mine), Some(theirs)) => mine.is_within(theirs, countries),
        _ => true,
    };
    // TS 103 097 6: the assurance level (three bits) of an issuer is at least that of the certificates that
    // it issues.
    let level = |assurance: Option<u8>| assurance.map_or(0, |assurance| assurance >> 5);
    let assured =
        above.assurance_level.is_none() || level(content.assurance_level) <= level(above.assurance_level);
    let unique = |mut psids: Vec<u64>| {
        psids.sort_unstable();
        psids.windows(2).all(|pair| pair.first() != pair.last())
    };
    let allowed = content.validity.is_within(&above.validity)
        && region_within
        && assured
        && unique(content.application_permissions.iter().map(|application| application.psid.0).collect())
        && permits_applications(&above.issuing_permissions, &content.application_permissions)
        && permits_issuing(&above.issuing_permissions, &content.issuing_permissions);
    if allowed { Ok(()) } else { Err(SecurityDrop::InconsistentChain) }
}

/// Removes the least recently used certificates until the map has room for one more. Returns false if the map
/// is full of certificates that the store may not remove.
fn make_room_for_certificate(map: &mut BTreeMap<HashedId8, TrustedCertificate>, most: usize) -> bool {
    while map.len() >= most {
        let oldest = map
            .iter()
            .filter(|(_, trusted)| !trusted.is_configured)
            .min_by_key(|(_, trusted)| trusted.last_used_count);
        let Some((&name, _)) = oldest else { return false };
        map.remove(&name);
    }
    true
}
