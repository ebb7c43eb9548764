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

use super::{Forwarder, TunnelDrop, Verdict, decapsulated_traffic_class, strip};
use crate::forwarding::inner;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::Ends;

impl Forwarder {
    /// Takes the inner packet, at `offset`, out of a packet that arrived between `ends`, and sends it into
    /// the tunnel of its node. `is_peer` says whether an address is another home agent's.
    pub fn relay(
        &mut self,
        now: Time,
        ends: Ends,
        traffic_class: u8,
        offset: usize,
        buffer: &mut PacketBuffer,
        is_peer: impl Fn(Endpoint) -> bool,
    ) -> Verdict {
        let octets = buffer.as_slice().get(offset..).unwrap_or_default();
        let Ok((inner, length)) = inner::parse(octets) else {
            return self.drop(TunnelDrop::Malformed);
        };
        if !inner::is_routable(&inner, octets) {
            return self.drop(TunnelDrop::Scope);
        }
        let further = match self.tunnel_towards(inner.destination) {
            Some((towards, _)) if towards.1 != ends.1 => is_peer(towards.1),
            None if self.held_back.lookup(inner.destination).is_some() => {
                return self.drop(TunnelDrop::Untested);
            }
            _ => return self.drop(TunnelDrop::InnerDestination),
        };
        let hop_limit = inner.hop_limit.saturating_sub(u8::from(further));
        if hop_limit == 0 {
            return self.drop(TunnelDrop::Nesting);
        }
        let Some(traffic_class) = decapsulated_traffic_class(traffic_class, inner.traffic_class) else {
            return self.drop(TunnelDrop::Congestion);
        };
        strip(buffer, offset, length, &inner, traffic_class);
        let header = Header { traffic_class, ..inner };
        inner::set_hop_limit(buffer.as_mut_slice(), &header, hop_limit);
        let header = Header { hop_limit, ..header };
        self.counters.relayed += 1;
        self.encapsulate(now, &header, buffer)
    }
}
