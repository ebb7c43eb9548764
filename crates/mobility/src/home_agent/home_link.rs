//! Neighbor Discovery on a real home link on behalf of nodes that are away (RFC 6275 10.4.1).
//!
//! The home agent answers for its own address, which lives behind the tunnel device, and for every bound
//! home address; it multicasts an unsolicited Neighbor Advertisement when it begins to; it probes an
//! address before it takes it over (duplicate address detection, RFC 4862 5.4). The Router bit is set for
//! mobile routers (RFC 3963 6.2) and for itself.
//!
//! None of this waits for the kernel's link-local address on the link. The kernel tests that for duplicates
//! when the link comes up, which takes it two seconds, and longer where many links come and go; a home agent
//! that is asked meanwhile MUST answer as well (RFC 6275 10.4.1), and does so from its own address.
//!
//! A mobile router does the same on a visited link for mobile routers behind it ([`crate::nesting`]).

use std::net::Ipv6Addr;

use carnet_base::{Interface, LinkMessage};
use carnet_wire::{icmpv6, nd};

use crate::MobilityDrop;

/// Hop limit of every Neighbor Discovery message (RFC 4861 4).
pub(crate) const ND_HOP_LIMIT: u8 = 255;

/// The interface on the home link, as far as it is known.
#[derive(Debug)]
pub(crate) struct HomeLink {
    pub interface: String,
    /// Our own address on the link, where carnet has one that it answers for itself.
    address: Option<Ipv6Addr>,
    running: bool,
    pub link_address: Option<[u8; 6]>,
    pub link_local: Option<Ipv6Addr>,
}

/// What a Neighbor Discovery message on the home link means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Somebody asks for `target`.
    Solicitation { target: Ipv6Addr, source: Ipv6Addr, peer: Option<[u8; 6]> },
    /// Somebody says that `target` is theirs.
    Advertisement { target: Ipv6Addr },
    /// Not for us.
    Other,
}

impl HomeLink {
    /// The link behind an interface; `address` is ours there, on a home agent's home link.
    pub fn new(interface: String, address: Option<Ipv6Addr>) -> Self {
        HomeLink { interface, address, running: false, link_address: None, link_local: None }
    }

    /// Whether the link runs, so that addresses on it can be probed.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Whether the link is usable, so that nodes on it can be heard and told.
    pub fn is_up(&self) -> bool {
        self.running && self.source().is_some()
    }

    /// What our advertisements come from. RFC 6275 10.4.1: "the home agent's IP address on the interface".
    fn source(&self) -> Option<Ipv6Addr> {
        self.link_local.or(self.address)
    }

    /// Takes over the interface's state; true when the link has just come up.
    pub fn handle_interface(&mut self, interface: &Interface) -> bool {
        let was_up = self.is_up();
        self.running = interface.running;
        self.link_address = interface.link_address;
        self.link_local = interface
            .addresses
            .iter()
            .find(|a| a.address.is_unicast_link_local() && !a.tentative && !a.duplicate)
            .map(|a| a.address);
        self.is_up() && !was_up
    }

    pub fn handle_gone(&mut self) {
        self.running = false;
        self.link_local = None;
    }

    /// Reads a Neighbor Discovery message, with the checks of RFC 4861 7.1.
    pub fn read(message: &LinkMessage) -> Result<Heard, MobilityDrop> {
        let kind = message.message.first().copied();
        if kind != Some(icmpv6::types::NEIGHBOR_SOLICITATION)
            && kind != Some(icmpv6::types::NEIGHBOR_ADVERTISEMENT)
        {
            return Ok(Heard::Other);
        }
        if message.hop_limit != ND_HOP_LIMIT {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        icmpv6::verify(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        if kind == Some(icmpv6::types::NEIGHBOR_SOLICITATION) {
            let solicitation = nd::NeighborSolicitation::parse(&message.message)
                .map_err(|_| MobilityDrop::NeighborDiscovery)?;
            // RFC 4291 2.7: no packet comes from a group, and an answer would go to all of it.
            if solicitation.target.is_multicast()
                || message.source.is_multicast()
                || (message.source.is_unspecified() && solicitation.source_link_address.is_some())
            {
                return Err(MobilityDrop::NeighborDiscovery);
            }
            Ok(Heard::Solicitation {
                target: solicitation.target,
                source: message.source,
                peer: solicitation.source_link_address.or(message.peer),
            })
        } else {
            let advertisement = nd::NeighborAdvertisement::parse(&message.message)
                .map_err(|_| MobilityDrop::NeighborDiscovery)?;
            Ok(Heard::Advertisement { target: advertisement.target })
        }
    }

    /// The answer to a solicitation for an address that is ours to defend.
    pub fn answer(
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
        self.advertisement(target, router, (solicited, override_), destination, peer)
    }

    /// The unsolicited advertisement that moves an address to our link-layer address.
    pub fn announcement(&self, target: Ipv6Addr, router: bool) -> Option<LinkMessage> {
        self.advertisement(target, router, (false, true), nd::ALL_NODES, None)
    }

    fn advertisement(
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
        self.message(self.source()?, destination, peer, advertisement.emit())
    }

    /// The probe of duplicate address detection (RFC 4862 5.4.2).
    pub fn probe(&self, target: Ipv6Addr) -> Option<LinkMessage> {
        let solicitation = nd::NeighborSolicitation { target, source_link_address: None };
        self.message(Ipv6Addr::UNSPECIFIED, nd::solicited_node(target), None, solicitation.emit())
    }

    /// A message of Neighbor Discovery, where the link runs.
    pub fn message(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        peer: Option<[u8; 6]>,
        mut message: Vec<u8>,
    ) -> Option<LinkMessage> {
        if !self.running {
            return None;
        }
        icmpv6::set_checksum(&mut message, source, destination);
        Some(LinkMessage {
            interface: self.interface.clone(),
            source,
            destination,
            hop_limit: ND_HOP_LIMIT,
            peer,
            message,
        })
    }
}
