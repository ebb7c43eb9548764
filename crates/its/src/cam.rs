//! The Cooperative Awareness Message (EN 302 637-2 V1.4.1 annex A; TS 103 900 has the same root type).
//!
//! The parser skips the extension containers of release 2, which [`crate::release2`] reads. Both releases
//! have the same port and protocolVersion, and a station receives messages of both.

pub use crate::asn1::release1::cam_pdu_descriptions::*;
use crate::uper::{Error, decode, encode};
use crate::version1;

impl Cam {
    /// Decodes a CAM of protocol version 1 or 2 ([`version1`]). Call this function instead of
    /// [`crate::uper::decode`], which the compiler would copy for each caller.
    ///
    /// # Errors
    ///
    /// An error that says why the octets are not a CAM.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Cam, Error> {
        if version1::is_version_1(octets) {
            return version1::read_cam(octets);
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
