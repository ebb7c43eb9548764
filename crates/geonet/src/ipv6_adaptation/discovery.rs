//! Neighbor Solicitations and listener reports of the host that the sublayer answers or drops itself.
//!
//! If the interface identifier of a solicited address names a station, the sublayer answers with that
//! station's MAC address (as a proxy, RFC 4861 7.2.4). The sublayer answers first solicitations and Neighbor
//! Unreachability Detection (RFC 4861 7.3), because reachability is GeoNetworking's task. It does not answer
//! duplicate address detection (RFC 4862 5.4) for an address that names this station. GeoNetworking ensures
//! that no other station has this address (EN 302 636-4-1 10.2.1.5).
//!
//! Listener reports (RFC 3810) about groups of link scope serve snooping switches, which do not exist on the
//! air. Other reports go to the routers of the link. A report can say that the host has left the
//! solicited-node group of an address. After a pseudonym change such a report would reveal three octets of
//! the old address. So the sublayer drops the whole report; the host repeats its other records later.

use std::net::Ipv6Addr;

use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mld::{GroupRecord, GroupRecordType, MldMessage};
use carnet_wire::nd::{self, NeighborAdvertisement, NeighborSolicitation};

use super::addresses::{self, ANYCAST_MAC};
use super::{Ipv6Adaptation, Ipv6Drop, Output};

const NEIGHBOR_SOLICITATION: u8 = 135;

impl Ipv6Adaptation {
    /// Answers a solicitation of the host, or drops a packet that no other station needs. Returns whether it
    /// did one of these; if not, the caller sends the packet.
    ///
    /// # Errors
    ///
    /// The Neighbor Solicitation is malformed.
    pub(super) fn answer_neighbor_discovery_locally(
        &mut self,
        at: usize,
        header: &Header,
        packet: &[u8],
    ) -> Result<bool, Ipv6Drop> {
        match header.next_header {
            protocol::ICMPV6 => {
                let message = packet.get(HEADER_LEN..).unwrap_or_default();
                if message.first() != Some(&NEIGHBOR_SOLICITATION) {
                    return Ok(false);
                }
                nd::check_header(header, message).map_err(|_| Ipv6Drop::Malformed)?;
                let solicitation = NeighborSolicitation::parse(message).map_err(|_| Ipv6Drop::Malformed)?;
                Ok(self.answer_solicitation(at, header, solicitation.target))
            }
            protocol::HOP_BY_HOP if header.destination.is_multicast() => Ok(is_unneeded_mld_report(packet)),
            _ => Ok(false),
        }
    }

    fn answer_solicitation(&mut self, at: usize, header: &Header, target: Ipv6Addr) -> bool {
        let station = match addresses::mac_of_address(target) {
            Some(own) if own == self.address.mid() => return true,
            _ if header.source.is_unspecified() => return false,
            Some(station) => station,
            None if self.area_of_anycast(at, target).is_some() => ANYCAST_MAC,
            None => return false,
        };
        let Some(link) = self.links.get(at) else { return false };
        let advertisement = NeighborAdvertisement {
            target,
            // The R flag must be 1 for a router: with 0, the host would remove it from its default routers
            // (RFC 4861 7.2.5).
            router: self.routers.contains(&station),
            solicited: true,
            override_: true,
            target_link_address: Some(station),
        };
        self.outputs.push_back(Output::Frame {
            link: link.id,
            destination: self.address.mid(),
            source: station,
            packet: icmpv6::emit_packet(target, header.source, nd::HOP_LIMIT, advertisement.emit()),
        });
        true
    }
}

/// Returns whether a packet is a listener report that must not be sent. All its groups have at most link
/// scope, or its source is an old address of the station.
fn is_unneeded_mld_report(packet: &[u8]) -> bool {
    let Some(Ok((_, MldMessage::Report(records)))) = MldMessage::parse_packet(packet) else { return false };
    let of_the_link =
        |record: GroupRecord<'_>| record.group.is_multicast() && record.group.octets()[1] & 0x0f <= 2;
    let of_an_address = |record: GroupRecord<'_>| {
        let left = record.record_type == Some(GroupRecordType::ToInclude) && record.sources.is_empty();
        left && nd::solicited_node_address(record.group) == record.group
    };
    records.iter().all(of_the_link) || records.iter().any(of_an_address)
}
