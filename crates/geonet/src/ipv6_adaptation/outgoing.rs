//! From the host to GeoNetworking: requests for the packets that the host sends on a virtual interface.

use std::net::Ipv6Addr;

use carnet_base::Time;
use carnet_wire::geonet::{CommonNextHeader, GeoArea, GnAddress, HeaderType};
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::{HEADER_LEN, Header};

use super::addresses::{self, ANYCAST_MAC};
use super::fragments::{FRAGMENT_FORMAT_MAGIC, Fragments, OversizeOutcome, PayloadOutcome};
use super::links::{Ipv6Link, LinkKind};
use super::{Ipv6Adaptation, Ipv6Drop, LinkId, Output};
use crate::MacAddress;
use crate::io::{Delivery, Request, Transport};

/// EtherType of IPv6 (RFC 2464 3).
pub const ETHER_TYPE: u16 = 0x86dd;

/// A frame that the host has sent on a virtual interface.
#[derive(Debug, Clone, Copy)]
pub struct HostFrame<'a> {
    /// Destination MAC address.
    pub destination: MacAddress,
    /// Source MAC address.
    pub source: MacAddress,
    /// EtherType of the frame.
    pub ether_type: u16,
    /// Octets behind the EtherType, possibly with padding.
    pub payload: &'a [u8],
}

/// Result for a packet of the host.
#[derive(Debug)]
enum HostFrameOutcome<'a> {
    Request(Request<'a>),
    Settled,
    /// The sublayer fragments the packet, now or after the station has answered that it can reassemble.
    Cut,
}

impl Ipv6Adaptation {
    /// Converts a frame of the host into a request to the router. Returns `None` if the sublayer handled the
    /// frame itself; the caller then polls the outputs.
    ///
    /// # Errors
    ///
    /// The reason why the sublayer dropped the frame. If the packet is too large, the sublayer has answered
    /// with Packet Too Big.
    pub fn handle_host_frame<'a>(
        &mut self,
        now: Time,
        link: LinkId,
        frame: HostFrame<'a>,
    ) -> Result<Option<Request<'a>>, Ipv6Drop> {
        let result = self.outcome_of_host_frame(now, link, frame);
        match result {
            Ok(HostFrameOutcome::Request(_)) => self.counters.sent_packets += 1,
            Ok(HostFrameOutcome::Settled) => self.counters.locally_answered_packets += 1,
            // Do not count the packet as sent here: `poll_fragment` counts it when its fragments leave.
            Ok(HostFrameOutcome::Cut) => {}
            Err(reason) => self.count_drop(reason),
        }
        result.map(
            |outgoing| if let HostFrameOutcome::Request(request) = outgoing { Some(request) } else { None },
        )
    }

    /// Returns the request for a multicast packet that the station forwards from another link, as if a host
    /// had sent it on the topological link.
    ///
    /// # Errors
    ///
    /// The reason for which the sublayer does not send the packet.
    pub fn handle_forwarded<'a>(&mut self, packet: &'a [u8]) -> Result<Request<'a>, Ipv6Drop> {
        let result = self.request_of_forwarded(packet);
        match result {
            Ok(_) => self.counters.sent_packets += 1,
            Err(reason) => self.count_drop(reason),
        }
        result
    }

    fn request_of_forwarded<'a>(&self, packet: &'a [u8]) -> Result<Request<'a>, Ipv6Drop> {
        let (header, _) = Header::parse_packet(packet).map_err(|_| Ipv6Drop::Malformed)?;
        check_addresses(&header)?;
        if !header.destination.is_multicast() {
            return Err(Ipv6Drop::BadDestination);
        }
        let transport =
            self.transport_for(0, addresses::group_mac(header.destination), header.destination)?;
        let request = Request::new(transport, CommonNextHeader::Ipv6, packet);
        Ok(Request { maximum_hop_limit: self.hop_limit, ..request })
    }

    fn outcome_of_host_frame<'a>(
        &mut self,
        now: Time,
        link: LinkId,
        frame: HostFrame<'a>,
    ) -> Result<HostFrameOutcome<'a>, Ipv6Drop> {
        let at = self.index_of_link(link).ok_or(Ipv6Drop::UnknownLink)?;
        if frame.ether_type != ETHER_TYPE {
            return Err(Ipv6Drop::NotIpv6);
        }
        // Receivers take the station as the owner of each source MAC address, so refuse a frame with another
        // source.
        if frame.source != self.address.mid() {
            return Err(Ipv6Drop::ForeignSource);
        }
        let (header, payload) = Header::parse_packet(frame.payload).map_err(|_| Ipv6Drop::Malformed)?;
        let packet = frame.payload.get(..HEADER_LEN + payload.len()).ok_or(Ipv6Drop::Malformed)?;
        check_addresses(&header)?;
        let too_big = packet.len() > self.mtu as usize;
        if !too_big && self.answer_neighbor_discovery_locally(at, &header, packet)? {
            return Ok(HostFrameOutcome::Settled);
        }
        let transport = self.transport_for(at, frame.destination, header.destination)?;
        let room = self.max_payload_octets.saturating_sub(FRAGMENT_FORMAT_MAGIC.len());
        if packet.len() > self.mtu() as usize
            && let (Some(fragments), Transport::GeoUnicast(station)) = (&mut self.fragments, transport)
            && fragments.send_packet(now, station.mid(), room, link, packet) == OversizeOutcome::Taken
        {
            return Ok(HostFrameOutcome::Cut);
        }
        if too_big {
            self.answer_too_big(at, &header, packet);
            return Err(Ipv6Drop::TooBig);
        }
        let request = Request::new(transport, CommonNextHeader::Ipv6, packet);
        Ok(HostFrameOutcome::Request(Request { maximum_hop_limit: self.hop_limit, ..request }))
    }

    /// Handles a destination station whose position is unknown.
    pub fn handle_unknown_position(&mut self, station: MacAddress) {
        if let Some(fragments) = &mut self.fragments {
            fragments.remove_fragmentation_ability(station);
        }
    }

    /// Returns the next fragment payload, sent with next header 0, and its destination station.
    pub fn poll_fragment(&mut self) -> Option<(MacAddress, Vec<u8>)> {
        let fragments = self.fragments.as_mut()?;
        let next = fragments
            .poll_payload()
            .map(|(station, payload)| (station, [&FRAGMENT_FORMAT_MAGIC[..], &payload].concat()));
        self.counters.sent_packets += fragments.fragmented_packets - self.counters.fragmented_packets;
        self.counters.fragmented_packets = fragments.fragmented_packets;
        next
    }

    /// Handles a payload that may be a fragment. Returns the reassembled packet when its last fragment
    /// arrives, and `Ok(None)` for all fragments before. Returns a payload that is no fragment unchanged.
    ///
    /// # Errors
    ///
    /// The fragment is malformed.
    pub fn handle_fragment(&mut self, now: Time, delivery: Delivery) -> Result<Option<Delivery>, Ipv6Drop> {
        let unicast = delivery.header_type == HeaderType::GeoUnicast;
        let room = self.max_payload_octets.saturating_sub(FRAGMENT_FORMAT_MAGIC.len());
        let any = delivery.next_header == CommonNextHeader::Any;
        let ours = !any || delivery.payload.starts_with(&FRAGMENT_FORMAT_MAGIC);
        let Some(fragments) = self.fragments.as_mut().filter(|_| unicast && ours) else {
            if !any || !ours {
                return Ok(Some(delivery));
            }
            // The payload is a question to the sublayer, so applications do not get it, even if this station
            // does not answer it.
            self.count_drop(Ipv6Drop::Malformed);
            return Err(Ipv6Drop::Malformed);
        };
        let mut delivery = delivery;
        if any {
            delivery.payload.drain(..FRAGMENT_FORMAT_MAGIC.len());
            delivery.next_header = CommonNextHeader::Ipv6;
        }
        let heard = fragments.receive_payload(now, delivery.source.address.mid(), room, &delivery.payload);
        (self.counters.reassembled_packets, self.counters.abandoned_packets) =
            (fragments.reassembled_packets, fragments.abandoned_packets);
        match heard {
            PayloadOutcome::NotFragment if !any => Ok(Some(delivery)),
            PayloadOutcome::NotFragment => {
                self.count_drop(Ipv6Drop::Malformed);
                Err(Ipv6Drop::Malformed)
            }
            PayloadOutcome::Taken => Ok(None),
            PayloadOutcome::Packet(payload) => Ok(Some(Delivery { payload, ..delivery })),
            PayloadOutcome::Malformed => {
                self.count_drop(Ipv6Drop::Malformed);
                Err(Ipv6Drop::Malformed)
            }
        }
    }

    /// Sends Packet Too Big to the hosts whose packets waited for a station that cannot reassemble.
    pub(super) fn answer_refused_packets(&mut self) {
        let refused = self.fragments.as_mut().map(Fragments::take_refused_packets).unwrap_or_default();
        for (link, packet) in refused {
            if let (Some(at), Ok((header, _))) = (self.index_of_link(link), Header::parse_packet(&packet)) {
                self.answer_too_big(at, &header, &packet);
                self.count_drop(Ipv6Drop::TooBig);
            }
        }
    }

    /// Returns the transport of a packet to the IPv6 address `to` and the MAC address `mac` on link `at`, by
    /// the standard's mapping.
    fn transport_for(&self, at: usize, mac: MacAddress, to: Ipv6Addr) -> Result<Transport, Ipv6Drop> {
        let link = self.links.get(at).ok_or(Ipv6Drop::UnknownLink)?;
        if to.is_multicast() {
            if let Some(area) = self.configured_groups.get(&to) {
                return Ok(Transport::GeoBroadcast(*area));
            }
            if let Some(area) = self.operator_groups.get(&to) {
                return area.map(Transport::GeoBroadcast).ok_or(Ipv6Drop::Nowhere);
            }
            if let Some(area) = self.area_of_group(to) {
                return Ok(Transport::GeoBroadcast(*area));
            }
            return match link.kind {
                LinkKind::Geographic(area) => Ok(Transport::GeoBroadcast(area)),
                LinkKind::Topological => Ok(Transport::TopologicallyScoped),
                LinkKind::Dynamic => Err(Ipv6Drop::NoArea),
            };
        }
        let broadcast = mac[0] & 1 != 0;
        if mac == ANYCAST_MAC || (broadcast && addresses::is_geographic_anycast(to)) {
            // If the host routes the packet through an anycast address, `mac` stands for this address, but
            // `to` is the final destination. The area of the link then applies.
            let area = self.area_of_anycast(at, to).or(link.area()).ok_or(Ipv6Drop::NoArea)?;
            return Ok(Transport::GeoAnycast(*area));
        }
        let station =
            if broadcast { addresses::mac_of_address(to).ok_or(Ipv6Drop::Unresolved)? } else { mac };
        let [a, b, c, d, e, f] = station;
        // The router needs only the MID. It finds the full address in the location table or with the Location
        // Service.
        Ok(Transport::GeoUnicast(GnAddress(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))))
    }

    /// Returns the area of the subnet on whose prefix a group is based; `None` if the group is based on no
    /// prefix, or the subnet has no area.
    pub(super) fn area_of_group(&self, group: Ipv6Addr) -> Option<&GeoArea> {
        let prefix = addresses::prefix_of_group(group)?;
        self.area_of_subnet(prefix.address)
    }

    fn area_of_subnet(&self, address: Ipv6Addr) -> Option<&GeoArea> {
        let configured = self.subnets.iter().find(|(prefix, _)| prefix.contains_address(address));
        configured.map(|(_, area)| area).or_else(|| {
            let on_link = |link: &&Ipv6Link| !address.is_unicast_link_local() && link.is_on_link(address);
            self.links.iter().filter(|link| link.area().is_some()).find(on_link).and_then(Ipv6Link::area)
        })
    }

    /// Returns the area of a geographic anycast address; `None` for another address, or a subnet without an
    /// area.
    pub(super) fn area_of_anycast(&self, at: usize, address: Ipv6Addr) -> Option<&GeoArea> {
        if !addresses::is_geographic_anycast(address) {
            return None;
        }
        let own = self.links.get(at).filter(|link| link.is_on_link(address)).and_then(Ipv6Link::area);
        own.or_else(|| self.area_of_subnet(address))
    }

    /// Sends Packet Too Big to the host. The host sends such a packet if another program has raised the MTU
    /// of the interface.
    fn answer_too_big(&mut self, at: usize, header: &Header, packet: &[u8]) {
        let error = Icmpv6ErrorMessage::PacketTooBig { mtu: self.mtu };
        let Some(link) = self.links.get(at) else { return };
        if !icmpv6::may_send_error(error, packet) {
            return;
        }
        // The source of the error is a link-local address that no station uses, because a host drops packets
        // from its own address.
        let source = addresses::link_local_address(ANYCAST_MAC);
        self.outputs.push_back(Output::Frame {
            link: link.id,
            destination: self.address.mid(),
            source: ANYCAST_MAC,
            packet: icmpv6::error_packet(source, header.source, error, packet),
        });
    }
}

/// Checks addresses that no packet on a link may have (RFC 4291 2.5.2, 2.5.3, 2.7).
pub(super) fn check_addresses(header: &Header) -> Result<(), Ipv6Drop> {
    if header.source.is_multicast() || header.source.is_loopback() {
        return Err(Ipv6Drop::BadSource);
    }
    if header.destination.is_unspecified() || header.destination.is_loopback() {
        return Err(Ipv6Drop::BadDestination);
    }
    // Only Duplicate Address Detection and similar messages have the unspecified source, and their
    // destination is always multicast.
    if header.source.is_unspecified() && !header.destination.is_multicast() {
        return Err(Ipv6Drop::BadSource);
    }
    Ok(())
}
