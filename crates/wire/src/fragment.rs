//! The Fragment header (RFC 8200 4.5).
//!
//! Left out: reassembly and fragmentation, which need buffers and timers of the caller.

use crate::Error;
use crate::octets::{array, u32_at};

/// Octets of the Fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// The Fragment header (RFC 8200 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentHeader {
    /// The first header of the fragmentable part of the original packet.
    pub next_header: u8,
    /// Where this fragment's data begins in the fragmentable part: octets, a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow (M).
    pub more: bool,
    /// Identification, equal in all fragments of one packet.
    pub identification: u32,
}

impl FragmentHeader {
    /// Reads the header; reserved bits are ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`] under 8 octets.
    pub fn parse(octets: &[u8]) -> Result<FragmentHeader, Error> {
        const WHAT: &str = "fragment header";
        let [next_header, _, high, low] = array::<4>(octets, 0, WHAT)?;
        let field = u16::from_be_bytes([high, low]);
        Ok(FragmentHeader {
            next_header,
            offset: field & 0xfff8,
            more: field & 1 != 0,
            identification: u32_at(octets, 4, WHAT)?,
        })
    }

    /// The header's octets. The offset is rounded down to a multiple of 8.
    pub fn emit(&self) -> [u8; FRAGMENT_HEADER_LEN] {
        let [high, low] = ((self.offset & 0xfff8) | u16::from(self.more)).to_be_bytes();
        let [a, b, c, d] = self.identification.to_be_bytes();
        [self.next_header, 0, high, low, a, b, c, d]
    }

    /// Whether this is a fragment other than the first, which holds no upper-layer header.
    pub fn is_later(&self) -> bool {
        self.offset != 0
    }
}
