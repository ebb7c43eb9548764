//! Pure Rust, for any machine: the curves of RustCrypto. Signatures are deterministic (RFC 6979), so that a
//! bad source of randomness cannot reveal a key.
//!
//! A program selects its curves by the back end that it uses; the linker omits the other curves. The back end
//! rejects a key on an omitted curve like a point that is not on its curve.

use std::fmt;

use ecdsa::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
use ecdsa::elliptic_curve::{AffinePoint, CurveArithmetic, FieldBytesSize};
use ecdsa::signature::{Signer, Verifier};
use ecdsa::{DigestAlgorithm, EcdsaCurve};
use sha2::{Digest, Sha256, Sha384};

use super::{CryptoBackend, SigningError, SigningKey, VerifyingKey};
use crate::keys::{EllipticCurve, HashAlgorithm, PublicKey, Signature};

/// The portable back end, with every curve of the profile.
#[derive(Debug, Clone, Copy, Default)]
pub struct PortableBackend;

/// Portable back end for small programs, with only the 256-bit curves that tickets use. It rejects signatures
/// on other curves (`bad_key`).
#[derive(Debug, Clone, Copy, Default)]
pub struct PortableBackend256;

impl CryptoBackend for PortableBackend {
    fn hash(&self, algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8> {
        hash(algorithm, octets)
    }

    fn verifying_key(&self, key: &PublicKey) -> Option<Box<dyn VerifyingKey>> {
        match key.curve() {
            EllipticCurve::BrainpoolP384r1 => load_verifying_key::<bp384::BrainpoolP384r1>(key),
            EllipticCurve::NistP384 => load_verifying_key::<p384::NistP384>(key),
            EllipticCurve::NistP256 | EllipticCurve::BrainpoolP256r1 => PortableBackend256.verifying_key(key),
        }
    }

    fn signing_key(&self, curve: EllipticCurve, scalar: &[u8]) -> Option<Box<dyn SigningKey>> {
        match curve {
            EllipticCurve::BrainpoolP384r1 => load_signing_key::<bp384::BrainpoolP384r1>(curve, scalar),
            EllipticCurve::NistP384 => load_signing_key::<p384::NistP384>(curve, scalar),
            EllipticCurve::NistP256 | EllipticCurve::BrainpoolP256r1 => {
                PortableBackend256.signing_key(curve, scalar)
            }
        }
    }
}

impl CryptoBackend for PortableBackend256 {
    fn hash(&self, algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8> {
        hash(algorithm, octets)
    }

    fn verifying_key(&self, key: &PublicKey) -> Option<Box<dyn VerifyingKey>> {
        match key.curve() {
            EllipticCurve::NistP256 => load_verifying_key::<p256::NistP256>(key),
            EllipticCurve::BrainpoolP256r1 => load_verifying_key::<bp256::BrainpoolP256r1>(key),
            EllipticCurve::BrainpoolP384r1 | EllipticCurve::NistP384 => None,
        }
    }

    fn signing_key(&self, curve: EllipticCurve, scalar: &[u8]) -> Option<Box<dyn SigningKey>> {
        match curve {
            EllipticCurve::NistP256 => load_signing_key::<p256::NistP256>(curve, scalar),
            EllipticCurve::BrainpoolP256r1 => load_signing_key::<bp256::BrainpoolP256r1>(curve, scalar),
            EllipticCurve::BrainpoolP384r1 | EllipticCurve::NistP384 => None,
        }
    }
}

fn hash(algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8> {
    match algorithm {
        HashAlgorithm::Sha256 => Sha256::digest(octets).to_vec(),
        HashAlgorithm::Sha384 => Sha384::digest(octets).to_vec(),
    }
}

fn load_verifying_key<C>(key: &PublicKey) -> Option<Box<dyn VerifyingKey>>
where
    C: EcdsaCurve + CurveArithmetic + DigestAlgorithm,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
    ecdsa::VerifyingKey<C>: Verifier<ecdsa::Signature<C>> + Send + Sync + fmt::Debug + 'static,
{
    let inner = ecdsa::VerifyingKey::<C>::from_sec1_bytes(&key.to_sec1()).ok()?;
    Some(Box::new(LoadedPublicKey { curve: key.curve(), inner }))
}

/// A loaded public key on curve `C`.
#[derive(Debug)]
struct LoadedPublicKey<C: EcdsaCurve + CurveArithmetic> {
    curve: EllipticCurve,
    inner: ecdsa::VerifyingKey<C>,
}

impl<C> VerifyingKey for LoadedPublicKey<C>
where
    C: EcdsaCurve + CurveArithmetic,
    ecdsa::VerifyingKey<C>: Verifier<ecdsa::Signature<C>> + Send + Sync + fmt::Debug,
{
    fn verify(&self, input: &[u8], signature: &Signature) -> bool {
        // A signature on another curve has another length, or its numbers are invalid on this curve.
        signature.curve() == self.curve
            && ecdsa::Signature::<C>::from_slice(&signature.to_octets())
                .is_ok_and(|signature| self.inner.verify(input, &signature).is_ok())
    }
}

/// Loads a private key on curve `C`; `None` if the scalar is zero or too large.
fn load_signing_key<C>(curve: EllipticCurve, scalar: &[u8]) -> Option<Box<dyn SigningKey>>
where
    C: EcdsaCurve + CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
    ecdsa::SigningKey<C>: Signer<ecdsa::Signature<C>> + Send + 'static,
{
    let inner = ecdsa::SigningKey::<C>::from_slice(scalar).ok()?;
    let point = inner.verifying_key().to_sec1_point(true);
    let public = PublicKey::from_sec1(curve, point.as_bytes())?;
    Some(Box::new(LoadedPrivateKey { public_key: public, inner }))
}

/// A private key in memory. When the program drops it, its octets are overwritten.
struct LoadedPrivateKey<C: EcdsaCurve + CurveArithmetic> {
    public_key: PublicKey,
    inner: ecdsa::SigningKey<C>,
}

impl<C: EcdsaCurve + CurveArithmetic> fmt::Debug for LoadedPrivateKey<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("public", &self.public_key).finish_non_exhaustive()
    }
}

impl<C> SigningKey for LoadedPrivateKey<C>
where
    C: EcdsaCurve + CurveArithmetic,
    ecdsa::SigningKey<C>: Signer<ecdsa::Signature<C>> + Send,
{
    fn public_key(&self) -> PublicKey {
        self.public_key
    }

    fn sign(&self, input: &[u8]) -> Result<Signature, SigningError> {
        let signature = self.inner.try_sign(input).map_err(|_| SigningError::Unavailable)?;
        Signature::from_octets(self.public_key.curve(), &signature.to_bytes()).ok_or(SigningError::WrongCurve)
    }
}
