//! The Cooperative Awareness Message (EN 302 637-2 V1.4.1 annex A; TS 103 900 has the same root).
//!
//! The extension containers of release 2 are skipped: both releases have the same port and protocolVersion, and a station
//! hears both. [`crate::release2`] has them.

pub use crate::asn1::release1::cam_pdu_descriptions::*;
use crate::uper::{Error, decode, encode};

impl Cam {
    /// Reads a message. The codec is compiled here and nowhere else: whoever called [`crate::uper::decode`] would get
    /// a copy of all of it.
    ///
    /// # Errors
    /// Why the octets are none.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Cam, Error> {
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
