//! The Fragment header (RFC 8200 4.5).
//!
//! Left out: reassembly and fragmentation, which need buffers and timers of the caller.

use crate::Error;
use crate::octets::{array_at, u32_at};

/// Octets of the Fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// The Fragment header (RFC 8200 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Type of the first header in the fragmentable part of the original packet.
    pub next_header: u8,
    /// Offset of this fragment's data in the fragmentable part, in octets; a multiple of 8.
    pub offset: u16,
    /// M: more fragments follow.
    pub more_fragments: bool,
    /// Identification; all fragments of one packet have the same value.
    pub identification: u32,
}

impl FragmentHeader {
    /// Reads the header and ignores its reserved bits.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer than 8 octets.
    pub fn parse(octets: &[u8]) -> Result<FragmentHeader, Error> {
        const NAME_IN_ERRORS: &str = "fragment header";
        let [next_header, _, high, low] = array_at::<4>(octets, 0, NAME_IN_ERRORS)?;
        let field = u16::from_be_bytes([high, low]);
        Ok(FragmentHeader {
            next_header,
            offset: field & 0xfff8,
            more_fragments: field & 1 != 0,
            identification: u32_at(octets, 4, NAME_IN_ERRORS)?,
        })
    }

    /// Returns the octets of the header. Rounds the offset down to a multiple of 8.
    pub fn emit(&self) -> [u8; FRAGMENT_HEADER_LEN] {
        let [high, low] = ((self.offset & 0xfff8) | u16::from(self.more_fragments)).to_be_bytes();
        let [a, b, c, d] = self.identification.to_be_bytes();
        [self.next_header, 0, high, low, a, b, c, d]
    }

    /// Returns whether this is a fragment other than the first; such a fragment has no upper-layer header.
    pub fn is_later_fragment(&self) -> bool {
        self.offset != 0
    }
}
