//! Passes each input of the platform to the machines that it concerns.

use std::net::Ipv6Addr;

use carnet_base::{Interface, LinkMessage, Time, WallTime};
use carnet_mobility::mobile_router::{Octets, PathTraffic, PortalProbe};
use carnet_wire::icmpv6;

use super::Nemo;
use crate::forwarding::path_mtu::Ends;
use crate::input::{InRange, TunnelTraffic};

/// Name in the message counters for a Home Agent Address Discovery Reply (ICMPv6).
const DISCOVERY_REPLY: &str = "home_agent_discovery_reply";

impl Nemo {
    /// Runs the timers that are due, without those that need the stations in radio range.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_timeout(now);
            if let Some(advertiser) = &mut agent.advertiser {
                advertiser.handle_timeout(now);
            }
        }
        let traffic = self.path_traffic();
        if let Some(router) = &mut self.router {
            router.machine.handle_traffic(now, traffic);
            router.machine.handle_timeout(now, wall);
            router.nesting.handle_timeout(now);
            router.agents.handle_timeout(now, wall);
            for advertiser in &mut router.advertisers {
                advertiser.handle_timeout(now);
            }
        }
        if let Some(direct) = &mut self.direct {
            direct.handle_timeout(now);
        }
        self.path_mtus.handle_timeout(now);
    }

    /// Returns the packet counts of each uplink of the mobile router, the sum of slow path and fast path.
    fn path_traffic(&self) -> Vec<(usize, PathTraffic)> {
        let Some(router) = &self.router else { return Vec::new() };
        let mut traffic = vec![PathTraffic::default(); router.machine.uplinks().len()];
        for path in router.machine.paths() {
            let slow = self.forwarder.traffic((path.local, path.remote));
            let fast = self
                .fast_traffic
                .iter()
                .filter(|fast| (fast.local, fast.remote) == (path.local, path.remote));
            let (sent, received) =
                fast.fold((0, 0), |(sent, received), it| (sent + it.sent, received + it.received));
            if let Some(sum) = traffic.get_mut(path.uplink) {
                sum.sent += slow.packets_out + sent;
                sum.received += slow.packets_in + received;
            }
        }
        traffic.into_iter().enumerate().collect()
    }

    /// Handles the complete state of an interface.
    pub fn handle_interface(
        &mut self,
        now: Time,
        wall: WallTime,
        interface: Interface,
        in_range: InRange<'_>,
    ) {
        self.tell_interface(now, wall, &interface, in_range);
        self.interfaces.insert(interface.name.clone(), interface);
        self.forward_router(now);
    }

    pub(super) fn tell_interface(
        &mut self,
        now: Time,
        wall: WallTime,
        interface: &Interface,
        in_range: InRange<'_>,
    ) {
        let seen = self.seen_by_access(now, interface, in_range);
        let interface = seen.as_ref().unwrap_or(interface);
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_interface(interface, now);
            if let Some(advertiser) = &mut agent.advertiser {
                advertiser.handle_interface(now, interface);
            }
        }
        if let Some(router) = &mut self.router {
            for advertiser in &mut router.advertisers {
                advertiser.handle_interface(now, interface);
            }
            router.nesting.handle_interface(interface);
            router.machine.handle_interface(now, wall, interface);
            router.agents.handle_interface(now, wall, interface);
        }
    }

    /// Handles that an interface no longer exists.
    pub fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        self.interfaces.remove(name);
        if let Some(access) = self.access.as_mut().filter(|access| access.interface == name) {
            access.handle_gone();
        }
        if let Some(agent) = &mut self.agent {
            agent.machine.handle_interface_gone(name);
            if let Some(advertiser) = &mut agent.advertiser {
                advertiser.handle_interface_gone(name);
            }
        }
        if let Some(router) = &mut self.router {
            for advertiser in &mut router.advertisers {
                advertiser.handle_interface_gone(name);
            }
            router.nesting.handle_interface_gone(name);
            router.machine.handle_interface_gone(now, wall, name);
            router.agents.handle_interface_gone(now, wall, name);
        }
        self.forward_router(now);
    }

    /// Handles the signal strength of an uplink.
    ///
    /// # Errors
    /// Returns an error, in words for the operator, if the plane has no such uplink.
    pub fn handle_signal(
        &mut self,
        now: Time,
        wall: WallTime,
        interface: &str,
        dbm: i32,
    ) -> Result<(), String> {
        let Some(router) = &mut self.router else { return Err("this station has no uplinks".into()) };
        let found = router.machine.uplink_called(interface).map(|_| ());
        router.machine.handle_signal(now, wall, interface, Some(dbm));
        router.agents.handle_signal(now, wall, interface, Some(dbm));
        found
    }

    /// Handles whether the modem of an uplink roams; `None` if that is not known.
    pub fn handle_roaming(&mut self, now: Time, wall: WallTime, interface: &str, roaming: Option<bool>) {
        if let Some(router) = &mut self.router {
            router.machine.handle_roaming(now, wall, interface, roaming);
            router.agents.handle_roaming(now, wall, interface, roaming);
        }
    }

    /// Handles the result of a request that [`crate::Output::ProbePortal`] demanded.
    pub fn handle_portal_probe(&mut self, now: Time, wall: WallTime, interface: &str, probe: &PortalProbe) {
        if let Some(router) = &mut self.router {
            router.machine.handle_portal_probe(now, wall, interface, probe);
            router.agents.handle_portal_probe(now, wall, interface, probe);
        }
    }

    /// Handles the counters of an uplink's interface.
    pub fn handle_octets(&mut self, now: Time, wall: WallTime, interface: &str, octets: Octets) {
        if let Some(router) = &mut self.router {
            router.machine.handle_octets(now, wall, interface, octets);
            router.agents.handle_octets(now, wall, interface, octets);
        }
    }

    /// Notes that a fast path has sent packets into a tunnel since its last report.
    pub fn handle_tunnel_used(&mut self, now: Time, (local, remote): Ends) {
        self.path_mtus.handle_traffic(now, (local, remote));
        if let (Some(direct), Some(remote)) = (&mut self.direct, remote.ipv6()) {
            direct.handle_tunnel_used(now, remote);
        }
    }

    /// Stores the packet counts of a fast path.
    pub fn handle_tunnel_traffic(&mut self, traffic: Vec<TunnelTraffic>) {
        self.fast_traffic = traffic;
    }

    /// Handles destinations of packets that a fast path has sent into the tunnel to the home agent.
    pub fn handle_destinations(&mut self, now: Time, destinations: Vec<Ipv6Addr>) {
        if let Some(direct) = &mut self.direct {
            destinations.into_iter().for_each(|destination| direct.handle_use(now, destination));
        }
    }

    /// Handles an ICMP message from the path (RFC 1191), which proves nothing.
    pub fn handle_datagram_too_big(&mut self, now: Time, ends: Ends, mtu: u32) {
        self.path_mtus.handle_hint(now, ends, mtu);
    }

    /// Handles an ICMPv6 message received on a link: Neighbor Discovery, or an error about a tunnel packet.
    pub fn handle_link_message(&mut self, now: Time, wall: WallTime, message: &LinkMessage) {
        if message.message.first().is_some_and(|kind| *kind < icmpv6::types::ECHO_REQUEST) {
            // The message may be an error about a packet that was sent from a care-of address.
            if icmpv6::verify(message.source, message.destination, &message.message).is_ok()
                && let Ok((error, invoking)) = icmpv6::parse_error(&message.message)
            {
                self.handle_error(now, wall, message.source, message.destination, error, invoking);
            }
            return;
        }
        if message.message.first() == Some(&icmpv6::types::ECHO_REPLY) {
            self.handle_echo_reply(now, message);
            return;
        }
        let mut results = Vec::new();
        if message.message.first() == Some(&icmpv6::types::DHAAD_REPLY) {
            *self.received.entry(DISCOVERY_REPLY).or_default() += 1;
        }
        if let Some(agent) = &mut self.agent {
            results.push(agent.machine.handle_link_message(now, message));
            if let Some(advertiser) = &mut agent.advertiser {
                results.push(advertiser.handle_link_message(now, message));
            }
        }
        if let Some(router) = &mut self.router {
            results.push(router.machine.handle_link_message(now, wall, message));
            // Ignore the result: `Nesting` counts the messages that it rejects.
            let _counted = router.nesting.handle_link_message(now, message, &router.machine);
            results.push(router.agents.handle_link_message(now, wall, &router.machine, message));
            for advertiser in &mut router.advertisers {
                results.push(advertiser.handle_link_message(now, message));
            }
        }
        for reason in results.into_iter().filter_map(Result::err) {
            *self.dropped.entry(reason).or_default() += 1;
        }
    }
}
