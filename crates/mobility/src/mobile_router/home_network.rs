//! Decides whether a link is the home link, and answers solicitations for the mobile network there (RFC
//! 4887).
//!
//! In an extended home network (RFC 4887 5) the home link and the mobile networks have separate prefixes,
//! which needs nothing special. In an aggregated home network (RFC 4887 6) the home prefix contains the
//! mobile networks. Then two rules change:
//!
//! * A prefix that is a part of the home prefix does not show the home link: it may be another vehicle's
//!   mobile network. Such a part shows the home link only if it contains the home agent's address (RFC 4887
//!   6.2: "a prefix match with its Home Agent").
//! * Hosts on the home link solicit hosts of the mobile network as neighbours. A router at home answers for
//!   them (RFC 4887 6.2.1, "ND proxying for all addresses in its MNPs") and forwards their packets. While the
//!   router is away, the home agent does so.
//!
//! Left out:
//!
//! * A bridge between mobile network and home link (RFC 4887 6.2.1).
//! * A return to the home link by an interface of the mobile network (6.2.2).
//! * A home network that is mobile itself (8).

use carnet_base::{Address, LinkMessage};
use carnet_wire::{icmpv6, nd};
use ipnet::Ipv6Net;

use super::{MobileRouterConfig, Uplink};
use crate::MobilityDrop;
use crate::home_agent::{HomeLink, NeighborMessage};

impl MobileRouterConfig {
    /// Returns whether an advertised prefix shows that the link is the home link.
    pub(super) fn is_home_link(&self, prefix: Ipv6Net) -> bool {
        prefix == self.home_prefix
            || (self.home_prefix.contains(&prefix) && prefix.contains(&self.home_agent))
    }

    /// Returns whether an address on an interface shows that its link is the home link. The home address
    /// itself (/128) does.
    pub(super) fn is_home_address(&self, own: &Address) -> bool {
        let link = Ipv6Net::new(own.address, own.prefix_length).unwrap_or(self.home_prefix).trunc();
        self.home_prefix.contains(&own.address)
            && (own.prefix_length == 128 || link.contains(&self.home_prefix) || self.is_home_link(link))
    }

    /// Returns whether mobile network prefixes are parts of the home prefix. Then hosts on the home link
    /// solicit their addresses there.
    pub fn is_aggregated(&self) -> bool {
        self.prefixes.iter().any(|prefix| self.home_prefix.contains(prefix))
    }

    /// Returns the answer to a solicitation on the home link for an address of this router's mobile network.
    pub(super) fn answer_on_home_link(
        &self,
        uplink: &Uplink,
        message: &LinkMessage,
    ) -> Result<Option<LinkMessage>, MobilityDrop> {
        if !self.is_aggregated() {
            return Ok(None);
        }
        let NeighborMessage::Solicitation { target, source, peer } =
            HomeLink::read_neighbor_message(message)?
        else {
            return Ok(None);
        };
        let aboard = self.prefixes.iter().any(|prefix| prefix.contains(&target));
        // The home address is on the interface, so the kernel answers for it.
        if !aboard || target == self.home_address || !self.home_prefix.contains(&target) {
            return Ok(None);
        }
        let Some(own) = uplink.link_local() else { return Ok(None) };
        // RFC 4861 7.2.4: a solicitation of duplicate address detection is answered to all nodes.
        let solicited = !source.is_unspecified();
        let (destination, peer) = if solicited { (source, peer) } else { (nd::ALL_NODES, None) };
        let advertisement = nd::NeighborAdvertisement {
            target,
            router: false,
            solicited,
            override_: true,
            target_link_address: uplink.link_address(),
        };
        let mut message = advertisement.emit();
        icmpv6::set_checksum(&mut message, own, destination);
        Ok(Some(LinkMessage {
            interface: uplink.config.interface.clone(),
            source: own,
            destination,
            hop_limit: nd::HOP_LIMIT,
            peer,
            message,
        }))
    }

    /// Returns the advertisement of the home address for the home link, which the router sends after its
    /// return (RFC 6275 11.5.5).
    pub(super) fn home_announcement(&self, uplink: &Uplink) -> LinkMessage {
        let advertisement = nd::NeighborAdvertisement {
            target: self.home_address,
            router: self.is_router(),
            solicited: false,
            override_: true,
            target_link_address: uplink.link_address(),
        };
        let mut message = advertisement.emit();
        icmpv6::set_checksum(&mut message, self.home_address, nd::ALL_NODES);
        LinkMessage {
            interface: uplink.config.interface.clone(),
            source: self.home_address,
            destination: nd::ALL_NODES,
            hop_limit: nd::HOP_LIMIT,
            peer: None,
            message,
        }
    }
}

/// Whether the router is on its home link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HomePresence {
    /// Whether the selected uplink is on the home link.
    pub(super) at_home: bool,
    /// Whether the home agent has acknowledged the de-registration.
    pub(super) has_deregistered: bool,
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::time::Duration;

    use super::super::RegistrationMode;
    use super::*;
    use crate::Authentication;

    fn config(home_prefix: &str) -> MobileRouterConfig {
        let address = |text: &str| -> Ipv6Addr { text.parse().expect("an address") };
        MobileRouterConfig {
            home_address: address("2001:db8:1::1234"),
            home_prefix: home_prefix.parse().expect("a prefix"),
            home_agent: address("2001:db8:1::1"),
            home_agent_ipv4: None,
            probes_portals: false,
            force_udp: false,
            ipv4_prefixes: Vec::new(),
            prefixes: vec!["2001:db8:1:a::/64".parse().expect("a prefix")],
            mode: RegistrationMode::Explicit,
            lifetime: Duration::from_secs(60),
            authentication: Authentication::None,
            uplinks: Vec::new(),
            liveness: None,
            policies: Vec::new(),
        }
    }

    /// RFC 4887 6.2: the whole home prefix shows the home link, and so does its part with the home agent.
    /// Other parts and shorter prefixes do not show the home link.
    #[test]
    fn prefix_of_the_home_agents_address_identifies_the_home_link() {
        let aggregated = config("2001:db8:1::/48");
        let is = |config: &MobileRouterConfig, prefix: &str| {
            config.is_home_link(prefix.parse().expect("a prefix"))
        };
        for home in ["2001:db8:1::/48", "2001:db8:1::/64"] {
            assert!(is(&aggregated, home), "{home}");
        }
        for other in ["2001:db8:1:b::/64", "2001:db8::/32", "2001:db8:2::/64"] {
            assert!(!is(&aggregated, other), "{other}");
        }
        assert!(is(&config("2001:db8:1::/64"), "2001:db8:1::/64"));
        assert!(aggregated.is_aggregated() && !config("2001:db8:1::/64").is_aggregated());
    }

    #[test]
    fn address_prefix_decides_whether_an_address_is_on_the_home_link() {
        let aggregated = config("2001:db8:1::/48");
        let is = |address: &str, prefix_length| {
            let address = address.parse().expect("an address");
            aggregated.is_home_address(&Address {
                address,
                prefix_length,
                tentative: false,
                duplicate: false,
                deprecated: false,
                temporary: false,
                permanent: true,
            })
        };
        assert!(is("2001:db8:1::99", 64) && is("2001:db8:1:b::99", 48) && is("2001:db8:1:b::99", 128));
        assert!(!is("2001:db8:1:b::99", 64) && !is("2001:db8:2::99", 64) && !is("2001:db8:2::99", 128));
    }
}
