//! Reads a Binding Update and its options, without validation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Endpoint;
use carnet_wire::Error;
use carnet_wire::mobility::flow_identification::FlowActionOption;
use carnet_wire::mobility::options::{MN_HA, option_type};
use carnet_wire::mobility::{BindingUpdate, MobilityOption};

use crate::{MobilityDrop, MobilityMessage, is_unicast_routable, lifetime_from_units};

/// Maximum number of Binding Identifier options in one Binding Update; an update with more is malformed.
pub(super) const MAX_IDENTIFIERS: usize = 32;
/// Maximum number of Flow Identification options and of flow actions that the home agent reads. An answer has
/// no room for more.
const MAX_FLOW_OPTIONS: usize = super::MAX_FLOWS;
/// Maximum number of flows in Flow Summary options that the home agent reads.
const MAX_SUMMARIZED_FLOWS: usize = 128;
/// Maximum number of IPv4 Home Address options that the home agent answers. A router has only a few IPv4
/// prefixes.
const MAX_REQUESTED_IPV4_HOMES: usize = 16;
/// Option in place of a Mobile Network Prefix option that the parser cannot read. The home agent refuses it
/// as invalid.
const EMPTY_PREFIX_OPTION: MobilityOption<'static> =
    MobilityOption::MobileNetworkPrefix { prefix: Ipv6Addr::UNSPECIFIED, prefix_length: 0 };

/// A Binding Identifier option (RFC 5648 4.3, RFC 6089 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestedIdentifier {
    pub bid: u16,
    /// H flag: a binding to the home link.
    pub is_home_binding: bool,
    pub bid_priority: u8,
    pub care_of_address: Option<IpAddr>,
}

/// A Flow Identification option (RFC 6089 4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlowRequest {
    pub fid: u16,
    pub fid_priority: u16,
    pub sub_options: Vec<u8>,
}

/// An IPv4 Home Address option (RFC 5555 3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestedIpv4Home {
    pub prefix_length: u8,
    pub prefix: bool,
    pub address: Ipv4Addr,
}

/// A Binding Update with all values that its validation needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BindingUpdateRequest {
    /// IPv6 source, to which the acknowledgement goes.
    pub source: Ipv6Addr,
    /// Tunnel ends of the home agent and of the node, if the update came inside IPv4 or UDP.
    pub tunnel_ends: Option<(Endpoint, Endpoint)>,
    /// The home address.
    pub home_address: Ipv6Addr,
    /// Whether the update has a Home Address option, so that the acknowledgement needs a routing header.
    pub has_home_address_option: bool,
    pub alternate_care_of_address: Option<Ipv6Addr>,
    /// Address in the IPv4 Care-of Address option; `None` without this option.
    pub ipv4_care_of_address: Option<Ipv4Addr>,
    /// Binding Identifier options in their order.
    pub identifiers: Vec<RequestedIdentifier>,
    /// Whether a Binding Identifier option has an invalid length, or the update has too many of them.
    pub has_malformed_identifier: bool,
    pub sequence: u16,
    pub home_registration: bool,
    pub mobile_router: bool,
    pub link_local: bool,
    pub force_udp: bool,
    pub replaces_all_bindings: bool,
    pub lifetime: Duration,
    /// Mobile Network Prefix options as received; host bits may be set.
    pub prefixes: Vec<(Ipv6Addr, u8)>,
    /// NTP timestamp in the Message-ID option; `None` without this option.
    pub timestamp: Option<u64>,
    /// SPI in the MN-HA authentication option; `None` without this option.
    pub spi: Option<u32>,
    pub has_nonce_indices: bool,
    pub flow_requests: Vec<FlowRequest>,
    /// Flow Identifiers of the flows that stay unchanged.
    pub unchanged_flow_ids: Vec<u16>,
    pub flow_actions: Vec<FlowActionOption>,
    pub ipv4_homes: Vec<RequestedIpv4Home>,
}

impl BindingUpdateRequest {
    /// Reads the options. Unknown options are skipped (RFC 6275 6.2.1).
    pub fn parse(
        message: &MobilityMessage<'_>,
        update: &BindingUpdate<'_>,
    ) -> Result<BindingUpdateRequest, MobilityDrop> {
        let mut request = BindingUpdateRequest {
            source: message.source,
            tunnel_ends: message.tunnel_ends,
            home_address: message.home_address.unwrap_or(message.source),
            has_home_address_option: message.home_address.is_some(),
            alternate_care_of_address: None,
            ipv4_care_of_address: None,
            identifiers: Vec::new(),
            has_malformed_identifier: false,
            sequence: update.sequence,
            home_registration: update.flags.home_registration,
            mobile_router: update.flags.mobile_router,
            link_local: update.flags.link_local,
            force_udp: update.flags.force_udp,
            replaces_all_bindings: update.flags.overwrite,
            lifetime: lifetime_from_units(update.lifetime),
            prefixes: Vec::new(),
            timestamp: None,
            spi: None,
            has_nonce_indices: false,
            flow_requests: Vec::new(),
            unchanged_flow_ids: Vec::new(),
            flow_actions: Vec::new(),
            ipv4_homes: Vec::new(),
        };
        for (kind, option) in update.options.iter_with_types() {
            match option {
                Ok(option) => request.read_option(option),
                // RFC 3963 6.6: an invalid prefix length makes the prefix invalid, but not the message
                // malformed.
                Err(Error::Value { .. }) if kind == option_type::MOBILE_NETWORK_PREFIX => {
                    request.read_option(EMPTY_PREFIX_OPTION);
                }
                Err(_) if kind == option_type::BINDING_IDENTIFIER => request.has_malformed_identifier = true,
                // A flow option that is too short for its identifier cannot be answered, so it is ignored.
                Err(_) if matches!(kind, option_type::FLOW_IDENTIFICATION | option_type::FLOW_SUMMARY) => {}
                Err(_) => return Err(MobilityDrop::Malformed),
            }
        }
        if !is_unicast_routable(request.home_address) || !is_unicast_routable(request.source) {
            return Err(MobilityDrop::HomeAddress);
        }
        if request.alternate_care_of_address.is_some_and(|address| !is_unicast_routable(address)) {
            return Err(MobilityDrop::CareOfAddress);
        }
        Ok(request)
    }

    fn read_option(&mut self, option: MobilityOption<'_>) {
        match option {
            MobilityOption::AlternateCareOfAddress(address) => self.alternate_care_of_address = Some(address),
            MobilityOption::MobileNetworkPrefix { prefix, prefix_length } => {
                self.prefixes.push((prefix, prefix_length));
            }
            MobilityOption::MessageIdentifier(timestamp) => self.timestamp = Some(timestamp),
            MobilityOption::Authentication { subtype: MN_HA, spi, .. } => self.spi = Some(spi),
            MobilityOption::Ipv4CareOfAddress(address) => self.ipv4_care_of_address = Some(address),
            MobilityOption::BindingIdentifier { bid, home, priority, care_of_address, .. } => {
                if self.identifiers.len() < MAX_IDENTIFIERS {
                    self.identifiers.push(RequestedIdentifier {
                        bid,
                        is_home_binding: home,
                        bid_priority: priority,
                        care_of_address,
                    });
                } else {
                    self.has_malformed_identifier = true;
                }
            }
            MobilityOption::FlowIdentification { fid, priority, sub_options, .. }
                if self.flow_requests.len() < MAX_FLOW_OPTIONS =>
            {
                self.flow_requests.push(FlowRequest {
                    fid,
                    fid_priority: priority,
                    sub_options: sub_options.to_vec(),
                });
            }
            MobilityOption::FlowSummary(fids) => {
                let room = MAX_SUMMARIZED_FLOWS.saturating_sub(self.unchanged_flow_ids.len());
                self.unchanged_flow_ids.extend(fids.iter().take(room));
            }
            MobilityOption::Ipv4HomeAddress { prefix_length, prefix, address }
                if self.ipv4_homes.len() < MAX_REQUESTED_IPV4_HOMES =>
            {
                self.ipv4_homes.push(RequestedIpv4Home { prefix_length, prefix, address });
            }
            MobilityOption::Unknown { option_type: option_type::NONCE_INDICES, .. } => {
                self.has_nonce_indices = true;
            }
            option => {
                if let Some(Ok(action)) = FlowActionOption::from_mobility_option(&option)
                    && self.flow_actions.len() < MAX_FLOW_OPTIONS
                {
                    self.flow_actions.push(action);
                }
            }
        }
    }

    /// Returns whether the update has Binding Identifiers.
    pub fn has_identifiers(&self) -> bool {
        !self.identifiers.is_empty() || self.has_malformed_identifier
    }

    /// Returns the care-of address of a Binding Update without Binding Identifier that came by IPv6.
    pub fn plain_care_of_address(&self) -> Ipv6Addr {
        self.alternate_care_of_address.unwrap_or(self.source)
    }

    /// Returns whether the update came inside IPv4 or UDP but has the form of an update by IPv6. Only an
    /// attacker who encapsulates a recorded update sends such a packet. A node's own update inside IPv4 has
    /// the home address as source and no Home Address option (RFC 5555 4.4.2). It has no Alternate Care-of
    /// Address option with an IPv6 address either.
    pub fn was_moved_into_tunnel(&self) -> bool {
        self.tunnel_ends.is_some()
            && (self.alternate_care_of_address.is_some() || self.has_home_address_option)
    }

    /// Returns whether the update came inside IPv4 or UDP and names the IPv4 address that it came from.
    pub fn names_outer_address(&self) -> bool {
        let Some(address) = self.tunnel_ends.and_then(|(_, node)| node.ipv4()) else { return true };
        let of_binding = |it: &RequestedIdentifier| it.care_of_address == Some(IpAddr::V4(address));
        self.ipv4_care_of_address == Some(address) || self.identifiers.iter().any(of_binding)
    }

    /// Returns the care-of address that the MAC covers: the address to be registered, an IPv4 address as
    /// IPv4-mapped. If the update has several, it is the first that an option names. An IPv4 Care-of Address
    /// option in an update by IPv6 does not count, because such an update registers no IPv4 address. If it
    /// counted, the MAC would not cover the IPv6 source, and an attacker could send the message from any IPv6
    /// address.
    pub fn authenticated_address(&self) -> Ipv6Addr {
        let named = self.identifiers.iter().find_map(|identifier| identifier.care_of_address);
        let ipv4 = self.ipv4_care_of_address.filter(|_| self.tunnel_ends.is_some());
        match named.or(self.alternate_care_of_address.map(IpAddr::V6)).or(ipv4.map(IpAddr::V4)) {
            Some(IpAddr::V6(address)) => address,
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
            None => self.source,
        }
    }

    /// Returns whether the options of the message name every care-of address.
    pub fn names_care_of_address(&self) -> bool {
        let each = self.identifiers.iter().all(|it| it.care_of_address.is_some());
        self.alternate_care_of_address.is_some() || !self.identifiers.is_empty() && each
    }

    /// Returns the source of the update, for messages to the operator.
    pub fn sender_endpoint(&self) -> Endpoint {
        match self.tunnel_ends {
            Some((_, node)) => node,
            None if self.identifiers.is_empty() => self.plain_care_of_address().into(),
            None => self.source.into(),
        }
    }

    /// Returns whether the source of the update fits the care-of address that the MAC covers.
    pub fn comes_from_signed_address(&self) -> bool {
        match self.tunnel_ends {
            Some((_, node)) => {
                node.ipv4().map(|address| address.to_ipv6_mapped()) == Some(self.authenticated_address())
            }
            None => self.source == self.authenticated_address(),
        }
    }

    /// Returns whether the update is a de-registration: its lifetime is 0, or its care-of address is the home
    /// address (RFC 6275 9.5.1, RFC 3963 6.2). With Binding Identifiers only the lifetime counts (RFC 5648
    /// 5.4).
    pub fn is_deregistration(&self) -> bool {
        self.lifetime.is_zero()
            || !self.has_identifiers()
                && self.tunnel_ends.is_none()
                && self.plain_care_of_address() == self.home_address
    }
}
