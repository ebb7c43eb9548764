//! IPv6 over GeoNetworking in a station. Above are the virtual interfaces, below is the router of
//! `carnet_geonet`, and the adaptation sublayer is between them.

use std::net::Ipv6Addr;

use carnet_base::Time;
use carnet_geonet::ipv6_adaptation::{self as adaptation, HostFrame, LinkId, addresses};
use carnet_geonet::location_table::{mac_key, mid_key};
use carnet_geonet::multicast::{LanPacket, MulticastProxy};
use carnet_geonet::{Delivery, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, GnAddress, HeaderType, StationType, TrafficClass};

use super::{Geonet, multicast};
use crate::geonetworking::input::VirtualFrame;
use crate::geonetworking::output::{Output, VirtualLink};
use crate::security::plane::SecurityPlane;

/// EtherType of IPv6.
const ETHER_TYPE: u16 = 0x86dd;

impl Geonet {
    /// Handles a frame from the host on a virtual interface: sends its packet over GeoNetworking, or answers
    /// the host.
    pub fn handle_host_frame(&mut self, now: Time, link: u32, frame: HostFrame<'_>) {
        if frame.destination[0] & 1 != 0 {
            self.update_groups_if_due(now);
        }
        let HostFrame { destination, source, ether_type, payload } = frame;
        let keep = || VirtualFrame { link, destination, source, ether_type, payload: payload.to_vec() };
        if self.duplicate_ack_delay.as_mut().is_none_or(|patience| patience.handle_packet(now, payload, keep))
        {
            self.send_host_frame(now, link, frame);
        }
    }

    fn send_host_frame(&mut self, now: Time, link: u32, frame: HostFrame<'_>) {
        let Some(ipv6) = &mut self.ipv6 else { return };
        if frame.payload.len() > ipv6.mtu() as usize
            && self.router.location_table().find_slot_of_station(now, mac_key(frame.destination)).is_none()
        {
            ipv6.handle_unknown_position(frame.destination);
        }
        // If the sublayer or the router drops the packet, it counts the drop itself.
        if let Ok(Some(request)) = ipv6.handle_host_frame(now, LinkId(link), frame) {
            let marked = ipv6.mark_congestion(request.payload);
            let payload = marked.as_deref().unwrap_or(request.payload);
            let _counted = self.router.handle_request(now, Request { payload, ..request });
        }
        self.collect_outputs(now);
    }

    /// Sends the hosts' delayed acknowledgements whose delay is over.
    pub(super) fn release_delayed_acks(&mut self, now: Time) {
        let mut frames = Vec::new();
        if let Some(patience) = &mut self.duplicate_ack_delay {
            patience.handle_timeout(now, &mut |frame| frames.push(frame));
        }
        for VirtualFrame { link, destination, source, ether_type, payload } in frames {
            let frame = HostFrame { destination, source, ether_type, payload: &payload };
            self.send_host_frame(now, link, frame);
        }
    }

    /// Stores the number of octets that wait to be sent by the radio.
    pub fn handle_backlog(&mut self, octets: u32) {
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.handle_backlog(octets);
        }
    }

    /// Handles the addresses that the host has on a virtual interface.
    pub fn handle_addresses(&mut self, link: u32, addresses: Vec<(Ipv6Addr, u8)>) {
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.handle_addresses(LinkId(link), addresses);
        }
    }

    /// Handles the size of the largest payload of a frame, in octets.
    pub fn handle_link_mtu(&mut self, now: Time, mtu: u32) {
        if let Some(ipv6) = &mut self.ipv6 {
            let max_sdu_size = self.router.mib().max_sdu_size;
            let mtu =
                mtu.saturating_sub(self.security_plane.as_ref().map_or(0, SecurityPlane::envelope_overhead));
            ipv6.handle_mtu(adaptation::mtu(max_sdu_size, Some(mtu)));
            ipv6.handle_max_payload(adaptation::max_payload(max_sdu_size, mtu));
        }
        self.collect_outputs(now);
    }

    /// Handles a multicast packet from an interface of the mobile network.
    pub fn handle_lan_packet(&mut self, now: Time, packet: LanPacket<'_>) {
        self.update_groups_if_due(now);
        let (Some(proxy), Some(ipv6)) = (&mut self.multicast_proxy, &mut self.ipv6) else { return };
        // If the proxy or the sublayer drops the packet, it counts the drop itself.
        let onward = proxy.handle_lan_packet(now, packet, ipv6.mtu(), |group| ipv6.has_area_mapping(group));
        if let Ok(Some(packet)) = onward
            && let Ok(request) = ipv6.handle_forwarded(&packet)
        {
            let _counted = self.router.handle_request(now, request);
        }
        multicast::collect_multicast_outputs(self.multicast_proxy.as_mut(), &mut self.outputs);
        self.collect_outputs(now);
    }

    /// Handles the list of addresses of an interface of the mobile network.
    pub fn handle_lan_addresses(&mut self, now: Time, interface: &str, addresses: &[(Ipv6Addr, u8)]) {
        if let Some(proxy) = &mut self.multicast_proxy {
            proxy.handle_addresses(now, interface, addresses);
        }
        multicast::collect_multicast_outputs(self.multicast_proxy.as_mut(), &mut self.outputs);
    }

    /// Returns the multicast proxy, if the station has one.
    pub fn multicast_proxy(&self) -> Option<&MulticastProxy> {
        self.multicast_proxy.as_ref()
    }

    /// Delivers a payload to the host if it is IPv6 and virtual interfaces for it exist; otherwise returns
    /// the payload.
    pub(super) fn deliver_to_ipv6(&mut self, now: Time, delivery: Delivery) -> Option<Delivery> {
        let may_be = matches!(delivery.next_header, CommonNextHeader::Ipv6 | CommonNextHeader::Any);
        let Some(ipv6) = self.ipv6.as_mut().filter(|_| may_be) else { return Some(delivery) };
        let Ok(Some(delivery)) = ipv6.handle_fragment(now, delivery) else { return None };
        if delivery.next_header != CommonNextHeader::Ipv6 {
            return Some(delivery);
        }
        match ipv6.handle_delivery(now, &delivery) {
            Ok(_) if self.station_messages.handle_delivery(&delivery, self.router.address()) => {
                self.collect_ipv6_outputs()
            }
            Ok(placed) => {
                self.collect_ipv6_outputs();
                if let Some(proxy) = self.multicast_proxy.as_mut().filter(|_| placed.destination[0] & 1 != 0)
                {
                    // The proxy counts the packets that it drops.
                    let _counted = proxy.handle_upstream_packet(now, &delivery.payload);
                    multicast::collect_multicast_outputs(self.multicast_proxy.as_mut(), &mut self.outputs);
                }
                let stream = delivery.sequence.filter(|_| delivery.header_type == HeaderType::GeoUnicast);
                let hops = delivery.maximum_hop_limit.saturating_sub(delivery.remaining_hop_limit);
                if let (Some(patience), Some(_)) = (&mut self.duplicate_ack_delay, stream) {
                    patience.handle_delivery(now, &delivery.payload, hops);
                }
                let output = Output::Ipv6 {
                    link: placed.link.0,
                    destination: placed.destination,
                    source: placed.source,
                    delivered: delivery.into(),
                };
                match (&mut self.reordering_buffer, stream) {
                    (Some(in_order), Some(sequence)) => {
                        let source = mid_key(GnAddress::new(false, StationType::Unknown, placed.source));
                        let outputs = &mut self.outputs;
                        in_order.push(now, source, sequence, hops, output, &mut |o| outputs.push_back(o));
                    }
                    _ => self.outputs.push_back(output),
                }
            }
            // The sublayer has counted the dropped packet.
            Err(_) => self.router.recycle_buffer(delivery.payload),
        }
        None
    }

    /// Sends the fragments into which the sublayer has divided packets.
    pub(super) fn send_pending_fragments(&mut self, now: Time) {
        while let Some(ipv6) = &mut self.ipv6
            && let Some((station, payload)) = ipv6.poll_fragment()
        {
            let hop_limit = ipv6.hop_limit();
            let to = GnAddress::new(false, StationType::Unknown, station);
            let request = Request::new(Transport::GeoUnicast(to), CommonNextHeader::Any, &payload);
            // IPv6 packets have the lowest priority (annex B.2), so that they do not delay facility messages.
            let traffic_class = TrafficClass { id: 3, ..TrafficClass::default() };
            let request = Request { maximum_hop_limit: hop_limit, traffic_class, ..request };
            let _counted = self.router.handle_request(now, request);
            self.collect_outputs(now);
        }
    }

    /// Executes the outputs of the IPv6 adaptation, and passes the router's address to it.
    pub(super) fn collect_ipv6_outputs(&mut self) {
        let Some(ipv6) = &mut self.ipv6 else { return };
        ipv6.handle_address(self.router.address());
        while let Some(output) = ipv6.poll_output() {
            self.outputs.push_back(match output {
                adaptation::Output::Link(link) => Output::VirtualLink(VirtualLink {
                    id: link.id.0,
                    link_local: addresses::link_local_address(link.address),
                    name: link.name,
                    address: link.address,
                    mtu: link.mtu,
                    learnt: link.learned_from_advertisement,
                }),
                adaptation::Output::LinkGone(id) => Output::VirtualLinkGone(id.0),
                adaptation::Output::Frame { link, destination, source, packet } => {
                    Output::VirtualFrame(VirtualFrame {
                        link: link.0,
                        destination,
                        source,
                        ether_type: ETHER_TYPE,
                        payload: packet,
                    })
                }
            });
        }
    }
}
