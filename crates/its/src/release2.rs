//! Messages of release 2: those of release 1 with their additions, and the new messages.
//!
//! No service sends or uses these messages yet: the services read and write the parts that both releases have
//! ([`crate::cam`], [`crate::denm`]). The types are those of ETSI's modules.

/// Checks the protocol version. A message of version 1 has another encoding ([`crate::version1`]).
fn check_version(octets: &[u8]) -> Result<(), crate::uper::Error> {
    if crate::version1::is_version_1(octets) {
        let (what, found) = ("protocolVersion", crate::version1::VERSION.into());
        return Err(crate::uper::Error::OutOfRange { what, least: 2, most: 255, found });
    }
    Ok(())
}

/// The Common Data Dictionary (TS 102 894-2 V2.4.1).
pub mod cdd {
    pub use crate::asn1::release2::etsi_its_cdd::*;
}

/// The Cooperative Awareness Message (TS 103 900 V2.3.1).
pub mod cam {
    pub use crate::asn1::release2::cam_pdu_descriptions::*;
    use crate::uper::{Error, decode, encode};

    impl Cam {
        /// Decodes a CAM of release 2.
        ///
        /// # Errors
        ///
        /// An error that says why the octets are not a CAM.
        #[inline(never)]
        pub fn from_octets(octets: &[u8]) -> Result<Self, Error> {
            super::check_version(octets)?;
            decode(octets)
        }

        /// Returns the octets of the message. This function exists so that the compiler generates the encoder
        /// only once.
        ///
        /// # Errors
        /// An error with the value that its field cannot hold.
        #[inline(never)]
        pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
            encode(self)
        }
    }
}

/// The Decentralized Environmental Notification Message (TS 103 831 V2.3.1).
pub mod denm {
    pub use crate::asn1::release2::denm_pdu_description::*;
    use crate::uper::{Error, decode, encode};

    impl Denm {
        /// Decodes a DENM of release 2.
        ///
        /// # Errors
        ///
        /// An error that says why the octets are not a DENM.
        #[inline(never)]
        pub fn from_octets(octets: &[u8]) -> Result<Self, Error> {
            super::check_version(octets)?;
            decode(octets)
        }

        /// Returns the octets of the message. This function exists so that the compiler generates the encoder
        /// only once.
        ///
        /// # Errors
        /// An error with the value that its field cannot hold.
        #[inline(never)]
        pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
            encode(self)
        }
    }
}

/// The Vulnerable road user Awareness Message (TS 103 300-3 V2.3.1).
pub mod vam {
    pub use crate::asn1::release2::vam_pdu_descriptions::*;
    use crate::uper::{Error, decode, encode};

    impl Vam {
        /// Decodes a VAM.
        ///
        /// # Errors
        ///
        /// An error that says why the octets are not a VAM.
        #[inline(never)]
        pub fn from_octets(octets: &[u8]) -> Result<Self, Error> {
            decode(octets)
        }

        /// Returns the octets of the message. This function exists so that the compiler generates the encoder
        /// only once.
        ///
        /// # Errors
        /// An error with the value that its field cannot hold.
        #[inline(never)]
        pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
            encode(self)
        }
    }
}

/// The Collective Perception Message (TS 103 324 V2.1.1).
pub mod cpm {
    pub use crate::asn1::release2::cpm_originating_station_containers::*;
    pub use crate::asn1::release2::cpm_pdu_descriptions::*;
    pub use crate::asn1::release2::{
        cpm_perceived_object_container::*, cpm_perception_region_container::*,
        cpm_sensor_information_container::*,
    };
    use crate::uper::{Error, decode, encode};

    impl CollectivePerceptionMessage {
        /// Decodes a CPM.
        ///
        /// # Errors
        ///
        /// An error that says why the octets are not a CPM.
        #[inline(never)]
        pub fn from_octets(octets: &[u8]) -> Result<Self, Error> {
            decode(octets)
        }

        /// Returns the octets of the message. This function exists so that the compiler generates the encoder
        /// only once.
        ///
        /// # Errors
        /// An error with the value that its field cannot hold.
        #[inline(never)]
        pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
            encode(self)
        }
    }
}
