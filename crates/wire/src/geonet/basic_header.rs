//! The Basic Header (clause 9.6). A forwarder may change its fields, because no signature covers them.

use super::{Error, Lifetime, VERSION};

/// Next header of the Basic Header (table 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BasicNextHeader {
    /// 0: unspecified. A receiver handles the packet as with [`BasicNextHeader::Common`] (clause 10.3.3).
    Any,
    /// 1: the Common Header.
    Common,
    /// 2: a secured packet; its payload is the Common Header and the octets behind it.
    Secured,
    /// An undefined value, 3 to 15.
    Unknown(u8),
}

impl BasicNextHeader {
    /// Returns the meaning of the four bits.
    pub const fn from_value(value: u8) -> BasicNextHeader {
        match value & 0x0f {
            0 => BasicNextHeader::Any,
            1 => BasicNextHeader::Common,
            2 => BasicNextHeader::Secured,
            other => BasicNextHeader::Unknown(other),
        }
    }

    /// Returns the four bits of the Next Header field.
    pub const fn value(self) -> u8 {
        match self {
            BasicNextHeader::Any => 0,
            BasicNextHeader::Common => 1,
            BasicNextHeader::Secured => 2,
            BasicNextHeader::Unknown(value) => value & 0x0f,
        }
    }
}

/// The Basic Header, 4 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BasicHeader {
    /// Protocol version, 4 bits: [`VERSION`].
    pub version: u8,
    /// NH: type of the next header.
    pub next_header: BasicNextHeader,
    /// LT: the time for which stations may buffer the packet.
    pub lifetime: Lifetime,
    /// RHL: number of remaining hops, this hop included.
    pub remaining_hop_limit: u8,
}

impl BasicHeader {
    /// Length of the header, octets.
    pub const LEN: usize = 4;

    /// Reads the header and ignores the octets behind it.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 4 octets, [`Error::Version`] for a version other than 1.
    /// An undefined next header is not an error of this function.
    pub fn parse(octets: &[u8]) -> Result<BasicHeader, Error> {
        let Some(&[first, _reserved, lifetime, remaining_hop_limit]) = octets.first_chunk::<4>() else {
            return Err(Error::Truncated { what: "basic header", needed: Self::LEN, found: octets.len() });
        };
        let version = first >> 4;
        if version != VERSION {
            return Err(Error::Version { found: version });
        }
        Ok(BasicHeader {
            version,
            next_header: BasicNextHeader::from_value(first),
            lifetime: Lifetime(lifetime),
            remaining_hop_limit,
        })
    }

    /// Returns the octets of the header.
    pub fn to_octets(&self) -> [u8; Self::LEN] {
        [self.version << 4 | self.next_header.value(), 0, self.lifetime.0, self.remaining_hop_limit]
    }
}
