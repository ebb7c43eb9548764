//! The Decentralized Environmental Notification Message (EN 302 637-3 V1.3.1 annex A; TS 103 831 has the same
//! root).
//!
//! The additions of release 2 are skipped; [`crate::release2`] has them.

pub use crate::asn1::release1::denm_pdu_descriptions::*;
use crate::uper::{Error, decode, encode};
use crate::version1;

impl Denm {
    /// Reads a message of protocol version 1 or 2 ([`version1`]). The codec is compiled here only: each
    /// caller of [`crate::uper::decode`] would get a copy of all of it.
    ///
    /// # Errors
    /// An error that says why the octets are not a DENM.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Denm, Error> {
        if version1::is_meant(octets) {
            return version1::read_denm(octets);
        }
        decode(octets)
    }

    /// The message's octets, compiled here likewise.
    ///
    /// # Errors
    /// Which value does not fit.
    #[inline(never)]
    pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
        encode(self)
    }
}
