//! Option of a mobile router's Router Advertisements for nested mobile networks (RFC 4885 4). It names the
//! mobile routers above the sender and says whether a path out of the nested network exists. It lists
//! prefixes of the visited link from which mobile routers below may form care-of addresses.
//!
//! The option has the purpose of the Tree Information option (draft-thubert-tree-discovery), to which IANA
//! assigned no number. This option has the experimental type 253 (RFC 4727 5.1). The option begins with
//! [`MAGIC_NUMBER`], because other experiments may use the type. Hosts skip the option (RFC 4861 4.6).
//!
//! ```text
//!  |  253  | length |          MAGIC (4)          | flags | prefixes |
//!  | the first 64 bits of each prefix ...
//!  | home addresses (16 each): the sender's, its parent's, ... the root's
//! ```
//!
//! The highest bit of the flags, G, says that a path out of the nested mobile network exists. The sender sets
//! the other bits to 0.

use super::nd_option::{NdOption, option_type};
use crate::octets::{address_at, array_at, u8_at};
use std::net::Ipv6Addr;

/// Number that distinguishes this option from those of other experiments.
pub const MAGIC_NUMBER: [u8; 4] = *b"NEMO";
/// The most prefixes that the sender writes.
pub const MAX_PREFIXES: usize = 4;
/// The most home addresses that the sender writes. A deeper nesting of routers is a fault.
pub const MAX_ROUTERS_IN_PATH: usize = 8;
const GROUNDED_FLAG: u8 = 0x80;
const FIXED_PART_LEN: usize = 6;
const NAME_IN_ERRORS: &str = "nesting option";

/// The option for nested mobile networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NestingInformation {
    /// G: the sender, or a mobile router above it, is attached to a network that is not a mobile network.
    pub grounded: bool,
    /// Networks of 64-bit prefixes, the preferred prefix first; the sender accepts registrations (RFC 8505)
    /// in these prefixes.
    pub prefixes: Vec<Ipv6Addr>,
    /// Home addresses: the sender's, then those of the mobile routers above it, the nearest first.
    pub path_home_addresses: Vec<Ipv6Addr>,
}

impl NestingInformation {
    /// Reads the option; `None` for another option. The result may have more prefixes and addresses than the
    /// emitter writes. The parser does not truncate the path, because a router searches its own home address
    /// there to detect a loop.
    pub fn read(option: &NdOption<'_>) -> Option<Self> {
        let NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data } = option else { return None };
        if array_at::<4>(data, 0, NAME_IN_ERRORS).ok()? != MAGIC_NUMBER {
            return None;
        }
        let count = usize::from(u8_at(data, 5, NAME_IN_ERRORS).ok()?);
        let mut prefixes = Vec::new();
        for index in 0..count {
            let half = array_at::<8>(data, FIXED_PART_LEN + 8 * index, NAME_IN_ERRORS).ok()?;
            prefixes.push(Ipv6Addr::from(u128::from(u64::from_be_bytes(half)) << 64));
        }
        let start = FIXED_PART_LEN + 8 * count;
        let mut path = Vec::new();
        for at in (start..data.len()).step_by(16) {
            path.push(address_at(data, at, NAME_IN_ERRORS).ok()?);
        }
        Some(NestingInformation {
            grounded: u8_at(data, 4, NAME_IN_ERRORS).ok()? & GROUNDED_FLAG != 0,
            prefixes,
            path_home_addresses: path,
        })
    }

    /// Returns the octets behind the option's length: at most [`MAX_PREFIXES`] prefixes and
    /// [`MAX_ROUTERS_IN_PATH`] home addresses.
    pub fn emit_data(&self) -> Vec<u8> {
        let prefixes = self.prefixes.get(..MAX_PREFIXES).unwrap_or(&self.prefixes);
        let path = self.path_home_addresses.get(..MAX_ROUTERS_IN_PATH).unwrap_or(&self.path_home_addresses);
        let mut data = MAGIC_NUMBER.to_vec();
        data.push(if self.grounded { GROUNDED_FLAG } else { 0 });
        data.push(u8::try_from(prefixes.len()).unwrap_or(u8::MAX));
        for prefix in prefixes {
            data.extend(prefix.octets().iter().take(8));
        }
        data.extend(path.iter().flat_map(Ipv6Addr::octets));
        data
    }
}
