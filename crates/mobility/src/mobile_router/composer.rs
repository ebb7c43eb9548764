//! Builds the messages of a mobile router: Binding Updates (RFC 6275 11.7.1, RFC 3963 5.2, RFC 4285 5.1, RFC
//! 5555 4.4.2, RFC 5648 5.1), heartbeats, and their packets.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};

use carnet_base::Endpoint;
use carnet_wire::mobility::options::NO_KEEPALIVE;
use carnet_wire::mobility::{
    BindingAcknowledgement, BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption,
};

use super::flows::FlowPolicies;
use super::uplinks::Uplinks;
use super::{MobileRouterConfig, Registration, RegistrationMode};
use crate::binding_update_list::{
    BindingUpdateContent, BindingUpdateList, SequenceAndTimestampState, to_authenticated_form,
};
use crate::{HOP_LIMIT, Output, UDP_PORT, lifetime_units};

/// State of the mobile router from which messages are built.
#[derive(Clone, Copy)]
pub(super) struct MessageComposer<'a> {
    pub(super) config: &'a MobileRouterConfig,
    pub(super) uplinks: &'a Uplinks,
    pub(super) numbers: &'a SequenceAndTimestampState,
}

impl MessageComposer<'_> {
    /// Adds the mobile network prefixes of both families if the registration mode is explicit. An IPv4 prefix
    /// is an IPv4 Home Address option with the P flag (RFC 5555 3.1.1). For a mobile node, adds its IPv4 home
    /// address, which is this option without the flag.
    pub(super) fn add_prefix_options(&self, mut builder: MobilityHeaderBuilder) -> MobilityHeaderBuilder {
        if self.config.mode == RegistrationMode::Explicit {
            for prefix in &self.config.prefixes {
                builder = builder.option(&MobilityOption::MobileNetworkPrefix {
                    prefix: prefix.network(),
                    prefix_length: prefix.prefix_len(),
                });
            }
        }
        if self.config.mode != RegistrationMode::Implicit {
            for prefix in &self.config.ipv4_prefixes {
                builder = builder.option(&MobilityOption::Ipv4HomeAddress {
                    prefix_length: prefix.prefix_len(),
                    prefix: self.config.is_router(),
                    address: prefix.network(),
                });
            }
        }
        builder
    }

    /// Returns the packet of a Mobility Header message from a care-of address to the home agent. From an IPv4
    /// care-of address the packet goes inside UDP (RFC 5555 4.1), and the home address is the source of the
    /// inner packet.
    pub(super) fn build_control_packet(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        mobility_header: &mut [u8],
    ) -> Output {
        self.build_packet(uplink, care_of_address, true, mobility_header)
    }

    /// Returns the packet of a Heartbeat message, with the same encapsulation as data packets.
    pub(super) fn build_heartbeat_packet(
        &self,
        uplink: usize,
        registration: Registration,
        mobility_header: &mut [u8],
    ) -> Output {
        self.build_packet(uplink, registration.care_of_address, registration.uses_udp, mobility_header)
    }

    pub(super) fn build_packet(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        udp: bool,
        mobility_header: &mut [u8],
    ) -> Output {
        let config = &self.config;
        let away = care_of_address != IpAddr::V6(config.home_address);
        let (source, home_address) = match care_of_address {
            IpAddr::V6(address) => (address, away.then_some(config.home_address)),
            IpAddr::V4(_) => (config.home_address, None),
        };
        let packet = ControlPacket {
            source,
            destination: config.home_agent,
            hop_limit: HOP_LIMIT,
            home_address,
            routing_home_address: None,
            mobility_header,
        }
        .emit();
        match self.tunnel_ends(uplink, care_of_address, udp) {
            Some((Endpoint::Ipv6(_), _)) | None => Output::Packet(packet),
            Some((local, remote)) => Output::Encapsulated { local, remote, packet },
        }
    }

    /// Returns the two tunnel ends for a care-of address of an uplink; `None` for an IPv4 address if the home
    /// agent has no IPv4 address.
    pub(super) fn tunnel_ends(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        udp: bool,
    ) -> Option<(Endpoint, Endpoint)> {
        let socket = |address, port| Endpoint::Udp(SocketAddrV4::new(address, port));
        let port = self.uplinks.get(uplink).map_or(UDP_PORT, |uplink| uplink.udp_port);
        match care_of_address {
            IpAddr::V6(address) => Some((Endpoint::Ipv6(address), Endpoint::Ipv6(self.config.home_agent))),
            IpAddr::V4(address) => {
                let agent = self.config.home_agent_ipv4?;
                if udp {
                    Some((socket(address, port), socket(agent, UDP_PORT)))
                } else {
                    Some((Endpoint::Ipv4(address), Endpoint::Ipv4(agent)))
                }
            }
        }
    }

    /// Returns whether the router asks the home agent for UDP even without a NAT (RFC 5555 4.4.1).
    pub(super) fn forces_udp(&self, uplink: usize) -> bool {
        self.config.force_udp || self.uplinks.get(uplink).is_some_and(|uplink| uplink.needs_udp)
    }

    /// Adds the options that authenticate a Binding Update for this care-of address. The MAC covers an IPv4
    /// address as IPv4-mapped.
    pub(super) fn add_authentication_options(
        &self,
        mut builder: MobilityHeaderBuilder,
        timestamp: Option<u64>,
        care_of_address: Ipv6Addr,
    ) -> Vec<u8> {
        if let Some(timestamp) = timestamp {
            builder = builder.option(&MobilityOption::MessageIdentifier(timestamp));
        }
        let Some(association) = self.numbers.authentication.signing_association() else {
            return builder.finish();
        };
        let mut mobility_header = builder.option(&association.empty_authentication_option()).finish();
        association.sign(&mut mobility_header, care_of_address, self.config.home_address);
        mobility_header
    }

    /// Builds a Binding Update (RFC 6275 11.7.1, RFC 3963 5.2, RFC 4285 5.1, RFC 5555 4.4.2, RFC 5648 5).
    pub(super) fn build_update(
        &self,
        list: &BindingUpdateList,
        flows: &FlowPolicies,
        update: &BindingUpdateContent,
    ) -> Output {
        let config = &self.config;
        let (uplink, care_of_address) = update.sent_from;
        let flags = BindingUpdateFlags {
            acknowledge: true,
            home_registration: true,
            mobile_router: config.is_router(),
            force_udp: care_of_address.is_ipv4() && self.forces_udp(uplink),
            overwrite: update.replaces_all_bindings,
            ..BindingUpdateFlags::default()
        };
        let lifetime = if update.is_removal { 0 } else { lifetime_units(config.lifetime) };
        let mut builder = MobilityHeaderBuilder::binding_update(update.sequence, flags, lifetime);
        // docs/standards.md: a Binding Update with a Binding Identifier has no Alternate Care-of Address and
        // no IPv4 Care-of Address option. An update from the home link has neither of these options and no
        // Binding Identifier.
        match care_of_address {
            _ if !update.is_without_identifiers || care_of_address == IpAddr::V6(config.home_address) => {}
            IpAddr::V6(address) => {
                builder = builder.option(&MobilityOption::AlternateCareOfAddress(address));
            }
            IpAddr::V4(address) => {
                builder = builder.option(&MobilityOption::Ipv4CareOfAddress(address));
            }
        }
        for member in &update.updated_bindings {
            let Some(bid) = list.identified_entries[member.binding_index].bid else { continue };
            builder = builder.option(&MobilityOption::BindingIdentifier {
                bid,
                status: 0,
                home: false,
                // RFC 6089 5.2.1: the priority is never 0.
                priority: member.bid_priority.clamp(1, 127),
                care_of_address: (!update.is_removal).then_some(member.care_of_address),
            });
        }
        if !update.is_removal {
            builder = self.add_prefix_options(builder);
        }
        builder = flows.add_options(builder, &update.described_flows, &update.unchanged_flow_ids);
        let mut mobility_header =
            self.add_authentication_options(builder, update.timestamp, update.authenticated_address);
        self.build_control_packet(uplink, care_of_address, &mut mobility_header)
    }

    /// Returns this router's tunnel end of a registration over an uplink.
    pub(super) fn local_tunnel_end(&self, uplink: usize, registration: &Registration) -> Endpoint {
        self.tunnel_ends(uplink, registration.care_of_address, registration.uses_udp)
            .map_or(Endpoint::Ipv6(to_authenticated_form(registration.care_of_address)), |(local, _)| local)
    }

    /// Returns whether packets from an IPv4 care-of address go inside UDP: behind a NAT, or if one side
    /// demands it (RFC 5555 4.2, 3.2.2). The home agent may send a NAT Detection option although no NAT is on
    /// the path; then its refresh time is all ones.
    pub(super) fn needs_udp(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> bool {
        let told = acknowledgement.options.iter().any(|option| match option {
            Ok(MobilityOption::NatDetection { force_udp, refresh }) => force_udp || refresh != NO_KEEPALIVE,
            _ => false,
        });
        care_of_address.is_ipv4() && (told || self.forces_udp(uplink))
    }
}
