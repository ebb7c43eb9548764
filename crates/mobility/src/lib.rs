//! Mobile IPv6 and NEMO Basic Support as state machines without I/O.
//!
//! Each of the two roles has a module:
//!
//! * [`home_agent`] - the binding cache and all messages of a home agent (RFC 6275 section 10, RFC 3963
//!   section 6). It supports several care-of addresses (RFC 5648), flow bindings (RFC 6089), nodes in IPv4
//!   networks (RFC 5555), and heartbeats (RFC 5847). It also does Neighbor Discovery on a real home link.
//! * [`mobile_router`] - uplinks, movement detection and home registration (RFC 6275 section 11, RFC 3963
//!   section 5).
//!
//! [`agents`] chooses the home agent with which a mobile router is registered. [`mnpp`] finds the mobile
//! networks of vehicles in radio range; [`direct`] finds direct routes to other vehicles. [`nesting`] gives a
//! nested mobile router a path that does not lead through the home agents of the outer routers.
//!
//! The caller passes the time and an input to a `handle_*` method. Then it takes [`Output`]s from
//! `poll_output` until that returns `None`; debug builds assert this. `poll_timeout` returns the next
//! deadline. The modules never read a clock or open a socket, and all random numbers come from the caller's
//! generator.
//!
//! Left out: route optimisation with correspondent nodes (RFC 6275 section 9), IPsec.
#![forbid(unsafe_code)]

pub mod agents;
mod binding_update_list;
pub mod direct;
mod drop_reason;
mod event;
pub mod flow;
pub mod home_agent;
mod message;
pub mod mnpp;
pub mod mobile_router;
pub mod nesting;
mod path_liveness;
pub mod router_advertiser;
mod security;
mod sequence;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Endpoint, LinkMessage};

pub use carnet_wire::ipv6::is_unicast_routable;
pub use direct::DirectRouteState;
pub use drop_reason::MobilityDrop;
pub use event::Event;
pub use home_agent::HomeAgent;
pub use message::MobilityMessage;
pub use mnpp::Mnpp;
pub use mobile_router::MobileRouter;
pub use nesting::Nesting;
pub use security::{Authentication, ReplayProtection, SecurityAssociation, SessionPeer, SharedKeys};
pub use sequence::is_newer;

/// UDP port of encapsulated IPv6 (RFC 5555 8), at both ends unless a NAT changes it.
pub const UDP_PORT: u16 = 4191;
/// Unit of every lifetime in Binding Updates and Acknowledgements (RFC 6275 6.1.7).
pub const LIFETIME_UNIT: Duration = Duration::from_secs(4);
/// Maximum number of Mobility Header messages of one type to one node per second: `MAX_UPDATE_RATE` (RFC 6275
/// 12).
pub const MAX_UPDATE_RATE: usize = 3;
/// Hop limit of packets that carnet originates, the value "normally assigned to routers" (RFC 3963 5.5).
pub const HOP_LIMIT: u8 = 64;
/// Grace period: time for which carnet still accepts packets from a path that traffic has left. It is longer
/// than any useful round trip. It is shorter than the time after which an access network gives the care-of
/// address to another node.
pub const OLD_PATH_GRACE: Duration = Duration::from_secs(5);

/// An output of a protocol machine. The caller executes outputs in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The forwarding may have changed: compute it anew. It depends on the binding of this home address (home
    /// agent) or on the state of this router (mobile router).
    Forwarding(Ipv6Addr),
    /// The stored state has changed: store it before the next packet leaves. The home address names the node
    /// (home agent) or this router (mobile router).
    Persist(Ipv6Addr),
    /// An IPv6 packet to send. Its source address selects the interface.
    Packet(Vec<u8>),
    /// An IPv6 packet to send inside IPv4 or UDP between these tunnel ends (RFC 5555).
    Encapsulated {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
        /// The IPv6 packet.
        packet: Vec<u8>,
    },
    /// A packet from the home agent itself, to send through the tunnel between these ends.
    Tunnelled {
        /// Local end.
        local: Endpoint,
        /// Remote end.
        remote: Endpoint,
        /// The inner packet.
        packet: Vec<u8>,
    },
    /// An ICMPv6 message to send on one link.
    Link(LinkMessage),
    /// Request the configured URL over an uplink, and pass the result to
    /// [`MobileRouter::handle_portal_probe`].
    ProbePortal {
        /// Uplink interface.
        uplink: String,
        /// Care-of addresses of the uplink, as sources of the request.
        sources: Vec<IpAddr>,
    },
    /// An event for the log.
    Event(Event),
}

/// Returns a lifetime in units of four seconds, rounded down. Returns at least one unit unless the lifetime
/// is zero.
pub fn lifetime_units(lifetime: Duration) -> u16 {
    let units = lifetime.as_secs() / LIFETIME_UNIT.as_secs();
    match u16::try_from(units) {
        Ok(0) if !lifetime.is_zero() => 1,
        Ok(units) => units,
        Err(_) => u16::MAX,
    }
}

/// Returns the duration of a lifetime in units of four seconds.
pub fn lifetime_from_units(units: u16) -> Duration {
    LIFETIME_UNIT * u32::from(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_rounded_down_to_at_least_one_unit() {
        assert_eq!(lifetime_units(Duration::ZERO), 0);
        assert_eq!(lifetime_units(Duration::from_secs(1)), 1);
        assert_eq!(lifetime_units(Duration::from_secs(63)), 15);
        assert_eq!(lifetime_units(Duration::MAX), u16::MAX);
        assert_eq!(lifetime_from_units(15), Duration::from_secs(60));
    }

    #[test]
    fn invalid_care_of_addresses_are_recognised() {
        for text in ["::", "::1", "ff02::1", "fe80::1", "::ffff:192.0.2.1"] {
            assert!(!is_unicast_routable(text.parse().expect("address")), "{text}");
        }
        assert!(is_unicast_routable("2001:db8::1".parse().expect("address")));
        assert!(is_unicast_routable("fd00::1".parse().expect("address")));
    }
}
