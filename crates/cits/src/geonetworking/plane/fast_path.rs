//! The messages of the GeoNetworking router to its fast path.

use carnet_geonet::Router;
use carnet_geonet::acceleration as routed;
use carnet_geonet::ipv6_adaptation::Ipv6Adaptation;

use crate::geonetworking::acceleration::{Accelerate, ForwardingPath, GeneralState, OwnPacketPath};

/// Completes the router's message to the fast path with values of the adaptation sublayer. `may_deliver` says
/// whether the fast path may deliver packets to the host.
pub(super) fn complete_acceleration(
    told: routed::FastPathUpdate,
    router: &Router,
    ipv6: Option<&Ipv6Adaptation>,
    may_deliver: bool,
) -> Accelerate {
    match told {
        routed::FastPathUpdate::Position(vector) => Accelerate::General(GeneralState {
            vector: vector.to_octets().to_vec(),
            delivers: may_deliver && ipv6.is_some_and(|ipv6| ipv6.links().count() == 1),
            mtu: ipv6.map_or(0, Ipv6Adaptation::mtu),
            duplicate_packet_list_length: router.mib().duplicate_packet_list_length as u32,
        }),
        routed::FastPathUpdate::Way(way) => Accelerate::Way(OwnPacketPath {
            destination: way.destination,
            next_hop: way.next_hop,
            headers: way.guc_headers.to_vec(),
            until: way.valid_until,
        }),
        routed::FastPathUpdate::NoOwnPacketPath(destination) => Accelerate::NoWay(destination),
        routed::FastPathUpdate::Onward(onward) => Accelerate::Onward(ForwardingPath {
            destination: onward.destination,
            next_hop: onward.next_hop,
            place: onward.required_position,
            known: onward.destination_vector.map(|known| known.to_octets().to_vec()).unwrap_or_default(),
            until: onward.valid_until,
        }),
        routed::FastPathUpdate::NoForwardingPath(destination) => Accelerate::NoOnward(destination),
        routed::FastPathUpdate::Source(station, sequences) => Accelerate::Source { station, sequences },
        routed::FastPathUpdate::NoSource(station) => Accelerate::NoSource(station),
    }
}
