//! Direct routes to other mobile networks: connects [`carnet_mobility::direct`] to the tunnels, the desired
//! state and the wire.

use std::net::Ipv6Addr;

use carnet_base::{DropReason, Rng, Time};
use carnet_mobility::SessionPeer;
use carnet_mobility::direct::{DirectConfig, DirectRouteState, Output as Wish, PublicKey};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{DirectRoute, MobilityHeader};
use ipnet::Ipv6Net;

use super::data_path::SlowDataPath;
use super::{RouterRole, StateOwner, StationRoles};
use crate::forwarding::desired::TunnelEnd;
use crate::forwarding::direct_entries;
use crate::forwarding::forwarder::{Forwarder, ForwardingVerdict};
use crate::forwarding::path_mtu::TunnelEnds;
use crate::output::Output;

/// Direct routes to other mobile networks, if configured.
#[derive(Debug, Default)]
pub(crate) struct DirectRoutes {
    pub(crate) state_machine: Option<DirectRouteState>,
    /// The newest public key of this station; `None` until the platform has named it.
    own_key: Option<PublicKey>,
}

/// Settings of direct routes.
#[derive(Debug, Default)]
pub(super) struct DirectSettings {
    /// Networks whose mobile networks may get direct routes.
    pub(super) networks: Vec<Ipv6Net>,
    /// Whether direct routes carry packets only in encrypted sessions.
    pub(super) requires_sessions: bool,
}

impl DirectRoutes {
    /// Starts, ends or changes the use of direct routes.
    pub(super) fn configure(
        &mut self,
        now: Time,
        settings: DirectSettings,
        roles: &StationRoles,
        data_path: &mut SlowDataPath,
        rng: &mut Rng,
    ) {
        let router = roles.router_role.as_ref().map(|router| router.state_machine.config());
        // A station that is also a home agent has no direct routes, because the home agent's packets for its
        // nodes have tunnels of their own.
        let DirectSettings { networks, requires_sessions } = settings;
        let router = router.filter(|_| !networks.is_empty() && roles.agent_role.is_none());
        let wanted = router.map(|router| DirectConfig {
            prefixes: router.prefixes.clone(),
            home_address: router.home_address,
            home_prefix: router.home_prefix,
            mobile_networks: networks,
            requires_sessions,
        });
        let kept = self.state_machine.as_ref().map(DirectRouteState::config) == wanted.as_ref();
        if !kept {
            if let Some(old) = &mut self.state_machine {
                // The shutdown informs the other routers, which would otherwise wait for a timeout.
                old.handle_shutdown(now);
                let last = std::iter::from_fn(|| old.poll_output());
                data_path.outputs.extend(last.filter_map(to_output));
            }
            self.state_machine = wanted.map(|config| DirectRouteState::new(config, rng.fork_generator()));
            if let (Some(direct), Some(key)) = (&mut self.state_machine, self.own_key) {
                direct.handle_own_key(now, key);
            }
        }
        match &self.state_machine {
            Some(direct) => {
                data_path.path_mtus.set_home_agent(TunnelEnd::Direct, direct.config().home_address)
            }
            None => data_path.desired_state.replace_scope(StateOwner::Direct, []),
        }
    }

    /// Sets the newest public key of this station.
    pub(super) fn handle_own_key(&mut self, now: Time, key: PublicKey) {
        self.own_key = Some(key);
        if let Some(direct) = &mut self.state_machine {
            direct.handle_own_key(now, key);
        }
    }

    /// Recomputes the desired entries of direct routes.
    pub(super) fn update_desired_routes(
        &self,
        now: Time,
        router: Option<&RouterRole>,
        data_path: &mut SlowDataPath,
    ) {
        if let (Some(direct), Some(router)) = (&self.state_machine, router) {
            // Leave out tunnels to a home agent, whose address is never a care-of address.
            let tunnels = direct.tunnels().into_iter().filter(|tunnel| !router.is_home_agent(tunnel.remote));
            let entries = direct_entries(&router.state_machine, direct.config().requires_sessions, tunnels);
            data_path.set_scope_entries(now, StateOwner::Direct, entries);
        }
        data_path.apply_changed_entries();
    }

    /// Passes the mobile router's care-of addresses to the direct routes, and executes the outputs of the
    /// direct routes.
    pub(super) fn update_care_of_addresses(
        &mut self,
        now: Time,
        router: Option<&RouterRole>,
        data_path: &mut SlowDataPath,
    ) {
        let (Some(direct), Some(router)) = (&mut self.state_machine, router) else { return };
        let machine = &router.state_machine;
        let paths = machine.paths();
        let is_attached = |address: Ipv6Addr| {
            let mut uplinks = machine.uplinks().iter();
            uplinks.any(|uplink| uplink.care_of_addresses().contains(&address.into()))
        };
        let mut addresses: Vec<Ipv6Addr> = Vec::new();
        // Put the address of the preferred path first. Paths that only receive count, too.
        for address in paths.iter().filter_map(|path| path.local.ipv6()).filter(|it| is_attached(*it)) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let has_tunnel = machine.may_advertise() && paths.iter().any(|path| path.may_transmit);
        if machine.is_at_home() || !machine.may_advertise() {
            addresses.clear();
        }
        direct.handle_care_of_addresses(now, addresses, has_tunnel);
        let mut is_changed = false;
        while let Some(wish) = self.state_machine.as_mut().and_then(DirectRouteState::poll_output) {
            match wish {
                Wish::ThroughTunnel(packet) => {
                    if let Some(path) = paths.iter().find(|path| path.may_transmit) {
                        data_path.forwarder.send_own_packet((path.local, path.remote), &packet);
                    }
                }
                Wish::Routes => is_changed = true,
                Wish::Straight(_) | Wish::InSession { .. } | Wish::SessionKey { .. } | Wish::Event(_) => {
                    // First change the data path, then send the message: the other router may send packets as
                    // soon as it has received the message.
                    if !matches!(wish, Wish::Event(_)) && std::mem::take(&mut is_changed) {
                        self.update_desired_routes(now, Some(router), data_path);
                    }
                    data_path.outputs.extend(to_output(wish));
                }
            }
        }
        // The rules must be installed before the first direct route.
        if is_changed || data_path.desired_state.is_empty(&StateOwner::Direct) {
            self.update_desired_routes(now, Some(router), data_path);
        }
    }

    /// Ends a direct route. An error message that is provably about one of our packets has shown that the
    /// route is broken.
    pub(super) fn handle_broken_route(&mut self, now: Time, ends: TunnelEnds) {
        if let (Some(direct), (Some(local), Some(remote))) =
            (&mut self.state_machine, (ends.0.ipv6(), ends.1.ipv6()))
        {
            direct.handle_unreachable_peer(now, local, remote);
        }
    }

    /// Returns whether a packet from the TUN device came through a direct route's tunnel.
    pub(super) fn came_through_direct_tunnel(&self, header: &Header, forwarder: &Forwarder) -> bool {
        let ends = (header.destination.into(), header.source.into());
        self.state_machine.is_some()
            && header.next_header != protocol::MOBILITY
            && forwarder.tunnel_end_of(ends) == Some(TunnelEnd::Direct)
    }

    /// Returns whether a packet from the tunnel device is a message to a care-of address.
    pub(super) fn is_direct_route_message(&self, header: &Header, router: Option<&RouterRole>) -> bool {
        header.next_header == protocol::MOBILITY
            && self.state_machine.is_some()
            && router.is_some_and(|router| {
                let mut uplinks = router.state_machine.uplinks().iter();
                uplinks.any(|uplink| uplink.care_of_addresses().contains(&header.destination.into()))
            })
    }

    /// Handles a message about direct routes to a care-of address. It came through the encrypted session of
    /// this key; `None` for a message in the clear.
    pub(super) fn handle_message(
        &mut self,
        now: Time,
        session: Option<SessionPeer>,
        packet: &[u8],
    ) -> ForwardingVerdict {
        let Some(direct) = &mut self.state_machine else { return ForwardingVerdict::Consumed };
        let result = match parse_direct_route_packet(packet) {
            Some((header, Some(message))) => {
                direct.handle_direct_message(now, session, header.source, header.destination, &message)
            }
            _ => {
                direct.handle_malformed_message();
                return ForwardingVerdict::Dropped("malformed");
            }
        };
        match result {
            Ok(()) => ForwardingVerdict::Consumed,
            Err(reason) => ForwardingVerdict::Dropped(reason.name()),
        }
    }

    /// Handles a packet from the tunnel to the home agent if it is a test of a direct route. Returns whether
    /// it was one.
    pub(super) fn handle_prefix_test(
        &mut self,
        now: Time,
        ends: TunnelEnds,
        inner: &[u8],
        forwarder: &Forwarder,
    ) -> bool {
        // Most packets are no Mobility Header messages, so this check returns early.
        if inner.get(6) != Some(&protocol::MOBILITY) {
            return false;
        }
        let Some(direct) = &mut self.state_machine else { return false };
        if forwarder.tunnel_end_of(ends) != Some(TunnelEnd::MobileRouter) {
            return false;
        }
        let Some((header, Some(message))) = parse_direct_route_packet(inner) else { return false };
        // Ignore the result: the direct routes count the message, and hosts on board do not need it.
        let _counted = direct.handle_tunnelled_message(now, header.source, header.destination, &message);
        true
    }
}

/// Returns the output to the platform for a wish of the direct routes; `None` for a wish that concerns the
/// tunnels of this station.
fn to_output(wish: Wish) -> Option<Output> {
    match wish {
        Wish::Straight(packet) => Some(Output::Packet(packet)),
        Wish::InSession { session, local, remote, packet } => Some(Output::Encapsulated {
            local: local.into(),
            remote: remote.into(),
            packet,
            may_fragment: false,
            session: Some(session),
        }),
        Wish::SessionKey { session, public_key: Some(key) } => {
            Some(Output::AcceptSession { session, public_key: key.to_vec() })
        }
        Wish::SessionKey { session, public_key: None } => Some(Output::EndSession(session)),
        Wish::Event(event) => Some(Output::Event(event)),
        Wish::ThroughTunnel(_) | Wish::Routes => None,
    }
}

/// Returns a packet's IPv6 header, and its message if it is about direct routes; `None` if the Mobility
/// Header is invalid.
fn parse_direct_route_packet(packet: &[u8]) -> Option<(Header, Option<DirectRoute>)> {
    let header = Header::parse(packet).ok()?;
    let octets = packet.get(HEADER_LEN..)?;
    let mobility = MobilityHeader::parse_verified(octets, header.source, header.destination).ok()?;
    Some((header, DirectRoute::parse(&mobility).ok()))
}
