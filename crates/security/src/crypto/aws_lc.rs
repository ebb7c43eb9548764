//! Back end of AWS-LC, for machines that receive the messages of many stations. AWS-LC supports no brainpool
//! curves; the portable back end handles them. Its signatures use randomness of the operating system.

use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA384, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, ParsedPublicKey,
};

use super::{Backend, Portable, SigningError, SigningKey, VerifyingKey};
use crate::keys::{Curve, HashAlgorithm, PublicKey, Signature};

/// Cryptographic back end that uses AWS-LC.
#[derive(Debug, Clone, Copy, Default)]
pub struct AwsLc;

impl Backend for AwsLc {
    fn hash(&self, algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8> {
        let algorithm = match algorithm {
            HashAlgorithm::Sha256 => &SHA256,
            HashAlgorithm::Sha384 => &SHA384,
        };
        digest(algorithm, octets).as_ref().to_vec()
    }

    fn verifying_key(&self, key: &PublicKey) -> Option<Box<dyn VerifyingKey>> {
        let algorithm = match key.curve() {
            Curve::NistP256 => &ECDSA_P256_SHA256_FIXED,
            Curve::NistP384 => &ECDSA_P384_SHA384_FIXED,
            Curve::BrainpoolP256r1 | Curve::BrainpoolP384r1 => return Portable.verifying_key(key),
        };
        let inner = ParsedPublicKey::new(algorithm, key.to_sec1()).ok()?;
        Some(Box::new(Ready { curve: key.curve(), inner }))
    }

    fn signing_key(&self, curve: Curve, scalar: &[u8]) -> Option<Box<dyn SigningKey>> {
        let algorithm = match curve {
            Curve::NistP256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
            Curve::NistP384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
            Curve::BrainpoolP256r1 | Curve::BrainpoolP384r1 => return Portable.signing_key(curve, scalar),
        };
        let public = Portable.signing_key(curve, scalar)?.public_key();
        let inner =
            EcdsaKeyPair::from_private_key_and_public_key(algorithm, scalar, &public.to_sec1()).ok()?;
        Some(Box::new(Key { public, inner, random: SystemRandom::new() }))
    }
}

struct Ready {
    curve: Curve,
    inner: ParsedPublicKey,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("curve", &self.curve).finish_non_exhaustive()
    }
}

impl VerifyingKey for Ready {
    fn verify(&self, input: &[u8], signature: &Signature) -> bool {
        signature.curve() == self.curve && self.inner.verify_sig(input, &signature.to_octets()).is_ok()
    }
}

struct Key {
    public: PublicKey,
    inner: EcdsaKeyPair,
    random: SystemRandom,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey for Key {
    fn public_key(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, input: &[u8]) -> Result<Signature, SigningError> {
        let signature = self.inner.sign(&self.random, input).map_err(|_| SigningError::Unavailable)?;
        Signature::from_octets(self.public.curve(), signature.as_ref()).ok_or(SigningError::WrongCurve)
    }
}
