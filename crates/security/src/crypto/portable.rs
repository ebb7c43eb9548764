//! Pure Rust, for any machine: the curves of RustCrypto. Signatures are deterministic (RFC 6979), so that a bad source of
//! randomness cannot give a key away.
//!
//! NIST P-256 is always there; each of the others is a feature of this crate, for a program that has to be small. A key on a
//! curve that is not there is like one that is no point of its curve.

use std::fmt;

use ecdsa::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
use ecdsa::elliptic_curve::{AffinePoint, CurveArithmetic, FieldBytesSize};
use ecdsa::signature::{Signer, Verifier};
use ecdsa::{DigestAlgorithm, EcdsaCurve};
use sha2::{Digest, Sha256, Sha384};

use super::{Backend, SigningError, SigningKey, VerifyingKey};
use crate::keys::{Curve, HashAlgorithm, PublicKey, Signature};

/// The portable back end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Portable;

impl Backend for Portable {
    fn hash(&self, algorithm: HashAlgorithm, octets: &[u8]) -> Vec<u8> {
        match algorithm {
            HashAlgorithm::Sha256 => Sha256::digest(octets).to_vec(),
            HashAlgorithm::Sha384 => Sha384::digest(octets).to_vec(),
        }
    }

    fn verifying_key(&self, key: &PublicKey) -> Option<Box<dyn VerifyingKey>> {
        match key.curve() {
            Curve::NistP256 => verifying::<p256::NistP256>(key),
            #[cfg(feature = "brainpool-p256")]
            Curve::BrainpoolP256r1 => verifying::<bp256::BrainpoolP256r1>(key),
            #[cfg(feature = "brainpool-p384")]
            Curve::BrainpoolP384r1 => verifying::<bp384::BrainpoolP384r1>(key),
            #[cfg(feature = "nist-p384")]
            Curve::NistP384 => verifying::<p384::NistP384>(key),
            #[allow(unreachable_patterns, reason = "some curves are not compiled in")]
            _ => None,
        }
    }

    fn signing_key(&self, curve: Curve, scalar: &[u8]) -> Option<Box<dyn SigningKey>> {
        PortableKey::new(curve, scalar).map(|key| Box::new(key) as Box<dyn SigningKey>)
    }
}

fn verifying<C>(key: &PublicKey) -> Option<Box<dyn VerifyingKey>>
where
    C: EcdsaCurve + CurveArithmetic + DigestAlgorithm,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
    ecdsa::VerifyingKey<C>: Verifier<ecdsa::Signature<C>> + Send + Sync + fmt::Debug + 'static,
{
    let inner = ecdsa::VerifyingKey::<C>::from_sec1_bytes(&key.to_sec1()).ok()?;
    Some(Box::new(Ready { curve: key.curve(), inner }))
}

/// A public key on curve `C`.
#[derive(Debug)]
struct Ready<C: EcdsaCurve + CurveArithmetic> {
    curve: Curve,
    inner: ecdsa::VerifyingKey<C>,
}

impl<C> VerifyingKey for Ready<C>
where
    C: EcdsaCurve + CurveArithmetic,
    ecdsa::VerifyingKey<C>: Verifier<ecdsa::Signature<C>> + Send + Sync + fmt::Debug,
{
    fn verify(&self, input: &[u8], signature: &Signature) -> bool {
        // A signature of another curve has another length or means nothing on this one.
        signature.curve() == self.curve
            && ecdsa::Signature::<C>::from_slice(&signature.to_octets())
                .is_ok_and(|signature| self.inner.verify(input, &signature).is_ok())
    }
}

/// A private key in memory; what it was is overwritten when it goes.
pub struct PortableKey {
    public: PublicKey,
    inner: Scalar,
}

enum Scalar {
    NistP256(ecdsa::SigningKey<p256::NistP256>),
    #[cfg(feature = "brainpool-p256")]
    BrainpoolP256r1(ecdsa::SigningKey<bp256::BrainpoolP256r1>),
    #[cfg(feature = "brainpool-p384")]
    BrainpoolP384r1(ecdsa::SigningKey<bp384::BrainpoolP384r1>),
    #[cfg(feature = "nist-p384")]
    NistP384(ecdsa::SigningKey<p384::NistP384>),
}

/// The same for each curve.
macro_rules! each {
    ($on:expr, $key:ident => $do:expr) => {
        match $on {
            Scalar::NistP256($key) => $do,
            #[cfg(feature = "brainpool-p256")]
            Scalar::BrainpoolP256r1($key) => $do,
            #[cfg(feature = "brainpool-p384")]
            Scalar::BrainpoolP384r1($key) => $do,
            #[cfg(feature = "nist-p384")]
            Scalar::NistP384($key) => $do,
        }
    };
}

impl PortableKey {
    /// From its scalar, big-endian, as long as the curve's; `None` if it is zero or too large.
    pub fn new(curve: Curve, scalar: &[u8]) -> Option<PortableKey> {
        let inner = match curve {
            Curve::NistP256 => Scalar::NistP256(ecdsa::SigningKey::from_slice(scalar).ok()?),
            #[cfg(feature = "brainpool-p256")]
            Curve::BrainpoolP256r1 => Scalar::BrainpoolP256r1(ecdsa::SigningKey::from_slice(scalar).ok()?),
            #[cfg(feature = "brainpool-p384")]
            Curve::BrainpoolP384r1 => Scalar::BrainpoolP384r1(ecdsa::SigningKey::from_slice(scalar).ok()?),
            #[cfg(feature = "nist-p384")]
            Curve::NistP384 => Scalar::NistP384(ecdsa::SigningKey::from_slice(scalar).ok()?),
            #[allow(unreachable_patterns, reason = "some curves are not compiled in")]
            _ => return None,
        };
        let point = each!(&inner, key => key.verifying_key().to_sec1_point(true).as_bytes().to_vec());
        Some(PortableKey { public: PublicKey::from_sec1(curve, &point)?, inner })
    }
}

impl fmt::Debug for PortableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortableKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey for PortableKey {
    fn public_key(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, input: &[u8]) -> Result<Signature, SigningError> {
        let octets = each!(&self.inner, key => {
            let signature: ecdsa::Signature<_> = key.try_sign(input).map_err(|_| SigningError::Unavailable)?;
            signature.to_bytes().to_vec()
        });
        Signature::from_octets(self.public.curve(), &octets).ok_or(SigningError::WrongCurve)
    }
}
