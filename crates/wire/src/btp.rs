//! The Basic Transport Protocol (ETSI EN 302 636-5-1): ports on top of GeoNetworking.
//!
//! The header has four octets and one of two forms. The next header of the Common Header
//! ([`crate::geonet::CommonNextHeader`]) says which form it is. A BTP header has no checksum and no length.

use crate::Error;
use crate::octets::{octets_from, u16_at};

/// Length of a BTP-A or BTP-B header, octets.
pub const LEN: usize = 4;

/// BTP-A header, for interactive exchanges (clause 7.2): it names the port for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BtpA {
    /// Port of the receiving facility.
    pub destination_port: u16,
    /// Port of the sending facility, which expects the answer at this port.
    pub source_port: u16,
}

/// BTP-B header, for messages without an answer (clause 7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BtpB {
    /// Port of the receiving facility.
    pub destination_port: u16,
    /// Destination port info: with a well-known destination port, more about the service; otherwise 0.
    pub destination_port_info: u16,
}

impl BtpA {
    /// Reads the header; returns the header and the octets behind it.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 4 octets.
    pub fn parse(octets: &[u8]) -> Result<(BtpA, &[u8]), Error> {
        let (destination_port, source_port, payload) = parse_two_ports(octets, "BTP-A header")?;
        Ok((BtpA { destination_port, source_port }, payload))
    }

    /// Returns the octets of the header.
    pub fn to_octets(&self) -> [u8; LEN] {
        emit_two_ports(self.destination_port, self.source_port)
    }
}

impl BtpB {
    /// Reads the header; returns the header and the octets behind it.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 4 octets.
    pub fn parse(octets: &[u8]) -> Result<(BtpB, &[u8]), Error> {
        let (destination_port, destination_port_info, payload) = parse_two_ports(octets, "BTP-B header")?;
        Ok((BtpB { destination_port, destination_port_info }, payload))
    }

    /// Returns the octets of the header.
    pub fn to_octets(&self) -> [u8; LEN] {
        emit_two_ports(self.destination_port, self.destination_port_info)
    }
}

fn parse_two_ports<'a>(octets: &'a [u8], what: &'static str) -> Result<(u16, u16, &'a [u8]), Error> {
    let payload = octets_from(octets, LEN, what)?;
    Ok((u16_at(octets, 0, what)?, u16_at(octets, 2, what)?, payload))
}

fn emit_two_ports(first: u16, second: u16) -> [u8; LEN] {
    let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
    [a, b, c, d]
}

/// Defines the port constants and the names of their messages from one list.
macro_rules! ports {
    ($($name:ident = $value:literal, $message:literal, $meaning:literal;)*) => {
        /// Well-known destination ports (TS 103 248 V2.4.1).
        pub mod port {
            $(#[doc = concat!($message, ": ", $meaning, ".")]
            pub const $name: u16 = $value;)*
        }

        /// Returns the name of the message that uses this well-known port, or `None` for another port.
        pub const fn message_name_of_port(port: u16) -> Option<&'static str> {
            match port {
                $(port::$name => Some($message),)*
                _ => None,
            }
        }
    };
}

ports! {
    CAM = 2001, "CAM", "cooperative awareness";
    DENM = 2002, "DENM", "decentralized environmental notification";
    MAPEM = 2003, "MAPEM", "road topology";
    SPATEM = 2004, "SPATEM", "signal phase and timing";
    SAEM = 2005, "SAEM", "service announcement";
    IVIM = 2006, "IVIM", "infrastructure to vehicle information";
    SREM = 2007, "SREM", "signal request";
    SSEM = 2008, "SSEM", "signal status";
    CPM = 2009, "CPM", "collective perception";
    EVCSN_POI = 2010, "EVCSN POI", "electric vehicle charging spots";
    TRM = 2011, "TRM, TCM, VDRM, VDPM, EOFM", "tyre pressure and electric vehicle charging";
    EV_RSR = 2012, "EV-RSR", "electric vehicle charging reservation";
    RTCMEM = 2013, "RTCMEM", "GNSS corrections";
    CTLM = 2014, "CTLM", "certificate trust lists";
    CRLM = 2015, "CRLM", "certificate revocation lists";
    CERTIFICATE_REQUEST = 2016, "EC/AT request", "enrolment credentials and authorization tickets";
    MCDM = 2017, "MCDM", "multimedia content dissemination";
    VAM = 2018, "VAM", "vulnerable road user awareness";
    IMZM = 2019, "IMZM", "interference management zones";
    DSM = 2020, "DSM", "diagnosis, logging and status";
    P2P_CRLM = 2021, "P2P CRLM", "certificate revocation lists from station to station";
    P2P_CTLM = 2022, "P2P CTLM", "certificate trust lists from station to station";
    MRM = 2023, "MRM", "misbehaviour reports";
    P2P_FCTLM = 2024, "P2P FCTLM", "full certificate trust lists from station to station";
    POIM_PA = 2025, "POIM-PA", "parking availability";
    MIM = 2026, "MIM", "marshalling of vehicles by the infrastructure";
}
