//! Credentials of a station: the certificates that it trusts, and the tickets with which it signs.
//!
//! The file of a private key has one line: the name of its curve and the scalar in hexadecimal digits
//! ([`PrivateKey`]). The caller reads the files; [`Credentials`] has their content.

use std::fmt;

use zeroize::Zeroizing;

use crate::SecurityDrop;
use crate::certificate::Certificate;
use crate::crypto::{CryptoBackend, SigningKey};
use crate::entity::{SecurityStation, SecurityTime, Ticket};
use crate::ids::HashedId8;
use crate::keys::EllipticCurve;

/// A private key that no back end has loaded yet.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    curve: EllipticCurve,
    scalar: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// Creates a key from a big-endian scalar; `None` if its length does not match the curve.
    pub fn new(curve: EllipticCurve, scalar: &[u8]) -> Option<PrivateKey> {
        (scalar.len() == curve.octets()).then(|| PrivateKey { curve, scalar: scalar.to_vec().into() })
    }

    /// Reads the line of a key file; `None` if the line has another form.
    pub fn parse(line: &str) -> Option<PrivateKey> {
        let (word, digits) = line.trim_ascii_end().split_once(' ')?;
        let curve = EllipticCurve::ALL.into_iter().find(|curve| curve.name_in_files() == word)?;
        if digits.len() != 2 * curve.octets() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let octet = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let mut scalar = Zeroizing::new(vec![0; curve.octets()]);
        for (place, at) in scalar.iter_mut().zip((0..digits.len()).step_by(2)) {
            *place = octet(at)?;
        }
        Some(PrivateKey { curve, scalar })
    }

    /// Returns the line of a key file.
    pub fn to_line(&self) -> String {
        let digits = self.scalar.iter().fold(String::new(), |text, octet| text + &format!("{octet:02x}"));
        format!("{} {digits}\n", self.curve.name_in_files())
    }

    /// Returns the key as a signing key of the back end. `None` if the scalar is invalid for the curve, or
    /// the back end does not support the curve.
    pub fn to_signing_key(&self, backend: &dyn CryptoBackend) -> Option<Box<dyn SigningKey>> {
        backend.signing_key(self.curve, &self.scalar)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("curve", &self.curve).finish_non_exhaustive()
    }
}

/// Trusted certificates, and own tickets with their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Trusted roots.
    pub root_certificates: Vec<Certificate>,
    /// Authorities below the roots; each comes after its issuer in the list.
    pub authorities: Vec<Certificate>,
    /// Certificates that the operator has revoked; certificates below them are revoked as well.
    pub revoked_certificates: Vec<HashedId8>,
    /// Own tickets, each with its key.
    pub tickets: Vec<(Certificate, PrivateKey)>,
}

/// Identifies one of the credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialName {
    /// A root, by its index.
    Root(usize),
    /// An authority, by its index.
    Authority(usize),
    /// An own ticket, by its index.
    Ticket(usize),
}

impl Credentials {
    /// Adds the credentials to a security entity. The first valid ticket becomes the current one. Returns the
    /// rejected credentials with the reasons.
    pub fn add_credentials(
        &self,
        security: &mut SecurityStation,
        backend: &dyn CryptoBackend,
        now: SecurityTime,
    ) -> Vec<(CredentialName, SecurityDrop)> {
        let mut refused = Vec::new();
        for name in &self.revoked_certificates {
            security.revoke_certificate(*name);
        }
        for (index, root) in self.root_certificates.iter().enumerate() {
            let added = security.add_root(root.clone());
            refused.extend(added.err().map(|reason| (CredentialName::Root(index), reason)));
        }
        for (index, authority) in self.authorities.iter().enumerate() {
            let added = security.add_authority(now, authority.clone());
            refused.extend(added.err().map(|reason| (CredentialName::Authority(index), reason)));
        }
        for (index, (certificate, key)) in self.tickets.iter().enumerate() {
            let added = key.to_signing_key(backend).ok_or(SecurityDrop::BadKey).and_then(|key| {
                security.add_own_ticket(now, Ticket { certificate: certificate.clone(), key })
            });
            refused.extend(added.err().map(|reason| (CredentialName::Ticket(index), reason)));
        }
        security.replace_invalid_ticket(now);
        refused
    }
}
