//! Connects path MTU discovery to the desired state, the forwarder and the wire.

use carnet_base::{LinkMessage, Time, WallTime};
use carnet_wire::icmpv6::{self, ErrorMessage};
use carnet_wire::ipv6::{Header, MIN_MTU, protocol};
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::{Nemo, Scope};
use crate::drop_reason::TunnelDrop;
use crate::forwarding::desired::{Entry, TunnelEnd};
use crate::forwarding::forwarder::ErrorOutcome;
use crate::forwarding::path_mtu::{Ends, Order};
use crate::forwarding::{nesting_entries, node_entries, router_entries};

impl Nemo {
    /// Recomputes the desired entries of the mobile router.
    pub(super) fn forward_router(&mut self, now: Time) {
        if let Some(router) = &self.router {
            let assigned = router.lan_addresses();
            let mut entries = router_entries(
                &router.machine,
                router.agents.machines(),
                &router.lan,
                &assigned,
                &self.virtual_interfaces,
                &self.interfaces,
            );
            entries.extend(nesting_entries(&router.nesting, &router.machine));
            if let Some(neighbours) = &mut self.neighbours {
                let is_there = router.machine.paths().iter().any(|path| path.transmit);
                neighbours.machine.handle_tunnel(now, is_there);
            }
            self.want(now, Scope::MobileRouter, entries);
        }
        self.take_changes();
    }

    /// Recomputes the desired entries of one node of the home agent.
    pub(super) fn forward_node(&mut self, now: Time, home_address: Ipv6Addr) {
        self.want_node(now, home_address);
        self.take_changes();
    }

    pub(super) fn want_node(&mut self, now: Time, home_address: Ipv6Addr) {
        if let Some(agent) = &self.agent
            && let Some(node) = agent.machine.node(home_address)
        {
            let entries = node_entries(&agent.machine, node);
            let transmits = |entry: &Entry| matches!(entry, Entry::Tunnel(tunnel) if tunnel.transmit);
            let bindings = agent.machine.bindings();
            if bindings.is_bound(home_address) && !entries.iter().any(transmits) {
                let prefixes = bindings.prefixes(home_address).iter().copied();
                self.forwarder.hold_back(home_address, prefixes.chain([home_address.into()]));
            } else {
                self.forwarder.hold_back(home_address, []);
            }
            self.want(now, Scope::Node(home_address), entries);
        }
    }

    /// Replaces the desired entries of `scope`, and gives each tunnel its effective MTU.
    pub(super) fn want(&mut self, now: Time, scope: Scope, mut entries: Vec<Entry>) {
        for entry in &mut entries {
            if let Entry::Tunnel(tunnel) = entry {
                let mtu = self.path_mtus.admit(now, tunnel);
                Arc::make_mut(tunnel).mtu = mtu;
            }
        }
        self.desired.replace(scope, entries);
    }

    /// Executes the outputs of path MTU discovery.
    pub(super) fn follow_path_mtus(&mut self, now: Time) {
        while let Some(ends) = self.forwarder.poll_used() {
            self.path_mtus.handle_traffic(now, ends);
        }
        self.path_mtus.send(now);
        while let Some(order) = self.path_mtus.poll_order() {
            match order {
                Order::Changed(ends) => match self.path_mtus.users(ends) {
                    Some((TunnelEnd::MobileRouter, _)) => self.forward_router(now),
                    Some((TunnelEnd::Direct, _)) => self.forward_direct(now),
                    Some((TunnelEnd::HomeAgent, home_addresses)) => {
                        for home_address in home_addresses {
                            self.forward_node(now, home_address);
                        }
                    }
                    None => {}
                },
                Order::Probe(ends, packet) => self.forwarder.send(ends, &packet),
                Order::Watch(ends) => self.forwarder.watch(ends),
            }
            self.path_mtus.send(now);
        }
    }

    /// Handles an ICMPv6 error about a packet that `local` sent. Returns whether the error was about a
    /// tunnel.
    pub(super) fn handle_error(
        &mut self,
        now: Time,
        wall: WallTime,
        source: Ipv6Addr,
        local: Ipv6Addr,
        error: ErrorMessage,
        invoking: &[u8],
    ) -> bool {
        match self.forwarder.handle_error(now, source, local, error, invoking) {
            ErrorOutcome::Foreign => return false,
            ErrorOutcome::Handled => {}
            ErrorOutcome::PathMtu(ends, mtu) => self.path_mtus.handle_too_big(now, ends, mtu),
            ErrorOutcome::Broken(ends) => self.direct_is_broken(now, ends),
            ErrorOutcome::Refused(_) => {
                if let Some(router) = &mut self.router
                    && let Err(reason) = router.machine.handle_tunnel_error(now, wall, source)
                {
                    *self.dropped.entry(reason).or_default() += 1;
                }
            }
        }
        true
    }

    /// Returns whether an inner packet out of the tunnel between `ends` answers a probe of the tunnel's MTU.
    /// The same answer may complete the test of a care-of address.
    pub(super) fn is_probe_answer(&mut self, now: Time, ends: Ends, inner: &[u8]) -> bool {
        // Most packets are neither ICMPv6 nor fragments, so this check returns early.
        if !matches!(inner.get(6), Some(&(protocol::ICMPV6 | protocol::FRAGMENT))) {
            return false;
        }
        let Ok(header) = Header::parse(inner) else { return false };
        // The function does not inspect packets for hosts behind this station.
        let own = |agent: &super::Agent| agent.machine.config().address;
        let speaks = self.agent.as_ref().is_some_and(|agent| own(agent) == header.destination)
            || self.router.as_ref().is_some_and(|r| r.machine.config().home_address == header.destination);
        if !speaks {
            return false;
        }
        let test = self.agent.as_mut().filter(|agent| own(agent) == header.destination);
        test.is_some_and(|agent| agent.machine.handle_care_of_answer(inner))
            || self.path_mtus.handle_inner(now, ends, inner)
    }

    /// Handles an Echo Reply to a care-of address. A home agent may answer path MTU probes like a
    /// correspondent node with a binding. The answer then has a type 2 routing header (RFC 6275 9.3.2) and
    /// comes outside the tunnel. RFC 8899 requires only that the answer identifies the probe; its token also
    /// identifies the path.
    pub(super) fn handle_echo_reply(&mut self, now: Time, reply: &LinkMessage) {
        let LinkMessage { source, destination, message, .. } = reply;
        if icmpv6::verify(*source, *destination, message).is_ok() {
            let packet = icmpv6::packet(*source, *destination, reply.hop_limit, message.clone());
            for ends in self.path_mtus.towards(*source) {
                if self.is_probe_answer(now, ends, &packet) {
                    return;
                }
            }
        }
        let _counted = self.forwarder.drop(TunnelDrop::UpperLayer);
    }

    /// Sends an answer of the home agent in fragments if it exceeds the MTU of its tunnel. Returns `false`
    /// otherwise; the caller then sends it as usual.
    pub(super) fn answer_in_fragments(&mut self, reply: &[u8]) -> bool {
        let Ok(header) = Header::parse(reply) else { return false };
        let Some((ends, mtu)) = self.forwarder.tunnel_towards(header.destination) else { return false };
        // A packet of up to 1280 octets passes in outer fragments (RFC 2473 7.1 (b)).
        let elsewhere = ends.0.ipv6().is_some_and(|local| local != header.source);
        if reply.len() <= mtu.max(MIN_MTU) || elsewhere {
            return false;
        }
        self.forwarder.send_in_fragments(ends, mtu, reply);
        true
    }
}
