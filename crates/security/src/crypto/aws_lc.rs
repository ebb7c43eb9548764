//! Back end of AWS-LC, for machines that receive the messages of many stations. AWS-LC supports no brainpool
//! curves; the portable back end handles them. Its signatures use randomness of the operating system.

use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA384, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, ParsedPublicKey,
};

use super::{CryptoBackend, Portable, SigningError, SigningKey, VerifyingKey};
use crate::keys::{EllipticCurve, HashAlgorithm, PublicKey, Signature};

/// Cryptographic back end that uses AWS-LC.
#[derive(Debug, Clone, Copy, Default)]
pub struct AwsLc;

impl CryptoBackend for AwsLc {
    fn hash(&self, algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8> {
        let algorithm = match algorithm {
            HashAlgorithm::Sha256 => &SHA256,
            HashAlgorithm::Sha384 => &SHA384,
        };
        digest(algorithm, octets).as_ref().to_vec()
    }

    fn verifying_key(&self, key: &PublicKey) -> Option<Box<dyn VerifyingKey>> {
        let algorithm = match key.curve() {
            EllipticCurve::NistP256 => &ECDSA_P256_SHA256_FIXED,
            EllipticCurve::NistP384 => &ECDSA_P384_SHA384_FIXED,
            EllipticCurve::BrainpoolP256r1 | EllipticCurve::BrainpoolP384r1 => {
                return Portable.verifying_key(key);
            }
        };
        let inner = ParsedPublicKey::new(algorithm, key.to_sec1()).ok()?;
        Some(Box::new(AwsLcVerifyingKey { curve: key.curve(), inner }))
    }

    fn signing_key(&self, curve: EllipticCurve, scalar: &[u8]) -> Option<Box<dyn SigningKey>> {
        let algorithm = match curve {
            EllipticCurve::NistP256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
            EllipticCurve::NistP384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
            EllipticCurve::BrainpoolP256r1 | EllipticCurve::BrainpoolP384r1 => {
                return Portable.signing_key(curve, scalar);
            }
        };
        let public = Portable.signing_key(curve, scalar)?.public_key();
        let inner =
            EcdsaKeyPair::from_private_key_and_public_key(algorithm, scalar, &public.to_sec1()).ok()?;
        Some(Box::new(AwsLcSigningKey { public, inner, random: SystemRandom::new() }))
    }
}

struct AwsLcVerifyingKey {
    curve: EllipticCurve,
    inner: ParsedPublicKey,
}

impl fmt::Debug for AwsLcVerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("curve", &self.curve).finish_non_exhaustive()
    }
}

impl VerifyingKey for AwsLcVerifyingKey {
    fn verify(&self, input: &[u8], signature: &Signature) -> bool {
        signature.curve() == self.curve && self.inner.verify_sig(input, &signature.to_octets()).is_ok()
    }
}

struct AwsLcSigningKey {
    public: PublicKey,
    inner: EcdsaKeyPair,
    random: SystemRandom,
}

impl fmt::Debug for AwsLcSigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey for AwsLcSigningKey {
    fn public_key(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, input: &[u8]) -> Result<Signature, SigningError> {
        let signature = self.inner.sign(&self.random, input).map_err(|_| SigningError::Unavailable)?;
        Signature::from_octets(self.public.curve(), signature.as_ref()).ok_or(SigningError::WrongCurve)
    }
}
