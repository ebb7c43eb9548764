//! What the host asks of its neighbours, and what of that can be answered here.
//!
//! A Neighbor Solicitation for an address whose interface identifier names a station is answered with that station's
//! MAC address (RFC 4861 7.2.4 by proxy, as it were), be it the first question or the probe of an old answer
//! (RFC 4861 7.3): whether the station can be reached is GeoNetworking's business. One for the host's own such address
//! (RFC 4862 5.4) gets no answer, since GeoNetworking sees to it that nobody else has it (EN 302 636-4-1 10.2.1.5).
//!
//! Listener reports (RFC 3810) about groups of link scope are for switches that look into them, and there are none on
//! the air; other reports go to the routers of the link. One that tells in between that the host has left the group of an
//! address (solicited-node) would be sent by a new pseudonym, and has three octets of the one before: it stays here as well, and
//! so do those with it until they are repeated.

use std::net::Ipv6Addr;

use carnet_wire::icmpv6;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mld::{Message, Record, RecordType};
use carnet_wire::nd::{self, NeighborAdvertisement, NeighborSolicitation};

use super::addresses::{self, ANYCAST};
use super::{Adaptation, Ipv6Drop, Output};

const NEIGHBOR_SOLICITATION: u8 = 135;

impl Adaptation {
    /// Answers a packet of the host or drops it, if nobody else need see it.
    ///
    /// # Errors
    /// For a Neighbor Solicitation that is none.
    pub(super) fn settle(&mut self, at: usize, header: &Header, packet: &[u8]) -> Result<bool, Ipv6Drop> {
        match header.next_header {
            protocol::ICMPV6 => {
                let message = packet.get(HEADER_LEN..).unwrap_or_default();
                if message.first() != Some(&NEIGHBOR_SOLICITATION) {
                    return Ok(false);
                }
                nd::check_header(header, message).map_err(|_| Ipv6Drop::Malformed)?;
                let solicitation = NeighborSolicitation::parse(message).map_err(|_| Ipv6Drop::Malformed)?;
                Ok(self.solicited(at, header, solicitation.target))
            }
            protocol::HOP_BY_HOP if header.destination.is_multicast() => Ok(is_idle_report(packet)),
            _ => Ok(false),
        }
    }

    fn solicited(&mut self, at: usize, header: &Header, target: Ipv6Addr) -> bool {
        let station = match addresses::station_of(target) {
            Some(own) if own == self.address.mid() => return true,
            _ if header.source.is_unspecified() => return false,
            Some(station) => station,
            None if self.area_of_anycast(at, target).is_some() => ANYCAST,
            None => return false,
        };
        let Some(link) = self.links.get(at) else { return false };
        let advertisement = NeighborAdvertisement {
            target,
            // A host forgets a default router that says it is none (RFC 4861 7.2.5).
            router: self.routers.contains(&station),
            solicited: true,
            override_: true,
            target_link_address: Some(station),
        };
        self.outputs.push_back(Output::Frame {
            link: link.id,
            destination: self.address.mid(),
            source: station,
            packet: icmpv6::packet(target, header.source, nd::HOP_LIMIT, advertisement.emit()),
        });
        true
    }
}

/// Whether it is a listener report about groups of at most link scope, or tells of an address that the host had.
fn is_idle_report(packet: &[u8]) -> bool {
    let Some(Ok((_, Message::Report(records)))) = Message::parse_packet(packet) else { return false };
    let of_the_link =
        |record: Record<'_>| record.group.is_multicast() && record.group.octets()[1] & 0x0f <= 2;
    let of_an_address = |record: Record<'_>| {
        let left = record.record_type == Some(RecordType::ToInclude) && record.sources.is_empty();
        left && nd::solicited_node(record.group) == record.group
    };
    records.iter().all(of_the_link) || records.iter().any(of_an_address)
}
