//! Cryptographic back ends: hashes, verification and signatures behind traits.
//!
//! [`Portable`] is pure Rust for any machine; [`Portable256`] is its part for small programs. The feature
//! `aws-lc-rs` adds `AwsLc` for servers and roadside units that receive a thousand vehicles. It needs a C
//! compiler, and leaves brainpool curves to the portable back end. A [`SigningKey`] need not be in this
//! machine's memory. A hardware security module implements the trait over PKCS#11 (CKM_ECDSA on the hash of
//! its input) and keeps the key.
//!
//! A signature covers the hash of two hashes (IEEE 1609.2 5.3.1.2.2). The first is of the data, the second of
//! the signer's certificate, or of nothing if that is self-signed. [`signature_input`] concatenates them;
//! back ends hash the result, with the hash of the curve.

#[cfg(feature = "aws-lc-rs")]
mod aws_lc;
mod portable;

#[cfg(feature = "aws-lc-rs")]
pub use aws_lc::AwsLc;
pub use portable::{Portable, Portable256};

use std::fmt::Debug;

use crate::certificate::Certificate;
use crate::ids::HashedId8;
use crate::keys::{HashAlgorithm, PublicKey, Signature};

/// Why a key signed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The module that has the key does not answer, or refuses.
    #[error("the key cannot be used now")]
    Unavailable,
    /// The key signed with another curve than its certificate says.
    #[error("the key is not of the curve of its certificate")]
    WrongCurve,
}

/// A key that verifies, made ready: its point is decompressed and known to be on the curve.
pub trait VerifyingKey: Debug + Send + Sync {
    /// Whether `signature` is by this key over the hash of `input`.
    fn verify(&self, input: &[u8], signature: &Signature) -> bool;
}

/// A key that signs.
pub trait SigningKey: Debug + Send {
    /// The public key that belongs to it.
    fn public_key(&self) -> PublicKey;

    /// Signs the hash, by the hash of the key's curve, of `input`.
    ///
    /// # Errors
    /// Why there is no signature.
    fn sign(&self, input: &[u8]) -> Result<Signature, SigningError>;
}

/// Back end that computes hashes and signatures.
pub trait Backend: Debug + Send {
    /// A hash: 32 or 48 octets.
    fn hash(&self, algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8>;

    /// A public key made ready; `None` if there is no such point.
    fn verifying_key(&self, key: &PublicKey) -> Option<Box<dyn VerifyingKey>>;

    /// A private key, from its scalar, big-endian; `None` if it is zero or too large.
    fn signing_key(&self, curve: crate::keys::Curve, scalar: &[u8]) -> Option<Box<dyn SigningKey>>;
}

/// The name of a certificate (5.3.9.2).
pub fn name_of(backend: &dyn Backend, certificate: &Certificate) -> HashedId8 {
    HashedId8::of_hash(&backend.hash(certificate.hash_algorithm(), certificate.octets()))
}

/// Returns the input of the signature's hash (5.3.1.2.2): the hash of the data and that of the signer's
/// certificate. The octets of the certificate are empty for a signer without one.
pub fn signature_input(
    backend: &dyn Backend,
    hash: HashAlgorithm,
    data: &[u8],
    certificate: &[u8],
) -> Vec<u8> {
    let mut input = backend.hash(hash, data);
    input.extend_from_slice(&backend.hash(hash, certificate));
    input
}
