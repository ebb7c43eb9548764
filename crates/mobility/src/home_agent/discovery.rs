//! Dynamic Home Agent Address Discovery (RFC 6275 10.5, RFC 3963 7) and mobile prefix discovery (RFC 6275
//! 10.6).
//!
//! The home agent answers a request to the home agents' anycast address of the home prefix from its own
//! address. The answer lists the known home agents, including this one. RFC 6275 5.3 protects neither request
//! nor answer. So the answer contains only the list of [`super::home_agents_list`], the home agent stores no
//! state of the sender, and all answers share one rate limit.
//!
//! A node with a binding may ask for the prefixes of the home link. RFC 6275 10.6.3 requires IPsec for this
//! exchange, which carnet does not support. So the answer contains only public values.
//!
//! Left out: unsolicited Mobile Prefix Advertisements (10.6.2), because the home prefix changes only with a
//! restart; prefixes other than the home prefix.

use std::net::Ipv6Addr;

use carnet_base::{LinkMessage, Time};
use carnet_wire::discovery::{HomeAgentDiscoveryRequest, emit_discovery_reply, home_agents_anycast};
use carnet_wire::extension::emit_home_address_routing_header;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{NdOption, PrefixInformation};
use carnet_wire::prefix_discovery::{MobilePrefixSolicitation, emit_prefix_advertisement};

use super::home_agents_list::{HomeAgentCandidate, addresses_in_order};
use super::{AuthorizedNode, HomeAgent, HomeAgentConfig};
use crate::router_advertiser::{PREFERRED_LIFETIME, VALID_LIFETIME};
use crate::{HOP_LIMIT, MobilityDrop, Output, is_unicast_routable};

/// Maximum number of anycast addresses at which the home agent answers. The home addresses are seldom in more
/// than one network of the home prefix.
const MAX_ANYCAST_ADDRESSES: usize = 8;
/// Maximum number of addresses in a reply. RFC 6275 10.5.1 allows as many as fit the minimum MTU, which is
/// 76. But an attacker can send a request of 48 octets with a victim's source address. With this limit the
/// reply to the victim has at most 176 octets. Nodes try the most preferred home agents first, so eight
/// addresses suffice.
const MAX_LISTED_AGENTS: usize = 8;

/// Returns the anycast addresses at which the home agent answers: one in each network of 64 bits that routers
/// may ask. A home prefix may contain several such networks (RFC 4887 6). The home link's network is the
/// network of the home agent's address. Routers know only the home prefix, so they ask in the network of
/// their home address, or in the first network of the home prefix. Networks that belong to a mobile network
/// are left out.
pub(super) fn anycast_addresses(config: &HomeAgentConfig) -> Vec<Ipv6Addr> {
    let HomeAgentConfig { address, home_prefix, nodes, .. } = config;
    if !config.other_agents.answers_dhaad {
        return Vec::new();
    }
    let aboard =
        |node: &AuthorizedNode| node.prefixes.iter().any(|prefix| prefix.contains(&node.home_address));
    let at_home = nodes.iter().filter(|node| home_prefix.contains(&node.home_address) && !aboard(node));
    let home_addresses = at_home.map(|node| node.home_address);
    let own = Some(*address).filter(|address| home_prefix.contains(address));
    let mut found: Vec<Ipv6Addr> = Vec::new();
    for of in own.into_iter().chain([home_prefix.network()]).chain(home_addresses) {
        let anycast = home_agents_anycast(of);
        let mut prefixes = nodes.iter().flat_map(|node| node.prefixes.iter());
        if found.len() < MAX_ANYCAST_ADDRESSES
            && !found.contains(&anycast)
            && !prefixes.any(|p| p.contains(&anycast))
        {
            found.push(anycast);
        }
    }
    found
}

impl HomeAgent {
    /// Returns the Mobile IPv6 Home-Agents anycast addresses of the home prefix (RFC 2526) at which the home
    /// agent answers.
    pub fn anycast_addresses(&self) -> &[Ipv6Addr] {
        &self.proxy_nd.anycast_addresses
    }

    /// Returns all known home agents. Includes this one, unless it is being drained.
    fn known_home_agents(&self, now: Time) -> Vec<HomeAgentCandidate> {
        let others = &self.config.other_agents;
        let own = (!self.is_draining()).then(|| HomeAgentCandidate {
            addresses: vec![self.config.address],
            preference: others.preference,
            mobile_routers: self.config.serves_mobile_routers(),
        });
        let peers = others.peers.iter().map(|peer| HomeAgentCandidate {
            addresses: vec![peer.address],
            preference: peer.preference,
            mobile_routers: true,
        });
        own.into_iter().chain(peers).chain(self.home_agents_list.candidates(now)).collect()
    }

    /// Returns the other home agents that serve mobile routers, in the order of RFC 6275 10.5.1.
    pub(super) fn other_home_agents(&mut self, now: Time) -> Vec<Ipv6Addr> {
        let mut candidates = self.known_home_agents(now);
        candidates.retain(|candidate| candidate.mobile_routers);
        let mut addresses = addresses_in_order(candidates, &mut self.rng);
        addresses.retain(|address| *address != self.config.address);
        addresses
    }

    /// Handles an ICMPv6 message that came to the anycast address `anycast`.
    ///
    /// # Errors
    /// Returns why the home agent did not answer.
    pub fn handle_discovery_request(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        anycast: Ipv6Addr,
        message: &[u8],
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        if !self.proxy_nd.anycast_addresses.contains(&anycast) {
            return Err(MobilityDrop::WrongParty);
        }
        if !is_unicast_routable(source) {
            return Err(MobilityDrop::CareOfAddress);
        }
        icmpv6::verify_checksum(source, anycast, message).map_err(|_| MobilityDrop::BadChecksum)?;
        let request = HomeAgentDiscoveryRequest::parse(message).map_err(|_| MobilityDrop::UnknownType)?;
        if !self.discovery_reply_limits.allow_answer(now, source) {
            return Err(MobilityDrop::RateLimited);
        }
        let mut candidates = self.known_home_agents(now);
        // RFC 3963 7.2: the answer lists only home agents for mobile routers and has the R flag. If none
        // is known, it lists all home agents without the R flag.
        let any = candidates.iter().any(|candidate| candidate.mobile_routers);
        let mobile_router = request.mobile_router && any;
        candidates.retain(|candidate| candidate.mobile_routers || !mobile_router);
        let mut addresses = addresses_in_order(candidates, &mut self.rng);
        addresses.truncate(MAX_LISTED_AGENTS);
        let reply = emit_discovery_reply(request.identifier, mobile_router, &addresses);
        // RFC 6275 10.5.1: the source of the answer is "one of the global unicast addresses of the home
        // agent".
        let packet = icmpv6::emit_packet(self.config.address, source, HOP_LIMIT, reply);
        self.outputs.push_back(Output::Packet(packet));
        Ok(())
    }

    /// Handles a Mobile Prefix Solicitation (RFC 6275 10.6.3) that came with this home address.
    ///
    /// # Errors
    /// Returns why the home agent did not answer; [`MobilityDrop::WrongParty`] if the node is not bound to
    /// the source.
    pub fn handle_prefix_solicitation(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        home_address: Ipv6Addr,
        message: &[u8],
    ) -> Result<(), MobilityDrop> {
        self.assert_drained();
        // RFC 8200 8.1, RFC 6275 6.3: the checksum covers the home address as source.
        icmpv6::verify_checksum(home_address, self.config.address, message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let solicitation = MobilePrefixSolicitation::parse(message).map_err(|_| MobilityDrop::Malformed)?;
        if !self.cache.bindings_of(home_address).any(|binding| binding.care_of_address == source) {
            return Err(MobilityDrop::WrongParty);
        }
        if !self
            .limits_by_node
            .entry(home_address)
            .or_default()
            .prefix_advertisement_limit
            .try_take_token(now)
        {
            return Err(MobilityDrop::RateLimited);
        }
        let home_prefix = NdOption::PrefixInformation(PrefixInformation {
            prefix: self.config.address,
            prefix_length: self.config.home_prefix.prefix_len(),
            on_link: true,
            autonomous: self.config.home_prefix.prefix_len() == 64,
            router_address: true,
            valid_lifetime: VALID_LIFETIME,
            preferred_lifetime: PREFERRED_LIFETIME,
        });
        let mut advertisement = emit_prefix_advertisement(solicitation.identifier, &[home_prefix]);
        icmpv6::set_checksum(&mut advertisement, self.config.address, home_address);
        let routing = emit_home_address_routing_header(protocol::ICMPV6, home_address);
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: u16::try_from(routing.len() + advertisement.len()).unwrap_or(u16::MAX),
            next_header: protocol::ROUTING,
            hop_limit: HOP_LIMIT,
            source: self.config.address,
            destination: source,
        };
        let packet = [&header.emit()[..], &routing[..], &advertisement[..]].concat();
        self.outputs.push_back(Output::Packet(packet));
        Ok(())
    }

    /// Updates the Home Agents List from a Router Advertisement on the home link.
    pub(super) fn handle_router_advertisement(
        &mut self,
        now: Time,
        message: &LinkMessage,
    ) -> Result<(), MobilityDrop> {
        // The kernel does not loop the home agent's own advertisements back, so they never arrive here.
        self.home_agents_list.handle_advertisement(now, message)
    }
}
