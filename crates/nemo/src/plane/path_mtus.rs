//! Connects path MTU discovery to the desired state, the forwarder and the wire.

use std::net::Ipv6Addr;
use std::sync::Arc;

use carnet_base::{LinkMessage, Time};
use carnet_mobility::HomeAgent;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, MIN_MTU, protocol};

use super::data_path::SlowDataPath;
use super::{HomeAgentRole, StateOwner, StationRoles};
use crate::drop_reason::TunnelDropReason;
use crate::forwarding::desired::ForwardingEntry;
use crate::forwarding::mobile_router_entries;
use crate::forwarding::path_mtu::{PathMtus, TunnelEnds};

impl SlowDataPath {
    /// Replaces the desired entries of one node of the home agent.
    pub(super) fn set_binding_entries(&mut self, now: Time, agent: &HomeAgent, home_address: Ipv6Addr) {
        let Some(node) = agent.node(home_address) else { return };
        let entries = mobile_router_entries(agent, node);
        let transmits =
            |entry: &ForwardingEntry| matches!(entry, ForwardingEntry::Tunnel(tunnel) if tunnel.transmit);
        let bindings = agent.bindings();
        if bindings.is_bound(home_address) && !entries.iter().any(transmits) {
            let prefixes = bindings.prefixes(home_address).iter().copied();
            self.forwarder
                .set_networks_under_care_of_test(home_address, prefixes.chain([home_address.into()]));
        } else {
            self.forwarder.set_networks_under_care_of_test(home_address, []);
        }
        self.set_scope_entries(now, StateOwner::Node(home_address), entries);
    }

    /// Replaces the desired entries of `scope`, and gives each tunnel its effective MTU.
    pub(super) fn set_scope_entries(
        &mut self,
        now: Time,
        scope: StateOwner,
        mut entries: Vec<ForwardingEntry>,
    ) {
        for entry in &mut entries {
            if let ForwardingEntry::Tunnel(tunnel) = entry {
                let mtu = self.path_mtus.add_path(now, tunnel);
                Arc::make_mut(tunnel).mtu = mtu;
            }
        }
        self.desired_state.replace_scope(scope, entries);
    }

    /// Sends an answer of the home agent in fragments if it exceeds the MTU of its tunnel. Returns `false`
    /// otherwise; the caller then sends it as usual.
    pub(super) fn send_echo_reply_in_fragments(&mut self, reply: &[u8]) -> bool {
        let Ok(header) = Header::parse(reply) else { return false };
        let Some((ends, mtu)) = self.forwarder.tunnel_towards(header.destination) else { return false };
        // A packet of up to 1280 octets needs no fragments here, because the forwarder fragments its outer
        // packet (RFC 2473 7.1 (b)).
        let elsewhere = ends.0.ipv6().is_some_and(|local| local != header.source);
        if reply.len() <= mtu.max(MIN_MTU) || elsewhere {
            return false;
        }
        self.forwarder.send_in_fragments(ends, mtu, reply);
        true
    }
}

/// Returns whether an inner packet out of the tunnel between `ends` answers a probe of the tunnel's MTU.
/// The same answer may complete the test of a care-of address.
pub(super) fn is_probe_answer(
    roles: &mut StationRoles,
    path_mtus: &mut PathMtus,
    now: Time,
    ends: TunnelEnds,
    inner: &[u8],
) -> bool {
    // Most packets are neither ICMPv6 nor fragments, so this check returns early.
    if !matches!(inner.get(6), Some(&(protocol::ICMPV6 | protocol::FRAGMENT))) {
        return false;
    }
    let Ok(header) = Header::parse(inner) else { return false };
    // Inspect only packets for this station, not those for hosts behind it.
    let own = |agent: &HomeAgentRole| agent.state_machine.config().address;
    let speaks = roles.agent_role.as_ref().is_some_and(|agent| own(agent) == header.destination)
        || roles
            .router_role
            .as_ref()
            .is_some_and(|r| r.state_machine.config().home_address == header.destination);
    if !speaks {
        return false;
    }
    let test = roles.agent_role.as_mut().filter(|agent| own(agent) == header.destination);
    test.is_some_and(|agent| agent.state_machine.handle_care_of_test_answer(inner))
        || path_mtus.handle_inner_packet(now, ends, inner)
}

/// Handles an Echo Reply to a care-of address. A home agent may answer path MTU probes like a
/// correspondent node with a binding. The answer then has a type 2 routing header (RFC 6275 9.3.2) and
/// comes outside the tunnel. RFC 8899 requires only that the answer identifies the probe; its token also
/// identifies the path.
pub(super) fn handle_echo_reply(
    roles: &mut StationRoles,
    data_path: &mut SlowDataPath,
    now: Time,
    reply: &LinkMessage,
) {
    let LinkMessage { source, destination, message, .. } = reply;
    if icmpv6::verify_checksum(*source, *destination, message).is_ok() {
        let packet = icmpv6::emit_packet(*source, *destination, reply.hop_limit, message.clone());
        for ends in data_path.path_mtus.paths_towards(*source) {
            if is_probe_answer(roles, &mut data_path.path_mtus, now, ends, &packet) {
                return;
            }
        }
    }
    let _counted = data_path.forwarder.count_drop(TunnelDropReason::UpperLayer);
}
