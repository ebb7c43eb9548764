//! Cryptographic back ends: hashes, verification and signatures behind traits.
//!
//! [`PortableBackend`] is pure Rust for any machine; [`PortableBackend256`] is its part for small programs.
//! The feature `aws-lc-rs` adds `AwsLc` for servers and roadside units that receive a thousand vehicles.
//! `AwsLc` needs a C compiler, and uses the portable back end for brainpool curves. The private key of a
//! [`SigningKey`] need not be in this machine's memory. A hardware security module implements the trait over
//! PKCS#11 (CKM_ECDSA on the hash of its input) and keeps the key.
//!
//! A signature covers the hash of two hashes (IEEE 1609.2 5.3.1.2.2). The first is the hash of the data, the
//! second that of the signer's certificate, or of no octets for a self-signed certificate.
//! [`signature_input`] concatenates the two hashes; back ends hash the result with the hash of the curve.

#[cfg(feature = "aws-lc-rs")]
mod aws_lc;
mod portable;

#[cfg(feature = "aws-lc-rs")]
pub use aws_lc::AwsLc;
pub use portable::{PortableBackend, PortableBackend256};

use std::fmt::Debug;

use crate::certificate::Certificate;
use crate::ids::HashedId8;
use crate::keys::{HashAlgorithm, PublicKey, Signature};

/// Reason for which a key did not sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The holder of the key (such as a hardware security module) does not answer, or refuses.
    #[error("the security module with the signing key does not answer, or refuses to sign")]
    Unavailable,
    /// The key uses another curve than its certificate says.
    #[error("the signing key and its certificate have different curves")]
    WrongCurve,
}

/// A loaded public key: its point is decompressed and lies on the curve.
pub trait VerifyingKey: Debug + Send + Sync {
    /// Returns whether this key made `signature` over the hash of `input`.
    fn verify(&self, input: &[u8], signature: &Signature) -> bool;
}

/// A private key that signs.
pub trait SigningKey: Debug + Send {
    /// Returns the public key of the pair.
    fn public_key(&self) -> PublicKey;

    /// Computes the signature over the hash of `input`; the curve of the key determines the hash algorithm.
    ///
    /// # Errors
    ///
    /// The reason why the key could not sign.
    fn sign(&self, input: &[u8]) -> Result<Signature, SigningError>;
}

/// Back end that computes hashes and signatures.
pub trait CryptoBackend: Debug + Send {
    /// Returns a hash of 32 or 48 octets.
    fn hash(&self, algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8>;

    /// Loads a public key; `None` if it is not a point on its curve.
    fn verifying_key(&self, key: &PublicKey) -> Option<Box<dyn VerifyingKey>>;

    /// Loads a private key from its big-endian scalar; `None` if the scalar is zero or too large.
    fn signing_key(&self, curve: crate::keys::EllipticCurve, scalar: &[u8]) -> Option<Box<dyn SigningKey>>;
}

/// Returns the name of a certificate (5.3.9.2).
pub fn name_of_certificate(backend: &dyn CryptoBackend, certificate: &Certificate) -> HashedId8 {
    HashedId8::from_hash(&backend.hash(certificate.hash_algorithm(), certificate.octets()))
}

/// Returns the octets whose hash a signer signs (5.3.1.2.2): the hash of the data, then the hash of the
/// signer's certificate. `certificate` is empty for a self-signed message.
pub fn signature_input(
    backend: &dyn CryptoBackend,
    hash: HashAlgorithm,
    data: &[u8],
    certificate: &[u8],
) -> Vec<u8> {
    let mut input = backend.hash(hash, data);
    input.extend_from_slice(&backend.hash(hash, certificate));
    input
}
