//! Packets that another home agent relays to this home agent, because their node was registered at that home
//! agent before.
//!
//! The other home agent tunnels such packets to this home agent, as if this home agent were the node at its
//! care-of address. The inner source may be any address, as for packets from the Internet. The inner
//! destination must belong to a node that has a tunnel here. That tunnel may lead to a third home agent, to
//! which the node has moved. The tunnel must not lead back to the sender: otherwise two home agents with
//! contradicting bindings would pass the packet to and fro. In a loop of three or more, each home agent
//! decrements the hop limit, as routers do.

use carnet_base::{Endpoint, Time};
use carnet_wire::ipv6::Header;

use super::{
    Forwarder, ForwardingVerdict, TunnelDropReason, decapsulated_traffic_class, strip_outer_headers,
};
use crate::forwarding::inner_packet;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::TunnelEnds;

impl Forwarder {
    /// Takes the inner packet, at `offset`, out of a packet that arrived between `ends`, and sends it into
    /// the tunnel of its node. `is_peer` says whether an address is another home agent's.
    pub fn relay_packet(
        &mut self,
        now: Time,
        ends: TunnelEnds,
        traffic_class: u8,
        offset: usize,
        buffer: &mut PacketBuffer,
        is_peer: impl Fn(Endpoint) -> bool,
    ) -> ForwardingVerdict {
        let octets = buffer.as_slice().get(offset..).unwrap_or_default();
        let Ok((inner, length)) = inner_packet::parse(octets) else {
            return self.count_drop(TunnelDropReason::Malformed);
        };
        if !inner_packet::is_routable(&inner, octets) {
            return self.count_drop(TunnelDropReason::Scope);
        }
        let further = match self.tunnel_towards(inner.destination) {
            Some((towards, _)) if towards.1 != ends.1 => is_peer(towards.1),
            None if self.networks_under_care_of_test.lookup(inner.destination).is_some() => {
                return self.count_drop(TunnelDropReason::Untested);
            }
            _ => return self.count_drop(TunnelDropReason::InnerDestination),
        };
        let hop_limit = inner.hop_limit.saturating_sub(u8::from(further));
        if hop_limit == 0 {
            return self.count_drop(TunnelDropReason::Nesting);
        }
        let Some(traffic_class) = decapsulated_traffic_class(traffic_class, inner.traffic_class) else {
            return self.count_drop(TunnelDropReason::Congestion);
        };
        strip_outer_headers(buffer, offset, length, &inner, traffic_class);
        let header = Header { traffic_class, ..inner };
        inner_packet::set_hop_limit(buffer.as_mut_slice(), &header, hop_limit);
        let header = Header { hop_limit, ..header };
        self.counters.relayed_packets += 1;
        self.encapsulate(now, &header, buffer)
    }
}
