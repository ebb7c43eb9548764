//! Mobility options of RFC 6275 6.2, RFC 3963 4.3, RFC 4283, RFC 4285 and RFC 5094. Further options are of
//! RFC 5555 3, RFC 5648 4.3, RFC 5847 3.4 and RFC 6089 4.
//!
//! The parser checks the type-length-value structure once: an option that exceeds the message makes the whole
//! message invalid. [`MobilityOptions::iter`] reads the contents. If an option of a known type has a wrong
//! length or field, only this option is an error. The iterator returns unknown options unchanged (RFC 6275
//! 6.2.1: a receiver skips them) and leaves out Pad1 and PadN.

use super::flow_identification::{
    self, BindingIdentifiers, EXAMPLE_VENDOR, FLOW_ACTION_SUBTYPE, FlowActionOption,
};
use crate::Error;
use crate::octets::{address_at, array_at, octets_from, slice_at, u8_at, u16_at, u32_at};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Types of mobility options (IANA "Mobility Options").
pub mod option_type {
    /// Pad1: one octet of padding (RFC 6275 6.2.2).
    pub const PAD1: u8 = 0;
    /// PadN: two or more octets of padding (RFC 6275 6.2.3).
    pub const PAD_N: u8 = 1;
    /// Binding Refresh Advice (RFC 6275 6.2.4).
    pub const BINDING_REFRESH_ADVICE: u8 = 2;
    /// Alternate Care-of Address (RFC 6275 6.2.5).
    pub const ALTERNATE_CARE_OF_ADDRESS: u8 = 3;
    /// Nonce Indices (RFC 6275 6.2.6).
    pub const NONCE_INDICES: u8 = 4;
    /// Binding Authorization Data (RFC 6275 6.2.7).
    pub const BINDING_AUTHORIZATION_DATA: u8 = 5;
    /// Mobile Network Prefix (RFC 3963 4.3).
    pub const MOBILE_NETWORK_PREFIX: u8 = 6;
    /// Mobile Node Identifier (RFC 4283 3).
    pub const MOBILE_NODE_IDENTIFIER: u8 = 8;
    /// Mobility Message Authentication (RFC 4285 5).
    pub const AUTHENTICATION: u8 = 9;
    /// Mobility Message Replay Protection (RFC 4285 6).
    pub const MESSAGE_IDENTIFIER: u8 = 10;
    /// Vendor Specific (RFC 5094 3).
    pub const VENDOR_SPECIFIC: u8 = 19;
    /// Link-local Address (RFC 5213 8.7).
    pub const LINK_LOCAL_ADDRESS: u8 = 26;
    /// Restart Counter (RFC 5847 3.4).
    pub const RESTART_COUNTER: u8 = 28;
    /// IPv4 Home Address (RFC 5555 3.1.1).
    pub const IPV4_HOME_ADDRESS: u8 = 29;
    /// IPv4 Address Acknowledgement (RFC 5555 3.2.1).
    pub const IPV4_ADDRESS_ACKNOWLEDGEMENT: u8 = 30;
    /// NAT Detection (RFC 5555 3.2.2).
    pub const NAT_DETECTION: u8 = 31;
    /// IPv4 Care-of Address (RFC 5555 3.1.2).
    pub const IPV4_CARE_OF_ADDRESS: u8 = 32;
    /// Binding Identifier (RFC 5648 4.3, RFC 6089 4.1).
    pub const BINDING_IDENTIFIER: u8 = 35;
    /// Flow Summary (RFC 6089 4.2.2).
    pub const FLOW_SUMMARY: u8 = 44;
    /// Flow Identification (RFC 6089 4.2).
    pub const FLOW_IDENTIFICATION: u8 = 45;
}

/// Subtype of the Mobility Message Authentication option: mobile node and home agent (RFC 4285 5.1).
pub const MN_HA: u8 = 1;
/// Subtype of the Mobility Message Authentication option: mobile node and AAA server (RFC 4285 5.2).
pub const MN_AAA: u8 = 2;

/// Refresh time of the NAT Detection option: the mobile node need not send keepalives (RFC 5555 3.2.2).
pub const NO_KEEPALIVE: u32 = u32::MAX;

/// A parsed mobility option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MobilityOption<'a> {
    /// Refresh interval: the mobile node should renew its binding after this time, units of 4 seconds.
    BindingRefreshAdvice(u16),
    /// Care-of address that the home agent registers in place of the source address.
    AlternateCareOfAddress(Ipv6Addr),
    /// A mobile network prefix. Its length is at most 128; the parser does not clear the bits after the
    /// length.
    MobileNetworkPrefix {
        /// The prefix.
        prefix: Ipv6Addr,
        /// Length of the prefix, bits.
        prefix_length: u8,
    },
    /// Identifier of the mobile node.
    MobileNodeIdentifier {
        /// 1 for a network access identifier, such as user@realm.
        subtype: u8,
        /// The identifier.
        identifier: &'a [u8],
    },
    /// A message authentication code; [`super::authentication_field`] returns the octets that it covers.
    Authentication {
        /// [`MN_HA`] or [`MN_AAA`].
        subtype: u8,
        /// The mobility security parameter index.
        spi: u32,
        /// The authentication data; 12 octets for MN-HA.
        data: &'a [u8],
    },
    /// A time stamp against replay, in NTP format: seconds since 1900, then fractions of 2^-32.
    MessageIdentifier(u64),
    /// An option that a vendor has defined; [`flow_identification::FlowActionOption`] is the option of
    /// carnet.
    VendorSpecific {
        /// Enterprise number of the vendor.
        vendor: u32,
        /// Number of the option among those of the vendor.
        sub_type: u8,
        /// Data of the option behind the sub-type.
        data: &'a [u8],
    },
    /// Number of times that the sender has restarted and lost its bindings.
    RestartCounter(u32),
    /// The mobile node's IPv4 home address or prefix, registered or requested.
    Ipv4HomeAddress {
        /// Length of the prefix, six bits; 32 for a single address.
        prefix_length: u8,
        /// P: the mobile node requests a prefix.
        prefix: bool,
        /// The address; unspecified if the mobile node requests an address.
        address: Ipv4Addr,
    },
    /// Result of the registration of an IPv4 home address.
    Ipv4AddressAcknowledgement {
        /// Status; values under 128 accept: see [`super::ipv4_status`].
        status: u8,
        /// Length of the prefix, six bits; 0 if the home agent refuses the registration.
        prefix_length: u8,
        /// The address.
        address: Ipv4Addr,
    },
    /// Result of NAT detection: whether the path contains a network address translator, and how the mobile
    /// node must react.
    NatDetection {
        /// F: the mobile node must use UDP even if the home agent detected no network address translator.
        force_udp: bool,
        /// Seconds between keepalives. 0 gives no interval; [`NO_KEEPALIVE`] says that the mobile node need
        /// not send any.
        refresh: u32,
    },
    /// IPv4 care-of address, as the mobile node sees it.
    Ipv4CareOfAddress(Ipv4Addr),
    /// Identifies one of the mobile node's bindings.
    BindingIdentifier {
        /// The identifier (BID); 0 is reserved.
        bid: u16,
        /// In an acknowledgement: status of this binding if it differs from the status of the message.
        status: u8,
        /// H: the binding is for the home link, and the bindings for other links stay.
        home: bool,
        /// BID-PRI, seven bits: the lower value wins; 0 from a node that supports RFC 5648 only.
        priority: u8,
        /// Care-of address of the binding, if it differs from the care-of address of the message.
        care_of_address: Option<IpAddr>,
    },
    /// Identifiers of flows that stay unchanged.
    FlowSummary(BindingIdentifiers<'a>),
    /// A flow that the mobile node adds or changes.
    FlowIdentification {
        /// The identifier (FID); 0 is reserved.
        fid: u16,
        /// FID-PRI: the lower value wins; 0 is reserved.
        priority: u16,
        /// Status in an acknowledgement: see [`flow_identification::flow_status`].
        status: u8,
        /// Octets of the sub-options, for [`flow_identification::FlowSubOptions::parse`].
        sub_options: &'a [u8],
    },
    /// An option of another type.
    Unknown {
        /// The Option Type.
        option_type: u8,
        /// The Option Data, at most 255 octets.
        data: &'a [u8],
    },
}

impl<'a> MobilityOption<'a> {
    /// Reads the contents of an option.
    ///
    /// # Errors
    /// [`Error::Length`] for a known type with a wrong length, [`Error::Value`] for a prefix length over 128.
    /// The function does not read the sub-options of a flow.
    fn parse_data(option_type: u8, data: &'a [u8]) -> Result<Self, Error> {
        const NAME_IN_ERRORS: &str = "mobility option";
        let exactly = |what, length: usize, expected| {
            if data.len() == length {
                Ok(())
            } else {
                Err(Error::Length { what, expected, found: data.len() })
            }
        };
        let at_least = |what, length: usize, expected| {
            if data.len() >= length {
                Ok(())
            } else {
                Err(Error::Length { what, expected, found: data.len() })
            }
        };
        match option_type {
            option_type::BINDING_REFRESH_ADVICE => {
                exactly("binding refresh advice option", 2, "2")?;
                Ok(MobilityOption::BindingRefreshAdvice(u16_at(data, 0, NAME_IN_ERRORS)?))
            }
            option_type::ALTERNATE_CARE_OF_ADDRESS => {
                exactly("alternate care-of address option", 16, "16")?;
                Ok(MobilityOption::AlternateCareOfAddress(address_at(data, 0, NAME_IN_ERRORS)?))
            }
            option_type::MOBILE_NETWORK_PREFIX => {
                exactly("mobile network prefix option", 18, "18")?;
                let prefix_length = u8_at(data, 1, NAME_IN_ERRORS)?;
                if prefix_length > 128 {
                    return Err(Error::Value {
                        what: "mobile network prefix length",
                        expected: "at most 128",
                        found: u32::from(prefix_length),
                    });
                }
                let prefix = address_at(data, 2, NAME_IN_ERRORS)?;
                Ok(MobilityOption::MobileNetworkPrefix { prefix, prefix_length })
            }
            option_type::MOBILE_NODE_IDENTIFIER => {
                at_least("mobile node identifier option", 2, "at least 2")?;
                let (subtype, identifier) =
                    (u8_at(data, 0, NAME_IN_ERRORS)?, octets_from(data, 1, NAME_IN_ERRORS)?);
                Ok(MobilityOption::MobileNodeIdentifier { subtype, identifier })
            }
            option_type::AUTHENTICATION => {
                at_least("authentication option", 5, "at least 5")?;
                Ok(MobilityOption::Authentication {
                    subtype: u8_at(data, 0, NAME_IN_ERRORS)?,
                    spi: u32_at(data, 1, NAME_IN_ERRORS)?,
                    data: octets_from(data, 5, NAME_IN_ERRORS)?,
                })
            }
            option_type::MESSAGE_IDENTIFIER => {
                exactly("message identifier option", 8, "8")?;
                Ok(MobilityOption::MessageIdentifier(u64::from_be_bytes(array_at(data, 0, NAME_IN_ERRORS)?)))
            }
            option_type::VENDOR_SPECIFIC => {
                at_least("vendor specific option", 5, "at least 5")?;
                Ok(MobilityOption::VendorSpecific {
                    vendor: u32_at(data, 0, NAME_IN_ERRORS)?,
                    sub_type: u8_at(data, 4, NAME_IN_ERRORS)?,
                    data: octets_from(data, 5, NAME_IN_ERRORS)?,
                })
            }
            option_type::RESTART_COUNTER => {
                exactly("restart counter option", 4, "4")?;
                Ok(MobilityOption::RestartCounter(u32_at(data, 0, NAME_IN_ERRORS)?))
            }
            option_type::IPV4_HOME_ADDRESS => {
                exactly("IPv4 home address option", 6, "6")?;
                let bits = u8_at(data, 0, NAME_IN_ERRORS)?;
                Ok(MobilityOption::Ipv4HomeAddress {
                    prefix_length: bits >> 2,
                    prefix: bits & 0x02 != 0,
                    address: ipv4_at(data, 2)?,
                })
            }
            option_type::IPV4_ADDRESS_ACKNOWLEDGEMENT => {
                exactly("IPv4 address acknowledgement option", 6, "6")?;
                Ok(MobilityOption::Ipv4AddressAcknowledgement {
                    status: u8_at(data, 0, NAME_IN_ERRORS)?,
                    prefix_length: u8_at(data, 1, NAME_IN_ERRORS)? >> 2,
                    address: ipv4_at(data, 2)?,
                })
            }
            option_type::NAT_DETECTION => {
                exactly("NAT detection option", 6, "6")?;
                let force_udp = u8_at(data, 0, NAME_IN_ERRORS)? & 0x80 != 0;
                Ok(MobilityOption::NatDetection { force_udp, refresh: u32_at(data, 2, NAME_IN_ERRORS)? })
            }
            option_type::IPV4_CARE_OF_ADDRESS => {
                exactly("IPv4 care-of address option", 6, "6")?;
                Ok(MobilityOption::Ipv4CareOfAddress(ipv4_at(data, 2)?))
            }
            option_type::BINDING_IDENTIFIER => {
                let care_of_address = match data.len() {
                    4 => None,
                    8 => Some(IpAddr::V4(ipv4_at(data, 4)?)),
                    20 => Some(IpAddr::V6(address_at(data, 4, NAME_IN_ERRORS)?)),
                    found => {
                        let what = "binding identifier option";
                        return Err(Error::Length { what, expected: "4, 8 or 20", found });
                    }
                };
                let bits = u8_at(data, 3, NAME_IN_ERRORS)?;
                Ok(MobilityOption::BindingIdentifier {
                    bid: u16_at(data, 0, NAME_IN_ERRORS)?,
                    status: u8_at(data, 2, NAME_IN_ERRORS)?,
                    home: bits & 0x80 != 0,
                    priority: bits & 0x7f,
                    care_of_address,
                })
            }
            option_type::FLOW_SUMMARY => {
                Ok(MobilityOption::FlowSummary(BindingIdentifiers::parse(data, "flow summary option")?))
            }
            option_type::FLOW_IDENTIFICATION => {
                at_least(
                    "flow identification option",
                    flow_identification::FLOW_OPTION_FIXED_LENGTH,
                    "at least 6",
                )?;
                Ok(MobilityOption::FlowIdentification {
                    fid: u16_at(data, 0, NAME_IN_ERRORS)?,
                    priority: u16_at(data, 2, NAME_IN_ERRORS)?,
                    status: u8_at(data, 5, NAME_IN_ERRORS)?,
                    sub_options: octets_from(
                        data,
                        flow_identification::FLOW_OPTION_FIXED_LENGTH,
                        NAME_IN_ERRORS,
                    )?,
                })
            }
            _ => Ok(MobilityOption::Unknown { option_type, data }),
        }
    }

    /// Returns the Option Type.
    pub fn option_type(&self) -> u8 {
        match self {
            MobilityOption::BindingRefreshAdvice(_) => option_type::BINDING_REFRESH_ADVICE,
            MobilityOption::AlternateCareOfAddress(_) => option_type::ALTERNATE_CARE_OF_ADDRESS,
            MobilityOption::MobileNetworkPrefix { .. } => option_type::MOBILE_NETWORK_PREFIX,
            MobilityOption::MobileNodeIdentifier { .. } => option_type::MOBILE_NODE_IDENTIFIER,
            MobilityOption::Authentication { .. } => option_type::AUTHENTICATION,
            MobilityOption::MessageIdentifier(_) => option_type::MESSAGE_IDENTIFIER,
            MobilityOption::VendorSpecific { .. } => option_type::VENDOR_SPECIFIC,
            MobilityOption::RestartCounter(_) => option_type::RESTART_COUNTER,
            MobilityOption::Ipv4HomeAddress { .. } => option_type::IPV4_HOME_ADDRESS,
            MobilityOption::Ipv4AddressAcknowledgement { .. } => option_type::IPV4_ADDRESS_ACKNOWLEDGEMENT,
            MobilityOption::NatDetection { .. } => option_type::NAT_DETECTION,
            MobilityOption::Ipv4CareOfAddress(_) => option_type::IPV4_CARE_OF_ADDRESS,
            MobilityOption::BindingIdentifier { .. } => option_type::BINDING_IDENTIFIER,
            MobilityOption::FlowSummary(_) => option_type::FLOW_SUMMARY,
            MobilityOption::FlowIdentification { .. } => option_type::FLOW_IDENTIFICATION,
            MobilityOption::Unknown { option_type, .. } => *option_type,
        }
    }

    /// Returns the length of the Option Data, octets.
    pub fn data_length(&self) -> usize {
        match self {
            MobilityOption::BindingRefreshAdvice(_) => 2,
            MobilityOption::AlternateCareOfAddress(_) => 16,
            MobilityOption::MobileNetworkPrefix { .. } => 18,
            MobilityOption::MobileNodeIdentifier { identifier, .. } => 1 + identifier.len(),
            MobilityOption::Authentication { data, .. } => 5 + data.len(),
            MobilityOption::MessageIdentifier(_) => 8,
            MobilityOption::VendorSpecific { data, .. } => 5 + data.len(),
            MobilityOption::RestartCounter(_) => 4,
            MobilityOption::Ipv4HomeAddress { .. }
            | MobilityOption::Ipv4AddressAcknowledgement { .. }
            | MobilityOption::NatDetection { .. }
            | MobilityOption::Ipv4CareOfAddress(_) => 6,
            MobilityOption::BindingIdentifier { care_of_address, .. } => match care_of_address {
                None => 4,
                Some(IpAddr::V4(_)) => 8,
                Some(IpAddr::V6(_)) => 20,
            },
            MobilityOption::FlowSummary(fids) => fids.octets().len(),
            MobilityOption::FlowIdentification { sub_options, .. } => {
                flow_identification::FLOW_OPTION_FIXED_LENGTH + sub_options.len()
            }
            MobilityOption::Unknown { data, .. } => data.len(),
        }
    }

    /// Appends the Option Data.
    pub(crate) fn emit_data(&self, octets: &mut Vec<u8>) {
        match *self {
            MobilityOption::BindingRefreshAdvice(interval) => {
                octets.extend_from_slice(&interval.to_be_bytes());
            }
            MobilityOption::AlternateCareOfAddress(address) => {
                octets.extend_from_slice(&address.octets());
            }
            MobilityOption::MobileNetworkPrefix { prefix, prefix_length } => {
                octets.extend_from_slice(&[0, prefix_length]);
                octets.extend_from_slice(&prefix.octets());
            }
            MobilityOption::MobileNodeIdentifier { subtype, identifier } => {
                octets.push(subtype);
                octets.extend_from_slice(identifier);
            }
            MobilityOption::Authentication { subtype, spi, data } => {
                octets.push(subtype);
                octets.extend_from_slice(&spi.to_be_bytes());
                octets.extend_from_slice(data);
            }
            MobilityOption::MessageIdentifier(time) => octets.extend_from_slice(&time.to_be_bytes()),
            MobilityOption::VendorSpecific { vendor, sub_type, data } => {
                octets.extend_from_slice(&vendor.to_be_bytes());
                octets.push(sub_type);
                octets.extend_from_slice(data);
            }
            MobilityOption::RestartCounter(counter) => octets.extend_from_slice(&counter.to_be_bytes()),
            MobilityOption::Ipv4HomeAddress { prefix_length, prefix, address } => {
                octets.extend_from_slice(&[prefix_length << 2 | u8::from(prefix) << 1, 0]);
                octets.extend_from_slice(&address.octets());
            }
            MobilityOption::Ipv4AddressAcknowledgement { status, prefix_length, address } => {
                octets.extend_from_slice(&[status, prefix_length << 2]);
                octets.extend_from_slice(&address.octets());
            }
            MobilityOption::NatDetection { force_udp, refresh } => {
                octets.extend_from_slice(&[u8::from(force_udp) << 7, 0]);
                octets.extend_from_slice(&refresh.to_be_bytes());
            }
            MobilityOption::Ipv4CareOfAddress(address) => {
                octets.extend_from_slice(&[0, 0]);
                octets.extend_from_slice(&address.octets());
            }
            MobilityOption::BindingIdentifier { bid, status, home, priority, care_of_address } => {
                octets.extend_from_slice(&bid.to_be_bytes());
                octets.extend_from_slice(&[status, u8::from(home) << 7 | priority & 0x7f]);
                match care_of_address {
                    None => {}
                    Some(IpAddr::V4(address)) => octets.extend_from_slice(&address.octets()),
                    Some(IpAddr::V6(address)) => octets.extend_from_slice(&address.octets()),
                }
            }
            MobilityOption::FlowSummary(fids) => octets.extend_from_slice(fids.octets()),
            MobilityOption::FlowIdentification { fid, priority, status, sub_options } => {
                octets.extend_from_slice(&fid.to_be_bytes());
                octets.extend_from_slice(&priority.to_be_bytes());
                octets.extend_from_slice(&[0, status]);
                octets.extend_from_slice(sub_options);
            }
            MobilityOption::Unknown { data, .. } => octets.extend_from_slice(data),
        }
    }

    /// Returns the alignment of the option: `(x, y)` for "xn+y" in its document, octets from the start of the
    /// Mobility Header.
    pub(crate) fn alignment(&self) -> (usize, usize) {
        match self.option_type() {
            option_type::BINDING_REFRESH_ADVICE | option_type::NONCE_INDICES => (2, 0),
            option_type::ALTERNATE_CARE_OF_ADDRESS | option_type::LINK_LOCAL_ADDRESS => (8, 6),
            // RFC 6275 6.2.7: the option is the last one, and no padding follows it. Its end is then at a
            // multiple of 8, which implies this alignment.
            option_type::BINDING_AUTHORIZATION_DATA => (8, 2),
            option_type::MOBILE_NETWORK_PREFIX => (8, 4),
            option_type::AUTHENTICATION => (4, 1),
            option_type::MESSAGE_IDENTIFIER => (8, 2),
            option_type::IPV4_HOME_ADDRESS
            | option_type::IPV4_ADDRESS_ACKNOWLEDGEMENT
            | option_type::NAT_DETECTION
            | option_type::IPV4_CARE_OF_ADDRESS => (4, 0),
            // RFC 5094 3 and RFC 5847 3.4: the 32-bit field is at a multiple of 4.
            option_type::VENDOR_SPECIFIC | option_type::RESTART_COUNTER => (4, 2),
            // RFC 5648 4.3: an option with a care-of address has alignment 8n+2.
            option_type::BINDING_IDENTIFIER if self.data_length() > 4 => (8, 2),
            option_type::BINDING_IDENTIFIER | option_type::FLOW_SUMMARY => (2, 0),
            // RFC 6089 4.2 requires 2n. An IPv6 selector in the option requires 8n (RFC 6088 3.2).
            option_type::FLOW_IDENTIFICATION => (8, 0),
            _ => (1, 0),
        }
    }
}

impl FlowActionOption {
    /// Reads the flow action of a Vendor Specific option; `None` for any other option or vendor.
    ///
    /// # Errors
    /// [`Error::Length`] and [`Error::Value`] for invalid data.
    pub fn from_mobility_option(option: &MobilityOption<'_>) -> Option<Result<FlowActionOption, Error>> {
        match option {
            MobilityOption::VendorSpecific {
                vendor: EXAMPLE_VENDOR,
                sub_type: FLOW_ACTION_SUBTYPE,
                data,
            } => Some(FlowActionOption::parse(data)),
            _ => None,
        }
    }

    /// Returns the Vendor Specific option with `data`, which comes from [`Self::emit`].
    pub fn vendor_specific_option(data: &[u8]) -> MobilityOption<'_> {
        MobilityOption::VendorSpecific { vendor: EXAMPLE_VENDOR, sub_type: FLOW_ACTION_SUBTYPE, data }
    }
}

/// Reads the IPv4 address at an offset.
fn ipv4_at(data: &[u8], offset: usize) -> Result<Ipv4Addr, Error> {
    array_at::<4>(data, offset, "mobility option").map(Ipv4Addr::from)
}

/// The mobility options of a message, whose structure has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MobilityOptions<'a> {
    octets: &'a [u8],
}

impl<'a> MobilityOptions<'a> {
    /// Checks the structure of all options. `octets` are the octets behind the message's fixed part.
    ///
    /// # Errors
    /// [`Error::Truncated`] if an option exceeds the message.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let mut at = 0;
        while at < octets.len() {
            at = RawMobilityOption::parse_at(octets, at)?.next_option_offset;
        }
        Ok(MobilityOptions { octets })
    }

    /// Returns the options in the order of the message, without padding.
    ///
    /// An option of a known type with a wrong length or field is an `Err`; the iterator still returns the
    /// options after it.
    pub fn iter(&self) -> MobilityOptionsIter<'a> {
        MobilityOptionsIter { octets: self.octets, next_offset: 0 }
    }

    /// Returns the items of [`MobilityOptions::iter`], each with its Option Type, so that the caller knows
    /// the type of a wrong option.
    pub fn iter_with_types(&self) -> impl Iterator<Item = (u8, Result<MobilityOption<'a>, Error>)> {
        let mut iter = self.iter();
        std::iter::from_fn(move || iter.next_raw_option())
            .map(|option| (option.option_type, MobilityOption::parse_data(option.option_type, option.data)))
    }

    /// Returns the octets of all options, with their padding.
    pub fn octets(&self) -> &'a [u8] {
        self.octets
    }
}

impl<'a> IntoIterator for MobilityOptions<'a> {
    type Item = Result<MobilityOption<'a>, Error>;
    type IntoIter = MobilityOptionsIter<'a>;

    fn into_iter(self) -> MobilityOptionsIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &MobilityOptions<'a> {
    type Item = Result<MobilityOption<'a>, Error>;
    type IntoIter = MobilityOptionsIter<'a>;

    fn into_iter(self) -> MobilityOptionsIter<'a> {
        self.iter()
    }
}

/// Iterates over [`MobilityOptions`].
#[derive(Debug, Clone)]
pub struct MobilityOptionsIter<'a> {
    octets: &'a [u8],
    next_offset: usize,
}

impl<'a> Iterator for MobilityOptionsIter<'a> {
    type Item = Result<MobilityOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_raw_option().map(|option| MobilityOption::parse_data(option.option_type, option.data))
    }
}

impl<'a> MobilityOptionsIter<'a> {
    /// Returns the next option that is not padding; `None` after the last one.
    fn next_raw_option(&mut self) -> Option<RawMobilityOption<'a>> {
        while self.next_offset < self.octets.len() {
            let option = RawMobilityOption::parse_at(self.octets, self.next_offset).ok()?;
            self.next_offset = option.next_option_offset;
            if !option.is_padding() {
                return Some(option);
            }
        }
        None
    }
}

/// A mobility option before its content is parsed.
pub(crate) struct RawMobilityOption<'a> {
    /// The Option Type.
    pub(crate) option_type: u8,
    /// The Option Data; empty for Pad1.
    pub(crate) data: &'a [u8],
    /// Offset of the next option.
    pub(crate) next_option_offset: usize,
}

impl<'a> RawMobilityOption<'a> {
    /// Reads the option at an offset (RFC 6275 6.2.1).
    pub(crate) fn parse_at(octets: &'a [u8], at: usize) -> Result<Self, Error> {
        const NAME_IN_ERRORS: &str = "mobility option";
        let option_type = u8_at(octets, at, NAME_IN_ERRORS)?;
        if option_type == option_type::PAD1 {
            return Ok(RawMobilityOption { option_type, data: &[], next_option_offset: at + 1 });
        }
        let length = usize::from(u8_at(octets, at + 1, NAME_IN_ERRORS)?);
        let data = slice_at(octets, at + 2, length, NAME_IN_ERRORS)?;
        Ok(RawMobilityOption { option_type, data, next_option_offset: at + 2 + length })
    }

    /// Returns whether the option is Pad1 or PadN.
    pub(crate) fn is_padding(&self) -> bool {
        matches!(self.option_type, option_type::PAD1 | option_type::PAD_N)
    }
}
