//! The Decentralized Environmental Notification Message (EN 302 637-3 V1.3.1 annex A; TS 103 831 has the same
//! root type).
//!
//! The parser skips the additions of release 2, which [`crate::release2`] reads.

pub use crate::asn1::release1::denm_pdu_descriptions::*;
use crate::uper::{Error, decode, encode};
use crate::version1;

impl Denm {
    /// Decodes a DENM of protocol version 1 or 2 ([`version1`]). Call this function instead of
    /// [`crate::uper::decode`], which the compiler would copy for each caller.
    ///
    /// # Errors
    ///
    /// An error that says why the octets are not a DENM.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Denm, Error> {
        if version1::is_version_1(octets) {
            return version1::read_denm(octets);
        }
        decode(octets)
    }

    /// Returns the octets of the message. Like [`Self::from_octets`], this function exists so that the
    /// compiler generates the encoder only once.
    ///
    /// # Errors
    /// An error with the value that its field cannot hold.
    #[inline(never)]
    pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
        encode(self)
    }
}
