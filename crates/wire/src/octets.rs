//! Readers of fixed-size fields; they never panic.
//!
//! Each function reads at an offset in octets and returns [`Error::Truncated`] if the octets end too early;
//! `what` names the structure in this error. All integers are big-endian.

use crate::Error;
use std::net::Ipv6Addr;

/// Returns the `N` octets at `offset`.
pub(crate) fn array_at<const N: usize>(
    octets: &[u8],
    offset: usize,
    what: &'static str,
) -> Result<[u8; N], Error> {
    octets.get(offset..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or(Error::Truncated {
        what,
        needed: offset.saturating_add(N),
        found: octets.len(),
    })
}

/// Returns the octet at `offset`.
pub(crate) fn u8_at(octets: &[u8], offset: usize, what: &'static str) -> Result<u8, Error> {
    array_at::<1>(octets, offset, what).map(|[octet]| octet)
}

/// Returns the 16-bit field at `offset`.
pub(crate) fn u16_at(octets: &[u8], offset: usize, what: &'static str) -> Result<u16, Error> {
    array_at(octets, offset, what).map(u16::from_be_bytes)
}

/// Returns the 32-bit field at `offset`.
pub(crate) fn u32_at(octets: &[u8], offset: usize, what: &'static str) -> Result<u32, Error> {
    array_at(octets, offset, what).map(u32::from_be_bytes)
}

/// Returns the IPv6 address at `offset`.
pub(crate) fn address_at(octets: &[u8], offset: usize, what: &'static str) -> Result<Ipv6Addr, Error> {
    array_at::<16>(octets, offset, what).map(Ipv6Addr::from)
}

/// Returns the `length` octets from `offset` on.
pub(crate) fn slice_at<'a>(
    octets: &'a [u8],
    offset: usize,
    length: usize,
    what: &'static str,
) -> Result<&'a [u8], Error> {
    let end = offset.saturating_add(length);
    octets.get(offset..end).ok_or(Error::Truncated { what, needed: end, found: octets.len() })
}

/// Returns all octets from `offset` on.
pub(crate) fn octets_from<'a>(
    octets: &'a [u8],
    offset: usize,
    what: &'static str,
) -> Result<&'a [u8], Error> {
    octets.get(offset..).ok_or(Error::Truncated { what, needed: offset, found: octets.len() })
}
