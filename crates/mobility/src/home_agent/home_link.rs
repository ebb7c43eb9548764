//! Neighbor Discovery on a real home link on behalf of nodes that are away (RFC 6275 10.4.1).
//!
//! The home agent answers for its own address, which is on the tunnel device, and for every bound home
//! address. It multicasts an unsolicited Neighbor Advertisement when it begins to defend an address. It
//! probes an address before it takes it over (duplicate address detection, RFC 4862 5.4). The Router bit is
//! set for mobile routers (RFC 3963 6.2) and for the home agent.
//!
//! The home agent does not wait for the kernel's link-local address on the link. The kernel tests that
//! address for duplicates when the link comes up, which takes two seconds, and longer if many links come and
//! go. A home agent MUST answer solicitations meanwhile (RFC 6275 10.4.1), and does so from its own address.
//!
//! A mobile router does the same on a visited link for the mobile routers behind it ([`crate::nesting`]).

use std::net::Ipv6Addr;

use carnet_base::{Interface, LinkMessage};
use carnet_wire::{icmpv6, nd};

use crate::MobilityDrop;

/// Interface on the home link.
#[derive(Debug)]
pub(crate) struct HomeLink {
    pub interface: String,
    /// The home agent's own address on the link; `None` if carnet does not answer for it.
    address: Option<Ipv6Addr>,
    is_running: bool,
    pub link_address: Option<[u8; 6]>,
    pub link_local: Option<Ipv6Addr>,
}

/// Meaning of a Neighbor Discovery message on the home link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NeighborMessage {
    /// A node solicits `target`.
    Solicitation { target: Ipv6Addr, source: Ipv6Addr, peer: Option<[u8; 6]> },
    /// A node advertises `target` as its own.
    Advertisement { target: Ipv6Addr },
    /// A message that does not concern the home agent.
    Other,
}

impl HomeLink {
    /// Creates the home link on this interface. `address` is the home agent's address on it; `None` if the
    /// home agent has no address there.
    pub fn new(interface: String, address: Option<Ipv6Addr>) -> Self {
        HomeLink { interface, address, is_running: false, link_address: None, link_local: None }
    }

    /// Returns whether the interface has carrier, so that the home agent can probe addresses.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Returns whether the link has carrier and an address that the home agent can send from.
    pub fn is_up(&self) -> bool {
        self.is_running && self.source_address().is_some()
    }

    /// Returns the source address of advertisements; `None` if the home agent has no address on the link. RFC
    /// 6275 10.4.1: "the home agent's IP address on the interface".
    fn source_address(&self) -> Option<Ipv6Addr> {
        self.link_local.or(self.address)
    }

    /// Takes over the state of the interface; returns whether the link has just come up.
    pub fn handle_interface(&mut self, interface: &Interface) -> bool {
        let was_up = self.is_up();
        self.is_running = interface.running;
        self.link_address = interface.link_address;
        self.link_local = interface
            .addresses
            .iter()
            .find(|a| a.address.is_unicast_link_local() && !a.tentative && !a.duplicate)
            .map(|a| a.address);
        self.is_up() && !was_up
    }

    pub fn handle_interface_gone(&mut self) {
        self.is_running = false;
        self.link_local = None;
    }

    /// Reads a Neighbor Discovery message, with the checks of RFC 4861 7.1.
    pub fn read_neighbor_message(message: &LinkMessage) -> Result<NeighborMessage, MobilityDrop> {
        let kind = message.message.first().copied();
        if kind != Some(icmpv6::message_type::NEIGHBOR_SOLICITATION)
            && kind != Some(icmpv6::message_type::NEIGHBOR_ADVERTISEMENT)
        {
            return Ok(NeighborMessage::Other);
        }
        if message.hop_limit != nd::HOP_LIMIT {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        icmpv6::verify_checksum(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        if kind == Some(icmpv6::message_type::NEIGHBOR_SOLICITATION) {
            let solicitation = nd::NeighborSolicitation::parse(&message.message)
                .map_err(|_| MobilityDrop::NeighborDiscovery)?;
            // RFC 4291 2.7: a multicast address is never a source, and an answer would go to the whole group.
            if solicitation.target.is_multicast()
                || message.source.is_multicast()
                || (message.source.is_unspecified() && solicitation.source_link_address.is_some())
            {
                return Err(MobilityDrop::NeighborDiscovery);
            }
            Ok(NeighborMessage::Solicitation {
                target: solicitation.target,
                source: message.source,
                peer: solicitation.source_link_address.or(message.peer),
            })
        } else {
            let advertisement = nd::NeighborAdvertisement::parse(&message.message)
                .map_err(|_| MobilityDrop::NeighborDiscovery)?;
            Ok(NeighborMessage::Advertisement { target: advertisement.target })
        }
    }

    /// Builds the answer to a solicitation for an address that the home agent defends.
    pub fn build_solicited_advertisement(
        &self,
        target: Ipv6Addr,
        router: bool,
        override_: bool,
        source: Ipv6Addr,
        peer: Option<[u8; 6]>,
    ) -> Option<LinkMessage> {
        // RFC 4861 7.2.4: a solicitation from the unspecified address (duplicate address detection) is
        // answered to all nodes, unsolicited.
        let solicited = !source.is_unspecified();
        let (destination, peer) = if solicited { (source, peer) } else { (nd::ALL_NODES, None) };
        self.build_advertisement(target, router, (solicited, override_), destination, peer)
    }

    /// Builds the unsolicited advertisement that moves an address to the home agent's link-layer address.
    /// `None` if the link is down, or the home agent has no address on it.
    pub fn build_unsolicited_advertisement(&self, target: Ipv6Addr, router: bool) -> Option<LinkMessage> {
        self.build_advertisement(target, router, (false, true), nd::ALL_NODES, None)
    }

    fn build_advertisement(
        &self,
        target: Ipv6Addr,
        router: bool,
        (solicited, override_): (bool, bool),
        destination: Ipv6Addr,
        peer: Option<[u8; 6]>,
    ) -> Option<LinkMessage> {
        let advertisement = nd::NeighborAdvertisement {
            target,
            router,
            solicited,
            override_,
            target_link_address: self.link_address,
        };
        self.build_message(self.source_address()?, destination, peer, advertisement.emit())
    }

    /// Builds the probe of duplicate address detection (RFC 4862 5.4.2); `None` if the link is not running.
    pub fn build_dad_probe(&self, target: Ipv6Addr) -> Option<LinkMessage> {
        let solicitation = nd::NeighborSolicitation { target, source_link_address: None };
        self.build_message(
            Ipv6Addr::UNSPECIFIED,
            nd::solicited_node_address(target),
            None,
            solicitation.emit(),
        )
    }

    /// Builds a Neighbor Discovery message; `None` if the link is not running.
    pub fn build_message(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        peer: Option<[u8; 6]>,
        mut message: Vec<u8>,
    ) -> Option<LinkMessage> {
        if !self.is_running {
            return None;
        }
        icmpv6::set_checksum(&mut message, source, destination);
        Some(LinkMessage {
            interface: self.interface.clone(),
            source,
            destination,
            hop_limit: nd::HOP_LIMIT,
            peer,
            message,
        })
    }
}
