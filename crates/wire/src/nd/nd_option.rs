//! Options of Neighbor Discovery messages (RFC 4861 4.6, RFC 6275 7, RFC 3963 7.3, RFC 4191 2.3).
//!
//! [`NdOptions::parse`] checks the structure once: an option of length 0 or one that exceeds the message
//! makes the message invalid (RFC 4861 6.1). An option of a known type with an invalid length or field does
//! not make the message invalid. The iterator returns such an option as [`NdOption::Unknown`], and the
//! receiver ignores it.

use crate::Error;
use crate::octets::{address_at, array_at, slice_at, u8_at, u16_at, u32_at};
use std::net::Ipv6Addr;

/// Values of the Type field.
pub mod option_type {
    /// Source Link-Layer Address (RFC 4861 4.6.1).
    pub const SOURCE_LINK_ADDRESS: u8 = 1;
    /// Target Link-Layer Address (RFC 4861 4.6.1).
    pub const TARGET_LINK_ADDRESS: u8 = 2;
    /// Prefix Information (RFC 4861 4.6.2).
    pub const PREFIX_INFORMATION: u8 = 3;
    /// MTU (RFC 4861 4.6.4).
    pub const MTU: u8 = 5;
    /// Advertisement Interval (RFC 6275 7.3).
    pub const ADVERTISEMENT_INTERVAL: u8 = 7;
    /// Home Agent Information (RFC 6275 7.4).
    pub const HOME_AGENT_INFORMATION: u8 = 8;
    /// Route Information (RFC 4191 2.3).
    pub const ROUTE_INFORMATION: u8 = 24;
    /// Recursive DNS Server (RFC 8106 5.1).
    pub const RECURSIVE_DNS_SERVER: u8 = 25;
    /// DNS Search List (RFC 8106 5.2).
    pub const DNS_SEARCH_LIST: u8 = 31;
    /// Extended Address Registration (RFC 8505 4.1).
    pub const ADDRESS_REGISTRATION: u8 = 33;
    /// Captive-Portal (RFC 8910 2.3).
    pub const CAPTIVE_PORTAL: u8 = 37;
    /// PREF64 (RFC 8781 4).
    pub const PREF64: u8 = 38;
    /// Type for experiments (RFC 4727 5.1).
    pub const EXPERIMENT_1: u8 = 253;
}

/// Prefix Information (RFC 4861 4.6.2, with the R flag of RFC 6275 7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The prefix; if R is set, the router's whole address. The parser does not clear the bits after the
    /// prefix length.
    pub prefix: Ipv6Addr,
    /// Length of the prefix, at most 128 bits.
    pub prefix_length: u8,
    /// L: the prefix is on this link.
    pub on_link: bool,
    /// A: hosts may form addresses from the prefix without state.
    pub autonomous: bool,
    /// R: the prefix field holds a whole address of the router.
    pub router_address: bool,
    /// Valid lifetime, seconds; 0xffffffff means infinity.
    pub valid_lifetime: u32,
    /// Preferred lifetime, seconds; 0xffffffff means infinity.
    pub preferred_lifetime: u32,
}

/// Home Agent Information (RFC 6275 7.4, with the R flag of RFC 3963 7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeAgentInformation {
    /// R: the home agent supports mobile routers.
    pub mobile_router_support: bool,
    /// Preference of the home agent, unsigned: the greater value wins. A Router Advertisement without this
    /// option means 0.
    pub preference: u16,
    /// Time for which the router is a home agent, seconds. Without this option, the time is the router
    /// lifetime. A sender must not send 0; a receiver that gets 0 removes the home agent from its list (RFC
    /// 6275 10.5.1).
    pub lifetime: u16,
}

/// Route Information (RFC 4191 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteInformation {
    /// The prefix. Bits after the prefix length are zero: senders must clear them, receivers ignore them.
    pub prefix: Ipv6Addr,
    /// Length of the prefix, at most 128 bits.
    pub prefix_length: u8,
    /// Preference of this router for the prefix.
    pub preference: RoutePreference,
    /// Lifetime of the route, seconds; 0xffffffff means infinity.
    pub lifetime: u32,
}

/// A preference among routers (RFC 4191 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RoutePreference {
    /// Low preference, bits 11.
    Low,
    /// Medium preference, bits 00.
    #[default]
    Medium,
    /// High preference, bits 01.
    High,
}

impl RoutePreference {
    /// Returns the preference of the two low bits; `None` for the reserved value 10.
    pub fn from_bits(bits: u8) -> Option<RoutePreference> {
        match bits & 3 {
            0 => Some(RoutePreference::Medium),
            1 => Some(RoutePreference::High),
            3 => Some(RoutePreference::Low),
            _ => None,
        }
    }

    /// Returns the preference in the two low bits.
    pub fn bits(self) -> u8 {
        match self {
            RoutePreference::Medium => 0,
            RoutePreference::High => 1,
            RoutePreference::Low => 3,
        }
    }
}

/// A Neighbor Discovery option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NdOption<'a> {
    /// Ethernet address of the sender.
    SourceLinkAddress([u8; 6]),
    /// Ethernet address of the target.
    TargetLinkAddress([u8; 6]),
    /// A prefix of the link.
    PrefixInformation(PrefixInformation),
    /// The link's MTU, octets.
    Mtu(u32),
    /// The longest time between two unsolicited multicast Router Advertisements, milliseconds.
    AdvertisementInterval(u32),
    /// Preference and lifetime of the router as a home agent.
    HomeAgentInformation(HomeAgentInformation),
    /// A prefix that hosts reach through the router.
    RouteInformation(RouteInformation),
    /// An option of another type, which the receiver ignores.
    Unknown {
        /// The Type field.
        option_type: u8,
        /// Octets behind the Length field; their number is 8n+6.
        data: &'a [u8],
    },
}

impl<'a> NdOption<'a> {
    /// Reads an option from the octets behind its Type and Length.
    fn read(option_type: u8, data: &'a [u8]) -> Self {
        Self::parse_known_type(option_type, data).unwrap_or(NdOption::Unknown { option_type, data })
    }

    /// Reads an option of a known type; `None` if the type is unknown or a length or field is invalid.
    fn parse_known_type(option_type: u8, data: &[u8]) -> Option<Self> {
        const NAME_IN_ERRORS: &str = "option";
        let units = (data.len() + 2) / 8;
        match (option_type, units) {
            (option_type::SOURCE_LINK_ADDRESS, 1) => {
                array_at(data, 0, NAME_IN_ERRORS).ok().map(NdOption::SourceLinkAddress)
            }
            (option_type::TARGET_LINK_ADDRESS, 1) => {
                array_at(data, 0, NAME_IN_ERRORS).ok().map(NdOption::TargetLinkAddress)
            }
            (option_type::PREFIX_INFORMATION, 4) => {
                let [prefix_length, flags] = array_at(data, 0, NAME_IN_ERRORS).ok()?;
                let information = PrefixInformation {
                    prefix: address_at(data, 14, NAME_IN_ERRORS).ok()?,
                    prefix_length,
                    on_link: flags & 0x80 != 0,
                    autonomous: flags & 0x40 != 0,
                    router_address: flags & 0x20 != 0,
                    valid_lifetime: u32_at(data, 2, NAME_IN_ERRORS).ok()?,
                    preferred_lifetime: u32_at(data, 6, NAME_IN_ERRORS).ok()?,
                };
                (prefix_length <= 128).then_some(NdOption::PrefixInformation(information))
            }
            (option_type::MTU, 1) => u32_at(data, 2, NAME_IN_ERRORS).ok().map(NdOption::Mtu),
            (option_type::ADVERTISEMENT_INTERVAL, 1) => {
                u32_at(data, 2, NAME_IN_ERRORS).ok().map(NdOption::AdvertisementInterval)
            }
            (option_type::HOME_AGENT_INFORMATION, 1) => {
                Some(NdOption::HomeAgentInformation(HomeAgentInformation {
                    mobile_router_support: u8_at(data, 0, NAME_IN_ERRORS).ok()? & 0x80 != 0,
                    preference: u16_at(data, 2, NAME_IN_ERRORS).ok()?,
                    lifetime: u16_at(data, 4, NAME_IN_ERRORS).ok()?,
                }))
            }
            (option_type::ROUTE_INFORMATION, 1..=3) => {
                let [prefix_length, flags] = array_at(data, 0, NAME_IN_ERRORS).ok()?;
                // RFC 4191 2.3: the option must be long enough for the prefix; a receiver ignores an option
                // with preference 10.
                let fits = usize::from(prefix_length) <= (units - 1) * 64;
                let preference = RoutePreference::from_bits(flags >> 3)?;
                let lifetime = u32_at(data, 2, NAME_IN_ERRORS).ok()?;
                let mut octets = [0; 16];
                for (octet, &came) in octets.iter_mut().zip(data.iter().skip(6)) {
                    *octet = came;
                }
                let prefix = mask_address(Ipv6Addr::from(octets), prefix_length);
                let information = RouteInformation { prefix, prefix_length, preference, lifetime };
                fits.then_some(NdOption::RouteInformation(information))
            }
            _ => None,
        }
    }

    /// Appends the option's octets.
    ///
    /// A Route Information option takes the shortest form that holds its prefix. The data of an unknown
    /// option are padded with zeros to a multiple of 8 octets. The function cuts off data beyond the largest
    /// value of the Length field.
    pub fn emit_into(&self, message: &mut Vec<u8>) {
        match *self {
            NdOption::SourceLinkAddress(address) => {
                message.extend_from_slice(&[option_type::SOURCE_LINK_ADDRESS, 1]);
                message.extend_from_slice(&address);
            }
            NdOption::TargetLinkAddress(address) => {
                message.extend_from_slice(&[option_type::TARGET_LINK_ADDRESS, 1]);
                message.extend_from_slice(&address);
            }
            NdOption::PrefixInformation(prefix) => {
                let flags = u8::from(prefix.on_link) << 7
                    | u8::from(prefix.autonomous) << 6
                    | u8::from(prefix.router_address) << 5;
                message.extend_from_slice(&[
                    option_type::PREFIX_INFORMATION,
                    4,
                    prefix.prefix_length.min(128),
                    flags,
                ]);
                message.extend_from_slice(&prefix.valid_lifetime.to_be_bytes());
                message.extend_from_slice(&prefix.preferred_lifetime.to_be_bytes());
                message.extend_from_slice(&[0; 4]);
                message.extend_from_slice(&prefix.prefix.octets());
            }
            NdOption::Mtu(mtu) => {
                message.extend_from_slice(&[option_type::MTU, 1, 0, 0]);
                message.extend_from_slice(&mtu.to_be_bytes());
            }
            NdOption::AdvertisementInterval(milliseconds) => {
                message.extend_from_slice(&[option_type::ADVERTISEMENT_INTERVAL, 1, 0, 0]);
                message.extend_from_slice(&milliseconds.to_be_bytes());
            }
            NdOption::HomeAgentInformation(information) => {
                let flags = u8::from(information.mobile_router_support) << 7;
                message.extend_from_slice(&[option_type::HOME_AGENT_INFORMATION, 1, flags, 0]);
                message.extend_from_slice(&information.preference.to_be_bytes());
                message.extend_from_slice(&information.lifetime.to_be_bytes());
            }
            NdOption::RouteInformation(route) => {
                let prefix_length = route.prefix_length.min(128);
                let units = prefix_length.div_ceil(64) + 1;
                let flags = route.preference.bits() << 3;
                message.extend_from_slice(&[option_type::ROUTE_INFORMATION, units, prefix_length, flags]);
                message.extend_from_slice(&route.lifetime.to_be_bytes());
                let octets = mask_address(route.prefix, prefix_length).octets();
                message.extend(octets.iter().take(usize::from(units - 1) * 8));
            }
            NdOption::Unknown { option_type, data } => {
                let data = data.get(..255 * 8 - 2).unwrap_or(data);
                let units = (data.len() + 2).div_ceil(8);
                message.extend_from_slice(&[option_type, u8::try_from(units).unwrap_or(u8::MAX)]);
                message.extend_from_slice(data);
                message.extend(std::iter::repeat_n(0, units * 8 - 2 - data.len()));
            }
        }
    }
}

/// Returns the address with the bits after the prefix length cleared.
fn mask_address(address: Ipv6Addr, prefix_length: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix_length.min(128))).unwrap_or(0);
    Ipv6Addr::from(u128::from(address) & mask)
}

/// The options of a message; an iterator in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NdOptions<'a> {
    octets: &'a [u8],
}

impl<'a> NdOptions<'a> {
    /// Checks the structure of all options. `octets` are the octets behind the message's fixed part.
    ///
    /// # Errors
    /// [`Error::Length`] for an option of length 0, [`Error::Truncated`] for an option that exceeds the
    /// message.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let mut left = octets;
        while !left.is_empty() {
            left = split_first_option(left)?.2;
        }
        Ok(NdOptions { octets })
    }

    /// Returns the address of the first Source Link-Layer Address option; `None` if the message has none.
    pub fn source_link_address(self) -> Option<[u8; 6]> {
        self.into_iter().find_map(|option| match option {
            NdOption::SourceLinkAddress(address) => Some(address),
            _ => None,
        })
    }

    /// Returns the address of the first Target Link-Layer Address option; `None` if the message has none.
    pub fn target_link_address(self) -> Option<[u8; 6]> {
        self.into_iter().find_map(|option| match option {
            NdOption::TargetLinkAddress(address) => Some(address),
            _ => None,
        })
    }
}

impl<'a> Iterator for NdOptions<'a> {
    type Item = NdOption<'a>;

    fn next(&mut self) -> Option<NdOption<'a>> {
        let (option_type, data, left) = split_first_option(self.octets).ok()?;
        self.octets = left;
        Some(NdOption::read(option_type, data))
    }
}

/// Returns type and data of the first option, and the octets behind it.
fn split_first_option(octets: &[u8]) -> Result<(u8, &[u8], &[u8]), Error> {
    const NAME_IN_ERRORS: &str = "neighbor discovery option";
    let [option_type, units] = array_at::<2>(octets, 0, NAME_IN_ERRORS)?;
    if units == 0 {
        return Err(Error::Length { what: NAME_IN_ERRORS, expected: "at least 1", found: 0 });
    }
    let length = usize::from(units) * 8;
    let data = slice_at(octets, 2, length - 2, NAME_IN_ERRORS)?;
    Ok((option_type, data, octets.get(length..).unwrap_or_default()))
}
