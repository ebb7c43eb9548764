//! Packets that another home agent relays to this one, for a node that has moved here from there.
//!
//! The other home agent puts them into a tunnel to this one as if it were the node's care-of address. Their
//! sources are arbitrary, like those of packets from the Internet; their destinations have to be of a node
//! that has a tunnel here. That tunnel may lead to a third home agent, where the node has gone since, but not
//! back to the sender. Two home agents that assign the node to each other would pass the packet to and fro.
//! Between more of them it costs a hop each time, as between any routers.

use carnet_base::{Endpoint, Time};
use carnet_wire::ipv6::{HEADER_LEN, Header, is_unicast_routable};

use super::{Forwarder, TunnelDrop, Verdict, decapsulated_traffic_class, strip};
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::Ends;

impl Forwarder {
    /// Takes the inner packet at `offset` out of what came between `ends`, and puts it into the tunnel of the
    /// node that it is for. `is_peer` knows other home agents.
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
        let Ok((inner, payload)) = Header::parse_packet(octets) else {
            return self.drop(TunnelDrop::Malformed);
        };
        if !is_unicast_routable(inner.source) || !is_unicast_routable(inner.destination) {
            return self.drop(TunnelDrop::Scope);
        }
        let length = HEADER_LEN + payload.len();
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
        let header = Header { traffic_class, hop_limit, ..inner };
        if let Some(first) = buffer.as_mut_slice().get_mut(..HEADER_LEN) {
            first.copy_from_slice(&header.emit());
        }
        self.counters.relayed += 1;
        self.encapsulate(now, &header, buffer)
    }
}
